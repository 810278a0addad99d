//! Physical memory that several threads use at once: an array of atomic words.
//!
//! ```text
//!   address --> region of 16 MiB --> frame of 4 KiB --> word
//!               each made when it is first written, and never moved
//! ```

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use addr::{Memory, PhysAddr};

const WORD_SHIFT: u32 = 3;
const FRAME_SHIFT: u32 = 12;
const REGION_SHIFT: u32 = 24;
const WORDS: usize = 1 << (FRAME_SHIFT - WORD_SHIFT);
const FRAMES: usize = 1 << (REGION_SHIFT - FRAME_SHIFT);

type Frame = Box<[AtomicU64]>;
type Region = Box<[OnceLock<Frame>]>;

/// Memory from address 0. Clones share the memory. Words that were never written read as zero.
#[derive(Clone, Debug)]
pub struct SharedMemory {
    regions: Arc<[OnceLock<Region>]>,
}

impl SharedMemory {
    /// A memory of `bytes` bytes.
    pub fn new(bytes: u64) -> SharedMemory {
        SharedMemory { regions: empty((bytes >> REGION_SHIFT) as usize).into() }
    }

    fn known(&self, addr: PhysAddr) -> Option<&AtomicU64> {
        let [region, frame, word] = places(addr);
        Some(&self.regions[region].get()?[frame].get()?[word])
    }

    fn word(&self, addr: PhysAddr) -> &AtomicU64 {
        let [region, frame, word] = places(addr);
        let frames = self.regions[region].get_or_init(|| empty(FRAMES));
        &frames[frame].get_or_init(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect())[word]
    }

    /// Replaces the bits in `mask` of the word at `addr`. Returns the word as it was before.
    fn replace(&self, addr: PhysAddr, mask: u64, bits: u64) -> u64 {
        let with = |word| Some(word & !mask | bits);
        let word = self.word(addr);
        word.fetch_update(Ordering::AcqRel, Ordering::Acquire, with).unwrap_or_default()
    }
}

fn empty<T>(count: usize) -> Box<[OnceLock<T>]> {
    (0..count).map(|_| OnceLock::new()).collect()
}

fn places(addr: PhysAddr) -> [usize; 3] {
    let addr = addr.get();
    let frame = (addr >> FRAME_SHIFT) as usize % FRAMES;
    [(addr >> REGION_SHIFT) as usize, frame, (addr >> WORD_SHIFT) as usize % WORDS]
}

const fn bit(addr: PhysAddr) -> u32 {
    (addr.get() & 7) as u32 * 8
}

const HALF: u64 = u32::MAX as u64;

/// The address of the word that contains the byte at `addr`.
const fn whole(addr: PhysAddr) -> PhysAddr {
    PhysAddr::new(addr.get() & !7)
}

impl Memory for &SharedMemory {
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        self.known(addr).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn read_u32(&self, addr: PhysAddr) -> u32 {
        (self.read_u64(whole(addr)) >> bit(addr)) as u32
    }

    fn read_u8(&self, addr: PhysAddr) -> u8 {
        (self.read_u64(whole(addr)) >> bit(addr)) as u8
    }

    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        self.word(addr).store(value, Ordering::Release);
    }

    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        self.replace(whole(addr), HALF << bit(addr), u64::from(value) << bit(addr));
    }

    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        self.replace(whole(addr), 0xff << bit(addr), u64::from(value) << bit(addr));
    }

    fn swap_u64(&mut self, addr: PhysAddr, new: u64) -> u64 {
        self.word(addr).swap(new, Ordering::AcqRel)
    }

    fn swap_u32(&mut self, addr: PhysAddr, new: u32) -> u32 {
        let was = self.replace(whole(addr), HALF << bit(addr), u64::from(new) << bit(addr));
        (was >> bit(addr)) as u32
    }

    fn invert_u64(&mut self, addr: PhysAddr, bits: u64) -> u64 {
        self.word(addr).fetch_xor(bits, Ordering::AcqRel)
    }

    fn invert_u32(&mut self, addr: PhysAddr, bits: u32) -> u32 {
        let was = self.word(whole(addr)).fetch_xor(u64::from(bits) << bit(addr), Ordering::AcqRel);
        (was >> bit(addr)) as u32
    }

    fn compare_exchange_u64(&mut self, addr: PhysAddr, current: u64, new: u64) -> Result<(), u64> {
        let word = self.word(addr);
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
    }

    fn compare_exchange_u32(&mut self, addr: PhysAddr, current: u32, new: u32) -> Result<(), u32> {
        let (bit, word) = (bit(addr), self.word(whole(addr)));
        let with = |word: u64| {
            let is_current = (word >> bit) as u32 == current;
            is_current.then_some(word & !(HALF << bit) | u64::from(new) << bit)
        };
        let done = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, with);
        done.map(|_| ()).map_err(|word| (word >> bit) as u32)
    }
}

/// The operations with exclusive access call the operations with shared access.
impl Memory for SharedMemory {
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        (&self).read_u64(addr)
    }

    fn read_u32(&self, addr: PhysAddr) -> u32 {
        (&self).read_u32(addr)
    }

    fn read_u8(&self, addr: PhysAddr) -> u8 {
        (&self).read_u8(addr)
    }

    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        (&mut &*self).write_u64(addr, value);
    }

    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        (&mut &*self).write_u32(addr, value);
    }

    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        (&mut &*self).write_u8(addr, value);
    }

    fn swap_u64(&mut self, addr: PhysAddr, new: u64) -> u64 {
        (&mut &*self).swap_u64(addr, new)
    }

    fn swap_u32(&mut self, addr: PhysAddr, new: u32) -> u32 {
        (&mut &*self).swap_u32(addr, new)
    }

    fn invert_u64(&mut self, addr: PhysAddr, bits: u64) -> u64 {
        (&mut &*self).invert_u64(addr, bits)
    }

    fn invert_u32(&mut self, addr: PhysAddr, bits: u32) -> u32 {
        (&mut &*self).invert_u32(addr, bits)
    }

    fn compare_exchange_u64(&mut self, addr: PhysAddr, current: u64, new: u64) -> Result<(), u64> {
        (&mut &*self).compare_exchange_u64(addr, current, new)
    }

    fn compare_exchange_u32(&mut self, addr: PhysAddr, current: u32, new: u32) -> Result<(), u32> {
        (&mut &*self).compare_exchange_u32(addr, current, new)
    }
}
