//! A load on the processors of this host, beside a control that says whether they can scale at all.
//!
//! ```text
//!   round     shared:  n threads on one HAT layer        control:  n threads, each on its own
//! ```
//!
//! The control does the same work without a lock or a line in common. Where even that does not come
//! to 1.7 times on two threads, the host's cores are busy elsewhere or share too much, and no number
//! of the shared layer says anything about its locks: the verdict is none. A process cannot interrupt
//! another processor, so that shootdowns cost nothing here.

use std::{
    collections::BTreeMap,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use addr::{Frames, OutOfFrames, PageSize, PhysAddr};
use hat::{
    Hat, HatSpace, Platform, Pool,
    locking::{Global, ListLocks, Locks, Scheme, Single},
};
use pagetable::{Flush, Mounted};
use serde::Serialize;
use vm::Io;

use crate::{
    board::Shootdowns,
    costs::{Costs, LockKind},
    counted::{Counted, taken},
    load::{Asked, Load, Processor},
    native::Native,
    prices::HostPrices,
    run::{OnScheme, Plan, run, tables, with_scheme},
    world::{Spaces, World},
};

/// Threads that a run can have.
pub(crate) const THREADS_MAX: usize = 64;

/// The control on two threads must reach this many times what it does on one.
const CONTROL_MIN: f64 = 1.7;

/// And no more than this many times as often as there are threads: what does, was held up on one.
const CONTROL_MAX: f64 = 1.1;

/// How long each measurement lasts.
const MEASURED: Duration = Duration::from_millis(40);

/// Operations between two looks at the clock.
const BATCH: u64 = 32;

/// What runs.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Threads.
    pub threads: usize,
    /// One of [`crate::SCHEMES`]; of one thread also `single`, without locks.
    pub scheme: String,
    /// One of [`crate::Load::ALL`], or what the skeleton is called.
    pub load: String,
    /// The skeleton that is played, if it is none of those.
    pub skeleton: Option<String>,
    /// One of [`crate::TABLES`].
    pub table: String,
    /// Whether the load drives the HAT layer alone, without the memory manager above it.
    pub hat_only: bool,
    /// Rounds, of which the medians count.
    pub rounds: usize,
    /// Of the loads' choices.
    pub seed: u64,
}

/// A load on threads of this host, beside its control. Times differ from run to run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct HostOutcome {
    /// Threads.
    pub threads: usize,
    /// Scheme of locks.
    pub scheme: String,
    /// Load.
    pub load: String,
    /// Page table.
    pub table: String,
    /// Whether the HAT layer was driven alone.
    pub hat_only: bool,
    /// Median nanoseconds of an operation of one thread of the shared layer.
    pub nanoseconds: f64,
    /// The same of the control.
    pub control_nanoseconds: f64,
    /// Median over the rounds of what the control does on all threads over what it does on one.
    pub control_scaling: f64,
    /// How often one thread takes locks of each class in as many operations as a processor of virtual time
    /// does: equal to what it takes there.
    pub acquisitions: BTreeMap<&'static str, u64>,
    /// Rounds whose control scales: those that say something.
    pub judged_rounds: usize,
    /// What the shared layer does on all threads over what the control does on one, as the median of these
    /// rounds; `None` where the control scales in none.
    pub scaling: Option<f64>,
    /// What virtual time says of that scaling, at this host's prices. `None` where the control scales in no
    /// round, where no price of a line could be measured, and for loads that do other work between their
    /// operations, which threads of the host leave out.
    pub predicted: Option<f64>,
    /// Nanoseconds of a cycle of virtual time in that prediction: what is left of an operation on one
    /// thread, in the rounds whose control scales, without its locks, over the counted instructions. `None`
    /// as above.
    pub cycle_ns: Option<f64>,
    /// What locks and lines take on this host, where it was measured for a prediction.
    pub prices: Option<HostPrices>,
}

/// Runs `plan`. An error says what of it cannot be.
pub fn run_on_host(plan: &HostPlan) -> Result<HostOutcome, String> {
    if plan.threads == 0 || plan.threads > THREADS_MAX {
        return Err(format!("{} threads: choose 1 to {THREADS_MAX}", plan.threads));
    }
    let asked = &Asked::new(&plan.load, plan.skeleton.as_deref(), plan.hat_only)?;
    tables(&plan.table, &plan.scheme)?;
    if plan.scheme == "single" {
        if plan.threads > 1 {
            return Err("`single` has no locks: give it one thread".to_owned());
        }
        return single(plan, asked);
    }
    let mut rounds = Vec::new();
    for _ in 0..plan.rounds.max(1) {
        let measure = |layers, threads| {
            let work = OnHost { plan, asked, layers, threads };
            with_scheme::<Native, _>(&plan.scheme, Pool::unlimited(), ListLocks::One, work)?
        };
        // Side by side, as the host changes from moment to moment.
        rounds.push(Round {
            alone: measure(1, 1)?,
            shared: measure(1, plan.threads)?,
            control: measure(plan.threads, plan.threads)?,
        });
    }
    let threads = plan.threads as f64;
    let judged: Vec<&Round> = rounds.iter().filter(|round| round.scales(threads)).collect();
    let scaling = (!judged.is_empty())
        .then(|| median(judged.iter().map(|round| threads * round.alone / round.shared)));
    let prediction = match scaling {
        Some(_) if plan.threads > 1 => {
            prediction(plan, asked.load, median(judged.iter().map(|round| round.alone)))?
        }
        _ => None,
    };
    Ok(HostOutcome {
        threads: plan.threads,
        scheme: plan.scheme.clone(),
        load: plan.load.clone(),
        table: plan.table.clone(),
        hat_only: plan.hat_only,
        nanoseconds: median(rounds.iter().map(|round| round.shared)),
        control_nanoseconds: median(rounds.iter().map(|round| round.control)),
        control_scaling: median(rounds.iter().map(|round| round.control_scaling(threads))),
        acquisitions: with_scheme::<Counted<Native>, _>(
            &plan.scheme,
            Pool::unlimited(),
            ListLocks::One,
            Counting { plan, asked },
        )??,
        judged_rounds: judged.len(),
        scaling,
        predicted: prediction.map(|of| of.scaling).or((plan.threads == 1).then_some(1.0)),
        cycle_ns: prediction.map(|of| of.cycle_ns),
        prices: prediction.map(|of| of.prices),
    })
}

/// Nanoseconds of an operation, measured one after the other.
struct Round {
    /// Of one thread.
    alone: f64,
    /// Of all threads on one layer.
    shared: f64,
    /// Of all threads, each on a layer of its own.
    control: f64,
}

impl Round {
    fn control_scaling(&self, threads: f64) -> f64 {
        threads * self.alone / self.control
    }

    /// Whether the host lets as many threads run at once, so that the round says something of the locks.
    fn scales(&self, threads: f64) -> bool {
        let wanted = CONTROL_MIN / 2.0 * threads..=CONTROL_MAX * threads;
        threads == 1.0 || wanted.contains(&self.control_scaling(threads))
    }
}

/// The layer without locks.
fn single(plan: &HostPlan, asked: &Asked) -> Result<HostOutcome, String> {
    let mut times = Vec::new();
    for _ in 0..plan.rounds.max(1) {
        let scheme = Global::<_, Single>::new(Pool::unlimited());
        let world =
            World::<_, Single>::new(scheme, tables(&plan.table, &plan.scheme)?, plan.hat_only)?;
        let spaces = spaces(&world, asked, 1)?;
        times.push(one_thread(plan, asked, &world, 0, &Barrier::new(1), spaces[0])?);
    }
    let nanoseconds = median(times.into_iter());
    Ok(HostOutcome {
        threads: 1,
        scheme: plan.scheme.clone(),
        load: plan.load.clone(),
        table: plan.table.clone(),
        hat_only: plan.hat_only,
        nanoseconds,
        control_nanoseconds: nanoseconds,
        control_scaling: 1.0,
        acquisitions: BTreeMap::new(),
        judged_rounds: plan.rounds.max(1),
        scaling: Some(1.0),
        predicted: Some(1.0),
        cycle_ns: None,
        prices: None,
    })
}

#[derive(Clone, Copy)]
struct Prediction {
    scaling: f64,
    cycle_ns: f64,
    prices: HostPrices,
}

/// What the threads of `plan` do in virtual time over what one does, which takes `alone_ns` for an operation.
fn prediction(plan: &HostPlan, load: Load, alone_ns: f64) -> Result<Option<Prediction>, String> {
    if matches!(load, Load::Tpcb | Load::Dma | Load::Spec | Load::Kenbus | Load::Skeleton) {
        return Ok(None);
    }
    let in_virtual_time = |cpus, costs| {
        run(&Plan {
            cpus,
            scheme: plan.scheme.clone(),
            load: plan.load.clone(),
            skeleton: None,
            table: plan.table.clone(),
            hat_only: plan.hat_only,
            pool_bytes: None,
            lock_per_list: false,
            shootdowns: Shootdowns::Broadcast,
            contexts: None,
            virtual_caches: false,
            kind: LockKind::Adaptive,
            costs,
            seed: plan.seed,
        })
    };
    let Some(prices) = HostPrices::measured() else { return Ok(None) };
    // One processor fetches no line from another, so that its locks' cycles tell how many it takes.
    let counted = in_virtual_time(1, Costs::HOST)?;
    let per_operation = |cycles: u64| cycles as f64 / counted.operations as f64;
    let locks = per_operation(counted.time.lock_cycles) / Costs::HOST.lock as f64;
    let work_ns = (alone_ns - locks * prices.lock_ns).max(alone_ns / 10.0);
    let cycle_ns = work_ns / per_operation(counted.time.work_cycles).max(1.0);
    let costs = prices.costs(cycle_ns);
    let throughput = |cpus| in_virtual_time(cpus, costs).map(|of| of.throughput);
    let scaling = throughput(plan.threads)? / throughput(1)?;
    Ok(Some(Prediction { scaling, cycle_ns, prices }))
}

/// Threads on so many layers of one scheme: on one, or each on its own.
struct OnHost<'a> {
    plan: &'a HostPlan,
    asked: &'a Asked,
    layers: usize,
    threads: usize,
}

impl OnScheme for OnHost<'_> {
    type Result = Result<f64, String>;

    fn on<S: Scheme<Table = dyn Mounted> + Send + Sync>(self, scheme: S) -> Result<f64, String> {
        let OnHost { plan, asked, layers, threads } = self;
        let start = Barrier::new(threads);
        let first =
            World::<S, Native>::new(scheme, tables(&plan.table, &plan.scheme)?, plan.hat_only)?;
        if layers == 1 {
            let all = spaces(&first, asked, threads)?;
            return mean(threads, |number| {
                one_thread(plan, asked, &first, number, &start, all[number])
            });
        }
        let own = OnHost { layers: 1, threads: 1, ..self };
        mean(threads, |number| {
            if number == 0 {
                let spaces = spaces(&first, asked, 1)?;
                return one_thread(plan, asked, &first, 0, &start, spaces[0]);
            }
            let work = Other { of: &own, number, start: &start };
            with_scheme::<Native, _>(&plan.scheme, Pool::unlimited(), ListLocks::One, work)?
        })
    }
}

/// The operations of one thread, with its locks counted.
struct Counting<'a> {
    plan: &'a HostPlan,
    asked: &'a Asked,
}

impl OnScheme for Counting<'_> {
    type Result = Result<BTreeMap<&'static str, u64>, String>;

    fn on<S: Scheme<Table = dyn Mounted> + Send + Sync>(self, scheme: S) -> Self::Result {
        let Counting { plan, asked } = self;
        let tables = tables(&plan.table, &plan.scheme)?;
        let world = World::<S, Counted<Native>>::new(scheme, tables, plan.hat_only)?;
        let of = (0, spaces(&world, asked, 1)?[0]);
        let mut quiet = Quiet::new(0);
        taken();
        let mut runner = world.processor(&mut quiet, of, (plan.seed, Costs::FREE), asked)?;
        (0..asked.load.operations()).try_for_each(|_| runner.operation(asked.load))?;
        drop(runner);
        let mut by_name = BTreeMap::new();
        for (class, count) in taken() {
            *by_name.entry(class.name()).or_insert(0) += count;
        }
        Ok(by_name)
    }
}

/// A thread of the control on its own layer.
struct Other<'a> {
    of: &'a OnHost<'a>,
    number: usize,
    start: &'a Barrier,
}

impl OnScheme for Other<'_> {
    type Result = Result<f64, String>;

    fn on<S: Scheme<Table = dyn Mounted> + Send + Sync>(self, scheme: S) -> Result<f64, String> {
        let OnHost { plan, asked, .. } = *self.of;
        let world =
            World::<S, Native>::new(scheme, tables(&plan.table, &plan.scheme)?, plan.hat_only)?;
        let spaces = spaces(&world, asked, 1)?;
        one_thread(plan, asked, &world, self.number, self.start, spaces[0])
    }
}

/// Runs threads and gives the mean of what they measure.
fn mean(threads: usize, f: impl Fn(usize) -> Result<f64, String> + Sync) -> Result<f64, String> {
    let measured: Vec<Result<f64, String>> = thread::scope(|scope| {
        let f = &f;
        let all: Vec<_> = (0..threads).map(|number| scope.spawn(move || f(number))).collect();
        let joined = all.into_iter().map(|thread| thread.join());
        joined.map(|done| done.unwrap_or_else(|_| Err("a thread failed".to_owned()))).collect()
    });
    let sum = measured.into_iter().sum::<Result<f64, String>>()?;
    Ok(sum / threads as f64)
}

/// The spaces of each thread.
fn spaces<S: Scheme<Table = dyn Mounted>, L: Locks>(
    world: &World<S, L>,
    asked: &Asked,
    threads: usize,
) -> Result<Vec<Spaces>, String> {
    let mut quiet = Quiet::new(THREADS_MAX);
    let shared = world.shared(asked, &mut quiet)?;
    (0..threads).map(|_| world.spaces(asked, shared, &mut quiet)).collect()
}

/// Nanoseconds per operation of this thread.
fn one_thread<S: Scheme<Table = dyn Mounted>, L: Locks>(
    plan: &HostPlan,
    asked: &Asked,
    world: &World<S, L>,
    number: usize,
    start: &Barrier,
    spaces: Spaces,
) -> Result<f64, String> {
    let mut quiet = Quiet::new(number);
    let of = (number as u64, spaces);
    let runner = world.processor(&mut quiet, of, (plan.seed, Costs::FREE), asked);
    let warmed = runner.and_then(|mut runner| {
        (0..BATCH).try_for_each(|_| runner.operation(asked.load)).map(|()| runner)
    });
    start.wait();
    let mut runner = warmed?;
    let (began, mut operations) = (Instant::now(), 0);
    while began.elapsed() < MEASURED {
        for _ in 0..BATCH {
            runner.operation(asked.load)?;
        }
        operations += BATCH;
    }
    Ok(began.elapsed().as_nanos() as f64 / operations as f64)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A processor whose shootdowns cost nothing, with memory for tables of its own.
struct Quiet {
    next: u64,
    free: Vec<(PhysAddr, PageSize)>,
}

impl Quiet {
    fn new(number: usize) -> Quiet {
        Quiet { next: (number as u64 + 1) << 33, free: Vec::new() }
    }
}

impl Platform for Quiet {
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}

    fn frames(&mut self) -> &mut dyn Frames {
        self
    }
}

impl vm::Platform for Quiet {
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}

    fn zero(&mut self, _: PhysAddr, _: u64) {}

    fn copy(&mut self, _: PhysAddr, _: PhysAddr, _: u64) {}

    fn transfer(&mut self, _: Io) {}
}

impl Processor for Quiet {
    fn enter<S: Scheme<Table = dyn Mounted>>(
        &mut self,
        _: &Hat<dyn Mounted, S>,
        _: HatSpace,
    ) -> Result<(), String> {
        Ok(())
    }
}

impl Frames for Quiet {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        if let Some(place) = self.free.iter().rposition(|&(_, of)| of == size) {
            return Ok(self.free.swap_remove(place).0);
        }
        self.next = (self.next + 2 * size.bytes()) & !size.mask();
        Ok(PhysAddr::new(self.next))
    }

    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        self.free.push((frame, size));
    }
}
