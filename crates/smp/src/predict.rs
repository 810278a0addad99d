//! Predicts the scaling of threads on this host with virtual time, from measurements of one thread
//! and of threads that take turns.
//!
//! ```text
//!   one thread     |  work  | locks |                     measured, and by watching: which work under which lock
//!   in turn        |  work  | lines | locks |             measured: lines = all - the rest
//!   all at once    |  work  | lines | locks | waits |     virtual time
//! ```
//!
//! Virtual time determines the locks that are held at each moment, and the instructions that run
//! under each lock. The nanoseconds of these instructions are measured on one thread that reads the
//! clock at each lock ([`locks::watched`]); the nanoseconds of a whole operation are measured on
//! one thread that does not read the clock. Locks and their cache lines have [prices](HostPrices).
//! When a thread acquires a lock that another thread held last, the lines that the lock protects
//! are transferred too, because the other thread wrote them. The cost of these lines is measured
//! with threads that take turns, so that no thread waits for a lock. When all threads run at the
//! same time, each lock that another thread held last adds its share of this cost.

use std::{collections::BTreeMap, time::Instant};

use hat::locking::Class;

use locks::{
    costs::{Costs, LockKind, Pace, Paces},
    prices::{HostPrices, timed},
    stats::WorkIn,
    watched::{Spent, Watch},
};

use crate::{
    board::Shootdowns,
    load::{Asked, Load},
    plan::HostPlan,
    run::{HatOutcome, Order, Plan, run_in},
    threads::watch,
};

/// The measurements of one round.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    /// Nanoseconds per operation on one thread.
    pub(crate) alone_ns: f64,
    /// Additional nanoseconds per operation if threads take turns.
    pub(crate) lines_ns: f64,
    /// The prices of locks and cache lines.
    pub(crate) prices: HostPrices,
}

/// The prediction.
pub(crate) struct Prediction {
    /// The throughput of all threads, divided by the throughput of one thread.
    pub(crate) scaling: f64,
    /// Nanoseconds of an instruction.
    pub(crate) cycle_ns: f64,
    /// Nanoseconds per operation for cache lines other than those of locks.
    pub(crate) lines_ns: f64,
    /// The measured prices of locks and cache lines.
    pub(crate) prices: HostPrices,
}

/// Nanoseconds of a cycle of virtual time.
const CYCLE_NS: f64 = 0.1;

/// The counts of virtual time for a plan, which do not depend on prices, and the time that one
/// thread spends at each place in the code.
pub(crate) struct Predictor<'a> {
    plan: &'a HostPlan,
    /// Per operation on one thread, by place: the cycles of work at the prices of [`Costs::HOST`], and the
    /// locks acquired or released.
    work: BTreeMap<Option<Class>, f64>,
    locks: f64,
    /// The observations of one thread of the host during `operations`.
    watch: Watch,
    operations: u64,
    clock_ns: f64,
    /// Per operation, the number of locks that another thread held last, if threads take turns.
    transfers: f64,
}

impl<'a> Predictor<'a> {
    /// `None` for loads that do other work between their operations, because threads on the host do
    /// not do this work.
    pub(crate) fn new(plan: &'a HostPlan, asked: &Asked) -> Result<Option<Predictor<'a>>, String> {
        match asked.load {
            Load::Fork | Load::Exec | Load::Fault | Load::Brk | Load::MtLow | Load::MtHigh => {}
            Load::Tpcb | Load::Dma | Load::Spec | Load::Kenbus | Load::Skeleton => return Ok(None),
            // On a host, threads recreate the resources that they have used up.
            Load::Mt(..) => return Ok(None),
        }
        // A single processor fetches no line from another, so the number of locks that it acquires
        // follows from its cycles for locks.
        let (alone, work) = in_virtual_time(plan, 1, Costs::HOST, Order::Clocks, None)?;
        let (in_turn, _) = in_virtual_time(plan, plan.threads, Costs::FREE, Order::Turns, None)?;
        let transfers: u64 = in_turn.locks.values().map(|share| share.counts.transfers).sum();
        let operations = asked.load.operations();
        let each = |cycles| cycles as f64 / alone.operations as f64;
        Ok(Some(Predictor {
            plan,
            work: work.into_iter().map(|(place, cycles)| (place, each(cycles))).collect(),
            locks: each(alone.time.lock_cycles) / Costs::HOST.lock as f64,
            watch: watch(plan, asked, operations, operations)?,
            operations,
            clock_ns: timed(Instant::now),
            transfers: transfers as f64 / in_turn.operations as f64,
        }))
    }

    /// The prediction for the measurements `seen`.
    pub(crate) fn of(&self, seen: &Seen) -> Result<Prediction, String> {
        let &Seen { alone_ns, lines_ns, prices } = seen;
        let work_ns = (alone_ns - self.locks * prices.lock_ns).max(alone_ns / 10.0);
        let lines_ns = (lines_ns - self.transfers * prices.transfer_ns).max(0.0);
        // If some operations transfer no lock's line from another processor, a part of the lines is
        // not protected by a lock.
        let guarded = self.transfers.min(1.0);
        let lock_lines_ns = guarded * lines_ns;
        let cycles = |ns: f64| (ns / CYCLE_NS).round() as u64;
        let costs = Costs {
            guarded: cycles(lock_lines_ns / self.transfers.max(f64::MIN_POSITIVE)),
            guarded_operation: cycles(lines_ns),
            ..prices.costs(CYCLE_NS)
        };
        let throughput = |cpus, work_ns| {
            let paces = self.paces(work_ns, &prices);
            in_virtual_time(self.plan, cpus, costs, Order::Clocks, Some(&paces))
                .map(|(of, _)| of.throughput)
        };
        let all = throughput(self.plan.threads, work_ns + lines_ns - lock_lines_ns)?;
        let scaling = all / throughput(1, work_ns)?;
        let cycle_ns = work_ns / self.work.values().sum::<f64>();
        Ok(Prediction { scaling, cycle_ns, lines_ns, prices })
    }

    /// The duration of the work between locks, by place in the code, such that an operation takes
    /// `work_ns`.
    fn paces(&self, work_ns: f64, prices: &HostPrices) -> Paces {
        // Watching takes additional time. The time of reading the clock and of locks is therefore
        // subtracted, and the rest is scaled to the time without watching.
        let watched = |spent: &Spent| {
            let looks = spent.looks as f64 * self.clock_ns;
            let locks = spent.locks as f64 * 2.0 * prices.lock_ns;
            (spent.nanoseconds as f64 - looks - locks).max(0.0)
        };
        let sum: f64 = self.watch.spent.values().map(watched).sum();
        let all = work_ns / self.work.values().sum::<f64>();
        let pace = |(&place, spent): (&Option<Class>, &Spent)| {
            let here_ns = work_ns * watched(spent) / sum;
            let priced = self.work.get(&place).copied().unwrap_or(0.0);
            // If a few steps seem to take a long time, this is not the time of the steps
            // themselves.
            let times = (here_ns / priced.max(1.0)).min(all);
            let taken = self.watch.taken.get(&place).copied().unwrap_or(0) as f64;
            let more_ns = (here_ns - times * priced) * self.operations as f64 / taken.max(1.0);
            (place, Pace { times: times / CYCLE_NS, more: (more_ns / CYCLE_NS).round() as u64 })
        };
        Paces(self.watch.spent.iter().map(pace).collect())
    }
}

/// Runs `plan` in virtual time on `cpus` processors.
fn in_virtual_time(
    plan: &HostPlan,
    cpus: usize,
    costs: Costs,
    order: Order,
    paces: Option<&Paces>,
) -> Result<(HatOutcome, WorkIn), String> {
    let plan = Plan {
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
        kind: LockKind::Barging,
        costs,
        seed: plan.seed,
    };
    run_in(order, paces, &plan)
}
