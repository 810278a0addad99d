use serde::{Deserialize, Serialize};

/// What stands behind a mapping that existed before the first access.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Part of a file: the program, its interpreter.
    File(String),
    /// The main thread's stack.
    Stack,
    /// What `brk` grows.
    Heap,
    /// The program's zero-initialised data beyond its file.
    Bss,
    /// Anything else, by the name the system gives it.
    Other(String),
}

/// What the operating system was asked, or what a recorder or importer wants known.
///
/// System calls carry Linux's generic arguments and the raw result: the value, or minus the
/// errno. Addresses and lengths are bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
#[allow(missing_docs, reason = "the fields are the arguments of the system calls")]
pub enum Event {
    /// A mapping that existed when recording began. `rights`: read 1, write 2, execute 4.
    Mapping { start: u64, bytes: u64, rights: u8, origin: Origin },
    /// `mmap`; `path` names the file of `fd` where there is one.
    Mmap {
        addr: u64,
        bytes: u64,
        prot: u32,
        flags: u32,
        fd: i32,
        offset: u64,
        path: Option<String>,
        result: i64,
    },
    /// `munmap`.
    Munmap { addr: u64, bytes: u64, result: i64 },
    /// `mprotect`.
    Mprotect { addr: u64, bytes: u64, prot: u32, result: i64 },
    /// `mremap`; `result` is the new address.
    Mremap { addr: u64, old_bytes: u64, new_bytes: u64, flags: u32, new_addr: u64, result: i64 },
    /// `brk`; `result` is the new break.
    Brk { addr: u64, result: i64 },
    /// `madvise`.
    Madvise { addr: u64, bytes: u64, advice: u32, result: i64 },
    /// `clone` of a thread; `result` is its number at the operating system.
    Clone { flags: u64, stack: u64, result: i64 },
    /// `fork` or `vfork`, or a `clone` that made a process; `result` is its process number.
    Fork { result: i64 },
    /// `execve`; it comes last in a trace when it succeeds.
    Execve { path: String, result: i64 },
    /// `exit` (`group` false) or `exit_group`.
    Exit { status: i32, group: bool },
    /// The thread that the event belongs to begins; `tid` is its number at the system.
    ThreadStart { tid: i64 },
    /// The thread that the event belongs to has ended.
    ThreadEnd,
    /// From here on the accesses are of another address space.
    Switch { space: u32 },
    /// Accesses and instructions that are not in the trace: skipped, filtered or lost.
    Gap { accesses: u64, instructions: u64 },
}
