//! Starts the program, in QEMU or with the engine in it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use trace::{Filter, Header};

use crate::command::Program;
use crate::executed::Executions;
use crate::inject;
use crate::library::{self, Library};
use crate::options::Engine;
use crate::qemu::Qemu;
use crate::session::{LeftOut, Session, Settings};
use crate::signals::Guard;
use crate::{Error, Options, tracee};

/// The program that runs the recorded program.
pub(crate) enum Runner {
    /// QEMU, with the recorder.
    Qemu(Qemu),
    /// The program's own process, with the engine.
    Native(inject::Engine),
}

impl Runner {
    /// Chooses the engine if it can record the program with these options, and QEMU otherwise. If
    /// this is QEMU, and was not requested, the second value is the reason.
    fn choose(options: &Options, program: &Program) -> Result<(Runner, Option<String>), Error> {
        let why = match options.engine {
            Engine::Qemu => None,
            Engine::Auto | Engine::Native => match inject::Engine::find(options, program) {
                Ok(_) if options.engine == Engine::Auto && counts_in_qemu(options) => Some(
                    "guaranteed hits are to be counted, which the engine cannot do for these \
                     first-level TLBs: they do not replace by LRU, or one of fewer than 8 ways is \
                     for both code and data"
                        .to_owned(),
                ),
                Ok(engine) if inject::may_trace() => return Ok((Runner::Native(engine), None)),
                Ok(_) => {
                    let aslr = match options.aslr {
                        true => ", and QEMU does not randomise the program's layout",
                        false => "",
                    };
                    Some(format!(
                        "the engine needs ptrace to start a program, but ptrace is forbidden \
                         here, by a container or by Yama{aslr}; allow it (--cap-add SYS_PTRACE, \
                         or kernel.yama.ptrace_scope below 3), or use --engine qemu"
                    ))
                }
                Err(error) if options.engine == Engine::Native => return Err(error),
                Err(Error::NotNative { why, .. }) => Some(format!("it {why}")),
                // If the user has requested QEMU by an option, the choice needs no explanation.
                Err(Error::NativeOption(_)) => None,
                Err(error) => Some(error.to_string()),
            },
        };
        match Qemu::find(options, program) {
            Ok(qemu) => Ok((Runner::Qemu(qemu), why)),
            Err(error @ Error::NoQemu(_)) => Err(match why {
                Some(why) => Error::NeitherEngine { why, error: Box::new(error) },
                None => error,
            }),
            Err(error) => Err(error),
        }
    }
}

/// Whether guaranteed hits are to be counted that only the recorder in QEMU can count, and the
/// engine cannot.
fn counts_in_qemu(options: &Options) -> bool {
    /// If a TLB is for both code and data, the engine counts its hits only if it has at least this
    /// number of ways.
    const TOGETHER_WAYS_MIN: u32 = 8;
    let Some(sure) = options.sure else { return false };
    let is_lru = sure.replaces.iter().all(|replaces| *replaces == trace::Replaces::Lru);
    let ways = sure.pages[0] / sure.sets[0].max(1);
    !is_lru || sure.together && ways < TOGETHER_WAYS_MIN
}

/// All that is needed to start and record a program.
pub(crate) struct Prepared {
    program: Program,
    runner: Runner,
    session: Session,
    command: Vec<String>,
    one_cpu: bool,
    aslr: bool,
    follow: bool,
    /// The library that marks allocations.
    library: Option<Library>,
    /// Why the program runs in QEMU, if that was not requested.
    why_qemu: Option<String>,
}

/// The environment variable with a number of blocks that replaces [`PATIENCE`].
const PATIENCE_VARIABLE: &str = "PAGEWALK_PATIENCE";
/// Measured with the starts of `python3` and `ls`: all numbers from 64 to 4096 cost the same.
const PATIENCE: u32 = 1 << 10;

/// The number of recorded blocks after which a process asks for the contents of the TLBs. Tests ask
/// more often than is efficient.
fn patience() -> u32 {
    let said = std::env::var(PATIENCE_VARIABLE).ok().and_then(|said| said.parse().ok());
    said.filter(|&blocks| blocks > 0).unwrap_or(PATIENCE)
}

impl Prepared {
    /// Finds the program of `options`, its QEMU, and the plugin or the engine; creates the session.
    pub(crate) fn new(options: &Options) -> Result<Prepared, Error> {
        tracee::check_host()?;
        let program = Program::find(&options.command)?;
        let (runner, why_qemu) = Runner::choose(options, &program)?;
        let stem = match &runner {
            Runner::Qemu(qemu) => qemu.stem(&program),
            Runner::Native(_) => Vec::new(),
        };
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
            // If the window begins with an event, the host itself counts the accesses to skip after
            // it.
            skip_accesses: if options.from.is_some() { 0 } else { options.skip_accesses },
            left_out: options.leaves_out().then(|| LeftOut {
                from: options.from.clone(),
                skip: options.skip_accesses,
                sample: options.sample.unwrap_or_default(),
            }),
            pages: options.pages,
            sure: options.sure,
            patience: patience(),
            strays: matches!(&runner, Runner::Qemu(qemu) if qemu.strays),
            inline_code: matches!(&runner, Runner::Qemu(qemu) if qemu.inline_code),
            qemu_prefix: &stem,
            allocations: library.as_ref().map_or(b"", Library::stem),
        })?;
        if let Runner::Qemu(qemu) = &runner {
            let plugin = qemu.plugin_argument(&session.path());
            session.set_plugin(plugin.as_bytes())?;
        }
        let words = options.command.iter().map(|word| word.to_string_lossy().into_owned());
        let command = told(words.collect(), options.arguments);
        let (one_cpu, aslr, follow) = (options.one_cpu, options.aslr, options.follow);
        Ok(Prepared { program, runner, session, command, one_cpu, aslr, follow, library, why_qemu })
    }

    /// The engine in which the program will run.
    pub(crate) fn engine(&self) -> Engine {
        match self.runner {
            Runner::Qemu(_) => Engine::Qemu,
            Runner::Native(_) => Engine::Native,
        }
    }

    /// Why the program will run in QEMU, although that was not requested.
    pub(crate) fn why_qemu(&self) -> Option<&str> {
        self.why_qemu.as_deref()
    }

    /// The first program, as its trace describes it.
    pub(crate) fn first(&self) -> trace::Program {
        trace::Program { arch: self.program.elf.arch, command: self.command.clone(), from: 0 }
    }

    /// Starts the program.
    pub(crate) fn start(self) -> Result<(Launch, Session), Error> {
        let Prepared { program, runner, session, one_cpu, aslr, follow, library, why_qemu, .. } =
            self;
        let mut command = match &runner {
            Runner::Qemu(qemu) => {
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
                command
            }
            Runner::Native(_) => {
                // The path must contain a slash, so that it is not searched in `PATH`.
                let path = std::path::absolute(&program.path).unwrap_or(program.path.clone());
                let mut command = Command::new(path);
                command.arg0(&program.argv0);
                if let Some(library) = library {
                    command.env(library::VARIABLE, library.libraries());
                }
                command
            }
        };
        command.args(&program.arguments);
        if one_cpu {
            // SAFETY: between fork and exec only system calls are made.
            unsafe { command.pre_exec(stay_on_one_cpu) };
        }
        let signals = Guard::new();
        let child = match &runner {
            Runner::Qemu(qemu) => command.spawn().map_err(|error| Error::System {
                what: format!("cannot start {}", qemu.path.display()),
                error,
            })?,
            Runner::Native(engine) => {
                engine.start(&mut command, &program.path, &session.path(), aslr)?
            }
        };
        signals.set_program(child.id());
        let (qemu, engine) = match runner {
            Runner::Qemu(qemu) => (Some(qemu), None),
            Runner::Native(engine) => (None, Some(engine).filter(|_| follow)),
        };
        let listening =
            engine.map(|engine| Executions::listen(engine, session.heads(), session.path()));
        let executions = listening.transpose().map_err(|error| Error::System {
            what: "cannot start a thread for programs that the program executes".to_owned(),
            error,
        })?;
        let (status, was_ended) = (None, false);
        let why_qemu = why_qemu.map(|why| format!("the program ran in QEMU: {why}"));
        let launch =
            Launch { child, signals, program, qemu, executions, status, was_ended, why_qemu };
        Ok((launch, session))
    }
}

/// Restricts this process and its children to the processor that it is running on.
fn stay_on_one_cpu() -> std::io::Result<()> {
    // SAFETY: the system calls get a pointer to a variable of this function, for which all zeros
    // are an empty set.
    let refused = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) != 0
    };
    if refused { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// A program that is running and recorded.
pub(crate) struct Launch {
    pub(crate) child: Child,
    pub(crate) signals: Guard,
    program: Program,
    /// The QEMU that the program runs in, if any.
    qemu: Option<Qemu>,
    /// Puts the engine into programs that the program executes, if they are recorded natively.
    executions: Option<Executions>,
    status: Option<i32>,
    /// Whether the program was killed by [`Launch::end`].
    was_ended: bool,
    /// If the program runs in QEMU although that was not requested: a note that says why.
    pub(crate) why_qemu: Option<String>,
}

impl Launch {
    /// The program's exit status if it has ended. It is 128 plus the signal's number if a signal
    /// ended the program, and 0 if [`Launch::end`] killed it.
    pub(crate) fn status(&mut self) -> Option<i32> {
        if self.status.is_none()
            && has_ended(&self.child)
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.ended(status);
        }
        self.status
    }

    /// Kills the program, if it is running.
    pub(crate) fn end(&mut self) {
        // The program may have ended by itself just now. Then there is nothing to kill.
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

    /// A note if the program was killed by [`Launch::end`].
    pub(crate) fn why_ended(&self) -> Option<String> {
        self.was_ended.then(|| {
            "the program was killed when its window had ended, as --end-with-window asks".to_owned()
        })
    }

    /// A note if an illegal instruction ended the program. This also detects the status by which a
    /// shell reports that its child ended in this way.
    pub(crate) fn why_illegal(&self, status: i32) -> Option<String> {
        let qemu = self.qemu.as_ref()?;
        (status == 128 + libc::SIGILL).then(|| {
            format!(
                "the program ended with SIGILL: it used an instruction that {} does not emulate, \
                 such as one of AVX-512; make the program use other instructions, or build it for \
                 an older processor (-march=x86-64-v3)",
                qemu.path.display()
            )
        })
    }

    /// Why nothing was recorded although QEMU was started.
    pub(crate) fn why_nothing(&self, status: i32) -> Error {
        match &self.qemu {
            Some(qemu) => qemu
                .complaint(&self.program)
                .unwrap_or_else(|| Error::NotStarted { qemu: qemu.path.clone(), status }),
            None => Error::NotEntered { program: self.program.path.clone(), status },
        }
    }

    /// Notes on programs that the program has executed and that ran unrecorded, since the last
    /// call.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        self.executions.as_ref().map(Executions::take_notes).unwrap_or_default()
    }

    /// Why the engine has ended the program, if it has.
    pub(crate) fn why_refused(&self, session: &Session) -> Option<Error> {
        let (pc, why) = session.refused()?;
        Some(Error::Refused { program: self.program.path.clone(), pc, why })
    }
}

/// Whether the child has ended. A thread that traces it sees it stop, which `waitpid` would report here as well.
fn has_ended(child: &Child) -> bool {
    // SAFETY: all zeros are a valid value of the structure, and the kernel fills it.
    unsafe {
        let mut found: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let asked = libc::waitid(libc::P_PID, child.id(), &mut found, options) == 0;
        // If `waitid` fails, `try_wait` finds out.
        !asked || matches!(found.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED)
    }
}

/// The path in a form that QEMU does not take for an option, as it would a name that begins with a
/// dash.
fn path_argument(path: &OsStr) -> std::path::PathBuf {
    if path.as_bytes().starts_with(b"-") {
        std::path::Path::new(".").join(path)
    } else {
        path.into()
    }
}

/// The part of a command that is recorded: all of it, or the program only.
pub(crate) fn told(mut command: Vec<String>, arguments: bool) -> Vec<String> {
    if !arguments {
        command.truncate(1);
    }
    command
}

/// The header of a trace that begins with the program `first`.
pub(crate) fn header(options: &Options, engine: Engine, first: &trace::Program) -> Header {
    let how = match engine {
        Engine::Auto | Engine::Qemu => {
            "recorded in QEMU's user mode: the layout of the address space is QEMU's, not Linux's, \
             and the kernel's own accesses are not recorded"
        }
        Engine::Native if options.aslr => {
            "recorded natively by Pagewalk's engine: the layout of the address space is Linux's \
             own, with randomisation, and the kernel's own accesses are not recorded"
        }
        Engine::Native => {
            "recorded natively by Pagewalk's engine: the layout of the address space is Linux's \
             without randomisation, and the kernel's own accesses are not recorded"
        }
    };
    let mut notes = vec![how.to_owned()];
    if !options.follow {
        notes
            .push("programs that the program starts, by fork or exec, are not recorded".to_owned());
    }
    if let Some(from) = &options.from {
        notes.push(format!("the recording begins with {from}"));
    }
    if let Some(to) = &options.to {
        notes.push(format!("the recording ends with {to}"));
    }
    if let Some(max) = options.instructions_max {
        notes.push(format!(
            "the recording of each process ends with the block that completes {max} instructions"
        ));
    }
    if options.allocations {
        notes.push(
            "allocations were reported by a library that was loaded into each program; the \
             accesses of the library's own code are left out, except those by which it looks up \
             the functions that it replaces"
                .to_owned(),
        );
    }
    if options.one_cpu {
        notes.push(
            "the program and all programs that it started ran on one processor of the host"
                .to_owned(),
        );
    }
    if options.skip_accesses != 0 {
        notes.push(format!(
            "the recording of each process begins after {} of its accesses",
            options.skip_accesses
        ));
    }
    if let Some([window, period]) = options.sample {
        notes.push(format!(
            "each process is recorded in windows: the first {window} of every {period} accesses"
        ));
    }
    if let Some(max) = options.accesses_max {
        notes.push(format!("the recording of each process ends after {max} accesses at most"));
    }
    if let Some(max) = options.bytes_max {
        notes.push(format!("the recording ends when its file has about {max} bytes, or earlier"));
    }
    if let Some(process) = &options.process {
        notes.push(format!(
            "only processes whose program or process identifier is `{process}` were recorded"
        ));
    }
    Header {
        producer: options.producer.clone(),
        command: first.command.clone(),
        arch: first.arch,
        fetches: options.fetches,
        filter: options.filter,
        page_bytes: 4096,
        notes,
        kernel_from: None,
    }
}
