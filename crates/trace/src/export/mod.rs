//! Export of traces for other tools.
//!
//! ```text
//!   Source --batches--> champsim | csv --> Output: .gz .xz .bz2 .zst or plain --> FILE
//! ```
//!
//! Information that a format cannot hold is dropped and reported: see the file of each format.

mod champsim;
mod csv;
mod output;

use crate::count::counted;

pub use champsim::champsim;
pub use csv::csv;

/// Options of an export.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Whether an existing file with that name may be replaced.
    pub overwrite: bool,
    /// The only thread to be exported.
    pub thread: Option<u32>,
}

/// What an export has written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// The number of records or lines.
    pub records: u64,
    /// The number of bytes before compression.
    pub bytes: u64,
    /// Sentences about accesses and events that the format cannot hold, with their numbers.
    pub warnings: Vec<String>,
}

/// Sentences about dropped accesses and events, for counts that are not zero. Each element of
/// `counts` has the count, the noun with its verb in singular and in plural, and the reason.
fn left_out(counts: &[(u64, &str, &str, &str)]) -> Vec<String> {
    let counts = counts.iter().filter(|(n, ..)| *n > 0);
    counts.map(|(n, one, many, why)| format!("{}: left out", counted(*n, one, many, why))).collect()
}
