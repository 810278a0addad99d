//! What the host says of a process that ran before the engine was put in: see [`crate::attach`].

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ring::{Attach, AttachThread, AttachTold, Start};

use crate::record::FUTEX_WAIT;
use crate::sys;

/// The address of the host's data if the program ran before the engine; otherwise 0.
pub(crate) static AT: AtomicU64 = AtomicU64::new(0);

/// If the program ran before the engine: tells the host why the engine cannot begin, and waits until the host sets other
/// registers.
pub(crate) fn give_up(why: &'static str) {
    let at = AT.load(Ordering::Relaxed);
    if at == 0 {
        return;
    }
    // SAFETY: the host has put it there, and reads it once it is ready.
    let attach = unsafe { &mut *(at as *mut Attach) };
    attach.told.why = [why.as_ptr() as u64, why.len() as u64];
    attach.is_ready.store(AttachTold::FAILED, Ordering::Release);
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
        let threads = core::slice::from_raw_parts_mut(first, attach.told.threads as usize);
        Some((attach, threads))
    }
}

/// The mask of signals of the first thread; `None` for a program that begins.
pub(crate) fn first_mask(start: &Start) -> Option<u64> {
    data(start).and_then(|(_, threads)| Some(threads.first()?.mask))
}
