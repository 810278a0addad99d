//! Locks of the host: threads of the operating system that this runs on.
//!
//! Whoever finds one held, or a descriptor busy, spins, and sleeps only when that takes longer than a holder that
//! runs would need. std's own go to sleep after a microsecond or so, and a thread that was put to sleep and
//! woken costs ten times such a hold.
//!
//! A mutex is given back by a plain store, so that one which nobody else wants costs a single locked instruction.
//! Who gives it back cannot see sleepers, therefore: they look again after a while.

use std::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex as StdMutex, OnceLock, PoisonError, TryLockError, TryLockResult,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use hat::locking::{Class, Locks, Mutex, Once, Site, Wait};
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::biased::{BiasedRow, BiasedRw};

/// The platform of this host's locks.
#[derive(Debug)]
pub enum Native {}

impl Locks for Native {
    type Mutex<T: Send> = NativeMutex<T>;
    type Row<T: Send> = BiasedRow<T>;
    type Rw<T> = BiasedRw<T>;
    type Wait = NativeWait;
    type Once<T> = NativeOnce<T>;
}

/// Tries of a lock before a thread sleeps: a tenth of a millisecond or so, as no holder that runs needs longer.
const TRIES: usize = 1024;

/// Pauses between two tries, each of which takes the lock's line from its holder.
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

/// The same, however long it takes.
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

/// A mutex of [`Native`].
#[derive(Debug)]
pub struct NativeMutex<T>(SpinMutex<T>);

impl<T> NativeMutex<T> {
    #[inline]
    fn take(&self) -> SpinMutexGuard<'_, T> {
        self.0.try_lock().unwrap_or_else(|| self.take_held())
    }

    #[cold]
    fn take_held(&self) -> SpinMutexGuard<'_, T> {
        patiently(|| self.0.try_lock())
    }
}

impl<T> Mutex<T> for NativeMutex<T> {
    type Wait = NativeWait;

    fn new(_: Class, value: T) -> NativeMutex<T> {
        NativeMutex(SpinMutex::new(value))
    }

    #[inline]
    fn with<R>(&self, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.take())
    }

    #[inline]
    fn until<R>(&self, _: Site, wait: &NativeWait, mut f: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut guard = self.take();
        loop {
            // Read under the lock of the mutex: what changes after this has not been seen.
            let seen = wait.seen();
            if let Some(result) = f(&mut guard) {
                return result;
            }
            drop(guard);
            wait.for_other_than(seen);
            guard = self.take();
        }
    }

    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// Where threads of [`Native`] wait: a number that each waking adds one to, so that one waiting
/// place can serve several mutexes. They spin first, as for a lock, so that who wakes them need not ask the
/// operating system for it. Who goes to sleep says so before it looks at the number for the last time, and who
/// wakes looks for sleepers after it has added to it: one of the two sees the other, and no waking is lost.
#[derive(Debug)]
pub struct NativeWait {
    woken: AtomicU64,
    gate: StdMutex<()>,
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
            gate: StdMutex::new(()),
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

/// Something that one thread makes and all see.
#[derive(Debug)]
pub struct NativeOnce<T>(OnceLock<T>);

impl<T> Once<T> for NativeOnce<T> {
    fn new() -> NativeOnce<T> {
        NativeOnce(OnceLock::new())
    }

    #[inline]
    fn get(&self, make: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(make)
    }

    #[inline]
    fn made(&self) -> Option<&T> {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

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
