//! Tests placement by address: the iceberg hash table, and restrictive segments.

use std::collections::BTreeSet;

use physmem::{
    Allocator, Berth, Buddy, FrameId, Iceberg, PageBlocks, Physmem, Request, Restrictive, Segment,
    State,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::memory;

/// All frames that a page may have, listed one by one by their number.
fn numbered(iceberg: &Iceberg, key: u64) -> Vec<FrameId> {
    (0..iceberg.numbers()).map(|number| iceberg.frame(key, number)).collect()
}

#[test]
fn a_number_says_which_frame_it_is() {
    let (front, back, choices, first) = (56, 8, 6, 7);
    let frames = first..first + 40 * 64 + 17;
    let iceberg = Iceberg::new(frames.clone(), front, back, choices).unwrap();
    assert_eq!(iceberg.numbers(), 104);
    for key in 0..300 {
        let all = numbered(&iceberg, key);
        // First the front yard, then the back yards, each at its position in a bucket of 64 frames.
        let start = (all[0].0 - first) % 64;
        assert_eq!(start, 0);
        assert!((0..front).all(|at| all[at as usize].0 == all[0].0 + at));
        for (at, part) in all[front as usize..].chunks(back as usize).enumerate() {
            assert!(
                (0..back).all(|slot| (part[slot as usize].0 - first) % 64 == front + slot),
                "{at}"
            );
        }
        for frame in frames.clone().chain([0, 6, u32::MAX]).map(FrameId) {
            let place = all.iter().position(|one| *one == frame).map(|place| place as u32);
            assert_eq!(iceberg.number(key, frame), place, "key {key}, {frame:?}");
        }
    }
    for (frames, front, back, choices) in [(0..63, 56, 8, 6), (0..64, 0, 8, 6), (0..64, 56, 8, 257)]
    {
        assert_eq!(Iceberg::new(frames, front, back, choices), None);
    }
}

/// A page gets a frame of its front yard; if that is full, of the back yard with the most free
/// frames, or of the first of several.
#[test]
fn a_page_gets_the_frame_that_a_list_of_all_says() {
    let iceberg = Iceberg::new(0..6 * 10, 4, 6, 3).unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut seen = [0; 3];
    for key in 0..4000 {
        let share = random.random_range(0..30);
        let free: BTreeSet<FrameId> =
            (0..60).filter(|_| random.random_range(0..100) < share).map(FrameId).collect();
        let all = numbered(&iceberg, key);
        let (front, back) = all.split_at(4);
        let expected = match front.iter().find(|frame| free.contains(frame)) {
            Some(&frame) => Some(Berth { frame, is_back: false }),
            None => {
                let free_of = |yard: &[FrameId]| -> Vec<FrameId> {
                    yard.iter().copied().filter(|frame| free.contains(frame)).collect()
                };
                let yards: Vec<_> = back.chunks(6).map(free_of).collect();
                let most = yards.iter().map(Vec::len).max().unwrap();
                let yard = yards.iter().find(|yard| yard.len() == most && most > 0);
                yard.map(|yard| Berth { frame: yard[0], is_back: true })
            }
        };
        assert_eq!(iceberg.choose(key, |frame| free.contains(&frame)), expected, "key {key}");
        seen[expected.map_or(2, |berth| usize::from(berth.is_back))] += 1;
    }
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
}

/// Tests a claim of Mosaic: almost every page finds an allowed frame until memory is 98 % full.
#[test]
fn memory_fills_before_frames_collide() {
    for seed in 0..4 {
        let count = 1 << 16;
        let iceberg = Iceberg::new(0..count, 56, 8, 6).unwrap();
        let mut used = BTreeSet::new();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        loop {
            let key = random.random::<u64>() >> 12;
            let Some(berth) = iceberg.choose(key, |frame| !used.contains(&frame)) else { break };
            used.insert(berth.frame);
        }
        let share = used.len() as f64 / f64::from(count);
        println!("seed {seed}: {share}");
        assert!(share > 0.97, "seed {seed}: the first page without a frame at {share}");
    }
}

#[test]
fn sets_hold_the_pages_of_their_number() {
    let segment = Segment { first: FrameId(1024), sets: 3, ways: 2, order: 4 };
    assert_eq!(segment.end(), 1024 + 96);
    let places = |page| segment.places(segment.set_of(page)).map(|at| at.0).collect::<Vec<_>>();
    assert_eq!(places(0), [1024, 1040]);
    assert_eq!(places(7), [1056, 1072]);
    assert_eq!(places(u64::MAX), places(0), "2^64 - 1 is divisible by 3");
    for frame in 1000..1130 {
        let expected = frame == 1056 || frame == 1072;
        assert_eq!(segment.may_have(7, FrameId(frame)), expected, "frame {frame}");
    }
}

/// With random requests, tests that a segment's frame is given to requests for this frame, and to
/// other requests only if all other memory is in use.
#[test]
fn segments_give_what_is_wished() {
    fn under<A: Allocator>(seed: u64, mut memory: Physmem<Restrictive<A>>, from: u32, end: u32) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut free: BTreeSet<u32> = (0..end).collect();
        let mut given: Vec<(u32, u32)> = Vec::new();
        let (mut is_used, mut lent, mut wished) = (false, 0, 0);
        for step in 0..6000 {
            let context = || format!("seed {seed}, step {step}");
            let is_large = random.random_bool(0.05);
            let order = random.random_range(if is_large { 4..9 } else { 0..4 });
            let block = |first: u32| first..first + (1 << order);
            match random.random_range(0..100) {
                0..30 => {
                    let wish = random.random_range(if is_large { 0..end } else { from..end });
                    let near = wish >> order << order;
                    let crosses = near < from && block(near).end > from;
                    let is_free = !crosses && block(near).all(|frame| free.contains(&frame));
                    let request = Request {
                        near: Some(FrameId(near)),
                        ..Request::new(order, State::Movable)
                    };
                    let got = memory.allocate(&request).ok();
                    assert_eq!(got, is_free.then_some(FrameId(near)), "{}", context());
                    is_used |= near >= from;
                    if is_free {
                        wished += 1;
                        block(near).for_each(|frame| assert!(free.remove(&frame)));
                        given.push((near, order));
                    }
                }
                30..60 => {
                    let whole = |first: &u32| block(*first).all(|frame| free.contains(&frame));
                    let firsts = |range: std::ops::Range<u32>| range.step_by(1 << order);
                    let is_flexible = firsts(0..from).any(|first| whole(&first));
                    let is_lent = is_used && firsts(from..end).any(|first| whole(&first));
                    match memory.allocate(&Request::new(order, State::Movable)) {
                        Ok(FrameId(first)) => {
                            assert_eq!(first < from, is_flexible, "{}", context());
                            lent += u32::from(first >= from);
                            block(first).for_each(|frame| assert!(free.remove(&frame)));
                            given.push((first, order));
                        }
                        Err(_) => assert!(!is_flexible && !is_lent, "{}", context()),
                    }
                }
                60..65 => {
                    let first = random.random_range(0..end) >> order << order;
                    let is_flexible = block(first).end <= from;
                    let is_free = is_flexible && block(first).all(|frame| free.contains(&frame));
                    let taken = memory.take(FrameId(first), order, State::Movable);
                    assert_eq!(taken, is_free, "{}", context());
                    if taken {
                        block(first).for_each(|frame| assert!(free.remove(&frame)));
                        given.push((first, order));
                    }
                }
                _ if given.is_empty() => {}
                _ => {
                    let (first, order) = given.swap_remove(random.random_range(0..given.len()));
                    memory.try_free(FrameId(first), order).unwrap();
                    free.extend(first..first + (1 << order));
                }
            }
            assert_eq!(memory.free_bytes() >> 12, free.len() as u64, "{}", context());
            let blocks = (0..32).map(|order| memory.allocator().free_blocks(order) << order);
            assert_eq!(blocks.sum::<u64>(), free.len() as u64, "{}", context());
        }
        assert!(lent > 20 && wished > 20, "seed {seed}: {lent} lent, {wished} wished");
    }
    for seed in 0..6 {
        let (from, end) = (48, 128);
        let made = memory(0, end.into(), |frames| {
            Restrictive::new(Buddy::new(frames.start..from), FrameId(from), FrameId(end))
        });
        under(seed, made, from, end);
        let made = memory(0, end.into(), |frames| {
            Restrictive::new(PageBlocks::new(frames.start..from, 4, 6), FrameId(from), FrameId(end))
        });
        under(seed + 6, made, from, end);
    }
}
