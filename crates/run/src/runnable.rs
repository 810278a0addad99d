//! What a run asks of a machine: so a run knows no manager by its name, and whoever changes one does not
//! compile the run anew.

use description::{Clock, Description, Error};
use hardware::walker::Walkers;
use results::MachineSummary;

use crate::run::Run;

/// A machine that has been read and checked.
pub trait Runnable {
    /// All that it consists of.
    fn description(&self) -> &Description;

    /// What results say of it.
    fn summary(&self) -> MachineSummary;

    /// A run on it, with the operating system's time by `clock`; where `check`, each translation is compared with
    /// the page table.
    fn start(&self, check: bool, clock: Clock) -> Result<Run, Error>;

    /// Its processors' walkers, with their caches, before any access.
    fn walkers(&self) -> Result<Walkers, Error>;
}
