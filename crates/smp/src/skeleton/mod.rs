//! Skeletons of recorded programs. A skeleton has the requests of each process to the memory
//! manager, and the work of the process between the requests, in a few KB per process.
//!
//! ```text
//!   trace        events, and 10^6 to 10^9 accesses
//!     | collect: of the accesses only the first to each page, and the first store
//!     v
//!   skeleton     map  touch  work 5200  touch  fork 1  ...  exit        lines of text
//!     | replay
//!     v
//!   vm::Kernel   calls and faults, on processors of virtual time
//! ```
//!
//! The memory manager decides during replay whether a first touch is a fault, and which kind of
//! fault: a page of a file may already be in memory, and a store after a fork may have to copy the
//! page.

mod collect;
mod text;

pub use self::{collect::collect, text::parse};

use core::fmt;

/// The actions of the processes in a recording. Processes have the numbers of the recording. The
/// first process has no parent in the recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Skeleton {
    /// The names of the files that processes map.
    pub files: Vec<String>,
    /// The processes, by number.
    pub processes: Vec<Process>,
}

/// A process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Process {
    /// The name of the program that the process executed last.
    pub name: String,
    /// Whether the process uses its parent's space until it executes a program (`vfork`).
    pub shares_space: bool,
    /// The actions of the process, in order.
    pub steps: Vec<Step>,
}

/// An action of a process. Pages are 4 KiB and are given by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Maps pages in place of earlier mappings at these addresses. Rights are a sum of: read 1,
    /// write 2, execute 4.
    Map {
        /// The first page.
        page: u64,
        /// The number of pages.
        pages: u64,
        /// The rights to the pages.
        rights: u8,
        /// The source of the pages' contents.
        backing: Backing,
    },
    /// Unmaps pages.
    Unmap {
        /// The first page.
        page: u64,
        /// The number of pages.
        pages: u64,
    },
    /// Changes the rights to pages.
    Protect {
        /// The first page.
        page: u64,
        /// The number of pages.
        pages: u64,
        /// The new rights to the pages.
        rights: u8,
    },
    /// Discards the contents of pages.
    Discard {
        /// The first page.
        page: u64,
        /// The number of pages.
        pages: u64,
    },
    /// Moves pages to other addresses.
    Move {
        /// The first page of the old range.
        page: u64,
        /// The number of pages in the old range.
        pages: u64,
        /// The first page of the new range.
        to: u64,
        /// The number of pages in the new range.
        to_pages: u64,
    },
    /// Accesses each of these pages for the first time, or stores to each page for the first time.
    Touch {
        /// The first page.
        page: u64,
        /// The number of pages.
        pages: u64,
        /// The kind of access.
        kind: addr::Kind,
    },
    /// Executes this number of instructions.
    Work(u64),
    /// Forks the process of this number, and waits until this child has ended.
    Fork(u32),
    /// Executes another program, in an empty space.
    Exec,
}

/// The source of the contents of a mapping's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Private zero-filled memory.
    Anonymous,
    /// Zero-filled memory that is shared with children.
    Shared,
    /// A file.
    File {
        /// The index of the file in the skeleton.
        number: u32,
        /// The page of the file at which the mapping begins.
        first: u64,
        /// Whether stores change the file (a shared mapping).
        shared: bool,
    },
}

impl Skeleton {
    /// The number of steps of all processes.
    pub fn steps(&self) -> usize {
        self.processes.iter().map(|process| process.steps.len()).sum()
    }

    /// The number of instructions of all processes.
    pub fn instructions(&self) -> u64 {
        let steps = self.processes.iter().flat_map(|process| &process.steps);
        steps.map(|step| if let Step::Work(instructions) = step { *instructions } else { 0 }).sum()
    }
}

/// The skeleton as lines of text. The last line has the number of lines, so that a truncated file
/// is detected.
impl fmt::Display for Skeleton {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(self, f)
    }
}
