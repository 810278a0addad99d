//! What virtual time says of threads of this host: how often what one does, all of them do.
//!
//! ```text
//!   one thread     |  work  | locks |                     measured, and by watching: which work under which lock
//!   in turn        |  work  | lines | locks |             measured: lines = all - the rest
//!   all at once    |  work  | lines | locks | waits |     virtual time
//! ```
//!
//! Virtual time knows whose locks are whose when, and what is done under each, in instructions. How long that takes
//! here, one thread shows who looks at the clock at each lock ([`locks::watched`]); how long an operation
//! takes at all, one who does not. A lock and its line have [prices](HostPrices). A lock brings more than its own
//! line: what it guards was written by another thread too. How much that is shows where threads take turns, so
//! that nobody waits; all at once, each lock that comes from another thread brings its share.

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

/// What was seen in one round.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    /// Nanoseconds of an operation on one thread.
    pub(crate) alone_ns: f64,
    /// What it takes longer where threads take turns.
    pub(crate) lines_ns: f64,
    /// What locks and lines take.
    pub(crate) prices: HostPrices,
}

/// What follows.
pub(crate) struct Prediction {
    /// What all threads do over what one does.
    pub(crate) scaling: f64,
    /// Nanoseconds of an instruction.
    pub(crate) cycle_ns: f64,
    /// Nanoseconds of an operation for other lines than those of locks.
    pub(crate) lines_ns: f64,
    /// As they were seen.
    pub(crate) prices: HostPrices,
}

/// Nanoseconds of a cycle of virtual time.
const CYCLE_NS: f64 = 0.1;

/// What virtual time counts of a plan, whatever the prices, and where one thread spends its time.
pub(crate) struct Predictor<'a> {
    plan: &'a HostPlan,
    /// Of an operation on one thread: cycles of work at the prices of [`Costs::HOST`] by place, and locks taken or
    /// given back.
    work: BTreeMap<Option<Class>, f64>,
    locks: f64,
    /// What one thread of the host was seen to do in `operations`.
    watch: Watch,
    operations: u64,
    clock_ns: f64,
    /// Locks of an operation that another thread had last, where threads take turns.
    transfers: f64,
}

impl<'a> Predictor<'a> {
    /// `None` for loads that do other work between their operations, which threads of the host leave out.
    pub(crate) fn new(plan: &'a HostPlan, asked: &Asked) -> Result<Option<Predictor<'a>>, String> {
        match asked.load {
            Load::Fork | Load::Exec | Load::Fault | Load::Brk | Load::MtLow | Load::MtHigh => {}
            Load::Tpcb | Load::Dma | Load::Spec | Load::Kenbus | Load::Skeleton => return Ok(None),
            // Threads of a host make anew what they have used up.
            Load::Mt(..) => return Ok(None),
        }
        // One processor fetches no line from another, so that its locks' cycles tell how many it takes.
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

    /// The prediction from what was `seen`.
    pub(crate) fn of(&self, seen: &Seen) -> Result<Prediction, String> {
        let &Seen { alone_ns, lines_ns, prices } = seen;
        let work_ns = (alone_ns - self.locks * prices.lock_ns).max(alone_ns / 10.0);
        let lines_ns = (lines_ns - self.transfers * prices.transfer_ns).max(0.0);
        // Where not every operation finds a lock's line elsewhere, there are lines that no lock guards.
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

    /// How long work takes in each place, so that an operation's takes `work_ns`.
    fn paces(&self, work_ns: f64, prices: &HostPrices) -> Paces {
        // The watching takes time, and what it leaves is more than an operation takes otherwise.
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
            // Where much time is spent on few steps, it is not these that take it.
            let times = (here_ns / priced.max(1.0)).min(all);
            let taken = self.watch.taken.get(&place).copied().unwrap_or(0) as f64;
            let more_ns = (here_ns - times * priced) * self.operations as f64 / taken.max(1.0);
            (place, Pace { times: times / CYCLE_NS, more: (more_ns / CYCLE_NS).round() as u64 })
        };
        Paces(self.watch.spent.iter().map(pace).collect())
    }
}

/// What `cpus` virtual processors make of `plan`.
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
