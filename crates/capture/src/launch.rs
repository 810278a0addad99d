//! Starting the program under QEMU.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use trace::{Filter, Header};

use crate::command::Program;
use crate::library::Library;
use crate::qemu::Qemu;
use crate::session::{Session, Settings};
use crate::signals::Guard;
use crate::{Error, Options};

/// Everything that a program needs to run under QEMU.
pub(crate) struct Prepared {
    program: Program,
    qemu: Qemu,
    session: Session,
    command: Vec<String>,
    one_cpu: bool,
    /// The library that marks allocations.
    library: Option<Library>,
}

/// Names the number of blocks after which it is asked what TLBs hold, in place of [`PATIENCE`].
const PATIENCE_VARIABLE: &str = "PAGEWALK_PATIENCE";
/// Measured with the starts of `python3` and `ls`, all numbers from 64 to 4096 cost the same.
const PATIENCE: u32 = 1 << 10;

/// After how many blocks that are told it is asked what TLBs hold. Tests ask more often than pays.
fn patience() -> u32 {
    let said = std::env::var(PATIENCE_VARIABLE).ok().and_then(|said| said.parse().ok());
    said.filter(|&blocks| blocks > 0).unwrap_or(PATIENCE)
}

impl Prepared {
    /// Finds the program of `options`, its QEMU and the plugin, and makes the session.
    pub(crate) fn new(options: &Options) -> Result<Prepared, Error> {
        let program = Program::find(&options.command)?;
        let qemu = Qemu::find(options, &program)?;
        let library = if options.allocations {
            Some(Library::find(options.libraries.as_deref(), &program)?)
        } else {
            None
        };
        let mut session = Session::new(&Settings {
            filter_page16: options.filter == Filter::Page16,
            follow: options.follow,
            calls: options.calls,
            fetches: options.fetches,
            // Behind a sign the host counts.
            skip_accesses: if options.from.is_some() { 0 } else { options.skip_accesses },
            sure: options.sure,
            patience: patience(),
            strays: qemu.strays,
            inline_code: qemu.inline_code,
            qemu_prefix: &qemu.stem(&program),
            allocations: library.as_ref().map_or(b"", Library::stem),
        })?;
        let plugin = qemu.plugin_argument(&session.path());
        session.set_plugin(plugin.as_bytes())?;
        let words = options.command.iter().map(|word| word.to_string_lossy().into_owned());
        let command = told(words.collect(), options.arguments);
        let one_cpu = options.one_cpu;
        Ok(Prepared { program, qemu, session, command, one_cpu, library })
    }

    /// The first program, as its trace tells it.
    pub(crate) fn first(&self) -> trace::Program {
        trace::Program { arch: self.program.elf.arch, command: self.command.clone(), from: 0 }
    }

    /// Starts the program.
    pub(crate) fn start(self) -> Result<(Launch, Session), Error> {
        let Prepared { program, qemu, session, one_cpu, library, .. } = self;
        let mut command = Command::new(&qemu.path);
        command.arg("-plugin").arg(qemu.plugin_argument(&session.path()));
        command.arg("-0").arg(&program.argv0);
        if let Some(prefix) = &qemu.prefix {
            command.arg("-L").arg(prefix);
        }
        if let Some(library) = library {
            library.preload(&mut command);
        }
        command.arg(path_argument(program.path.as_os_str()));
        command.args(&program.arguments);
        if one_cpu {
            // SAFETY: between fork and exec only system calls are made.
            unsafe { command.pre_exec(stay_on_one_cpu) };
        }
        let signals = Guard::new();
        let child = command.spawn().map_err(|error| Error::System {
            what: format!("cannot start {}", qemu.path.display()),
            error,
        })?;
        signals.set_program(child.id());
        Ok((Launch { child, signals, program, qemu, status: None, was_ended: false }, session))
    }
}

/// Lets this process and its children run on the processor that it is on, and on no other.
fn stay_on_one_cpu() -> std::io::Result<()> {
    // SAFETY: plain system calls with a set of ours, zero being an empty one.
    let refused = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) != 0
    };
    if refused { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// A program that runs under QEMU.
pub(crate) struct Launch {
    pub(crate) child: Child,
    pub(crate) signals: Guard,
    program: Program,
    qemu: Qemu,
    status: Option<i32>,
    /// Whether it was killed here.
    was_ended: bool,
}

impl Launch {
    /// The program's status if it has ended: 128 and the signal's number if one has ended it, 0 if that was
    /// [`Launch::end`].
    pub(crate) fn status(&mut self) -> Option<i32> {
        if self.status.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.ended(status);
        }
        self.status
    }

    /// Ends the program, if it runs.
    pub(crate) fn end(&mut self) {
        // It may have ended by itself just now, which is as good.
        self.was_ended |= self.status.is_none() && self.child.kill().is_ok();
    }

    fn ended(&mut self, status: ExitStatus) {
        self.signals.program_ended();
        self.was_ended &= status.signal() == Some(libc::SIGKILL);
        self.status = Some(match (status.code(), status.signal()) {
            _ if self.was_ended => 0,
            (Some(code), _) => code,
            (None, signal) => 128 + signal.unwrap_or(0),
        });
    }

    /// What there is to say if the program was killed here.
    pub(crate) fn why_ended(&self) -> Option<String> {
        self.was_ended.then(|| {
            "the program was killed when its window had ended, as --end-with-window asks".to_owned()
        })
    }

    /// What there is to say if the program ended by an instruction that its processor did not know:
    /// by the signal itself, or as a shell reports it of its child.
    pub(crate) fn why_illegal(&self, status: i32) -> Option<String> {
        (status == 128 + libc::SIGILL).then(|| {
            format!(
                "the program ended with SIGILL: it used an instruction that the processor of {} \
                 does not have, AVX-512 for instance, which QEMU 7.2 does not know; let it choose \
                 others, or build it for an older processor (-march=x86-64-v3)",
                self.qemu.path.display()
            )
        })
    }

    /// Why nothing was recorded though QEMU was started.
    pub(crate) fn why_nothing(&self, status: i32) -> Error {
        self.qemu
            .complaint(&self.program)
            .unwrap_or_else(|| Error::NotStarted { qemu: self.qemu.path.clone(), status })
    }
}

/// A name that begins with a dash would be an option to QEMU.
fn path_argument(path: &OsStr) -> std::path::PathBuf {
    if path.as_bytes().starts_with(b"-") {
        std::path::Path::new(".").join(path)
    } else {
        path.into()
    }
}

/// What is told of a command: all of it, or the program alone.
pub(crate) fn told(mut command: Vec<String>, arguments: bool) -> Vec<String> {
    if !arguments {
        command.truncate(1);
    }
    command
}

/// What a trace that begins with the program `first` says about itself.
pub(crate) fn header(options: &Options, first: &trace::Program) -> Header {
    let mut notes = vec![
        "recorded in QEMU's user mode: the layout of the address space is QEMU's, not Linux's, \
         and what the kernel itself touches is not seen"
            .to_owned(),
    ];
    if !options.follow {
        notes.push("what the program starts, by fork or exec, runs unseen".to_owned());
    }
    if let Some(from) = &options.from {
        notes.push(format!("it begins with {from}"));
    }
    if let Some(to) = &options.to {
        notes.push(format!("it ends with {to}"));
    }
    if let Some(max) = options.instructions_max {
        notes.push(format!("each process ends with the block that completes {max} instructions"));
    }
    if options.allocations {
        notes.push(
            "allocations were marked by a library that was loaded into each program; the accesses \
             of its own code are left out, those of its search for the functions that it hides are \
             not"
            .to_owned(),
        );
    }
    if options.one_cpu {
        notes.push("the program and what it starts ran on one processor of the host".to_owned());
    }
    if options.skip_accesses != 0 {
        notes.push(format!("each process begins after {} accesses", options.skip_accesses));
    }
    if let Some(max) = options.accesses_max {
        notes.push(format!("each process ends after {max} accesses at most"));
    }
    if let Some(max) = options.bytes_max {
        notes.push(format!("ends after about {max} bytes of its file at most"));
    }
    if let Some(process) = &options.process {
        notes.push(format!("only what ran as `{process}` was recorded"));
    }
    Header {
        producer: options.producer.clone(),
        command: first.command.clone(),
        arch: first.arch,
        fetches: options.fetches,
        filter: options.filter,
        page_bytes: 4096,
        notes,
    }
}
