//! Recording into a file.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use trace::{Recording, Sink, Writer};

use crate::launch::{Prepared, header};
use crate::pages::Sampler;
use crate::supervise::{Failure, Outputs, Supervisor};
use crate::{Engine, Error, Options, Outcome, Progress, Recorded};

/// The time between two calls of the progress function.
pub(crate) const PROGRESS: Duration = Duration::from_millis(100);
/// The minimum number of accesses in a chunk of the file. Smaller chunks would be inefficient, as
/// each chunk has its own dictionary.
const CHUNK_ACCESSES_MIN: u32 = 1 << 12;

/// Records `options.command` and all that it starts into the file `output`.
///
/// The recording lasts until the last recorded process has ended. `progress` is called several
/// times a second. The program's input and output are this process's own; Ctrl-C goes to the
/// program.
///
/// # Errors
///
/// If the program cannot be started, no file is left. If the trace cannot be written, the program
/// runs on to its end unrecorded, and the part written before stays as `NAME.part`.
pub fn record(
    options: &Options,
    output: &Path,
    writer: &trace::Options,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Error> {
    let prepared = Prepared::new(options)?;
    let (first, engine) = (prepared.first(), prepared.engine());
    let options = &Options { engine, ..options.clone() };
    let sampler = match (options.pages, engine) {
        (false, _) => None,
        (true, Engine::Qemu | Engine::Auto) => {
            let why =
                prepared.why_qemu().map(|why| format!("; the program would run in QEMU: {why}"));
            return Err(Error::PagesInQemu { why: why.unwrap_or_default() });
        }
        (true, Engine::Native) => Some(Sampler::new()?),
    };
    let mut header = header(options, engine, &first);
    header.notes.extend(sampler.as_ref().map(|sampler| sampler.note().to_owned()));
    let mut writer = writer.clone();
    if let Some(bytes) = options.bytes_max {
        writer.chunk_accesses = writer.chunk_accesses.min(chunk_accesses(bytes));
    }
    // The file is created before the program runs, so that the program does not run in vain.
    let recording =
        Recording::create(output, &header, writer).map_err(|error| Error::Output { error })?;
    let (mut launch, session) = prepared.start()?;
    raise_limit();
    let mut supervisor = Supervisor::new(session, File::new(recording), options, first);
    supervisor.pages = sampler;
    let mut told = Instant::now();
    loop {
        supervisor.look_at_pages();
        // The event of one process begins or ends the window of all processes, so they must be
        // decoded in the order of the clock.
        let any = match supervisor.watches {
            true => supervisor.step_in_order(&mut |_| false).1,
            false => supervisor.step(),
        };
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            progress(&supervisor.progress());
        }
        if options.ends && supervisor.has_all() {
            launch.end();
            supervisor.kill();
        }
        if options.bytes_max.is_some_and(|max| supervisor.outputs.recording.bytes() >= max) {
            supervisor.end();
        }
        if any {
            continue;
        }
        if launch.status().is_some() {
            if launch.signals.came() {
                supervisor.abandon();
            }
            // One more step is for records that came between the last step and the end.
            if supervisor.is_empty() && !supervisor.step() {
                break;
            }
        }
        supervisor.sleep();
    }
    progress(&supervisor.progress());
    let status = launch.status().unwrap_or_default();
    let linked = supervisor.link();
    let failure = supervisor.failure.take().or(linked.err().map(Failure::Trace));
    let Supervisor { outputs, seen, session, .. } = &mut supervisor;
    match failure {
        Some(Failure::Trace(error)) => return Err(Error::Trace { error, status }),
        Some(Failure::Other(error)) => {
            let error = Box::new(error);
            return Err(match outputs.recording.keep() {
                Some(part) => Error::Kept { error, part },
                None => *error,
            });
        }
        None => {}
    }
    if let Some(error) = launch.why_refused(session) {
        return Err(error);
    }
    if *seen == 0 {
        return Err(launch.why_nothing(status));
    }
    if let Some(error) = supervisor.why_nothing(status) {
        return Err(error);
    }
    supervisor.notes.extend(supervisor.signs.why_no_end());
    let Supervisor { outputs, family, .. } = &mut supervisor;
    let counts = |process: &trace::Process| outputs.counts.get(&process.number).copied();
    let processes = family.iter().map(|process| {
        let (accesses, instructions) = counts(process).unwrap_or_default();
        Recorded { process: process.clone(), accesses, instructions }
    });
    let processes = processes.collect();
    let mut notes = std::mem::take(&mut supervisor.notes);
    notes.extend(launch.why_qemu.take());
    notes.extend(launch.take_notes());
    notes.extend(launch.why_illegal(status));
    notes.extend(launch.why_ended());
    let lost = supervisor.take_lost();
    let summary = supervisor.outputs.recording.finish();
    let summary = summary.map_err(|error| Error::Trace { error, status })?;
    Ok(Outcome { status, engine, summary, processes, notes, lost })
}

/// The number of accesses in a chunk of a file that ends at about `bytes_max` bytes. A chunk's size
/// is known only when the chunk is full and was written. Most accesses take less than a byte.
fn chunk_accesses(bytes_max: u64) -> u32 {
    const CHUNKS: u64 = 16;
    u32::try_from(bytes_max / CHUNKS).unwrap_or(u32::MAX).max(CHUNK_ACCESSES_MIN)
}

/// Raises this process's limit for open descriptors to the maximum, as each recorded process needs
/// one.
fn raise_limit() {
    // SAFETY: the calls get a pointer only to a structure of this function. The program already has
    // its own limit.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

impl Supervisor<File> {
    pub(crate) fn progress(&mut self) -> Progress {
        let (accesses, bytes) = (self.accesses(), self.outputs.recording.bytes());
        Progress { accesses, bytes, processes: self.seen }
    }
}

/// One file for all processes.
pub(crate) struct File {
    pub(crate) recording: Recording,
    /// For each process that has ended, by its number: its accesses and instructions.
    pub(crate) counts: HashMap<u32, (u64, u64)>,
}

impl File {
    pub(crate) fn new(recording: Recording) -> File {
        File { recording, counts: HashMap::new() }
    }
}

impl Outputs for File {
    type Sink = Writer;

    fn open(&mut self, process: &trace::Process) -> Result<Writer, trace::Error> {
        self.recording.process(process)
    }

    fn tell(&mut self, process: &trace::Process) -> Result<(), trace::Error> {
        self.recording.tell(process)
    }

    fn close(&mut self, process: &trace::Process, mut writer: Writer) -> Result<(), trace::Error> {
        writer.end()?;
        self.counts.insert(process.number, (writer.accesses(), writer.instructions()));
        Ok(())
    }
}
