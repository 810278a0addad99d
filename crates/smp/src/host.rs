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

use std::collections::BTreeMap;

use serde::Serialize;

use locks::prices::HostPrices;

use crate::{
    load::Asked,
    plan::HostPlan,
    predict::{Prediction, Predictor, Seen},
    run::tables,
    threads::{Pace, acquisitions, measure, measure_single, median},
};

/// Threads that a run can have.
pub(crate) const THREADS_MAX: usize = 64;

/// The control on two threads must reach this many times what it does on one.
const CONTROL_MIN: f64 = 1.7;

/// And no more than this many times as often as there are threads: what does, was held up on one.
const CONTROL_MAX: f64 = 1.1;

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
    /// Rounds whose control scales, and in which a line takes as long from one thread to another at the end as at
    /// the beginning: those that say something.
    pub judged_rounds: usize,
    /// What the shared layer does on all threads over what the control does on one, as the median of these
    /// rounds; `None` where there is none.
    pub scaling: Option<f64>,
    /// What virtual time says of that scaling, at this host's prices. `None` where no round is judged, and for
    /// loads that do other work between their operations, which threads of the host leave out.
    pub predicted: Option<f64>,
    /// Nanoseconds of a counted instruction in that prediction: what is left of an operation on one
    /// thread without its locks, over the instructions. `None` as above.
    pub cycle_ns: Option<f64>,
    /// Nanoseconds of an operation that go to lines which another thread wrote, but those of locks: what an
    /// operation takes longer if threads take turns, an operation each, without as many lines as locks change their
    /// threads. `None` as above.
    pub lines_ns: Option<f64>,
    /// What locks and lines take on this host, where it was measured for a prediction.
    pub prices: Option<HostPrices>,
}

/// Runs `plan`. An error says what of it cannot be.
pub fn run_on_host(plan: &HostPlan) -> Result<HostOutcome, String> {
    if plan.threads == 0 || plan.threads > THREADS_MAX {
        return Err(format!("{} threads: choose 1 to {THREADS_MAX}", plan.threads));
    }
    let asked = &Asked::new(&plan.load, plan.skeleton.as_deref(), plan.hat_only, plan.threads)?;
    tables(&plan.table, &plan.scheme)?;
    if plan.scheme == "single" {
        if plan.threads > 1 {
            return Err("`single` has no locks: give it one thread".to_owned());
        }
        return single(plan, asked);
    }
    let rounds = (0..plan.rounds.max(1)).map(|_| Round::measured(plan, asked));
    let rounds = rounds.collect::<Result<Vec<Round>, String>>()?;
    let threads = plan.threads as f64;
    let judged: Vec<&Round> = rounds.iter().filter(|round| round.is_judged(threads)).collect();
    let seen: Vec<Seen> = judged.iter().filter_map(|round| round.seen).collect();
    let prediction = prediction(plan, asked, &seen)?;
    Ok(HostOutcome {
        threads: plan.threads,
        scheme: plan.scheme.clone(),
        load: plan.load.clone(),
        table: plan.table.clone(),
        hat_only: plan.hat_only,
        nanoseconds: median(rounds.iter().map(|round| round.shared)),
        control_nanoseconds: median(rounds.iter().map(|round| round.control)),
        control_scaling: median(rounds.iter().map(|round| round.control_scaling(threads))),
        acquisitions: acquisitions(plan, asked)?,
        judged_rounds: judged.len(),
        scaling: (!judged.is_empty())
            .then(|| median(judged.iter().map(|round| round.scaling(threads)))),
        predicted: prediction
            .as_ref()
            .map(|of| of.scaling)
            .or((plan.threads == 1 && !judged.is_empty()).then_some(1.0)),
        cycle_ns: prediction.as_ref().map(|of| of.cycle_ns),
        lines_ns: prediction.as_ref().map(|of| of.lines_ns),
        prices: prediction.as_ref().map(|of| of.prices),
    })
}

/// Nanoseconds of an operation, measured one after the other, as the host changes from moment to moment.
struct Round {
    /// Of one thread.
    alone: f64,
    /// Of all threads on one layer.
    shared: f64,
    /// Of all threads, each on a layer of its own.
    control: f64,
    /// What a prediction is made of; `None` for one thread, where the control does not scale, and where a line
    /// has no price or not the same all the time.
    seen: Option<Seen>,
}

impl Round {
    fn measured(plan: &HostPlan, asked: &Asked) -> Result<Round, String> {
        let all = plan.threads;
        let prices = || if all == 1 { None } else { HostPrices::measured() };
        let first = prices();
        let alone = measure(plan, asked, (1, 1), Pace::Free)?;
        let control = measure(plan, asked, (all, all), Pace::Free)?;
        let second = prices();
        let shared = measure(plan, asked, (1, all), Pace::Free)?;
        let round = Round { alone, shared, control, seen: None };
        let (Some(first), Some(second)) = (first, second) else { return Ok(round) };
        // Threads that do not run at once would take for ever to take turns.
        if !round.scales(all as f64) {
            return Ok(round);
        }
        let lines_ns = measure(plan, asked, (1, all), Pace::InTurn)?
            - measure(plan, asked, (1, 1), Pace::InTurn)?;
        let Some(third) = HostPrices::measured() else { return Ok(round) };
        let is_one_state = second.are_those_of(&first) && third.are_those_of(&second);
        let seen = Seen { alone_ns: alone, lines_ns, prices: third };
        Ok(Round { seen: is_one_state.then_some(seen), ..round })
    }

    fn control_scaling(&self, threads: f64) -> f64 {
        threads * self.alone / self.control
    }

    fn scaling(&self, threads: f64) -> f64 {
        threads * self.alone / self.shared
    }

    /// Whether the round says something of the locks, and of one state of the host.
    fn is_judged(&self, threads: f64) -> bool {
        if threads == 1.0 { self.scales(threads) } else { self.seen.is_some() }
    }

    /// Whether the host lets as many threads run at once, so that the round says something of the locks.
    fn scales(&self, threads: f64) -> bool {
        let wanted = CONTROL_MIN / 2.0 * threads..=CONTROL_MAX * threads;
        wanted.contains(&self.control_scaling(threads))
    }
}

/// The prediction in the middle of those of all rounds, with what it was made of.
fn prediction(plan: &HostPlan, asked: &Asked, seen: &[Seen]) -> Result<Option<Prediction>, String> {
    if seen.is_empty() {
        return Ok(None);
    }
    let Some(predictor) = Predictor::new(plan, asked)? else { return Ok(None) };
    let all = seen.iter().map(|seen| predictor.of(seen));
    let mut all = all.collect::<Result<Vec<Prediction>, String>>()?;
    all.sort_unstable_by(|a, b| a.scaling.total_cmp(&b.scaling));
    let middle = all.len() / 2;
    Ok(Some(all.swap_remove(middle)))
}

/// The layer without locks.
fn single(plan: &HostPlan, asked: &Asked) -> Result<HostOutcome, String> {
    let times = (0..plan.rounds.max(1)).map(|_| measure_single(plan, asked));
    let times = times.collect::<Result<Vec<f64>, String>>()?;
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
        lines_ns: None,
        prices: None,
    })
}
