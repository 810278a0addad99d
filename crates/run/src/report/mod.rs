//! Results from the counts of a run, and the check that the counts agree.

pub mod identities;
pub mod summary;
mod time;
