//! A RAM disk with swap space and files.
//!
//! | inode | file |
//! |---|---|
//! | 1 | the program of user mode, as the kernel's image has it |
//! | 2 | 64 pages, each of which begins with its number |

use core::ops::Range;

use addr::{PageSize, PhysAddr};
use vm::{FileKey, Io, Store};

use crate::direct;

/// The file of the user program.
pub const PROGRAM: FileKey = FileKey { device: 1, inode: 1 };
const NUMBERS: u64 = 2;
const PAGE: u64 = PageSize::SIZE_4K.bytes();

/// The bytes of the program's file.
pub static PROGRAM_BYTES: &[u8] = include_bytes!(env!("USER_PROGRAM"));

/// Memory that stands for a disk.
#[derive(Debug)]
pub struct Disk {
    start: PhysAddr,
    swap_pages: u64,
}

impl Disk {
    /// The number of pages of a file.
    pub const FILE_PAGES: u64 = 64;

    /// A disk in this physical memory, with the initial contents of its files.
    pub fn new(memory: Range<u64>) -> Disk {
        let pages = (memory.end - memory.start) / PAGE;
        let disk = Disk { start: PhysAddr::new(memory.start), swap_pages: pages - 2 * Disk::FILE_PAGES };
        for index in 0..Disk::FILE_PAGES {
            let chunk = PROGRAM_BYTES.get((index * PAGE) as usize..).unwrap_or(&[]);
            direct::fill(disk.file_page(1, index), chunk, PAGE);
            direct::fill(disk.file_page(NUMBERS, index), &(index + 1).to_le_bytes(), PAGE);
        }
        disk
    }

    /// The number of pages of swap space.
    pub fn swap_pages(&self) -> u64 {
        self.swap_pages
    }

    /// Whether there is such a file, with `pages` pages from page `first` on.
    pub fn has(file: FileKey, first: u64, pages: u64) -> bool {
        let is_there = file.device == 1 && (1..=NUMBERS).contains(&file.inode);
        is_there && first.checked_add(pages).is_some_and(|end| end <= Disk::FILE_PAGES)
    }

    fn file_page(&self, inode: u64, index: u64) -> PhysAddr {
        self.page(self.swap_pages + (inode - 1) * Disk::FILE_PAGES + index)
    }

    fn page(&self, number: u64) -> PhysAddr {
        self.start.wrapping_add(number * PAGE)
    }

    /// Reads or writes a page.
    pub fn transfer(&self, io: Io) {
        let at = match io.store {
            Store::File(file, index) => self.file_page(file.inode, index),
            Store::Swap(slot) => self.page(u64::from(slot.0)),
        };
        match io.write {
            true => direct::copy(io.frame, at, PAGE),
            false => direct::copy(at, io.frame, PAGE),
        }
    }
}

/// The address of the program's first instruction, from its file.
pub fn program_start() -> u64 {
    let entry = PROGRAM_BYTES[24..32].try_into().expect("a file of ELF64 has 8 bytes there");
    u64::from_le_bytes(entry)
}
