//! The end of a program by a signal.
//!
//! The program makes no system call at this time. Often there is no fault on the host either, which
//! [`crate::derived`] could use: before a fetch, QEMU checks its own table of the guest's pages,
//! and unaligned addresses are detected by a helper function. But for every signal from every
//! sender, QEMU ends itself with the C library's `kill`. It does so on the thread to which the
//! signal was delivered, and outside of translated code. Pagewalk's own QEMU calls `pagewalk_ends`
//! before this `kill`.
//!
//! The recorder then does the same as before a system call that ends the process: it records all counted
//! accesses and ends the segment, so that the segment comes before anything that a waiting parent does.

use core::sync::atomic::Ordering;

use crate::{filter, global, span, sure, vcpu};

/// Called before a signal ends this process.
pub(crate) fn tell() {
    // With several threads, the others still write records, and no hits are counted.
    if vcpu::is_alone() && !global::is_stopped() {
        filter::settle(0);
        sure::settle(0);
        span::mark(0, true);
        global::shared().session().running.fetch_sub(1, Ordering::Release);
    }
}

/// Called by Pagewalk's own QEMU before it ends itself by the signal that ends the program.
#[cfg(feature = "inside")]
#[unsafe(no_mangle)]
extern "C" fn pagewalk_ends() {
    tell();
}
