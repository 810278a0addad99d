use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::switches::Switches;
use crate::{Batch, Contents, Process};

/// The instruction set of the recorded program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// AMD64.
    X86_64,
    /// 32-bit x86.
    I386,
    /// 32-bit Arm.
    Arm,
    /// 64-bit Arm.
    Aarch64,
    /// 64-bit RISC-V.
    Riscv64,
    /// The instruction set is unknown, or no program made the trace.
    Unknown,
}

impl Arch {
    /// The name that QEMU and Linux use.
    pub const fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86-64",
            Arch::I386 => "i386",
            Arch::Arm => "arm",
            Arch::Aarch64 => "aarch64",
            Arch::Riscv64 => "riscv64",
            Arch::Unknown => "an unknown processor",
        }
    }
}

impl FromStr for Arch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Arch, Error> {
        const KNOWN: [Arch; 5] =
            [Arch::X86_64, Arch::I386, Arch::Arm, Arch::Aarch64, Arch::Riscv64];
        KNOWN.into_iter().find(|arch| arch.name() == text).ok_or_else(|| {
            let names = KNOWN.map(Arch::name).join(", ");
            Error::Parameters(format!("`{text}` is not an instruction set; choose one of {names}"))
        })
    }
}

/// Which accesses were dropped before the trace was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// None: the trace holds all accesses.
    #[default]
    None,
    /// Accesses to pages that are in a direct-mapped filter of 16 entries for 4K pages; there is
    /// one filter for fetches and one for data. The first store to a page in the filter is kept.
    /// The result is exact for every set-associative LRU TLB of at least 16 sets that is indexed by
    /// the low page-number bits.
    Page16,
}

/// Data about a trace that are known before its first access.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// The program that made the trace, such as `pagewalk record 0.1.0`, `pagewalk generate 0.1.0`
    /// or an importer.
    pub producer: String,
    /// The recorded command line or the generator's parameters.
    pub command: Vec<String>,
    /// The program's instruction set.
    pub arch: Arch,
    /// Whether blocks of instructions are rows of kind fetch.
    pub fetches: bool,
    /// The filter that dropped accesses when the trace was recorded.
    pub filter: Filter,
    /// The system's base page in bytes.
    pub page_bytes: u64,
    /// Notes for readers of results, for example that only a window of the program was recorded.
    pub notes: Vec<String>,
    /// In a trace of a whole machine: addresses from this address on are the kernel's and belong to
    /// the space [`crate::KERNEL`], whichever space runs. A reader adds events
    /// ([`crate::Event::Run`]) in place of this field, so the headers of sources do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_from: Option<u64>,
}

/// Everything that supplies accesses in order.
pub trait Source {
    /// The data that are known before the first access.
    fn header(&self) -> &Header;

    /// Replaces the contents of `batch` by the next accesses, at most some ten thousand, and
    /// returns whether there were any. If it returns `false`, the batch has no accesses, but may
    /// have the last events of the trace.
    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error>;

    /// Answers the last batch, which [asks](Batch::asks) for the contents of the first-level TLBs for fetches
    /// and for data; `None` if they cannot be given.
    fn answer(&mut self, contents: Option<[Contents; 2]>) {
        drop(contents);
    }

    /// Gives `go_on` to a source that may wait for input, for example from a pipe. The source calls
    /// it from time to time; if it returns false, waiting ends with [`Error::Interrupted`].
    fn while_waiting(&mut self, go_on: Box<dyn FnMut() -> bool + Send>) {
        drop(go_on);
    }

    /// The total number of accesses, if it is known before the end.
    fn total(&self) -> Option<u64> {
        None
    }

    /// How the trace is stored, if it is in a file of our format.
    fn stored(&self) -> Option<Stored> {
        None
    }

    /// The processes of a recording, in the order of their numbers; empty for other traces. The
    /// processes of a running program become known when they begin.
    fn processes(&self) -> &[Process] {
        &[]
    }

    /// Warnings for readers of results that became known while reading, in addition to the notes in
    /// the header: for example damage that was skipped, or a defect of the tool that wrote the
    /// trace. They are complete only at the end.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// The counts of switches between programs so far, for a mix of several programs.
    fn switches(&self) -> Option<Switches> {
        None
    }

    /// Whether the source is the complete recording of a whole system.
    fn is_system(&self) -> bool {
        self.header().kernel_from.is_some()
    }

    /// A digest of the contents as 64 hexadecimal digits. It is available at the end or, for a
    /// stored trace, from the start.
    fn digest(&self) -> Option<String> {
        None
    }

    /// If the trace has translations ([`crate::Event::Translation`]): a second source of the same
    /// trace, from its beginning, for users that must know what a later event says about a page.
    /// `None` if the trace has no translations or can be read only once.
    fn foretold(&self) -> Option<Box<dyn Source + Send>> {
        None
    }
}

/// A source that passes on the accesses of another source, and examines them or changes their
/// order. For methods that it does not define, the methods of the other source are used.
pub trait Forward {
    /// The source whose accesses are passed on.
    fn source(&self) -> &dyn Source;

    /// Mutable access to the source whose accesses are passed on, to read from it.
    fn source_mut(&mut self) -> &mut dyn Source;

    /// The implementation of [`Source::next`] of this source.
    fn forward(&mut self, batch: &mut Batch) -> Result<bool, Error>;

    /// The implementation of [`Source::warnings`] of this source.
    fn remarks(&self) -> &[String] {
        self.source().warnings()
    }
}

impl<F: Forward> Source for F {
    fn header(&self) -> &Header {
        self.source().header()
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        self.forward(batch)
    }

    fn answer(&mut self, contents: Option<[Contents; 2]>) {
        self.source_mut().answer(contents);
    }

    fn while_waiting(&mut self, go_on: Box<dyn FnMut() -> bool + Send>) {
        self.source_mut().while_waiting(go_on);
    }

    fn total(&self) -> Option<u64> {
        self.source().total()
    }

    fn stored(&self) -> Option<Stored> {
        self.source().stored()
    }

    fn processes(&self) -> &[Process] {
        self.source().processes()
    }

    fn warnings(&self) -> &[String] {
        self.remarks()
    }

    fn switches(&self) -> Option<Switches> {
        self.source().switches()
    }

    fn is_system(&self) -> bool {
        self.source().is_system()
    }

    fn digest(&self) -> Option<String> {
        self.source().digest()
    }

    fn foretold(&self) -> Option<Box<dyn Source + Send>> {
        self.source().foretold()
    }
}

/// How a trace is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    /// The length of the trace's file in bytes.
    pub bytes: u64,
    /// The number of the trace's chunks.
    pub chunks: u64,
    /// Whether there are physical addresses, or translations that may give them.
    pub is_located: bool,
}

/// An error with a trace: what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused to read or write.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error that the system returned.
        error: std::io::Error,
    },
    /// The contents of the file are invalid.
    #[error("{path}: {what} (at byte {offset}{within})")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The offset of the error.
        offset: u64,
        /// Empty, or what the offset is relative to if it is not the file itself.
        within: &'static str,
        /// A description of the error, and advice.
        what: String,
    },
    /// Invalid parameters of a trace.
    #[error("{0}")]
    Parameters(String),
    /// A table that this crate cannot read: Parquet, which the Python side reads.
    #[error(
        "{0}: this is a Parquet file, which this library cannot read; use the `pagewalk` command, \
         which can"
    )]
    Table(PathBuf),
    /// The recorded program or its recorder failed.
    #[error("{0}")]
    Recorder(String),
    /// A progress callback requested a stop.
    #[error("interrupted")]
    Interrupted,
}
