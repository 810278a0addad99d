//! Processes that run already: how their threads come into the engine, and how they leave it again.
//!
//! ```text
//!   host     stops all threads, puts the engine in                  | all enter |          stops all, puts them back, unmaps
//!   first    takes over signals, makes an engine for each thread ---+--> recorded ... parks
//!   others                                                           +--> recorded ... parks, or is in a system call
//! ```
//!
//! The host is a process of its own for this, which ends neither with `pagewalk` nor with its terminal. While threads come
//! and leave, it has them stopped, with all signals blocked. A thread leaves at the end of a block: it waits with the program's registers in
//! their slots ([`ring::Outside`]), and the host sets them. A thread in a system call of the program is put back before it,
//! as the kernel restarts calls.

use core::sync::atomic::Ordering;

use ring::{AttachThread, AttachTold, EventCode, Outside};

use crate::ran_before::data;
use crate::record::FUTEX_WAIT;
use crate::run::{ARCH_SET_GS, Engine};
use crate::signal::SA_RESTART;
use crate::state::{ENGINE_RSP, FLAGS, FS_BASE, GS_BASE, OUTSIDE, PENDING, State, TID};
use crate::sys::{self, nr};
use crate::{own, ways};

const PATIENCE_NS: u64 = 1_000_000;
const RSEQ_UNREGISTER: u64 = 1;

/// The part of a thread's data for the host.
fn outside(state: State) -> &'static mut Outside {
    // SAFETY: it is in the thread's data, which stays; the host uses it while the thread is stopped.
    unsafe { &mut *((state.0 + OUTSIDE as u64) as *mut Outside) }
}

/// Fills the slots of a thread.
fn fill(state: State, thread: &AttachThread) {
    for (number, &value) in (0..16u8).zip(&thread.registers) {
        state.set_register(number, value);
    }
    state.set(FLAGS, thread.flags);
    state.set(FS_BASE, thread.fs);
    state.set(GS_BASE, thread.gs);
    state.set(TID, thread.tid);
    state.set(PENDING, 0);
    outside(state).rseq = thread.rseq;
}

/// Ends the thread's registration for restartable sequences until it leaves: the kernel would end such a sequence whenever it
/// finds the thread in translated code.
fn leave_rseq(state: State) {
    let [address, bytes, signature] = outside(state).rseq;
    if address != 0 {
        // SAFETY: it was registered so.
        unsafe { sys::call(nr::RSEQ, [address, bytes, RSEQ_UNREGISTER, signature, 0, 0]) };
    }
}

/// Called by all threads of a running process but the first.
extern "C" fn entered(engine: *mut Engine) -> ! {
    // SAFETY: the first thread has filled it for this thread.
    let engine = unsafe { &mut *engine };
    // SAFETY: nothing has used the base yet.
    unsafe { sys::call(nr::ARCH_PRCTL, [ARCH_SET_GS, engine.state.0, 0, 0, 0, 0]) };
    engine.recorder.begin_thread();
    let tid = engine.state.get(TID);
    engine.recorder.event(EventCode::ThreadStart, &[&[tid]]);
    engine.recorder.mark();
    leave_rseq(engine.state);
    engine.signals.begin_attached();
    engine.be_unsafe();
    engine.go_on();
    // SAFETY: everything is there.
    unsafe { ways::pagewalk_enter() }
}

impl Engine {
    /// In a process that ran already: fills the slots of this thread, which is the first.
    pub(crate) fn begin_attached(&mut self) {
        let start = self.start;
        let Some((attach, threads)) = data(&start) else { return };
        attach.told.actions = self.signals.actions_at();
        attach.told.leaves = self.recorder.session().leaves.as_ptr() as u64;
        attach.told.called = ways::called();
        attach.told.own = own::ranges_at();
        [attach.told.site, attach.told.site_end] = ways::told();
        let Some(first) = threads.first() else { return };
        fill(self.state, first);
        self.pc = first.pc;
        self.was_in(first);
        self.note_outside();
        leave_rseq(self.state);
    }

    /// Takes note of the system call in which the host has stopped the thread, if it was in one.
    fn was_in(&mut self, thread: &AttachThread) {
        self.restarts = thread.restarts;
        self.interrupted = (thread.interrupted != 0).then_some((thread.pc, thread.interrupted));
    }

    /// Before a handler with these flags of its action: ends the system call in which the host has stopped this thread, as
    /// the kernel ends a call at such a signal. Otherwise the call is made again after the handler.
    pub(crate) fn end_interrupted(&mut self, flags: u64) {
        const EINTR: i64 = -4;
        /// ERESTARTSYS and ERESTARTNOINTR.
        const RESTARTS: [i64; 2] = [-512, -513];
        let Some((pc, result)) = self.interrupted.take().filter(|&(pc, _)| pc == self.pc) else {
            return;
        };
        let [by_flag, always] = RESTARTS.map(|one| one == result);
        if !(always || by_flag && flags & SA_RESTART != 0) {
            self.pc = pc + ways::SYSCALL_BYTES;
            self.restarts = 0;
            self.state.set_register(0, EINTR as u64);
        }
    }

    /// Goes on with a system call that the host has interrupted. A signal of the engine's may have ended what the kernel
    /// knows of it; then it is made once more.
    pub(crate) fn call_again(&mut self, arguments: [u64; 6]) -> i64 {
        const EINTR: i64 = -4;
        let number = core::mem::take(&mut self.restarts);
        let result = self.call_safely(nr::RESTART_SYSCALL, arguments);
        if result == sys::RESTART {
            self.restarts = number;
        }
        let is_lost = result == EINTR && number != 0 && self.state.get(PENDING) == 0;
        if is_lost { self.call_safely(number, arguments) } else { result }
    }

    /// In a process that was already running: makes engines for its other threads, and waits until
    /// all threads may continue. If that is not possible, returns the reason.
    pub(crate) fn bring_others(&mut self) -> Result<(), &'static str> {
        const NO_MEMORY: &str = "the system gives it no memory";
        let start = self.start;
        let Some((attach, threads)) = data(&start) else { return Ok(()) };
        if threads.len() > 1 {
            if !self.shared.codes().into_iter().all(|code| code.lock().share()) {
                return Err(NO_MEMORY);
            }
            self.shared.is_shared.store(true, Ordering::Relaxed);
        }
        for thread in threads.iter_mut().skip(1) {
            let Some(other) = self.new_thread() else { return Err(NO_MEMORY) };
            fill(other.state, thread);
            other.signals.renew(thread.mask);
            (other.pc, other.repeat) = (thread.pc, None);
            other.was_in(thread);
            self.shared.threads.fetch_add(1, Ordering::AcqRel);
            self.register(other.state);
            // As behind a call.
            thread.stack = other.state.get(ENGINE_RSP) - 8;
            thread.engine = other as *mut Engine as u64;
        }
        attach.told.entry = entered as *const () as u64;
        attach.is_ready.store(AttachTold::READY, Ordering::Release);
        while attach.goes.load(Ordering::Acquire) == 0 {
            sys::futex(attach.goes.as_ptr(), FUTEX_WAIT, 0, &[0, PATIENCE_NS]);
        }
        Ok(())
    }

    /// Handles `rseq` of a program that ran before: a thread may have begun with the intention to register. It is registered
    /// when it leaves.
    pub(crate) fn rseq(&mut self, arguments: [u64; 6]) -> i64 {
        const EBUSY: i64 = -16;
        let [address, bytes, flags, signature, ..] = arguments;
        let own = &mut outside(self.state).rseq;
        match (flags, own[0] != 0) {
            (0, false) => {
                *own = [address, bytes, signature];
                0
            }
            (0, true) => EBUSY,
            (RSEQ_UNREGISTER, true) if *own == [address, bytes, signature] => {
                *own = [0; 3];
                0
            }
            _ => sys::EINVAL,
        }
    }

    /// Whether the process ran before, and is to run on after its recording.
    pub(crate) fn is_attached(&self) -> bool {
        self.start.attach != 0
    }

    /// Whether this process is the one to which the host has attached, and not a child of it.
    pub(crate) fn may_park(&self) -> bool {
        let origin = self.recorder.process().origin.load(Ordering::Relaxed);
        origin == ring::Origin::Started as u32
    }

    /// Whether the threads are to leave.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_attached() && self.recorder.session().leaves.load(Ordering::Relaxed) != 0
    }

    /// Before a system call of the program, which may still run when the thread is to leave.
    pub(crate) fn note_outside(&self) {
        if self.is_attached() {
            let outside = outside(self.state);
            (outside.pc, outside.mask) = (self.pc, self.signals.mask);
            outside.alternate = self.signals.alternate();
        }
    }

    /// Waits until the host puts this thread back into the program. Returns if the thread must
    /// continue in the engine, because another thread could not leave.
    pub(crate) fn park(&mut self) {
        loop {
            self.signals.set_real_mask(u64::MAX);
            if self.state.get(PENDING) == 0 {
                break;
            }
            self.deliver();
        }
        self.report_left_out();
        self.recorder.mark();
        self.recorder.off();
        self.note_outside();
        self.be_safe();
        let word = &raw mut outside(self.state).is_parked as *mut u32;
        // SAFETY: an aligned word of the thread's data.
        unsafe { word.write_volatile(1) };
        // SAFETY: as above.
        while unsafe { word.read_volatile() } == 1 {
            sys::futex(word, FUTEX_WAIT, 1, &[0, PATIENCE_NS]);
        }
        self.signals.set_mask(self.signals.mask);
        self.be_unsafe();
    }
}
