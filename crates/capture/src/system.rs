//! Recording a whole machine: a kernel and its programs, in Pagewalk's own qemu-system-x86_64.
//!
//! ```text
//!   qemu-system-x86_64 + recorder --ring of each virtual CPU--> one process with a thread for each --> trace
//! ```
//!
//! The caller has prepared the machine: its kernel, its disks, and the snapshot from which it continues. The
//! recording begins and ends at markers that the guest runs, or begins with the machine and ends with it; QEMU ends
//! by itself.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::Deserialize;
use trace::{Arch, Event, Filter, Header, Origin, Recording};

use crate::machine::{KERNEL_FROM, Machine};
use crate::record::{File, PROGRESS};
use crate::session::{Session, Settings};
use crate::signals::Guard;
use crate::supervise::{Failure, Supervisor};
use crate::{Engine, Error, Options, Outcome, Progress, Recorded, tracee};

/// A whole machine to record.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// The command that runs in the machine. It is stored in the header of the trace.
    pub command: Vec<OsString>,
    /// The name of the kernel, for the trace.
    pub kernel: String,
    /// Pagewalk's own qemu-system-x86_64.
    pub qemu: PathBuf,
    /// QEMU's arguments, without those of the plugin.
    pub arguments: Vec<OsString>,
    /// Facts about the kernel that the recorder needs, each as `NAME=0xNUMBER`.
    pub facts: Vec<String>,
    /// The file with the symbols of the kernel's image.
    pub image: OsString,
    /// The parts of the kernel's image: first address, size in bytes, rights, and offset in the file.
    pub segments: Vec<(u64, u64, u8, u64)>,
    /// Other regions of the kernel, in its half of the addresses: name, address, size in bytes, and rights.
    pub regions: Vec<(String, u64, u64, u8)>,
    /// Whether recording begins when the machine starts, without a marker.
    pub boot: bool,
    /// Whether a fetch is recorded for each block.
    pub fetches: bool,
    /// Whether the recorder uses only the callbacks of QEMU's plugin interface.
    pub callbacks: bool,
    /// The number of accesses to leave out before recording begins.
    #[serde(rename = "skip")]
    pub skip_accesses: u64,
    /// The number of accesses after which recording ends.
    #[serde(rename = "max_accesses")]
    pub accesses_max: Option<u64>,
    /// Whether the machine is stopped when `accesses_max` accesses have been recorded.
    pub ends: bool,
    /// Notes for readers of the trace.
    pub notes: Vec<String>,
}

/// Records a whole machine into the file `output`, until its QEMU ends.
///
/// # Errors
///
/// If QEMU cannot be started or does not load its recorder, no file is left.
pub fn record_system(
    system: &System,
    output: &Path,
    writer: &trace::Options,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Error> {
    tracee::check_host()?;
    let session = Session::new(&Settings {
        left_out: None,
        filter_page16: false,
        follow: false,
        calls: false,
        pages: false,
        fetches: system.fetches,
        // The host itself counts the accesses to skip.
        skip_accesses: 0,
        sure: None,
        patience: 1,
        strays: false,
        inline_code: !system.callbacks,
        qemu_prefix: b"",
        allocations: b"",
    })?;
    let mut options = Options::new(system.command.clone());
    options.fetches = system.fetches;
    options.follow = false;
    options.skip_accesses = system.skip_accesses;
    options.accesses_max = system.accesses_max;
    let words = system.command.iter().map(|word| word.to_string_lossy().into_owned());
    let header = Header {
        producer: options.producer.clone(),
        command: words.collect(),
        arch: Arch::X86_64,
        fetches: system.fetches,
        filter: Filter::None,
        page_bytes: 4096,
        notes: system.notes.clone(),
        kernel_from: Some(KERNEL_FROM),
    };
    let recording = Recording::create(output, &header, writer.clone());
    let recording = recording.map_err(|error| Error::Output { error })?;
    let mut plugin = format!("pagewalk,session={}", session.path());
    let begins = system.boot.then(|| "begin=now".to_owned());
    for fact in system.facts.iter().cloned().chain(begins) {
        plugin.push(',');
        plugin.push_str(&fact);
    }
    let mut command = Command::new(&system.qemu);
    command.args(&system.arguments).arg("-plugin").arg(plugin).stdin(Stdio::null());
    let signals = Guard::new();
    let mut child = command.spawn().map_err(|error| Error::System {
        what: format!("cannot start {}", system.qemu.display()),
        error,
    })?;
    signals.set_program(child.id());
    let first =
        trace::Program { arch: Arch::X86_64, command: vec![system.kernel.clone()], from: 0 };
    let mut supervisor = Supervisor::new(session, File::new(recording), &options, first);
    let [upper, lower] = kernel_regions(system);
    supervisor.machine = Some(Box::new(Machine::new(&system.kernel, upper, lower)));
    let (mut told, mut status) = (Instant::now(), None);
    loop {
        let any = supervisor.step();
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            progress(&supervisor.progress());
        }
        if system.ends && status.is_none() && supervisor.has_all() {
            // If QEMU has ended by itself meanwhile, nothing is left to be stopped.
            let _ = child.kill();
        }
        if any {
            continue;
        }
        if status.is_none()
            && let Ok(Some(ended)) = child.try_wait()
        {
            signals.program_ended();
            status = Some(ended);
        }
        if status.is_some() && supervisor.is_empty() && !supervisor.step() {
            break;
        }
        supervisor.sleep();
    }
    progress(&supervisor.progress());
    let status = status.map_or(0, |ended| {
        ended.code().unwrap_or_else(|| 128 + ended.signal().unwrap_or_default())
    });
    finish(system, supervisor, status)
}

/// Events with the kernel's regions in its half of the addresses, and with those at lower addresses.
/// Before each part of the kernel's image is the build of the image.
fn kernel_regions(system: &System) -> [Vec<Event>; 2] {
    let path = system.image.to_string_lossy().into_owned();
    let identity = symbols::identity(Path::new(&system.image));
    let mut found = [Vec::new(), Vec::new()];
    for &(start, bytes, rights, offset) in &system.segments {
        let origin = Origin::File(path.clone());
        let offset = Some(offset);
        let image = Event::Image { path: path.clone(), identity: identity.clone() };
        let mapping = Event::Mapping { start, bytes, rights, origin, offset, file: None };
        found[usize::from(start < KERNEL_FROM)].extend([image, mapping]);
    }
    found[0].extend(system.regions.iter().map(|&(ref name, start, bytes, rights)| {
        let origin = Origin::Other(name.clone());
        Event::Mapping { start, bytes, rights, origin, offset: None, file: None }
    }));
    found
}

/// Completes the trace.
fn finish(
    system: &System,
    mut supervisor: Supervisor<File>,
    status: i32,
) -> Result<Outcome, Error> {
    match supervisor.failure.take() {
        Some(Failure::Trace(error)) => return Err(Error::Trace { error, status }),
        Some(Failure::Other(error)) => return Err(error),
        None => {}
    }
    if supervisor.seen == 0 {
        return Err(Error::NotStarted { qemu: system.qemu.clone(), status });
    }
    let machine = supervisor.machine.take();
    let counts = supervisor.outputs.counts.get(&0).copied();
    let mut notes = std::mem::take(&mut supervisor.notes);
    let all = machine.map_or_else(Vec::new, |mut machine| {
        let (checked, differ) = machine.checked;
        if checked > 0 {
            notes.push(format!("{checked} accesses compared with QEMU's TLB: {differ} differ"));
            notes.append(&mut machine.differences);
        }
        machine.count(counts.unwrap_or_default());
        machine.processes
    });
    let lost = supervisor.take_lost();
    let Supervisor { outputs, .. } = supervisor;
    for process in &all {
        let told = outputs.recording.tell(process);
        told.map_err(|error| Error::Trace { error, status })?;
    }
    let processes = all.into_iter().map(|process| Recorded {
        accesses: process.accesses,
        instructions: process.instructions,
        process,
    });
    let processes = processes.collect();
    let summary = outputs.recording.finish().map_err(|error| Error::Trace { error, status })?;
    Ok(Outcome { status, engine: Engine::Qemu, summary, processes, notes, lost })
}
