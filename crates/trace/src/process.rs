use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Arch, Error, KERNEL};

/// The space of a Linux at user level.
pub const SERVER: u32 = KERNEL - 1;

/// Processes that a message names.
const NAMED_MAX: usize = 8;

/// A process of a recording: an address space with a history of its own.
///
/// It begins by `fork` or is the first, and goes on when it executes another program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// Its number in the recording; the first has 0.
    pub number: u32,
    /// Its number at the system, which another may have had before.
    pub pid: u32,
    /// The process that forked it, by number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Accesses of the parent's before the fork. Not known if the recording was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_accesses: Option<u64>,
    /// Whether it runs in its parent's space until it executes a program, as `vfork`'s child and
    /// `posix_spawn`'s do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_space: bool,
    /// When it began, in nanoseconds of the recording's clock.
    pub began_ns: u64,
    /// What it ran, one after the other; a fork's child begins with its parent's program.
    pub programs: Vec<Program>,
    /// Its accesses, as far as they are known.
    #[serde(default)]
    pub accesses: u64,
    /// Instructions that they count.
    #[serde(default)]
    pub instructions: u64,
}

/// A program that a process runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Program {
    /// Its instruction set.
    pub arch: Arch,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Accesses of the process before it.
    pub from: u64,
}

impl Process {
    /// The name of the last program that it ran, without its directory.
    pub fn name(&self) -> &str {
        self.programs.last().map_or("", Program::name)
    }

    /// Whether `wanted` means it: its number at the system, or the name or path of a program
    /// that it ran.
    pub fn is_called(&self, wanted: &str) -> bool {
        let named = |program: &Program| {
            program.name() == wanted || program.command.first().is_some_and(|path| path == wanted)
        };
        wanted.parse() == Ok(self.pid) || self.programs.iter().any(named)
    }
}

impl Program {
    /// Its name without its directory.
    pub fn name(&self) -> &str {
        let path = self.command.first().map_or("", String::as_str);
        path.rsplit('/').next().unwrap_or_default()
    }
}

/// What the region `name` of the address space `space` is called where there are several spaces: by
/// the process of that number, as in `heap of ls (1)`, or by the space where none is known.
pub fn name_in_space(name: &str, space: u32, processes: &[Process]) -> String {
    match processes.iter().find(|process| process.number == space) {
        _ if space == KERNEL => format!("{name} of the kernel"),
        Some(server) if space == SERVER => format!("{name} of {}", server.name()),
        Some(process) => format!("{name} of {} ({space})", process.name()),
        None => format!("{name} in space {space}"),
    }
}

/// The number of the one of `processes`, those of the trace at `path`, that `wanted` means
/// ([`Process::is_called`]). Refuses a name that means none or several.
pub(crate) fn named(path: &Path, processes: &[Process], wanted: &str) -> Result<u32, Error> {
    let path = path.display();
    let list = |some: &mut dyn Iterator<Item = &Process>| {
        let some: Vec<String> = some
            .take(NAMED_MAX + 1)
            .map(|process| format!("{} ({})", process.pid, process.name()))
            .collect();
        let more = if some.len() > NAMED_MAX { ", ..." } else { "" };
        format!("{}{more}", some[..some.len().min(NAMED_MAX)].join(", "))
    };
    // A shell's child is the shell too until it executes what it was forked for: where the name is
    // that of one process's last program, it is meant.
    let mut last = processes.iter().filter(|process| process.name() == wanted);
    let found: Vec<&Process> = match (last.next(), last.next()) {
        (Some(one), None) => vec![one],
        _ => processes.iter().filter(|process| process.is_called(wanted)).collect(),
    };
    let what = match (&found[..], processes) {
        ([one], _) => return Ok(one.number),
        ([], []) => {
            format!("{path}: it does not record processes; leave --process out")
        }
        ([], all) => {
            format!("{path}: no process `{wanted}`; its processes are {}", list(&mut all.iter()))
        }
        (some, _) => format!(
            "{path}: {} processes are called `{wanted}`; name one by its number: {}",
            some.len(),
            list(&mut some.iter().copied())
        ),
    };
    Err(Error::Parameters(what))
}
