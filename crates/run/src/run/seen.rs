//! The counts of a run so far, and the facts known from the trace so far.

use addr::Kind;
use results::{
    ChangedSetting,
    count::{census::Census, history::History},
};
use trace::{Batch, Event};

use super::{access::Lookup, counted::Passed};

/// The counts of a run.
pub struct Seen {
    pub census: Census,
    pub history: History,
    /// Accesses of the trace so far, including those that the machine leaves out.
    pub position: u64,
    /// Accesses so far that the machine leaves out.
    pub left_out: u64,
    /// Accesses so far that batches only count and do not hold.
    pub(super) passed: Passed,
    pub page_crossings: u64,
    /// Lookups for the second and further pages of accesses that cross a page boundary, by kind.
    pub crossing_lookups: [u64; Kind::COUNT],
    /// Fetches of the trace, including those that a trace cache delivers.
    pub fetches: u64,
    /// First touches of pages, including accesses for which the operating system had to grant
    /// rights first.
    pub first_touches: u64,
    /// Faults on pages that had a frame before and get a frame again.
    pub returns: u64,
    pub protection_faults: u64,
    /// For each thread, by its number: whether it has run.
    pub threads: Vec<bool>,
    /// Accesses that the trace declares missing.
    pub gap_accesses: u64,
    /// Facts about the trace so far: whether it had events that describe mappings (`mappings`),
    /// physical addresses of accesses (`physical`), events for system calls that use files
    /// (`calls`), and accesses of the kernel (`kernel`).
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
    /// The counts at the beginning of a run: all are zero.
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

    /// The time of an access: the number of accesses before it, without those that the machine
    /// leaves out.
    #[inline]
    pub(super) fn when(&mut self, place: Lookup<'_>) -> u64 {
        let index = (place.access - self.position) as usize;
        place.access - self.left_out + self.passed.before(place.batch, index)
    }

    /// Called before a batch runs.
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

    /// Called after a batch has run.
    pub(super) fn ends(&mut self, batch: &Batch) {
        self.position += batch.len() as u64 + self.passed.all(batch);
    }

    /// Records an event.
    pub(super) fn event(&mut self, event: &Event) {
        self.calls |= matches!(event, Event::Call(_));
        self.mappings |= matches!(event, Event::Mapping { .. } | Event::Mmap { .. });
    }

    /// Ends the warm-up: resets the counts to zero before `access`. The facts known from the trace
    /// stay, and so does the position in the trace.
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
