//! Switches of processors from one program to another.

use std::collections::BTreeMap;

use serde::Serialize;

/// How often a processor went from one program to another, for the results.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Switches {
    /// What ordered the programs.
    pub order: &'static str,
    /// Instructions after which another program has its turn; none where the recording alone
    /// orders them.
    pub quantum_instructions: Option<u64>,
    /// Processors.
    pub cpus: u32,
    /// Switches of a processor from one program to another, by their cause.
    pub by_cause: BTreeMap<&'static str, u64>,
    /// Waits that ended because nobody could run any more: for what is not in the recording.
    pub unexplained: u64,
}
