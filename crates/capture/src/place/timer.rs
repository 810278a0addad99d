//! A periodic timer that interrupts the launcher's wait for the program.
//!
//! ```text
//!   helper   sleeps -> a signal to the launcher's thread -> waitpid is interrupted (EINTR)
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// As long as this value exists, system calls of the thread that created it are interrupted
/// periodically.
pub(super) struct Timer {
    ended: Arc<AtomicBool>,
    helper: Option<JoinHandle<()>>,
    signal: i32,
    before: libc::sigaction,
}

impl Timer {
    /// Starts the timer. If no thread can be created, nothing is interrupted.
    pub(super) fn new(period: Duration) -> Timer {
        let signal = libc::SIGRTMIN() + 9;
        let ended = Arc::new(AtomicBool::new(false));
        // SAFETY: all zeros are a valid action. The handler does nothing; without `SA_RESTART` it
        // interrupts system calls.
        let (before, process, thread) = unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = nothing as *const () as usize;
            libc::sigaction(signal, &new, &mut before);
            (before, libc::getpid(), libc::syscall(libc::SYS_gettid) as i32)
        };
        let is_over = Arc::clone(&ended);
        let helper = std::thread::Builder::new().spawn(move || {
            loop {
                std::thread::park_timeout(period);
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                // SAFETY: a plain system call; the thread waits for this one before it ends.
                unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
            }
        });
        Timer { ended, helper: helper.ok(), signal, before }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(helper) = self.helper.take() {
            helper.thread().unpark();
            // The helper cannot panic, so there is no error to handle.
            let _ = helper.join();
        }
        // SAFETY: restores the earlier handler.
        unsafe { libc::sigaction(self.signal, &self.before, std::ptr::null_mut()) };
    }
}

extern "C" fn nothing(_: i32) {}
