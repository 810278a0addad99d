//! The code that a kernel must provide to use virtual memory over x86-64 page tables, without std.
//!
//! This is a library with its own panic handler. If anything below it linked std, there would be
//! two panic handlers, and it would not compile; every run of the tests builds it.
#![no_std]

use core::panic::PanicInfo;

use addr::{Kind, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace};
use pagetable::{Flush, Mount, X86_64};
use physmem::Buddy;
use vm::{Error, Io, Kernel, Parts, Physical, Platform, Source, Vm};

#[panic_handler]
fn halt(_: &PanicInfo<'_>) -> ! {
    loop {}
}

/// The operations of processors and disks that this kernel provides.
pub struct Board {
    /// Executes INVLPG or reloads CR3 on every processor that may hold the translations that a token names.
    pub invalidate: fn(HatSpace, &Flush),
    /// Fills memory with zeros.
    pub zero: fn(PhysAddr, u64),
    /// Copies memory.
    pub copy: fn(PhysAddr, PhysAddr, u64),
    /// Reads or writes a page, and waits for it.
    pub transfer: fn(Io),
}

impl Platform for Board {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        for (space, flush) in flushes {
            (self.invalidate)(*space, flush);
        }
    }

    fn zero(&mut self, frame: PhysAddr, bytes: u64) {
        (self.zero)(frame, bytes);
    }

    fn copy(&mut self, from: PhysAddr, to: PhysAddr, bytes: u64) {
        (self.copy)(from, to, bytes);
    }

    fn transfer(&mut self, io: Io) {
        (self.transfer)(io);
    }
}

/// The complete memory management of this kernel.
pub struct Everything<M: Memory + Send + Sync> {
    /// The contents of address spaces.
    pub vm: Vm,
    /// The mappings in page tables.
    pub hat: Hat<Mount<X86_64<4>, M>>,
    /// The frames of physical memory.
    pub memory: Physical<Buddy>,
    /// The processors and disks.
    pub board: Board,
}

impl<M: Memory + Send + Sync> Everything<M> {
    fn kernel(&mut self) -> Kernel<'_, Parts<Mount<X86_64<4>, M>, Buddy, Board>> {
        let Everything { vm, hat, memory, board } = self;
        Kernel::new(vm, hat, memory, board)
    }

    /// The page-fault handler.
    pub fn page_fault(&mut self, space: HatSpace, at: VirtAddr, kind: Kind) -> Result<(), Error> {
        self.kernel().fault(space, at, kind).map(|_| ())
    }

    /// Creates the first process, with a stack, and a child of this process.
    pub fn begin(&mut self) -> Result<[HatSpace; 2], Error> {
        let mut kernel = self.kernel();
        let parent = kernel.create()?;
        let stack = VirtAddr::new(0x7fff_0000_0000).page(PageSize::SIZE_4K);
        let rights = Rights::READ | Rights::WRITE;
        kernel.map(parent, VirtRange::of_page(stack), rights, Source::Anonymous, 0)?;
        kernel.fault(parent, stack.start(), Kind::Store)?;
        let child = kernel.create()?;
        kernel.fork(parent, child)?;
        Ok([parent, child])
    }
}
