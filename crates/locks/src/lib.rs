//! Platforms of locks for the HAT layer and the memory manager: locks of this host, and locks of
//! virtual processors.
//!
//! ```text
//!   Native     the host's: spin a little, then sleep; readers and owners in bias need no atomic instruction
//!   Watched    any of them, and what is done under which lock is timed
//!   Ranked     any of them, and the order of locks is asserted
//!   Timed      virtual time --> Baton: one processor runs, the one with the least clock
//!
//!   Chosen     where the locks of descriptors lie, of any platform, chosen when a run begins
//! ```
#![deny(unsafe_code)]

pub mod baton;
mod biased;
mod chosen;
pub mod costs;
mod native;
pub mod prices;
mod ranked;
pub mod stats;
mod timed;
mod waiting;
pub mod watched;

pub use crate::{
    baton::{Baton, CPUS_MAX, Finished, cpu, now, pass, spend},
    chosen::{Chosen, ChosenArray},
    costs::{Costs, LockKind},
    native::Native,
    prices::HostPrices,
    ranked::Ranked,
    stats::{ClassCounts, Histogram, LockCounts, TimeUse},
    timed::Timed,
};
