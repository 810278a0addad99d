//! The kernel's platform of locks: a processor that waits for a lock answers shootdowns of other
//! processors meanwhile.
//!
//! ```text
//!   processor 0   has a lock, changes a table, asks processor 1 to forget, waits for its answer
//!   processor 1   wants the lock, with interrupts off:  try - poll - try - poll - try ...
//! ```
//!
//! The kernel runs with interrupts disabled. A processor that only spins for a lock would never answer a
//! shootdown of the processor that has the lock. So every wait polls for shootdowns at each turn.

use alloc::boxed::Box;
use core::{
    cell::UnsafeCell,
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use hat::locking::{Class, Locks, Mutex, Once, Rw, Site, Wait};

use crate::shootdown;

/// One iteration of a loop that waits: answers requests of other processors, and pauses.
#[inline]
pub fn turn() {
    shootdown::poll();
    spin_loop();
}

/// Spin locks whose waiters answer other processors.
#[derive(Debug)]
pub enum Polled {}

impl Locks for Polled {
    type Mutex<T: Send> = PolledMutex<T>;
    type Row<T: Send> = Box<[PolledMutex<T>]>;
    type Rw<T> = PolledRw<T>;
    type Wait = PolledWait;
    type Once<T> = PolledOnce<T>;
}

/// A mutex.
pub struct PolledMutex<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` and `until` give the value to one processor at a time.
unsafe impl<T: Send> Sync for PolledMutex<T> {}

impl<T> PolledMutex<T> {
    /// A lock that is free.
    pub const fn free(value: T) -> PolledMutex<T> {
        PolledMutex { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    fn take(&self) {
        while self.held.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.held.load(Ordering::Relaxed) {
                turn();
            }
        }
    }
}

impl<T> Mutex<T> for PolledMutex<T> {
    type Wait = PolledWait;

    fn new(_: Class, value: T) -> PolledMutex<T> {
        PolledMutex::free(value)
    }

    #[inline]
    fn with<R>(&self, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        self.take();
        // SAFETY: `held` was false and is true, so that this processor alone is here till it is false again; a panic
        // ends the kernel.
        let result = f(unsafe { &mut *self.value.get() });
        self.held.store(false, Ordering::Release);
        result
    }

    #[inline]
    fn until<R>(&self, site: Site, wait: &PolledWait, mut f: impl FnMut(&mut T) -> Option<R>) -> R {
        loop {
            let (result, seen) = self.with(site, |value| {
                // Read under the lock: what changes after this has not been seen.
                let seen = wait.0.load(Ordering::Acquire);
                (f(value), seen)
            });
            if let Some(result) = result {
                return result;
            }
            while wait.0.load(Ordering::Acquire) == seen {
                turn();
            }
        }
    }

    fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// A lock for many readers or one writer: the number of readers, or [`WRITER`].
pub struct PolledRw<T> {
    users: AtomicUsize,
    /// The number of waiting writers: readers that come later wait for them.
    writers: AtomicUsize,
    value: UnsafeCell<T>,
}

const WRITER: usize = usize::MAX;

// SAFETY: readers share the value while there is no writer, and a writer has it alone.
unsafe impl<T: Send + Sync> Sync for PolledRw<T> {}

impl<T> Rw<T> for PolledRw<T> {
    fn new(_: Class, value: T) -> PolledRw<T> {
        PolledRw { users: AtomicUsize::new(0), writers: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }

    #[inline]
    fn read<R>(&self, _: Site, f: impl FnOnce(&T) -> R) -> R {
        loop {
            let users = self.users.load(Ordering::Relaxed);
            let is_free = users != WRITER && self.writers.load(Ordering::Relaxed) == 0;
            if is_free
                && self.users.compare_exchange_weak(users, users + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                break;
            }
            turn();
        }
        // SAFETY: this reader is counted, so that no writer comes.
        let result = f(unsafe { &*self.value.get() });
        self.users.fetch_sub(1, Ordering::Release);
        result
    }

    #[inline]
    fn write<R>(&self, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        self.writers.fetch_add(1, Ordering::Relaxed);
        while self.users.compare_exchange_weak(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_err() {
            turn();
        }
        self.writers.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: there was nobody, and nobody comes while the count is the writer's.
        let result = f(unsafe { &mut *self.value.get() });
        self.users.store(0, Ordering::Release);
        result
    }
}

/// A count of wake-ups, for threads that wait for one.
#[derive(Debug)]
pub struct PolledWait(AtomicUsize);

impl Wait for PolledWait {
    fn new(_: Class) -> PolledWait {
        PolledWait(AtomicUsize::new(0))
    }

    fn wake_all(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// A value that is made at the first request.
pub struct PolledOnce<T> {
    making: PolledMutex<()>,
    is_made: AtomicBool,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is written once, under the lock, before `is_made` says so, and only read after that.
unsafe impl<T: Send + Sync> Sync for PolledOnce<T> {}

impl<T> PolledOnce<T> {
    /// Without a value yet.
    pub const fn empty() -> PolledOnce<T> {
        PolledOnce { making: PolledMutex::free(()), is_made: AtomicBool::new(false), value: UnsafeCell::new(None) }
    }
}

impl<T> Once<T> for PolledOnce<T> {
    fn new() -> PolledOnce<T> {
        PolledOnce::empty()
    }

    fn get(&self, make: impl FnOnce() -> T) -> &T {
        if !self.is_made.load(Ordering::Acquire) {
            self.making.with(Site::Look, |()| {
                if !self.is_made.load(Ordering::Acquire) {
                    let made = make();
                    // SAFETY: nobody reads before `is_made`, and the lock keeps other makers away.
                    unsafe { *self.value.get() = Some(made) };
                    self.is_made.store(true, Ordering::Release);
                }
            });
        }
        self.made().expect("it was made, here or before")
    }

    #[inline]
    fn made(&self) -> Option<&T> {
        // SAFETY: nobody writes after `is_made`.
        if self.is_made.load(Ordering::Acquire) { unsafe { (*self.value.get()).as_ref() } } else { None }
    }
}
