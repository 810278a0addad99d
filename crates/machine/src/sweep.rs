//! Many machines in one pass over a trace: see [`run::sweep`].

use description::Error;
use run::Runnable;
use trace::Source;

use crate::Machine;

pub use run::sweep::{Outcome, SweepOptions};

/// Runs all of `source` through each of `machines`; the outcomes in their order.
///
/// An error is one of the trace. What fails in a design is its outcome, and the others go on.
pub fn sweep(
    machines: &[Machine],
    source: &mut dyn Source,
    options: SweepOptions<'_>,
) -> Result<Vec<Outcome>, Error> {
    let machines: Vec<&dyn Runnable> = machines.iter().map(|machine| machine as _).collect();
    run::sweep::sweep(&machines, source, options)
}

/// SHA-256 of all that a front consists of, as 64 hexadecimal digits: machines that share it
/// share the front of a sweep.
pub fn front_digest(machine: &Machine) -> String {
    run::sweep::front_digest(machine)
}
