//! How threads of this host wait for a lock.
//!
//! A thread that finds a lock held, or a descriptor busy, spins. It sleeps only when spinning takes
//! longer than a running holder would need. A thread that waits for a lock of std sleeps after
//! about a microsecond, and putting it to sleep and waking it takes ten times that time.

use std::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex, PoisonError, TryLockError, TryLockResult,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use hat::locking::{Class, Wait};

/// The number of attempts before a thread sleeps: about a tenth of a millisecond; no running holder needs
/// longer.
const TRIES: usize = 1024;

/// The number of pauses between two attempts: each attempt takes the lock's cache line from its
/// holder.
const PAUSES: usize = 8;

/// How long a thread sleeps if the holder does not run: less than the host's time slice.
const NAP: Duration = Duration::from_micros(50);

/// Calls `attempt` until it returns a value, as long as spinning is worthwhile. `None` means that
/// the thread should sleep.
pub(crate) fn spun<R>(attempt: impl Fn() -> Option<R>) -> Option<R> {
    for _ in 0..TRIES {
        let result = attempt();
        if result.is_some() {
            return result;
        }
        pause();
    }
    None
}

/// Calls `attempt` until it returns a value, however long that takes: the thread sleeps between
/// series of attempts.
pub(crate) fn patiently<R>(attempt: impl Fn() -> Option<R>) -> R {
    loop {
        if let Some(result) = spun(&attempt) {
            return result;
        }
        thread::sleep(NAP);
    }
}

/// The pause between two attempts.
pub(crate) fn pause() {
    (0..PAUSES).for_each(|_| spin_loop());
}

/// The guard of the lock, if the lock was free.
pub(crate) fn free<G>(tried: TryLockResult<G>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Where threads of [`crate::Native`] wait: a counter that each wake-up increments, so that one
/// place can serve several mutexes. Threads first spin, as for a lock, so that waking them needs no
/// system call. A thread that goes to sleep counts itself as a sleeper before it reads the counter
/// for the last time. A thread that wakes others increments the counter before it checks for
/// sleepers. At least one of the two threads therefore sees the change of the other, and no wake-up
/// is lost.
#[derive(Debug)]
pub struct NativeWait {
    woken: AtomicU64,
    gate: Mutex<()>,
    /// The number of threads that sleep or are about to sleep. It is changed under the lock `gate`.
    sleepers: AtomicU64,
    all: Condvar,
}

impl NativeWait {
    /// The number of wake-ups so far.
    #[inline]
    pub(crate) fn seen(&self) -> u64 {
        self.woken.load(Ordering::Acquire)
    }

    /// Waits until the number of wake-ups is no longer `seen`.
    pub(crate) fn for_other_than(&self, seen: u64) {
        let woken = |order| (self.woken.load(order) != seen).then_some(());
        if spun(|| woken(Ordering::Acquire)).is_some() {
            return;
        }
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while woken(Ordering::SeqCst).is_none() {
            gate = self.all.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Wait for NativeWait {
    fn new(_: Class) -> NativeWait {
        NativeWait {
            woken: AtomicU64::new(0),
            gate: Mutex::new(()),
            sleepers: AtomicU64::new(0),
            all: Condvar::new(),
        }
    }

    fn wake_all(&self) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // A sleeper holds the gate from its last check until it sleeps, so taking the gate here
            // waits until it sleeps.
            drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
            self.all.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use hat::locking::{Mutex as _, Site};

    use super::*;
    use crate::native::NativeMutex;

    /// Two threads wake each other in turn, either immediately or after the other thread has gone
    /// to sleep.
    #[test]
    fn no_waking_is_lost() {
        let turn = NativeMutex::new(Class::Hat, 0_u32);
        let wait = NativeWait::new(Class::Hat);
        let thread = |own: u32| {
            for round in 0..2000 {
                turn.until(Site::Look, &wait, |at| (*at == 2 * round + own).then_some(()));
                if round % 200 == own {
                    thread::sleep(Duration::from_millis(2));
                }
                turn.with(Site::Look, |at| *at += 1);
                wait.wake_all();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| thread(0));
            thread(1);
        });
        assert_eq!(turn.with(Site::Look, |at| *at), 4000);
        assert_eq!(wait.sleepers.load(Ordering::SeqCst), 0);
    }
}
