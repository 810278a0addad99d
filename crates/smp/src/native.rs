//! Locks of the host: threads of the operating system that this runs on.
//!
//! They are adaptive, as those of virtual time that predictions compare them with: whoever finds one held
//! spins, and sleeps only when that takes longer than a holder that runs would need. std's own go to sleep
//! after a microsecond or so, and a thread that was put to sleep and woken costs ten times such a hold.

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

/// Tries of a lock before a thread sleeps: some twenty microseconds, about what sleeping takes.
const TRIES: usize = 128;

/// Pauses between two tries, each of which takes the lock's line from its holder.
const PAUSES: usize = 8;

/// The lock that `attempt` gets while its holder runs; `None`: the holder may not run, sleep.
fn spun<G>(attempt: impl Fn() -> TryLockResult<G>) -> Option<G> {
    for _ in 0..TRIES {
        match attempt() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => (0..PAUSES).for_each(|_| spin_loop()),
        }
    }
    None
}

/// A mutex of [`Native`].
#[derive(Debug)]
pub struct NativeMutex<T>(StdMutex<T>);

impl<T> NativeMutex<T> {
    fn take(&self) -> MutexGuard<'_, T> {
        spun(|| self.0.try_lock())
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
            let mut gate = wait.gate.lock().unwrap_or_else(PoisonError::into_inner);
            while wait.woken.load(Ordering::Acquire) == seen {
                gate = wait.all.wait(gate).unwrap_or_else(PoisonError::into_inner);
            }
            drop(gate);
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
        let guard = spun(|| self.0.try_read());
        f(&guard.unwrap_or_else(|| self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }

    fn write<R>(&self, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        let guard = spun(|| self.0.try_write());
        f(&mut guard.unwrap_or_else(|| self.0.write().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Where threads of [`Native`] sleep: a number that each waking adds one to, so that one waiting
/// place can serve several mutexes. Who goes to sleep looks at it once more behind the gate, and who wakes
/// adds to it there: between the two no waking is lost.
#[derive(Debug)]
pub struct NativeWait {
    woken: AtomicU64,
    gate: StdMutex<()>,
    all: Condvar,
}

impl Wait for NativeWait {
    fn new(_: Class) -> NativeWait {
        NativeWait { woken: AtomicU64::new(0), gate: StdMutex::new(()), all: Condvar::new() }
    }

    fn wake_all(&self) {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.woken.fetch_add(1, Ordering::Release);
        drop(gate);
        self.all.notify_all();
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
