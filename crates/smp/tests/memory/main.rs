//! Tests of the memory manager with locks for several threads: the streams of the model test, with
//! the order of locks asserted, and two threads of this host at the same time.

// The model test uses more functions of these modules than this test does.
#![allow(dead_code)]

extern crate alloc;

#[path = "../../../vm/tests/vm/board.rs"]
mod board;

/// Replaces the test allocator's module: here no allocation is refused.
mod heap {
    pub(crate) fn unrefused<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
}

#[path = "../../../vm/tests/vm/model.rs"]
mod model;
#[path = "../../../vm/tests/vm/tables.rs"]
mod tables;
mod threads;
#[path = "../../../vm/tests/vm/world.rs"]
mod world;

use addr::{Kind, VirtAddr};
use hat::{
    Hat, HatSpace, Pool,
    locking::{Arrays, Fine, Global, ListLocks, Locks, Single},
};
use locks::Chosen;
use pagetable::{Mounted, Translation};
use smp::Ranked;
use tables::{TABLES, Table};
use vm::{POLICIES, Reference, Reserving};
use world::{Hardware, Large, World};

type Asserted = Ranked<Single>;

/// If walks set no bits, a query of the layer replaces a walk, so the locking scheme needs no
/// walks.
impl<L: Locks, A: Arrays<L>> Hardware for Hat<dyn Mounted, Fine<dyn Mounted, L, A>> {
    fn walk(&mut self, space: HatSpace, addr: VirtAddr, kind: Kind) -> Option<Translation> {
        let found = self.query(space, addr)?.translation;
        found.rights.allows(kind).then_some(found)
    }
}

fn global() -> Global<dyn Mounted, Asserted> {
    Global::new(Pool::unlimited())
}

fn fine(arrays: Chosen) -> Fine<dyn Mounted, Asserted, Chosen> {
    Fine::new(&arrays, Pool::unlimited(), ListLocks::Each)
}

fn irix() -> &'static Table {
    TABLES.iter().find(|table| table.name == "irix").expect("it is one of them")
}

/// All locks are acquired in the right order, and the streams have the same results as without
/// locks.
#[test]
fn locks_are_taken_in_their_order() {
    let no_bits = TABLES.iter().filter(|table| table.reference == Reference::ValidBit);
    for table in TABLES.first().into_iter().chain(no_bits).take(4) {
        for (policy, _) in POLICIES {
            println!("{}, {policy}", table.name);
            same_under_all(table, policy, (200, 1), Large::No);
        }
    }
}

/// All schemes give equal results with pages of several sizes: with upgrades, the coalescing daemon and
/// reservations.
#[test]
fn with_large_pages_too() {
    for seed in 0..3 {
        for large in [Large::Asked, Large::Reserved(Reserving { eager: seed == 1 })] {
            println!("seed {seed}");
            same_under_all(irix(), "lru", (400, seed), large);
        }
    }
}

fn same_under_all(table: &Table, policy: &'static str, of: (u64, u64), large: Large) {
    let mut single = World::with(table, policy, of.0, of.1, large);
    single.run(table.events);
    let mut under_one = World::<Asserted, _>::under(global(), table, policy, of, large);
    under_one.run(table.events);
    assert_eq!(under_one.digest(), single.digest());
    if table.reference == Reference::Hardware {
        return;
    }
    let mut under_each =
        World::<Asserted, _>::under(fine(Chosen::Embedded), table, policy, of, large);
    under_each.run(table.events);
    assert_eq!(under_each.digest(), single.digest());
    let mut under_flags =
        World::<Asserted, _>::under(fine(Chosen::Monitor), table, policy, of, large);
    under_flags.run(table.events);
    assert_eq!(under_flags.digest(), single.digest());
}
