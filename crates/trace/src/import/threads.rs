//! Numbering of threads by their thread ids.
//!
//! ```text
//!   7100  7104  7100  7101       as a trace of another tool has them
//!      0     1     0     2       as a trace counts them: in the order in which they appear
//! ```

use rustc_hash::FxHashMap;

use super::rows::{THREADS_MAX, too_many_threads};
use crate::{Batch, Event};

/// The threads that have appeared.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    numbers: FxHashMap<u64, u32>,
    last: Option<(u64, u32)>,
}

impl Threads {
    /// The number of the thread with the id `tid`; a new thread is reported to `batch`.
    #[inline]
    pub(crate) fn number(&mut self, tid: u64, batch: &mut Batch) -> Result<u32, String> {
        if let Some((last, thread)) = self.last
            && last == tid
        {
            return Ok(thread);
        }
        if self.numbers.len() == THREADS_MAX && !self.numbers.contains_key(&tid) {
            return Err(too_many_threads());
        }
        let next = self.numbers.len() as u32;
        let thread = *self.numbers.entry(tid).or_insert_with(|| {
            batch.push_event(next, Event::ThreadStart { tid: tid as i64 });
            next
        });
        self.last = Some((tid, thread));
        Ok(thread)
    }
}
