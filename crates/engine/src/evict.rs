//! Dropping all translated code of a process that has, or had, several threads.
//!
//! ```text
//!   evicting thread   stop = 1   a signal to each thread that may run translated code ... drops it   stop = 0, wakes all
//!   another thread    translated code -> its next store faults -> engine, waits ........................... goes on
//!   another thread    in a system call of the program ..................................... waits if it returns, goes on
//! ```
//!
//! A thread is *safe* while it makes a system call for the program, or waits here: it holds no
//! address of translated code, and looks up the next block when it continues. Code is dropped only
//! where a thread is about to continue, so that no operation of the engine is under way in a thread
//! that is not safe and waits for the translator's lock.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::record::{FUTEX_WAIT, FUTEX_WAKE};
use crate::run::Engine;
use crate::signal::{SI_QUEUE, SIGTRAP};
use crate::state::{IS_SAFE, State, TID};
use crate::sys::{self, nr};

/// Nanoseconds between two checks whether the other threads have left translated code.
const PATIENCE_NS: u64 = 1_000_000;

/// Whether the thread with this data is safe.
fn safe(state: State) -> &'static AtomicU32 {
    // SAFETY: it is an aligned word of a thread's shared data, which stays.
    unsafe { &*((state.0 + IS_SAFE as u64) as *const AtomicU32) }
}

impl Engine {
    /// Registers this thread, which counts as safe until it calls [`Engine::be_unsafe`].
    pub(crate) fn register(&self, state: State) {
        safe(state).store(1, Ordering::SeqCst);
        self.shared.all.lock().push(state);
    }

    /// Removes a thread that ends, or that could not be started, from the threads for which others
    /// wait.
    pub(crate) fn unregister(&self, state: State) {
        self.shared.all.lock().retain(|other| other.0 != state.0);
    }

    /// In a child, whose only thread this is.
    pub(crate) fn register_alone(&self) {
        self.shared.stop.store(0, Ordering::Relaxed);
        let mut all = self.shared.all.lock();
        all.clear();
        all.push(self.state);
        drop(all);
        safe(self.state).store(0, Ordering::Relaxed);
    }

    /// Makes a system call of the program, during which translated code may be dropped.
    pub(crate) fn call_safely(&mut self, number: u64, arguments: [u64; 6]) -> i64 {
        if !self.shared.is_shared.load(Ordering::Relaxed) {
            return self.call(number, arguments);
        }
        safe(self.state).store(1, Ordering::SeqCst);
        let result = self.call(number, arguments);
        self.be_unsafe();
        result
    }

    /// Makes this thread safe.
    pub(crate) fn be_safe(&self) {
        safe(self.state).store(1, Ordering::SeqCst);
    }

    /// Ends the time in which this thread is safe. Waits until no thread drops translated code.
    pub(crate) fn be_unsafe(&self) {
        let (safe, stop) = (safe(self.state), &self.shared.stop);
        loop {
            safe.store(0, Ordering::SeqCst);
            if stop.load(Ordering::SeqCst) == 0 {
                return;
            }
            safe.store(1, Ordering::SeqCst);
            sys::futex(stop.as_ptr(), FUTEX_WAIT, 1, &[0, PATIENCE_NS]);
        }
    }

    /// Called before this thread continues in translated code: waits until no thread is dropping
    /// the code.
    pub(crate) fn wait_for_code(&self) {
        if self.shared.stop.load(Ordering::SeqCst) != 0 {
            safe(self.state).store(1, Ordering::SeqCst);
            self.be_unsafe();
        }
    }

    /// Drops all translated code, unless another thread is dropping it. This thread must be about
    /// to continue in translated code.
    pub(crate) fn drop_code(&self) {
        let stop = &self.shared.stop;
        if stop.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return self.wait_for_code();
        }
        while !self.are_others_safe() {
            sys::futex(stop.as_ptr(), FUTEX_WAIT, 1, &[0, PATIENCE_NS]);
        }
        self.code().forget();
        stop.store(0, Ordering::SeqCst);
        sys::futex(stop.as_ptr(), FUTEX_WAKE, i32::MAX as u32, core::ptr::null());
    }

    /// Makes the other threads check whether they must change to the other kind of code.
    pub(crate) fn kick_others(&self) {
        if self.shared.is_shared.load(Ordering::Relaxed) {
            self.are_others_safe();
        }
    }

    /// Whether all other threads are safe. Each that is not gets a signal, and leaves translated code.
    fn are_others_safe(&self) -> bool {
        let all = self.shared.all.lock();
        let others = all.iter().filter(|other| other.0 != self.state.0);
        let mut is_safe = true;
        for &other in others.filter(|&&other| safe(other).load(Ordering::SeqCst) == 0) {
            is_safe = false;
            let mut info = [0u64; 16];
            (info[0], info[1], info[3]) = (SIGTRAP.into(), u64::from(SI_QUEUE as u32), ring::PARKS);
            // SAFETY: `siginfo_t` has 128 bytes; the thread handles the signal, or is gone.
            unsafe {
                let pid = sys::call(nr::GETPID, [0; 6]) as u64;
                let (tid, to) = (other.get(TID), info.as_ptr() as u64);
                sys::call(nr::RT_TGSIGQUEUEINFO, [pid, tid, SIGTRAP.into(), to, 0, 0]);
            }
        }
        is_safe
    }
}
