//! A load on a number of processors under a scheme of locks, in virtual time.

use std::collections::BTreeMap;

use hat::{
    ContextCounts, ContextLimit, Pool, Tables,
    locking::{Covering, Early, Embedded, Fine, Global, Hashed, ListLocks, Locks, Monitor, Scheme},
};
use pagetable::{
    Guarded, Hashed as HashedTable, HashedShape, Mount, Mounted, SparcReference, SparseMemory,
    X86_64,
};
use serde::Serialize;

use locks::{
    Chosen,
    baton::{begin_operation, spend},
    costs::Paces,
    stats::WorkIn,
};

use crate::{
    Baton, Board, CPUS_MAX, ClassCounts, Costs, Cpu, LockKind, ShootCounts, Shootdowns, TimeUse,
    Timed, load::Asked, memory::SharedMemory, world::World,
};

/// The schemes: those of K94's sections 4.4 and 6.2, and one whose locks are of subtrees.
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
    /// Each with its name.
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

/// Names of the schemes.
pub const SCHEMES: [&str; SchemeName::ALL.len()] = {
    let mut names = [""; SchemeName::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = SchemeName::ALL[at].0;
        at += 1;
    }
    names
};

/// Names of the page tables: one for each space, or one for all.
pub const TABLES: [&str; 6] =
    ["x86-64", "sparc-reference", "guarded", "hashed", "x86-64-shared", "hashed-shared"];

/// Mutexes of the scheme `hashed`, for frames and for MMU descriptors each.
const MUTEXES: usize = 64;

/// Frames for page tables where the pool has no share: more than any load needs.
const FRAMES: u64 = 1 << 20;

/// What errors say that come of it.
const NO_TABLE_MEMORY: &str = "no memory is left for a page table";

/// Physical memory that entries can name.
const MEMORY: u64 = 1 << 44;

/// Physical memory where frames for page tables lie, if processors share it.
const SHARED_MEMORY: u64 = 1 << 40;

/// What runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Processors.
    pub cpus: usize,
    /// One of [`SCHEMES`].
    pub scheme: String,
    /// One of [`Load::ALL`](crate::Load::ALL), or what the skeleton is called.
    pub load: String,
    /// The skeleton that is played, if it is none of those.
    pub skeleton: Option<String>,
    /// One of [`TABLES`].
    pub table: String,
    /// Whether the load drives the HAT layer alone, without the memory manager above it.
    pub hat_only: bool,
    /// Bytes of the pool of table memory; without, as much as is wanted.
    pub pool_bytes: Option<u64>,
    /// A lock for each list of free resources.
    pub lock_per_list: bool,
    /// How processors are told to forget.
    pub shootdowns: Shootdowns,
    /// Contexts, where they are limited.
    pub contexts: Option<ContextLimit>,
    /// Whether caches are indexed by virtual addresses, so that what is unmapped leaves them.
    pub virtual_caches: bool,
    /// What a processor does that finds a lock held.
    pub kind: LockKind,
    /// Prices.
    pub costs: Costs,
    /// Of the loads' choices.
    pub seed: u64,
}

/// A load on a number of processors under a scheme of locks.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct HatOutcome {
    /// Processors.
    pub cpus: usize,
    /// Scheme of locks.
    pub scheme: String,
    /// Load.
    pub load: String,
    /// Page table.
    pub table: String,
    /// Whether the HAT layer was driven alone.
    pub hat_only: bool,
    /// Operations of all processors.
    pub operations: u64,
    /// Cycles until the last had ended.
    pub cycles: u64,
    /// Operations per million cycles.
    pub throughput: f64,
    /// Where the cycles of all processors have gone.
    pub time: TimeUse,
    /// What the locks have cost, by the name of their class.
    pub locks: BTreeMap<&'static str, LockShare>,
    /// Acquisitions of all locks per operation.
    pub acquisitions_per_operation: f64,
    /// Cycles that processors waited for locks, per operation.
    pub wait_cycles_per_operation: f64,
    /// What shootdowns have come to.
    pub shootdowns: ShootCounts,
    /// What contexts have cost, where they are limited.
    pub contexts: Option<ContextUse>,
    /// Spaces that lost their tables to others.
    pub steals: u64,
    /// Bytes of page tables when they were most.
    pub table_bytes_peak: u64,
}

/// Entries into spaces, by what became of contexts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ContextUse {
    /// Into a space that had one, without a lock.
    pub unlisted: u64,
    /// Entries into a space that had a context, with the lock of the list that keeps the order of use.
    pub listed: u64,
    /// Contexts given to spaces that had none.
    pub taken: u64,
    /// Of these, those that another space has lost.
    pub stolen: u64,
}

/// What the locks of one class have cost.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LockShare {
    /// Share of the acquisitions that found the lock held.
    pub contended_share: f64,
    /// All of it.
    #[serde(flatten)]
    pub counts: ClassCounts,
}

/// Runs `plan`. An error says what of it cannot be, or what went wrong.
pub fn run(plan: &Plan) -> Result<HatOutcome, String> {
    run_in(Order::Clocks, None, plan).map(|(outcome, _)| outcome)
}

/// Who goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Whose clock is least.
    Clocks,
    /// Each an operation, one after the other. For [`Costs::FREE`]: only the end of an operation moves a clock.
    Turns,
}

/// Runs `plan` in such an order, and says where its work is done. Work takes as long as `paces` say, if they do.
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
             processors, and a threshold below them",
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

/// What is done with a scheme, whichever it is.
pub(crate) trait OnScheme {
    /// What comes of it.
    type Result;

    /// Does it.
    fn on<S: Scheme<Table = dyn Mounted> + Send + Sync>(self, scheme: S) -> Self::Result;
}

/// The scheme `name` of locks of `L`.
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

/// What [`with_scheme`] gives, compiled once for all schemes that have a lock for each descriptor: where nothing is
/// timed on this host.
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

/// The tables `name`, for the scheme `scheme`.
pub(crate) fn tables(name: &str, scheme: &str) -> Result<Tables<dyn Mounted>, String> {
    // One of one thread may have no locks, and then it has no name here.
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

/// The tables `name`, of a format with subtrees, in a memory that processors share.
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
                "`covering` locks subtrees, and `{name}` has none whose entries stay where they \
                 are: choose x86-64, x86-64-shared or sparc-reference"
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
