//! Runs a program with page sizes other than those that it requests itself.
//!
//! ```text
//!   launcher   fork, then waits for the child and for all threads that it starts (ptrace)
//!   program    filter of system calls (seccomp) -> execve -> runs at full speed, except at
//!              the calls that map much
//!
//!   mmap of 2M or more     runs; then madvise at the same `syscall`, as if the program had called it
//!   mremap                 runs; then the moved range is collapsed (MADV_COLLAPSE)
//!   mprotect, as arenas grow   the blocks of 2M that are whole now are collapsed
//!   brk                    the real break moves by whole blocks of 2M; the program gets the break
//!                          that it requested
//!   execve                 the program's bss, text and stack are advised before its first instruction
//!   now and then           blocks that have filled up with base pages are collapsed, as where many small mappings are one
//!   exit, munmap           how much of the advised memory is in large pages is read once more
//! ```
//!
//! The program itself is not changed: no library is loaded, and no code is written. When the
//! program has just made a system call, the launcher makes it execute further calls at the same
//! instruction, and then restores its registers. Programs that are linked statically and children
//! are placed as well. If the launcher dies, the kernel kills all that it traces
//! (`PTRACE_O_EXITKILL`): without the launcher, the calls that its filter stops would fail.
//!
//! When a process installs a filter of its own, as sandboxes do, it is not placed any more: its
//! filter might end the process when it calls `madvise`.

mod filter;
mod live;
mod memory;
mod run;
mod space;
mod start;
mod timer;

use std::ffi::OsString;

pub use crate::inject::may_trace;
pub use live::{collapse, thp_disabled};
pub use run::{Outcome, Usage, place};
pub use space::Got;

/// The size of a page that `madvise` can request on x86-64, in bytes.
const LARGE: u64 = 2 << 20;

/// The memory that a rule applies to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// All writable memory of the program except stacks: writable data of files, bss, heap, and
    /// mappings by `mmap`.
    Data,
    /// Anonymous memory that the program maps, except stacks of threads.
    Mmap,
    /// The heap that `brk` grows.
    Heap,
    /// The main thread's stack.
    Stack,
    /// Zero-initialised data after a file's data.
    Bss,
    /// Mappings of files that are not writable.
    Text,
    /// Mappings of the file of this name.
    Lib(String),
    /// The addresses from the first one up to, but excluding, the second one. If no mapping is
    /// there, a mapping of the same length elsewhere.
    Range(u64, u64),
}

/// The page size that a rule requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// Large pages: `MADV_HUGEPAGE`.
    Large,
    /// Base pages: `MADV_NOHUGEPAGE`.
    Base,
}

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The memory that the rule applies to.
    pub what: What,
    /// The page size that the rule requests.
    pub wish: Wish,
}

/// The program to run, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The rules. The first rule that matches applies.
    pub rules: Vec<Rule>,
    /// Environment variables for the program.
    pub environment: Vec<Variable>,
    /// Whether programs that the program executes get the environment variables too.
    pub inherit: bool,
    /// Whether the system's setting `always` has the effect of `madvise` for this program (Linux
    /// 6.18).
    pub only: bool,
    /// Whether address randomisation is disabled.
    pub fixed: bool,
}

/// An environment variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// The name of the variable.
    pub name: OsString,
    /// The value of the variable. If there is a value `before`, this value begins with it.
    pub value: OsString,
    /// The value that other programs get. `None` if the variable is not set for them.
    pub before: Option<OsString>,
}
