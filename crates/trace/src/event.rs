use serde::{Deserialize, Serialize};

use crate::translation::{KnownSizes, Translation, When};
use crate::{Call, FileId};

/// What backs a mapping that existed before the first access.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Part of a file: the program, its interpreter.
    File(String),
    /// The main thread's stack.
    Stack,
    /// The memory that `brk` extends.
    Heap,
    /// The program's zero-initialised data that is not in its file.
    Bss,
    /// Anything else, with the name that the system gives it.
    Other(String),
}

/// The number of the space for the kernel's own accesses. The kernel's addresses do not depend on
/// which program runs, and entering the kernel is not a switch of spaces.
pub const KERNEL: u32 = u32::MAX;

/// Linux's flag for a child that shares its parent's address space.
pub const CLONE_VM: u64 = 0x100;

/// A request to the operating system, or information from a recorder or importer.
///
/// System calls have Linux's generic arguments and the raw result: the value, or minus the errno.
/// Addresses and lengths are in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
#[allow(missing_docs, reason = "the fields are the arguments of the system calls")]
pub enum Event {
    /// A mapping that existed when recording began, or after an [`Event::Execve`]. `rights`: read
    /// 1, write 2, execute 4. `offset` is the position in the file at which the mapping begins.
    Mapping {
        start: u64,
        bytes: u64,
        rights: u8,
        origin: Origin,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<FileId>,
    },
    /// `mmap`; `path` and `file` identify the file of `fd`, if there is one.
    Mmap {
        addr: u64,
        bytes: u64,
        prot: u32,
        flags: u32,
        fd: i32,
        offset: u64,
        path: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<FileId>,
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
    /// `process_madvise` for the process itself or for another one, identified by `pidfd`.
    ProcessMadvise { pidfd: i32, ranges: u64, ranges_count: u64, advice: u32, result: i64 },
    /// `mlock`, and `mlock2` with its `flags`.
    Mlock { addr: u64, bytes: u64, flags: u32, result: i64 },
    /// `munlock`.
    Munlock { addr: u64, bytes: u64, result: i64 },
    /// `mlockall`.
    Mlockall { flags: u32, result: i64 },
    /// `munlockall`.
    Munlockall { result: i64 },
    /// `msync`.
    Msync { addr: u64, bytes: u64, flags: u32, result: i64 },
    /// `shmat`; `bytes` is the segment's length. `file` identifies the segment, if its identity is
    /// known.
    Shmat {
        id: i32,
        addr: u64,
        flags: u32,
        bytes: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<FileId>,
        result: i64,
    },
    /// `shmdt`.
    Shmdt { addr: u64, result: i64 },
    /// `mbind`; `nodes` is the first word of the node mask.
    Mbind { addr: u64, bytes: u64, mode: u32, nodes: u64, flags: u32, result: i64 },
    /// `prctl(PR_SET_THP_DISABLE)`: whether the process disables huge pages.
    HugePages { disabled: bool, result: i64 },
    /// The program has reached a marker: it has called `pagewalk_marker(number)`.
    Marker { number: u64 },
    /// The program requests pages of `page_bytes` for a range, by calling `pagewalk_page_size`.
    /// Memory managers that choose page sizes use this event.
    PageSize { addr: u64, bytes: u64, page_bytes: u64 },
    /// The file at `path`, from which the next mapping maps code. `identity` identifies its build:
    /// `build-id 5fa3...`, or `crc32 1a2b3c4d` for a file without a build id; absent if the file
    /// could not be read.
    Image { path: String, identity: Option<String> },
    /// A place that allocates memory. `stack` has the return addresses of the calls that led to it;
    /// the address in its caller comes first. Sites are numbered per process, from 0, until the
    /// process executes another program.
    Site { number: u32, stack: Vec<u64> },
    /// `bytes` bytes from `addr` were allocated at the site with the number `site`, by `malloc` and
    /// related functions of the C library or by a call of `mmap`.
    Allocate { addr: u64, bytes: u64, site: u32 },
    /// The allocation at `addr` is about to be freed.
    Free { addr: u64 },
    /// `clone` of a thread; `result` is its thread id.
    Clone { flags: u64, stack: u64, result: i64 },
    /// `fork` or `vfork`, or a `clone` that created a process. `result` is its process id; `flags`
    /// are those of `clone`: a child with [`CLONE_VM`] shares the space until its first `Execve`.
    Fork {
        result: i64,
        #[serde(default)]
        flags: u64,
    },
    /// `execve`. In a trace of a single process, a successful call is the last event. In a
    /// recording of processes, the process continues in an empty space, whose mappings follow.
    Execve { path: String, result: i64 },
    /// A system call that concerns files or may wait, in a recording with `--calls`. The event's
    /// position is the return of the call.
    Call(Box<Call>),
    /// `exit` (`group` false) or `exit_group`.
    Exit { status: i32, group: bool },
    /// The event's thread begins; `tid` is its thread id.
    ThreadStart { tid: i64 },
    /// The event's thread has ended.
    ThreadEnd,
    /// From here until the next such event, the accesses are in the address space `space`. If `cpu`
    /// is given, a schedule ran them on this processor; otherwise the machine chooses a processor
    /// for each thread. Before the first `Run` the space is 0. Older traces call the event `switch`
    /// and have only the space. [`KERNEL`] is not a program's space: the accesses that follow are
    /// the kernel's, whichever space called the kernel.
    #[serde(alias = "switch")]
    Run {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cpu: Option<u32>,
        space: u32,
    },
    /// From here until the next such event, accesses and events belong to process `number` of a
    /// recording of several processes, whatever their space. Before the first such event they
    /// belong to process 0.
    Process { number: u32 },
    /// The accesses of the kernel's code for a context switch follow. `process` says whether the
    /// switch is to a thread of another process.
    ContextSwitch { process: bool },
    /// The warm-up ends: only accesses from here on are counted.
    WarmupEnd,
    /// Accesses and instructions that are missing from the trace: skipped, filtered or lost.
    Gap { accesses: u64, instructions: u64 },
    /// The recorded system translates one or more adjacent pages as the event's fields say, from
    /// here until another event changes the translation of one of these pages.
    Translation(Box<Translation>),
    /// The page table of the space was read as a whole. Up to the next snapshot of the space, the
    /// events [`Event::Translation`] with [`crate::Seen::Snapshot`] list all pages of the space that
    /// were resident at that moment.
    Snapshot { when: When, sizes: KnownSizes },
    /// The recorded system flushes the translation of the page that contains `addr`, on the running
    /// processor.
    Flush { addr: u64 },
    /// The running processor is interrupted: by an exception or, if `device`, by a device. `pc` is
    /// the address of the next instruction or, after an exception, of the instruction that failed.
    /// `addr` is the address of the access that caused a page fault.
    Interrupt {
        vector: u8,
        device: bool,
        pc: u64,
        error: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        addr: Option<u64>,
    },
    /// The recorded kernel continues with another task on the running processor: `pid` is the
    /// task's thread id, `tgid` its process id, `name` its name.
    Task { pid: u32, tgid: u32, name: String },
    /// The page of physical memory at `paddr` is a part of a page table from here on. `level` is 1 if its
    /// entries map base pages, and one more for each level above. All of its entries are 0, except those that
    /// the next events [`Event::Entry`] give. With `level` 0 the page is no longer a part of any page table.
    Table { paddr: u64, level: u8 },
    /// The page-table entry at the physical address `paddr` has this value from here on. If `stored`, the
    /// processor that runs has stored the value; otherwise, the entry had it when its page became a part of a
    /// page table. A processor that sets the accessed or the dirty bit in a page walk causes no event.
    Entry { paddr: u64, value: u64, stored: bool },
    /// The processor that runs writes this value to the control register CR0, CR3 or CR4.
    Control { number: u8, value: u64 },
}

/// A pattern that matches all events of one category, for a `match` that handles them in one arm.
///
/// A `match` over events never has an arm `_`. So the compiler shows every place that must be
/// adapted when an event is added. Most `match`es handle a whole category in one arm; which events
/// belong to a category is defined only here.
///
/// | category | events |
/// |---|---|
/// | `memory` | what is mapped, and system calls that change it or advise on it |
/// | `program` | information from the program, its loader and its allocator |
/// | `lives` | processes and threads that begin, execute and end |
/// | `stream` | the process or space to which the following belongs, and what is missing from the trace |
/// | `translation` | how the recorded system translates addresses, and what a whole system does on its processors |
///
/// [`Event::Call`] is in no category.
#[macro_export]
macro_rules! events {
    (memory) => {
        $crate::Event::Mapping { .. }
            | $crate::Event::Mmap { .. }
            | $crate::Event::Munmap { .. }
            | $crate::Event::Mprotect { .. }
            | $crate::Event::Mremap { .. }
            | $crate::Event::Brk { .. }
            | $crate::Event::Madvise { .. }
            | $crate::Event::ProcessMadvise { .. }
            | $crate::Event::Mlock { .. }
            | $crate::Event::Munlock { .. }
            | $crate::Event::Mlockall { .. }
            | $crate::Event::Munlockall { .. }
            | $crate::Event::Msync { .. }
            | $crate::Event::Shmat { .. }
            | $crate::Event::Shmdt { .. }
            | $crate::Event::Mbind { .. }
            | $crate::Event::HugePages { .. }
            | $crate::Event::PageSize { .. }
    };
    (program) => {
        $crate::Event::Marker { .. }
            | $crate::Event::Image { .. }
            | $crate::Event::Site { .. }
            | $crate::Event::Allocate { .. }
            | $crate::Event::Free { .. }
    };
    (lives) => {
        $crate::Event::Clone { .. }
            | $crate::Event::Fork { .. }
            | $crate::Event::Execve { .. }
            | $crate::Event::Exit { .. }
            | $crate::Event::ThreadStart { .. }
            | $crate::Event::ThreadEnd
    };
    (stream) => {
        $crate::Event::Run { .. }
            | $crate::Event::Process { .. }
            | $crate::Event::ContextSwitch { .. }
            | $crate::Event::WarmupEnd
            | $crate::Event::Gap { .. }
    };
    (translation) => {
        $crate::Event::Translation(_)
            | $crate::Event::Snapshot { .. }
            | $crate::Event::Flush { .. }
            | $crate::Event::Interrupt { .. }
            | $crate::Event::Task { .. }
            | $crate::Event::Table { .. }
            | $crate::Event::Entry { .. }
            | $crate::Event::Control { .. }
    };
}

impl Event {
    /// The address and length of the range that a call concerns, if the call has only one range and
    /// acts equally on every part of it.
    pub(crate) fn range_mut(&mut self) -> Option<(&mut u64, &mut u64)> {
        match self {
            Event::Munmap { addr, bytes, .. }
            | Event::Mprotect { addr, bytes, .. }
            | Event::Madvise { addr, bytes, .. }
            | Event::Mlock { addr, bytes, .. }
            | Event::Munlock { addr, bytes, .. }
            | Event::Msync { addr, bytes, .. }
            | Event::Mbind { addr, bytes, .. }
            | Event::PageSize { addr, bytes, .. } => Some((addr, bytes)),
            Event::Mapping { .. }
            | Event::Mmap { .. }
            | Event::Mremap { .. }
            | Event::Brk { .. }
            | Event::ProcessMadvise { .. }
            | Event::Mlockall { .. }
            | Event::Munlockall { .. }
            | Event::Shmat { .. }
            | Event::Shmdt { .. }
            | Event::HugePages { .. }
            | Event::Call(_)
            | events!(program)
            | events!(lives)
            | events!(stream)
            | events!(translation) => None,
        }
    }

    /// The name of the event's type, as stored in files.
    pub const fn name(&self) -> &'static str {
        match self {
            Event::Mapping { .. } => "mapping",
            Event::Mmap { .. } => "mmap",
            Event::Munmap { .. } => "munmap",
            Event::Mprotect { .. } => "mprotect",
            Event::Mremap { .. } => "mremap",
            Event::Brk { .. } => "brk",
            Event::Madvise { .. } => "madvise",
            Event::ProcessMadvise { .. } => "process-madvise",
            Event::Mlock { .. } => "mlock",
            Event::Munlock { .. } => "munlock",
            Event::Mlockall { .. } => "mlockall",
            Event::Munlockall { .. } => "munlockall",
            Event::Msync { .. } => "msync",
            Event::Shmat { .. } => "shmat",
            Event::Shmdt { .. } => "shmdt",
            Event::Mbind { .. } => "mbind",
            Event::HugePages { .. } => "huge-pages",
            Event::Marker { .. } => "marker",
            Event::PageSize { .. } => "page-size",
            Event::Image { .. } => "image",
            Event::Site { .. } => "site",
            Event::Allocate { .. } => "allocate",
            Event::Free { .. } => "free",
            Event::Clone { .. } => "clone",
            Event::Fork { .. } => "fork",
            Event::Execve { .. } => "execve",
            Event::Call(_) => "call",
            Event::Exit { .. } => "exit",
            Event::ThreadStart { .. } => "thread-start",
            Event::ThreadEnd => "thread-end",
            Event::Run { .. } => "run",
            Event::Process { .. } => "process",
            Event::ContextSwitch { .. } => "context-switch",
            Event::WarmupEnd => "warmup-end",
            Event::Gap { .. } => "gap",
            Event::Translation(_) => "translation",
            Event::Snapshot { .. } => "snapshot",
            Event::Flush { .. } => "flush",
            Event::Interrupt { .. } => "interrupt",
            Event::Task { .. } => "task",
            Event::Table { .. } => "table",
            Event::Entry { .. } => "entry",
            Event::Control { .. } => "control",
        }
    }

    /// The instructions of the event that no row counts, although no access is missing:
    /// instructions after the last row of a thread.
    pub const fn uncounted_instructions(&self) -> u64 {
        if let Event::Gap { accesses: 0, instructions } = *self { instructions } else { 0 }
    }

    /// Whether the event describes mappings.
    pub const fn changes_mappings(&self) -> bool {
        match self {
            Event::Mapping { .. }
            | Event::Mmap { .. }
            | Event::Munmap { .. }
            | Event::Mprotect { .. }
            | Event::Mremap { .. }
            | Event::Brk { .. }
            | Event::Shmat { .. }
            | Event::Shmdt { .. }
            | Event::Execve { .. } => true,
            Event::Madvise { .. }
            | Event::ProcessMadvise { .. }
            | Event::Mlock { .. }
            | Event::Munlock { .. }
            | Event::Mlockall { .. }
            | Event::Munlockall { .. }
            | Event::Msync { .. }
            | Event::Mbind { .. }
            | Event::HugePages { .. }
            | Event::PageSize { .. }
            | Event::Clone { .. }
            | Event::Fork { .. }
            | Event::Exit { .. }
            | Event::ThreadStart { .. }
            | Event::ThreadEnd
            | Event::Call(_)
            | events!(program)
            | events!(stream)
            | events!(translation) => false,
        }
    }

    /// Whether the event belongs to the accesses before it. All other events report the end of a
    /// call; whatever the call waited for happened before the event.
    pub(crate) const fn is_of_the_end(&self) -> bool {
        match self {
            Event::Exit { .. } | Event::ThreadEnd | Event::Gap { .. } => true,
            Event::Clone { .. }
            | Event::Fork { .. }
            | Event::Execve { .. }
            | Event::ThreadStart { .. }
            | Event::Run { .. }
            | Event::Process { .. }
            | Event::ContextSwitch { .. }
            | Event::WarmupEnd
            | Event::Call(_)
            | events!(memory)
            | events!(program)
            | events!(translation) => false,
        }
    }

    /// This event without the fields that differ between two recordings of one program: process and
    /// thread ids, identities of files, times. `None` for a [`Call`] and for translations, nearly
    /// all of whose fields differ. The digest of a trace's contents is computed from the events
    /// that this function returns.
    pub(crate) fn steady(&self) -> Option<Event> {
        let mut steady = self.clone();
        match &mut steady {
            Event::Mapping { file, .. } | Event::Mmap { file, .. } => *file = None,
            Event::Shmat { id, file, .. } => {
                *id = 0;
                *file = None;
            }
            Event::Clone { result, .. } | Event::Fork { result, .. } => *result = (*result).min(0),
            Event::ThreadStart { tid } => *tid = 0,
            Event::ProcessMadvise { pidfd, .. } => *pidfd = 0,
            Event::Call(_) | events!(translation) => return None,
            Event::Munmap { .. }
            | Event::Mprotect { .. }
            | Event::Mremap { .. }
            | Event::Brk { .. }
            | Event::Madvise { .. }
            | Event::Mlock { .. }
            | Event::Munlock { .. }
            | Event::Mlockall { .. }
            | Event::Munlockall { .. }
            | Event::Msync { .. }
            | Event::Shmdt { .. }
            | Event::Mbind { .. }
            | Event::HugePages { .. }
            | Event::PageSize { .. }
            | Event::Execve { .. }
            | Event::Exit { .. }
            | Event::ThreadEnd
            | events!(program)
            | events!(stream) => {}
        }
        Some(steady)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translation::Seen;

    #[test]
    fn names_are_those_that_are_stored() {
        let (addr, bytes, result, prot, flags) = (1, 2, -3, 4, 5);
        let file = Some(FileId { device: 1, inode: 2, bytes: 3 });
        let events = [
            Event::Mapping {
                start: addr,
                bytes,
                rights: 7,
                origin: Origin::Other("x".to_owned()),
                offset: Some(4096),
                file,
            },
            Event::Mmap { addr, bytes, prot, flags, fd: -1, offset: 0, path: None, file, result },
            Event::Munmap { addr, bytes, result },
            Event::Mprotect { addr, bytes, prot, result },
            Event::Mremap { addr, old_bytes: 1, new_bytes: 2, flags, new_addr: 3, result },
            Event::Brk { addr, result },
            Event::Madvise { addr, bytes, advice: 4, result },
            Event::Clone { flags: 1, stack: 2, result },
            Event::Fork { result, flags: CLONE_VM },
            Event::ProcessMadvise { pidfd: 1, ranges: 2, ranges_count: 3, advice: 4, result },
            Event::Mlock { addr, bytes, flags, result },
            Event::Munlock { addr, bytes, result },
            Event::Mlockall { flags, result },
            Event::Munlockall { result },
            Event::Msync { addr, bytes, flags, result },
            Event::Shmat { id: 1, addr, flags, bytes: Some(bytes), file, result },
            Event::Shmdt { addr, result },
            Event::Mbind { addr, bytes, mode: 1, nodes: 2, flags, result },
            Event::HugePages { disabled: true, result },
            Event::Marker { number: 7 },
            Event::PageSize { addr, bytes, page_bytes: 1 << 21 },
            Event::Image { path: "/bin/ls".to_owned(), identity: Some("crc32 0".to_owned()) },
            Event::Site { number: 3, stack: vec![1, u64::MAX] },
            Event::Allocate { addr, bytes, site: 3 },
            Event::Free { addr },
            Event::Call(Box::new(Call { name: "read".to_owned(), fd: Some(3), ..Call::default() })),
            Event::Execve { path: "/bin/\u{e4}\"\n".to_owned(), result },
            Event::Exit { status: -1, group: true },
            Event::ThreadStart { tid: i64::MAX },
            Event::ThreadEnd,
            Event::Run { cpu: Some(2), space: 1 },
            Event::Run { cpu: None, space: 1 },
            Event::Process { number: 3 },
            Event::ContextSwitch { process: true },
            Event::WarmupEnd,
            Event::Gap { accesses: u64::MAX, instructions: 0 },
            Event::Translation(Box::new(Translation {
                paddr: Some(1 << 21),
                rights: Some(7),
                entries: vec![8, 16],
                ..Translation::base(Seen::Walk, 1 << 30)
            })),
            Event::Translation(Box::new(Translation::base(Seen::Snapshot, 4096))),
            Event::Snapshot { when: When::End, sizes: KnownSizes::Large },
            Event::Table { paddr: 4096, level: 4 },
            Event::Entry { paddr: 4104, value: u64::MAX, stored: true },
            Event::Control { number: 3, value: 4096 },
        ];
        for event in events {
            let json = serde_json::to_value(&event).unwrap();
            assert_eq!(json["event"], event.name());
            assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event);
            // The steady part of an event is itself steady.
            let steady = event.steady();
            assert_eq!(steady.as_ref().and_then(Event::steady), steady);
        }
    }

    #[test]
    fn events_of_older_traces_are_read() {
        let old = r#"{"event":"mapping","start":1,"bytes":2,"rights":3,"origin":"stack"}"#;
        let event: Event = serde_json::from_str(old).unwrap();
        assert!(matches!(event, Event::Mapping { offset: None, file: None, .. }), "{event:?}");
        let event: Event = serde_json::from_str(r#"{"event":"fork","result":7}"#).unwrap();
        assert_eq!(event, Event::Fork { result: 7, flags: 0 });
    }

    #[test]
    fn a_switch_of_an_old_trace_is_a_run_without_a_processor() {
        let stored = r#"{"event":"switch","space":7}"#;
        let event = serde_json::from_str::<Event>(stored).unwrap();
        assert_eq!(event, Event::Run { cpu: None, space: 7 });
    }
}
