//! Simulated physical memory that takes host memory only for frames that were written.
//!
//! ```text
//!    addr  |  directory  | 13: frame | 9: word | 3 |
//!               |             |          |
//!          directories ---> frames ---> words
//!             [  ]           [  ]        512 x u64
//! ```
//!
//! Two loads find a frame, without hashing. A directory stands for 32 MiB.

use alloc::{boxed::Box, vec::Vec};

use addr::{Memory, PageSize, PhysAddr};

const FRAME: PageSize = PageSize::SIZE_4K;
const WORD_SHIFT: u32 = 3;
const WORDS: usize = (FRAME.bytes() >> WORD_SHIFT) as usize;
const DIRECTORY_BITS: u32 = 13;
const DIRECTORY_FRAMES: usize = 1 << DIRECTORY_BITS;
const DIRECTORY_SHIFT: u32 = FRAME.shift() + DIRECTORY_BITS;

type Frame = Box<[u64; WORDS]>;
type Directory = Box<[Option<Frame>]>;

/// Memory from address 0 to its size; what nobody has written reads as zeros.
pub struct SparseMemory {
    directories: Vec<Option<Directory>>,
    bytes: u64,
    frames: u64,
}

impl SparseMemory {
    /// Memory of `bytes` bytes, none of which takes host memory yet.
    pub const fn new(bytes: u64) -> SparseMemory {
        SparseMemory { directories: Vec::new(), bytes, frames: 0 }
    }

    /// Its size in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of frames that were written, which is about what it takes of the host's memory.
    pub const fn resident_bytes(&self) -> u64 {
        self.frames * FRAME.bytes()
    }

    #[inline]
    fn word(&self, addr: PhysAddr) -> u64 {
        let directory = self.directories.get(directory_index(addr));
        match directory.and_then(|slot| slot.as_ref()?[frame_index(addr)].as_ref()) {
            Some(frame) => frame[word_index(addr)],
            None => self.absent(addr),
        }
    }

    #[cold]
    fn absent(&self, addr: PhysAddr) -> u64 {
        self.check(addr);
        0
    }

    #[inline]
    fn word_mut(&mut self, addr: PhysAddr) -> &mut u64 {
        &mut self.frame_mut(addr)[word_index(addr)]
    }

    #[inline]
    fn frame_mut(&mut self, addr: PhysAddr) -> &mut [u64; WORDS] {
        let index = directory_index(addr);
        if index >= self.directories.len() {
            self.grow(addr);
        }
        let directory = self.directories[index].get_or_insert_with(new_directory);
        directory[frame_index(addr)].get_or_insert_with(|| {
            self.frames += 1;
            new_frame()
        })
    }

    #[cold]
    fn grow(&mut self, addr: PhysAddr) {
        self.check(addr);
        self.directories.resize_with(directory_index(addr) + 1, || None);
    }

    fn check(&self, addr: PhysAddr) {
        assert!(
            addr.get() < self.bytes,
            "physical address {addr} lies past the end of memory at {:#x}",
            self.bytes
        );
    }
}

impl Memory for SparseMemory {
    #[inline]
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        debug_assert!(addr.get().is_multiple_of(8), "{addr} is not a multiple of 8");
        self.word(addr)
    }

    #[inline]
    fn read_u32(&self, addr: PhysAddr) -> u32 {
        debug_assert!(addr.get().is_multiple_of(4), "{addr} is not a multiple of 4");
        (self.word(addr) >> bit_in_word(addr)) as u32
    }

    #[inline]
    fn read_u8(&self, addr: PhysAddr) -> u8 {
        (self.word(addr) >> bit_in_word(addr)) as u8
    }

    #[inline]
    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        debug_assert!(addr.get().is_multiple_of(8), "{addr} is not a multiple of 8");
        *self.word_mut(addr) = value;
    }

    #[inline]
    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        debug_assert!(addr.get().is_multiple_of(4), "{addr} is not a multiple of 4");
        let bit = bit_in_word(addr);
        let word = self.word_mut(addr);
        *word = *word & !(u64::from(u32::MAX) << bit) | u64::from(value) << bit;
    }

    #[inline]
    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        let bit = bit_in_word(addr);
        let word = self.word_mut(addr);
        *word = *word & !(u64::from(u8::MAX) << bit) | u64::from(value) << bit;
    }

    fn zero(&mut self, start: PhysAddr, bytes: u64) {
        let mut offset = 0;
        while offset < bytes {
            let addr = start.wrapping_add(offset);
            let first = word_index(addr);
            let words = (WORDS - first).min(((bytes - offset) >> WORD_SHIFT) as usize);
            self.frame_mut(addr)[first..first + words].fill(0);
            offset += (words as u64) << WORD_SHIFT;
        }
    }
}

#[cold]
fn new_directory() -> Directory {
    (0..DIRECTORY_FRAMES).map(|_| None).collect()
}

#[cold]
fn new_frame() -> Frame {
    Box::new([0; WORDS])
}

#[inline]
const fn directory_index(addr: PhysAddr) -> usize {
    (addr.get() >> DIRECTORY_SHIFT) as usize
}

#[inline]
const fn frame_index(addr: PhysAddr) -> usize {
    (addr.get() >> FRAME.shift()) as usize & (DIRECTORY_FRAMES - 1)
}

#[inline]
const fn word_index(addr: PhysAddr) -> usize {
    (addr.offset_in(FRAME) >> WORD_SHIFT) as usize
}

#[inline]
const fn bit_in_word(addr: PhysAddr) -> u32 {
    (addr.get() & 7) as u32 * 8
}
