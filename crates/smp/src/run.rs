//! Runs a load on several processors under a locking scheme, in virtual time.

use std::collections::BTreeMap;

use hat::{
    ContextCounts, ContextLimit, Pool, Tables,
    locking::{Covering, Early, Embedded, Fine, Global, Hashed, ListLocks, Locks, Monitor, Scheme},
};
use pagetable::{
    Guarded, Hashed as HashedTable, HashedShape, Mount, Mounted, SparcReference, SparseMemory,
    X86_64,
};
use serde::{Deserialize, Deserializer, Serialize};

use locks::{
    Chosen,
    baton::{begin_operation, spend},
    costs::Paces,
    stats::WorkIn,
};

use crate::{
    Baton, Board, CPUS_MAX, ClassCounts, Costs, Cpu, LockKind, ShootCounts, Shootdowns, TimeUse,
    Timed, load::Asked, memory::SharedMemory, names::read_named, world::World,
};

/// The locking schemes: the schemes of K94's sections 4.4 and 6.2, and a scheme that locks
/// subtrees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SchemeName {
    Global,
    Early,
    Monitor,
    Hashed,
    Embedded,
    Covering,
}

impl SchemeName {
    /// All schemes, with their names.
    const ALL: [(&'static str, SchemeName); 6] = [
        ("global", SchemeName::Global),
        ("early", SchemeName::Early),
        ("monitor", SchemeName::Monitor),
        ("hashed", SchemeName::Hashed),
        ("embedded", SchemeName::Embedded),
        ("covering", SchemeName::Covering),
    ];

    fn of(name: &str) -> Result<SchemeName, String> {
        let known = SchemeName::ALL.into_iter().find(|known| known.0 == name);
        known.map(|known| known.1).ok_or_else(|| {
            format!("`{name}` is not a locking scheme: choose from {}", SCHEMES.join(", "))
        })
    }
}

/// The names of the locking schemes.
pub const SCHEMES: [&str; SchemeName::ALL.len()] = {
    let mut names = [""; SchemeName::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = SchemeName::ALL[at].0;
        at += 1;
    }
    names
};

/// The names of the page tables: a table for each space, or one for all spaces.
pub const TABLES: [&str; 6] =
    ["x86-64", "sparc-reference", "guarded", "hashed", "x86-64-shared", "hashed-shared"];

/// The number of mutexes of the scheme `hashed`, for frames and for MMU descriptors each.
const MUTEXES: usize = 64;

/// The number of frames for page tables if the pool does not limit it. No load needs more.
const FRAMES: u64 = 1 << 20;

/// The error message if no frame for a page table is left.
const NO_TABLE_MEMORY: &str = "no memory is left for a page table";

/// Bytes of physical memory that entries can address.
const MEMORY: u64 = 1 << 44;

/// Bytes of the physical memory that has the frames for page tables, if processors share it.
const SHARED_MEMORY: u64 = 1 << 40;

/// A run in virtual time.
///
/// The plan is read from a document that has all keys. The key of a field is the field's name, or
/// the name in its `serde` attribute. In the document, [`Plan::contexts`] is two numbers: the
/// number of contexts and the threshold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The number of processors.
    pub cpus: usize,
    /// The locking scheme: one of [`SCHEMES`].
    pub scheme: String,
    /// The load: one of [`Load::ALL`](crate::Load::ALL), or the name of the skeleton.
    pub load: String,
    /// The text of the skeleton to play, if the load is not one of [`Load::ALL`](crate::Load::ALL).
    pub skeleton: Option<String>,
    /// The page table: one of [`TABLES`].
    pub table: String,
    /// Whether the load calls the HAT layer alone, without the memory manager above it.
    pub hat_only: bool,
    /// The size of the pool of page-table memory in bytes; `None`: unlimited.
    pub pool_bytes: Option<u64>,
    /// Whether each list of free resources has its own lock.
    pub lock_per_list: bool,
    /// How processors are made to flush their TLBs.
    #[serde(deserialize_with = "shootdowns")]
    pub shootdowns: Shootdowns,
    /// The limit on contexts (address-space identifiers); `None`: unlimited.
    #[serde(deserialize_with = "contexts")]
    pub contexts: Option<ContextLimit>,
    /// Whether caches are indexed by virtual addresses. Pages that are unmapped are then flushed
    /// from these caches.
    pub virtual_caches: bool,
    /// The kind of locks: what a processor does while another processor holds the lock.
    #[serde(rename = "lock_kind", deserialize_with = "lock_kind")]
    pub kind: LockKind,
    /// The costs of operations in cycles. They are not in the document.
    #[serde(skip, default = "costs")]
    pub costs: Costs,
    /// The seed of the loads' random choices.
    pub seed: u64,
}

fn shootdowns<'de, D: Deserializer<'de>>(from: D) -> Result<Shootdowns, D::Error> {
    read_named("kind of shootdown", from, &Shootdowns::ALL)
}

fn lock_kind<'de, D: Deserializer<'de>>(from: D) -> Result<LockKind, D::Error> {
    read_named("kind of lock", from, &LockKind::ALL)
}

fn contexts<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ContextLimit>, D::Error> {
    let limit = Option::<(u32, u32)>::deserialize(from)?;
    Ok(limit.map(|(contexts, threshold)| ContextLimit { contexts, threshold }))
}

const fn costs() -> Costs {
    Costs::SPARCCENTER_2000
}

/// The outcome of a run in virtual time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct HatOutcome {
    /// The number of processors.
    pub cpus: usize,
    /// The name of the locking scheme.
    pub scheme: String,
    /// The name of the load.
    pub load: String,
    /// The name of the page table.
    pub table: String,
    /// Whether the load called only the HAT layer.
    pub hat_only: bool,
    /// The number of operations of all processors.
    pub operations: u64,
    /// Cycles until the last operation had ended.
    pub cycles: u64,
    /// Operations per million cycles.
    pub throughput: f64,
    /// How the cycles of all processors were spent.
    pub time: TimeUse,
    /// The costs of the locks, by the name of the class of locks.
    pub locks: BTreeMap<&'static str, LockShare>,
    /// Acquisitions of all locks, per operation.
    pub acquisitions_per_operation: f64,
    /// Cycles that processors waited for locks, per operation.
    pub wait_cycles_per_operation: f64,
    /// The counts of shootdowns.
    pub shootdowns: ShootCounts,
    /// Counts of how spaces got their contexts; `None` if the number of contexts is not limited.
    pub contexts: Option<ContextUse>,
    /// The number of spaces that lost their page tables to other spaces.
    pub steals: u64,
    /// The largest size of all page tables together at any time, in bytes.
    pub table_bytes_peak: u64,
}

/// The number of times that a processor entered a space, by how the space got its context. Each
/// such time is called an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ContextUse {
    /// Times that a processor entered a space that had a context, without acquiring a lock.
    pub unlisted: u64,
    /// Times that a processor entered a space that had a context and acquired the lock of the list
    /// of contexts, which is ordered by use.
    pub listed: u64,
    /// Times that a processor entered a space that had no context and was given one.
    pub taken: u64,
    /// Times, included in `taken`, that the space was given a context of another space, which lost
    /// it.
    pub stolen: u64,
}

/// The costs of the locks of one class.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LockShare {
    /// The share of acquisitions that found the lock held.
    pub contended_share: f64,
    /// All counts of the class.
    #[serde(flatten)]
    pub counts: ClassCounts,
}

/// Runs `plan`. The error names the part of the plan that is not possible, or describes why the run
/// failed.
pub fn run(plan: &Plan) -> Result<HatOutcome, String> {
    run_in(Order::Clocks, None, plan).map(|(outcome, _)| outcome)
}

/// The order in which processors run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The processor with the lowest clock.
    Clocks,
    /// The processors take turns, with one operation each. This order is for [`Costs::FREE`], with
    /// which a clock advances only at the end of an operation.
    Turns,
}

/// Runs `plan`; `order` determines which processor runs next. Also returns the cycles of work by
/// the lock under which the work is done. `paces`, if given, determine the duration of work.
pub fn run_in(
    order: Order,
    paces: Option<&Paces>,
    plan: &Plan,
) -> Result<(HatOutcome, WorkIn), String> {
    if plan.cpus == 0 || plan.cpus > CPUS_MAX {
        return Err(format!(
            "{} processors: choose 1 to {CPUS_MAX}, as each is a thread of this host",
            plan.cpus
        ));
    }
    let asked = Asked::new(&plan.load, plan.skeleton.as_deref(), plan.hat_only, plan.cpus)?;
    if let Some(ContextLimit { contexts, threshold }) = plan.contexts
        && ((contexts as usize) <= plan.cpus || threshold >= contexts)
    {
        return Err(format!(
            "{contexts} contexts with a threshold of {threshold}: give more contexts than the {} \
             processors, and a threshold below the number of contexts",
            plan.cpus
        ));
    }
    let tables = tables(&plan.table, &plan.scheme)?;
    let pool = plan.pool_bytes.map_or_else(Pool::unlimited, Pool::of);
    let lists = if plan.lock_per_list { ListLocks::Each } else { ListLocks::One };
    with_any_scheme::<Timed, _>(
        &plan.scheme,
        pool,
        lists,
        InVirtualTime { plan, asked, tables, order, paces },
    )?
}

/// An action for a locking scheme of any type.
pub(crate) trait OnScheme {
    /// The result of the action.
    type Result;

    /// Does the action.
    fn on<S: Scheme<Table = dyn Mounted> + Send + Sync>(self, scheme: S) -> Self::Result;
}

/// Runs `f` with the scheme `name` of locks of `L`.
pub(crate) fn with_scheme<L: Locks, F: OnScheme>(
    name: &str,
    pool: Pool,
    lists: ListLocks,
    f: F,
) -> Result<F::Result, String>
where
    Global<dyn Mounted, L>: Send + Sync,
    Early<dyn Mounted, L>: Send + Sync,
    Fine<dyn Mounted, L, Monitor>: Send + Sync,
    Fine<dyn Mounted, L, Hashed>: Send + Sync,
    Fine<dyn Mounted, L, Embedded>: Send + Sync,
    Fine<dyn Mounted, L, Covering>: Send + Sync,
{
    Ok(match SchemeName::of(name)? {
        SchemeName::Global => f.on(Global::<_, L>::new(pool)),
        SchemeName::Early => f.on(Early::<_, L>::new(pool)),
        SchemeName::Monitor => f.on(Fine::<_, L, _>::new(&Monitor, pool, lists)),
        SchemeName::Hashed => f.on(Fine::<_, L, _>::new(&Hashed { mutexes: MUTEXES }, pool, lists)),
        SchemeName::Embedded => f.on(Fine::<_, L, _>::new(&Embedded, pool, lists)),
        SchemeName::Covering => f.on(Fine::<_, L, _>::new(&Covering, pool, lists)),
    })
}

/// Like [`with_scheme`], but compiled once for all schemes with a lock for each descriptor; for
/// runs that are not timed on this host.
pub(crate) fn with_any_scheme<L: Locks, F: OnScheme>(
    name: &str,
    pool: Pool,
    lists: ListLocks,
    f: F,
) -> Result<F::Result, String>
where
    Global<dyn Mounted, L>: Send + Sync,
    Early<dyn Mounted, L>: Send + Sync,
    Fine<dyn Mounted, L, Chosen>: Send + Sync,
{
    let chosen = match SchemeName::of(name)? {
        SchemeName::Global => return Ok(f.on(Global::<_, L>::new(pool))),
        SchemeName::Early => return Ok(f.on(Early::<_, L>::new(pool))),
        SchemeName::Monitor => Chosen::Monitor,
        SchemeName::Hashed => Chosen::Hashed(Hashed { mutexes: MUTEXES }),
        SchemeName::Embedded => Chosen::Embedded,
        SchemeName::Covering => Chosen::Covering,
    };
    Ok(f.on(Fine::<_, L, _>::new(&chosen, pool, lists)))
}

struct InVirtualTime<'a> {
    plan: &'a Plan,
    asked: Asked,
    tables: Tables<dyn Mounted>,
    order: Order,
    paces: Option<&'a Paces>,
}

impl OnScheme for InVirtualTime<'_> {
    type Result = Result<(HatOutcome, WorkIn), String>;

    fn on<S: Scheme<Table = dyn Mounted> + Send + Sync>(self, scheme: S) -> Self::Result {
        let world = World::<S, Timed>::new(scheme, self.tables, self.plan.hat_only)?;
        drive(self.plan, &self.asked, &world, (self.order, self.paces))
    }
}

/// The page tables `name`, for the locking scheme `scheme`.
pub(crate) fn tables(name: &str, scheme: &str) -> Result<Tables<dyn Mounted>, String> {
    // A run on one thread may be without locks. The scheme `single` of such a run is not among the
    // names here.
    if SchemeName::of(scheme) == Ok(SchemeName::Covering) {
        return tables_with_subtrees(name);
    }
    let x86_64 = || -> Box<dyn Mounted> {
        Box::new(Mount::tree(X86_64::<4>::new(), SparseMemory::new(MEMORY)))
    };
    Ok(match name {
        "x86-64" => Tables::Each(Box::new(x86_64)),
        "x86-64-shared" => Tables::One(x86_64()),
        "sparc-reference" => Tables::Each(Box::new(|| {
            let table = SparcReference::<true>::new();
            Box::new(Mount::tree(table, SparseMemory::new(MEMORY)))
        })),
        "guarded" => Tables::Each(Box::new(|| {
            let table = Guarded::new(16).expect("16 entries are a size of nodes");
            Box::new(Mount::tree(table, SparseMemory::new(MEMORY)))
        })),
        "hashed" => Tables::Each(Box::new(|| hashed(HashedShape::H128K))),
        "hashed-shared" => Tables::One(hashed(HashedShape { shared: true, ..HashedShape::H128K })),
        other => return Err(no_table(other)),
    })
}

fn hashed(shape: HashedShape) -> Box<dyn Mounted> {
    let table = HashedTable::new(shape).expect("a shape of E99's");
    Box::new(Mount::new(table, SparseMemory::new(MEMORY)))
}

/// The page tables `name`, of a format with subtrees, in a memory that processors share.
fn tables_with_subtrees(name: &str) -> Result<Tables<dyn Mounted>, String> {
    let memory = SharedMemory::new(SHARED_MEMORY);
    let x86_64 = move || -> Box<dyn Mounted> {
        Box::new(Mount::shared(X86_64::<4>::new().forgetful(), memory.clone()))
    };
    Ok(match name {
        "x86-64" => Tables::Each(Box::new(x86_64)),
        "x86-64-shared" => Tables::One(x86_64()),
        "sparc-reference" => {
            let memory = SharedMemory::new(SHARED_MEMORY);
            Tables::Each(Box::new(move || {
                let table = SparcReference::<true>::new().forgetful();
                Box::new(Mount::shared(table, memory.clone()))
            }))
        }
        "guarded" | "hashed" | "hashed-shared" => {
            return Err(format!(
                "`covering` locks subtrees, but the entries of a subtree of `{name}` do not stay \
                 at one place: choose x86-64, x86-64-shared or sparc-reference"
            ));
        }
        other => return Err(no_table(other)),
    })
}

fn no_table(name: &str) -> String {
    format!("`{name}` is not a page table: choose from {}", TABLES.join(", "))
}

fn drive<S>(
    plan: &Plan,
    asked: &Asked,
    world: &World<S, Timed>,
    (order, paces): (Order, Option<&Paces>),
) -> Result<(HatOutcome, WorkIn), String>
where
    S: Scheme<Table = dyn Mounted> + Send + Sync,
{
    let board = Board::new(plan.cpus, plan.shootdowns, FRAMES);
    let board = board.with_virtual_caches(plan.virtual_caches);
    if let Some(limit) = plan.contexts {
        world.hat().limit_contexts(limit);
    }
    let mut first = Cpu::new(&board, 0);
    let mut prepare = || {
        let shared = world.shared(asked, &mut first)?;
        let own = (0..plan.cpus).map(|_| world.spaces(asked, shared, &mut first));
        own.collect::<Result<Vec<_>, _>>()
    };
    let too_small = |error| match plan.pool_bytes {
        Some(bytes) => format!(
            "a pool of {bytes} bytes is too small for {} spaces: {error}; give more with --pool",
            plan.cpus + 1
        ),
        None => error,
    };
    let spaces = prepare().map_err(too_small)?;
    let baton = Baton::paced(plan.cpus, plan.costs, plan.kind, None, paces.cloned());
    let operations = asked.load.operations();
    let finished = baton.run(|number| {
        let of = (number as u64, spaces[number]);
        let mut cpu = Cpu::new(&board, number);
        let work = world.processor(&mut cpu, of, (plan.seed, plan.costs), asked);
        let done = work.and_then(|mut work| {
            (0..operations).try_for_each(|_| {
                begin_operation();
                work.operation(asked.load)?;
                if order == Order::Turns {
                    spend(1);
                }
                Ok(())
            })
        });
        if let Err(error) = done {
            panic!("{error}");
        }
    });
    let finished = finished.map_err(|error| match error.contains(NO_TABLE_MEMORY) {
        true => too_small(error),
        false => error,
    })?;
    world.check(&mut first)?;
    let cycles = finished.clocks.iter().copied().max().unwrap_or(0);
    let operations = operations * plan.cpus as u64;
    let mut by_name: BTreeMap<&'static str, ClassCounts> = BTreeMap::new();
    let (mut acquisitions, mut waits) = (0, 0);
    for (class, counts) in finished.locks {
        acquisitions += counts.acquisitions;
        waits += counts.waits.cycles;
        *by_name.entry(class.name()).or_default() += &counts;
    }
    let share = |(name, counts): (_, ClassCounts)| {
        let contended_share = counts.contended as f64 / counts.acquisitions.max(1) as f64;
        (name, LockShare { contended_share, counts })
    };
    let locks = by_name.into_iter().map(share).collect();
    let pool = world.hat().pool();
    let contexts = plan.contexts.map(|_| {
        let ContextCounts { unlisted, listed, taken, stolen } = world.hat().context_counts();
        ContextUse { unlisted, listed, taken, stolen }
    });
    let outcome = HatOutcome {
        cpus: plan.cpus,
        scheme: plan.scheme.clone(),
        load: plan.load.clone(),
        table: plan.table.clone(),
        hat_only: plan.hat_only,
        operations,
        cycles,
        throughput: operations as f64 * 1e6 / cycles.max(1) as f64,
        time: finished.time,
        locks,
        acquisitions_per_operation: acquisitions as f64 / operations as f64,
        wait_cycles_per_operation: waits as f64 / operations as f64,
        shootdowns: board.counts(),
        contexts,
        steals: pool.steals,
        table_bytes_peak: pool.peak_bytes,
    };
    Ok((outcome, finished.work))
}
