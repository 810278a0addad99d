//! Determines which spaces of a trace are requested to be small, by the names in the machine
//! file.

use description::Refusal;
use std::collections::{BTreeMap, BTreeSet};

use ram::Ram;
use trace::Process;

use super::Small;

/// A space of the trace that is requested to be small.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wish {
    pub(super) group: Option<u16>,
    pub(super) everywhere: bool,
    /// The key of the list in the machine file that names the space, by name or number; `None` if
    /// no list names it.
    pub(super) key: Option<&'static str>,
}

impl Small {
    /// Starts a trace with these processes.
    pub fn begin(&mut self, processes: &[Process], ram: &mut Ram) -> Result<(), Refusal> {
        let mut wishes: BTreeMap<u32, Wish> = BTreeMap::new();
        let lists =
            [("members", &self.described.members), ("everywhere", &self.described.everywhere)];
        for (key, list) in lists {
            let everywhere = key == "everywhere";
            for name in list {
                for number in numbers(key, name, processes)? {
                    wishes.insert(number, Wish { group: None, everywhere, key: Some(key) });
                }
            }
        }
        // Without groups, the spaces of `everywhere` form a group of their own.
        let none = [Vec::new()];
        let is_alone = self.described.groups.is_empty() && !self.described.everywhere.is_empty();
        for group in if is_alone { &none[..] } else { &self.described.groups } {
            let (root, space) = ram.fresh().map_err(|_| out_of_frames())?;
            let index = self.spaces.add_group(root);
            self.roots.insert(root, space);
            for name in group {
                for number in numbers("groups", name, processes)? {
                    let wish = Wish { group: Some(index), everywhere: false, key: Some("groups") };
                    let before = wishes.insert(number, wish);
                    let is_elsewhere = |before: Wish| {
                        before.everywhere || before.group.is_some_and(|group| group != index)
                    };
                    if before.is_some_and(is_elsewhere) {
                        let what = format!(
                            "`{name}` is in more than one group: write a program that communicates \
                             with several groups only into os.small.everywhere; if several \
                             programs have this name, write the numbers of their spaces"
                        );
                        return Err(Refusal::new("os.small.groups", what));
                    }
                }
            }
        }
        self.wishes = (!wishes.is_empty()).then_some(wishes);
        Ok(())
    }

    /// At the end of a trace without processes: the error for a space that was requested to be
    /// small and never ran.
    pub fn unmet(&self) -> Option<Refusal> {
        let has_run = |number: &u32| self.known.get(number).is_some_and(|known| known.was_entered);
        let (missing, wish) = self.wishes.iter().flatten().find(|(number, _)| !has_run(number))?;
        let known: Vec<String> = self.known.keys().map(u32::to_string).collect();
        let what = format!(
            "no space with the number {missing} ran in this trace; the spaces that ran are {}",
            known.join(", ")
        );
        Some(Refusal::new(format!("os.small.{}", wish.key.unwrap_or("members")), what))
    }

    /// The request for the space `number`, if it is to be small.
    pub(super) fn wish(&self, number: u32) -> Option<Wish> {
        match &self.wishes {
            None => Some(Wish::default()),
            Some(wishes) => wishes.get(&number).copied(),
        }
    }
}

fn out_of_frames() -> Refusal {
    let what = "no frame is left for the root of a group: give the machine a larger memory.size";
    Refusal::new("os.small.groups", what.to_owned())
}

/// The numbers of the spaces to which `name`, in the list `key`, refers.
fn numbers(key: &str, name: &str, processes: &[Process]) -> Result<Vec<u32>, Refusal> {
    let called = processes.iter().filter(|process| process.is_called(name));
    let mut found: Vec<u32> = called.map(|process| process.number).collect();
    let number = name.parse::<u32>().ok();
    let exists = |number: &u32| {
        processes.is_empty() || processes.iter().any(|process| process.number == *number)
    };
    if found.is_empty() {
        found.extend(number.filter(exists));
    }
    if found.is_empty() {
        let names: BTreeSet<&str> = processes.iter().map(Process::name).collect();
        let names: Vec<&str> = names.into_iter().take(12).collect();
        let has = if names.is_empty() {
            "this trace names no programs: write numbers of spaces, from 0".to_owned()
        } else {
            format!("it has {}", names.join(", "))
        };
        let what = format!("no program `{name}` in this trace; {has}");
        return Err(Refusal::new(format!("os.small.{key}"), what));
    }
    Ok(found)
}
