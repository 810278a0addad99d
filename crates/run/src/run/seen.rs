//! What a run has seen so far: its counts, and what the trace has told.

use addr::Kind;
use results::{
    ChangedSetting,
    count::{census::Census, history::History},
};
use trace::{Batch, Event};

use super::{access::Lookup, counted::Passed};

/// Counts of a run.
pub struct Seen {
    pub census: Census,
    pub history: History,
    /// Accesses of the trace so far, those that the machine leaves out among them.
    pub position: u64,
    /// Accesses that the machine leaves out, so far.
    pub left_out: u64,
    /// Accesses that the batch counts and does not hold, as far as the batch has run.
    pub(super) passed: Passed,
    pub page_crossings: u64,
    /// Lookups of their pages beyond the first, by kind.
    pub crossing_lookups: [u64; Kind::COUNT],
    /// Fetches of the trace, whoever delivers them.
    pub fetches: u64,
    /// Pages touched for the first time, and accesses that had to be granted.
    pub first_touches: u64,
    /// Pages that were there before and came back.
    pub returns: u64,
    pub protection_faults: u64,
    /// By number: whether the thread has run.
    pub threads: Vec<bool>,
    /// Accesses that the trace says it lacks.
    pub gap_accesses: u64,
    /// Whether the trace has said what is mapped, where pages lie, what is called; and whether the kernel ran.
    pub mappings: bool,
    pub physical: bool,
    pub calls: bool,
    pub kernel: bool,
    /// Whether the operating system was woken by the clock.
    pub woken: bool,
    /// Settings that have changed, in the order of time.
    pub changed: Vec<ChangedSetting>,
}

impl Seen {
    /// Nothing yet.
    pub(super) fn new() -> Seen {
        Seen {
            census: Census::default(),
            history: History::new(0),
            position: 0,
            left_out: 0,
            passed: Passed::default(),
            page_crossings: 0,
            crossing_lookups: [0; Kind::COUNT],
            fetches: 0,
            first_touches: 0,
            returns: 0,
            protection_faults: 0,
            threads: Vec::new(),
            gap_accesses: 0,
            mappings: false,
            physical: false,
            calls: false,
            kernel: false,
            woken: false,
            changed: Vec::new(),
        }
    }

    /// When an access was made, in accesses that the machine does not leave out.
    #[inline]
    pub(super) fn when(&mut self, place: Lookup<'_>) -> u64 {
        let index = (place.access - self.position) as usize;
        place.access - self.left_out + self.passed.before(place.batch, index)
    }

    /// A batch is about to run.
    pub(super) fn begins(&mut self, batch: &Batch) {
        for segment in &batch.segments {
            let index = segment.thread as usize;
            if self.threads.len() <= index {
                self.threads.resize(index + 1, false);
            }
            self.threads[index] = true;
        }
        self.physical |= !batch.paddr.is_empty();
    }

    /// A batch has run.
    pub(super) fn ends(&mut self, batch: &Batch) {
        self.position += batch.len() as u64 + self.passed.all(batch);
    }

    /// An event for the operating system.
    pub(super) fn event(&mut self, event: &Event) {
        self.calls |= matches!(event, Event::Call(_));
        self.mappings |= matches!(event, Event::Mapping { .. } | Event::Mmap { .. });
    }

    /// The warm-up is over: counts begin anew with `access`. What the trace has told stays known, and so do the
    /// accesses behind.
    pub(super) fn forget_counts(&mut self, access: u64) {
        let Seen {
            census,
            history,
            position: _,
            left_out,
            passed: _,
            page_crossings,
            crossing_lookups,
            fetches,
            first_touches,
            returns,
            protection_faults,
            threads: _,
            gap_accesses: _,
            mappings: _,
            physical: _,
            calls: _,
            kernel: _,
            woken: _,
            changed: _,
        } = self;
        census.forget_counts();
        *history = History::new(access - *left_out);
        *crossing_lookups = [0; Kind::COUNT];
        let counts = [page_crossings, fetches, first_touches, returns, protection_faults];
        counts.into_iter().for_each(|count| *count = 0);
    }
}
