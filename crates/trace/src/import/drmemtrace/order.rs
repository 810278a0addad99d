//! The order of segments.
//!
//! ```text
//!   by time      the earliest, the lower lane's of two at once   [10 lane 0] [20 lane 1] ...
//!   scheduled    what the schedule says, then the rest by time   [lane 1 until 30] [lane 0 ...
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::schedule::Schedule;
use crate::Error;

/// A lane's turn: its segments before a given time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Given {
    pub(crate) lane: usize,
    /// The time and lane of the first segment after the turn.
    until: (u64, usize),
}

impl Given {
    /// Whether a segment with this `time` still belongs to the turn.
    pub(crate) fn lasts(self, time: u64) -> bool {
        (time, self.lane) < self.until
    }
}

/// The order of all segments.
pub(crate) struct Order {
    schedule: Option<Scheduled>,
    /// Times and lanes of the next segments, except scheduled ones.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    unscheduled: bool,
}

struct Scheduled {
    schedule: Schedule,
    lanes: FxHashMap<u64, usize>,
    /// The time of each lane's next segment; `None` if it has ended.
    times: Vec<Option<u64>>,
}

impl Order {
    /// The order by time; `times` are the times of the first segments of the lanes.
    pub(crate) fn by_time(times: &[Option<u64>]) -> Order {
        Order { schedule: None, waiting: heap(times), unscheduled: false }
    }

    /// The order by `schedule`; `tids` are the threads of the lanes.
    pub(crate) fn scheduled(
        schedule: Schedule,
        tids: impl Iterator<Item = u64>,
        times: Vec<Option<u64>>,
    ) -> Order {
        let lanes = tids.enumerate().map(|(lane, tid)| (tid, lane)).collect();
        let schedule = Some(Scheduled { schedule, lanes, times });
        Order { schedule, waiting: BinaryHeap::new(), unscheduled: false }
    }

    /// Whether there were segments that the schedule does not mention.
    pub(crate) fn unscheduled(&self) -> bool {
        self.unscheduled
    }

    /// The next turn; `None` if all lanes (files) have ended.
    pub(crate) fn next(&mut self) -> Result<Option<Given>, Error> {
        if let Some(scheduled) = &mut self.schedule {
            if let Some(turn) = scheduled.next()? {
                return Ok(Some(turn));
            }
            self.waiting = heap(&scheduled.times);
            self.unscheduled = !self.waiting.is_empty();
            self.schedule = None;
        }
        Ok(self.waiting.pop().map(|Reverse((_, lane))| {
            let until = self.waiting.peek().map_or((u64::MAX, usize::MAX), |&Reverse(next)| next);
            Given { lane, until }
        }))
    }

    /// Ends the turn of `lane`, whose next segment, if there is one, is at `time`.
    pub(crate) fn back(&mut self, lane: usize, time: Option<u64>) {
        match (&mut self.schedule, time) {
            (Some(scheduled), time) => scheduled.times[lane] = time,
            (None, Some(time)) => self.waiting.push(Reverse((time, lane))),
            (None, None) => {}
        }
    }
}

impl Scheduled {
    fn next(&mut self) -> Result<Option<Given>, Error> {
        while let Some((entry, until)) = self.schedule.next()? {
            let lane = *self.lanes.get(&entry.tid).ok_or_else(|| {
                Error::Parameters(format!(
                    "the schedule names thread {}, which the trace does not have; use \
                     --interleave timestamps",
                    entry.tid
                ))
            })?;
            // An entry allows the segment with its own time, even if the next entry has the same
            // time.
            let until = (until.max(entry.timestamp.saturating_add(1)), 0);
            let turn = Given { lane, until };
            if self.times[lane].is_some_and(|time| turn.lasts(time)) {
                return Ok(Some(turn));
            }
        }
        Ok(None)
    }
}

fn heap(times: &[Option<u64>]) -> BinaryHeap<Reverse<(u64, usize)>> {
    let segments = times.iter().enumerate();
    segments.filter_map(|(lane, time)| Some(Reverse(((*time)?, lane)))).collect()
}
