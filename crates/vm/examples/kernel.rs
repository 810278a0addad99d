//! A kernel's half: virtual memory over x86-64 page tables, without std.
//!
//! This is a library with a panic handler of its own. Should anything below it pull std in,
//! there would be two, and it would not compile; every run of the tests builds it.
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

/// What the processor and the disks do for this kernel.
pub struct Board {
    /// Sends INVLPG or a new CR3 to every processor that may hold what a token names.
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

/// All that this kernel knows of memory.
pub struct Everything<M: Memory + Send + Sync> {
    /// What should be where.
    pub vm: Vm,
    /// What hardware has of it.
    pub hat: Hat<Mount<X86_64<4>, M>>,
    /// Frames.
    pub memory: Physical<Buddy>,
    /// The rest.
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

    /// The first process, with a stack, and a child of it.
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
