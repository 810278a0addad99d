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
    /// Memory of `bytes` bytes, rounded up to whole frames of 4 KiB, none of which takes host
    /// memory yet.
    pub const fn new(bytes: u64) -> SparseMemory {
        let rest = bytes & FRAME.mask();
        let missing = if rest == 0 { 0 } else { FRAME.bytes() - rest };
        let bytes = bytes.saturating_add(missing);
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
        check(addr, self.bytes);
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
            check(addr, self.bytes);
            self.directories.resize_with(index + 1, || None);
        }
        let directory = self.directories[index].get_or_insert_with(new_directory);
        directory[frame_index(addr)].get_or_insert_with(|| {
            check(addr, self.bytes);
            self.frames += 1;
            Box::new([0; WORDS])
        })
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
fn check(addr: PhysAddr, bytes: u64) {
    assert!(
        addr.get() < bytes,
        "physical address {addr} lies past the end of memory at {bytes:#x}"
    );
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

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Every width against a map of bytes, around the seams of words, frames and directories.
    #[test]
    fn bytes_read_are_the_bytes_last_written() {
        let seed = 11;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let seams = [0x40, 0x1000, 0x5000, 1 << DIRECTORY_SHIFT, 5 << DIRECTORY_SHIFT, 1 << 36];
        let mut memory = SparseMemory::new((1 << 36) + 0x40);
        let mut model: BTreeMap<u64, u8> = BTreeMap::new();
        for step in 0..200_000 {
            let bytes = [1, 4, 8][rng.random_range(0..3)];
            let near: u64 = seams[rng.random_range(0..seams.len())];
            let start = (near - 0x40 + rng.random_range(0..0x80)) & !(bytes - 1);
            let addr = PhysAddr::new(start);
            if rng.random_bool(0.5) {
                let value: u64 = rng.random();
                match bytes {
                    1 => memory.write_u8(addr, value as u8),
                    4 => memory.write_u32(addr, value as u32),
                    _ => memory.write_u64(addr, value),
                }
                for n in 0..bytes {
                    model.insert(start + n, value.to_le_bytes()[n as usize]);
                }
            } else if rng.random_bool(0.02) {
                let start = start & !7;
                let bytes = rng.random_range(1..6) * 8;
                let bytes = bytes.min(memory.bytes() - start);
                memory.zero(PhysAddr::new(start), bytes);
                model.extend((start..start + bytes).map(|byte| (byte, 0)));
            }
            let expected = (0..bytes).rev().fold(0, |value, n| {
                value << 8 | u64::from(model.get(&(start + n)).copied().unwrap_or(0))
            });
            let found = match bytes {
                1 => u64::from(memory.read_u8(addr)),
                4 => u64::from(memory.read_u32(addr)),
                _ => memory.read_u64(addr),
            };
            assert_eq!(found, expected, "seed {seed}, step {step}, {bytes} bytes at {addr}");
        }
        let frames: alloc::collections::BTreeSet<u64> =
            model.keys().map(|byte| byte >> FRAME.shift()).collect();
        assert_eq!(memory.resident_bytes(), frames.len() as u64 * FRAME.bytes());
    }

    #[test]
    fn reading_takes_no_memory() {
        let memory = SparseMemory::new(1 << 52);
        assert_eq!(memory.read_u64(PhysAddr::new((1 << 52) - 8)), 0);
        assert_eq!(memory.resident_bytes(), 0);
    }

    #[test]
    #[should_panic(expected = "past the end of memory")]
    fn there_is_nothing_past_the_end() {
        let mut memory = SparseMemory::new(0x1fff);
        memory.write_u8(PhysAddr::new(0x1fff), 1);
        memory.write_u8(PhysAddr::new(0x2000), 1);
    }
}
