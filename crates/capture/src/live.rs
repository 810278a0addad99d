//! Recording into batches, while the program runs.

use trace::{Arch, Batch, Batcher, Error as TraceError, Header, Source};

use crate::launch::{Launch, Prepared, header};
use crate::supervise::{Arrival, Failure, Outputs, Supervisor};
use crate::{Error, Options};

/// A program that runs and is recorded, as a source of its accesses. Nothing is stored.
///
/// Only the first process is seen, until it ends or executes another program; what it starts
/// runs unrecorded. Dropped before its end, it lets the program run on unrecorded.
pub struct Live {
    header: Header,
    launch: Launch,
    supervisor: Supervisor<First>,
    is_done: bool,
}

/// The first process only.
struct First {
    /// What its process has left when it ended.
    rest: Option<Batcher>,
}

impl Outputs for First {
    type Sink = Batcher;

    fn open(&mut self, arrival: &Arrival) -> Result<Option<Batcher>, TraceError> {
        Ok((arrival.number == 0).then(Batcher::new))
    }

    fn close(&mut self, _: &Arrival, mut sink: Batcher) -> Result<(), TraceError> {
        sink.finish();
        self.rest = Some(sink);
        Ok(())
    }
}

impl Live {
    /// Starts the program.
    ///
    /// # Errors
    ///
    /// When the program or its QEMU is missing or does not start.
    pub fn start(options: &Options) -> Result<Live, Error> {
        let prepared = Prepared::new(options, false)?;
        let arrival = prepared.arrival();
        let header = header(options, &arrival, false);
        let (launch, session) = prepared.start()?;
        let supervisor = Supervisor::new(session, First { rest: None }, options, arrival.command);
        Ok(Live { header, launch, supervisor, is_done: false })
    }

    /// Waits for the program's end and gives its exit status: 128 and the signal's number if
    /// one has ended it. Accesses that nobody took are dropped.
    pub fn finish(mut self) -> i32 {
        self.supervisor.stop();
        loop {
            if let Some(status) = self.launch.status() {
                return status;
            }
            if !self.supervisor.step(&mut |_| false) {
                self.supervisor.sleep();
            }
        }
    }

    /// What could not be recorded and why; complete at the end.
    pub fn notes(&self) -> &[String] {
        &self.supervisor.notes
    }

    /// The program's instruction set.
    pub fn arch(&self) -> Arch {
        self.header.arch
    }

    /// Takes what has come, if that is enough for a batch.
    fn take(&mut self, batch: &mut Batch) -> bool {
        for watched in &mut self.supervisor.processes {
            if let Some(window) = &mut watched.process.output
                && window.sink.is_full()
            {
                return window.sink.take(batch);
            }
        }
        false
    }
}

impl Source for Live {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        while !self.is_done {
            let any = self.supervisor.step(&mut |batcher| batcher.is_full());
            if let Some(failure) = self.supervisor.failure.take() {
                self.is_done = true;
                return Err(match failure {
                    Failure::Trace(error) => error,
                    Failure::Other(error) => TraceError::Recorder(error.to_string()),
                });
            }
            if self.take(batch) {
                return Ok(true);
            }
            if let Some(mut rest) = self.supervisor.outputs.rest.take() {
                self.is_done = true;
                return Ok(rest.take(batch));
            }
            if any {
                continue;
            }
            if let Some(status) = self.launch.status()
                && self.supervisor.seen == 0
            {
                self.is_done = true;
                return Err(TraceError::Recorder(self.launch.why_nothing(status).to_string()));
            }
            self.supervisor.sleep();
        }
        Ok(false)
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("header", &self.header).finish_non_exhaustive()
    }
}
