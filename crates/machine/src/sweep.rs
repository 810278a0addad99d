//! Many machines in one pass over a trace: see [`run::sweep`].

use description::Error;
use run::Runnable;
use trace::Source;

use crate::Machine;

pub use run::sweep::{Outcome, SweepOptions};

/// Runs all of `source` through each of `machines`, and returns the outcomes in the same order.
///
/// An error is an error of the trace. If one design fails, its outcome is the failure, and the
/// other designs continue.
pub fn sweep(
    machines: &[Machine],
    source: &mut dyn Source,
    options: SweepOptions<'_>,
) -> Result<Vec<Outcome>, Error> {
    let machines: Vec<&dyn Runnable> = machines.iter().map(|machine| machine as _).collect();
    run::sweep::sweep(&machines, source, options)
}

/// The SHA-256 of everything that belongs to the front, as 64 hexadecimal digits: machines with the
/// same digest share the front of a sweep.
pub fn front_digest(machine: &Machine) -> String {
    run::sweep::front_digest(machine)
}
