//! Export of traces for other tools.
//!
//! ```text
//!   Source --batches--> csv ---------------------------> Output: .gz .xz .bz2 .zst or plain --> FILE
//!          \-batches--> blocks --> champsim | drmemtrace --/
//! ```
//!
//! Information that a format cannot hold is dropped and reported: see the file of each format.

mod blocks;
mod champsim;
mod csv;
mod drmemtrace;
mod output;

use crate::count::counted;
use crate::{Batch, Error, Header, Source};

pub use champsim::champsim;
pub use csv::csv;
pub use drmemtrace::drmemtrace;

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

/// Gives each batch of `source` to `take`, and the number of accesses so far to `progress`. Returns false if
/// `progress` stopped it.
fn each(
    source: &mut dyn Source,
    progress: &mut dyn FnMut(u64) -> bool,
    mut take: impl FnMut(&Batch) -> Result<(), Error>,
) -> Result<bool, Error> {
    let mut batch = Batch::default();
    let mut seen = 0;
    loop {
        let more = source.next(&mut batch)?;
        take(&batch)?;
        seen += batch.len() as u64;
        if !more {
            return Ok(true);
        }
        if !progress(seen) {
            return Ok(false);
        }
    }
}

/// Refuses a trace without fetches for a format whose records are instructions.
fn check_fetches(header: &Header, format: &str) -> Result<(), Error> {
    match header.fetches {
        true => Ok(()),
        false => Err(Error::Parameters(format!(
            "the trace has no instruction fetches, but {format} has a record for each instruction with its \
             address; record the program without --no-fetch"
        ))),
    }
}

/// Sentences about dropped accesses and events, for counts that are not zero. Each element of
/// `counts` has the count, the noun with its verb in singular and in plural, and the reason.
fn left_out(counts: &[(u64, &str, &str, &str)]) -> Vec<String> {
    let counts = counts.iter().filter(|(n, ..)| *n > 0);
    counts.map(|(n, one, many, why)| format!("{}: left out", counted(*n, one, many, why))).collect()
}
