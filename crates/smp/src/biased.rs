//! A reader/writer lock whose readers write to a line of their own.
//!
//! Readers of an ordinary lock count themselves in its line: two locked instructions, and a line that all
//! of them send around. What is read at every operation and written hardly ever is better *biased* towards
//! its readers (Dice and Kogan, "BRAVO", USENIX ATC 2019). Each thread notes in a line of its own which
//! locks it reads, by plain stores, and a writer looks through the lines of all threads.
//!
//! ```text
//!   thread 1   [ A | - | - | - ]      reads A
//!   thread 2   [ A | B | - | - ]      reads A and B
//!
//!   reader     note A     is A biased? yes: go on.  no: take the note away, take the lock
//!   writer     take the lock     A is biased no more     barrier on all processors     until no note says A
//! ```
//!
//! A note must be in memory before its reader asks whether the lock is biased. That takes a locked
//! instruction as a rule. Here the writer has all processors pass a barrier instead (`membarrier` of
//! Linux): of reader and writer, one sees what the other has written. Where there is no such call, no lock is
//! biased. A barrier costs some microseconds, so that a lock is biased only after so many readers since the
//! last writer.

use std::{
    cell::{Cell, UnsafeCell},
    fmt,
    sync::{
        Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence},
    },
};

use hat::locking::{Class, Rw, Site};

use crate::native::{free, patiently, spun};

/// Readers since the last writer that bias a lock towards readers. They take some hundred nanoseconds each at
/// least, the barrier of the next writer a few per cent of that.
const READERS_MIN: u32 = 1024;

/// Locks that a thread reads at once by notes; it takes further ones.
const NOTES: usize = 4;

/// What one thread reads: addresses of locks, or 0.
#[derive(Default)]
#[repr(align(128))]
struct Notes {
    of: [AtomicUsize; NOTES],
    /// Whether a thread has these notes. Those of threads that have ended serve others.
    are_taken: AtomicBool,
}

/// Those of all threads, which are never freed: there are as many as threads have ever run at once.
static ALL: Mutex<Vec<&'static Notes>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: Cell<Option<&'static Notes>> = const { Cell::new(None) };
    static LEASE: Lease = Lease::new();
}

/// Gives the notes back where a thread ends.
struct Lease(&'static Notes);

impl Lease {
    fn new() -> Lease {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = all.iter().find(|notes| !notes.are_taken.load(Ordering::Acquire));
        let notes = unused.copied().unwrap_or_else(|| {
            let notes: &'static Notes = Box::leak(Box::default());
            all.push(notes);
            notes
        });
        notes.are_taken.store(true, Ordering::Relaxed);
        Lease(notes)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        OWN.set(None);
        self.0.are_taken.store(false, Ordering::Release);
    }
}

/// The notes of this thread; `None` where it is ending.
fn own() -> Option<&'static Notes> {
    #[cold]
    fn lease() -> Option<&'static Notes> {
        let notes = LEASE.try_with(|lease| lease.0).ok();
        OWN.set(notes);
        notes
    }
    OWN.get().or_else(lease)
}

/// A note, until it is dropped.
struct Note(&'static AtomicUsize);

impl Drop for Note {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// A reader/writer lock, biased towards readers while there are many for each writer.
pub struct BiasedRw<T> {
    is_biased: AtomicBool,
    /// Readers since the last writer who have taken the lock.
    readers: AtomicU32,
    lock: RwLock<()>,
    value: UnsafeCell<T>,
}

// SAFETY: as of a reader/writer lock, whose readers share the value and whose writer has it alone.
#[allow(unsafe_code)]
unsafe impl<T: Send + Sync> Sync for BiasedRw<T> {}

impl<T> fmt::Debug for BiasedRw<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedRw").field("is_biased", &self.is_biased).finish_non_exhaustive()
    }
}

impl<T> Rw<T> for BiasedRw<T> {
    fn new(_: Class, value: T) -> BiasedRw<T> {
        BiasedRw {
            is_biased: AtomicBool::new(false),
            readers: AtomicU32::new(0),
            lock: RwLock::new(()),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    fn read<R>(&self, _: Site, f: impl FnOnce(&T) -> R) -> R {
        match self.note() {
            Some(_note) => f(self.shared()),
            None => self.read_locked(f),
        }
    }

    fn write<R>(&self, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        let guard = spun(|| free(self.lock.try_write()));
        let _guard =
            guard.unwrap_or_else(|| self.lock.write().unwrap_or_else(PoisonError::into_inner));
        if self.is_biased.load(Ordering::Relaxed) {
            self.is_biased.store(false, Ordering::Relaxed);
            barrier::pass();
            let all = ALL.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for of in all.iter().flat_map(|notes| &notes.of) {
                patiently(|| (of.load(Ordering::Acquire) != self.address()).then_some(()));
            }
        }
        self.readers.store(0, Ordering::Relaxed);
        // SAFETY: other writers and readers who take the lock wait for the guard. A reader by note has
        // asked whether the lock is biased before the barrier, and then its note was seen and has gone, or after
        // it, and then it was told no. Only who holds the lock makes it biased again.
        #[allow(unsafe_code)]
        f(unsafe { &mut *self.value.get() })
    }
}

impl<T> BiasedRw<T> {
    #[cold]
    fn read_locked<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        let guard = spun(|| free(self.lock.try_read()));
        let _guard =
            guard.unwrap_or_else(|| self.lock.read().unwrap_or_else(PoisonError::into_inner));
        // No writer is here.
        if self.readers.fetch_add(1, Ordering::Relaxed) == READERS_MIN && barrier::is_possible() {
            self.is_biased.store(true, Ordering::Release);
        }
        f(self.shared())
    }

    /// A note that this thread reads the lock; `None` where it is not biased, or no note is free.
    #[inline]
    fn note(&self) -> Option<Note> {
        if !self.is_biased.load(Ordering::Relaxed) {
            return None;
        }
        let place = own()?.of.iter().find(|of| of.load(Ordering::Relaxed) == 0)?;
        place.store(self.address(), Ordering::Relaxed);
        let note = Note(place);
        // The processor may swap the store and the load, which the writer's barrier orders; the compiler may not.
        compiler_fence(Ordering::SeqCst);
        self.is_biased.load(Ordering::Acquire).then_some(note)
    }

    /// What it guards. The caller has the lock as a reader, or a note and has seen after it that it counts.
    fn shared(&self) -> &T {
        // SAFETY: a writer waits for the guard and the note of the caller.
        #[allow(unsafe_code)]
        unsafe {
            &*self.value.get()
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>() as usize
    }
}

/// A barrier that every thread of this process passes.
mod barrier {
    use std::sync::OnceLock;

    /// Whether there is one.
    pub(super) fn is_possible() -> bool {
        static IS_POSSIBLE: OnceLock<bool> = OnceLock::new();
        *IS_POSSIBLE.get_or_init(|| call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
    }

    /// What each thread has written before it is seen by who calls, and what the caller has written before by
    /// what each thread reads after it.
    pub(super) fn pass() {
        assert!(call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED), "the barrier was possible before");
    }

    fn call(command: libc::c_int) -> bool {
        // SAFETY: the call touches no memory of its caller.
        #[allow(unsafe_code)]
        unsafe {
            libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    fn lock() -> BiasedRw<[u64; 2]> {
        BiasedRw::new(Class::Space, [0, 0])
    }

    fn read_often(lock: &BiasedRw<[u64; 2]>) {
        (0..=READERS_MIN).for_each(|_| lock.read(Site::Look, |_| ()));
    }

    #[test]
    fn many_readers_bias_a_lock_and_a_writer_ends_that() {
        let lock = lock();
        assert!(!lock.is_biased.load(Ordering::Relaxed));
        read_often(&lock);
        assert_eq!(lock.is_biased.load(Ordering::Relaxed), barrier::is_possible());
        lock.write(Site::Look, |value| *value = [1, 2]);
        assert!(!lock.is_biased.load(Ordering::Relaxed));
        assert_eq!(lock.read(Site::Look, |value| *value), [1, 2]);
    }

    /// Readers see both halves or none of what a writer changes, and a writer no reader, whichever way they come.
    #[test]
    fn no_reader_is_beside_a_writer() {
        const WRITES: u64 = 300;
        let lock = lock();
        let readers = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while lock.read(Site::Look, |[one, other]| {
                        readers.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(one, other);
                        readers.fetch_sub(1, Ordering::Relaxed);
                        *one < WRITES
                    }) {}
                });
            }
            for round in 1..=WRITES {
                lock.write(Site::Look, |[one, other]| {
                    *one = round;
                    assert_eq!(readers.load(Ordering::Relaxed), 0);
                    thread::yield_now();
                    *other = round;
                });
                // Time for readers to come by notes.
                thread::sleep(Duration::from_micros(round % 4 * 100));
            }
        });
    }

    #[test]
    fn a_thread_that_reads_too_many_locks_at_once_takes_the_last() {
        let locks: [BiasedRw<[u64; 2]>; NOTES + 1] = std::array::from_fn(|_| lock());
        locks.iter().for_each(read_often);
        fn nested(locks: &[BiasedRw<[u64; 2]>]) -> usize {
            let own = own().map_or(0, |notes| {
                notes.of.iter().filter(|of| of.load(Ordering::Relaxed) != 0).count()
            });
            match locks {
                [] => own,
                [first, others @ ..] => first.read(Site::Look, |_| nested(others)),
            }
        }
        if barrier::is_possible() {
            assert_eq!(nested(&locks), NOTES);
        }
        // Nothing is noted any more: a writer finds no reader.
        locks.iter().for_each(|lock| lock.write(Site::Look, |_| ()));
    }
}
