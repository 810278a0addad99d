//! A reader/writer lock whose readers write only to a cache line of their own.
//!
//! Readers of an ordinary lock count themselves in the lock's cache line: two locked instructions,
//! and a line that moves between all processors. Data that every operation reads and that rarely
//! change are better guarded by a lock that is *biased* towards its readers (Dice and Kogan,
//! "BRAVO", USENIX ATC 2019). By plain stores, each thread notes in a cache line of its own which
//! locks it reads. A writer checks the lines of all threads.
//!
//! ```text
//!   thread 1   [ A | - | - | - ]      reads A
//!   thread 2   [ A | B | - | - ]      reads A and B
//!
//!   reader     note A     is A biased? yes: go on.  no: take the note away, take the lock
//!   writer     take the lock     A is biased no more     barrier on all processors     until no note says A
//! ```
//!
//! A reader's note must be visible to other processors before the reader tests whether the lock is
//! biased. This order normally takes a locked instruction. In this lock the writer makes all
//! processors execute a barrier instead (Linux's `membarrier`): either the reader or the writer
//! then sees the other's store. Without that system call, no lock is biased. A barrier takes some
//! microseconds, so that a lock becomes biased only after a number of readers since the last
//! writer.

use std::{
    cell::{Cell, UnsafeCell},
    fmt,
    sync::{
        Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
};

use hat::locking::{Class, Rw, Site};

pub(crate) use self::row::BiasedRow;
use crate::waiting::{free, patiently, spun};

mod row;

/// The number of readers since the last writer after which a lock becomes biased. Each reader takes
/// at least some hundred nanoseconds, so the barrier of the next writer adds only a few per cent.
const READERS_MIN: u32 = if cfg!(miri) { 64 } else { 1024 };

/// The number of locks for which a thread can have notes at the same time. If a thread reads more
/// locks, it acquires the further locks in the ordinary way.
const NOTES: usize = 4;

/// The notes of one thread: addresses of locks that it reads, or 0.
#[derive(Default)]
#[repr(align(128))]
struct Notes {
    of: [AtomicUsize; NOTES],
    /// The [rows](row) in which the thread, as their owner, holds a mutex. They are in the order in
    /// which it took the mutexes.
    rows: [AtomicUsize; 2],
    /// The number of mutexes that the thread has locked without a note.
    locked: AtomicU32,
    /// Whether a thread uses these notes. Notes of ended threads are reused.
    are_taken: AtomicBool,
}

/// The notes of all threads. Notes are never freed: their number is the largest number of threads
/// that ran at the same time.
static ALL: Mutex<Vec<&'static Notes>> = Mutex::new(Vec::new());

impl Notes {
    /// Whether the thread holds a mutex of this row by a note.
    fn has_row(&self, row: usize) -> bool {
        self.rows.iter().any(|of| of.load(Ordering::Relaxed) == row)
    }

    /// A free note for a row; `None` if there is none, or if the row has a note already.
    #[inline]
    fn free_for_row(&self, row: usize) -> Option<&AtomicUsize> {
        let [outer, inner] = &self.rows;
        match outer.load(Ordering::Relaxed) {
            0 => Some(outer),
            of => (of != row && inner.load(Ordering::Relaxed) == 0).then_some(inner),
        }
    }
}

thread_local! {
    static OWN: Cell<Option<&'static Notes>> = const { Cell::new(None) };
    static LEASE: Lease = Lease::new();
}

/// Returns the notes when its thread ends.
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

/// The notes of this thread; `None` if the thread is ending.
fn own() -> Option<&'static Notes> {
    #[cold]
    fn lease() -> Option<&'static Notes> {
        let notes = LEASE.try_with(|lease| lease.0).ok();
        OWN.set(notes);
        notes
    }
    OWN.get().or_else(lease)
}

/// Waits until no thread has a note that names this lock, among the notes that `of` selects.
fn await_no_note(lock: usize, of: impl Fn(&'static Notes) -> &'static [AtomicUsize]) {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for note in all.into_iter().flat_map(of) {
        patiently(|| (note.load(Ordering::Acquire) != lock).then_some(()));
    }
}

/// A note, which is removed when this is dropped.
struct Note(&'static AtomicUsize);

impl Drop for Note {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// A reader/writer lock, biased towards readers while there are many for each writer.
pub struct BiasedRw<T> {
    is_biased: AtomicBool,
    /// The number of readers since the last writer that have taken the lock in the ordinary way.
    readers: AtomicU32,
    lock: RwLock<()>,
    value: UnsafeCell<T>,
}

// SAFETY: these are the conditions of a reader/writer lock: its readers share the value, and its
// writer has exclusive access.
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
        // `f` is called at one place only, so that it can be inlined.
        let _hold = self.note().ok_or_else(|| self.locked());
        f(self.shared())
    }

    fn write<R>(&self, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        let guard = spun(|| free(self.lock.try_write()));
        let _guard =
            guard.unwrap_or_else(|| self.lock.write().unwrap_or_else(PoisonError::into_inner));
        if self.is_biased.load(Ordering::Relaxed) {
            self.is_biased.store(false, Ordering::Relaxed);
            if !barrier::pass() {
                // Some threads still read the value by notes, so the next writer must look for
                // notes too.
                self.is_biased.store(true, Ordering::Relaxed);
                panic!("a barrier that was possible before has failed");
            }
            await_no_note(self.address(), |notes| &notes.of);
        }
        self.readers.store(0, Ordering::Relaxed);
        // SAFETY: other writers and readers who take the lock wait for the guard. A reader by note
        // tested the bias either before the barrier or after it. If the reader tested before the
        // barrier, the writer saw its note, and the note has been removed since. If the reader
        // tested after the barrier, it found that the lock is not biased. Only the holder of the
        // lock makes it biased again.
        #[allow(unsafe_code)]
        f(unsafe { &mut *self.value.get() })
    }
}

impl<T> BiasedRw<T> {
    #[cold]
    fn locked(&self) -> RwLockReadGuard<'_, ()> {
        let guard = spun(|| free(self.lock.try_read()));
        let guard =
            guard.unwrap_or_else(|| self.lock.read().unwrap_or_else(PoisonError::into_inner));
        // No writer holds the lock at this point.
        if self.readers.fetch_add(1, Ordering::Relaxed) == READERS_MIN && barrier::is_possible() {
            self.is_biased.store(true, Ordering::Release);
        }
        guard
    }

    /// Notes that this thread reads the lock; `None` if the lock is not biased or no note is free.
    #[inline]
    fn note(&self) -> Option<Note> {
        if !self.is_biased.load(Ordering::Relaxed) {
            return None;
        }
        let place = own()?.of.iter().find(|of| of.load(Ordering::Relaxed) == 0)?;
        // A release store, like the store that removed the previous note from this place: a thread
        // that reads the new note has also seen all that preceded the removal.
        place.store(self.address(), Ordering::Release);
        let note = Note(place);
        barrier::stay_before();
        self.is_biased.load(Ordering::Acquire).then_some(note)
    }

    /// The guarded value. The caller must hold the lock as a reader, or must have seen, after it
    /// made a note, that the lock is biased.
    fn shared(&self) -> &T {
        // SAFETY: a writer waits for the guard and the note of the caller.
        #[allow(unsafe_code)]
        unsafe {
            &*self.value.get()
        }
    }

    /// The address of a part of the lock outside of its value: another lock inside the value could have the
    /// value's address.
    fn address(&self) -> usize {
        std::ptr::from_ref(&self.is_biased) as usize
    }
}

/// A barrier that every thread of this process executes.
mod barrier {
    use std::sync::{
        OnceLock,
        atomic::{Ordering, compiler_fence, fence},
    };

    /// Whether the barrier is available.
    pub(super) fn is_possible() -> bool {
        static IS_POSSIBLE: OnceLock<bool> = OnceLock::new();
        *IS_POSSIBLE.get_or_init(|| call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
    }

    /// Executes the barrier: each thread's earlier stores are visible to the caller afterwards, and the
    /// caller's earlier stores are visible to each thread's later loads. Returns whether it succeeded.
    pub(super) fn pass() -> bool {
        call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }

    /// Called between a store and a load of a thread that the barrier interrupts. The processor may
    /// reorder the store and the load, because [`pass`] orders them; this function only prevents
    /// the compiler from reordering them.
    #[inline]
    pub(super) fn stay_before() {
        if cfg!(miri) { fence(Ordering::SeqCst) } else { compiler_fence(Ordering::SeqCst) }
    }

    fn call(command: libc::c_int) -> bool {
        if cfg!(miri) {
            // Miri does not support the system call. A fence on each side has the effect of the
            // barrier.
            fence(Ordering::SeqCst);
            return true;
        }
        // SAFETY: the call touches no memory of its caller.
        #[allow(unsafe_code)]
        unsafe {
            libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, atomic::AtomicU64},
        thread,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::waiting::pause;

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
        read_often(&lock);
        assert_eq!(lock.is_biased.load(Ordering::Relaxed), barrier::is_possible());
    }

    /// If one lock is inside another and both have the same address, a note still identifies the
    /// lock that is read.
    #[test]
    fn a_lock_in_a_lock_is_written_while_the_outer_one_is_read() {
        let outer: BiasedRw<BiasedRw<[u64; 2]>> = BiasedRw::new(Class::Space, lock());
        (0..=READERS_MIN).for_each(|_| outer.read(Site::Look, read_often));
        outer.read(Site::Look, |inner| {
            assert_ne!(outer.address(), inner.address());
            inner.write(Site::Look, |value| *value = [1, 2]);
        });
    }

    /// Tests two halves of a number. One thread reads both halves by notes, whose stores are
    /// delayed behind stores to distant cache lines. Another thread writes both halves, one after
    /// the other, once the lock `is_biased` or a time limit has passed. The first thread must never
    /// see only one half changed.
    pub(super) fn late_notes(
        rounds: u64,
        patience: Duration,
        is_biased: impl Fn() -> bool + Sync,
        look: impl Fn(&dyn Fn(&[AtomicU64; 2]) -> [u64; 2]) -> [u64; 2] + Sync,
        write: impl Fn(&dyn Fn(&[AtomicU64; 2])),
    ) {
        const LINE: usize = 8;
        const LINES: usize = if cfg!(miri) { 1 << 6 } else { 1 << 19 };
        let rounds = if cfg!(miri) { rounds / 100 } else { rounds };
        let mut far = vec![0_u64; LINES * LINE];
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut place: usize = 0;
                loop {
                    if is_biased() {
                        for _ in 0..32 {
                            place = place.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                            far[(place >> 20) % LINES * LINE] = 1;
                        }
                    }
                    // There is no locked instruction here, because it would wait for the note.
                    let [one, other] =
                        look(&|halves| halves.each_ref().map(|half| half.load(Ordering::Relaxed)));
                    assert_eq!(one, other);
                    if one == rounds {
                        break;
                    }
                }
            });
            for round in 1..=rounds {
                let start = Instant::now();
                while !is_biased() && start.elapsed() < patience {
                    pause();
                }
                (0..round % 32).for_each(|_| pause());
                write(&|[one, other]| {
                    one.store(round, Ordering::Relaxed);
                    (0..10).for_each(|_| pause());
                    other.store(round, Ordering::Relaxed);
                });
            }
        });
    }

    #[test]
    fn a_writer_sees_notes_that_are_late() {
        let lock: BiasedRw<[AtomicU64; 2]> = BiasedRw::new(Class::Space, Default::default());
        late_notes(
            4000,
            Duration::from_micros(500),
            || lock.is_biased.load(Ordering::Relaxed),
            |f| lock.read(Site::Look, f),
            |f| lock.write(Site::Look, |halves| f(halves)),
        );
    }

    #[test]
    fn notes_of_threads_that_have_ended_serve_others() {
        const THREADS: usize = if cfg!(miri) { 8 } else { 64 };
        let all = || ALL.lock().unwrap_or_else(PoisonError::into_inner).len();
        let before = all();
        for _ in 0..THREADS {
            thread::spawn(|| assert!(own().is_some())).join().unwrap();
        }
        // Other tests run at the same time.
        assert!(all() < before + THREADS, "{} were made", all() - before);
    }

    /// A lock may be read while other thread-local data of an ending thread are dropped. At that
    /// time the thread's notes may already belong to another thread.
    #[test]
    fn a_thread_that_is_ending_gives_its_notes_back_once() {
        struct Reader(Arc<AtomicUsize>);
        impl Drop for Reader {
            fn drop(&mut self) {
                self.0.fetch_add(usize::from(own().is_some()), Ordering::Relaxed);
            }
        }
        thread_local! {
            static ONE: Cell<Option<Reader>> = const { Cell::new(None) };
            static OTHER: Cell<Option<Reader>> = const { Cell::new(None) };
        }
        let with_notes = Arc::new(AtomicUsize::new(0));
        let readers = [(); 2].map(|()| Reader(Arc::clone(&with_notes)));
        let thread = thread::spawn(|| {
            let [one, other] = readers;
            ONE.set(Some(one));
            assert!(own().is_some());
            OTHER.set(Some(other));
        });
        thread.join().unwrap();
        assert_eq!(
            with_notes.load(Ordering::Relaxed),
            1,
            "one is dropped before the notes, one after"
        );
    }

    /// A reader sees either both halves of a writer's change or none, and a writer never runs
    /// beside a reader, whether the lock is biased or not.
    #[test]
    fn no_reader_is_beside_a_writer() {
        const WRITES: u64 = if cfg!(miri) { 30 } else { 300 };
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
                // Gives readers time to read by notes.
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
        // No note is left, so a writer finds no reader.
        locks.iter().for_each(|lock| lock.write(Site::Look, |_| ()));
    }
}
