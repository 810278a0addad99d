//! The recorded schedule: which thread ran when.
//!
//! ```text
//!   serial_schedule   32 bytes each: thread 8 | timestamp 8 | processor 8 | start_instruction 8
//!   cpu_schedule.zip  the same, one member a processor
//! ```
//!
//! Entries ascend in time. An entry says that the thread's segments run that have times from the
//! entry's time up to the time of the next entry. Source: DynamoRIO,
//! `clients/drcachesim/common/trace_entry.h`, `schedule_entry_t`.

use std::iter::Peekable;
use std::path::Path;

use super::super::input::Input;
use crate::Error;

const ENTRY_BYTES: usize = 32;
/// The largest number of entries of the processors' schedule, which is sorted in memory: 128 MiB.
const ENTRIES_MAX: usize = 8 << 20;

/// The time from which on a thread may run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ScheduleEntry {
    pub(crate) timestamp: u64,
    pub(crate) tid: u64,
}

type Entries = Box<dyn Iterator<Item = Result<ScheduleEntry, Error>> + Send>;

/// The entries of a schedule, in order.
pub(crate) struct Schedule {
    entries: Peekable<Entries>,
}

impl Schedule {
    /// Reads the schedule of all threads, one entry at a time.
    pub(crate) fn serial(path: &Path) -> Result<Schedule, Error> {
        let entries: Entries = Box::new(Reader { input: Input::open(path, 1 << 16)?, done: false });
        Ok(Schedule { entries: entries.peekable() })
    }

    /// Reads and sorts the schedules of the processors.
    pub(crate) fn by_processor(path: &Path) -> Result<Schedule, Error> {
        let mut entries = Vec::new();
        for entry in (Reader { input: Input::open(path, 1 << 16)?, done: false }) {
            if entries.len() == ENTRIES_MAX {
                return Err(Error::Parameters(format!(
                    "{}: the schedule has more than {ENTRIES_MAX} entries; use --interleave \
                     timestamps instead",
                    path.display()
                )));
            }
            entries.push(entry?);
        }
        entries.sort();
        let entries: Entries = Box::new(entries.into_iter().map(Ok));
        Ok(Schedule { entries: entries.peekable() })
    }

    /// The next entry, and the time of the entry after it.
    pub(crate) fn next(&mut self) -> Result<Option<(ScheduleEntry, u64)>, Error> {
        let Some(entry) = self.entries.next().transpose()? else { return Ok(None) };
        let until = match self.entries.peek() {
            Some(Ok(after)) => after.timestamp,
            _ => u64::MAX,
        };
        Ok(Some((entry, until)))
    }
}

/// Reads entries in the order of the file.
struct Reader {
    input: Input,
    done: bool,
}

impl Reader {
    fn entry(&mut self) -> Result<Option<ScheduleEntry>, Error> {
        while self.input.window().len() < ENTRY_BYTES {
            if !self.input.fill() {
                if let Some(error) = self.input.failure() {
                    return Err(error);
                }
                return match self.input.window().len() {
                    0 => Ok(None),
                    _ => Err(self.input.corrupt(
                        0,
                        "the schedule ends within an entry: it is \
                                                   truncated",
                    )),
                };
            }
        }
        let window = self.input.window();
        let word =
            |at: usize| window[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let entry = ScheduleEntry { tid: word(0), timestamp: word(8) };
        self.input.consume(ENTRY_BYTES);
        Ok(Some(entry))
    }
}

impl Iterator for Reader {
    type Item = Result<ScheduleEntry, Error>;

    fn next(&mut self) -> Option<Result<ScheduleEntry, Error>> {
        if self.done {
            return None;
        }
        let entry = self.entry().transpose();
        self.done = !matches!(entry, Some(Ok(_)));
        entry
    }
}
