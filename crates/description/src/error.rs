//! The errors of a run: in the machine's description, in the trace, or in Pagewalk itself.

/// An error. Its text states the fault, the input that has it, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no machine of the given name, or its file cannot be read.
    #[error("{0}")]
    NotFound(String),
    /// The description is wrong at a key.
    #[error("{origin}:{line}: {what}")]
    Description {
        /// The name of the file.
        origin: String,
        /// The line in the file, from 1.
        line: usize,
        /// The key and the reason for which it is wrong.
        what: String,
    },
    /// A built-in machine cannot be built with the given settings.
    #[error(
        "the built-in machine {name}{}: {what} (line {line} of the output of `pagewalk machines \
         {name}`)",
        with(settings)
    )]
    BuiltIn {
        /// The name of the machine.
        name: String,
        /// The line of the key in the machine's text, from 1.
        line: usize,
        /// All given settings.
        settings: Vec<String>,
        /// The key and the reason for which it is wrong.
        what: String,
    },
    /// A `--set` argument is wrong.
    #[error("--set {setting}: {what}")]
    Setting {
        /// The setting as the user gave it.
        setting: String,
        /// Why the setting is wrong.
        what: String,
    },
    /// The trace could not be read.
    #[error(transparent)]
    Trace(#[from] trace::Error),
    /// The machine's physical memory is full.
    #[error(
        "out of memory at access {access}: all {frames_bytes} bytes of frames are in use; \
         give the machine more with --set memory.size=..."
    )]
    OutOfFrames {
        /// The index of the access that needed a frame.
        access: u64,
        /// The size of physical memory in bytes.
        frames_bytes: u64,
    },
    /// The memory of a virtual machine's host is full.
    #[error(
        "the host is out of memory at access {access}: give it more with --set nested.memory=..."
    )]
    OutOfHostFrames {
        /// The index of the access that needed a frame.
        access: u64,
    },
    /// The trace's schedule has more processors than the machine.
    #[error(
        "the trace's schedule is for {cpus} processors, but the machine has {count} (core.count): \
         write --set core.count={cpus}, or schedule the trace for fewer processors \
         (mix:cpus={count},...)"
    )]
    Processors {
        /// The number of processors in the schedule.
        cpus: u32,
        /// The number of processors in the machine.
        count: u32,
    },
    /// An access to an address that the page table's format cannot map.
    #[error("access {access}: {what}")]
    Access {
        /// The index of the access.
        access: u64,
        /// Why the access cannot be translated.
        what: String,
    },
    /// A translation differs from the page table, or counts contradict each other: an error of
    /// Pagewalk itself, found by its checks.
    #[error("check failed: {0}")]
    Check(String),
    /// A place rule that matched no mapping of the trace.
    #[error(
        "os.place: {0}: `pagewalk info TRACE` lists the names of regions; correct the rule, or \
         leave it out"
    )]
    Place(String),
    /// The curve cannot be computed with the given options.
    #[error("{0}")]
    Curve(String),
    /// The progress function requested that the work ends.
    #[error("interrupted")]
    Interrupted,
}

/// The settings as options of a command line.
fn with(settings: &[String]) -> String {
    let each = settings.iter().map(|setting| format!(" --set {setting}")).collect::<String>();
    if each.is_empty() { each } else { format!(" with{each}") }
}
