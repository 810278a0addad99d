//! What can go wrong in a machine: its description, the trace, or Pagewalk itself.

/// What went wrong, whose fault it was, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such machine, or its file cannot be read.
    #[error("{0}")]
    NotFound(String),
    /// The description is wrong: file, line and key.
    #[error("{origin}:{line}: {what}")]
    Description {
        /// The file.
        origin: String,
        /// The line in it, from 1.
        line: usize,
        /// The key and what is wrong with it.
        what: String,
    },
    /// A built-in machine cannot be built with the settings that were given.
    #[error(
        "the built-in machine {name}{}: {what} (line {line} of what `pagewalk machines {name}` \
         prints)",
        with(settings)
    )]
    BuiltIn {
        /// Its name.
        name: String,
        /// The line of the key in its text, from 1.
        line: usize,
        /// All settings that were given.
        settings: Vec<String>,
        /// The key and what is wrong with it.
        what: String,
    },
    /// A `--set` is wrong.
    #[error("--set {setting}: {what}")]
    Setting {
        /// The setting as given.
        setting: String,
        /// What is wrong with it.
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
        /// Index of the access that needed a frame.
        access: u64,
        /// Size of the physical memory.
        frames_bytes: u64,
    },
    /// The memory of a virtual machine's host is full.
    #[error(
        "the host is out of memory at access {access}: give it more with --set nested.memory=..."
    )]
    OutOfHostFrames {
        /// Index of the access that needed a frame.
        access: u64,
    },
    /// A schedule has more processors than the machine.
    #[error(
        "the trace's schedule is for {cpus} processors and the machine has {count} (core.count): \
         give it as many with --set core.count={cpus}, or schedule the trace for fewer \
         (mix:cpus={count},...)"
    )]
    Processors {
        /// Those of the schedule.
        cpus: u32,
        /// Those of the machine.
        count: u32,
    },
    /// An address that the page table's format cannot map.
    #[error("access {access}: {what}")]
    Access {
        /// Index of the access.
        access: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A translation that contradicts the page table, or counts that contradict each other:
    /// a mistake in Pagewalk itself, found by checking.
    #[error("check failed: {0}")]
    Check(String),
    /// A place rule that nothing was mapped for.
    #[error(
        "os.place: {0}: `pagewalk info TRACE` lists the names of regions; correct the rule, or \
         leave it out"
    )]
    Place(String),
    /// A curve that cannot be counted.
    #[error("{0}")]
    Curve(String),
    /// The progress callback asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// The settings as a command line has them.
fn with(settings: &[String]) -> String {
    let each = settings.iter().map(|setting| format!(" --set {setting}")).collect::<String>();
    if each.is_empty() { each } else { format!(" with{each}") }
}
