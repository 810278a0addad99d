//! What the files of one trace have in common: numbers of threads and spaces, and counts.

use rustc_hash::FxHashMap;

use super::super::rows::{THREADS_MAX, too_many_threads};
use crate::{Batch, Event};

/// What all files of a trace have in common.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    threads: FxHashMap<(u64, u64), u32>,
    spaces: FxHashMap<u64, u32>,
    /// The numbers of processes at the system, by their spaces.
    pub(crate) pids: Vec<u64>,
    space: u32,
    window: Option<u64>,
    /// Whether batches carry physical addresses.
    pub(crate) physical: bool,
    /// Software and hardware prefetches, which are no accesses of the program.
    pub(crate) prefetches: u64,
    /// Whether a piece of the kernel's execution was in the trace.
    pub(crate) kernel: bool,
}

impl Shared {
    /// Nobody has been seen; `physical` if pages are known from the start.
    pub(crate) fn new(physical: bool) -> Shared {
        Shared { physical, ..Shared::default() }
    }

    /// The number of a thread; new ones are told to `batch`.
    pub(crate) fn thread(&mut self, pid: u64, tid: u64, batch: &mut Batch) -> Result<u32, String> {
        if self.threads.len() == THREADS_MAX && !self.threads.contains_key(&(pid, tid)) {
            return Err(too_many_threads());
        }
        let next = self.threads.len() as u32;
        let thread = *self.threads.entry((pid, tid)).or_insert(next);
        let space = self.space(pid);
        if space != self.space {
            self.space = space;
            batch.push_event(thread, Event::Process { number: space });
            batch.push_event(thread, Event::Run { cpu: None, space });
        }
        if thread == next {
            batch.push_event(thread, Event::ThreadStart { tid: tid as i64 });
        }
        Ok(thread)
    }

    /// The number of a process and of its space.
    pub(crate) fn space(&mut self, pid: u64) -> u32 {
        let next = self.spaces.len() as u32;
        *self.spaces.entry(pid).or_insert_with(|| {
            self.pids.push(pid);
            next
        })
    }

    /// A window of tracing begins; whether it is another than before.
    pub(crate) fn enter_window(&mut self, id: u64) -> bool {
        let another = self.window.is_some_and(|window| window < id);
        self.window = self.window.max(Some(id));
        another
    }
}
