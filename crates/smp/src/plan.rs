//! What is to run on threads of this host.

/// What runs.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Threads.
    pub threads: usize,
    /// One of [`crate::SCHEMES`]; of one thread also `single`, without locks.
    pub scheme: String,
    /// One of [`crate::Load::ALL`], or what the skeleton is called.
    pub load: String,
    /// The skeleton that is played, if it is none of those.
    pub skeleton: Option<String>,
    /// One of [`crate::TABLES`].
    pub table: String,
    /// Whether the load drives the HAT layer alone, without the memory manager above it.
    pub hat_only: bool,
    /// Rounds that are timed. The one whose scaling is the median is shown.
    pub rounds: usize,
    /// Of the loads' choices.
    pub seed: u64,
}
