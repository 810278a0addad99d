//! Spin locks, for a kernel with several processors: a processor that finds a lock held spins until
//! the lock is free.
//!
//! A lock is released by a plain store, so that an uncontended lock costs a single locked instruction.
//! Threads never sleep for these locks, since a lock is held no longer than one operation takes. A
//! kernel that calls the layer from interrupt handlers must disable interrupts when it calls the
//! layer from other code: otherwise a handler would spin forever for a lock that the interrupted
//! code holds.

use alloc::boxed::Box;
use core::{
    hint::spin_loop,
    sync::atomic::{AtomicUsize, Ordering},
};

use spin::{RwLock, RwLockReadGuard, RwLockWriteGuard, mutex::SpinMutex as Inner};

use super::{Class, Locks, Mutex, Once, Rw, Site, Wait};

/// The platform of spin locks.
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
            // The counter is read under the lock, so that no later change is missed.
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

/// A reader/writer lock of [`Spin`]. New readers wait for a waiting writer: otherwise overlapping
/// readers could keep the writer out forever.
#[derive(Debug)]
pub struct SpinRw<T> {
    lock: RwLock<T>,
    /// The number of writers that spin.
    writers: AtomicUsize,
}

impl<T> SpinRw<T> {
    /// Takes the lock for a reader, if it is free and no writer spins. While a writer spins,
    /// readers do not write to the lock's cache line, because the writer needs this line to see
    /// that the last reader has left.
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

/// Where a processor spins until a value has changed: a counter of wake-ups.
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

/// A value that one processor creates and all processors read; processors that request the value
/// before it exists spin.
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
