//! The state that the files of a trace share: numbers of threads and spaces, and counts.

use rustc_hash::FxHashMap;

use super::super::rows::{THREADS_MAX, too_many_threads};
use crate::{Batch, Event};

/// The state that the decoders of all files of a trace share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    threads: FxHashMap<(u64, u64), u32>,
    spaces: FxHashMap<u64, u32>,
    /// The process ids, by the number of the space.
    pub(crate) pids: Vec<u64>,
    space: u32,
    window: Option<u64>,
    /// Whether batches have physical addresses.
    pub(crate) physical: bool,
    /// The number of software and hardware prefetches, which are not accesses of the program.
    pub(crate) prefetches: u64,
    /// Whether the trace contains a part of the kernel's execution.
    pub(crate) kernel: bool,
}

impl Shared {
    /// The initial state; `physical` says whether pages are known from the start.
    pub(crate) fn new(physical: bool) -> Shared {
        Shared { physical, ..Shared::default() }
    }

    /// The number of a thread; a new thread is reported to `batch`.
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

    /// The number of a process and its space.
    pub(crate) fn space(&mut self, pid: u64) -> u32 {
        let next = self.spaces.len() as u32;
        *self.spaces.entry(pid).or_insert_with(|| {
            self.pids.push(pid);
            next
        })
    }

    /// Enters a window of tracing. Returns whether it differs from the last one.
    pub(crate) fn enter_window(&mut self, id: u64) -> bool {
        let another = self.window.is_some_and(|window| window < id);
        self.window = self.window.max(Some(id));
        another
    }
}
