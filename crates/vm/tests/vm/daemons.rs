//! Tests what Linux does in addition to large pages at faults, and the daemons of other systems.
//! Each is compared with a slow model.

use alloc::{collections::BTreeMap, vec::Vec};
use core::ops::Range;

use addr::{Kind, Rights, VirtAddr, VirtRange};
use hat::HatSpace;
use physmem::{Allocator, FrameId, Request, State};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vm::{
    CompactResult, Compacting, Defrag, FileKey, How, Ingens, Khugepaged, Marks, Placing, Promoter,
    Ranger, Source, Thp,
};

use crate::{
    linux::{BLOCK, FIRST, ORDER, Small, pages},
    world::BASE,
};

const DAEMON: Khugepaged = Khugepaged::of(ORDER);

fn fault(world: &mut Small, space: HatSpace, page: u64, kind: Kind) -> How {
    world.kernel().fault(space, VirtAddr::new(page << BASE.shift()), kind).unwrap()
}

fn frame_of(world: &Small, space: HatSpace, page: u64) -> Option<u32> {
    let held = world.hat.query(space, VirtAddr::new(page << BASE.shift()))?;
    let into = page - (held.translation.page.start().get() >> BASE.shift());
    Some((held.translation.frame.get() >> BASE.shift()) as u32 + into as u32)
}

fn table_frame(world: &mut Small, frame: FrameId) -> physmem::Pfdat {
    world.memory.get_mut().table().get(frame)
}

/// Loads of untouched memory share frames of zeros, and a store gets a frame of its own. The stored
/// data is not visible at other addresses.
#[test]
fn loads_of_untouched_memory_take_no_memory() {
    let mut world = Small::new(1 << 10, Thp::new(0, 0, DAEMON));
    let space = world.space();
    let free = world.free();
    for page in FIRST..FIRST + 100 {
        assert_eq!(fault(&mut world, space, page, Kind::Load), How::ZeroPage);
    }
    // Only a frame of zeros and nodes of the page table were allocated.
    assert!(free - world.free() <= 4, "{} frames", free - world.free());
    assert_eq!((world.vm.resident().anon, world.vm.zero_frames()), (0, 1));
    world.kernel().check().unwrap();
    assert_eq!(fault(&mut world, space, FIRST + 7, Kind::Store), How::Zero);
    assert_eq!(world.vm.resident().anon, 1);
    assert_ne!(frame_of(&world, space, FIRST + 7), frame_of(&world, space, FIRST + 8));
    assert_eq!(frame_of(&world, space, FIRST + 6), frame_of(&world, space, FIRST + 8));
    world.kernel().check().unwrap();
    // Pages of zeros are not collapsed.
    world.advise(space, Some(crate::linux::LARGE));
    world.kernel().khugepaged();
    world.kernel().check().unwrap();
}

#[test]
fn a_load_maps_the_large_page_of_zeros_where_it_may() {
    for use_zero_page in [true, false] {
        let thp = Thp { use_zero_page, ..Thp::new(1 << ORDER, 0, DAEMON) };
        let mut world = Small::new(1 << 10, thp);
        let space = world.space();
        fault(&mut world, space, FIRST + 3, Kind::Load);
        fault(&mut world, space, FIRST + BLOCK, Kind::Load);
        assert!(world.is_large(space, FIRST) && world.is_large(space, FIRST + BLOCK));
        let expected = if use_zero_page { (0, BLOCK) } else { (2 * BLOCK, 0) };
        assert_eq!((world.vm.resident().anon, world.vm.zero_frames()), expected);
        world.store(space, FIRST + 5);
        assert!(world.is_large(space, FIRST));
        assert_eq!(world.vm.resident().anon, if use_zero_page { BLOCK } else { 2 * BLOCK });
        world.kernel().check().unwrap();
        // Discarding a part of the large page splits it.
        world.kernel().discard(space, pages(FIRST + BLOCK..FIRST + BLOCK + 3)).unwrap();
        assert!(!world.is_large(space, FIRST + BLOCK));
        world.store(space, FIRST + BLOCK + 9);
        world.kernel().check().unwrap();
    }
}

/// A fault on a page of a file also loads the pages around it that are in the window, in the region
/// and in memory.
#[test]
fn faults_load_what_is_around_them() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let fault_around = 1 << random.random_range(0..5);
        let thp = Thp { fault_around, ..Thp::new(0, 0, DAEMON) };
        let mut world = Small::new(1 << 12, thp);
        let key = FileKey { device: 1, inode: 1 };
        let range = pages(0x2003..0x2060);
        let mut spaces = Vec::new();
        for _ in 0..2 {
            let space = world.kernel().create().unwrap();
            let source = Source::File { key, first: 5, shared: false };
            let rights = Rights::READ | Rights::WRITE;
            world.kernel().map(space, range, rights, source, 0).unwrap();
            spaces.push(space);
        }
        let (mut cached, mut loaded) = (Vec::new(), [Vec::new(), Vec::new()]);
        for _ in 0..60 {
            let (which, page) = (random.random_range(0..2), random.random_range(0x2003..0x2060));
            if frame_of(&world, spaces[which], page).is_some() {
                continue;
            }
            let store = random.random_bool(0.2);
            let kind = if store { Kind::Store } else { Kind::Load };
            fault(&mut world, spaces[which], page, kind);
            loaded[which].push(page);
            if !cached.contains(&page) {
                cached.push(page);
            }
            if !store {
                let start = page / fault_around * fault_around;
                let around = (start..start + fault_around).filter(|page| cached.contains(page));
                loaded[which].extend(around);
            }
            for (space, loaded) in spaces.iter().zip(&loaded) {
                for page in 0x2003..0x2060 {
                    let found = frame_of(&world, *space, page).is_some();
                    assert_eq!(found, loaded.contains(&page), "page {page:#x}");
                }
            }
        }
        world.kernel().check().unwrap();
        assert_eq!(world.vm.work().around > 0, fault_around > 1);
    }
}

/// After a fork and a split, a store copies a base page even if its space is the only user, as long
/// as the other process has other base pages of the folio.
#[test]
fn what_lies_beside_shared_pages_is_copied() {
    let mut world = Small::new(1 << 12, Thp::new(1 << ORDER, 0, DAEMON));
    let (parent, child) = (world.space(), world.kernel().create().unwrap());
    world.store(parent, FIRST);
    world.kernel().fork(parent, child).unwrap();
    world.kernel().discard(child, pages(FIRST..FIRST + 3)).unwrap();
    let copied = |world: &Small| world.vm.work().copied;
    let before = copied(&world);
    world.store(parent, FIRST + 1);
    assert_eq!(copied(&world) - before, 1, "the child has other pages of the folio");
    world.store(parent, FIRST + 1);
    assert_eq!(copied(&world) - before, 1, "the copy is the parent's");
    world.kernel().check().unwrap();
    world.kernel().exit(child).unwrap();
    world.store(parent, FIRST + 2);
    assert_eq!(copied(&world) - before, 1, "nobody else has any of it");
    world.kernel().check().unwrap();
}

/// Fills memory with pages of a space and then discards some of them, so that free frames are
/// scattered.
fn fragmented(world: &mut Small, space: HatSpace, random: &mut Xoshiro256PlusPlus, keep: f64) {
    for page in FIRST..FIRST + 4 * BLOCK {
        world.store(space, page);
    }
    for page in FIRST..FIRST + 4 * BLOCK {
        if !random.random_bool(keep) {
            world.kernel().discard(space, pages(page..page + 1)).unwrap();
        }
    }
}

/// A model of a compaction run, frame by frame. Returns the states of the frames afterwards.
fn compacted(
    states: &[State],
    is_movable: &[bool],
    is_done: &dyn Fn(&[State]) -> bool,
) -> Vec<State> {
    let block = BLOCK as usize;
    let mut now = states.to_vec();
    let (mut low, mut high) = (0, states.len() / block);
    let mut free: Vec<usize> = Vec::new();
    while low < high {
        let frames = low * block..(low + 1) * block;
        low += 1;
        let busy: Vec<usize> = frames.filter(|&frame| now[frame] == State::Movable).collect();
        if busy.is_empty() {
            continue;
        }
        while free.len() < busy.len() && high > low {
            high -= 1;
            let frames = high * block..(high + 1) * block;
            if !is_movable[high] || now[frames.clone()].iter().all(|state| *state == State::Free) {
                continue;
            }
            free.extend(frames.filter(|&frame| now[frame] == State::Free));
        }
        if free.len() < busy.len() {
            break;
        }
        for from in busy.into_iter().rev() {
            let to = free.pop().unwrap();
            (now[from], now[to]) = (State::Free, State::Movable);
        }
        // Frames that are reserved for the next pages are not free.
        let mut seen = now.clone();
        free.iter().for_each(|&frame| seen[frame] = State::InTransit);
        if is_done(&seen) {
            break;
        }
    }
    now
}

#[test]
fn compaction_does_what_the_slow_model_says() {
    let mut moved = 0;
    for seed in 0..12 {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let compacting = Compacting { compaction_proactiveness: 100, ..Compacting::DEFAULT };
        let mut world = Small::new(6 * BLOCK, Thp { compacting, ..Thp::new(0, 0, DAEMON) });
        let space = world.space();
        let keep = random.random_range(0.1..0.9);
        fragmented(&mut world, space, &mut random, keep);
        for _ in 0..random.random_range(0..4) {
            let wedge = FrameId(random.random_range(0..6 * BLOCK as u32));
            world.memory.get_mut().take(wedge, 0, State::Kernel);
        }
        let memory = world.memory.get_mut();
        let frames = memory.table().frames();
        let states = |memory: &physmem::Physmem<_>| -> Vec<State> {
            frames.clone().map(|frame| memory.table().get(FrameId(frame)).state()).collect()
        };
        let before = states(memory);
        let blocks = memory.allocator().blocks().unwrap();
        let is_movable: Vec<bool> = (0..6)
            .map(|block| blocks.block_type(FrameId(block << ORDER)) == physmem::BlockType::Movable)
            .collect();
        // The share of free memory that is in parts smaller than a block.
        let score = |states: &[State]| {
            let free = states.iter().filter(|state| **state == State::Free).count();
            let whole = states
                .chunks(BLOCK as usize)
                .filter(|block| block.iter().all(|state| *state == State::Free))
                .count();
            (free - whole * BLOCK as usize) * 100 / free.max(1)
        };
        let expected = match score(&before) > 15 {
            true => compacted(&before, &is_movable, &|states| score(states) <= 5),
            false => before.clone(),
        };
        world.kernel().compact_proactively();
        world.kernel().check().unwrap();
        assert_eq!(states(world.memory.get_mut()), expected);
        moved += world.vm.compacted().moved;
        // All pages are still there.
        for page in FIRST..FIRST + 4 * BLOCK {
            if let Some(frame) = frame_of(&world, space, page) {
                assert_eq!(table_frame(&mut world, FrameId(frame)).state(), State::Movable);
            }
        }
    }
    assert!(moved > 100, "{moved} pages moved");
}

/// The setting `defrag` determines what a fault does if no block is free.
#[test]
fn the_knob_says_what_a_fault_does() {
    let stored = |defrag: Defrag, advised: bool| {
        let thp = Thp { defrag, ..Thp::new(1 << ORDER, 0, DAEMON) };
        let mut world = Small::new(8 * BLOCK, thp);
        let space = world.space();
        // Every second frame is used by a movable page.
        let other = world.kernel().create().unwrap();
        let rights = Rights::READ | Rights::WRITE;
        let all = 0x9001..0x9001 + 8 * BLOCK;
        world.kernel().map(other, pages(all.clone()), rights, Source::Anonymous, 0).unwrap();
        let module = vm::Module { page_size: Some(BASE), ..vm::Module::default() };
        world.kernel().attach(other, pages(all.clone()), module).unwrap();
        for page in all.start..all.end - BLOCK {
            world.store(other, page);
        }
        for page in (all.start..all.end).step_by(2) {
            world.kernel().discard(other, pages(page..page + 1)).unwrap();
        }
        if advised {
            world.advise(space, Some(crate::linux::LARGE));
        }
        while world.memory.get_mut().allocate(&Request::new(ORDER, State::Kernel)).is_ok() {}
        world.store(space, FIRST);
        let at_once = world.is_large(space, FIRST);
        world.kernel().tick();
        world.store(space, FIRST + BLOCK);
        world.kernel().check().unwrap();
        let done = world.vm.compacted();
        (at_once, world.is_large(space, FIRST + BLOCK), done.woken > 0)
    };
    for (defrag, advised, expected) in [
        (Defrag::Always, false, (true, true, false)),
        (Defrag::Defer, false, (false, true, true)),
        (Defrag::Defer, true, (false, true, true)),
        (Defrag::DeferMadvise, false, (false, true, true)),
        (Defrag::DeferMadvise, true, (true, true, false)),
        (Defrag::Madvise, false, (false, false, false)),
        (Defrag::Madvise, true, (true, true, false)),
        (Defrag::Never, true, (false, false, false)),
    ] {
        assert_eq!(stored(defrag, advised), expected, "{defrag:?}, advised: {advised}");
    }
}

#[test]
fn runs_that_find_nothing_put_others_off() {
    let thp = Thp { defrag: Defrag::Always, ..Thp::new(1 << ORDER, 0, DAEMON) };
    let mut world = Small::new(16 * BLOCK, thp);
    let space = world.space();
    // One frame in each quarter of a block cannot be moved.
    for frame in (0..16 * BLOCK as u32).step_by(BLOCK as usize / 4) {
        world.memory.get_mut().take(FrameId(frame), 0, State::Kernel);
    }
    for round in 0..200 {
        // The whole block is discarded: if only a part were, its table would stay and no large page
        // would be requested.
        world.kernel().discard(space, pages(FIRST..FIRST + BLOCK)).unwrap();
        world.store(space, FIRST);
        assert!(!world.is_large(space, FIRST), "round {round}");
    }
    let results = world.vm.compacted().results;
    let of = |result: CompactResult| results[result as usize];
    assert!(of(CompactResult::Deferred) > of(CompactResult::Complete), "{results:?}");
    assert!(of(CompactResult::Complete) > 0, "{results:?}");
}

/// A block becomes large when the required number of its base pages is in memory, and not before.
#[test]
fn ingens_makes_large_pages_of_blocks_that_fill() {
    for seed in 0..6 {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let util_threshold = random.random_range(1..=BLOCK);
        let thp = Thp {
            faults: false,
            promoter: Promoter::Ingens(Ingens::new(util_threshold)),
            ..Thp::new(1 << ORDER, 0, DAEMON.filled(BLOCK, util_threshold))
        };
        let mut world = Small::new(1 << 12, thp);
        let space = world.space();
        let mut known: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
        let mut touched: Vec<u64> = Vec::new();
        for _ in 0..4 * BLOCK {
            let page = FIRST + random.random_range(0..4 * BLOCK);
            world.store(space, page);
            world.kernel().tick();
            let block = page / BLOCK;
            let (count, large) = known.entry(block).or_default();
            if !touched.contains(&page) && !*large {
                touched.push(page);
                *count += 1;
                *large = *count >= util_threshold;
            }
            for (&block, &(_, large)) in &known {
                assert_eq!(world.is_large(space, block * BLOCK), large, "block {block:#x}");
            }
        }
        world.kernel().check().unwrap();
    }
}

/// Of two spaces with equal memory, the one with fewer large pages comes first.
#[test]
fn ingens_is_fair() {
    let thp = Thp {
        faults: false,
        promoter: Promoter::Ingens(Ingens::new(BLOCK)),
        ..Thp::new(1 << ORDER, 0, Khugepaged { defrag: false, ..DAEMON.filled(BLOCK, BLOCK) })
    };
    let mut world = Small::new(1 << 12, thp);
    let [rich, poor] = [world.space(), world.space()];
    for page in FIRST..FIRST + 2 * BLOCK {
        world.store(rich, page);
    }
    world.kernel().tick();
    assert!(world.is_large(rich, FIRST) && world.is_large(rich, FIRST + BLOCK));
    // Both spaces fill a block, alternating page by page, and then `poor` fills another block. Only
    // one block of memory is free.
    for page in FIRST + 2 * BLOCK..FIRST + 3 * BLOCK {
        world.store(rich, page);
        world.store(poor, page);
    }
    for page in FIRST + 3 * BLOCK..FIRST + 4 * BLOCK {
        world.store(poor, page);
    }
    let mut taken = Vec::new();
    while let Ok(block) = world.memory.get_mut().allocate(&Request::new(ORDER, State::Kernel)) {
        taken.push(block);
    }
    world.memory.get_mut().try_free(taken.pop().unwrap(), ORDER).unwrap();
    world.kernel().tick();
    assert!(world.is_large(poor, FIRST + 2 * BLOCK) && !world.is_large(rich, FIRST + 2 * BLOCK));
}

/// A fault in a block with base pages reads the entry of the upper table, and not all entries below
/// it.
#[test]
fn a_fault_beside_base_pages_costs_one_look() {
    let reads = |mapped: u64, kind: Kind| {
        let mut world = Small::new(1 << 12, Thp::new(0, 1 << ORDER, DAEMON));
        let space = world.space();
        for page in FIRST..FIRST + mapped {
            fault(&mut world, space, page, kind);
        }
        world.advise(space, Some(crate::linux::LARGE));
        let before = world.vm.work().table_reads;
        world.store(space, FIRST + BLOCK - 1);
        assert!(!world.is_large(space, FIRST));
        world.kernel().check().unwrap();
        world.vm.work().table_reads - before
    };
    for kind in [Kind::Load, Kind::Store] {
        assert_eq!(reads(40, kind), reads(1, kind), "{kind:?}");
        assert!(reads(1, kind) > 0);
    }
}

/// Compares the histories of use, page by page, and the block that each pass makes large: the block
/// with the most bits among those with enough pages.
#[test]
fn ingens_ages_use_and_makes_what_is_hot_large_first() {
    let (mut made, mut skipped, mut cold) = (0, 0, 0);
    for seed in 0..6 {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let hot_every = random.random_range(1..4);
        let util_threshold = random.random_range(1..BLOCK / 2);
        let ingens = Ingens { hot_every: Some(hot_every), ..Ingens::new(util_threshold) };
        let limits = DAEMON.filled(BLOCK, util_threshold);
        let thp = Thp {
            faults: false,
            promoter: Promoter::Ingens(ingens),
            ..Thp::new(1 << ORDER, 0, Khugepaged { pages_to_scan: BLOCK, ..limits })
        };
        let mut world = Small::new(1 << 12, thp);
        let space = world.space();
        let all = (FIRST..FIRST + 4 * BLOCK).filter(|_| random.random_bool(0.8));
        let mut history: BTreeMap<u64, Vec<bool>> = all.map(|page| (page, Vec::new())).collect();
        for &page in history.keys() {
            world.store(space, page);
        }
        let (mut large, mut sampled) = ([false; 4], 0);
        let mut used: Vec<u64> = history.keys().copied().collect();
        for scan in 0..28 {
            // In each block, a certain share of its pages is used in each scan.
            for &page in history.keys() {
                let share = [0.95, 0.6, 0.3, 0.05][((page - FIRST) / BLOCK + seed) as usize % 4];
                if random.random_bool(share) {
                    world.store(space, page);
                    used.push(page);
                }
            }
            world.kernel().age_use();
            for (&page, last) in &mut history {
                if large[((page - FIRST) / BLOCK) as usize] {
                    continue;
                }
                let is_hot = last.iter().filter(|is_used| **is_used).count() >= 6;
                if is_hot && (page + scan) % hot_every != 0 {
                    skipped += 1;
                    continue;
                }
                sampled += 1;
                last.push(used.contains(&page));
                if last.len() > 8 {
                    last.remove(0);
                }
                used.retain(|one| *one != page);
            }
            assert_eq!(
                (world.vm.promoted().samples, world.vm.promoted().sampled),
                (scan + 1, sampled)
            );
            if scan % 9 != 8 {
                continue;
            }
            let heat = |block: &u64| {
                let pages = history.range(FIRST + block * BLOCK..FIRST + (block + 1) * BLOCK);
                pages.flat_map(|(_, last)| last).filter(|is_used| **is_used).count()
            };
            let there = |block: u64| {
                let pages = history.range(FIRST + block * BLOCK..FIRST + (block + 1) * BLOCK);
                pages.count() as u64 >= util_threshold
            };
            let left = (0..4u64).filter(|&block| !large[block as usize]);
            // Of several equally hot blocks, the first one is taken.
            let hottest = left.rev().max_by_key(|block| heat(block));
            let Some(block) = hottest else { continue };
            let is_made = there(block);
            assert_eq!(world.kernel().khugepaged().made, u64::from(is_made));
            large[block as usize] |= is_made;
            made += u64::from(is_made);
            cold += u64::from(is_made && block != 0);
            for (block, large) in (0..).zip(large) {
                assert_eq!(world.is_large(space, FIRST + block * BLOCK), large, "block {block}");
            }
        }
        world.kernel().check().unwrap();
    }
    assert!(made > 12 && skipped > 100 && cold > 6, "{made} made, {skipped} skipped, {cold} cold");
}

/// A block that is only partly in memory becomes large immediately if free memory is in large
/// blocks, and does not if free memory is fragmented.
#[test]
fn ingens_is_aggressive_where_memory_is_not_fragmented() {
    for (is_fragmented, aggressive_below) in [(false, 500), (true, 500), (false, 0), (true, 1000)] {
        let ingens = Ingens { aggressive_below, ..Ingens::new(BLOCK) };
        let limits = Khugepaged { defrag: false, ..DAEMON.filled(BLOCK, BLOCK) };
        let promoter = Promoter::Ingens(ingens);
        let thp = Thp { faults: false, promoter, ..Thp::new(1 << ORDER, 0, limits) };
        let mut world = Small::new(32 * BLOCK, thp);
        let space = world.space();
        if is_fragmented {
            // In nearly all free blocks, one frame is taken.
            for block in 0..32 * BLOCK as u32 / BLOCK as u32 {
                if world.free() > 3 * BLOCK && block % 8 != 7 {
                    world.memory.get_mut().take(
                        FrameId(block * BLOCK as u32 + 9),
                        0,
                        State::Kernel,
                    );
                }
            }
        }
        for page in [FIRST + 3, FIRST + 5] {
            world.store(space, page);
            world.kernel().tick();
        }
        let expected = aggressive_below > 0 && (!is_fragmented || aggressive_below == 1000);
        assert_eq!(world.is_large(space, FIRST), expected, "{is_fragmented}, {aggressive_below}");
        world.kernel().check().unwrap();
        world.kernel().khugepaged();
        assert_eq!(world.is_large(space, FIRST), expected, "by the daemon's round");
        world.kernel().check().unwrap();
    }
}

/// Settings with HawkEye's daemon, which makes one block large in each pass, and without large
/// pages at faults.
fn hawkeye() -> Thp {
    Thp {
        faults: false,
        promoter: Promoter::HawkEye,
        ..Thp::new(1 << ORDER, 0, Khugepaged { pages_to_scan: BLOCK, ..DAEMON })
    }
}

/// The blocks with the most used pages become large first, whatever their addresses.
#[test]
fn hawkeye_makes_large_pages_of_what_is_used() {
    for seed in 0..6 {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut world = Small::new(1 << 12, hawkeye());
        let space = world.space();
        for page in FIRST..FIRST + 4 * BLOCK {
            world.store(space, page);
        }
        let mut coverage = [0.0_f64; 4];
        let mut large = [false; 4];
        for _ in 0..6 {
            world.kernel().begin_sample();
            let mut used = [0_u32; 4];
            for (block, used) in used.iter_mut().enumerate() {
                *used = random.random_range(0..BLOCK as u32);
                for page in 0..*used {
                    let page = FIRST + block as u64 * BLOCK + u64::from(page);
                    let (inner, addr) =
                        (world.hat.space(space).unwrap(), VirtAddr::new(page << 12));
                    let walked =
                        world.hat.table_mut().walk(inner, addr, Kind::Load, &mut Vec::new());
                    walked.unwrap();
                }
            }
            world.kernel().end_sample();
            for block in 0..4 {
                coverage[block] = 0.6 * coverage[block] + 0.4 * f64::from(used[block]);
            }
            let bin = |covered: f64| if covered <= 1.0 { 0 } else { covered.log2().ceil() as u32 };
            let best = (0..4)
                .filter(|&block| !large[block])
                .max_by_key(|&block| (bin(coverage[block]), 3 - block));
            let close = (0..4).any(|block| {
                let near = (0..12).map(|bin| f64::from(1 << bin));
                near.into_iter().any(|edge| (coverage[block] - edge).abs() < 0.2)
            });
            if close {
                break;
            }
            assert_eq!(world.kernel().khugepaged().made, u64::from(best.is_some()));
            if let Some(best) = best {
                large[best] = true;
            }
            for (block, large) in large.iter().enumerate() {
                let page = FIRST + block as u64 * BLOCK;
                assert_eq!(world.is_large(space, page), *large, "block {block} of {coverage:?}");
            }
        }
        world.kernel().check().unwrap();
    }
}

/// If spaces use their blocks equally, the space with the highest translation cost comes first.
/// Spaces with equal costs take turns.
#[test]
fn hawkeye_serves_spaces_by_what_translation_costs_them() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut world = Small::new(1 << 12, hawkeye());
        let spaces = [world.space(), world.space(), world.space()];
        for (space, page) in spaces
            .iter()
            .flat_map(|space| (FIRST..FIRST + 2 * BLOCK).map(move |page| (*space, page)))
        {
            world.store(space, page);
        }
        world.kernel().begin_sample();
        world.kernel().end_sample();
        let mut shares = [0; 3];
        let mut left = [2; 3];
        for step in 0..6 {
            // The costs are set again every second step; a space that is left out has no cost.
            if step % 2 == 0 {
                shares = [0; 3].map(|_: u64| random.random_range(0..4_u64) * 30);
                let told = spaces.into_iter().zip(shares).filter(|(_, share)| *share > 0);
                world.kernel().set_overheads(told);
            }
            let next = (0..3).filter(|&at| left[at] > 0).max_by_key(|&at| (shares[at], 3 - at));
            assert_eq!(world.kernel().khugepaged().made, 1);
            left[next.unwrap()] -= 1;
            for (space, left) in spaces.into_iter().zip(left) {
                let large = (0..2).filter(|at| world.is_large(space, FIRST + at * BLOCK)).count();
                assert_eq!(large, 2 - left, "{shares:?}, step {step}");
            }
        }
    }
}

/// Eager paging uses the largest free blocks, although there are single free frames at lower
/// addresses.
#[test]
fn a_region_gets_the_largest_blocks_that_are_free() {
    let mut world = Small::new(1 << 12, Thp::new(0, 0, DAEMON));
    let space = world.space();
    for frame in (0..256).step_by(2) {
        world.memory.get_mut().take(FrameId(frame), 0, State::Kernel);
    }
    let range = VirtRange::new(VirtAddr::new(FIRST << 12), 11 << 12).unwrap();
    assert_eq!(world.kernel().populate(space, range), Ok(11));
    let frame = |page: u64| frame_of(&world, space, FIRST + page).unwrap();
    assert_eq!(frame(0) % 8, 0);
    assert!((1..8).all(|page| frame(page) == frame(0) + page as u32));
    assert_eq!(frame(9), frame(8) + 1);
}

#[test]
fn zeroed_blocks_cost_a_fault_no_zeros_and_zeros_come_back() {
    let mut world = Small::new(8 * BLOCK, Thp::new(1 << ORDER, 0, DAEMON));
    let space = world.space();
    world.kernel().prezero(100);
    let before = world.vm.work();
    assert!(before.zeroed_ahead >= 6 * BLOCK);
    world.store(space, FIRST);
    let after = world.vm.work();
    assert_eq!((after.zeroed - before.zeroed, after.prezeroed), (0, BLOCK));
    for block in 1..4 {
        world.store(space, FIRST + block * BLOCK);
    }
    let free = world.free();
    world.kernel().recover(990, 1000, 250);
    let back = world.free() - free;
    assert!((BLOCK / 2..2 * BLOCK).contains(&back), "{back} of {}", 4 * BLOCK);
    assert!(!world.is_large(space, FIRST));
    world.kernel().check().unwrap();
}

/// If no frame is immovable, all pages of each region end up in adjacent frames, and full blocks
/// become large pages. Each immovable frame causes one more run.
#[test]
fn the_ranger_brings_neighbours_together() {
    for seed in 0..10 {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let ranger = Some(Ranger { pages_min: BLOCK, moves: 1 << 20 });
        let mut world = Small::new(
            16 * BLOCK,
            Thp { ranger, faults: false, ..Thp::new(1 << ORDER, 0, DAEMON) },
        );
        let spaces = [world.space(), world.space()];
        let mut order: Vec<u64> = (FIRST..FIRST + 4 * BLOCK).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.random_range(0..=at));
        }
        for page in order {
            spaces.iter().for_each(|space| world.store(*space, page));
        }
        let wedges = random.random_range(0..3);
        for _ in 0..wedges {
            world.memory.get_mut().take(
                FrameId(random.random_range(0..4 * BLOCK as u32)),
                0,
                State::Kernel,
            );
        }
        world.kernel().range_over();
        world.kernel().check().unwrap();
        let mut runs = 0;
        for space in spaces {
            let frames: Vec<u32> = (FIRST..FIRST + 4 * BLOCK)
                .map(|page| frame_of(&world, space, page).unwrap())
                .collect();
            runs += 1 + frames.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
        }
        let ranged = world.vm.ranged();
        // Frames of page tables are immovable too.
        assert!(runs <= 2 + ranged.anchors as usize, "{runs} runs, {ranged:?}");
        assert!(ranged.moved + ranged.exchanged > 100 && ranged.exchanged > 0, "{ranged:?}");
        let large = (0..4).filter(|block| world.is_large(spaces[1], FIRST + block * BLOCK)).count();
        assert!(ranged.promoted > 0 && large > 0, "{large} large, {ranged:?}");
        world.kernel().range_over();
        assert!(
            world.vm.ranged().moved - ranged.moved < 3 * BLOCK,
            "a second pass has little to do"
        );
    }
}

/// If swap has no room, no anonymous page is examined. If it has room, or if there is a page of a
/// file, pages are examined.
#[test]
fn nothing_is_looked_at_where_nothing_can_leave() {
    let looked_at = |swap: u32, has_file: bool| {
        let mut world = Small::new(4 * BLOCK, Thp::new(0, 0, DAEMON));
        world.kernel().set_swap(swap).unwrap();
        let space = world.space();
        (FIRST..FIRST + 100).for_each(|page| world.store(space, page));
        if has_file {
            let source =
                Source::File { key: FileKey { device: 1, inode: 1 }, first: 0, shared: false };
            let range = VirtRange::new(VirtAddr::new(0x900 << 12), 1 << 12).unwrap();
            world.kernel().map(space, range, Rights::READ, source, 0).unwrap();
            world.kernel().fault(space, range.start(), Kind::Load).unwrap();
        }
        let all = 4 * BLOCK;
        world.kernel().set_marks(Marks { min: 0, low: all, high: all }).unwrap();
        let before = world.vm.work().descriptors;
        let gone = world.kernel().tick();
        world.kernel().check().unwrap();
        (gone, world.vm.work().descriptors > before)
    };
    assert_eq!(looked_at(0, false), (0, false));
    assert_eq!(looked_at(0, true), (1, true));
    assert_eq!(looked_at(7, false), (7, true));
}

/// Pages that a fork shares are moved to the parent's frames and stay there: a second pass moves
/// nothing.
#[test]
fn the_ranger_moves_shared_pages_once() {
    let ranger = Some(Ranger { pages_min: BLOCK, moves: 1 << 20 });
    let thp = Thp { ranger, faults: false, ..Thp::new(1 << ORDER, 0, DAEMON) };
    let mut world = Small::new(16 * BLOCK, thp);
    let parent = world.space();
    (FIRST..FIRST + 2 * BLOCK).rev().for_each(|page| world.store(parent, page));
    let child = world.kernel().create().unwrap();
    world.kernel().fork(parent, child).unwrap();
    // The child's own pages are moved to frames after those of the parent.
    let own = FIRST + BLOCK / 2..FIRST + BLOCK / 2 + 20;
    own.clone().for_each(|page| world.store(child, page));
    world.kernel().range_over();
    let first = world.vm.ranged();
    assert!(first.moved + first.exchanged > BLOCK, "{first:?}");
    let frames = |world: &Small, space, pages: Range<u64>| -> Vec<u32> {
        pages.map(|page| frame_of(world, space, page).unwrap()).collect()
    };
    for (space, pages) in [(parent, FIRST..FIRST + BLOCK), (child, own)] {
        let found = frames(&world, space, pages);
        assert!(found.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{found:?}");
    }
    world.kernel().range_over();
    let second = world.vm.ranged();
    assert_eq!((second.moved, second.exchanged), (first.moved, first.exchanged));
    world.kernel().check().unwrap();
}

/// A base page gets the frame after that of the previous page, if this frame is free.
#[test]
fn regions_have_one_offset_as_long_as_it_is_free() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let placing = Some(Placing { offsets_max: 64, order: ORDER + 1 });
        let mut world = Small::new(32 * BLOCK, Thp { placing, ..Thp::new(0, 0, DAEMON) });
        let spaces = [world.space(), world.space(), world.space()];
        for _ in 0..6 {
            world.memory.get_mut().take(
                FrameId(random.random_range(0..32 * BLOCK as u32)),
                0,
                State::Kernel,
            );
        }
        let (mut met, mut missed) = (0, 0);
        for _ in 0..1200 {
            let space = spaces[random.random_range(0..3)];
            let page = FIRST + random.random_range(0..4 * BLOCK);
            if frame_of(&world, space, page).is_some() {
                continue;
            }
            let before = frame_of(&world, space, page - 1).map(|frame| FrameId(frame + 1));
            let free =
                before.is_some_and(|frame| table_frame(&mut world, frame).state() == State::Free);
            world.store(space, page);
            if let (Some(before), true) = (before, free) {
                let is_there = frame_of(&world, space, page) == Some(before.0);
                met += u32::from(is_there);
                missed += u32::from(!is_there);
            }
        }
        // If the frame for a page was not free, the page has another frame, but the following page
        // still uses the offset.
        assert!(met > 100 && missed <= 6, "{met} pages follow the one before, {missed} do not");
        world.kernel().check().unwrap();
    }
}

/// If the frames for a large page are in use, the page gets another offset, which applies only from
/// this page on.
#[test]
fn what_is_in_the_way_begins_another_offset() {
    let placing = Some(Placing { offsets_max: 64, order: ORDER });
    let mut world = Small::new(32 * BLOCK, Thp { placing, ..Thp::new(1 << ORDER, 0, DAEMON) });
    let space = world.space();
    world.store(space, FIRST);
    let first = frame_of(&world, space, FIRST).unwrap();
    let block = BLOCK as u32;
    assert!(world.memory.get_mut().take(FrameId(first + 2 * block + 5), 0, State::Kernel));
    for page in [2, 3, 1].map(|at| FIRST + at * BLOCK) {
        world.store(space, page);
        assert!(world.is_large(space, page));
    }
    let other = frame_of(&world, space, FIRST + 2 * BLOCK).unwrap();
    assert!(other.abs_diff(first + 2 * block) >= block);
    assert_eq!(frame_of(&world, space, FIRST + 3 * BLOCK), Some(other + block));
    assert_eq!(frame_of(&world, space, FIRST + BLOCK), Some(first + block));
    world.kernel().check().unwrap();
}

#[test]
fn a_boost_follows_a_claim() {
    let mut world = Small::new(16 * BLOCK, Thp::new(0, 0, DAEMON));
    let space = world.space();
    world.kernel().set_marks(Marks { min: 8, low: 16, high: 32 }).unwrap();
    for page in FIRST..FIRST + 4 * BLOCK {
        world.store(space, page);
    }
    while world.memory.get_mut().allocate(&Request::new(0, State::Movable)).is_ok() {}
    let counts = |world: &mut Small| world.memory.get_mut().allocator().blocks().unwrap().counts();
    let before = counts(&mut world);
    for page in (FIRST..FIRST + 4 * BLOCK).step_by(2).take(14) {
        world.kernel().discard(space, pages(page..page + 1)).unwrap();
    }
    for page in (FIRST + BLOCK..FIRST + 2 * BLOCK).step_by(2) {
        world.kernel().discard(space, pages(page..page + 1)).unwrap();
    }
    while world.free() > 12 {
        world.memory.get_mut().allocate(&Request::new(0, State::Kernel)).unwrap();
    }
    assert!(counts(&mut world).claimed > before.claimed, "half of a block is free");
    // Therefore eviction frees one page block more than the high mark.
    world.kernel().tick();
    assert!((90..110).contains(&world.free()), "{} pages are free", world.free());
    world.kernel().check().unwrap();
}
