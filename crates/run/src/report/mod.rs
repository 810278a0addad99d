//! Makes the results from the counts of a run, and checks that the counts agree.

pub mod identities;
pub mod summary;
mod time;
