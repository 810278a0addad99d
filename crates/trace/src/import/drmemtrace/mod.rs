//! DynamoRIO's drmemtrace: a file a thread or processor, merged into one order.
//!
//! ```text
//!   thread 1   [t=10 ...... ][t=40 ... ]
//!   thread 2          [t=20 ...][t=30 ....]        segments, each at its timestamp
//!
//!   trace      [t=10][t=20][t=30][t=40]
//! ```
//!
//! Timestamps order the segments; a schedule that was recorded beside the trace, if asked for,
//! decides between segments of one time. Instructions that a string instruction repeats are not
//! fetched again, and what a zip's chunks repeat is dropped.

mod decode;
mod folder;
mod lane;
mod order;
mod physical;
mod record;
mod schedule;
mod shared;
mod sniff;
mod syscalls;

use std::path::Path;

use super::input::{Input, combined, hex};
use super::rows::{BATCH_ROWS, Fetches};
use crate::count::counted;
use crate::{Arch, Batch, Error, Filter, Header, Source};
use decode::Decoder;
use folder::Folder;
use lane::{Lane, Turn};
use order::{Given, Order};
use physical::Pages;
use record::filetype;
use schedule::Schedule;
use shared::Shared;

pub(crate) use sniff::Sniffed;

/// How the files of several threads become one order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Interleave {
    /// By the times that the tracer wrote.
    #[default]
    Timestamps,
    /// By the schedule in the trace's folder.
    Schedule,
}

/// How a trace is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings<'a> {
    pub(crate) fetches: Fetches,
    pub(crate) interleave: Interleave,
    pub(crate) v2p: Option<&'a Path>,
    pub(crate) keep_going: bool,
}

/// A merged trace.
pub(crate) struct DrMemTrace {
    header: Header,
    lanes: Vec<Lane>,
    shared: Shared,
    order: Order,
    /// The lane whose turn it is, and up to which time and lane.
    turn: Option<Given>,
    keep_going: bool,
    given: u64,
    done: bool,
    warnings: Vec<String>,
}

impl DrMemTrace {
    /// The trace in a folder.
    pub(crate) fn folder(path: &Path, settings: &Settings<'_>) -> Result<DrMemTrace, Error> {
        let folder = Folder::open(path)?;
        let window_bytes = match folder.traces.len() {
            0..=8 => Input::WINDOW_BYTES,
            9..=256 => 1 << 16,
            _ => 1 << 14,
        };
        let inputs: Result<Vec<Input>, Error> =
            folder.traces.iter().map(|file| Input::open(file, window_bytes)).collect();
        let schedule = match (settings.interleave, &folder.serial_schedule, &folder.cpu_schedule) {
            (Interleave::Timestamps, ..) => None,
            (Interleave::Schedule, Some(serial), _) => Some(Schedule::serial(serial)?),
            (Interleave::Schedule, None, Some(cpu)) => Some(Schedule::by_processor(cpu)?),
            (Interleave::Schedule, None, None) => {
                return Err(Error::Parameters(format!(
                    "{}: no schedule in the folder; interleave by timestamps",
                    path.display()
                )));
            }
        };
        let v2p = settings.v2p.or(folder.v2p.as_deref());
        DrMemTrace::new(inputs?, schedule, &Settings { v2p, ..settings.clone() })
    }

    /// The trace in one file.
    pub(crate) fn file(input: Input, settings: &Settings<'_>) -> Result<DrMemTrace, Error> {
        DrMemTrace::new(vec![input], None, settings)
    }

    fn new(
        inputs: Vec<Input>,
        schedule: Option<Schedule>,
        settings: &Settings<'_>,
    ) -> Result<DrMemTrace, Error> {
        let pages = settings.v2p.map(Pages::read).transpose()?;
        let mut trace = DrMemTrace {
            header: header(settings.fetches),
            lanes: Vec::with_capacity(inputs.len()),
            shared: Shared::new(pages.is_some()),
            order: Order::by_time(&[]),
            turn: None,
            keep_going: settings.keep_going,
            given: 0,
            done: false,
            warnings: Vec::new(),
        };
        let mut times = Vec::new();
        let mut failed = None;
        // Before the first segment there are no rows; the header's events have no thread yet.
        let mut nothing = Batch::default();
        for mut input in inputs {
            let begun = begin(&mut input);
            let decoder = Decoder::new(settings.fetches, pages.clone());
            let mut lane = Lane { input, decoder };
            let turn = begun.and_then(|()| lane.run(&mut trace.shared, &mut nothing));
            trace.lanes.push(lane);
            times.push(match turn {
                Ok(Turn::Segment(time)) => Some(time),
                Ok(_) => None,
                Err(error) if settings.keep_going => {
                    trace.warnings.push(format!("{error}; left out"));
                    failed.get_or_insert(error);
                    None
                }
                Err(error) => return Err(error),
            });
        }
        // Where no file is whole up to its first row, there is nothing to keep.
        if let Some(error) = failed.filter(|_| times.iter().all(Option::is_none)) {
            return Err(error);
        }
        trace.describe();
        trace.order = match schedule {
            None => Order::by_time(&times),
            Some(schedule) => {
                let tids = trace.lanes.iter().map(|lane| lane.decoder.tid());
                Order::scheduled(schedule, tids, times)
            }
        };
        Ok(trace)
    }

    /// Completes the header by what the files' first records say.
    fn describe(&mut self) {
        let Some(first) = self.lanes.first() else { return };
        let bits = first.decoder.filetype();
        self.header.arch = match bits {
            _ if bits & filetype::X86_64 != 0 => Arch::X86_64,
            _ if bits & filetype::AARCH64 != 0 => Arch::Aarch64,
            _ if bits & filetype::X86_32 != 0 => Arch::I386,
            _ => Arch::Unknown,
        };
        self.header.page_bytes = first.decoder.page_bytes();
        self.header.notes.extend(record::notes(bits));
    }

    /// Goes on with `lane` until a segment begins, the batch is full or the file ends.
    fn run(&mut self, lane: usize, batch: &mut Batch) -> Result<Turn, Error> {
        let result = self.lanes[lane].run(&mut self.shared, batch);
        result.or_else(|error| {
            if !self.keep_going {
                return Err(error);
            }
            self.warnings.push(format!("{error}; kept what came before"));
            self.lanes[lane].decoder.finish(batch);
            Ok(Turn::Ended)
        })
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<(), Error> {
        while batch.len() < BATCH_ROWS {
            let turn = match self.turn {
                Some(turn) => turn,
                None => match self.order.next()? {
                    Some(turn) => {
                        self.lanes[turn.lane].decoder.resume();
                        *self.turn.insert(turn)
                    }
                    None => {
                        self.finish();
                        return Ok(());
                    }
                },
            };
            let next = match self.run(turn.lane, batch)? {
                Turn::Full => return Ok(()),
                Turn::Segment(time) if turn.lasts(time) => continue,
                Turn::Segment(time) => Some(time),
                Turn::Ended => None,
            };
            self.lanes[turn.lane].decoder.cut();
            self.order.back(turn.lane, next);
            self.turn = None;
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.done = true;
        let incomplete: u64 = self.lanes.iter().map(|lane| lane.decoder.calls_incomplete()).sum();
        let shared = &self.shared;
        if shared.prefetches > 0 {
            let rest = "no accesses of the program: left out";
            self.warnings.push(counted(shared.prefetches, "prefetch is", "prefetches are", rest));
        }
        if incomplete > 0 {
            let rest = "recorded with too few arguments: left out";
            self.warnings.push(counted(incomplete, "call was", "calls were", rest));
        }
        if self.order.unscheduled() {
            self.warnings.push(
                "the schedule ends before the trace; the rest is in the order of its timestamps"
                    .to_owned(),
            );
        }
        if shared.kernel {
            self.warnings.push("the kernel's own accesses are in the trace".to_owned());
        }
    }
}

impl Source for DrMemTrace {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        batch.first = self.given;
        if self.done {
            return Ok(false);
        }
        let result = self.fill(batch);
        if let Some(turn) = self.turn {
            self.lanes[turn.lane].decoder.cut();
        }
        if let Err(error) = result {
            self.done = true;
            return Err(error);
        }
        if self.shared.physical {
            batch.paddr.resize(batch.len(), 0);
        }
        self.given += batch.len() as u64;
        Ok(!batch.is_empty())
    }

    fn digest(&self) -> Option<String> {
        if !self.done {
            return None;
        }
        Some(match self.lanes.as_slice() {
            [lane] => hex(&lane.input.digest()),
            lanes => combined(lanes.iter().map(|lane| (lane.input.path(), lane.input.digest()))),
        })
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Fills the window and sees to it that it starts a trace that is read.
fn begin(input: &mut Input) -> Result<(), Error> {
    if input.window().is_empty() && !input.fill() {
        return Err(input.failure().unwrap_or_else(|| input.corrupt(0, "the file is empty")));
    }
    match Sniffed::new(input.window()) {
        Sniffed::Final => Ok(()),
        other => Err(input.corrupt(0, other.refusal().unwrap_or("no header of a DynamoRIO trace"))),
    }
}

fn header(fetches: Fetches) -> Header {
    Header {
        producer: format!("pagewalk import drmemtrace {}", env!("CARGO_PKG_VERSION")),
        command: Vec::new(),
        arch: Arch::Unknown,
        fetches: fetches != Fetches::None,
        filter: Filter::None,
        page_bytes: 4096,
        notes: Vec::new(),
    }
}
