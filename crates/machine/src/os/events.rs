//! What the events of a trace ask of an operating system, told apart once for all of them.
//!
//! A call that failed asks for nothing. Neither does an event that only tells: who runs, what was
//! mapped before the first access, which threads there are.

use addr::Rights;
use trace::Event;

/// `MADV_DONTNEED`: the pages go, their next touch finds zeros.
const MADV_DONTNEED: u32 = 4;

/// What is asked for. Addresses and lengths are bytes, as the program gave them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// What was there goes: `munmap`, or an `mmap` over it.
    Unmap { start: u64, bytes: u64 },
    /// Contents go, the mapping stays.
    Discard { start: u64, bytes: u64 },
    /// What is there gets these rights.
    Protect { start: u64, bytes: u64, rights: Rights },
    /// What is there moves, and its length changes.
    Move { from: u64, from_bytes: u64, to: u64, to_bytes: u64 },
    /// The heap ends here.
    Break { now: u64 },
    /// The process goes on in an empty space.
    Replace,
}

/// What `event` asks for, if it asks for anything that concerns pages.
pub(super) fn request(event: &Event) -> Option<Request> {
    Some(match *event {
        Event::Mmap { bytes, result, .. } => {
            Request::Unmap { start: u64::try_from(result).ok()?, bytes }
        }
        Event::Munmap { addr, bytes, result: 0 } => Request::Unmap { start: addr, bytes },
        Event::Madvise { addr, bytes, advice: MADV_DONTNEED, result: 0 } => {
            Request::Discard { start: addr, bytes }
        }
        Event::Mprotect { addr, bytes, prot, result: 0 } => {
            Request::Protect { start: addr, bytes, rights: Rights::from_bits((prot & 7) as u8) }
        }
        Event::Mremap { addr, old_bytes, new_bytes, result, .. } => Request::Move {
            from: addr,
            from_bytes: old_bytes,
            to: u64::try_from(result).ok()?,
            to_bytes: new_bytes,
        },
        Event::Brk { result, .. } => Request::Break { now: u64::try_from(result).ok()? },
        Event::Execve { result: 0, .. } => Request::Replace,
        // They failed, or give advice that asks for no page to go.
        Event::Munmap { .. }
        | Event::Madvise { .. }
        | Event::Mprotect { .. }
        | Event::Execve { .. } => return None,
        // What is advised for another process is not followed to it.
        Event::ProcessMadvise { .. } => return None,
        // A segment that is detached keeps its pages until something is mapped over them.
        Event::Shmat { .. } | Event::Shmdt { .. } => return None,
        // Pages are never replaced and have no node: nothing to hold or to place.
        Event::Mlock { .. }
        | Event::Munlock { .. }
        | Event::Mlockall { .. }
        | Event::Munlockall { .. }
        | Event::Msync { .. }
        | Event::Mbind { .. }
        | Event::HugePages { .. } => return None,
        // First touch has no policies of page sizes that a program could change.
        Event::PageSize { .. } => return None,
        // They tell and ask for nothing.
        Event::Mapping { .. }
        | Event::Clone { .. }
        | Event::Fork { .. }
        | Event::Call(_)
        | Event::Exit { .. }
        | Event::ThreadStart { .. }
        | Event::ThreadEnd
        | Event::Marker { .. }
        | Event::Run { .. }
        | Event::Process { .. }
        | Event::ContextSwitch { .. }
        | Event::WarmupEnd
        | Event::Gap { .. } => return None,
    })
}
