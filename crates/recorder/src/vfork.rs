//! The parent of a `vfork` waits until its child executes a program or ends. QEMU replaces the
//! `vfork` by a `fork` and lets both run, so the recorder makes the parent wait.
//!
//! ```text
//!   parent   vfork ...................... | goes on
//!   child          | runs | execve, or exit
//! ```
//!
//! So the actions of parent and child have the same order as without QEMU.

use core::sync::atomic::Ordering;

use ring::{Origin, ProcessState};

use crate::global;

/// Nanoseconds between two checks of the child.
const LOOK_NS: i64 = 100_000;
/// The number of checks after which the parent continues in any case. The child may not be
/// recorded. Or it may wait for its parent, which would never end on a system without QEMU.
const LOOKS_MAX: u32 = 10_000;

/// Waits until `child` no longer uses its parent's memory.
pub(crate) fn wait(child: u32) {
    let session = global::shared().session();
    for _ in 0..LOOKS_MAX {
        let is_followed = session.follow != 0 && session.over.load(Ordering::Relaxed) == 0;
        if !is_followed || has_left(child) || has_ended(child) {
            return;
        }
        let time = libc::timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        // SAFETY: reads one `timespec`.
        unsafe { libc::nanosleep(&time, core::ptr::null_mut()) };
    }
}

/// Whether the child calls `execve` just now, or runs the program that it has executed.
fn has_left(child: u32) -> bool {
    let shared = global::shared();
    let high = shared.session().processes_high.load(Ordering::Acquire) as usize;
    (0..high).map(|slot| shared.process(slot)).any(|process| {
        process.state.load(Ordering::Acquire) == ProcessState::Live as u32
            && process.pid.load(Ordering::Relaxed) == child
            && (process.origin.load(Ordering::Relaxed) != Origin::Forked as u32
                || process.executing.load(Ordering::Acquire) != 0
                || process.leaving.load(Ordering::Acquire) != 0)
    })
}

/// Whether the child has ended. A zombie counts as ended.
fn has_ended(child: u32) -> bool {
    // SAFETY: the system fills the structure, and all zeros are a valid value of it.
    unsafe {
        let mut found: libc::siginfo_t = core::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let refused = libc::waitid(libc::P_PID, child, &mut found, options) != 0;
        refused || found.si_pid() != 0
    }
}
