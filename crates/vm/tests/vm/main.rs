//! Compares memory management, with every page table and policy, with a model: a map from (space,
//! page) to the page's properties. TLBs of the simulated processors drop an entry only when it is
//! flushed.

extern crate alloc;

mod access;
mod board;
#[path = "../../../physmem/tests/support/boot.rs"]
mod boot;
mod daemons;
mod eager;
mod given;
mod groups;
#[path = "../../../physmem/tests/support/heap.rs"]
mod heap;
mod kept;
mod large;
mod linux;
mod machine;
mod memory;
mod model;
mod oom;
mod pins;
mod pools;
mod reserve;
mod stacks;
mod sync;
mod tables;
mod waking;
mod world;

use tables::TABLES;
use vm::POLICIES;
use world::World;

/// The number of frames. It is so small that pages are evicted all the time.
const FRAMES: u64 = 150;
const PLENTY: u64 = 1 << 15;

#[test]
fn streams_of_events_over_every_table_and_policy() {
    let mut scarce = 0;
    for table in &TABLES {
        let mut world = World::new(table, "clock", PLENTY, 1);
        world.run(table.events);
        assert_eq!(world.board.swap_reads, 0);
        let frames = world.tables_peak + FRAMES / 2;
        for (policy, _) in POLICIES {
            println!("{}, {policy}, seed 1, {frames} frames", table.name);
            let mut world = World::new(table, policy, frames, 1);
            world.run(table.events);
            scarce += u32::from(world.board.swap_reads > 0);
        }
    }
    // Memory is not scarce in every stream: if there are few spaces, more frames are left for
    // pages.
    assert!(scarce > 30, "memory was scarce in {scarce} of 60 streams only");
}

#[test]
fn longer_streams() {
    for seed in 2..6 {
        for (policy, _) in POLICIES {
            println!("{policy}, seed {seed}");
            World::new(&TABLES[0], policy, FRAMES, seed).run(1500);
        }
    }
}

/// For each allocation of a stream (for a page, a table or a space), repeats the stream with this
/// allocation failing.
#[test]
fn every_allocation_fails_once() {
    for table in &TABLES {
        // With tables that take few frames, memory is so small that pages are evicted all the time.
        let frames = if table.name == TABLES[0].name { FRAMES } else { PLENTY };
        let run = |number: u64| {
            let mut world = World::new(table, "lru", frames, 7);
            world.memory.get_mut().allocator_mut().0.refuse(number);
            world.run(table.events / 5);
            world.memory.get_mut().allocator().has_refused()
        };
        let refused = (1..).take_while(|&number| run(number)).count();
        println!("{}: each of {refused} allocations failed", table.name);
        assert!(refused > 0, "{}: {refused} allocations in a stream", table.name);
    }
}

#[test]
fn a_stream_does_the_same_twice() {
    let digest = || {
        let mut world = World::new(&TABLES[0], "2q", FRAMES, 3);
        world.run(200);
        world.digest()
    };
    assert_eq!(digest(), digest());
}

/// A kernel without std runs a stream of this test, under locks that exclude threads, and gets the
/// digest of the test.
#[test]
fn a_kernel_does_the_same() {
    let mut world = World::new(&TABLES[0], "lru", FRAMES, 5);
    world.run(300);
    assert_eq!(boot::digest("vm"), world.digest());
}

#[test]
fn all_wired_is_an_error_and_no_panic() {
    let mut world = World::new(&TABLES[0], "clock", FRAMES, 1);
    world.wire_until_refused();
    world.run(0);
}
