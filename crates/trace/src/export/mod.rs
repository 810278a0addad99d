//! Traces for other tools.
//!
//! ```text
//!   Source --batches--> champsim | csv --> Output: .gz .xz .bz2 .zst or plain --> FILE
//! ```
//!
//! What a format cannot hold is left out and told: see each format's file.

mod champsim;
mod csv;
mod output;

use crate::count::counted;

pub use champsim::champsim;
pub use csv::csv;

/// How a trace is exported.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Whether an existing file of that name may be replaced.
    pub overwrite: bool,
    /// The only thread that is exported.
    pub thread: Option<u32>,
}

/// What has been written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Records or lines.
    pub records: u64,
    /// Bytes of them, before compression.
    pub bytes: u64,
    /// What could not be written, and how much of it.
    pub warnings: Vec<String>,
}

/// Sentences on what was left out, for the counts that are not zero: what one is called, what
/// many are, and why.
fn left_out(counts: &[(u64, &str, &str, &str)]) -> Vec<String> {
    let counts = counts.iter().filter(|(n, ..)| *n > 0);
    counts.map(|(n, one, many, why)| format!("{}: left out", counted(*n, one, many, why))).collect()
}
