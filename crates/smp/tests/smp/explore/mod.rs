//! Explores random schedules of many processors on the HAT layer. Every locking scheme is tested
//! with several page tables. The order of locks is asserted, and the result is compared with a map.
//!
//! With `PAGEWALK_SCHEDULES=N`, N schedules are explored per scheme and table, instead of 32.

mod broken;
mod pairs;
mod world;

use addr::PageSize;
use hat::{
    Pool, Tables,
    locking::{Early, Fine, Global, Hashed, ListLocks, Locks, Scheme, Spin},
};
use locks::Chosen;
use pagetable::{
    CacheShape, Cached, ElasticCuckoo, Guarded, Hashed as HashedTable, HashedShape, Irix, Mount,
    Mounted, Mpt, PageTable, SparcReference, SparseMemory, Split, X86_32, X86_64,
};
use pairs::{CASES, Case};
use smp::{Native, Ranked, SharedMemory, Timed};
use world::{Faults, Plan, each, explore};

type AnyTable = Box<dyn Mounted>;

const MEMORY: u64 = 1 << 40;
const SHARED: u64 = 1 << 34;
pub(crate) const K16: PageSize = PageSize::from_shift(14).expect("a page size");

pub(crate) fn x86_64() -> AnyTable {
    Box::new(Mount::tree(X86_64::<4>::new(), SparseMemory::new(MEMORY)))
}

/// A page table in a memory that all processors share, so that its subtrees can be locked.
fn subtrees(memory: &SharedMemory) -> AnyTable {
    Box::new(Mount::shared(X86_64::<4>::new().forgetful(), memory.clone()))
}

fn each_with_subtrees() -> Tables<dyn Mounted> {
    let memory = SharedMemory::new(SHARED);
    Tables::Each(Box::new(move || subtrees(&memory)))
}

fn sparc_with_subtrees() -> Tables<dyn Mounted> {
    let memory = SharedMemory::new(SHARED);
    Tables::Each(Box::new(move || {
        Box::new(Mount::shared(SparcReference::<true>::new().forgetful(), memory.clone()))
    }))
}

/// Tables of the format `mpt`, whose leaves contain the names of nodes.
fn mpt_with_subtrees() -> Tables<dyn Mounted> {
    let memory = SharedMemory::new(SHARED);
    Tables::Each(Box::new(move || Box::new(Mount::shared(Mpt::new().forgetful(), memory.clone()))))
}

fn irix() -> AnyTable {
    Box::new(Mount::tree(Irix::new(PageSize::SIZE_4K).unwrap(), SparseMemory::new(MEMORY)))
}

fn guarded() -> AnyTable {
    Box::new(Mount::tree(Guarded::new(16).unwrap(), SparseMemory::new(MEMORY)))
}

fn adaptive() -> AnyTable {
    Box::new(Mount::tree(Guarded::adaptive(), SparseMemory::new(MEMORY)))
}

fn clustered() -> AnyTable {
    let table = HashedTable::new(HashedShape { shared: true, ..HashedShape::C128K }).unwrap();
    Box::new(Mount::new(table, SparseMemory::new(MEMORY)))
}

fn hashed() -> AnyTable {
    let table = HashedTable::new(HashedShape { shared: true, ..HashedShape::H8K }).unwrap();
    Box::new(Mount::new(table, SparseMemory::new(MEMORY)))
}

fn mounted<P: PageTable + Send + Sync + 'static>(table: P) -> AnyTable {
    Box::new(Mount::new(table, SparseMemory::new(MEMORY)))
}

fn inverted(shape: HashedShape) -> HashedTable {
    HashedTable::new(shape.with_large_pages()).unwrap()
}

type MakeTables = fn() -> Tables<dyn Mounted>;

/// Page tables, and the properties with which they are tested.
#[derive(Clone, Copy)]
struct Setting {
    name: &'static str,
    /// Makes the tables: a table for each space, or one for all spaces.
    tables: MakeTables,
    /// The size of the pool; `None`: unlimited.
    pool_bytes: Option<u64>,
    /// As [`Plan::page_shift`].
    page_shift: u32,
    large: Option<PageSize>,
}

const fn setting(name: &'static str, tables: MakeTables) -> Setting {
    Setting { name, tables, pool_bytes: None, page_shift: 21, large: None }
}

const STEALING: Option<u64> = Some(24 * 4096);
/// A distance of pages with which the pages of all processors are in few tables.
const NEAR: u32 = 18;

const SETTINGS: [Setting; 11] = [
    setting("x86-64 each", || each(x86_64)),
    Setting { pool_bytes: STEALING, ..setting("x86-64 each, stealing", || each(x86_64)) },
    setting("guarded each", || each(guarded)),
    setting("guarded, nodes that adapt, each", || each(adaptive)),
    setting("clustered, one", || Tables::One(clustered())),
    setting("x86-64, one", || Tables::One(x86_64())),
    setting("hashed, one", || Tables::One(hashed())),
    Setting { large: Some(K16), ..setting("irix each, 16K too", || each(irix)) },
    Setting { page_shift: NEAR, ..setting("subtrees, near", each_with_subtrees) },
    Setting {
        pool_bytes: STEALING,
        page_shift: NEAR,
        ..setting("subtrees of one, stealing", || Tables::One(subtrees(&SharedMemory::new(SHARED))))
    },
    setting("subtrees of sparc, far", sparc_with_subtrees),
];

/// Other formats, which are only tested on threads of this host: the differences between formats
/// hardly matter for schedules.
const FURTHER: [Setting; 9] = [
    setting("x86-32 each", || each(|| mounted(X86_32::<false>::new()))),
    setting("x86-pae each", || each(|| mounted(X86_32::<true>::new()))),
    setting("flattened each", || each(|| mounted(Split::flattened().unwrap()))),
    setting("linear each", || each(|| mounted(Split::linear().unwrap()))),
    setting("mpt each", || each(|| mounted(Mpt::new()))),
    setting("subtrees of mpt", mpt_with_subtrees),
    setting("inverted, one", || Tables::One(mounted(inverted(HashedShape::inverted(1 << 22, 1))))),
    setting("elastic cuckoo, one", || {
        Tables::One(mounted(ElasticCuckoo::new(3, 16 << 10).unwrap()))
    }),
    setting("tsb, one", || {
        let behind = inverted(HashedShape::behind_tsb(1 << 22));
        Tables::One(mounted(Cached::new(CacheShape::TSB_1M, behind).unwrap()))
    }),
];

fn pool(bytes: Option<u64>) -> Pool {
    bytes.map_or_else(Pool::unlimited, Pool::of)
}

fn fine<L: Locks>(
    arrays: Chosen,
    bytes: Option<u64>,
    lists: ListLocks,
) -> Fine<dyn Mounted, L, Chosen> {
    Fine::new(&arrays, pool(bytes), lists)
}

/// The plan from which the plans of tests are made.
pub(crate) const PLAN: Plan = Plan {
    cpus: 3,
    steps: 40,
    seed: 0,
    frames: 400,
    page_shift: 21,
    large: None,
    faults: Faults { early_answer: false, steal_in_load: false },
    is_native: false,
};

/// The number of schedules for each scheme and table.
fn schedules() -> u64 {
    let asked = std::env::var("PAGEWALK_SCHEDULES").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(32)
}

type Explore<P> = fn(MakeTables, Option<u64>, P) -> Result<(), String>;

/// All locking schemes with the locks `$locks`, by name. Each has a function that calls `$run` with
/// the scheme, with page tables and with a value of the type `$of`.
macro_rules! schemes {
    ($locks:ty, $run:path, $of:ty) => {{
        type L = Ranked<$locks>;
        let schemes: [(&str, Explore<$of>); 8] = [
            ("global", |tables, bytes, of| $run(|| Global::<_, L>::new(pool(bytes)), tables, of)),
            ("early", |tables, bytes, of| $run(|| Early::<_, L>::new(pool(bytes)), tables, of)),
            ("monitor", |tables, bytes, of| {
                $run(|| fine::<L>(Chosen::Monitor, bytes, ListLocks::One), tables, of)
            }),
            ("monitor, lock per list", |tables, bytes, of| {
                $run(|| fine::<L>(Chosen::Monitor, bytes, ListLocks::Each), tables, of)
            }),
            ("hashed, 1", |tables, bytes, of| {
                $run(
                    || fine::<L>(Chosen::Hashed(Hashed { mutexes: 1 }), bytes, ListLocks::One),
                    tables,
                    of,
                )
            }),
            ("hashed, 16", |tables, bytes, of| {
                $run(
                    || fine::<L>(Chosen::Hashed(Hashed { mutexes: 16 }), bytes, ListLocks::One),
                    tables,
                    of,
                )
            }),
            ("embedded", |tables, bytes, of| {
                $run(|| fine::<L>(Chosen::Embedded, bytes, ListLocks::Each), tables, of)
            }),
            ("covering", |tables, bytes, of| {
                $run(|| fine::<L>(Chosen::Covering, bytes, ListLocks::One), tables, of)
            }),
        ];
        schemes
    }};
}

fn explored<S>(make: impl Fn() -> S, tables: MakeTables, plan: Plan) -> Result<(), String>
where
    S: Scheme<Table = dyn Mounted> + Sync + Send,
{
    explore(make(), tables(), plan)
}

/// Runs two operations on the same pages, with pages of one size and of two sizes.
#[test]
fn every_scheme_under_two_operations_on_the_same_pages() {
    let with_large: MakeTables = || Tables::Each(Box::new(irix));
    let tables: [(&str, MakeTables); 3] = [
        ("subtrees", each_with_subtrees),
        ("hashed, one", || Tables::One(hashed())),
        ("irix each", with_large),
    ];
    let mut wrong = Vec::new();
    for case in &CASES {
        for (name, make) in tables.iter().skip(if case.is_large { 2 } else { 0 }) {
            for (scheme, explore) in schemes!(Timed, pairs::explore, (&Case, u64)) {
                if let Err(error) = explore(*make, None, (case, schedules() / 4)) {
                    wrong.push(format!("{}, {scheme}, {name}, {error}", case.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_scheme_over_every_table_under_random_schedules() {
    for Setting { name, tables, pool_bytes, page_shift, large } in SETTINGS {
        for (scheme, explore) in schemes!(Timed, explored, Plan) {
            for seed in 0..schedules() {
                let cpus = 2 + seed as usize % 3;
                let plan = Plan { cpus, steps: 25, seed, page_shift, large, ..PLAN };
                let result = explore(tables, pool_bytes, plan);
                assert_eq!(result, Ok(()), "{scheme}, {name}, seed {seed}");
            }
        }
    }
}

#[test]
fn every_scheme_over_every_table_on_threads_of_the_host() {
    let all = SETTINGS.into_iter().chain(FURTHER);
    for Setting { name, tables, pool_bytes, page_shift, large } in all {
        for (scheme, explore) in schemes!(Native, explored, Plan) {
            for cpus in 1..=4 {
                let (steps, seed) = (100 * schedules().div_ceil(32) as u32, cpus as u64);
                let plan = Plan { cpus, steps, seed, page_shift, large, is_native: true, ..PLAN };
                let result = explore(tables, pool_bytes, plan);
                assert_eq!(result, Ok(()), "{scheme}, {name}, {cpus} threads");
            }
        }
    }
}

/// There are at most two threads, because a thread that spins uses the processor that the holder of
/// the lock may need.
#[test]
fn every_scheme_of_locks_of_a_kernel_on_threads_of_the_host() {
    for Setting { name, tables, pool_bytes, page_shift, large } in SETTINGS {
        for (scheme, explore) in schemes!(Spin, explored, Plan) {
            for cpus in 1..=2 {
                let (steps, seed) = (100 * schedules().div_ceil(32) as u32, cpus as u64);
                let plan = Plan { cpus, steps, seed, page_shift, large, is_native: true, ..PLAN };
                let result = explore(tables, pool_bytes, plan);
                assert_eq!(result, Ok(()), "{scheme}, {name}, {cpus} threads");
            }
        }
    }
}
