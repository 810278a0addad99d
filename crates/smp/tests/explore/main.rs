//! Schedules of many processors on the HAT layer, explored at random: every scheme of locks over
//! several page tables, the order of locks asserted, the result compared with a map.
//!
//! `PAGEWALK_SCHEDULES=N` explores N schedules per scheme and table instead of a few.

mod broken;
mod world;

use hat::{
    Pool, Tables,
    locking::{Arrays, Embedded, Fine, Global, Hashed, ListLocks, Locks, Monitor},
};
use pagetable::{
    Guarded, Hashed as HashedTable, HashedShape, Mount, Mounted, SparseMemory, X86_64,
};
use smp::{Native, Ranked, Timed};
use world::{Faults, Plan, each, explore};

type AnyTable = Box<dyn Mounted>;

const MEMORY: u64 = 1 << 40;

pub(crate) fn x86_64() -> AnyTable {
    Box::new(Mount::tree(X86_64::<4>::new(), SparseMemory::new(MEMORY)))
}

fn guarded() -> AnyTable {
    Box::new(Mount::tree(Guarded::new(16).unwrap(), SparseMemory::new(MEMORY)))
}

fn hashed() -> AnyTable {
    let table = HashedTable::new(HashedShape { shared: true, ..HashedShape::H8K }).unwrap();
    Box::new(Mount::new(table, SparseMemory::new(MEMORY)))
}

type MakeTables = fn() -> Tables<dyn Mounted>;

/// A table for each space, or one for all; and what the pool holds, if not any number.
const TABLES: [(&str, MakeTables, Option<u64>); 5] = [
    ("x86-64 each", || each(x86_64), None),
    ("x86-64 each, stealing", || each(x86_64), Some(24 * 4096)),
    ("guarded each", || each(guarded), None),
    ("x86-64, one", || Tables::One(x86_64()), None),
    ("hashed, one", || Tables::One(hashed()), None),
];

fn pool(bytes: Option<u64>) -> Pool {
    bytes.map_or_else(Pool::unlimited, Pool::of)
}

fn fine<L: Locks, A: Arrays<L>>(
    arrays: A,
    bytes: Option<u64>,
    lists: ListLocks,
) -> Fine<dyn Mounted, L, A> {
    Fine::new(&arrays, pool(bytes), lists)
}

/// What tests change of it.
pub(crate) const PLAN: Plan = Plan {
    cpus: 3,
    steps: 40,
    seed: 0,
    frames: 400,
    faults: Faults { early_answer: false, steal_in_load: false },
    is_native: false,
};

/// So many schedules for each scheme and table.
fn schedules() -> u64 {
    let asked = std::env::var("PAGEWALK_SCHEDULES").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(8)
}

type Explore = fn(MakeTables, Option<u64>, Plan) -> Result<(), String>;

/// Every scheme of locks of one platform, by name.
macro_rules! schemes {
    ($locks:ty) => {{
        type L = Ranked<$locks>;
        let schemes: [(&str, Explore); 6] = [
            ("global", |tables, bytes, plan| {
                explore(Global::<_, L>::new(pool(bytes)), tables(), plan)
            }),
            ("monitor", |tables, bytes, plan| {
                explore(fine::<L, _>(Monitor, bytes, ListLocks::One), tables(), plan)
            }),
            ("monitor, lock per list", |tables, bytes, plan| {
                explore(fine::<L, _>(Monitor, bytes, ListLocks::Each), tables(), plan)
            }),
            ("hashed, 1", |tables, bytes, plan| {
                explore(fine::<L, _>(Hashed { mutexes: 1 }, bytes, ListLocks::One), tables(), plan)
            }),
            ("hashed, 16", |tables, bytes, plan| {
                explore(fine::<L, _>(Hashed { mutexes: 16 }, bytes, ListLocks::One), tables(), plan)
            }),
            ("embedded", |tables, bytes, plan| {
                explore(fine::<L, _>(Embedded, bytes, ListLocks::Each), tables(), plan)
            }),
        ];
        schemes
    }};
}

#[test]
fn every_scheme_over_every_table_under_random_schedules() {
    for (table, tables, bytes) in TABLES {
        for (scheme, explore) in schemes!(Timed) {
            for seed in 0..schedules() {
                let cpus = 2 + seed as usize % 3;
                let plan = Plan { cpus, steps: 25, seed, ..PLAN };
                let result = explore(tables, bytes, plan);
                assert_eq!(result, Ok(()), "{scheme}, {table}, seed {seed}");
            }
        }
    }
}

#[test]
fn every_scheme_over_every_table_on_threads_of_the_host() {
    for (table, tables, bytes) in TABLES {
        for (scheme, explore) in schemes!(Native) {
            for cpus in 1..=4 {
                let steps = 100 * schedules() as u32 / 8;
                let plan = Plan { cpus, steps, seed: cpus as u64, is_native: true, ..PLAN };
                let result = explore(tables, bytes, plan);
                assert_eq!(result, Ok(()), "{scheme}, {table}, {cpus} threads");
            }
        }
    }
}
