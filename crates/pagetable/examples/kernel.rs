//! The code that a kernel must provide to use a page table over a direct map of physical memory,
//! without std.
//!
//! This is a library with its own panic handler. If anything below it linked std, there would be
//! two panic handlers, and it would not compile; every run of the tests builds it.
#![no_std]

use core::panic::PanicInfo;

use addr::{PageSize, PhysAddr, Rights, VirtAddr};
use pagetable::{Error, Memory, PageTable, Space, Translation, X86_64};
use physmem::Physmem;

#[panic_handler]
fn halt(_: &PanicInfo<'_>) -> ! {
    loop {}
}

/// Physical memory that the boot loader has mapped completely, as 64-bit words.
pub struct DirectMap<'a>(&'a mut [u64]);

impl<'a> DirectMap<'a> {
    /// The memory that starts at physical address 0.
    pub fn new(words: &'a mut [u64]) -> DirectMap<'a> {
        DirectMap(words)
    }

    fn word(&self, addr: PhysAddr) -> u64 {
        self.0[(addr.get() / 8) as usize]
    }

    fn replace(&mut self, addr: PhysAddr, bits: u32, value: u64) {
        let word = &mut self.0[(addr.get() / 8) as usize];
        let shift = addr.get() % 8 * 8;
        let mask = (u64::MAX >> (64 - bits)) << shift;
        *word = (*word & !mask) | ((value << shift) & mask);
    }
}

impl Memory for DirectMap<'_> {
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        self.word(addr)
    }

    fn read_u32(&self, addr: PhysAddr) -> u32 {
        (self.word(addr) >> (addr.get() % 8 * 8)) as u32
    }

    fn read_u8(&self, addr: PhysAddr) -> u8 {
        (self.word(addr) >> (addr.get() % 8 * 8)) as u8
    }

    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        self.replace(addr, 64, value);
    }

    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        self.replace(addr, 32, value.into());
    }

    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        self.replace(addr, 8, value.into());
    }

    addr::exchanges_of_one_user!();
}

/// Creates a space with `pages` pages of the kernel from `start` on; the first page has the frame
/// `frame`.
pub fn kernel_space(
    table: &mut X86_64,
    memory: &mut DirectMap<'_>,
    frames: &mut Physmem,
    start: VirtAddr,
    frame: PhysAddr,
    pages: u64,
) -> Result<Space, Error> {
    let space = table.create(memory, frames)?;
    let page = start.page(PageSize::SIZE_2M);
    let rights = Rights::READ | Rights::WRITE | Rights::EXECUTE;
    let first = Translation { global: true, ..Translation::new(page, frame, rights) };
    match table.map(space, first, pages, memory, frames) {
        Ok(flush) => {
            // No processor has run in this space, so no TLB has an entry to flush.
            flush.done(frames);
            Ok(space)
        }
        Err(error) => {
            table.destroy(space, memory)?.done(frames);
            Err(error)
        }
    }
}
