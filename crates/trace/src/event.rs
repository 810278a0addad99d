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
    /// The kernel's code of a context switch was traced and follows: to a thread of another
    /// process, or of the same.
    ContextSwitch { process: bool },
    /// Accesses and instructions that are not in the trace: skipped, filtered or lost.
    Gap { accesses: u64, instructions: u64 },
}

impl Event {
    /// The type's name, as it is stored.
    pub const fn name(&self) -> &'static str {
        match self {
            Event::Mapping { .. } => "mapping",
            Event::Mmap { .. } => "mmap",
            Event::Munmap { .. } => "munmap",
            Event::Mprotect { .. } => "mprotect",
            Event::Mremap { .. } => "mremap",
            Event::Brk { .. } => "brk",
            Event::Madvise { .. } => "madvise",
            Event::Clone { .. } => "clone",
            Event::Fork { .. } => "fork",
            Event::Execve { .. } => "execve",
            Event::Exit { .. } => "exit",
            Event::ThreadStart { .. } => "thread-start",
            Event::ThreadEnd => "thread-end",
            Event::Switch { .. } => "switch",
            Event::ContextSwitch { .. } => "context-switch",
            Event::Gap { .. } => "gap",
        }
    }

    /// Whether it says what is mapped where.
    pub const fn changes_mappings(&self) -> bool {
        matches!(
            self,
            Event::Mapping { .. }
                | Event::Mmap { .. }
                | Event::Munmap { .. }
                | Event::Mprotect { .. }
                | Event::Mremap { .. }
                | Event::Brk { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_are_stored() {
        let (addr, bytes, result, prot, flags) = (1, 2, -3, 4, 5);
        let events = [
            Event::Mapping { start: addr, bytes, rights: 7, origin: Origin::Other("x".to_owned()) },
            Event::Mmap { addr, bytes, prot, flags, fd: -1, offset: 0, path: None, result },
            Event::Munmap { addr, bytes, result },
            Event::Mprotect { addr, bytes, prot, result },
            Event::Mremap { addr, old_bytes: 1, new_bytes: 2, flags, new_addr: 3, result },
            Event::Brk { addr, result },
            Event::Madvise { addr, bytes, advice: 4, result },
            Event::Clone { flags: 1, stack: 2, result },
            Event::Fork { result },
            Event::Execve { path: "/bin/\u{e4}\"\n".to_owned(), result },
            Event::Exit { status: -1, group: true },
            Event::ThreadStart { tid: i64::MAX },
            Event::ThreadEnd,
            Event::Switch { space: 1 },
            Event::ContextSwitch { process: true },
            Event::Gap { accesses: u64::MAX, instructions: 0 },
        ];
        for event in events {
            let json = serde_json::to_value(&event).unwrap();
            assert_eq!(json["event"], event.name());
            assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event);
        }
    }
}
