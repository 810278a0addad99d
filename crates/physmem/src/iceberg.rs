//! Mosaic's constrained placement: each page has only a few possible frames (Gosakan and others
//! 2023, "Mosaic Pages"; its hash table is the iceberg hash table of Bender and others).
//!
//! ```text
//!   memory  | bucket 0            | bucket 1            | bucket 2            | ...
//!           | front yard  | back  | front yard  | back  | front yard  | back  |
//!
//!   page -- hash 0 --> one front yard           full? of the back yards of six others the emptiest
//!           number       0 ... 55                        56 ... 103
//! ```
//!
//! A page has 56 + 6 x 8 = 104 possible frames, so 7 bits identify its frame; a TLB entry stores
//! only these bits. The circuit in the paper computes hashes with tables of random numbers; this
//! module uses a 64-bit mixing function instead.

use core::ops::Range;

use crate::frame::FrameId;

/// The frames in which each page may be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Iceberg {
    first: u32,
    buckets: u32,
    front: u32,
    back: u32,
    choices: u32,
}

/// The frame chosen for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Berth {
    /// The frame.
    pub frame: FrameId,
    /// Whether the frame is in a back yard.
    pub is_back: bool,
}

impl Iceberg {
    /// A placement over buckets that together have all of `frames`. Each bucket has a front yard of
    /// `front` frames and a back yard of `back` frames. A page has `choices` back yards. `None` if
    /// there is no bucket, or if a page would have no frame.
    pub const fn new(frames: Range<u32>, front: u32, back: u32, choices: u32) -> Option<Iceberg> {
        if front == 0 || front > 1 << 16 || back > 1 << 16 || choices > 1 << 8 {
            return None;
        }
        let buckets = (frames.end - frames.start) / (front + back);
        if buckets == 0 {
            return None;
        }
        Some(Iceberg { first: frames.start, buckets, front, back, choices })
    }

    /// The number of frames that a page may have.
    pub const fn numbers(&self) -> u32 {
        self.front + self.choices * self.back
    }

    /// The bucket of the page `key` by the hash function number `function`; function 0 gives the bucket
    /// of its front yard.
    fn bucket(&self, key: u64, function: u32) -> u32 {
        let mut mixed = key ^ u64::from(function + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // The upper half of the product is distributed as evenly as the hash.
        (((mixed >> 32) * u64::from(self.buckets)) >> 32) as u32
    }

    /// The first frame of a bucket.
    const fn start(&self, bucket: u32) -> u32 {
        self.first + bucket * (self.front + self.back)
    }

    /// The frame with the number `number` among the frames that the page `key` may have.
    pub fn frame(&self, key: u64, number: u32) -> FrameId {
        if number < self.front {
            return FrameId(self.start(self.bucket(key, 0)) + number);
        }
        let (choice, slot) = ((number - self.front) / self.back, (number - self.front) % self.back);
        FrameId(self.start(self.bucket(key, 1 + choice)) + self.front + slot)
    }

    /// The number of `frame` among the frames that the page `key` may have, if it is one of them.
    pub fn number(&self, key: u64, frame: FrameId) -> Option<u32> {
        let at = frame.0.checked_sub(self.first)?;
        let (bucket, slot) = (at / (self.front + self.back), at % (self.front + self.back));
        if slot < self.front {
            return (self.bucket(key, 0) == bucket).then_some(slot);
        }
        let choice = (0..self.choices).find(|&choice| self.bucket(key, 1 + choice) == bucket)?;
        Some(self.front + choice * self.back + (slot - self.front))
    }

    /// The frame for a page: the first free frame of its front yard. If the front yard has no free
    /// frame, the result is the first free frame of the back yard that has the most free frames.
    /// `is_free` returns whether a frame is free.
    pub fn choose(&self, key: u64, is_free: impl Fn(FrameId) -> bool) -> Option<Berth> {
        let front = self.start(self.bucket(key, 0));
        if let Some(frame) = (front..front + self.front).map(FrameId).find(|&at| is_free(at)) {
            return Some(Berth { frame, is_back: false });
        }
        let (mut most, mut found) = (0, None);
        for choice in 0..self.choices {
            let back = self.start(self.bucket(key, 1 + choice)) + self.front;
            let mut free = (back..back + self.back).map(FrameId).filter(|&at| is_free(at));
            let first = free.next();
            let count = usize::from(first.is_some()) + free.count();
            if count > most {
                (most, found) = (count, first);
            }
        }
        found.map(|frame| Berth { frame, is_back: true })
    }
}
