//! Puts the engine into programs that recorded programs execute.
//!
//! ```text
//!   listener   waits for processes that ask -> a thread for each
//!   thread     PTRACE_SEIZE, Ready -> waits for the end of execve -> puts the engine in, lets the process go
//!                                  -> or for a breakpoint, if execve has failed: lets the process go
//! ```
//!
//! In Linux only the thread that began to trace a process can control it. So there is a thread for
//! each traced process, which waits only for this process. If the thread or the host ends, the
//! process continues by itself.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ring::{ProcessState, Tracing};

use crate::inject::Engine;
use crate::session::{Heads, Shared};
use crate::tracee::Tracee;

/// The code segment of 64-bit programs.
const CODE_64: u64 = 0x33;

/// The thread that listens for processes that are about to execute a program.
#[derive(Debug)]
pub(crate) struct Executions {
    common: Arc<Common>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Common {
    engine: Engine,
    heads: Heads,
    /// The path of the session.
    path: String,
    is_over: AtomicBool,
    /// Programs that ran without being recorded, with reasons.
    notes: Mutex<Vec<String>>,
}

impl Executions {
    /// Begins to listen. The session is at `path` for the programs.
    pub(crate) fn listen(engine: Engine, heads: Heads, path: String) -> io::Result<Executions> {
        let (is_over, notes) = (AtomicBool::new(false), Mutex::default());
        let common = Arc::new(Common { engine, heads, path, is_over, notes });
        let mine = Arc::clone(&common);
        let listener = std::thread::Builder::new().name("executions".to_owned());
        let listener = listener.spawn(move || listen(&mine))?;
        Ok(Executions { common, listener: Some(listener) })
    }

    /// The notes on programs that ran unrecorded, since the last time.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.common.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Executions {
    fn drop(&mut self) {
        self.common.is_over.store(true, Ordering::Release);
        let asks = &self.common.heads.head().asks;
        asks.fetch_add(1, Ordering::Release);
        wake(asks.as_ptr());
        if let Some(listener) = self.listener.take() {
            // The thread ends now. An error here means that it has ended by a fault in Pagewalk.
            let _ = listener.join();
        }
    }
}

fn wake(word: *mut u32) {
    // SAFETY: the word lies in memory that is mapped.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
}

fn listen(common: &Arc<Common>) {
    let head = common.heads.head();
    loop {
        let asks = head.asks.load(Ordering::Acquire);
        if common.is_over.load(Ordering::Acquire) {
            return;
        }
        for slot in
            0..(head.processes_high.load(Ordering::Acquire) as usize).min(ring::PROCESSES_MAX)
        {
            let process = common.heads.process(slot);
            let is_live = process.state.load(Ordering::Acquire) == ProcessState::Live as u32;
            let (asked, taken) = (Tracing::Asked as u32, Tracing::Taken as u32);
            let tracing = &process.tracing;
            if is_live
                && tracing
                    .compare_exchange(asked, taken, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                let mine = Arc::clone(common);
                let begun = std::thread::Builder::new()
                    .name("execution".to_owned())
                    .stack_size(128 << 10)
                    .spawn(move || mine.follow(&process));
                if begun.is_err() {
                    answer(&common.heads.process(slot), Tracing::Refused);
                }
            }
        }
        // SAFETY: the word lies in memory that is mapped.
        unsafe {
            let (word, none) = (head.asks.as_ptr(), std::ptr::null::<libc::timespec>());
            libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, asks, none)
        };
    }
}

fn answer(process: &ring::Process, tracing: Tracing) {
    process.tracing.store(tracing as u32, Ordering::Release);
    wake(process.tracing.as_ptr());
}

impl Common {
    /// Traces a process until it has executed its program, or until the `execve` has failed.
    fn follow(&self, process: &Shared<ring::Process>) {
        let pid = process.pid.load(Ordering::Relaxed);
        let thread = process.executes.load(Ordering::Relaxed) as i32;
        let options = (libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_TRACESYSGOOD) as u64;
        if let Err(error) = ask(libc::PTRACE_SEIZE, thread, options) {
            self.note(pid, &format!("ptrace is refused ({error}), by Yama or the program itself"));
            return answer(process, Tracing::Refused);
        }
        answer(process, Tracing::Ready);
        while let Some((thread, status)) = next_stop() {
            let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
            let has_failed = || process.tracing.load(Ordering::Acquire) == Tracing::Failed as u32;
            let went_on = match event {
                libc::PTRACE_EVENT_EXEC => {
                    if let Err(why) = self.put(thread) {
                        self.note(pid, &why);
                    }
                    return;
                }
                libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => {
                    ask(libc::PTRACE_LISTEN, thread, 0)
                }
                0 if signal == libc::SIGTRAP && has_failed() => {
                    // If this is refused, the process has ended.
                    let _ = ask(libc::PTRACE_DETACH, thread, 0);
                    return;
                }
                0 => ask(libc::PTRACE_CONT, thread, signal as u64),
                _ => ask(libc::PTRACE_CONT, thread, 0),
            };
            if went_on.is_err() {
                return;
            }
        }
    }

    /// Puts the engine into the program that the stopped process `pid` has executed, or lets the program go
    /// without it. The error says why it is not recorded.
    fn put(&self, pid: i32) -> Result<(), String> {
        let let_go = |tracee: &Tracee| {
            // If this is refused, the process has ended.
            let _ = tracee.ask(libc::PTRACE_DETACH, 0, 0);
        };
        let mut tracee = Tracee::of(pid).map_err(|error| format!("it ended at once: {error}"))?;
        if let Some(why) = self.why_not(&tracee) {
            let_go(&tracee);
            return Err(why);
        }
        // Registers can be set when the call has ended, not before.
        let done = tracee.until_call().and_then(|()| tracee.get());
        let done = done.and_then(|()| self.engine.put_into(&mut tracee, &self.path));
        done.map_err(|error| {
            let_go(&tracee);
            format!("the engine cannot be put into it ({error})")
        })
    }

    /// If the program that a process has just executed cannot be recorded: the reason.
    fn why_not(&self, tracee: &Tracee) -> Option<String> {
        let pid = tracee.pid;
        if tracee.registers.cs != CODE_64 {
            return Some("it is a 32-bit program".to_owned());
        }
        let user = fs::read_to_string(format!("/proc/{pid}/status")).ok().and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
            line.split_whitespace().nth(1)?.parse::<u32>().ok()
        });
        // SAFETY: `geteuid` takes no arguments and cannot fail.
        if user.is_some_and(|user| user != unsafe { libc::geteuid() }) {
            return Some("it runs with another user's rights".to_owned());
        }
        let ours = fs::metadata(&self.path).ok();
        let theirs = fs::metadata(format!("/proc/{pid}/root{}", self.path)).ok();
        let file = |found: Option<fs::Metadata>| found.map(|found| (found.dev(), found.ino()));
        if file(ours) != file(theirs) {
            return Some("it has another root directory (chroot)".to_owned());
        }
        None
    }

    fn note(&self, pid: u32, why: &str) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(format!("process {pid}: a program that it executed ran unrecorded: {why}"));
    }
}

fn ask(request: u32, thread: i32, data: u64) -> io::Result<()> {
    // SAFETY: the arguments of these requests are only numbers.
    match unsafe { libc::ptrace(request, thread, 0, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Waits for the next stop of the process that this thread traces. `None` if the process has ended.
/// Its exit status is not read here, since its parent needs it, and the parent may be another
/// thread of this process.
fn next_stop() -> Option<(i32, i32)> {
    const OWN: i32 = libc::__WALL | libc::__WNOTHREAD;
    loop {
        // SAFETY: all zeros are a valid value of the structure, and the kernel fills it.
        let (waited, found) = unsafe {
            let mut found: libc::siginfo_t = std::mem::zeroed();
            let options = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | OWN;
            (libc::waitid(libc::P_ALL, 0, &mut found, options), found)
        };
        if waited != 0 {
            if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return None;
        }
        if matches!(found.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) {
            return None;
        }
        // SAFETY: `waitid` has set this field.
        let (thread, mut status) = (unsafe { found.si_pid() }, 0);
        // SAFETY: the status is a variable of this function.
        if unsafe { libc::waitpid(thread, &mut status, OWN) } == thread && libc::WIFSTOPPED(status)
        {
            return Some((thread, status));
        }
    }
}
