//! Switches of processors from one program to another.

use std::collections::BTreeMap;

use serde::Serialize;

/// Counts of a processor's switches from one program to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Switches {
    /// The rule that determined the order in which programs ran.
    pub order: &'static str,
    /// The number of instructions after which another program gets its turn; `None` if only the
    /// recording determines the order.
    pub quantum_instructions: Option<u64>,
    /// The number of processors.
    pub cpus: u32,
    /// Switches of a processor from one program to another, by their cause.
    pub by_cause: BTreeMap<&'static str, u64>,
    /// Waits that were ended because no program could run: the recording lacks the events for which
    /// the programs waited.
    pub unexplained: u64,
}
