//! Recording into batches while the program runs.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use trace::mix::Switches;
use trace::{Arch, Batch, Batcher, Contents, Error as TraceError, Family, Header, Process, Source};

use crate::launch::{Launch, Prepared, header};
use crate::options::Engine;
use crate::supervise::{Failure, Outputs, Supervisor};
use crate::{Error, Options};

/// A running program as a source of its accesses. Nothing is stored.
///
/// Programs that the program executes or starts are recorded too, unless that was switched off. The
/// accesses of all processes come in the order of the clock, each process in its own space, until
/// the last process has ended. If the source is dropped before that, the programs continue
/// unrecorded.
pub struct Live {
    header: Header,
    engine: Engine,
    launch: Launch,
    supervisor: Supervisor<Batches>,
    family: Family,
    /// The number of processes in `family`.
    known: usize,
    /// Whether the programs are killed after the requested accesses were recorded.
    ends: bool,
    /// The batch that was last taken from a process. It is kept so that its memory can be used
    /// again.
    piece: Batch,
    given: u64,
    is_done: bool,
    /// Accesses that were counted instead of recorded.
    counted: u64,
    /// The last process that asked for the contents of the first-level TLBs.
    asking: Option<u32>,
}

/// A batcher for each process.
#[derive(Default)]
struct Batches {
    /// The rest of the accesses of processes that have ended.
    rests: VecDeque<(u32, Batcher)>,
}

impl Outputs for Batches {
    type Sink = Batcher;

    fn open(&mut self, _: &Process) -> Result<Batcher, TraceError> {
        Ok(Batcher::new())
    }

    fn tell(&mut self, _: &Process) -> Result<(), TraceError> {
        Ok(())
    }

    fn close(&mut self, process: &Process, mut sink: Batcher) -> Result<(), TraceError> {
        sink.finish();
        self.rests.push_back((process.number, sink));
        Ok(())
    }
}

impl Live {
    /// Starts the program.
    ///
    /// # Errors
    ///
    /// The program or its QEMU is missing or does not start.
    pub fn start(options: &Options) -> Result<Live, Error> {
        // Only recordings into a file have snapshots of pages.
        let prepared = Prepared::new(&Options { pages: false, ..options.clone() })?;
        let first = prepared.first();
        let engine = prepared.engine();
        let options = &Options { engine, ..options.clone() };
        let header = header(options, engine, &first);
        let (mut launch, session) = prepared.start()?;
        let mut supervisor = Supervisor::new(session, Batches::default(), options, first);
        supervisor.notes.extend(launch.why_qemu.take());
        Ok(Live {
            header,
            engine,
            launch,
            supervisor,
            family: Family::default(),
            known: 0,
            ends: options.ends,
            piece: Batch::default(),
            given: 0,
            is_done: false,
            counted: 0,
            asking: None,
        })
    }

    /// Waits for the program's end and returns its exit status: 128 plus the signal's number if a
    /// signal ended it, 0 if it was killed because [`Options::ends`] requests that. Accesses that
    /// were not taken are dropped.
    pub fn finish(mut self) -> i32 {
        self.supervisor.stop();
        loop {
            if let Some(status) = self.launch.status() {
                return status;
            }
            if !self.supervisor.step() {
                self.supervisor.sleep();
            }
        }
    }

    /// Notes on the recording; complete at the end.
    pub fn notes(&self) -> &[String] {
        &self.supervisor.notes
    }

    /// The parts that are missing, and why; complete after the last access. Empty if nothing is
    /// missing.
    pub fn take_lost(&mut self) -> Vec<String> {
        self.supervisor.take_lost()
    }

    /// The number of accesses that were counted instead of recorded.
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// Whether any process can count accesses.
    pub fn can_count(&self) -> bool {
        self.supervisor.session.head().counts.load(Ordering::Relaxed) != 0
    }

    /// The engine that runs the first program.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// The program's architecture.
    pub fn arch(&self) -> Arch {
        self.header.arch
    }

    /// Appends the accesses of process `number` to `batch`.
    fn take(&mut self, number: u32, batch: &mut Batch) {
        let mine =
            |watched: &&mut crate::supervise::Watched<Batcher>| watched.number == Some(number);
        let watched = self.supervisor.processes.iter_mut().find(mine);
        if let Some(window) = watched.and_then(|watched| watched.process.output.kept()) {
            window.sink.take(&mut self.piece);
            self.append(number, batch);
        }
    }

    /// Appends the piece of process `number` to `batch`.
    fn append(&mut self, number: u32, batch: &mut Batch) {
        for process in &self.supervisor.family[self.known..] {
            self.family.begin(process);
        }
        self.known = self.supervisor.family.len();
        if self.piece.asks {
            self.asking = Some(number);
        }
        self.counted += self.piece.passed.iter().map(|(_, accesses)| accesses).sum::<u64>();
        let (rows, events) = (0..self.piece.len() as u32, self.piece.events.len());
        self.family.append(number, &mut self.piece, rows, events, batch);
    }

    /// Fills `batch`. Returns false if the programs have ended.
    fn fill(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        while batch.len() < Batcher::FULL {
            let (number, any) = self.supervisor.step_in_order(&mut |batcher| batcher.is_full());
            if let Some(failure) = self.supervisor.failure.take() {
                return Err(match failure {
                    Failure::Trace(error) => error,
                    Failure::Other(error) => TraceError::Recorder(error.to_string()),
                });
            }
            if let Some(number) = number {
                self.take(number, batch);
            }
            while let Some((number, mut rest)) = self.supervisor.outputs.rests.pop_front() {
                rest.take(&mut self.piece);
                self.append(number, batch);
            }
            if self.ends && self.supervisor.has_all() {
                self.launch.end();
                self.supervisor.kill();
            }
            if batch.asks {
                break;
            }
            if any {
                continue;
            }
            if let Some(status) = self.launch.status() {
                if self.supervisor.seen == 0 {
                    return Err(TraceError::Recorder(self.launch.why_nothing(status).to_string()));
                }
                if self.supervisor.is_empty() {
                    if let Some(error) = self.launch.why_refused(&self.supervisor.session) {
                        return Err(TraceError::Recorder(error.to_string()));
                    }
                    self.supervisor.notes.extend(self.launch.why_illegal(status));
                    if let Some(error) = self.supervisor.why_nothing(status) {
                        return Err(TraceError::Recorder(error.to_string()));
                    }
                    self.supervisor.notes.extend(self.supervisor.signs.why_no_end());
                    self.supervisor.notes.extend(self.launch.why_ended());
                    self.supervisor.notes.extend(self.launch.take_notes());
                    return Ok(false);
                }
                if self.launch.signals.came() {
                    self.supervisor.abandon();
                }
            }
            // If nothing more arrives, the accesses so far are passed on as a batch.
            if batch.is_empty() {
                self.supervisor.sleep();
            } else {
                break;
            }
        }
        Ok(true)
    }
}

impl Source for Live {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        batch.first = self.given;
        if self.is_done {
            return Ok(false);
        }
        match self.fill(batch) {
            Ok(more) => self.is_done = !more,
            Err(error) => {
                self.is_done = true;
                return Err(error);
            }
        }
        self.given += batch.len() as u64;
        Ok(!batch.is_empty() || batch.asks)
    }

    fn answer(&mut self, contents: Option<[Contents; 2]>) {
        let asking = self.asking.take();
        let mut watched = self.supervisor.processes.iter();
        if let Some(watched) = watched.find(|watched| asking.is_some() && watched.number == asking)
        {
            watched.process.answer(contents.as_ref());
        }
    }

    fn processes(&self) -> &[Process] {
        &self.supervisor.family
    }

    fn switches(&self) -> Option<Switches> {
        (self.known > 1).then(|| Switches::recorded(self.family.switches()))
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("header", &self.header).finish_non_exhaustive()
    }
}
