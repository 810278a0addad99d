//! Tests of eager paging: compares the frames of a region after it was mapped with the blocks that
//! a buddy system would allocate.

use alloc::vec::Vec;

use addr::{Kind, Rights, VirtAddr};
use hat::HatSpace;
use physmem::{FrameId, Request, State};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vm::{Khugepaged, Marks, Source, Thp};

use crate::{
    linux::{ORDER, Small, pages},
    world::BASE,
};

const FIRST: u64 = 0x4000;

fn frame_of(world: &Small, space: HatSpace, page: u64) -> Option<u64> {
    let held = world.hat.query(space, VirtAddr::new(page << BASE.shift()))?;
    Some(held.translation.frame.get() >> BASE.shift())
}

fn map(world: &mut Small, count: u64, rights: Rights) -> HatSpace {
    let space = world.kernel().create().unwrap();
    let range = pages(FIRST..FIRST + count);
    world.kernel().map(space, range, rights, Source::Anonymous, 0).unwrap();
    space
}

/// The lengths of the runs of pages with adjacent frames.
fn runs(world: &Small, space: HatSpace, count: u64) -> Vec<u64> {
    let mut runs: Vec<u64> = Vec::new();
    let mut next = None;
    for frame in (FIRST..FIRST + count).map(|page| frame_of(world, space, page)) {
        let Some(frame) = frame else { break };
        match runs.last_mut() {
            Some(run) if next == Some(frame) => *run += 1,
            _ => runs.push(1),
        }
        next = Some(frame + 1);
    }
    runs
}

#[test]
fn a_region_has_all_its_frames_in_a_few_runs() {
    for seed in 1..=24 {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let thp = Thp::new(0, 0, Khugepaged::of(ORDER));
        let mut world = Small::new(1 << 12, thp);
        let count = random.random_range(1..1500);
        let space = map(&mut world, count, Rights::READ | Rights::WRITE);
        // Some pages already have frames; the other pages get frames around them.
        let there: Vec<u64> =
            (0..random.random_range(0..3)).map(|_| FIRST + random.random_range(0..count)).collect();
        there.iter().for_each(|page| world.store(space, *page));
        let given = world.kernel().populate(space, pages(FIRST..FIRST + count)).unwrap();
        world.kernel().check().unwrap();
        let mut before = there.clone();
        before.sort_unstable();
        before.dedup();
        assert_eq!(given + before.len() as u64, count);
        let found = runs(&world, space, count);
        assert_eq!(found.iter().sum::<u64>(), count, "all of it is there");
        // Each interval between present pages gets one block for each set bit of its length, except
        // where nodes of the page table take frames in between.
        let cuts = [&[FIRST - 1][..], &before, &[FIRST + count]].concat();
        let stretches = cuts.windows(2).map(|pair| u64::from((pair[1] - pair[0] - 1).count_ones()));
        let most = stretches.sum::<u64>() + before.len() as u64 + 4;
        assert!(found.len() as u64 <= most, "{found:?} of {count} with {before:?}");
        let faults = world.vm.work().traps;
        for page in FIRST..FIRST + count {
            let addr = VirtAddr::new(page << BASE.shift());
            let held = world.hat.query(space, addr).unwrap();
            assert!(held.translation.rights.allows(Kind::Store));
        }
        assert_eq!(world.vm.work().traps, faults);
        assert_eq!(world.kernel().populate(space, pages(FIRST..FIRST + count)).unwrap(), 0);
    }
}

/// If free memory is in small blocks, runs have the length of these blocks. Frames that must be
/// kept free stay free.
#[test]
fn runs_are_as_long_as_free_blocks() {
    for log2 in 0..5_u32 {
        let mut world = Small::new(1 << 10, Thp::new(0, 0, Khugepaged::of(ORDER)));
        world.kernel().set_marks(Marks { min: 8, low: 100, high: 120 }).unwrap();
        // Every second block of this size is in use.
        let block = 1 << log2;
        for first in (0..1 << 10).step_by(2 * block) {
            world.memory.get_mut().take(FrameId(first as u32), log2, State::Kernel);
        }
        let space = map(&mut world, 2000, Rights::READ | Rights::WRITE);
        let given = world.kernel().populate(space, pages(FIRST..FIRST + 2000)).unwrap();
        world.kernel().check().unwrap();
        let found = runs(&world, space, 2000);
        assert_eq!(given, found.iter().sum::<u64>());
        let whole = found.iter().filter(|run| **run >= block as u64).count();
        assert!(whole * 20 >= found.len() * 19 - 120, "{whole} of {}", found.len());
        assert!((98..=100).contains(&world.free()), "{} are free", world.free());
        // Faults load the remaining pages.
        world.store(space, FIRST + given);
        assert_eq!(frame_of(&world, space, FIRST + given + 1), None);
    }
}

#[test]
fn what_may_not_be_stored_to_gets_nothing() {
    let mut world = Small::new(1 << 10, Thp::new(0, 0, Khugepaged::of(ORDER)));
    for rights in [Rights::NONE, Rights::READ] {
        let space = map(&mut world, 100, rights);
        assert_eq!(world.kernel().populate(space, pages(FIRST..FIRST + 100)).unwrap(), 0);
    }
    let space = map(&mut world, 4, Rights::READ | Rights::WRITE);
    while world.memory.get_mut().allocate(&Request::new(0, State::Kernel)).is_ok() {}
    assert_eq!(world.kernel().populate(space, pages(FIRST..FIRST + 4)).unwrap(), 0);
}
