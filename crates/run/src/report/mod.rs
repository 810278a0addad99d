//! From what a run has counted to its results, and the check that its counts agree.

pub mod identities;
pub mod summary;
mod time;
