//! Runs a program with page sizes that it does not ask for itself.
//!
//! ```text
//!   launcher   fork, then waits for every thread that comes of it (ptrace)
//!   program    filter of system calls (seccomp) -> execve -> runs at full speed, but for the calls that map much
//!
//!   mmap of 2M or more     runs; then madvise at the same `syscall`, as if the program had called it
//!   mremap                 likewise; what was moved is collapsed (MADV_COLLAPSE)
//!   mprotect, as arenas grow   the blocks of 2M that are whole now are collapsed
//!   brk                    the real break moves by whole blocks of 2M, and the program is told its own
//!   execve                 the program's bss, text and stack are advised before its first instruction
//!   now and then           blocks that have filled up with base pages are collapsed, as where many small mappings are one
//!   exit, munmap           what was advised is looked at once more: how much of it was large
//! ```
//!
//! The program is never changed: no library is loaded, no code is written. A call is made for it where it has just made
//! one, with its registers put back. Static programs and children are placed as well. If the launcher dies, the kernel
//! kills all that it traces (`PTRACE_O_EXITKILL`): without it, the calls that its filter stops would fail.
//!
//! Processes with a filter of their own, as sandboxes have, are left alone from then on: that filter may end a process
//! that calls `madvise`.

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

/// The size of a page that `madvise` gives on x86-64, in bytes.
const LARGE: u64 = 2 << 20;

/// What a rule is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// The program's writable memory but its stacks: of its files, bss, heap, mmap.
    Data,
    /// Memory without a file that it maps by itself, but for stacks of threads.
    Mmap,
    /// What `brk` grows.
    Heap,
    /// The main thread's stack.
    Stack,
    /// Zero-initialised data beyond a file.
    Bss,
    /// Mappings of files without the right to write.
    Text,
    /// Mappings of the file of this name.
    Lib(String),
    /// Addresses, from the first up to the one behind the last; and mappings elsewhere of that length.
    Range(u64, u64),
}

/// What a rule asks for.
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
    /// What it is for.
    pub what: What,
    /// What it asks for.
    pub wish: Wish,
}

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Rules, the first that fits being the one that counts.
    pub rules: Vec<Rule>,
    /// Variables of the environment for the program.
    pub environment: Vec<Variable>,
    /// Whether what the program executes has them too.
    pub inherit: bool,
    /// Whether the knob `always` is to mean `madvise` for the program (Linux 6.18).
    pub only: bool,
    /// Whether the layout is that of every run, without chance.
    pub fixed: bool,
}

/// A variable of the environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its name.
    pub name: OsString,
    /// Its value, which begins with that of `before` if there is one.
    pub value: OsString,
    /// Its value for everybody else; `None`: it is not set.
    pub before: Option<OsString>,
}
