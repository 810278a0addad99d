//! Settings that change while a machine runs: `[[os.at]]`.
//!
//! ```text
//!   [[os.at]] time, key, value --> Setting, by its key    the machine with that value is built on
//!                                  one that the system     trial, so that what is wrong is said
//!                                  can change              before a trace runs
//!   clock >= time ---------------> System::change
//! ```
//!
//! A new one is a variant with its key here, and an arm where a system takes it up.

use super::{System, build};
use crate::{
    description::{Description, settings},
    ram::Ram,
};

/// A key of the machine file, and what is wrong with it.
type Refusal = (String, String);

/// What can change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Setting {
    Marks,
    Replacement,
    SwapSize,
    SwapIo,
}

impl Setting {
    /// All of them.
    const ALL: [Setting; 4] =
        [Setting::Marks, Setting::Replacement, Setting::SwapSize, Setting::SwapIo];

    /// Its key in a machine file.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Setting::Marks => "os.marks",
            Setting::Replacement => "os.replacement",
            Setting::SwapSize => "swap.size",
            Setting::SwapIo => "swap.io_cycles",
        }
    }
}

/// One that will.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// When, in cycles of the operating system's clock.
    pub(crate) time: u64,
    pub(crate) what: Setting,
    /// Its value, as in a machine file.
    pub(crate) value: String,
    /// The machine from then on.
    pub(crate) description: Description,
}

/// What `description` wants to change of `system`, in the order of time; an error comes with the
/// key that is wrong.
pub(crate) fn changes(
    description: &Description,
    system: &dyn System,
    ram: &Ram,
) -> Result<Vec<Change>, Refusal> {
    let mut entries: Vec<_> = description.os.at.iter().enumerate().collect();
    entries.sort_by_key(|(_, at)| at.time);
    let mut current = description.clone();
    let mut changes = Vec::new();
    for (place, at) in entries {
        let what = setting(&at.key, system, &description.os.manager)
            .map_err(|what| (format!("os.at.{place}.key"), what))?;
        let wrong = |what: String| (format!("os.at.{place}.value"), what);
        current = settings::with(&current, &at.key, &at.value).map_err(wrong)?;
        build::manager(&current, ram).map_err(|(key, what)| wrong(format!("{key}: {what}")))?;
        let (description, value) = (current.clone(), at.value.to_string());
        changes.push(Change { time: at.time, what, value, description });
    }
    Ok(changes)
}

/// The setting that a system can change at `key`, or why there is none.
fn setting(key: &str, system: &dyn System, manager: &str) -> Result<Setting, String> {
    let can = system.changeable();
    let found = Setting::ALL.into_iter().find(|what| what.key() == key);
    if let Some(what) = found.filter(|what| can.contains(what)) {
        return Ok(what);
    }
    let keys: Vec<&str> = can.iter().map(|what| what.key()).collect();
    Err(match keys.is_empty() {
        true => format!(
            "the manager `{manager}` has no setting that can change while it runs: leave os.at \
             out, or choose another os.manager"
        ),
        false => format!(
            "`{key}` cannot change while the manager `{manager}` runs: choose {}",
            keys.join(", ")
        ),
    })
}
