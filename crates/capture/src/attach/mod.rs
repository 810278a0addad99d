//! Records a part of a program that runs already, and lets it go on by itself.
//!
//! ```text
//!   attach: is it one that can be recorded? -> session -> operator puts its threads into the engine
//!   rings -> window is over, or it is time -> operator puts its threads back -> the rest of the rings
//! ```

mod operate;

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use operate::Left;
use trace::{Arch, Recording};

use crate::inject::Engine;
use crate::launch::{header, told};
use crate::pages::Sampler;
use crate::record::{File, PROGRESS};
use crate::session::{LeftOut, Session, Settings};
use crate::signals::Guard;
use crate::supervise::{Failure, Supervisor, exists};
use crate::{Error, Options, Outcome, Progress, Recorded, elf, options, tracee};

/// The environment variables by which `pagewalk` tells its operator what to do.
const OPERATOR: [&str; 3] = ["PAGEWALK_OPERATES", "PAGEWALK_SESSION", "PAGEWALK_ENGINE"];
/// How long an operator may take to put the engine in, or to take it out.
const OPERATES: Duration = Duration::from_secs(60);

/// What is recorded of a running program, besides the windows in its options.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// The process.
    pub pid: u32,
    /// The time after which recording ends, if it is limited.
    pub limit: Option<Duration>,
    /// The command that calls [`operate`] in a process of its own.
    pub operator: Vec<OsString>,
}

/// Does the work of the operator that the environment describes. Called in a process of its own.
///
/// # Errors
///
/// The engine is missing, or nobody reads the answers.
pub fn operate() -> std::io::Result<()> {
    let [pid, session, engine] = OPERATOR.map(|name| std::env::var(name).unwrap_or_default());
    let pid = pid.parse().map_err(std::io::Error::other)?;
    if session.is_empty() {
        return operate::repair(pid);
    }
    let bytes = fs::read(&engine)?;
    let engine = Engine::load(&bytes).ok_or_else(|| std::io::Error::other("no engine"))?;
    operate::operate(pid, &session, &engine)
}

/// The process that operates.
struct Operator {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Operator {
    /// Starts the process that puts the engine into the program. Without a session, it takes out what a killed operator has
    /// left.
    fn start(attachment: &Attachment, session: &str, engine: &Path) -> Result<Operator, Error> {
        let failed = |error| Error::System { what: "cannot start an operator".to_owned(), error };
        let none = || failed(std::io::Error::from_raw_os_error(libc::EINVAL));
        let (program, arguments) = attachment.operator.split_first().ok_or_else(none)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let values =
            [attachment.pid.to_string().into(), session.into(), engine.as_os_str().to_owned()];
        command.envs(OPERATOR.iter().zip::<[OsString; 3]>(values));
        // SAFETY: one system call.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            })
        };
        let mut child = command.spawn().map_err(failed)?;
        let (orders, output) = (child.stdin.take(), child.stdout.take());
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
                let Ok(line) = line else { break };
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Operator { child, orders, answers })
    }

    /// What it says next. Empty if it has ended.
    fn says(&self) -> String {
        self.answers.recv_timeout(OPERATES).unwrap_or_default()
    }

    /// Takes out what a killed operator has left in the program. The error says why that is not possible.
    fn repair(attachment: &Attachment) -> Result<(), Error> {
        let said = Operator::start(attachment, "", Path::new(""))?.says();
        match said.strip_prefix("error ") {
            None if said == "out" => Ok(()),
            why => Err(refused(
                attachment.pid,
                format!("an earlier recording has left its engine in it: {}", why.unwrap_or(ENDED)),
            )),
        }
    }

    /// Orders that the program be left.
    fn leave(&mut self) {
        if let Some(mut orders) = self.orders.take() {
            // If it is gone, so is the program.
            let _ = orders.write_all(b"leave\n");
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.leave();
        let _ = self.child.wait();
    }
}

/// Said if an operator has ended without an answer.
const ENDED: &str = "its operator has ended";

fn refused(pid: u32, why: impl Into<String>) -> Error {
    Error::NotAttached { pid, why: why.into() }
}

/// The path of the program that the process runs, and its command line; the error says why it cannot be recorded.
fn check(pid: u32, session: Option<&str>) -> Result<(PathBuf, Vec<String>), Error> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let status = fs::read_to_string(folder.join("status"));
    let status = status.map_err(|_| {
        refused(pid, "there is no such process; `pgrep -a NAME` lists the processes of a program")
    })?;
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()).unwrap_or_default().to_owned()
    };
    if pid == std::process::id() {
        return Err(refused(pid, "it is this pagewalk itself: give another process"));
    }
    if line("Tgid:") != pid.to_string() {
        return Err(refused(
            pid,
            format!("it is a thread of process {}: give that", line("Tgid:")),
        ));
    }
    if matches!(line("State:").as_str(), "Z" | "X") {
        return Err(refused(pid, "it has ended: give a process that runs"));
    }
    // SAFETY: it cannot fail.
    let own = unsafe { libc::geteuid() };
    if own != 0 && line("Uid:") != own.to_string() {
        return Err(refused(pid, "it is another user's: run pagewalk as that user or as root"));
    }
    let tracer = line("TracerPid:");
    if tracer != "0" {
        return Err(refused(
            pid,
            format!("process {tracer} traces it already: end that (a debugger, strace) first"),
        ));
    }
    if line("Seccomp:") != "0" && !line("Seccomp:").is_empty() {
        return Err(refused(
            pid,
            "it filters its system calls (seccomp), and the engine could not make its own: start it without the filter",
        ));
    }
    let exe = fs::read_link(folder.join("exe")).map_err(|error| {
        let what = match error.kind() {
            std::io::ErrorKind::NotFound => "it is the kernel's",
            _ => "it forbids others to look at it (PR_SET_DUMPABLE): run pagewalk as root",
        };
        refused(pid, format!("its program cannot be seen ({error}): {what}"))
    })?;
    let elf = elf::read(&folder.join("exe"))
        .map_err(|error| refused(pid, format!("its program cannot be read: {error}")))?;
    if elf.arch != Arch::X86_64 {
        return Err(refused(
            pid,
            format!(
                "it is a program for {}, and pagewalk attaches to those for x86-64: `pagewalk record` it",
                elf.qemu_name()
            ),
        ));
    }
    let maps = fs::read_to_string(folder.join("maps")).unwrap_or_default();
    let recorded = || Err(refused(pid, "another pagewalk records it: wait for the end of that"));
    match operate::left_in(pid as i32) {
        Some(Left::Operated) => return recorded(),
        Some(Left::Foreign) => {
            let why = "a pagewalk of another version has left its engine in it: attach with that version first";
            return Err(refused(pid, why));
        }
        // It is taken out before there is a session.
        Some(Left::Behind) if session.is_none() => {}
        Some(Left::Behind) | None if maps.contains("/memfd:pagewalk") => return recorded(),
        Some(Left::Behind) | None => {}
    }
    if let Some(session) = session {
        let file = |path: String| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let space = |name: &str| fs::read_link(format!("/proc/{name}/ns/pid")).ok();
        let is_elsewhere = file(session.to_owned()) != file(format!("/proc/{pid}/root{session}"))
            || space("self") != space(&pid.to_string());
        if is_elsewhere {
            return Err(refused(
                pid,
                "it runs in a container, or with another root directory: run pagewalk in there",
            ));
        }
    }
    let command = fs::read(folder.join("cmdline")).unwrap_or_default();
    let words =
        command.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let mut words: Vec<String> = words.collect();
    words.pop();
    if words.is_empty() {
        words.push(exe.to_string_lossy().into_owned());
    }
    Ok((exe, words))
}

/// Records a part of the program that `attachment` names into the file `output`, and lets it go on. `options` have no
/// command.
///
/// # Errors
///
/// The process cannot be recorded; it then runs on as before. Or the trace cannot be written.
pub fn attach(
    attachment: &Attachment,
    options: &Options,
    output: &Path,
    writer: &trace::Options,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Error> {
    tracee::check_host()?;
    let pid = attachment.pid;
    let (_, command) = check(pid, None)?;
    let engine_path =
        options.engine_path.clone().unwrap_or_else(|| PathBuf::from("pagewalk-engine"));
    let options = Options { engine: options::Engine::Native, follow: false, ..options.clone() };
    let options = &options;
    let is_repaired = matches!(operate::left_in(pid as i32), Some(Left::Behind));
    if is_repaired {
        Operator::repair(attachment)?;
    }
    let (sampler, mut notes) = match options.pages.then(Sampler::new) {
        None => (None, Vec::new()),
        Some(Ok(sampler)) => (Some(sampler), Vec::new()),
        Some(Err(Error::NoPagemapScan)) => {
            let why = "the sizes of its pages are not recorded: this kernel has no PAGEMAP_SCAN (Linux 6.7), or no \
                       readable /proc/PID/pagemap";
            (None, vec![why.to_owned()])
        }
        Some(Err(error)) => return Err(error),
    };
    if is_repaired {
        notes.push(format!(
            "process {pid} had memory of an earlier recording's engine in it, which was taken out first"
        ));
    }
    let session = Session::new(&Settings {
        filter_page16: options.filter == trace::Filter::Page16,
        follow: false,
        calls: options.calls,
        fetches: options.fetches,
        skip_accesses: 0,
        left_out: options.leaves_out().then(|| LeftOut {
            from: options.from.clone(),
            skip: options.skip_accesses,
            sample: options.sample.unwrap_or_default(),
        }),
        pages: false,
        sure: None,
        patience: 0,
        strays: false,
        inline_code: false,
        qemu_prefix: b"",
        allocations: b"",
    })?;
    check(pid, Some(&session.path()))?;
    let first =
        trace::Program { arch: Arch::X86_64, command: told(command, options.arguments), from: 0 };
    let mut head = header(options, options.engine, &first);
    head.notes.push(format!("a part of a program that ran already, as process {pid}"));
    head.notes.extend(sampler.as_ref().map(|sampler| sampler.note().to_owned()));
    let recording = Recording::create(output, &head, writer.clone())
        .map_err(|error| Error::Output { error })?;
    let signals = Guard::new();
    let mut operator = Operator::start(attachment, &session.path(), &engine_path)?;
    let said = operator.says();
    if said != "in" {
        if said.is_empty() {
            drop(operator);
            Operator::repair(attachment)?;
        }
        return Err(refused(pid, said.strip_prefix("error ").unwrap_or(ENDED)));
    }
    signals.program_ended();
    let mut supervisor = Supervisor::new(session, File::new(recording), options, first);
    supervisor.pages = sampler;
    let (began, mut told_at) = (Instant::now(), Instant::now());
    let (mut is_leaving, mut is_repairing, mut is_out) = (false, false, None);
    loop {
        supervisor.look_at_pages();
        let any = match supervisor.watches {
            true => supervisor.step_in_order(&mut |_| false).1,
            false => supervisor.step(),
        };
        if told_at.elapsed() >= PROGRESS {
            told_at = Instant::now();
            progress(&supervisor.progress());
        }
        let is_over = supervisor.has_all()
            || attachment.limit.is_some_and(|limit| began.elapsed() >= limit)
            || options.bytes_max.is_some_and(|max| supervisor.outputs.recording.bytes() >= max)
            || signals.came()
            || supervisor.failure.is_some()
            || supervisor.session.refused().is_some();
        if is_over && !is_leaving {
            is_leaving = true;
            operator.leave();
        }
        if is_out.is_none() {
            is_out = operator.answers.try_recv().ok();
        }
        let has_ended = operator.child.try_wait().is_ok_and(|status| status.is_some());
        if is_out.is_none() && has_ended {
            is_out = operator.answers.recv().ok();
        }
        if is_out.is_none() && has_ended && !is_repairing && exists(pid) {
            (is_repairing, is_leaving) = (true, true);
            operator = Operator::start(attachment, "", Path::new(""))?;
            notes.push(format!(
                "the operator of process {pid} was killed, and another one took the engine out"
            ));
            continue;
        }
        if is_out.is_some() || has_ended {
            supervisor.abandon();
            break;
        }
        if !any {
            supervisor.sleep();
        }
    }
    progress(&supervisor.progress());
    if let Some(why) = is_out.as_deref().and_then(|said| said.strip_prefix("error ")) {
        notes.push(format!("process {pid}: {why}"));
    }
    if let Some((pc, why)) = supervisor.session.refused() {
        notes.push(format!(
            "the recording ended early: {why}, at {pc:#x}, which the engine does not record"
        ));
    }
    let status = 0;
    match supervisor.failure.take() {
        Some(Failure::Trace(error)) => return Err(Error::Trace { error, status }),
        Some(Failure::Other(error)) => return Err(error),
        None => {}
    }
    if let Some(what) = supervisor.signs.why_nothing() {
        return Err(refused(pid, format!("{what}; it runs on")));
    }
    supervisor.notes.extend(supervisor.signs.why_no_end());
    let Supervisor { outputs, family, .. } = &mut supervisor;
    let counts = |process: &trace::Process| outputs.counts.get(&process.number).copied();
    let processes = family.iter().map(|process| {
        let (accesses, instructions) = counts(process).unwrap_or_default();
        Recorded { process: process.clone(), accesses, instructions }
    });
    let processes = processes.collect();
    notes.extend(std::mem::take(&mut supervisor.notes));
    let lost = supervisor.take_lost();
    let summary = supervisor.outputs.recording.finish();
    let summary = summary.map_err(|error| Error::Trace { error, status })?;
    Ok(Outcome { status, engine: options.engine, summary, processes, notes, lost })
}
