//! A load on the processors of this host, and a control that shows whether the host can scale at
//! all.
//!
//! A process cannot interrupt another processor, so shootdowns take no time here.

use std::collections::BTreeMap;

use serde::Serialize;

use locks::prices::HostPrices;

use crate::{
    load::Asked,
    plan::HostPlan,
    predict::{Prediction, Predictor, Seen},
    run::tables,
    threads::{Pace, acquisitions, measure, measure_single, median},
    times::{Times, middle},
};

/// The largest number of threads of a run.
pub(crate) const THREADS_MAX: usize = 64;

/// The outcome of a load on threads of this host, and of its control. Times differ from run to run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct HostOutcome {
    /// The number of threads.
    pub threads: usize,
    /// The name of the locking scheme.
    pub scheme: String,
    /// The name of the load.
    pub load: String,
    /// The name of the page table.
    pub table: String,
    /// Whether the load called only the HAT layer.
    pub hat_only: bool,
    /// Nanoseconds per operation of one thread on the shared layer. This value and the next two are
    /// from one round: from the judged round with the median scaling or, if no round is judged,
    /// from the round with the median scaling of the control.
    pub nanoseconds: f64,
    /// Nanoseconds per operation of one thread of the control.
    pub control_nanoseconds: f64,
    /// The throughput of the control on all threads, divided by that on one thread.
    pub control_scaling: f64,
    /// By class of locks: the number of acquisitions by one thread. The thread does the number of
    /// operations that a processor does in virtual time, so the acquisitions must equal those in
    /// virtual time.
    pub acquisitions: BTreeMap<&'static str, u64>,
    /// The number of rounds that are judged, because they are valid. In a valid round, the control
    /// scales, the two times of the same work agree, and the transfer of a cache line between
    /// threads takes the same time at the end as at the beginning.
    pub judged_rounds: usize,
    /// The throughput of the shared layer on all threads, divided by that on one thread: the median
    /// of the judged rounds; `None` if there are none.
    pub scaling: Option<f64>,
    /// The value of `scaling` that virtual time predicts at this host's prices. `None` if no round
    /// is judged. Also `None` for loads that do other work between their operations, because
    /// threads on the host do not do this work.
    pub predicted: Option<f64>,
    /// Nanoseconds of a counted instruction in the prediction: the time of an operation on one
    /// thread without its locks, divided by the instructions of an operation. `None` if `predicted`
    /// is `None`.
    pub cycle_ns: Option<f64>,
    /// Nanoseconds per operation for cache lines that another thread has written, except the lines
    /// of locks. This is the additional time of an operation if threads take turns with single
    /// operations, without the time of transferring the lines of locks. `None` if `predicted` is
    /// `None`.
    pub lines_ns: Option<f64>,
    /// The prices of locks and cache lines on this host; `None` if they were not measured for a
    /// prediction.
    pub prices: Option<HostPrices>,
}

/// Runs `plan`. The error names the part of the plan that is not possible.
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
    let rounds = (0..plan.rounds.max(1)).map(|_| Measured::new(plan, asked));
    let rounds = rounds.collect::<Result<Vec<Measured>, String>>()?;
    let judged: Vec<&Measured> = rounds.iter().filter(|round| round.is_judged()).collect();
    let shown = if judged.is_empty() {
        middle(rounds.iter().map(|round| round.times), Times::control_scaling)
    } else {
        middle(judged.iter().map(|round| round.times), Times::scaling)
    };
    let seen: Vec<Seen> = judged.iter().filter_map(|round| round.seen).collect();
    let prediction = prediction(plan, asked, &seen)?;
    Ok(HostOutcome {
        threads: plan.threads,
        scheme: plan.scheme.clone(),
        load: plan.load.clone(),
        table: plan.table.clone(),
        hat_only: plan.hat_only,
        nanoseconds: shown.shared,
        control_nanoseconds: shown.control,
        control_scaling: shown.control_scaling(),
        acquisitions: acquisitions(plan, asked)?,
        judged_rounds: judged.len(),
        scaling: (!judged.is_empty()).then(|| shown.scaling()),
        predicted: prediction
            .as_ref()
            .map(|of| of.scaling)
            .or((plan.threads == 1 && !judged.is_empty()).then_some(1.0)),
        cycle_ns: prediction.as_ref().map(|of| of.cycle_ns),
        lines_ns: prediction.as_ref().map(|of| of.lines_ns),
        prices: prediction.as_ref().map(|of| of.prices),
    })
}

/// The measurements of one round.
struct Measured {
    times: Times,
    /// The input of a prediction; `None` for one thread, if the round is not valid, and if the
    /// price of a line is unknown or changed during the round.
    seen: Option<Seen>,
}

impl Measured {
    fn new(plan: &HostPlan, asked: &Asked) -> Result<Measured, String> {
        let all = plan.threads;
        let prices = || if all == 1 { None } else { HostPrices::measured() };
        let first = prices();
        let [alone, control, shared] = [(1, 1), (all, all), (1, all)];
        let timed = |layers_and_threads| measure(plan, asked, layers_and_threads, Pace::Free);
        let there = [timed(alone)?, timed(control)?, timed(shared)?];
        let second = prices();
        let mut back = [timed(shared)?, timed(control)?, timed(alone)?];
        back.reverse();
        let times = Times::new(all, there, back);
        let (Some(first), Some(second)) = (first, second) else {
            return Ok(Measured { times, seen: None });
        };
        // If the threads do not run at the same time, taking turns would last too long.
        if !times.count() {
            return Ok(Measured { times, seen: None });
        }
        let lines_ns = measure(plan, asked, (1, all), Pace::InTurn)?
            - measure(plan, asked, (1, 1), Pace::InTurn)?;
        let third = HostPrices::measured();
        let third =
            third.filter(|third| second.are_those_of(&first) && third.are_those_of(&second));
        let seen = third.map(|prices| Seen { alone_ns: times.alone, lines_ns, prices });
        Ok(Measured { times, seen })
    }

    /// Whether the round is valid: the control scaled on the host, and the host's state did not
    /// change.
    fn is_judged(&self) -> bool {
        self.times.count() && (self.times.threads == 1 || self.seen.is_some())
    }
}

/// The median prediction over all rounds, with its input.
fn prediction(plan: &HostPlan, asked: &Asked, seen: &[Seen]) -> Result<Option<Prediction>, String> {
    if seen.is_empty() {
        return Ok(None);
    }
    let Some(predictor) = Predictor::new(plan, asked)? else { return Ok(None) };
    let all = seen.iter().map(|seen| predictor.of(seen));
    let all = all.collect::<Result<Vec<Prediction>, String>>()?;
    Ok(Some(middle(all.into_iter(), |of| of.scaling)))
}

/// Runs the layer without locks, on one thread.
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
