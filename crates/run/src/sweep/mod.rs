//! A sweep: many designs over one pass of a trace.
//!
//! ```text
//!   trace --> front 1: TLBs, OS, page table --log--> behind: MMU cache, data caches   design 1
//!      |                                        \--> behind                           design 2
//!      |                                         \-> ...
//!      \----> front 2: another TLB ---------log--> behind                             design k
//! ```
//!
//! Designs that differ only behind the TLBs have one front: it runs once and writes down what it
//! tells what lies behind it ([`Log`]), and each of them takes that from the log. The trace is
//! decoded once for all. What a design counts is what a run of it alone counts.
//!
//! Accesses that leave the data caches as they are in all of these designs are counted and not
//! written down.
//!
//! Designs whose MMU cache is all that lies behind their TLBs, and which differ in its size, are a
//! [`Family`](family::Family): they are told in [`FamilyLog`](family_log::FamilyLog) and take each walk
//! together.
//!
//! A round is one batch of the trace. While the fronts run it, the designs take the logs of the
//! round before, on all cores, and the next batch is read.

mod family;
mod family_log;
mod front;
mod log;
mod member_counts;
mod numbers;
mod repeats;
mod workers;

use description::{Error, digest};
use results::Results;
use trace::{Batch, Source};

use crate::run::{Progress, foreseen::Foreseen};
use crate::runnable::Runnable;
use front::Front;

/// How to sweep.
pub struct SweepOptions<'a> {
    /// How many threads work; 0: as many as there are cores.
    pub threads: usize,
    /// Called a few times per second at most; `false` stops the sweep with
    /// [`Error::Interrupted`].
    pub progress: &'a mut dyn FnMut(Progress) -> bool,
}

/// What became of a design: its results, or why it has none.
pub type Outcome = Result<Results, String>;

/// Runs all of `source` through each of `machines`; the outcomes in their order.
///
/// An error is one of the trace. What fails in a design is its outcome, and the others go on.
pub fn sweep(
    machines: &[&dyn Runnable],
    source: &mut dyn Source,
    options: SweepOptions<'_>,
) -> Result<Vec<Outcome>, Error> {
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let mut fronts = Front::of_all(machines)?;
    let source = &mut Foreseen::new(source);
    fronts.iter_mut().for_each(|front| front.begin(source));
    let (mut running, mut reading) = (Batch::default(), Batch::default());
    let mut accesses = 0;
    let mut more = source.next(&mut running)?;
    loop {
        let next = workers::work(threads, front::tasks(&mut fronts, &running), || {
            if more { source.next(&mut reading) } else { Ok(false) }
        });
        accesses += running.len() as u64;
        fronts.iter_mut().for_each(Front::turn);
        if !more {
            break;
        }
        if !(options.progress)(Progress { accesses, total: source.total() }) {
            return Err(Error::Interrupted);
        }
        more = next?;
        std::mem::swap(&mut running, &mut reading);
    }
    // The logs of the last round.
    running.clear();
    workers::work(threads, front::tasks(&mut fronts, &running), || ());
    let mut outcomes: Vec<(usize, Outcome)> =
        fronts.into_iter().flat_map(|front| front.finish(machines, source)).collect();
    outcomes.sort_by_key(|(index, _)| *index);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// SHA-256 of all that a front consists of, as 64 hexadecimal digits: machines that share it
/// share the front of a sweep.
pub fn front_digest(machine: &dyn Runnable) -> String {
    digest::of(&front::key(machine.description()))
}
