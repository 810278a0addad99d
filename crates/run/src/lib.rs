//! The run of a trace on a simulated machine, the results from its counts, and sweeps over many
//! designs.
//!
//! ```text
//!   run/       every access through TLBs, page table and operating system; the only pipeline
//!   report/    from the counts of a run to results, and the check that the counts agree
//!   whole      a run from the first access to its results
//!   sweep/     many designs behind one front          curve/   all sizes in one pass
//! ```
//!
//! This crate does not know which operating system is simulated: a [`Runnable`] provides it.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "parts of one program: a field whose name says all has no comment")]

pub mod curve;
mod placed;
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
