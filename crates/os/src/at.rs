//! Settings that change while a machine runs: `[[os.at]]`.
//!
//! ```text
//!   [[os.at]] time, key, value --> Setting, by its key    the machine with that value is built on
//!                                  one that the system     trial, so that an error is reported
//!                                  can change              before a trace runs
//!   clock >= time ---------------> System::change
//! ```
//!
//! To add a setting, add a variant with its key here, and a match arm in each system that supports
//! it.

use description::Description;

/// The settings that can change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    Marks,
    Replacement,
    SwapSize,
    SwapIo,
}

impl Setting {
    /// All settings that can change.
    pub const ALL: [Setting; 4] =
        [Setting::Marks, Setting::Replacement, Setting::SwapSize, Setting::SwapIo];

    /// The key in a machine file.
    pub const fn key(self) -> &'static str {
        match self {
            Setting::Marks => "os.marks",
            Setting::Replacement => "os.replacement",
            Setting::SwapSize => "swap.size",
            Setting::SwapIo => "swap.io_cycles",
        }
    }
}

/// A future change of a setting.
#[derive(Clone, Debug)]
pub struct Change {
    /// The time of the change, in cycles of the operating system's clock.
    pub time: u64,
    pub what: Setting,
    /// The new value, as in a machine file.
    pub value: String,
    /// The description of the machine after the change.
    pub description: Description,
}
