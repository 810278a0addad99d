//! From what a run has counted to its results, and the check that its counts agree.

pub(crate) mod identities;
pub(crate) mod summary;
mod time;
