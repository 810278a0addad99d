//! The run of a trace on a machine, what becomes of its counts, and runs of many designs at once.
//!
//! ```text
//!   run/       every access through TLBs, page table and operating system; the only pipeline
//!   report/    from the counts of a run to results, and the check that the counts agree
//!   whole      a run from the first access to its results
//!   sweep/     many designs behind one front          curve/   all sizes in one pass
//! ```
//!
//! Which operating system decides is not known here: a [`Runnable`] brings it.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "parts of one program: a field whose name says all has no comment")]

pub mod curve;
#[cfg(test)]
mod plain;
pub mod report;
mod run;
mod runnable;
pub mod sweep;
mod whole;

pub use run::{
    Parts, Progress, Run, nodes::Nodes, overheads::Overheads, promotion::Promotion, small::Small,
};
pub use runnable::Runnable;
pub use whole::{RunOptions, run};
