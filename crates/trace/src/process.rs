use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Arch, Error, KERNEL};

/// The number of the space of a Linux at user level.
pub const SERVER: u32 = KERNEL - 1;

/// The largest number of processes that a message names.
const NAMED_MAX: usize = 8;

/// A process of a recording.
///
/// A process is the first one of the recording or was created by a `fork`. It stays the same
/// process when it executes another program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Process {
    /// The number of the process in the recording; the first one is 0.
    pub number: u32,
    /// The process id, which an earlier process may have had as well.
    pub pid: u32,
    /// The number of the process that forked this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// The number of accesses of the parent before the fork; unknown if the recording is truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_accesses: Option<u64>,
    /// Whether the process runs in its parent's space until it executes a program, as children of
    /// `vfork` and `posix_spawn` do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_space: bool,
    /// The time when the process began, in nanoseconds of the recording's clock.
    pub began_ns: u64,
    /// The programs that the process ran, one after the other; a child begins with its parent's
    /// program.
    pub programs: Vec<Program>,
    /// The number of accesses of the process, as far as it is known.
    #[serde(default)]
    pub accesses: u64,
    /// The number of instructions of the process, as its accesses count them.
    #[serde(default)]
    pub instructions: u64,
}

/// A program that a process runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Program {
    /// The instruction set of the program.
    pub arch: Arch,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The number of accesses of the process before it ran this program.
    pub from: u64,
}

impl Process {
    /// The name, without directory, of the last program that it ran.
    pub fn name(&self) -> &str {
        self.programs.last().map_or("", Program::name)
    }

    /// Whether `wanted` identifies the process: as its process id, or as the name or path of a
    /// program that it ran.
    pub fn is_called(&self, wanted: &str) -> bool {
        let named = |program: &Program| {
            program.name() == wanted || program.command.first().is_some_and(|path| path == wanted)
        };
        wanted.parse() == Ok(self.pid) || self.programs.iter().any(named)
    }
}

impl Program {
    /// The name of the program without its directory.
    pub fn name(&self) -> &str {
        let path = self.command.first().map_or("", String::as_str);
        path.rsplit('/').next().unwrap_or_default()
    }
}

/// The name of the region `name` in the address space `space`, if there are several spaces: with
/// the process of that number, as in `heap of ls (1)`, or with the space if no process is known.
pub fn name_in_space(name: &str, space: u32, processes: &[Process]) -> String {
    match processes.iter().find(|process| process.number == space) {
        _ if space == KERNEL => format!("{name} of the kernel"),
        Some(server) if space == SERVER => format!("{name} of {}", server.name()),
        Some(process) => format!("{name} of {} ({space})", process.name()),
        None => format!("{name} in space {space}"),
    }
}

/// The number of the process that `wanted` identifies ([`Process::is_called`]) among `processes`,
/// those of the trace at `path`. An error if there is none or several.
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
    // A shell's child has the shell's name until it executes its own program. If exactly one
    // process's last program has the name, this process is meant.
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
