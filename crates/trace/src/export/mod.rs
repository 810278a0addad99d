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

/// Sentences on what was left out, for the counts that are not zero.
fn left_out(counts: &[(u64, &str)]) -> Vec<String> {
    counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect()
}
