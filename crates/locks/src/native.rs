//! Locks of the host, for threads of the operating system on which this runs.
//!
//! A mutex is released by a plain store, so an uncontended mutex costs a single locked instruction.
//! The thread that releases it cannot see sleeping threads, which therefore check again after a
//! while ([`crate::waiting`]).

use std::sync::OnceLock;

use hat::locking::{Class, Locks, Mutex, Once, Site};
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::{
    biased::{BiasedRow, BiasedRw},
    waiting::{NativeWait, patiently},
};

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
            // The count is read under the lock of the mutex, so that no later change is missed.
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

/// A value that one thread creates and all threads read.
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
