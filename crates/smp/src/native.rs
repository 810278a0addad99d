//! Locks of the host: threads of the operating system that this runs on.
//!
//! Whoever finds one held, or a descriptor busy, spins, and sleeps only when that takes longer than a holder that
//! runs would need. std's own go to sleep after a microsecond or so, and a thread that was put to sleep and
//! woken costs ten times such a hold.

use std::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex as StdMutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError,
        TryLockResult,
        atomic::{AtomicU64, Ordering},
    },
};

use hat::locking::{Class, Locks, Mutex, Once, Rw, Site, Wait};

/// The platform of std's locks.
#[derive(Debug)]
pub enum Native {}

impl Locks for Native {
    type Mutex<T: Send> = NativeMutex<T>;
    type Rw<T> = NativeRw<T>;
    type Wait = NativeWait;
    type Once<T> = NativeOnce<T>;
}

/// Tries of a lock before a thread sleeps: a tenth of a millisecond or so, as no holder that runs needs longer.
const TRIES: usize = 1024;

/// Pauses between two tries, each of which takes the lock's line from its holder.
const PAUSES: usize = 8;

/// The first that `attempt` gives while it is worth spinning for; `None`: sleep.
fn spun<R>(attempt: impl Fn() -> Option<R>) -> Option<R> {
    for _ in 0..TRIES {
        let result = attempt();
        if result.is_some() {
            return result;
        }
        pause();
    }
    None
}

/// What passes between two tries.
pub(crate) fn pause() {
    (0..PAUSES).for_each(|_| spin_loop());
}

/// The lock, if it was free.
fn free<G>(tried: TryLockResult<G>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A mutex of [`Native`].
#[derive(Debug)]
pub struct NativeMutex<T>(StdMutex<T>);

impl<T> NativeMutex<T> {
    fn take(&self) -> MutexGuard<'_, T> {
        spun(|| free(self.0.try_lock()))
            .unwrap_or_else(|| self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Mutex<T> for NativeMutex<T> {
    type Wait = NativeWait;

    fn new(_: Class, value: T) -> NativeMutex<T> {
        NativeMutex(StdMutex::new(value))
    }

    fn with<R>(&self, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.take())
    }

    fn until<R>(&self, _: Site, wait: &NativeWait, mut f: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut guard = self.take();
        loop {
            // Read under the lock of the mutex: what changes after this has not been seen.
            let seen = wait.woken.load(Ordering::Acquire);
            if let Some(result) = f(&mut guard) {
                return result;
            }
            drop(guard);
            wait.for_other_than(seen);
            guard = self.take();
        }
    }

    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader/writer lock of [`Native`].
#[derive(Debug)]
pub struct NativeRw<T>(RwLock<T>);

impl<T> Rw<T> for NativeRw<T> {
    fn new(_: Class, value: T) -> NativeRw<T> {
        NativeRw(RwLock::new(value))
    }

    fn read<R>(&self, _: Site, f: impl FnOnce(&T) -> R) -> R {
        let guard = spun(|| free(self.0.try_read()));
        f(&guard.unwrap_or_else(|| self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }

    fn write<R>(&self, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        let guard = spun(|| free(self.0.try_write()));
        f(&mut guard.unwrap_or_else(|| self.0.write().unwrap_or_else(PoisonError::into_inner)))
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
    /// Comes back when there was a waking after the one that was `seen`.
    fn for_other_than(&self, seen: u64) {
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

    fn get(&self, make: impl FnOnce() -> T) -> &T {
        self.0.get_or_init(make)
    }

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
