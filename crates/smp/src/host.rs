//! A load on the processors of this host, beside a control that says whether they can scale at all.
//!
//! A process cannot interrupt another processor, so that shootdowns cost nothing here.

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

/// Threads that a run can have.
pub(crate) const THREADS_MAX: usize = 64;

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
    /// Nanoseconds of an operation of one thread of the shared layer. This and the next three are of one round: the
    /// judged one whose scaling is the median, or, where no round is judged, the one whose control scales the median.
    pub nanoseconds: f64,
    /// Nanoseconds of an operation of one thread of the control.
    pub control_nanoseconds: f64,
    /// What the control does on all threads over what it does on one.
    pub control_scaling: f64,
    /// How often one thread takes locks of each class in as many operations as a processor of virtual time
    /// does: equal to what it takes there.
    pub acquisitions: BTreeMap<&'static str, u64>,
    /// Rounds that say something: the control scales, what was timed twice took equally long, and a line takes as long
    /// from one thread to another at the end as at the beginning.
    pub judged_rounds: usize,
    /// What the shared layer does on all threads over what one thread does alone, as the median of the judged
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

/// What was seen in one round.
struct Measured {
    times: Times,
    /// What a prediction is made of; `None` for one thread, where the times do not count, and where a line has no
    /// price or not the same all the time.
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
        // Threads that do not run at once would take for ever to take turns.
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

    /// Whether the round says something of the locks, and of one state of the host.
    fn is_judged(&self) -> bool {
        self.times.count() && (self.times.threads == 1 || self.seen.is_some())
    }
}

/// The prediction in the middle of those of all rounds, with what it was made of.
fn prediction(plan: &HostPlan, asked: &Asked, seen: &[Seen]) -> Result<Option<Prediction>, String> {
    if seen.is_empty() {
        return Ok(None);
    }
    let Some(predictor) = Predictor::new(plan, asked)? else { return Ok(None) };
    let all = seen.iter().map(|seen| predictor.of(seen));
    let all = all.collect::<Result<Vec<Prediction>, String>>()?;
    Ok(Some(middle(all.into_iter(), |of| of.scaling)))
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
