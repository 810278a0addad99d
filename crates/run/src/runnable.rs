//! The interface of a machine to a run. A run does not depend on memory managers, so a change of one
//! does not recompile the run.

use description::{Clock, Description, Error};
use hardware::walker::Walkers;
use results::MachineSummary;

use crate::run::Run;

/// A machine whose description has been read and checked.
pub trait Runnable {
    /// The description of all parts.
    fn description(&self) -> &Description;

    /// The description of the machine for the results.
    fn summary(&self) -> MachineSummary;

    /// Starts a run on the machine. `clock` gives the operating system's time; if `check`, each translation
    /// is compared with the page table.
    fn start(&self, check: bool, clock: Clock) -> Result<Run, Error>;

    /// The walkers of the processors, with their caches, in their state before the first access.
    fn walkers(&self) -> Result<Walkers, Error>;
}
