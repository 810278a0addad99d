//! Signals while a program is recorded: they are meant for the program.
//!
//! Ctrl-C at a terminal also sends the signal to the program, so the recorder only has to survive
//! it. It recognises this case by the signal's information, which says that the kernel has sent the
//! signal. A signal that another process sends to the recorder is passed on to the program. After
//! the program has ended while its children run on, a signal to the recorder ends the recording of
//! the children.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

static PROGRAM: AtomicI32 = AtomicI32::new(0);
static CAME: AtomicBool = AtomicBool::new(false);

const WATCHED: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
/// The code of a signal that the kernel itself has sent because of a key.
const SI_KERNEL: i32 = 0x80;

/// A guard: as long as it exists, signals do not end this process.
pub(crate) struct Guard {
    before: Vec<(i32, libc::sigaction)>,
}

impl Guard {
    /// Begins to handle signals. Only one guard can exist at a time.
    pub(crate) fn new() -> Guard {
        CAME.store(false, Ordering::Relaxed);
        PROGRAM.store(0, Ordering::Relaxed);
        let mut before = Vec::new();
        for signal in WATCHED {
            // SAFETY: the handlers make only calls that are allowed in a handler. A signal that was
            // ignored stays ignored, since the program inherits this.
            unsafe {
                let mut old: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut old);
                if old.sa_sigaction == libc::SIG_IGN {
                    continue;
                }
                let mut new: libc::sigaction = std::mem::zeroed();
                new.sa_sigaction = on_signal as *const () as usize;
                new.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
                libc::sigaction(signal, &new, std::ptr::null_mut());
                before.push((signal, old));
            }
        }
        Guard { before }
    }

    /// Sets the program to which signals are passed on.
    pub(crate) fn set_program(&self, pid: u32) {
        PROGRAM.store(pid as i32, Ordering::Relaxed);
    }

    /// Called when the program has ended: forgets earlier signals.
    pub(crate) fn program_ended(&self) {
        if PROGRAM.swap(0, Ordering::Relaxed) != 0 {
            CAME.store(false, Ordering::Relaxed);
        }
    }

    /// Whether a signal has come since the program's end.
    pub(crate) fn came(&self) -> bool {
        PROGRAM.load(Ordering::Relaxed) == 0 && CAME.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        for (signal, old) in &self.before {
            // SAFETY: restores the earlier handlers.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
    }
}

extern "C" fn on_signal(signal: i32, info: *const libc::siginfo_t, _: *mut libc::c_void) {
    CAME.store(true, Ordering::Relaxed);
    let program = PROGRAM.load(Ordering::Relaxed);
    // SAFETY: with `SA_SIGINFO` the system passes a valid `info`.
    let sender = unsafe { (*info).si_code };
    if program > 0 && sender != SI_KERNEL {
        // SAFETY: `kill` may be called in a handler.
        unsafe { libc::kill(program, signal) };
    }
}
