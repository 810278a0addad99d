//! How threads of this host wait for a lock.
//!
//! Whoever finds one held, or a descriptor busy, spins, and sleeps only when that takes longer than a holder that
//! runs would need. std's own go to sleep after a microsecond or so, and a thread that was put to sleep and
//! woken costs ten times such a hold.

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

/// Tries of a lock before a thread sleeps: a tenth of a millisecond or so, as no holder that runs needs longer.
const TRIES: usize = 1024;

/// Pauses between two tries: each try takes the lock's cache line from the lock's holder.
const PAUSES: usize = 8;

/// How long a thread sleeps whose holder does not run: less than the host's slice of time.
const NAP: Duration = Duration::from_micros(50);

/// The first that `attempt` gives while it is worth spinning for; `None`: sleep.
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

/// The first result that `attempt` gives, however long that takes: between bursts of tries the thread sleeps.
pub(crate) fn patiently<R>(attempt: impl Fn() -> Option<R>) -> R {
    loop {
        if let Some(result) = spun(&attempt) {
            return result;
        }
        thread::sleep(NAP);
    }
}

/// What passes between two tries.
pub(crate) fn pause() {
    (0..PAUSES).for_each(|_| spin_loop());
}

/// The lock, if it was free.
pub(crate) fn free<G>(tried: TryLockResult<G>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Where threads of [`crate::Native`] wait: a number that each waking adds one to, so that one waiting
/// place can serve several mutexes. They spin first, as for a lock, so that who wakes them need not ask the
/// operating system for it. Who goes to sleep says so before it looks at the number for the last time, and who
/// wakes looks for sleepers after it has added to it: one of the two sees the other, and no waking is lost.
#[derive(Debug)]
pub struct NativeWait {
    woken: AtomicU64,
    gate: Mutex<()>,
    /// How many sleep, or are about to: changed behind the gate.
    sleepers: AtomicU64,
    all: Condvar,
}

impl NativeWait {
    /// The last waking so far.
    #[inline]
    pub(crate) fn seen(&self) -> u64 {
        self.woken.load(Ordering::Acquire)
    }

    /// Comes back when there was a waking after the one that was `seen`.
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
            // Between a sleeper's last look and its sleep the gate is shut.
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

    /// Two threads wake each other in turn, at once or after the other has gone to sleep.
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
