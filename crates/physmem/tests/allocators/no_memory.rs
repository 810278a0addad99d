//! The heap becomes full during a request for frames. Each allocation of each request is refused
//! once: the request either fails without changing any descriptor, or succeeds without the
//! allocation. Freeing frames needs no memory.

use std::ops::Range;

use physmem::{
    Allocator, Apart, Buddy, Contiguous, FrameId, Magazine, ObjectPage, PageBlocks, Pfdat, Physmem,
    Request, Reservations, SizeLists, State,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{K4, heap, irix_sizes, memory};

/// The state that a refused request must not change: the descriptors, and the counts of free
/// blocks.
fn state<A: Allocator>(memory: &Physmem<A>, moves_free: bool) -> (Vec<Pfdat>, u64, Vec<u64>) {
    let frames = memory.table().frames();
    let mut all: Vec<Pfdat> = frames.map(|frame| memory.table().get(FrameId(frame))).collect();
    let orders = if moves_free { 0 } else { 20 };
    if moves_free {
        // Free frames may have moved between free lists, so their descriptors are not compared.
        all.retain(|pfdat| pfdat.state() != State::Free);
    }
    let blocks = (0..orders).map(|order| memory.allocator().free_blocks(order)).collect();
    (all, memory.free_bytes(), blocks)
}

fn check<A: Allocator>(name: &str, moves_free: bool, mut memory: Physmem<A>) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let (mut out, mut refused): (Vec<(FrameId, u32)>, u64) = (Vec::new(), 0);
    for step in 0..400u64 {
        let order = rng.random_range(0..11u32).saturating_sub(rng.random_range(0..8));
        if rng.random_bool(0.3) && !out.is_empty() {
            let (first, order) = out.swap_remove(rng.random_range(0..out.len()));
            heap::without(|| memory.try_free(first, order)).unwrap();
            continue;
        }
        let states = [State::Movable, State::Kernel, State::Table];
        let mut request = Request::new(order, states[rng.random_range(0..3)]);
        if order == 0 && rng.random_bool(0.7) {
            // The request is for the next page of an object, so that it uses reservations.
            let (object, index, end) = (1, step, 1 << 20);
            let (before, after) = (None, None);
            let place = ObjectPage { object, index, first: 0, end, grows: true, before, after };
            request.place = Some(place);
        }
        let take = rng.random_bool(0.2);
        let frames = memory.table().frames();
        let wanted = FrameId(rng.random_range(frames) >> order << order);
        for number in 1.. {
            let before = state(&memory, moves_free);
            let (done, was_refused) = heap::refusing(number, || match take {
                true => memory.take(wanted, order, request.state).then_some(wanted),
                false => memory.allocate(&request).ok(),
            });
            if done.is_none() && was_refused {
                assert!(memory.is_short_of_memory(), "{name}, step {step}");
                assert!(state(&memory, moves_free) == before, "{name}, step {step}");
                refused += 1;
                continue;
            }
            if done.is_none() {
                assert!(!memory.is_short_of_memory(), "{name}, step {step}");
            }
            out.extend(done.map(|first| (first, order)));
            break;
        }
    }
    heap::without(|| {
        for (first, order) in out {
            memory.try_free(first, order).unwrap();
        }
    });
    println!("{name}: {refused} allocations were refused");
    assert!(refused > 3, "{name}: {refused}");
}

#[test]
fn each_allocation_is_refused_once() {
    const FRAMES: u64 = 1 << 14;
    check("buddy", false, memory(5, FRAMES, Buddy::new));
    check("blocks", false, memory(0, FRAMES, |frames| PageBlocks::new(frames, 9, 10)));
    check("magazine", true, memory(5, FRAMES, |frames| Magazine::new(Buddy::new(frames))));
    check("apart", false, memory(0, FRAMES, Apart::new));
    check("contiguous", false, memory(0, FRAMES, |all| Contiguous::new(Buddy::new(all), 9)));
    let sizes = irix_sizes();
    let lists = |frames| SizeLists::new(frames, K4, &sizes).unwrap();
    check("size lists", false, memory(0, FRAMES, lists));
    check("ordered", false, memory(0, FRAMES, |frames| lists(frames).ordered()));
    let (start, bytes) = (addr::PhysAddr::new(0), FRAMES * K4.bytes());
    check("nodes", false, Physmem::with_nodes(start, bytes, K4, 3, Buddy::new).unwrap());
    let reserved = |frames: Range<u32>| Reservations::new(Buddy::new(frames.clone()), frames, &[9]);
    check("reservations", true, memory(0, FRAMES, reserved));
}

/// If a kernel reserves all descriptors when it starts, no later request needs memory.
#[test]
fn descriptors_can_be_reserved_at_once() {
    let mut memory = memory(5, 1 << 14, Buddy::new);
    memory.reserve_descriptors().unwrap();
    heap::without(|| {
        for order in [9, 0, 3, 11, 0, 1] {
            let first = memory.allocate(&Request::new(order, State::Movable)).unwrap();
            if order > 0 {
                memory.try_free(first, order - 1).unwrap();
                memory.try_free(FrameId(first.0 + (1 << (order - 1))), order - 1).unwrap();
            }
        }
    });
}
