//! Settings that a machine file changes while the machine runs. Each change is tried before the
//! trace runs, so that errors are found early.

use description::{Description, Refusal, settings};
use os::{
    System,
    at::{Change, Setting},
};
use ram::Ram;

use super::manager;

/// The changes of `system` that `description` requests, in order of time. The error has the key
/// that is wrong.
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
            .map_err(|what| Refusal::new(format!("os.at.{place}.key"), what))?;
        let wrong = |what: String| Refusal::new(format!("os.at.{place}.value"), what);
        current = settings::with(&current, &at.key, &at.value).map_err(wrong)?;
        manager(&current, ram).map_err(|Refusal { key, what }| wrong(format!("{key}: {what}")))?;
        let (description, value) = (current.clone(), at.value.to_string());
        changes.push(Change { time: at.time, what, value, description });
    }
    Ok(changes)
}

/// The setting with the key `key`. The error says why the system cannot change it.
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
