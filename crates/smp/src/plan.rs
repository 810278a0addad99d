//! The plan of a run on threads of this host.

use serde::Deserialize;

/// A run on threads of this host. It is read from a document that has all fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// The number of threads.
    pub threads: usize,
    /// The locking scheme: one of [`crate::SCHEMES`]; for one thread also `single`, without locks.
    pub scheme: String,
    /// The load: one of [`crate::Load::ALL`], or the name of the skeleton.
    pub load: String,
    /// The text of the skeleton to play, if the load is not one of [`crate::Load::ALL`].
    pub skeleton: Option<String>,
    /// The page table: one of [`crate::TABLES`].
    pub table: String,
    /// Whether the load calls the HAT layer alone, without the memory manager above it.
    pub hat_only: bool,
    /// The number of timed rounds. The result is from the round with the median scaling.
    pub rounds: usize,
    /// The seed of the loads' random choices.
    pub seed: u64,
}
