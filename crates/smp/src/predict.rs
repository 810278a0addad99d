//! What virtual time says of threads of this host: how often what one does, all of them do.
//!
//! ```text
//!   one thread     |  work  | locks |                                     measured: work = all - locks
//!   in turn        |  work  | other lines | locks, each with its line |   measured: other lines = all - the rest
//!   all at once    |  work + other lines  | locks, lines, waits |         virtual time
//! ```
//!
//! Virtual time counts work in instructions, and knows whose locks are whose when. How long an instruction takes
//! here follows from what an operation takes on one thread, and a lock and its line have [prices](HostPrices). A
//! lock brings more than its own line: what it guards was written by another thread too. How much that is shows
//! where threads take turns, so that nobody waits; all at once, work takes as much longer.

use crate::{
    board::Shootdowns,
    costs::{Costs, LockKind},
    host::HostPlan,
    load::Load,
    prices::HostPrices,
    run::{HatOutcome, Order, Plan, run_in},
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

/// What virtual time counts of a plan, whatever the prices.
pub(crate) struct Predictor<'a> {
    plan: &'a HostPlan,
    /// Of an operation on one thread: instructions, and locks taken or given back.
    work: f64,
    locks: f64,
    /// Locks of an operation that another thread had last, where threads take turns.
    transfers: f64,
}

impl<'a> Predictor<'a> {
    /// `None` for loads that do other work between their operations, which threads of the host leave out.
    pub(crate) fn new(plan: &'a HostPlan, load: Load) -> Result<Option<Predictor<'a>>, String> {
        match load {
            Load::Fork | Load::Exec | Load::Fault | Load::Brk | Load::MtLow | Load::MtHigh => {}
            Load::Tpcb | Load::Dma | Load::Spec | Load::Kenbus | Load::Skeleton => return Ok(None),
        }
        // One processor fetches no line from another, so that its locks' cycles tell how many it takes.
        let alone = in_virtual_time(plan, 1, Costs::HOST, Order::Clocks)?;
        let in_turn = in_virtual_time(plan, plan.threads, Costs::FREE, Order::Turns)?;
        let transfers: u64 = in_turn.locks.values().map(|share| share.counts.transfers).sum();
        let operations = alone.operations as f64;
        Ok(Some(Predictor {
            plan,
            work: (alone.time.work_cycles as f64 / operations).max(1.0),
            locks: alone.time.lock_cycles as f64 / operations / Costs::HOST.lock as f64,
            transfers: transfers as f64 / in_turn.operations as f64,
        }))
    }

    /// The prediction from what was `seen`.
    pub(crate) fn of(&self, seen: &Seen) -> Result<Prediction, String> {
        let &Seen { alone_ns, lines_ns, prices } = seen;
        let work_ns = (alone_ns - self.locks * prices.lock_ns).max(alone_ns / 10.0);
        let lines_ns = (lines_ns - self.transfers * prices.transfer_ns).max(0.0);
        let per_ns = |cpus, work_ns: f64| {
            let cycle_ns = work_ns / self.work;
            let costs = prices.costs(cycle_ns);
            in_virtual_time(self.plan, cpus, costs, Order::Clocks)
                .map(|of| of.throughput / cycle_ns)
        };
        Ok(Prediction {
            scaling: per_ns(self.plan.threads, work_ns + lines_ns)? / per_ns(1, work_ns)?,
            cycle_ns: work_ns / self.work,
            lines_ns,
            prices,
        })
    }
}

/// What `cpus` virtual processors make of `plan`.
fn in_virtual_time(
    plan: &HostPlan,
    cpus: usize,
    costs: Costs,
    order: Order,
) -> Result<HatOutcome, String> {
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
    run_in(order, &plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::SCHEMES;

    #[test]
    fn who_takes_turns_waits_for_nobody_and_finds_each_lock_elsewhere() {
        for scheme in SCHEMES {
            let plan = HostPlan {
                threads: 2,
                scheme: scheme.to_owned(),
                load: "fault".to_owned(),
                skeleton: None,
                table: "x86-64".to_owned(),
                hat_only: true,
                rounds: 1,
                seed: 1,
            };
            let of = in_virtual_time(&plan, 2, Costs::FREE, Order::Turns).unwrap();
            assert!(of.locks.values().all(|share| share.counts.contended == 0), "{scheme}");
            if scheme == "global" {
                // The first lock of each operation, but for the very first.
                assert_eq!(of.locks["hat"].counts.transfers, of.operations - 1);
            }
        }
    }
}
