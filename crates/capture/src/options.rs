use std::ffi::OsString;
use std::path::PathBuf;

use serde::de::{Error as _, IntoDeserializer, value};
use serde::{Deserialize, Deserializer};
use trace::{Filter, SurePages};

use crate::Sign;

/// The engine that runs a program while it is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Pagewalk's engine wherever it can record the program, otherwise QEMU.
    #[default]
    Auto,
    /// QEMU's user mode.
    Qemu,
    /// The program's own process, with Pagewalk's engine in it.
    Native,
}

/// Which parts of a program are recorded, and how.
///
/// The options are read from a document that contains all keys. A key is the name of the field, or,
/// if the field has another name for users, that name. Paths and arguments are encoded as
/// [`OsString`] values are, since they need not be text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program and its arguments. A program without a slash is searched in `PATH`.
    pub command: Vec<OsString>,
    /// The producer of the trace, for its header: `pagewalk record 0.1.0`.
    #[serde(skip, default = "producer")]
    pub producer: String,
    /// Whether a fetch is recorded for each block.
    pub fetches: bool,
    /// The filter that drops accesses before they are stored.
    #[serde(deserialize_with = "filter")]
    pub filter: Filter,
    /// The number of accesses of each process to drop before recording begins.
    #[serde(rename = "skip")]
    pub skip_accesses: u64,
    /// The number of accesses of each process to record. After that the process continues
    /// unrecorded, and programs that it starts later are not recorded either.
    #[serde(rename = "max_accesses")]
    pub accesses_max: Option<u64>,
    /// The approximate size of the file in bytes at which recording ends. The programs then
    /// continue unrecorded.
    #[serde(rename = "max_bytes")]
    pub bytes_max: Option<u64>,
    /// The event at which the window begins, in all processes; `skip_accesses` is counted from
    /// there on.
    pub from: Option<Sign>,
    /// The event at which the window ends, in all processes.
    pub to: Option<Sign>,
    /// The number of instructions of each process after which its window ends, at the end of the
    /// block.
    #[serde(rename = "instructions")]
    pub instructions_max: Option<u64>,
    /// The lengths of a window and of a period in accesses: of each process, only the first accesses of each period are
    /// recorded, from `skip_accesses` and `from` on.
    pub sample: Option<[u64; 2]>,
    /// Whether the program is killed after the window has ended: after `accesses_max` accesses of
    /// each process were recorded, or after another end in one process. Otherwise it runs on.
    pub ends: bool,
    /// Whether the program and all that it starts run on one processor of the host.
    pub one_cpu: bool,
    /// Whether child processes, and programs that are executed, are recorded too.
    pub follow: bool,
    /// The process to record: a process identifier, or the name or path of the program that a
    /// process must be running.
    pub process: Option<String>,
    /// Whether file and blocking calls are recorded.
    pub calls: bool,
    /// Whether allocations are marked, by a library that is loaded into each program.
    pub allocations: bool,
    /// Whether the arguments of programs are recorded.
    pub arguments: bool,
    /// Whether snapshots of the page sizes and frames of each process are recorded. A live run records
    /// none.
    pub pages: bool,
    /// Whether the recorder uses only the callbacks of QEMU's plugin interface, even where it could
    /// insert code instead.
    pub callbacks: bool,
    /// The first-level TLBs of the machine that is simulated at the same time. Accesses that are
    /// guaranteed to hit in them need only be counted. All accesses are recorded if this is `None`,
    /// if some accesses are to be left out, or if code cannot be inserted in place of callbacks.
    #[serde(skip)]
    pub sure: Option<SurePages>,
    /// Whether every access is passed to a machine that is simulated at the same time, including
    /// those that need only be counted.
    pub tells_all: bool,
    /// The engine that runs the program.
    #[serde(deserialize_with = "engine")]
    pub engine: Engine,
    /// The file of the engine, for [`Engine::Native`].
    #[serde(deserialize_with = "path")]
    pub engine_path: Option<PathBuf>,
    /// Whether the address space of a natively recorded program is randomised, as without recording.
    pub aslr: bool,
    /// Whether an environment variable names a folder in which programs and libraries are searched
    /// first. Only QEMU supports this.
    pub sysroot: bool,
    /// A QEMU to use in place of `qemu-ARCH` in the folder `qemus`.
    #[serde(deserialize_with = "path")]
    pub qemu: Option<PathBuf>,
    /// The folder with QEMUs that contain the recorder. The environment variable
    /// `PAGEWALK_QEMU_DIR` overrides it.
    #[serde(deserialize_with = "path")]
    pub qemus: Option<PathBuf>,
    /// The builds of the plugin. The first one is for the oldest versions of QEMU. The default is
    /// the builds in the folder of the running program. The environment variable `PAGEWALK_PLUGIN`
    /// overrides them with one file.
    #[serde(deserialize_with = "paths")]
    pub plugins: Vec<PathBuf>,
    /// The folder of the libraries that report allocations. The default is the folder of the
    /// running program.
    #[serde(deserialize_with = "path")]
    pub libraries: Option<PathBuf>,
}

impl Options {
    /// Options for all accesses of `command` and its children.
    pub fn new(command: Vec<OsString>) -> Options {
        Options {
            command,
            producer: producer(),
            fetches: true,
            filter: Filter::None,
            skip_accesses: 0,
            accesses_max: None,
            bytes_max: None,
            from: None,
            to: None,
            instructions_max: None,
            sample: None,
            ends: false,
            one_cpu: false,
            follow: true,
            process: None,
            calls: false,
            allocations: false,
            arguments: true,
            pages: false,
            callbacks: false,
            sure: None,
            tells_all: false,
            engine: Engine::Auto,
            sysroot: false,
            engine_path: None,
            aslr: false,
            qemu: None,
            qemus: None,
            plugins: Vec::new(),
            libraries: None,
        }
    }

    /// If every access must be recorded rather than counted, because a part of the programs'
    /// execution is left out: the reason.
    pub fn must_tell(&self) -> Option<&'static str> {
        let reasons = [
            (!self.fetches, "fetches are left out"),
            (self.filter != Filter::None, "a filter drops accesses"),
            (self.callbacks, "--callbacks is given"),
            (self.allocations, "allocations are marked"),
            (self.calls, "calls are recorded"),
            (self.process.is_some(), "one process is chosen"),
            (
                self.skip_accesses != 0
                    || self.accesses_max.is_some()
                    || self.bytes_max.is_some()
                    || self.sample.is_some()
                    || self.watches(),
                "a window is recorded",
            ),
        ];
        reasons.into_iter().find(|&(holds, _)| holds).map(|(_, why)| why)
    }

    /// Whether the engine leaves out what is outside of the windows, rather than to have it dropped here. Here are seen the
    /// calls of functions that end a window, what a filter keeps, and which process is recorded.
    pub(crate) fn leaves_out(&self) -> bool {
        let begins_late = self.from.is_some() || self.skip_accesses != 0 || self.sample.is_some();
        let ends_outside = matches!(self.to, Some(Sign::Symbol(_)))
            && (self.skip_accesses != 0 || self.sample.is_some());
        let is_of_one = self.process.is_some() && self.sample.is_some();
        begins_late && self.filter == Filter::None && !ends_outside && !is_of_one
    }

    /// Whether windows begin or end with anything other than a number of accesses.
    pub(crate) fn watches(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.instructions_max.is_some()
    }
}

fn producer() -> String {
    concat!("pagewalk record ", env!("CARGO_PKG_VERSION")).to_owned()
}

fn path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(Option::<OsString>::deserialize(from)?.map(PathBuf::from))
}

fn paths<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
    Ok(Vec::<OsString>::deserialize(from)?.into_iter().map(PathBuf::from).collect())
}

fn filter<'de, D: Deserializer<'de>>(from: D) -> Result<Filter, D::Error> {
    named(from, |name| format!("there is no filter `{name}`: choose none or page16"))
}

fn engine<'de, D: Deserializer<'de>>(from: D) -> Result<Engine, D::Error> {
    named(from, |name| format!("there is no engine `{name}`: choose auto, qemu or native"))
}

/// Reads one of several values by its name. `otherwise` returns the error for an unknown name.
fn named<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
    otherwise: impl FnOnce(&str) -> String,
) -> Result<T, D::Error> {
    let name = String::deserialize(from)?;
    let known = T::deserialize(name.clone().into_deserializer());
    known.map_err(|_: value::Error| D::Error::custom(otherwise(&name)))
}

/// The progress of a recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// The number of accesses recorded so far, of all processes.
    pub accesses: u64,
    /// The number of bytes written so far.
    pub bytes: u64,
    /// The number of processes seen so far.
    pub processes: u32,
}

/// The outcome of a recording.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The program's exit status. It is 128 plus the signal's number if a signal ended the program,
    /// and 0 if the program was killed because of [`Options::ends`].
    pub status: i32,
    /// The engine that ran the program, [`Engine::Qemu`] or [`Engine::Native`]. It is QEMU if
    /// ptrace is forbidden, whichever engine was requested.
    pub engine: Engine,
    /// The file and a summary of its contents.
    pub summary: trace::Summary,
    /// The processes in the order in which they began; the first is the program's.
    pub processes: Vec<Recorded>,
    /// Notes on the recording.
    pub notes: Vec<String>,
    /// Missing parts of the recording, with reasons; empty if nothing is missing.
    pub lost: Vec<String>,
}

/// A recorded process.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The process as the recording describes it.
    pub process: trace::Process,
    /// The number of the process's accesses.
    pub accesses: u64,
    /// The number of instructions that made the recorded accesses.
    pub instructions: u64,
}
