//! A sweep: many designs in one pass over a trace.
//!
//! ```text
//!   trace --> front 1: TLBs, OS, page table --log--> behind: MMU cache, data caches   design 1
//!      |                                        \--> behind                           design 2
//!      |                                         \-> ...
//!      \----> front 2: another TLB ---------log--> behind                             design k
//! ```
//!
//! Designs that differ only behind the TLBs share one front: the front runs once and logs its
//! reports to the hardware behind the TLBs ([`Log`]), and each design processes this log. The trace
//! is decoded once for all designs. The counts of a design are equal to those of a separate run.
//!
//! Accesses that leave the data caches unchanged in all of these designs are counted and not
//! logged.
//!
//! Designs that have only an MMU cache behind the TLBs, and that differ only in its size, form a
//! [`Family`](family::Family): they process a [`FamilyLog`](family_log::FamilyLog), and each walk
//! is simulated for all of them together.
//!
//! A round is one batch of the trace. While the fronts run this batch, the designs process the logs
//! of the previous round, on all cores, and the next batch is read.

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

use crate::placed::placed;
use crate::run::{Progress, foreseen::Foreseen};
use crate::runnable::Runnable;
use front::Front;

/// The options of a sweep.
pub struct SweepOptions<'a> {
    /// The number of threads; 0: one for each core.
    pub threads: usize,
    /// Called a few times per second at most; `false` stops the sweep with
    /// [`Error::Interrupted`].
    pub progress: &'a mut dyn FnMut(Progress) -> bool,
}

/// The outcome of a design: its results, or the error that ended it.
pub type Outcome = Result<Results, String>;

/// Runs the whole trace `source` on each of `machines`. Returns the outcomes in the order of
/// `machines`.
///
/// The returned error is an error of the trace. An error in a design is the outcome of that design,
/// and the other designs continue.
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
    let mut placed = placed(machines.iter().map(|machine| machine.description()), source)?;
    let source = &mut Foreseen::new(placed.as_mut());
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
    // The designs process the logs of the last round.
    running.clear();
    workers::work(threads, front::tasks(&mut fronts, &running), || ());
    let mut outcomes: Vec<(usize, Outcome)> =
        fronts.into_iter().flat_map(|front| front.finish(machines, source)).collect();
    outcomes.sort_by_key(|(index, _)| *index);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// SHA-256 of the description of a front, as 64 hexadecimal digits: machines with equal digests
/// share a front in a sweep.
pub fn front_digest(machine: &dyn Runnable) -> String {
    digest::of(&front::key(machine.description()))
}
