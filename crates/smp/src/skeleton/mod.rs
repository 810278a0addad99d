//! Skeletons of recorded programs: what a program asks memory management for, and how long it works
//! in between. A few KB a process.
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
//! Which first touch is a fault, and of what kind, is for the memory manager to find: a page of a file
//! may be in memory already, a store after a fork may need a copy.

mod collect;
mod text;

pub use self::{collect::collect, text::parse};

use core::fmt;

/// What processes of a recording have done, in the numbers of the recording; the first has no parent
/// among them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Skeleton {
    /// The files that they map, by name.
    pub files: Vec<String>,
    /// Processes, by their numbers.
    pub processes: Vec<Process>,
}

/// A process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Process {
    /// The program that it ran last.
    pub name: String,
    /// Whether it uses its parent's space until it executes a program.
    pub shares_space: bool,
    /// What it did.
    pub steps: Vec<Step>,
}

/// What a process does. Pages are 4 KiB, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// These pages are there from here on, in place of what was. Rights: read 1, write 2, execute 4.
    Map {
        /// The first.
        page: u64,
        /// How many.
        pages: u64,
        /// What may be done there.
        rights: u8,
        /// What is behind them.
        backing: Backing,
    },
    /// They are gone.
    Unmap {
        /// The first.
        page: u64,
        /// How many.
        pages: u64,
    },
    /// They have these rights.
    Protect {
        /// The first.
        page: u64,
        /// How many.
        pages: u64,
        /// What may be done there.
        rights: u8,
    },
    /// Their contents are needed no more.
    Discard {
        /// The first.
        page: u64,
        /// How many.
        pages: u64,
    },
    /// They are elsewhere.
    Move {
        /// The first.
        page: u64,
        /// How many.
        pages: u64,
        /// The first there.
        to: u64,
        /// How many there.
        to_pages: u64,
    },
    /// Each of these pages is used for the first time, or stored to for the first time.
    Touch {
        /// The first.
        page: u64,
        /// How many.
        pages: u64,
        /// How.
        kind: addr::Kind,
    },
    /// So many instructions.
    Work(u64),
    /// A process begins, by its number; its parent waits until it has ended.
    Fork(u32),
    /// The space is empty: another program begins.
    Exec,
}

/// What is behind a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Zeros of its own.
    Anonymous,
    /// Zeros that a child shares.
    Shared,
    /// A file.
    File {
        /// Which of the skeleton's.
        number: u32,
        /// Its page that the mapping begins with.
        first: u64,
        /// Whether stores change it.
        shared: bool,
    },
}

impl Skeleton {
    /// Steps of all processes.
    pub fn steps(&self) -> usize {
        self.processes.iter().map(|process| process.steps.len()).sum()
    }

    /// Instructions of all processes.
    pub fn instructions(&self) -> u64 {
        let steps = self.processes.iter().flat_map(|process| &process.steps);
        steps.map(|step| if let Step::Work(instructions) = step { *instructions } else { 0 }).sum()
    }
}

/// As lines of text; the last one says how many there are, so that a file that was cut is known.
impl fmt::Display for Skeleton {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(self, f)
    }
}
