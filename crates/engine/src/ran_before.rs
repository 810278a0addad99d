//! What the host says of a process that ran before the engine was put in: see [`crate::attach`].

use core::sync::atomic::{AtomicBool, AtomicU32};

use ring::{Attach, AttachThread, Start};

use crate::record::FUTEX_WAIT;
use crate::sys;

/// Whether the program ran before the engine.
pub(crate) static IS_ATTACHED: AtomicBool = AtomicBool::new(false);

/// Waits until the host sets other registers.
pub(crate) fn wait() -> ! {
    static NEVER: AtomicU32 = AtomicU32::new(0);
    loop {
        sys::futex(NEVER.as_ptr(), FUTEX_WAIT, 0, &[1, 0]);
    }
}

/// The data of the process to which the host has attached, and its threads; `None` for a program that begins.
pub(crate) fn data(start: &Start) -> Option<(&'static mut Attach, &'static mut [AttachThread])> {
    if start.attach == 0 {
        return None;
    }
    // SAFETY: the host has stored the value there, and no other code uses it.
    unsafe {
        let attach = &mut *(start.attach as *mut Attach);
        let first = (start.attach as *mut Attach).add(1).cast::<AttachThread>();
        let threads = core::slice::from_raw_parts_mut(first, attach.threads as usize);
        Some((attach, threads))
    }
}

/// The mask of signals of the first thread; `None` for a program that begins.
pub(crate) fn first_mask(start: &Start) -> Option<u64> {
    data(start).and_then(|(_, threads)| Some(threads.first()?.mask))
}
