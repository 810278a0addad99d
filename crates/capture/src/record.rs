//! Recording into files.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trace::Writer;

use crate::launch::{Prepared, header};
use crate::supervise::{Arrival, Failure, Outputs, Supervisor};
use crate::{Error, Options, Outcome, Progress, Recorded};

/// Time between two calls of the progress function.
const PROGRESS: Duration = Duration::from_millis(100);

/// Records `options.command` into `output`, and its children beside it.
///
/// A child's trace is named after its process and program: `out.pwt`, `out.1234-ls.pwt`. The
/// recording lasts until the last recorded process has ended. `progress` is called some times
/// a second. The program's input and output are this process's own; Ctrl-C is the program's.
///
/// # Errors
///
/// When the program cannot be started nothing is left behind. When a trace cannot be written
/// the program runs on to its end, unrecorded, and what was not finished is removed.
pub fn record(
    options: &Options,
    output: &Path,
    writer: &trace::Options,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Error> {
    let prepared = Prepared::new(options, options.follow)?;
    let mut files = Files::new(options, output, writer);
    // Before the program runs: it should not run in vain.
    let first = prepared.arrival();
    files.first = files.open(&first).map_err(|error| Error::Output { error })?;
    let (mut launch, session) = prepared.start()?;
    let mut supervisor = Supervisor::new(session, files, options, first.command);
    let mut told = Instant::now();
    loop {
        let any = supervisor.step(&mut |_| false);
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            progress(&supervisor.progress());
        }
        if options.ends
            && options.accesses_max.is_some_and(|max| supervisor.progress().accesses >= max)
        {
            launch.end();
        }
        if any {
            continue;
        }
        if launch.status().is_some() {
            if launch.signals.came() {
                supervisor.abandon();
            }
            // Once more, for what came between the last look and the end.
            if supervisor.processes.is_empty() && !supervisor.step(&mut |_| false) {
                break;
            }
        }
        supervisor.sleep();
    }
    progress(&supervisor.progress());
    let status = launch.status().unwrap_or_default();
    match supervisor.failure.take() {
        Some(Failure::Trace(error)) => return Err(Error::Trace { error, status }),
        Some(Failure::Other(error)) => return Err(error),
        None => {}
    }
    if supervisor.seen == 0 {
        return Err(launch.why_nothing(status));
    }
    let mut notes = std::mem::take(&mut supervisor.notes);
    notes.extend(supervisor.lost());
    let mut traces = supervisor.outputs.done;
    traces.sort_by_key(|(number, _)| *number);
    Ok(Outcome { status, traces: traces.into_iter().map(|(_, trace)| trace).collect(), notes })
}

impl Supervisor<Files<'_>> {
    fn progress(&self) -> Progress {
        let mut progress = Progress { processes: self.seen, ..self.outputs.finished };
        for watched in &self.processes {
            if let Some(window) = &watched.process.output {
                progress.accesses += window.sink.accesses();
                progress.bytes += window.sink.bytes();
            }
        }
        progress
    }
}

/// One trace file a process.
struct Files<'a> {
    options: &'a Options,
    output: PathBuf,
    writer: &'a trace::Options,
    named: HashSet<PathBuf>,
    finished: Progress,
    done: Vec<(u32, Recorded)>,
    /// Opened before the program was started.
    first: Option<Writer>,
}

impl<'a> Files<'a> {
    fn new(options: &'a Options, output: &Path, writer: &'a trace::Options) -> Files<'a> {
        Files {
            options,
            output: output.to_owned(),
            writer,
            named: HashSet::from([output.to_owned()]),
            finished: Progress::default(),
            done: Vec::new(),
            first: None,
        }
    }

    /// `out.1234-ls.pwt` for `out.pwt`; another number if there is such a trace already.
    fn name(&mut self, arrival: &Arrival) -> PathBuf {
        if arrival.number == 0 {
            return self.output.clone();
        }
        let program = arrival.command.first().map_or("", String::as_str);
        let program = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
        let stem = self.output.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let extension = self.output.extension().map(|extension| extension.to_string_lossy());
        let extension = extension.map_or(String::new(), |extension| format!(".{extension}"));
        for again in 1.. {
            let number = if again == 1 { String::new() } else { format!(".{again}") };
            let name = format!("{stem}.{}{number}-{program}{extension}", arrival.pid);
            let path = self.output.with_file_name(name);
            let is_taken = path.exists() && !self.writer.overwrite;
            if !is_taken && self.named.insert(path.clone()) {
                return path;
            }
        }
        unreachable!("there are names without end")
    }
}

impl Outputs for Files<'_> {
    type Sink = Writer;

    fn open(&mut self, arrival: &Arrival) -> Result<Option<Writer>, trace::Error> {
        if let Some(writer) = self.first.take() {
            return Ok(Some(writer));
        }
        let path = self.name(arrival);
        let header = header(self.options, arrival, self.options.follow);
        Writer::create(&path, header, self.writer.clone()).map(Some)
    }

    fn close(&mut self, arrival: &Arrival, writer: Writer) -> Result<(), trace::Error> {
        let summary = writer.finish()?;
        self.finished.accesses += summary.accesses;
        self.finished.bytes += summary.bytes;
        let command = arrival.command.clone();
        self.done.push((arrival.number, Recorded { summary, pid: arrival.pid, command }));
        Ok(())
    }
}
