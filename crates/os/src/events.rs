//! What events of a trace request from an operating system. Events are interpreted here, once for
//! all systems.
//!
//! A failed call makes no request, except for the work that it did before it failed. Some calls
//! proceed from mapping to mapping and stop at the first mapping that they cannot handle; the
//! mappings before it have been handled ([`Ends`]). An event that only gives information (which
//! thread runs, which threads exist) makes no request either. A system ignores requests for which
//! it has no use: for example, a system that never evicts pages ignores requests to lock pages in
//! memory. Systems never interpret events themselves.

use addr::{Kind, Rights};
use trace::{Call, Event, FileId, FileKind, Origin};

/// `MADV_DONTNEED`: the pages are discarded; their next touch finds zeros.
const MADV_DONTNEED: u32 = 4;
/// `MADV_HUGEPAGE`, `MADV_NOHUGEPAGE` and `MADV_COLLAPSE`.
const MADV_HUGEPAGE: u32 = 14;
const MADV_NOHUGEPAGE: u32 = 15;
const MADV_COLLAPSE: u32 = 25;
/// `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE`.
const MADV_POPULATE_READ: u32 = 22;
const MADV_POPULATE_WRITE: u32 = 23;
/// Errors that calls return. `ENOMEM`: a part of the range is not mapped, or memory is not
/// available. The others: an address may not be used in this way; the request is not possible at
/// this address.
const ENOMEM: i64 = -12;
const EFAULT: i64 = -14;
const EINVAL: i64 = -22;
/// The base page size of Linux, to which the start of a call's range must be aligned.
const PAGE_BYTES: u64 = 4096;
/// `MAP_LOCKED` and `MAP_POPULATE`.
const MAP_LOCKED: u32 = 0x2000;
const MAP_POPULATE: u32 = 0x8000;
/// The flag `MAP_SHARED` of `mmap`, which `MAP_SHARED_VALIDATE` contains too.
const MAP_SHARED: u32 = 1;
/// `MAP_ANONYMOUS`.
const MAP_ANONYMOUS: u32 = 0x20;
/// `MCL_CURRENT` and `MCL_FUTURE` of `mlockall`.
const MCL_CURRENT: u32 = 1;
const MCL_FUTURE: u32 = 2;
/// `MCL_ONFAULT`, and `MLOCK_ONFAULT` of `mlock2`: pages stay in memory once faults have loaded
/// them, and the call itself loads no page.
const MCL_ONFAULT: u32 = 4;
const MLOCK_ONFAULT: u32 = 1;

/// The pages that an event removes or replaces.
pub enum Gone {
    /// The pages of this range: start and length in bytes.
    Bytes(u64, u64),
    /// All pages of the space.
    All,
}

impl Gone {
    /// The pages removed by `event`; `before` is the previous end of the heap.
    pub fn by(event: &Event, before: Option<u64>) -> Option<Gone> {
        match request(event)? {
            Request::Known { start, bytes, .. }
            | Request::Map { start, bytes, .. }
            | Request::Attach { start, bytes, .. }
            | Request::Unmap { start, bytes }
            | Request::Discard { start, bytes, ends: Ends::Behind } => {
                Some(Gone::Bytes(start, bytes))
            }
            // The moved pages count as new pages at their new addresses.
            Request::Move { from, from_bytes, .. } => Some(Gone::Bytes(from, from_bytes)),
            Request::Break { now } => {
                let gone = before?.checked_sub(now)?;
                Some(Gone::Bytes(now, gone))
            }
            Request::Replace | Request::Exit => Some(Gone::All),
            // A part of the range is still mapped.
            Request::Discard { ends: Ends::AtHole | Ends::AtLocked, .. }
            | Request::Wish { .. }
            | Request::Upgrade { .. }
            | Request::Populate { .. }
            | Request::Protect { .. }
            | Request::Lock { .. }
            | Request::Unlock { .. }
            | Request::LockAll { .. }
            | Request::UnlockAll
            | Request::Fork { .. }
            | Request::Transfer { .. } => None,
        }
    }
}

/// The point at which a call that proceeds from mapping to mapping stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ends {
    /// The call did not stop before the end of its range.
    Behind,
    /// At the first address that is not mapped (`mprotect`, `mlock`, `munlock`).
    AtHole,
    /// At the first mapping that is locked (`MADV_DONTNEED`).
    AtLocked,
}

/// The result of a call that requests large pages (`MADV_COLLAPSE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upgraded {
    /// The call succeeded.
    All,
    /// The call failed because memory was missing or pages were in use. The kernel may have made some large pages
    /// before, by rules that only the kernel's own code determines.
    Some,
    /// The call failed with `EINVAL`, which may mean that the kernel does not support the call.
    Refused,
}

/// A request. Addresses and lengths are in bytes, as the program gave them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// A mapping that existed before the trace began.
    Known { start: u64, bytes: u64, rights: Rights, backing: Backing<'a>, name: &'a str },
    /// Map this range, in place of earlier mappings there.
    Map { start: u64, bytes: u64, rights: Rights, backing: Backing<'a>, name: &'a str },
    /// Map a segment of shared memory, in place of earlier mappings there.
    Attach { start: u64, bytes: u64, segment: i32, file: Option<&'a FileId> },
    /// Unmap this range.
    Unmap { start: u64, bytes: u64 },
    /// Discard the contents; the mapping stays.
    Discard { start: u64, bytes: u64, ends: Ends },
    /// Advice that pages in this range should be large or, if `large` is false, should not be
    /// large.
    Wish { start: u64, bytes: u64, large: bool },
    /// Make the pages of this range that are in memory large.
    Upgrade { start: u64, bytes: u64, came: Upgraded },
    /// Bring pages into memory: for accesses of this kind or, if no kind is given, for the accesses
    /// that the mapping allows.
    Populate { start: u64, bytes: u64, kind: Option<Kind> },
    /// Set the rights of the pages in this range.
    Protect { start: u64, bytes: u64, rights: Rights, ends: Ends },
    /// Move a mapping and change its length.
    Move { from: u64, from_bytes: u64, to: u64, to_bytes: u64 },
    /// Set the end of the heap.
    Break { now: u64 },
    /// Bring pages into memory and lock them there or, with `on_fault`, lock pages when faults
    /// bring them in.
    Lock { start: u64, bytes: u64, on_fault: bool, ends: Ends },
    /// Unlock the pages.
    Unlock { start: u64, bytes: u64, ends: Ends },
    /// Lock all mapped memory (`present`), and all memory that will be mapped later (`future`);
    /// with `on_fault`, only pages that faults bring in.
    LockAll { present: bool, future: bool, on_fault: bool },
    /// Unlock all memory.
    UnlockAll,
    /// Create the process with the id `child` as a copy of the calling process.
    Fork { child: i64, shares_space: bool },
    /// The process continues in an empty space.
    Replace,
    /// The process ends.
    Exit,
    /// Read or write bytes of a file.
    Transfer { file: &'a FileId, offset: u64, bytes: u64, write: bool },
}

/// The memory or file that backs a mapping, as far as the trace reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing<'a> {
    /// Zeros; stores are private.
    Anonymous,
    /// Zeros that a forked child shares.
    SharedMemory,
    /// A file, identified by its number, its path, or both; the mapping begins at this byte of the
    /// file, if the byte is known.
    File {
        file: Option<&'a FileId>,
        path: Option<&'a str>,
        offset: Option<u64>,
        /// Whether stores change the file.
        shared: bool,
    },
}

/// The request that `event` makes, if it makes one that concerns pages.
pub fn request(event: &Event) -> Option<Request<'_>> {
    Some(match event {
        Event::Mapping { .. } => return known(event),
        Event::Mmap { .. } => return mapped(event),
        Event::Shmat { id, bytes: Some(bytes), file, result, .. } => Request::Attach {
            start: u64::try_from(*result).ok()?,
            bytes: *bytes,
            segment: *id,
            file: file.as_ref(),
        },
        Event::Munmap { addr, bytes, result: 0 } => Request::Unmap { start: *addr, bytes: *bytes },
        Event::Madvise { addr, bytes, advice, result } => {
            return advised((*addr, *bytes), *advice, *result);
        }
        Event::Mprotect { addr, bytes, prot, result: result @ (0 | ENOMEM) } => Request::Protect {
            start: *addr,
            bytes: *bytes,
            rights: rights_of(*prot),
            ends: at_hole(*result),
        },
        Event::Mremap { addr, old_bytes, new_bytes, result, .. } => Request::Move {
            from: *addr,
            from_bytes: *old_bytes,
            to: u64::try_from(*result).ok()?,
            to_bytes: *new_bytes,
        },
        Event::Brk { result, .. } => Request::Break { now: u64::try_from(*result).ok()? },
        Event::Mlock { addr, bytes, flags, result: result @ (0 | ENOMEM) } => Request::Lock {
            start: *addr,
            bytes: *bytes,
            on_fault: flags & MLOCK_ONFAULT != 0,
            ends: at_hole(*result),
        },
        Event::Munlock { addr, bytes, result: result @ (0 | ENOMEM) } => {
            Request::Unlock { start: *addr, bytes: *bytes, ends: at_hole(*result) }
        }
        Event::Mlockall { flags, result: 0 } => Request::LockAll {
            present: flags & MCL_CURRENT != 0,
            future: flags & MCL_FUTURE != 0,
            on_fault: flags & MCL_ONFAULT != 0,
        },
        Event::Munlockall { result: 0 } => Request::UnlockAll,
        Event::Fork { result, flags } => {
            Request::Fork { child: *result, shares_space: flags & trace::CLONE_VM != 0 }
        }
        Event::Execve { result: 0, .. } => Request::Replace,
        Event::Exit { group: true, .. } => Request::Exit,
        Event::Call(call) => return transfer(call),
        // These calls failed, or the event ends only a thread.
        Event::Munmap { .. }
        | Event::Shmat { .. }
        | Event::Mprotect { .. }
        | Event::Mlock { .. }
        | Event::Munlock { .. }
        | Event::Mlockall { .. }
        | Event::Munlockall { .. }
        | Event::Execve { .. }
        | Event::Exit { .. } => return None,
        // A segment that is detached keeps its pages until something is mapped over them.
        Event::Shmdt { .. } => return None,
        // Advice for another process is ignored. `msync` does nothing, since dirty pages are
        // written when they are evicted. `mbind` is ignored, because memory is treated as one node
        // here.
        Event::ProcessMadvise { .. } | Event::Msync { .. } | Event::Mbind { .. } => return None,
        // No system here has policies of page sizes that a program could change.
        Event::HugePages { .. } | Event::PageSize { .. } => return None,
        // These events only inform; they request nothing.
        Event::Clone { .. }
        | Event::ThreadStart { .. }
        | Event::ThreadEnd
        | trace::events!(program)
        | trace::events!(stream)
        | trace::events!(translation) => return None,
    })
}

/// The request for a mapping that existed when the recording began.
fn known(event: &Event) -> Option<Request<'_>> {
    let Event::Mapping { start, bytes, rights, origin, offset, file } = event else { return None };
    let (path, name) = match origin {
        Origin::File(path) => (Some(path.as_str()), path.as_str()),
        Origin::Stack => (None, "stack"),
        Origin::Heap => (None, "heap"),
        Origin::Bss => (None, "bss"),
        Origin::Other(name) => (None, name.as_str()),
    };
    let file = file.as_ref();
    let backing = match file.is_some() || path.is_some() {
        true => Backing::File { file, path, offset: *offset, shared: false },
        false => Backing::Anonymous,
    };
    let rights = Rights::from_bits(*rights & 7);
    Some(Request::Known { start: *start, bytes: *bytes, rights, backing, name })
}

/// The request of a call of `mmap`.
fn mapped(event: &Event) -> Option<Request<'_>> {
    let Event::Mmap { bytes, prot, flags, offset, path, file, result, .. } = event else {
        return None;
    };
    let (path, file) = (path.as_deref(), file.as_ref());
    let anonymous = flags & MAP_ANONYMOUS != 0 || (file.is_none() && path.is_none());
    let shared = flags & MAP_SHARED != 0;
    let backing = match (anonymous, shared) {
        (false, _) => Backing::File { file, path, offset: Some(*offset), shared },
        (true, true) => Backing::SharedMemory,
        (true, false) => Backing::Anonymous,
    };
    Some(Request::Map {
        start: u64::try_from(*result).ok()?,
        bytes: *bytes,
        rights: rights_of(*prot),
        backing,
        name: path.filter(|_| !anonymous).unwrap_or("anonymous"),
    })
}

/// Whether the pages of a mapping are brought in when it is made, as its flags say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Brought {
    /// The pages are brought in by faults.
    No,
    /// The pages are brought in when the mapping is made (`MAP_POPULATE`).
    Populated,
    /// The pages are brought in and locked when the mapping is made (`MAP_LOCKED`).
    Locked,
}

impl Brought {
    /// Whether `mmap` with these flags brings in the pages of the new mapping.
    pub const fn by(flags: u32) -> Brought {
        match (flags & MAP_LOCKED != 0, flags & MAP_POPULATE != 0) {
            (true, _) => Brought::Locked,
            (false, true) => Brought::Populated,
            (false, false) => Brought::No,
        }
    }
}

/// The request of a call of `madvise`, or the part of it that was done before the call failed
/// (`madvise_walk_vmas`): the call skips parts that are not mapped.
fn advised((start, bytes): (u64, u64), advice: u32, result: i64) -> Option<Request<'static>> {
    let is_done = matches!(result, 0 | ENOMEM);
    Some(match advice {
        MADV_DONTNEED if is_done => Request::Discard { start, bytes, ends: Ends::Behind },
        MADV_DONTNEED if result == EINVAL && start % PAGE_BYTES == 0 => {
            Request::Discard { start, bytes, ends: Ends::AtLocked }
        }
        MADV_HUGEPAGE | MADV_NOHUGEPAGE if is_done => {
            Request::Wish { start, bytes, large: advice == MADV_HUGEPAGE }
        }
        MADV_COLLAPSE if result == 0 || start % PAGE_BYTES == 0 => {
            let came = match result {
                0 => Upgraded::All,
                EINVAL => Upgraded::Refused,
                _ => Upgraded::Some,
            };
            Request::Upgrade { start, bytes, came }
        }
        MADV_POPULATE_READ | MADV_POPULATE_WRITE if is_done || result == EFAULT => {
            let kind = if advice == MADV_POPULATE_READ { Kind::Load } else { Kind::Store };
            Request::Populate { start, bytes, kind: Some(kind) }
        }
        // The advice loads and removes no pages, or the call failed.
        _ => return None,
    })
}

/// Where a call stopped that returned this result.
fn at_hole(result: i64) -> Ends {
    if result == 0 { Ends::Behind } else { Ends::AtHole }
}

fn rights_of(prot: u32) -> Rights {
    Rights::from_bits((prot & 7) as u8)
}

/// The request for bytes that a call has read from or written to a regular file, if the trace has
/// their offset.
fn transfer(call: &Call) -> Option<Request<'_>> {
    let write = match call.name.as_str() {
        "read" | "pread64" | "readv" | "preadv" | "preadv2" => false,
        "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" => true,
        // Other calls transfer no contents of files, or do not show which contents.
        _ => return None,
    };
    let bytes = u64::try_from(call.result).ok().filter(|&bytes| bytes > 0)?;
    let about = call.descriptors.iter().find(|about| Some(about.fd) == call.fd)?;
    let is_file = about.kind == FileKind::Regular;
    let (file, offset) = (&about.file, call.offset.filter(|_| is_file)?);
    Some(Request::Transfer { file, offset, bytes, write })
}
