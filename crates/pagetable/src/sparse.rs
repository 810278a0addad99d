//! Simulated physical memory that takes host memory only for frames that have been written.
//!
//! ```text
//!    addr  |  frame  | 9: word | 3 |
//!               |         |
//!             slots       |          one u32 a frame, 0 where nobody has written
//!               |         |
//!             written frames         512 x u64 each; number 0 stays zeros
//! ```
//!
//! One load finds the slot of a frame, without hashing, and another load reads the word. Reads need
//! no special case for frames that have never been written. The slots of the first TiB are an array
//! that grows with the highest frame written. Frames are allocated from the bottom up, so only few
//! frames are above 1 TiB; the slots of these frames are in an ordered map.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use addr::{Memory, PageSize, PhysAddr};

const FRAME: PageSize = PageSize::SIZE_4K;
const WORD_SHIFT: u32 = 3;
const WORDS: usize = (FRAME.bytes() >> WORD_SHIFT) as usize;
const NEAR_FRAMES_MIN: usize = 1 << 12;
const NEAR_FRAMES_MAX: usize = 1 << 28;
/// The slot of the zero frame, which all frames share until they are written.
const ZEROS: u32 = 0;

/// Memory from address 0 up to its size; bytes that have never been written read as zeros.
pub struct SparseMemory {
    near: Vec<u32>,
    far: BTreeMap<usize, u32>,
    written: Vec<[u64; WORDS]>,
    bytes: u64,
}

impl SparseMemory {
    /// Memory of `bytes` bytes, rounded up to whole frames of 4 KiB. A new memory takes no host
    /// memory for frames.
    pub fn new(bytes: u64) -> SparseMemory {
        let bytes = bytes.checked_next_multiple_of(FRAME.bytes()).unwrap_or(u64::MAX);
        SparseMemory {
            near: vec![ZEROS; NEAR_FRAMES_MIN],
            far: BTreeMap::new(),
            written: vec![[0; WORDS]],
            bytes,
        }
    }

    /// The size of the memory in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the frames that have been written, which is about the host memory that this memory
    /// takes.
    pub fn resident_bytes(&self) -> u64 {
        (self.written.len() as u64 - 1) * FRAME.bytes()
    }

    #[inline]
    fn word_at(&self, addr: PhysAddr) -> &u64 {
        &self.written[self.slot(addr) as usize][word_index(addr)]
    }

    #[inline]
    fn slot(&self, addr: PhysAddr) -> u32 {
        match self.near.get(frame_number(addr)) {
            Some(&slot) => slot,
            None => self.far_slot(addr),
        }
    }

    #[inline]
    fn word_mut(&mut self, addr: PhysAddr) -> &mut u64 {
        &mut self.frame_mut(addr)[word_index(addr)]
    }

    #[inline]
    fn frame_mut(&mut self, addr: PhysAddr) -> &mut [u64; WORDS] {
        let slot = match self.near.get(frame_number(addr)) {
            Some(&slot) if slot != ZEROS => slot,
            _ => self.populated_slot(addr),
        };
        &mut self.written[slot as usize]
    }

    #[cold]
    fn far_slot(&self, addr: PhysAddr) -> u32 {
        self.check(addr);
        self.far.get(&frame_number(addr)).copied().unwrap_or(ZEROS)
    }

    /// The slot of a frame, which is allocated if the frame is beyond the array or has not been
    /// written yet.
    #[cold]
    fn populated_slot(&mut self, addr: PhysAddr) -> u32 {
        self.check(addr);
        let frame = frame_number(addr);
        let next = self.written.len() as u32;
        let slot = if frame < NEAR_FRAMES_MAX {
            self.extend_near(frame);
            &mut self.near[frame]
        } else {
            self.far.entry(frame).or_insert(ZEROS)
        };
        if *slot == ZEROS {
            *slot = next;
            self.written.push([0; WORDS]);
        }
        *slot
    }

    /// Extends the array of slots to `frame`. The array takes host memory only for the part in use.
    fn extend_near(&mut self, frame: usize) {
        if frame >= self.near.len() {
            let mut longer = vec![ZEROS; (frame + 1).next_power_of_two()];
            longer[..self.near.len()].copy_from_slice(&self.near);
            self.near = longer;
        }
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
    fn word(&self, addr: PhysAddr) -> Option<&u64> {
        Some(self.word_at(addr))
    }

    #[inline]
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        debug_assert!(addr.get().is_multiple_of(8), "{addr} is not a multiple of 8");
        *self.word_at(addr)
    }

    #[inline]
    fn read_u32(&self, addr: PhysAddr) -> u32 {
        debug_assert!(addr.get().is_multiple_of(4), "{addr} is not a multiple of 4");
        (self.word_at(addr) >> bit_in_word(addr)) as u32
    }

    #[inline]
    fn read_u8(&self, addr: PhysAddr) -> u8 {
        (self.word_at(addr) >> bit_in_word(addr)) as u8
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

    addr::exchanges_of_one_user!();

    #[inline]
    fn write_upper_u64(&mut self, addr: PhysAddr, value: u64) {
        self.write_u64(addr, value);
    }

    fn zero(&mut self, start: PhysAddr, bytes: u64) {
        let mut offset = 0;
        while offset < bytes {
            let addr = start.wrapping_add(offset);
            let first = word_index(addr);
            let words = (WORDS - first).min(((bytes - offset) >> WORD_SHIFT) as usize);
            if self.slot(addr) != ZEROS {
                self.frame_mut(addr)[first..first + words].fill(0);
            }
            offset += (words as u64) << WORD_SHIFT;
        }
    }
}

#[inline]
const fn frame_number(addr: PhysAddr) -> usize {
    (addr.get() >> FRAME.shift()) as usize
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
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Compares reads of every width with a map of bytes, around the boundaries of words, of frames
    /// and of the array of slots.
    #[test]
    fn bytes_read_are_the_bytes_last_written() {
        let seed = 11;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let near = NEAR_FRAMES_MIN as u64 * FRAME.bytes();
        let far = NEAR_FRAMES_MAX as u64 * FRAME.bytes();
        let seams = [0x40, 0x1000, 0x5000, near, 9 * near, far, 16 * far];
        let mut memory = SparseMemory::new(16 * far + 0x40);
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
                // Clearing a frame that was never written does not make it a written frame.
                for byte in start..start + bytes {
                    model.entry(byte).and_modify(|value| *value = 0);
                }
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
    fn neither_reading_nor_zeroing_takes_memory() {
        let mut memory = SparseMemory::new(1 << 52);
        assert_eq!(memory.read_u64(PhysAddr::new((1 << 52) - 8)), 0);
        memory.zero(PhysAddr::new(0x800), 1 << 30);
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
