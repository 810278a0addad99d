//! Which recorded calls wait, given what the other programs have done so far.
//!
//! ```text
//!   write(4096) --> pipe | 64 KiB at most | --> read(4096)
//!      waits while it is full                      waits while it is empty
//! ```
//!
//! In the recording, each process ran whenever a processor was free. On the processors of a mix, a
//! process must wait where it would otherwise read data that no other process has written yet. The
//! model determines what the following calls wait for:
//!
//! * pipes, by the bytes that were written and not yet read. A write of more than [`PIPE_BUF`]
//!   bytes fills the available room and waits for the rest; a smaller write waits for room for all
//!   of it (pipe(7)). A read takes the available bytes until it has as many bytes as in the
//!   recording. A read at the end of file waits until each process that has written to the pipe has
//!   ended, or has passed the time at which this read was recorded.
//! * `wait4`: it waits for the end of the child that it reports.
//! * `vfork`, and `clone` with `CLONE_VFORK`: they wait for the child's `execve` or end.
//!
//! For other calls (sockets, `poll`, `nanosleep`) only the time is known. A call that took longer
//! than [`WAITED_NS`] has waited. It continues when every process that can run, or that waits for a
//! time, has reached the time at which the call ended in the recording. Calls on files do not wait,
//! as no disk is modelled. `futex` is not modelled: it is mostly used between threads of one
//! process, and these run in the recorded order anyway.

use rustc_hash::FxHashMap;

use crate::{Call, FileKind};

/// pipe(7): the largest number of bytes that are written atomically.
const PIPE_BUF: u64 = 4096;
/// A call that took longer than this has waited [assumption: calls that need not wait take less
/// than this under QEMU].
const WAITED_NS: u64 = 20_000;

/// The calls that count as waiting for another process if the cause of the wait is unknown. Calls
/// on files and terminals do not wait.
const WAITING: [&str; 27] = [
    "accept",
    "accept4",
    "clock_nanosleep",
    "connect",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "nanosleep",
    "pause",
    "poll",
    "ppoll",
    "pselect6",
    "read",
    "readv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "select",
    "_newselect",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "waitid",
    "write",
    "writev",
    "recv",
    "send",
];

/// The identity of a pipe: the number of the recording, and the pipe's device and inode.
pub(super) type PipeId = (u32, u64, u64);

/// The causes for which a program waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// Data in a pipe.
    Data(PipeId),
    /// This number of bytes of room in a pipe.
    Room(PipeId, u64),
    /// The processes that have written to a pipe must have ended, or have reached this time of the
    /// recording.
    Closed(PipeId, u64),
    /// The end of the process with this process id.
    Child(i64),
    /// The program ends or executes another program.
    Leaves(usize),
    /// No process may be at an earlier time of the recording.
    Time(u64),
}

/// The pipes of all recordings.
#[derive(Debug)]
pub(super) struct Pipes {
    capacity: u64,
    all: FxHashMap<PipeId, Pipe>,
}

#[derive(Debug, Default)]
struct Pipe {
    /// The number of bytes in the pipe.
    bytes: u64,
    /// The programs that have written to the pipe.
    writers: Vec<usize>,
}

impl Pipes {
    /// No pipes yet; each will hold `capacity` bytes.
    pub(super) fn new(capacity: u64) -> Pipes {
        Pipes { capacity, all: FxHashMap::default() }
    }

    /// What the call `call` of `program` waits for, if it must wait. `program` is a process of
    /// `recording`. `moved` is the number of bytes that the call has transferred already, 0 at its
    /// beginning.
    pub(super) fn ask(
        &mut self,
        (recording, program): (u32, usize),
        call: &Call,
        moved: &mut u64,
    ) -> Option<Wait> {
        let descriptor = call.descriptors.iter().find(|open| Some(open.fd) == call.fd);
        let descriptor = descriptor.or(call.descriptors.first());
        let kind = descriptor.map(|open| open.kind);
        let all = u64::try_from(call.result).unwrap_or(0);
        if let Some(open) = descriptor
            && kind == Some(FileKind::Pipe)
            && call.result >= 0
        {
            let id = (recording, open.file.device, open.file.inode);
            match call.name.as_str() {
                "read" | "readv" if all == 0 => return Some(Wait::Closed(id, call.ended_ns)),
                "read" | "readv" => return self.read(id, all, moved),
                "write" | "writev" => return self.write(id, program, all, moved),
                _ => {}
            }
        }
        if call.name == "wait4" {
            return (call.result > 0).then_some(Wait::Child(call.result));
        }
        let files = [FileKind::Regular, FileKind::Directory, FileKind::Character, FileKind::Block];
        // i386 has two variants of some calls.
        let name = call.name.strip_suffix("_time64").unwrap_or(&call.name);
        let may_wait = WAITING.contains(&name) && !kind.is_some_and(|kind| files.contains(&kind));
        let waited = call.ended_ns.saturating_sub(call.began_ns) > WAITED_NS;
        (may_wait && waited).then_some(Wait::Time(call.ended_ns))
    }

    /// Whether a wait for a pipe has ended.
    pub(super) fn allows(&self, wait: &Wait) -> bool {
        match wait {
            Wait::Data(id) => self.inside(id) > 0,
            Wait::Room(id, room) => self.capacity.saturating_sub(self.inside(id)) >= *room,
            Wait::Closed(..) | Wait::Child(_) | Wait::Leaves(_) | Wait::Time(_) => false,
        }
    }

    fn inside(&self, id: &PipeId) -> u64 {
        self.all.get(id).map_or(0, |pipe| pipe.bytes)
    }

    /// The programs that have written to a pipe.
    pub(super) fn writers(&self, id: &PipeId) -> &[usize] {
        self.all.get(id).map_or(&[], |pipe| &pipe.writers)
    }

    fn read(&mut self, id: PipeId, all: u64, moved: &mut u64) -> Option<Wait> {
        let inside = &mut self.all.entry(id).or_default().bytes;
        let now = (all - *moved).min(*inside);
        *inside -= now;
        *moved += now;
        (*moved < all).then_some(Wait::Data(id))
    }

    fn write(&mut self, id: PipeId, program: usize, all: u64, moved: &mut u64) -> Option<Wait> {
        let Pipe { bytes: inside, writers } = self.all.entry(id).or_default();
        if !writers.contains(&program) {
            writers.push(program);
        }
        let (room, rest) = (self.capacity.saturating_sub(*inside), all - *moved);
        if rest > room && all <= PIPE_BUF.min(self.capacity) {
            return Some(Wait::Room(id, rest));
        }
        let now = rest.min(room);
        *inside += now;
        *moved += now;
        (*moved < all).then_some(Wait::Room(id, 1))
    }
}
