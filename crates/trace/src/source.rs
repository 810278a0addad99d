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
    /// Not known, or not a program at all.
    Unknown,
}

impl Arch {
    /// The name by which QEMU and Linux know it.
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
    /// Accesses to the page that a 16-entry direct-mapped filter of 4K pages held, one filter
    /// for fetches and one for data; the first store to a held page is kept. Exact for every
    /// set-associative LRU TLB of at least 16 sets that is indexed by the low page-number bits.
    Page16,
}

/// What a trace says about itself before its first access.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// Who made it: `pagewalk record 0.1.0`, `pagewalk generate 0.1.0`, an importer.
    pub producer: String,
    /// The recorded command line or the generator's parameters.
    pub command: Vec<String>,
    /// The program's instruction set.
    pub arch: Arch,
    /// Whether blocks of instructions are rows of kind fetch.
    pub fetches: bool,
    /// What was left out.
    pub filter: Filter,
    /// The system's base page in bytes.
    pub page_bytes: u64,
    /// What the reader of a result must know: the layout is QEMU's, a window was taken.
    pub notes: Vec<String>,
}

/// Anything that gives accesses in order.
pub trait Source {
    /// What is known before the first access.
    fn header(&self) -> &Header;

    /// Replaces `batch` with the next accesses, at most some ten thousands of them, and says
    /// whether there were any. After `false` the batch is empty but may hold last events.
    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error>;

    /// Answers the last batch, which [asks](Batch::asks): what the first TLBs hold for fetches and for data, if that
    /// can be said.
    fn answer(&mut self, contents: Option<[Contents; 2]>) {
        drop(contents);
    }

    /// Gives `go_on` to a source that may wait for somebody else, a pipe for instance: it is
    /// asked now and then, and its `false` ends the waiting with [`Error::Interrupted`].
    fn while_waiting(&mut self, go_on: Box<dyn FnMut() -> bool + Send>) {
        drop(go_on);
    }

    /// Accesses in all, where that is known before the end.
    fn total(&self) -> Option<u64> {
        None
    }

    /// How it is kept, for a trace in a file of this crate's format.
    fn stored(&self) -> Option<Stored> {
        None
    }

    /// The processes of a recording, in the order of their numbers; empty for other traces. Those
    /// of a program that runs are known once they come.
    fn processes(&self) -> &[Process] {
        &[]
    }

    /// What became known on the way and the reader of a result must know besides the header's
    /// notes: damage that was left out, a fault of the tool that wrote the trace. Complete once
    /// all has been given.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// How a mix of several programs switched between them, so far.
    fn switches(&self) -> Option<Switches> {
        None
    }

    /// A digest of the contents as 64 hexadecimal digits, once all has been given; a stored
    /// trace has it from the start.
    fn digest(&self) -> Option<String> {
        None
    }
}

/// A source that hands on what another gives, and looks at it or changes its order on the way. What it does not say
/// itself, the other one says.
pub trait Forward {
    /// The other source.
    fn source(&self) -> &dyn Source;

    /// The other source, to be read.
    fn source_mut(&mut self) -> &mut dyn Source;

    /// [`Source::next`] of this source.
    fn forward(&mut self, batch: &mut Batch) -> Result<bool, Error>;
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
        self.source().warnings()
    }

    fn switches(&self) -> Option<Switches> {
        self.source().switches()
    }

    fn digest(&self) -> Option<String> {
        self.source().digest()
    }
}

/// Where a trace is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Length of its file in bytes.
    pub bytes: u64,
    /// Chunks in it.
    pub chunks: u64,
}

/// What went wrong with a trace: what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused to read or write.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{path}: {what} (at byte {offset}{within})")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// Empty, or what the bytes were counted in if that is not the file itself.
        within: &'static str,
        /// What is wrong and what to do about it.
        what: String,
    },
    /// Parameters that make no trace.
    #[error("{0}")]
    Parameters(String),
    /// A table that only somebody else can read: Parquet, which the Python side does.
    #[error("{0}: a Parquet file, which is not read here; the `pagewalk` command does")]
    Table(PathBuf),
    /// The recorded program or its recorder failed.
    #[error("{0}")]
    Recorder(String),
    /// A progress callback asked to stop.
    #[error("interrupted")]
    Interrupted,
}
