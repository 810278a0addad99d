//! The buddy allocator against an obvious one that looks at every frame.

use addr::{Frames, OutOfFrames, PageSize, PhysAddr};
use physmem::{Buddy, FreeError, GeometryError};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const K4: PageSize = PageSize::SIZE_4K;

fn size(order: u32) -> PageSize {
    PageSize::from_shift((K4.shift() + order) as u8).unwrap()
}

/// Base frames from `first`, each free or not, and the blocks that are out.
struct Model {
    first: u64,
    free: Vec<bool>,
    out: Vec<(u64, u32)>,
}

impl Model {
    /// The largest aligned block that is wholly free and holds frame `index`, if that is free.
    fn block(&self, index: u64) -> Option<(u64, u32)> {
        let end = self.first + self.free.len() as u64;
        let whole = |order: u32| {
            let start = index >> order << order;
            let inside = start >= self.first && start + (1 << order) <= end;
            let all = |block: u64| (block..block + (1 << order)).all(|n| self.is_free(n));
            (inside && all(start)).then_some((start, order))
        };
        (0..=end.ilog2()).rev().find_map(whole)
    }

    fn is_free(&self, index: u64) -> bool {
        self.free[(index - self.first) as usize]
    }

    fn blocks(&self) -> Vec<(u64, u32)> {
        let mut blocks: Vec<_> =
            (0..self.free.len() as u64).filter_map(|n| self.block(self.first + n)).collect();
        blocks.dedup();
        blocks
    }

    fn allocate(&mut self, order: u32) -> Option<u64> {
        let blocks = self.blocks();
        let large_enough = blocks.iter().filter(|(_, of)| *of >= order);
        let &(start, _) = large_enough.min_by_key(|(start, of)| (*of, *start))?;
        self.set(start, order, false);
        self.out.push((start, order));
        Some(start)
    }

    fn set(&mut self, start: u64, order: u32, free: bool) {
        for n in start..start + (1 << order) {
            assert_ne!(self.is_free(n), free, "frame {n} has two owners");
            self.free[(n - self.first) as usize] = free;
        }
    }
}

#[test]
fn streams_of_requests_get_the_frames_of_the_model() {
    for (seed, first, frames) in [(1, 0, 64), (2, 5, 93), (3, 64, 1), (4, 96, 160), (5, 1023, 66)] {
        println!("seed {seed}");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let start = PhysAddr::new(first * K4.bytes());
        let mut buddy = Buddy::new(start, frames * K4.bytes(), K4).unwrap();
        let mut model = Model { first, free: vec![true; frames as usize], out: Vec::new() };
        for _ in 0..3000 {
            if rng.random_bool(0.52) {
                let order = rng.random_range(0..8u32).saturating_sub(3);
                let free_bytes = buddy.free_bytes();
                let expected = model
                    .allocate(order)
                    .map(|index| PhysAddr::new(index * K4.bytes()))
                    .ok_or(OutOfFrames { size: size(order), free_bytes });
                assert_eq!(buddy.allocate(size(order)), expected);
            } else if !model.out.is_empty() {
                let (index, order) = model.out.swap_remove(rng.random_range(0..model.out.len()));
                let frame = PhysAddr::new(index * K4.bytes());
                let other = FreeError::OtherSize { frame, size: size(order) };
                assert_eq!(buddy.try_free(frame, size(order + 1)), Err(other));
                model.set(index, order, true);
                buddy.free(frame, size(order));
                let twice = buddy.try_free(frame, size(order));
                assert_eq!(twice, Err(FreeError::NotOut { frame }));
            }
            let blocks = model.blocks();
            for order in 0..10 {
                let free = blocks.iter().filter(|(_, of)| *of == order).count();
                assert_eq!(buddy.free_frames(size(order)), free as u64);
            }
            let free = model.free.iter().filter(|free| **free).count() as u64;
            assert_eq!(buddy.free_bytes(), free * K4.bytes());
            assert_eq!(buddy.used_bytes() + buddy.free_bytes(), buddy.bytes());
            let largest = blocks.iter().map(|(_, order)| size(*order)).max();
            assert_eq!(buddy.largest_free(), largest);
        }
    }
}

#[test]
fn a_large_machine_is_built_at_once() {
    let mut buddy = Buddy::new(PhysAddr::new(0), 16 << 40, K4).unwrap();
    assert_eq!(buddy.largest_free(), Some(size(32)));
    assert_eq!(buddy.allocate(K4), Ok(PhysAddr::new(0)));
    assert_eq!(buddy.allocate(PageSize::SIZE_1G), Ok(PhysAddr::new(1 << 30)));
    assert_eq!(buddy.allocate(PageSize::SIZE_2M), Ok(PhysAddr::new(2 << 20)));
    assert_eq!(buddy.allocate(K4), Ok(PhysAddr::new(0x1000)));
}

#[test]
fn frames_that_were_never_given_out_are_refused() {
    let mut buddy = Buddy::new(PhysAddr::new(0x4000), 0x8000, K4).unwrap();
    let block = buddy.allocate(size(2)).unwrap();
    for addr in [0, 0x3000, 0x4001, block.get() + 0x1000, 0x8000, 0xc000, u64::MAX << 12] {
        let frame = PhysAddr::new(addr);
        assert!(buddy.try_free(frame, K4).is_err(), "{frame} was taken");
        assert_eq!(buddy.used_bytes(), 0x4000);
    }
}

#[test]
#[should_panic(expected = "no frame at 0x0 is in use")]
fn a_second_owner_is_a_panic() {
    let mut buddy = Buddy::new(PhysAddr::new(0), 0x1000, K4).unwrap();
    let frame = buddy.allocate(K4).unwrap();
    buddy.free(frame, K4);
    buddy.free(frame, K4);
}

#[test]
fn impossible_memories_are_refused() {
    let misaligned = Some(GeometryError::Misaligned { base: K4 });
    for (start, bytes, expected) in [
        (1, 0x1000, misaligned),
        (0, 0x1001, misaligned),
        (u64::MAX - 0xfff, 0x1000, Some(GeometryError::Wraps)),
        (0, 0, None),
        (u64::MAX - 0x1fff, 0x1000, None),
    ] {
        assert_eq!(Buddy::new(PhysAddr::new(start), bytes, K4).err(), expected);
    }
    let mut empty = Buddy::new(PhysAddr::new(0), 0, K4).unwrap();
    assert_eq!(empty.allocate(K4), Err(OutOfFrames { size: K4, free_bytes: 0 }));
    assert_eq!(empty.largest_free(), None);
}

/// Scattered frames are the same frames in another order: each has one owner, all of memory can be
/// had, and once all is back it is one block again.
#[test]
fn scattered_frames_are_each_given_once_and_a_seed_decides_their_order() {
    let order = |seed: u64| {
        let mut buddy = Buddy::new(PhysAddr::new(0), 64 * K4.bytes(), K4).unwrap().scattered(seed);
        let large = buddy.allocate(size(4)).unwrap();
        let frames: Vec<u64> = (0..48).map(|_| buddy.allocate(K4).unwrap().get() >> 12).collect();
        assert!(buddy.allocate(K4).is_err() && buddy.free_bytes() == 0);
        buddy.free(large, size(4));
        frames.iter().for_each(|frame| buddy.free(PhysAddr::new(frame << 12), K4));
        assert_eq!(buddy.allocate(size(6)), Ok(PhysAddr::new(0)), "seed {seed}");
        frames
    };
    let all: Vec<Vec<u64>> = (1..=9).map(order).collect();
    for (frames, seed) in all.iter().zip(1..) {
        let mut sorted = frames.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (16..64).collect::<Vec<u64>>(), "seed {seed}");
        assert_eq!(*frames, order(seed));
    }
    // The first two requests share a colour of two pages about as often as not.
    let alike = all.iter().filter(|frames| (frames[0] ^ frames[1]) & 1 == 0).count();
    assert!((1..=8).contains(&alike), "{alike} of 9");
    let orders: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(orders.len(), 9);
}

#[test]
fn frames_set_aside_do_not_keep_a_larger_one_from_its_owner() {
    let mut buddy = Buddy::new(PhysAddr::new(0), 32 * K4.bytes(), K4).unwrap().scattered(1);
    let frame = buddy.allocate(K4).unwrap();
    buddy.free(frame, K4);
    assert_eq!(buddy.allocate(size(5)), Ok(PhysAddr::new(0)));
}
