//! Compares every allocator with a set of frames, for a stream of requests.

extern crate alloc;

mod blocks;
#[path = "../support/boot.rs"]
mod boot;
mod hashed;
#[path = "../support/heap.rs"]
mod heap;
mod model;
mod no_memory;
mod reservations;
mod rules;
mod size_lists;

use std::ops::Range;

use addr::{Frames, OutOfFrames, PageSize, PhysAddr};
use model::{Rule, check};
use physmem::{
    Aging, Allocator, Apart, Buddy, Color, FrameId, FreeError, GeometryError, Home, Magazine,
    Nodes, PageBlocks, Physmem, Rather, Refusing, Request, Reservations, Scattered, SizeLists,
    State, age,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const K4: PageSize = PageSize::SIZE_4K;

fn size(order: u32) -> PageSize {
    PageSize::from_shift((K4.shift() + order) as u8).unwrap()
}

/// The page sizes of an R10000: powers of four times 4K, up to 16M.
fn irix_sizes() -> Vec<PageSize> {
    (0..=12).step_by(2).map(size).collect()
}

fn memory<A: Allocator>(
    first: u64,
    frames: u64,
    allocator: impl FnOnce(std::ops::Range<u32>) -> A,
) -> Physmem<A> {
    Physmem::new(PhysAddr::new(first * K4.bytes()), frames * K4.bytes(), K4, allocator).unwrap()
}

const MEMORIES: [(u64, u64); 6] = [(0, 64), (5, 93), (64, 1), (96, 160), (1023, 66), (0, 1 << 13)];

/// A function that creates an allocator of these frames.
type Made = fn(Range<u32>) -> Box<dyn Allocator>;

#[test]
fn buddies_under_streams_of_requests() {
    for (seed, (first, frames)) in MEMORIES.into_iter().enumerate() {
        println!("seed {seed}");
        let rule = Rule { holds: rules::buddies_are_joined, finds: |_| true };
        check(seed as u64, memory(first, frames, Buddy::new), rule);
    }
}

/// A kernel's stack has only a few pages, so the descriptors of a chunk must not be stored on it
/// temporarily.
#[test]
fn frames_change_hands_on_a_small_stack() {
    // A thread's stack is larger than requested, by the room for thread-local data, which the test
    // could use too.
    const STACK_BYTES: usize = 32 << 10;
    let change_hands = || {
        let taken = std::hint::black_box([1_u8; STACK_BYTES - (12 << 10)]);
        let mut memory = memory(0, 1 << 13, Buddy::new);
        let page = memory.allocate_page(K4, State::Movable).unwrap();
        let large = memory.allocate(&Request::new(9, State::Movable)).unwrap();
        memory.wire(FrameId(large.0 + 7));
        memory.unwire(FrameId(large.0 + 7));
        memory.try_free(large, 9).unwrap();
        (memory.used_bytes(), page.get() % K4.bytes(), taken[0])
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(change_hands);
    assert_eq!(thread.unwrap().join().unwrap(), (K4.bytes(), 0, 1));
}

#[test]
fn size_lists_under_streams_of_requests() {
    for (seed, (first, frames)) in MEMORIES.into_iter().enumerate() {
        println!("seed {seed}");
        for ordered in [false, true] {
            let lists = |frames| {
                let lists = SizeLists::new(frames, K4, &irix_sizes()).unwrap();
                if ordered { lists.ordered() } else { lists }
            };
            // A block of a size without a list may consist of two free pages of the next smaller
            // size.
            let rule = Rule { holds: rules::sizes_are_joined, finds: |order| order % 2 == 0 };
            check(seed as u64, memory(first, frames, lists), rule);
        }
    }
}

#[test]
fn nodes_under_streams_of_requests() {
    for (seed, (first, frames)) in MEMORIES.into_iter().enumerate() {
        println!("seed {seed}");
        let nodes = |allocator: fn(Range<u32>) -> Box<dyn Allocator>| {
            let start = PhysAddr::new(first * K4.bytes());
            Physmem::with_nodes(start, frames * K4.bytes(), K4, 3, allocator).unwrap()
        };
        let allocators: [Made; 6] = [
            |frames| Box::new(Buddy::new(frames)),
            // Blocks larger than 64 frames, the largest free block, are searched for among adjacent
            // blocks.
            |frames| Box::new(PageBlocks::new(frames, 4, 6)),
            |frames| Box::new(SizeLists::new(frames, K4, &irix_sizes()).unwrap()),
            |frames| Box::new(SizeLists::new(frames, K4, &irix_sizes()).unwrap().ordered()),
            |frames| Box::new(Scattered::new(PageBlocks::new(frames, 4, 6), 5)),
            |frames| Box::new(Reservations::new(Buddy::new(frames.clone()), frames, &[3])),
        ];
        // Comparing the largest memory takes long, so fewer allocators are tested there.
        let few = if frames > 1 << 10 { 2 } else { allocators.len() };
        for allocator in allocators.into_iter().take(few) {
            // No node can allocate a block that extends across two nodes.
            let rule = Rule { holds: |_, _| (), finds: |order| order == 0 };
            check(seed as u64, nodes(allocator), rule);
        }
    }
}

/// Two nodes have 48 frames each, in page blocks of 16 frames that are never joined. A block of 32
/// frames of a node must lie in its own frames, so each node can allocate only one such block.
#[test]
fn adjacent_blocks_of_a_node_are_its_own() {
    let blocks = |frames| PageBlocks::new(frames, 4, 4);
    let mut memory = Physmem::with_nodes(PhysAddr::new(0), 96 * K4.bytes(), K4, 2, blocks).unwrap();
    let mut ask = |node| {
        let node = Some(Home { node, strict: true });
        memory.allocate(&Request { node, ..Request::new(5, State::Movable) }).ok()
    };
    assert_eq!([ask(0), ask(0), ask(1), ask(1)], [Some(FrameId(0)), None, Some(FrameId(64)), None]);
}

/// If a node with page blocks has no frame of the colour, the next node is tried.
#[test]
fn page_blocks_give_a_colour_or_nothing_where_nothing_else_will_do() {
    let blocks = |frames| PageBlocks::new(frames, 2, 2);
    let mut memory = Physmem::with_nodes(PhysAddr::new(0), 8 * K4.bytes(), K4, 2, blocks).unwrap();
    assert!(memory.take(FrameId(1), 0, State::Kernel));
    for (rather, expected) in
        [(Rather::ColoredOnly, Some(5)), (Rather::ColoredOnly, None), (Rather::Colored, Some(0))]
    {
        let node = Some(Home { node: 0, strict: false });
        let color = Some(Color { value: 1, of: 4 });
        let request = Request { node, color, rather, ..Request::new(0, State::Movable) };
        let got = memory.allocate(&request).ok().map(|frame| frame.0);
        match expected {
            Some(5) | None => assert_eq!(got, expected, "{rather:?}"),
            // The request must get some frame of its own node.
            _ => assert!(got.is_some_and(|frame| frame < 4), "{rather:?}: {got:?}"),
        }
    }
}

#[test]
fn reservations_under_streams_of_requests_without_a_place() {
    for (seed, (first, frames)) in MEMORIES.into_iter().enumerate() {
        println!("seed {seed}");
        let reserving =
            |frames: Range<u32>| Reservations::new(Buddy::new(frames.clone()), frames, &[4, 2]);
        let rule = Rule { holds: rules::buddies_are_joined, finds: |_| true };
        check(seed as u64, memory(first, frames, reserving), rule);
    }
}

#[test]
fn frames_apart_under_streams_of_requests() {
    for (seed, (first, frames)) in MEMORIES.into_iter().enumerate() {
        println!("seed {seed}");
        // Most free frames are not available to requests for an arbitrary frame.
        let rule = Rule { holds: |_, _| (), finds: |_| false };
        check(seed as u64, memory(first, frames, Apart::new), rule);
    }
    let mut memory = memory(0, 64, Apart::new);
    let mut ask = || memory.allocate(&Request::new(0, State::Table)).ok().map(|frame| frame.0);
    assert_eq!([ask(), ask(), ask(), ask(), ask()], [Some(60), Some(61), Some(62), Some(63), None]);
    assert!(
        memory.take(FrameId(32), 4, State::Movable) && !memory.take(FrameId(40), 0, State::Movable)
    );
}

#[test]
fn scattered_frames_under_streams_of_requests() {
    for (seed, (first, frames)) in MEMORIES.into_iter().enumerate() {
        println!("seed {seed}");
        let scattered = |frames| Scattered::new(Buddy::new(frames), seed as u64);
        check(
            seed as u64,
            memory(first, frames, scattered),
            Rule { holds: |_, _| (), finds: |_| true },
        );
    }
}

#[test]
fn scattered_frames_are_each_given_once_and_a_seed_decides_their_order() {
    let order = |seed: u64| {
        let mut memory = memory(0, 64, |frames| Scattered::new(Buddy::new(frames), seed));
        let large = memory.allocate(&Request::new(4, State::Movable)).unwrap();
        let base = Request::new(0, State::Movable);
        let frames: Vec<u32> = (0..48).map(|_| memory.allocate(&base).unwrap().0).collect();
        assert!(memory.allocate(&base).is_err() && memory.free_bytes() == 0);
        memory.try_free(large, 4).unwrap();
        frames.iter().for_each(|&frame| memory.try_free(FrameId(frame), 0).unwrap());
        assert_eq!(memory.allocate(&Request::new(6, State::Movable)), Ok(FrameId(0)));
        frames
    };
    let all: Vec<Vec<u32>> = (1..=9).map(order).collect();
    for (frames, seed) in all.iter().zip(1..) {
        let mut sorted = frames.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (16..64).collect::<Vec<u32>>(), "seed {seed}");
        assert_eq!(*frames, order(seed));
    }
    // The frames of the first two requests have the same colour (of two) in about half of the
    // cases.
    let alike = all.iter().filter(|frames| (frames[0] ^ frames[1]) & 1 == 0).count();
    assert!((1..=8).contains(&alike), "{alike} of 9");
    let orders: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(orders.len(), 9);
}

#[test]
fn frames_in_hand_under_streams_of_requests() {
    for (seed, (first, frames)) in MEMORIES.into_iter().enumerate() {
        println!("seed {seed}");
        let buddy = |frames| Magazine::new(Buddy::new(frames));
        let rule = Rule { holds: |_, _| (), finds: |_| true };
        check(seed as u64, memory(first, frames, buddy), rule);
        let lists = |frames| Magazine::new(SizeLists::new(frames, K4, &irix_sizes()).unwrap());
        let rule = Rule { holds: rules::uses_are_counted, finds: |order| order % 2 == 0 };
        check(seed as u64, memory(first, frames, lists), rule);
        let nodes = |frames: std::ops::Range<u32>| Magazine::new(Buddy::new(frames));
        let start = PhysAddr::new(first * K4.bytes());
        let nodes = Physmem::with_nodes(start, frames * K4.bytes(), K4, 3, nodes).unwrap();
        check(seed as u64, nodes, Rule { holds: |_, _| (), finds: |order| order == 0 });
    }
}

#[test]
fn the_frame_that_was_freed_last_is_given_first_and_none_is_kept_from_a_large_page() {
    let mut memory = memory(0, 256, |frames| Magazine::new(Buddy::new(frames)));
    let base = Request::new(0, State::Movable);
    let frames: Vec<FrameId> = (0..256).map(|_| memory.allocate(&base).unwrap()).collect();
    for frame in [7, 3, 99] {
        memory.try_free(frames[frame], 0).unwrap();
    }
    let mut ask = || memory.allocate(&base).map(|frame| frame.0);
    assert_eq!([ask(), ask(), ask()], [Ok(99), Ok(3), Ok(7)]);
    assert!(ask().is_err());
    // Frames that are set aside can be taken by number, and are joined if a large page needs them.
    frames[..64].iter().for_each(|&frame| memory.try_free(frame, 0).unwrap());
    assert!(memory.take(FrameId(33), 0, State::Movable));
    memory.try_free(FrameId(33), 0).unwrap();
    assert_eq!(memory.allocate(&Request::new(6, State::Movable)), Ok(FrameId(0)));
}

#[test]
fn boxed_allocators_are_allocators() {
    let boxed = |frames| Box::new(Buddy::new(frames)) as Box<dyn Allocator>;
    let rule = Rule { holds: rules::buddies_are_joined, finds: |_| true };
    check(7, memory(3, 200, boxed), rule);
}

#[test]
fn a_large_machine_is_built_at_once() {
    let mut memory = Physmem::buddy(PhysAddr::new(0), 8 << 40, K4).unwrap();
    assert_eq!(memory.largest_free(), Some(size(31)));
    let mut at = |size| Frames::allocate(&mut memory, size);
    assert_eq!(at(K4), Ok(PhysAddr::new(0)));
    assert_eq!(at(PageSize::SIZE_1G), Ok(PhysAddr::new(1 << 30)));
    assert_eq!(at(PageSize::SIZE_2M), Ok(PhysAddr::new(2 << 20)));
    assert_eq!(at(K4), Ok(PhysAddr::new(0x1000)));
}

#[test]
fn frames_that_were_never_given_out_are_refused() {
    let mut memory = memory(4, 8, Buddy::new);
    let block = memory.allocate(&Request::new(2, State::Movable)).unwrap();
    for frame in [0, 3, 12, u32::MAX] {
        assert!(memory.try_free(FrameId(frame), 0).is_err(), "frame {frame} was taken");
    }
    assert!(matches!(memory.try_free(FrameId(block.0 + 1), 1), Err(FreeError::Foreign { .. })));
    assert_eq!(memory.used_bytes(), 4 * K4.bytes());
    // A page is freed in parts.
    for part in [1, 0, 3, 2] {
        assert_eq!(memory.try_free(FrameId(block.0 + part), 0), Ok(()));
    }
    assert_eq!(memory.used_bytes(), 0);
    assert_eq!(memory.free_frames(size(2)), 2, "the parts are one page again");
}

#[test]
#[should_panic(expected = "no frame at 0x0 is in use")]
fn a_second_owner_is_a_panic() {
    let mut memory = memory(0, 1, Buddy::new);
    let frame = Frames::allocate(&mut memory, K4).unwrap();
    Frames::free(&mut memory, frame, K4);
    Frames::free(&mut memory, frame, K4);
}

#[test]
fn a_wired_frame_is_not_freed_and_not_migratable() {
    let mut memory = memory(0, 4, Buddy::new);
    let frame = memory.allocate(&Request::new(0, State::Movable)).unwrap();
    memory.wire(frame);
    memory.wire(frame);
    memory.unwire(frame);
    assert!(!memory.table().get(frame).is_migratable());
    let addr = memory.table().address(frame);
    assert_eq!(memory.try_free(frame, 0), Err(FreeError::Wired { frame: addr }));
    memory.unwire(frame);
    assert_eq!(memory.try_free(frame, 0), Ok(()));
}

#[test]
fn impossible_memories_are_refused() {
    let misaligned = Some(GeometryError::Misaligned { base: K4 });
    for (start, bytes, expected) in [
        (1, 0x1000, misaligned),
        (0, 0x1001, misaligned),
        (u64::MAX - 0xfff, 0x1000, Some(GeometryError::Wraps)),
        (0, 16 << 40, Some(GeometryError::TooLarge { base: K4 })),
        (0, (16 << 40) - 0x1000, None),
        (0, 0, None),
    ] {
        assert_eq!(Physmem::buddy(PhysAddr::new(start), bytes, K4).err(), expected);
    }
    let mut empty = memory(0, 0, Buddy::new);
    let none = OutOfFrames { size: K4, free_bytes: 0 };
    assert_eq!(Frames::allocate(&mut empty, K4), Err(none));
    assert_eq!(empty.largest_free(), None);
}

#[test]
fn a_home_node_is_preferred_and_a_strict_one_is_all_there_is() {
    let mut memory =
        Physmem::with_nodes(PhysAddr::new(0), 12 * K4.bytes(), K4, 3, Buddy::new).unwrap();
    let mut ask = |node, strict| {
        let node = Some(Home { node, strict });
        let request = Request { node, ..Request::new(1, State::Movable) };
        memory.allocate(&request).ok().map(|frame| memory.table().get(frame).node())
    };
    assert_eq!([ask(1, true), ask(1, true), ask(1, true)], [Some(1), Some(1), None]);
    assert_eq!([ask(1, false), ask(1, false)], [Some(2), Some(2)], "the next node lends");
    assert_eq!([ask(2, false), ask(2, true)], [Some(0), None]);
}

#[test]
fn the_nearest_node_lends_first() {
    let far = |from: usize, to: usize| [[10, 30, 20], [30, 10, 20], [20, 20, 10]][from][to];
    let all = |ranges: &[std::ops::Range<u32>]| {
        let parts = ranges.iter().map(|range| (range.clone(), Buddy::new(range.clone())));
        Nodes::with_distances(parts.collect(), far)
    };
    for (home, order) in [(0, [0, 2, 1]), (1, [1, 2, 0]), (2, [2, 0, 1])] {
        let mut memory = Physmem::on_nodes(PhysAddr::new(0), 3 * K4.bytes(), K4, 3, all).unwrap();
        let node = Some(Home { node: home, strict: false });
        let request = Request { node, ..Request::new(0, State::Movable) };
        let mut ask = || memory.allocate(&request).map(|frame| memory.table().get(frame).node());
        assert_eq!([ask(), ask(), ask()], order.map(Ok), "from {home}");
    }
}

/// Two nodes have four frames each; on node 0, the frame of the requested colour is in use.
#[test]
fn a_colour_or_a_node_gives_way() {
    for (rather, expected) in [
        (Rather::Near, Some((0, false))),
        (Rather::Colored, Some((1, true))),
        (Rather::ColoredOnly, Some((1, true))),
    ] {
        let mut memory =
            Physmem::with_nodes(PhysAddr::new(0), 8 * K4.bytes(), K4, 2, Buddy::new).unwrap();
        assert!(memory.take(FrameId(1), 0, State::Kernel));
        let request = Request {
            node: Some(Home { node: 0, strict: false }),
            color: Some(Color { value: 1, of: 4 }),
            rather,
            ..Request::new(0, State::Movable)
        };
        let got = memory.allocate(&request).ok();
        let got = got.map(|frame| (memory.table().get(frame).node(), frame.0 % 4 == 1));
        assert_eq!(got, expected, "{rather:?}");
        // Now node 1 has no free frame of the colour either.
        assert!(rather == Rather::Near || !memory.take(FrameId(5), 0, State::Kernel));
        let again = memory.allocate(&request).ok().map(|frame| memory.table().get(frame).node());
        assert_eq!(again, (rather != Rather::ColoredOnly).then_some(0), "{rather:?}");
    }
}

#[test]
fn a_daemon_finds_chunks_of_every_node() {
    let sizes = [K4, irix_sizes()[1]];
    let lists = |frames| SizeLists::new(frames, K4, &sizes).unwrap();
    let mut memory = Physmem::with_nodes(PhysAddr::new(0), 16 * K4.bytes(), K4, 2, lists).unwrap();
    for node in [0, 1] {
        let (allocator, _) = memory.allocator_mut();
        assert!(allocator.node_mut(node).unwrap().set_high_watermark(2, 1));
    }
    let frames: Vec<FrameId> =
        (0..16).map(|_| memory.allocate(&Request::new(0, State::Movable)).unwrap()).collect();
    assert_eq!(memory.allocator().wanted(2), 2);
    for frame in frames.iter().filter(|frame| (8..11).contains(&frame.0)) {
        memory.try_free(*frame, 0).unwrap();
    }
    assert_eq!(memory.allocator().frames_in_use(FrameId(8), 2, 4), 1);
    assert_eq!(memory.allocator().frames_in_use(FrameId(0), 2, 4), 4);
    memory.try_free(FrameId(11), 0).unwrap();
    assert!(memory.allocator().has_block(memory.table(), FrameId(8), 2));
    assert_eq!((memory.allocator().wanted(2), memory.allocator().free_blocks(2)), (1, 1));
}

#[test]
fn a_colour_is_had_where_a_frame_of_it_is_free() {
    for color in 0..8 {
        let mut memory = memory(0, 64, Buddy::new);
        for _ in 0..8 {
            let color = Some(Color { value: color, of: 8 });
            let request = Request { color, ..Request::new(0, State::Movable) };
            let frame = memory.allocate(&request).unwrap();
            assert_eq!(Some(frame.0 % 8), color.map(|color| color.value));
        }
        let request = Request {
            color: Some(Color { value: color, of: 8 }),
            ..Request::new(0, State::Movable)
        };
        assert!(memory.allocate(&request).is_ok(), "another colour rather than none");
    }
}

#[test]
fn ageing_leaves_the_shares_that_were_asked_for() {
    for (free, wired) in [(500, 100), (100, 600), (0, 0), (1000, 0), (250, 750)] {
        let aging = Aging { free_permille: free, wired_permille: wired, seed: 3 };
        let mut memory = memory(0, 4096, Buddy::new);
        let aged = age(&mut memory, aging).unwrap();
        let share = |permille: u16| 4096 * u64::from(permille) / 1000;
        assert_eq!(memory.table().count(State::Free), share(free), "{aging:?}");
        assert_eq!(memory.table().count(State::Kernel), share(wired), "{aging:?}");
        assert_eq!(memory.table().count(State::Movable), aged.movable);
        assert_eq!(aged.movable + aged.wired + share(free), 4096);
    }
    let aging = Aging { free_permille: 600, wired_permille: 600, seed: 3 };
    assert!(age(&mut memory(0, 64, Buddy::new), aging).is_err());
}

#[test]
fn ageing_fragments_and_is_repeatable() {
    let aged = |seed| {
        let mut memory = memory(0, 1 << 14, Buddy::new);
        age(&mut memory, Aging { free_permille: 500, wired_permille: 100, seed }).unwrap();
        (0..14).map(|order| memory.free_frames(size(order))).collect::<Vec<_>>()
    };
    assert_eq!(aged(1), aged(1));
    assert_ne!(aged(1), aged(2));
    let large: u64 = (9..14).map(|order| aged(1)[order]).sum();
    assert_eq!(large, 0, "half of memory is free and no 2M of it is in one piece");
}

#[test]
fn one_allocation_can_be_made_to_fail() {
    let mut memory = memory(0, 64, |frames| Refusing::new(Buddy::new(frames)));
    memory.allocator_mut().0.refuse(3);
    let got: Vec<bool> = (0..5).map(|_| memory.allocate_page(K4, State::Movable).is_ok()).collect();
    assert_eq!(got, [true, true, false, true, true]);
    assert!(memory.allocator().has_refused());
    assert_eq!(memory.table().count(State::Movable), 4);
}

/// A kernel without std runs a stream of this test and gets the digest of the test.
#[test]
fn a_kernel_gives_the_same_answers() {
    let rule = Rule { holds: rules::buddies_are_joined, finds: |_| true };
    assert_eq!(boot::digest("physmem"), check(5, memory(0, 1 << 13, Buddy::new), rule));
}

/// Pages of 2M and more change their owner as a whole or in parts, and owners write to single
/// descriptors.
#[test]
fn descriptors_of_large_pages_are_those_of_their_frames() {
    const FRAMES: u32 = 1 << 13;
    for seed in 1..9 {
        println!("seed {seed}");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let bytes = u64::from(FRAMES) << K4.shift();
        let mut memory = Physmem::buddy(PhysAddr::new(0), bytes, K4).unwrap();
        // For each frame, its state, flags and wired count.
        let mut model = vec![(State::Free, 0, 0); FRAMES as usize];
        let mut out: Vec<(u32, u32)> = Vec::new();
        for _ in 0..600 {
            let state = State::ALL[rng.random_range(2..5)];
            let pick = (!out.is_empty()).then(|| rng.random_range(0..out.len()));
            match (rng.random_range(0..8), pick) {
                (0..3, _) | (_, None) => {
                    let order = [0, 3, 8, 9, 9, 10][rng.random_range(0..6)];
                    if let Ok(first) = memory.allocate(&Request::new(order, state)) {
                        let frames = first.0 as usize..first.0 as usize + (1 << order);
                        model[frames].fill((state, 0, 0));
                        out.push((first.0, order));
                    }
                }
                (3, Some(pick)) if out[pick].1 > 0 => {
                    let (first, order) = out.swap_remove(pick);
                    out.extend([(first, order - 1), (first + (1 << (order - 1)), order - 1)]);
                }
                (4, Some(pick)) => {
                    let frame = out[pick].0 + rng.random_range(0..1 << out[pick].1);
                    memory.pfdat_mut(FrameId(frame)).flags = 5;
                    model[frame as usize].1 = 5;
                }
                (5, Some(pick)) => {
                    let frame = out[pick].0 + rng.random_range(0..1 << out[pick].1);
                    memory.wire(FrameId(frame));
                    model[frame as usize].2 += 1;
                }
                (_, Some(pick)) => {
                    let (first, order) = out.swap_remove(pick);
                    let frames = first as usize..first as usize + (1 << order);
                    if let Some(at) = model[frames.clone()].iter().position(|frame| frame.2 > 0) {
                        let frame = FrameId(first + at as u32);
                        let wired = FreeError::Wired { frame: memory.table().address(frame) };
                        assert_eq!(memory.try_free(FrameId(first), order), Err(wired));
                        for frame in frames.clone() {
                            (0..model[frame].2).for_each(|_| memory.unwire(FrameId(frame as u32)));
                        }
                    }
                    memory.try_free(FrameId(first), order).unwrap();
                    model[frames].fill((State::Free, 0, 0));
                    let again = memory.try_free(FrameId(first), order);
                    assert!(matches!(again, Err(FreeError::NotOut { .. })));
                }
            }
            for (frame, expected) in (0..).map(FrameId).zip(&model) {
                let pfdat = memory.table().get(frame);
                assert_eq!((pfdat.state(), pfdat.flags, pfdat.wired), *expected, "{frame:?}");
            }
            for state in State::ALL {
                let count = model.iter().filter(|frame| frame.0 == state).count();
                assert_eq!(memory.table().count(state), count as u64, "{state}");
            }
        }
    }
}
