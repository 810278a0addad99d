use std::ffi::OsString;
use std::path::PathBuf;

use serde::de::{Error as _, IntoDeserializer, value};
use serde::{Deserialize, Deserializer};
use trace::{Filter, SurePages};

use crate::Sign;

/// What a program runs in while it is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// QEMU's user mode.
    #[default]
    Qemu,
    /// Its own process, with Pagewalk's engine in it.
    Native,
}

/// What to record and how.
///
/// It is read from a document with all keys; a key is the field's name, or the one beside it, by which users
/// know it. Paths and arguments are those of [`OsString`], as they need not be text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The program and its arguments. A program without a slash is looked for in `PATH`.
    pub command: Vec<OsString>,
    /// Who makes the trace, as its header tells: `pagewalk record 0.1.0`.
    #[serde(skip, default = "producer")]
    pub producer: String,
    /// Whether a fetch row is recorded for each block.
    pub fetches: bool,
    /// What is dropped before anything is stored.
    #[serde(deserialize_with = "filter")]
    pub filter: Filter,
    /// Accesses of each process to drop before recording begins.
    #[serde(rename = "skip")]
    pub skip_accesses: u64,
    /// Accesses of each process to record; after them it runs on unrecorded, and so do the
    /// programs that it starts from then on.
    #[serde(rename = "max_accesses")]
    pub accesses_max: Option<u64>,
    /// Bytes of the file, about, after which recording ends; the programs run on.
    #[serde(rename = "max_bytes")]
    pub bytes_max: Option<u64>,
    /// What the window begins with, in all processes; `skip_accesses` count from there on.
    pub from: Option<Sign>,
    /// What it ends with, in all processes.
    pub to: Option<Sign>,
    /// Instructions of each process after which its window ends, with the block that they end in.
    #[serde(rename = "instructions")]
    pub instructions_max: Option<u64>,
    /// Whether the program is killed once the window has ended: instead of running on once
    /// `accesses_max` are recorded, of all processes, or another end has come in one.
    pub ends: bool,
    /// Whether the program and what it starts run on one processor of the host.
    pub one_cpu: bool,
    /// Whether children, forked or executed, are recorded too.
    pub follow: bool,
    /// Records only processes of that number at the system, or while they run a program of that
    /// name or path.
    pub process: Option<String>,
    /// Whether file and blocking calls are recorded.
    pub calls: bool,
    /// Whether allocations are marked, by a library that is loaded into each program.
    pub allocations: bool,
    /// Whether the arguments of programs are recorded.
    pub arguments: bool,
    /// Whether the recorder uses nothing but the callbacks of QEMU's plugin interface, even where
    /// it could do without them.
    pub callbacks: bool,
    /// Which accesses need only be counted, as they surely hit the machine that runs beside; all are told
    /// if it is `None`, where something is left out, and where code cannot be written in place of callbacks.
    #[serde(skip)]
    pub sure: Option<SurePages>,
    /// Whether a machine that runs beside is told each access, also those that need only be counted.
    pub tells_all: bool,
    /// What the program runs in.
    #[serde(deserialize_with = "engine")]
    pub engine: Engine,
    /// The file of the engine, for [`Engine::Native`].
    #[serde(deserialize_with = "path")]
    pub engine_path: Option<PathBuf>,
    /// Whether the program that the engine is in gets a layout by chance, as without it.
    pub aslr: bool,
    /// Another QEMU to record in than `qemu-ARCH` in the folder `qemus`.
    #[serde(deserialize_with = "path")]
    pub qemu: Option<PathBuf>,
    /// The folder of QEMUs with the recorder inside. The folder that the environment variable
    /// `PAGEWALK_QEMU_DIR` names takes its place.
    #[serde(deserialize_with = "path")]
    pub qemus: Option<PathBuf>,
    /// The builds of the plugin, that for the oldest QEMUs first; by default those beside the
    /// running program. The file that the environment variable `PAGEWALK_PLUGIN` names takes
    /// their place.
    #[serde(deserialize_with = "paths")]
    pub plugins: Vec<PathBuf>,
    /// Where the libraries are that mark allocations; by default the folder of the running program.
    #[serde(deserialize_with = "path")]
    pub libraries: Option<PathBuf>,
}

impl Options {
    /// Everything of `command`, and its children.
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
            ends: false,
            one_cpu: false,
            follow: true,
            process: None,
            calls: false,
            allocations: false,
            arguments: true,
            callbacks: false,
            sure: None,
            tells_all: false,
            engine: Engine::Qemu,
            engine_path: None,
            aslr: false,
            qemu: None,
            qemus: None,
            plugins: Vec::new(),
            libraries: None,
        }
    }

    /// Why no access may be counted in place of being told, if there is a reason: what is recorded is not
    /// all that the programs do.
    pub fn must_tell(&self) -> Option<&'static str> {
        let reasons = [
            (!self.fetches, "fetches are left out"),
            (self.filter != Filter::None, "a filter drops accesses"),
            (self.callbacks, "the recorder keeps to callbacks"),
            (self.allocations, "allocations are marked"),
            (self.calls, "calls are recorded"),
            (self.process.is_some(), "one process is chosen"),
            (
                self.skip_accesses != 0
                    || self.accesses_max.is_some()
                    || self.bytes_max.is_some()
                    || self.watches(),
                "a window is recorded",
            ),
        ];
        reasons.into_iter().find(|&(holds, _)| holds).map(|(_, why)| why)
    }

    /// Whether windows end or begin with more than a number of accesses.
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
    named(from, |name| format!("there is no engine `{name}`: choose qemu or native"))
}

/// One of several by its name; `otherwise` says which there are.
fn named<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
    otherwise: impl FnOnce(&str) -> String,
) -> Result<T, D::Error> {
    let name = String::deserialize(from)?;
    let known = T::deserialize(name.clone().into_deserializer());
    known.map_err(|_: value::Error| D::Error::custom(otherwise(&name)))
}

/// How far a recording is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Accesses recorded so far, of all processes.
    pub accesses: u64,
    /// Bytes written so far.
    pub bytes: u64,
    /// Processes seen so far.
    pub processes: u32,
}

/// What was recorded.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The program's exit status; 128 and the signal's number if one has ended it; 0 if it was killed because
    /// [`Options::ends`] asks for it.
    pub status: i32,
    /// What the program ran in: QEMU where ptrace is forbidden, whatever was asked for.
    pub engine: Engine,
    /// The file and what is in it.
    pub summary: trace::Summary,
    /// The processes in the order in which they began; the first is the program's.
    pub processes: Vec<Recorded>,
    /// What is good to know of how it was recorded.
    pub notes: Vec<String>,
    /// What is missing, and why; empty if nothing is.
    pub lost: Vec<String>,
}

/// One process.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What the recording says of it.
    pub process: trace::Process,
    /// Its accesses.
    pub accesses: u64,
    /// Instructions that they count.
    pub instructions: u64,
}
