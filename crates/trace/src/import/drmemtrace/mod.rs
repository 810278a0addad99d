//! DynamoRIO's drmemtrace: one file per thread or processor, merged into one trace.
//!
//! ```text
//!   thread 1   [t=10 ...... ][t=40 ... ]
//!   thread 2          [t=20 ...][t=30 ....]        segments, each at its timestamp
//!
//!   trace      [t=10][t=20][t=30][t=40]
//! ```
//!
//! Segments are ordered by their timestamps. If requested, a schedule that was recorded with the
//! trace orders segments with equal times. If a folder has traces of a program and of the programs
//! that it started, they become one trace of several processes, each with a space of its own. The
//! fetch of a string instruction is not repeated for its further iterations. Records that chunks of
//! a zip repeat are dropped.

mod decode;
mod folder;
mod lane;
mod order;
mod physical;
pub(crate) mod record;
mod schedule;
mod shared;
mod sniff;
mod syscalls;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::foreign;
use super::input::{Input, combined, hex};
use super::rows::{BATCH_ROWS, Fetches, split_warning};
use crate::count::counted;
use crate::process::named;
use crate::{Arch, Batch, Error, Event, Filter, Header, Process, Program, Source};
use decode::Decoder;
use folder::Folder;
use lane::{Lane, Turn};
use order::{Given, Order};
use physical::Pages;
use schedule::Schedule;
use shared::Shared;

pub(crate) use sniff::Sniffed;

/// The largest number of processes that the header names.
const NAMED_MAX: usize = 64;

/// How the files of several threads are ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interleave {
    /// By the timestamps in the trace.
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
    /// The instruction set, if the files do not name it.
    pub(crate) arch: Option<Arch>,
    pub(crate) v2p: Option<&'a Path>,
    /// The only process to be read.
    pub(crate) process: Option<&'a str>,
    pub(crate) keep_going: bool,
}

/// A merged trace.
pub(crate) struct DrMemTrace {
    header: Header,
    lanes: Vec<Lane>,
    shared: Shared,
    /// The processes, in the order of their first segments.
    processes: Vec<Process>,
    /// The index of the process that made the last access.
    process: usize,
    order: Order,
    /// The lane (file) whose turn it is, and the time and lane at which its turn ends.
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
            folder.traces.iter().map(|file| Input::open(&file.path, window_bytes)).collect();
        let schedule = match (settings.interleave, &folder.serial_schedule, &folder.cpu_schedule) {
            (Interleave::Timestamps, ..) => None,
            (Interleave::Schedule, Some(serial), _) => Some(Schedule::serial(serial)?),
            (Interleave::Schedule, None, Some(cpu)) => Some(Schedule::by_processor(cpu)?),
            (Interleave::Schedule, None, None) => {
                return Err(Error::Parameters(format!(
                    "{}: the folder has no schedule: leave --interleave out, or give --interleave \
                     timestamps",
                    path.display()
                )));
            }
        };
        // An error in a list that the user did not request must not prevent reading the trace.
        let (mut lists, mut refused) = (BTreeMap::new(), Vec::new());
        for beside in folder.traces.iter().filter_map(|file| file.v2p.as_deref()) {
            if settings.v2p.is_none() && !lists.contains_key(beside) {
                let pages = Pages::read(beside).map_err(|error| {
                    refused.push(format!(
                        "{error}; this list is left out, so its physical addresses are unknown"
                    ));
                });
                lists.insert(beside, pages.ok());
            }
        }
        let pages = folder.traces.iter().map(|file| lists.get(file.v2p.as_deref()?)?.clone());
        DrMemTrace::new(inputs?, schedule, pages.collect(), settings).map(|mut trace| {
            trace.warnings.extend(refused);
            trace
        })
    }

    /// The trace in one file.
    pub(crate) fn file(input: Input, settings: &Settings<'_>) -> Result<DrMemTrace, Error> {
        DrMemTrace::new(vec![input], None, vec![None], settings)
    }

    /// The trace in `inputs`. `found` has the pages in lists that were found beside the files.
    fn new(
        inputs: Vec<Input>,
        schedule: Option<Schedule>,
        found: Vec<Option<Pages>>,
        settings: &Settings<'_>,
    ) -> Result<DrMemTrace, Error> {
        let named = settings.v2p.map(Pages::read).transpose()?;
        let is_known = named.is_some() || found.iter().any(Option::is_some);
        let mut trace = DrMemTrace {
            header: header(settings.fetches),
            lanes: Vec::with_capacity(inputs.len()),
            shared: Shared::new(is_known),
            processes: Vec::new(),
            process: 0,
            order: Order::by_time(&[]),
            turn: None,
            keep_going: settings.keep_going,
            given: 0,
            done: false,
            warnings: Vec::new(),
        };
        let arch = settings.arch.unwrap_or(Arch::Unknown);
        let mut times = Vec::new();
        let mut failed = None;
        // Before the first segment there are no rows; the header's events have no thread yet.
        let mut nothing = Batch::default();
        for (mut input, found) in inputs.into_iter().zip(found) {
            let begun = begin(&mut input);
            let decoder = Decoder::new(settings.fetches, arch, found.or_else(|| named.clone()));
            let mut lane = Lane { input, decoder };
            let turn = begun.and_then(|()| lane.run(&mut trace.shared, &mut nothing));
            trace.lanes.push(lane);
            times.push(match turn {
                Ok(Turn::Segment(time)) => Some(time),
                Ok(_) => None,
                Err(error) if settings.keep_going => {
                    trace.warnings.push(format!("{error}; this file is left out"));
                    failed.get_or_insert(error);
                    None
                }
                Err(error) => return Err(error),
            });
        }
        // If no file is readable up to its first row, there is no trace to use.
        if let Some(error) = failed.filter(|_| times.iter().all(Option::is_none)) {
            return Err(error);
        }
        trace.describe();
        trace.agree(settings.arch)?;
        let times = trace.tell_processes(times, settings.process)?;
        trace.order = match schedule {
            None => Order::by_time(&times),
            Some(schedule) => {
                let tids = trace.lanes.iter().map(|lane| lane.decoder.tid());
                Order::scheduled(schedule, tids, times)
            }
        };
        Ok(trace)
    }

    /// Completes the header with information from the files' first records.
    fn describe(&mut self) {
        let Some(first) = self.lanes.first() else { return };
        let bits = first.decoder.filetype();
        self.header.arch = first.decoder.arch();
        self.header.page_bytes = first.decoder.page_bytes();
        self.header.notes.extend(record::notes(bits));
    }

    /// In a trace of a whole system on x86-64: the address at which the kernel's half begins.
    pub(crate) fn kernel_from(&self) -> Option<u64> {
        let filetype = self.lanes.first()?.decoder.filetype();
        let is_system = filetype & record::filetype::WHOLE_SYSTEM != 0;
        (is_system && self.header.arch == Arch::X86_64).then_some(1 << 63)
    }

    /// Refuses a trace with a file that names an instruction set other than `given`.
    fn agree(&self, given: Option<Arch>) -> Result<(), Error> {
        let Some(given) = given else { return Ok(()) };
        let other = self.lanes.iter().find(|lane| lane.decoder.arch() != given);
        other.map_or(Ok(()), |lane| {
            Err(Error::Parameters(format!(
                "{}: --arch {} contradicts the file, which says that it has {}: leave --arch out",
                lane.input.path().display(),
                given.name(),
                lane.decoder.arch().name()
            )))
        })
    }

    /// Numbers the processes in the order of `times`, the times of the first segments of their
    /// lanes. If `wanted` is given, keeps only this process. Returns the times of the remaining
    /// lanes.
    fn tell_processes(
        &mut self,
        mut times: Vec<Option<u64>>,
        wanted: Option<&str>,
    ) -> Result<Vec<Option<u64>>, Error> {
        let mut first: Vec<(u64, usize)> =
            (0..).zip(&times).filter_map(|(lane, time)| Some(((*time)?, lane))).collect();
        first.sort_unstable();
        for &(_, lane) in &first {
            let lane = &self.lanes[lane];
            self.shared.space(lane.decoder.pid());
            self.meet(lane.program());
        }
        if let Some(wanted) = wanted
            && let Some(lane) = self.lanes.first()
        {
            let number = named(lane.input.path(), &self.processes, wanted)? as usize;
            let pid = self.shared.pids[number];
            let (lanes, left) = std::mem::take(&mut self.lanes)
                .into_iter()
                .zip(times)
                .filter(|(lane, _)| lane.decoder.pid() == pid)
                .unzip();
            (self.lanes, times) = (lanes, left);
            self.processes = vec![Process { number: 0, ..self.processes.swap_remove(number) }];
            self.shared = Shared::new(self.shared.physical);
        }
        if self.processes.len() > 1 {
            let named = self.processes.iter().take(NAMED_MAX);
            let named: Vec<String> = named
                .map(|process| format!("{} {} ({})", process.number, process.name(), process.pid))
                .collect();
            self.header.notes.push(format!("processes by their spaces: {}", named.join(", ")));
        }
        Ok(times)
    }

    /// If the process that got the last number is new, adds it as a process that runs `program`.
    fn meet(&mut self, program: Option<String>) {
        let number = self.processes.len();
        let Some(&pid) = self.shared.pids.get(number) else { return };
        let (arch, command) = (self.header.arch, program.into_iter().collect());
        self.processes.push(Process {
            number: number as u32,
            pid: pid as u32,
            parent: None,
            parent_accesses: None,
            shares_space: false,
            began_ns: 0,
            programs: vec![Program { arch, command, from: 0 }],
            accesses: 0,
            instructions: 0,
        });
    }

    /// Adds the accesses of `batch` to the counts of their processes.
    fn count(&mut self, batch: &Batch) {
        // A file of a processor may contain further processes, which appear later.
        while self.processes.len() < self.shared.pids.len() {
            self.meet(None);
        }
        let mut from = 0;
        let turns = batch.events.iter().filter_map(|placed| match placed.event {
            Event::Process { number } => Some((placed.at, number as usize)),
            _ => None,
        });
        for (at, next) in turns.chain([(batch.len() as u32, usize::MAX)]) {
            if let Some(process) = self.processes.get_mut(self.process) {
                process.accesses += u64::from(at - from);
            }
            from = at;
            if next != usize::MAX {
                self.process = next;
            }
        }
    }

    /// Decodes `lane` until a segment begins, the batch is full or the file ends.
    fn run(&mut self, lane: usize, batch: &mut Batch) -> Result<Turn, Error> {
        let result = self.lanes[lane].run(&mut self.shared, batch);
        result.or_else(|error| {
            if !self.keep_going {
                return Err(error);
            }
            self.warnings.push(format!("{error}; the part before it is kept"));
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
        let split = self.lanes.iter().map(|lane| lane.decoder.split_accesses()).sum();
        self.warnings.extend(self.lanes.iter().filter_map(|lane| lane.input.remark()));
        self.warnings.extend(split_warning(split));
        let shared = &self.shared;
        if shared.prefetches > 0 {
            let (one, more) = ("prefetch is not an access", "prefetches are not accesses");
            let rest = "of the program: left out";
            self.warnings.push(counted(shared.prefetches, one, more, rest));
        }
        if incomplete > 0 {
            let rest = "recorded without all of its arguments: left out";
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
        self.count(batch);
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

    fn processes(&self) -> &[Process] {
        &self.processes
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Fills the window, and checks that the file begins like a trace that can be read.
fn begin(input: &mut Input) -> Result<(), Error> {
    if input.window().is_empty() && !input.fill() {
        return Err(input.failure().unwrap_or_else(|| input.corrupt(0, "the file is empty")));
    }
    match Sniffed::new(input.window()) {
        Sniffed::Final => Ok(()),
        other => {
            let what = foreign::certain(input.window()).or_else(|| other.refusal());
            Err(input.corrupt(0, what.unwrap_or("no header of a DynamoRIO trace")))
        }
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
        kernel_from: None,
    }
}
