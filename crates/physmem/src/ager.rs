//! Aged memory: physical memory that is as fragmented as after a long time of use.
//!
//! ```text
//!   fill memory with objects of 1 to 32 pages, some of them wired
//!   replace objects at random, twice the memory in all:  | m | w | m m |   | m |   | w | m |
//!   free movable ones at random until the wanted share is free
//! ```
//!
//! All requests go to the machine's own allocator, one base frame at a time, as a kernel's objects
//! grow. The degree of fragmentation is therefore a result of the allocator. (Setting up free lists
//! as if memory were fragmented would not test the allocator.) The sizes of objects are an
//! assumption: an object has 1, 2, 4, 8, 16 or 32 pages, and each size is half as frequent as the
//! next smaller size.

use alloc::vec::Vec;

use crate::{
    allocator::Allocator,
    frame::{FrameId, Identity, State},
    physmem::Physmem,
    request::Request,
};

/// The state that memory should have after ageing. Shares are in thousandths of all frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aging {
    /// The share of free frames.
    pub free_permille: u16,
    /// The share of wired frames, which cannot be moved.
    pub wired_permille: u16,
    /// The seed of the random choices.
    pub seed: u64,
}

/// The contents of an aged memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aged {
    /// Movable base frames in use; no page maps them.
    pub movable: u64,
    /// Wired base frames in use, which cannot be moved.
    pub wired: u64,
}

/// The requested shares add up to more than 1000 thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMuch;

impl core::fmt::Display for TooMuch {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("free and wired memory together are more than all memory")
    }
}

impl core::error::Error for TooMuch {}

/// The object that owns the frames which ageing leaves in use.
pub const AGED_OBJECT: u32 = u32::MAX;

/// Ages a memory in which no frame is in use yet.
pub fn age<A: Allocator>(physmem: &mut Physmem<A>, aging: Aging) -> Result<Aged, TooMuch> {
    if aging.free_permille.saturating_add(aging.wired_permille) > 1000 {
        return Err(TooMuch);
    }
    let frames = physmem.table().frames().len() as u64;
    let share = |permille: u16| frames * u64::from(permille) / 1000;
    let mut past = Past {
        random: aging.seed,
        wired_wanted: share(aging.wired_permille),
        aged: Aged::default(),
        movable: Vec::new(),
        wired: Vec::new(),
        objects: 0,
    };
    past.fill(physmem);
    let mut replaced = 0;
    while replaced < 2 * frames && (past.movable.len() + past.wired.len()) > 0 {
        replaced += past.free_one(physmem);
        if physmem.table().count(State::Free) > frames / 8 {
            past.fill(physmem);
        }
    }
    past.fill(physmem);
    past.wire_rest(physmem);
    past.free_down_to(physmem, share(aging.free_permille));
    Ok(past.aged)
}

/// The frames that ageing has allocated so far.
struct Past {
    random: u64,
    wired_wanted: u64,
    aged: Aged,
    movable: Vec<Vec<FrameId>>,
    wired: Vec<Vec<FrameId>>,
    objects: u64,
}

impl Past {
    /// Allocates objects until memory is full.
    fn fill<A: Allocator>(&mut self, physmem: &mut Physmem<A>) {
        let frames = physmem.table().frames().len() as u64;
        loop {
            let pages = 1u64 << self.next().trailing_zeros().min(5);
            let wired = self.next() % frames.max(1) < self.wired_wanted;
            let wired = wired && self.aged.wired + pages <= self.wired_wanted;
            let state = if wired { State::Kernel } else { State::Movable };
            let mut object = Vec::new();
            for index in 0..pages {
                let Ok(frame) = physmem.allocate(&Request::new(0, state)) else { break };
                let identity = Identity { object: AGED_OBJECT, index: self.objects + index };
                physmem.pfdat_mut(frame).identity = identity;
                object.push(frame);
            }
            self.objects += pages;
            let full = (object.len() as u64) < pages;
            if wired {
                self.aged.wired += object.len() as u64;
                self.wired.push(object);
            } else {
                self.aged.movable += object.len() as u64;
                self.movable.push(object);
            }
            if full {
                return;
            }
        }
    }

    /// Frees an object chosen at random and returns its number of frames.
    fn free_one<A: Allocator>(&mut self, physmem: &mut Physmem<A>) -> u64 {
        let choice = self.next() % (self.movable.len() + self.wired.len()) as u64;
        let choice = choice as usize;
        let object = match choice.checked_sub(self.movable.len()) {
            None => {
                let object = self.movable.swap_remove(choice);
                self.aged.movable -= object.len() as u64;
                object
            }
            Some(choice) => {
                let object = self.wired.swap_remove(choice);
                self.aged.wired -= object.len() as u64;
                object
            }
        };
        for &frame in &object {
            physmem.try_free(frame, 0).expect("the frame is this object's");
        }
        // An object that found no frame counts as one frame, so that the loop ends.
        (object.len() as u64).max(1)
    }

    /// Wires movable frames for the kernel until wired frames have the requested share.
    fn wire_rest<A: Allocator>(&mut self, physmem: &mut Physmem<A>) {
        while self.aged.wired < self.wired_wanted {
            let Some(frame) = self.pop_movable() else { return };
            physmem.set_state(frame, 0, State::Kernel);
            self.aged.wired += 1;
        }
    }

    /// Frees movable frames, object by object, until `free` frames are free.
    fn free_down_to<A: Allocator>(&mut self, physmem: &mut Physmem<A>, free: u64) {
        while physmem.table().count(State::Free) < free {
            let Some(frame) = self.pop_movable() else { return };
            physmem.try_free(frame, 0).expect("the frame is this object's");
        }
    }

    /// Removes and returns the last frame of the current movable object. When that object has no
    /// frame left, an object chosen at random becomes the current one.
    fn pop_movable(&mut self) -> Option<FrameId> {
        while let Some(object) = self.movable.last_mut() {
            if let Some(frame) = object.pop() {
                self.aged.movable -= 1;
                return Some(frame);
            }
            self.movable.pop();
            if let Some(last) = self.movable.len().checked_sub(1) {
                let choice = (self.next() % self.movable.len() as u64) as usize;
                self.movable.swap(choice, last);
            }
        }
        None
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
