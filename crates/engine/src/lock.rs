//! A lock for data that the threads of a process share.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// The lock is taken, and another thread waits for it.
const AWAITED: u32 = 2;
const FUTEX_WAIT_PRIVATE: u64 = 128;
const FUTEX_WAKE_PRIVATE: u64 = 129;

/// A lock without its data.
///
/// A thread that has the lock runs in the engine. Signals that come there are only stored, so no
/// handler waits for a lock of its own thread.
#[derive(Debug)]
pub(crate) struct Lock(AtomicU32);

impl Lock {
    pub(crate) const fn new() -> Lock {
        Lock(AtomicU32::new(FREE))
    }

    /// Takes the lock.
    pub(crate) fn take(&self) {
        let Lock(word) = self;
        if word.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        while word.swap(AWAITED, Ordering::Acquire) != FREE {
            sys::futex(word.as_ptr(), FUTEX_WAIT_PRIVATE, AWAITED, ptr::null());
        }
    }

    /// Frees the lock in a child process, in which no thread holds it.
    pub(crate) fn reset(&self) {
        self.0.store(FREE, Ordering::Relaxed);
    }

    /// Releases the lock, which the caller must hold.
    pub(crate) fn give_back(&self) {
        let Lock(word) = self;
        if word.swap(FREE, Ordering::Release) == AWAITED {
            sys::futex(word.as_ptr(), FUTEX_WAKE_PRIVATE, 1, ptr::null());
        }
    }
}

/// Data that the threads of a process use in turns.
pub(crate) struct Locked<T> {
    pub(crate) lock: Lock,
    data: UnsafeCell<T>,
}

// SAFETY: one thread at a time has the lock and so the data.
unsafe impl<T> Sync for Locked<T> {}

impl<T> Locked<T> {
    pub(crate) const fn new(data: T) -> Locked<T> {
        Locked { lock: Lock::new(), data: UnsafeCell::new(data) }
    }

    /// Takes the lock for as long as the result lives.
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.lock.take();
        Guard(self)
    }
}

/// The data, while its lock is taken.
pub(crate) struct Guard<'a, T>(&'a Locked<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock.
        unsafe { &*self.0.data.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.data.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.lock.give_back();
    }
}
