//! The end of a program by a signal.
//!
//! The program makes no system call then. Often there is no fault of the host either, which [`crate::derived`] would
//! see: QEMU looks up in its own table of the guest's pages whether an instruction can be fetched, and a helper finds
//! an address that is not aligned. But whatever the signal is and whoever sent it, QEMU ends itself with the C library's
//! `kill`, on the thread that the signal was for and outside of translated code. Our own QEMU calls
//! `pagewalk_ends` before that.
//!
//! Everything is done then that is done before a system call that ends the process: what was counted is recorded, and
//! the segment ends, so that it comes before whatever a parent does that waits for this process.

use core::sync::atomic::Ordering;

use crate::{filter, global, span, sure, vcpu};

/// A signal is about to end this process.
pub(crate) fn tell() {
    // Of several threads others write on, and nothing is counted.
    if vcpu::is_alone() && !global::is_stopped() {
        filter::settle(0);
        sure::settle(0);
        span::mark(0, true);
        global::shared().session().running.fetch_sub(1, Ordering::Release);
    }
}

/// A QEMU of our own is about to end itself by the signal that ends the program.
#[cfg(feature = "inside")]
#[unsafe(no_mangle)]
extern "C" fn pagewalk_ends() {
    tell();
}
