//! Locks of a kernel with several processors: who finds one held spins until it is free.
//!
//! A lock is given back by a plain store, so that one which nobody else wants costs a single locked
//! instruction. Nobody sleeps here, since a holder needs no longer than an operation. A kernel that calls
//! the layer from interrupt handlers too keeps interrupts off while it calls it from elsewhere: a handler
//! would spin for ever for what it has interrupted.

use alloc::boxed::Box;
use core::{
    hint::spin_loop,
    sync::atomic::{AtomicUsize, Ordering},
};

use spin::{RwLock, RwLockReadGuard, RwLockWriteGuard, mutex::SpinMutex as Inner};

use super::{Class, Locks, Mutex, Once, Rw, Site, Wait};

/// The platform of locks that are spun for.
#[derive(Debug)]
pub enum Spin {}

impl Locks for Spin {
    type Mutex<T: Send> = SpinMutex<T>;
    type Row<T: Send> = Box<[SpinMutex<T>]>;
    type Rw<T> = SpinRw<T>;
    type Wait = SpinWait;
    type Once<T> = SpinOnce<T>;
}

/// A mutex of [`Spin`].
#[derive(Debug)]
pub struct SpinMutex<T>(Inner<T>);

impl<T> Mutex<T> for SpinMutex<T> {
    type Wait = SpinWait;

    fn new(_: Class, value: T) -> SpinMutex<T> {
        SpinMutex(Inner::new(value))
    }

    #[inline]
    fn with<R>(&self, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.lock())
    }

    #[inline]
    fn until<R>(&self, _: Site, wait: &SpinWait, mut f: impl FnMut(&mut T) -> Option<R>) -> R {
        loop {
            let mut guard = self.0.lock();
            // Read under the lock: what changes after this has not been seen.
            let seen = wait.0.load(Ordering::Acquire);
            if let Some(result) = f(&mut guard) {
                return result;
            }
            drop(guard);
            while wait.0.load(Ordering::Acquire) == seen {
                spin_loop();
            }
        }
    }

    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// A reader/writer lock of [`Spin`]. Readers that come after a writer wait for it: else there could always be
/// one that has come before the last has gone.
#[derive(Debug)]
pub struct SpinRw<T> {
    lock: RwLock<T>,
    /// Writers that spin.
    writers: AtomicUsize,
}

impl<T> SpinRw<T> {
    /// The lock for a reader, if it is free and no writer spins for it. Who only looks leaves its line alone,
    /// which a writer needs to see the last reader go.
    #[inline]
    fn shared(&self) -> Option<RwLockReadGuard<'_, T>> {
        if self.writers.load(Ordering::Relaxed) == 0 { self.lock.try_read() } else { None }
    }

    #[cold]
    fn shared_late(&self) -> RwLockReadGuard<'_, T> {
        loop {
            if let Some(guard) = self.shared() {
                return guard;
            }
            spin_loop();
        }
    }

    #[cold]
    fn alone_late(&self) -> RwLockWriteGuard<'_, T> {
        self.writers.fetch_add(1, Ordering::Relaxed);
        let guard = self.lock.write();
        self.writers.fetch_sub(1, Ordering::Relaxed);
        guard
    }
}

impl<T> Rw<T> for SpinRw<T> {
    fn new(_: Class, value: T) -> SpinRw<T> {
        SpinRw { lock: RwLock::new(value), writers: AtomicUsize::new(0) }
    }

    #[inline]
    fn read<R>(&self, _: Site, f: impl FnOnce(&T) -> R) -> R {
        f(&self.shared().unwrap_or_else(|| self.shared_late()))
    }

    #[inline]
    fn write<R>(&self, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.lock.try_write().unwrap_or_else(|| self.alone_late()))
    }
}

/// Where one spins until something has changed: how often it was woken.
#[derive(Debug)]
pub struct SpinWait(AtomicUsize);

impl Wait for SpinWait {
    fn new(_: Class) -> SpinWait {
        SpinWait(AtomicUsize::new(0))
    }

    fn wake_all(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Something that one processor makes and all see; others that ask meanwhile spin.
#[derive(Debug)]
pub struct SpinOnce<T>(spin::Once<T>);

impl<T> Once<T> for SpinOnce<T> {
    fn new() -> SpinOnce<T> {
        SpinOnce(spin::Once::new())
    }

    #[inline]
    fn get(&self, make: impl FnOnce() -> T) -> &T {
        self.0.call_once(make)
    }

    #[inline]
    fn made(&self) -> Option<&T> {
        self.0.get()
    }
}
