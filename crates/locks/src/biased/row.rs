//! A row of mutexes that is biased towards one thread. A thread gets the bias by locking many
//! mutexes of the row while no other thread locks any.
//!
//! Data that one thread mostly uses, such as a process's page table or the frames in a part of memory, need
//! no locked instruction while no other thread uses them (Kawachiya, Koseki, Onodera, "Lock Reservation",
//! OOPSLA 2002). That thread, the *owner*, notes the row in a cache line of its own and then checks that it
//! is still the owner:
//!
//! ```text
//!   owner      note the row     am I its owner? yes: go on.  no: take the note away, lock the mutex
//!   another    lock the mutex   is the row biased? no: go on.
//!                               yes: it has no owner     barrier on all processors     until no note says the row
//! ```
//!
//! The owner and another thread order their two steps like [readers and writers](super). A row
//! becomes biased only while none of its mutexes is locked. A thread locks a mutex by a locked
//! instruction and then tests whether the row is biased. A thread that biases a row first marks the
//! row as biased, then executes a barrier, and then checks each mutex. At least one of the two
//! threads therefore sees the change of the other.
//!
//! The notes of an ended thread pass to a new thread, which then owns its rows.

use std::{
    cell::UnsafeCell,
    fmt, ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence},
    },
};

use hat::locking::{Class, Row, Site};

use super::{Notes, OWN, await_no_note, barrier, own};
use crate::waiting::{NativeWait, free, patiently, spun};

/// A thread owns a row after it has locked this number of the row's mutexes while no other thread
/// locked any. Locking this number of mutexes takes at least some hundred microseconds, so the
/// barrier of the next thread adds only a few per cent.
const LOCKED_MIN: u32 = if cfg!(miri) { 4 * COUNTED } else { 4096 };

/// A thread counts one in this many mutexes that it locks, so that threads which share a row rarely
/// write to its count. The number is prime. Therefore, if an operation locks mutexes of several
/// rows in turn, the counted mutexes are of every row in the long run.
const COUNTED: u32 = 61;

/// Adjacent mutexes, biased towards a thread while no other thread takes any.
pub struct BiasedRow<T> {
    bias: Bias,
    count: Count,
    /// The first mutex, stored beside the bias, so that the mutex of a row of one is reached
    /// without another pointer.
    first: Guarded<T>,
    others: Box<[Guarded<T>]>,
}

/// The data that a thread reads when it takes any mutex of the row.
#[repr(align(64))]
struct Bias {
    /// The notes of the owner, or null.
    owner: AtomicPtr<Notes>,
    /// Whether there is an owner, or an owner is being established or removed.
    is_biased: AtomicBool,
    /// The lock for changes of the bias.
    gate: Mutex<()>,
}

/// The notes of the thread that counted last, and the count of that thread. Several threads may
/// write here at the same time: errors of the count are harmless, as long as the owner of a row is
/// a thread that uses the row.
#[repr(align(64))]
struct Count {
    last: AtomicPtr<Notes>,
    times: AtomicU32,
}

/// A mutex and the value that it guards. The mutex is 0 while it is free.
struct Guarded<T> {
    lock: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: these are the conditions of a mutex, which passes its value from thread to thread.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Guarded<T> {}

impl<T> fmt::Debug for BiasedRow<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedRow").field("is_biased", &self.is_biased()).finish_non_exhaustive()
    }
}

/// A note or a locked mutex, which is reset to 0 when this value is dropped.
struct Hold<'a>(&'a AtomicUsize);

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Hold<'_> {
    /// The value guarded by the mutex that this hold has locked.
    #[inline]
    fn value<'a, T>(&'a mut self, mutex: &'a Guarded<T>) -> &'a mut T {
        // SAFETY: a hold is either a note or the lock of this mutex. If it is a note, this thread
        // was the row's owner after the note was made. If it is the lock, the row was not biased,
        // or was biased to this thread, after the mutex was locked.
        //
        // Two locks of a mutex exclude each other. Two notes of a row exclude each other too,
        // because a thread has only one note of a row at a time. A row gets an owner while it is
        // marked as biased and none of its mutexes is locked: if a thread locked a mutex earlier,
        // its lock was seen, and if a thread locks a mutex later, it sees that the row is biased.
        // The later thread clears the owner and then executes a barrier. The owner tested its
        // ownership either before the barrier or after it. If before, its note was seen and has
        // been removed since. If after, the owner found that it no longer owns the row. The owner
        // itself locks a mutex only if its places for notes are taken by other rows, and they stay
        // taken until the mutex is unlocked.
        #[allow(unsafe_code)]
        unsafe {
            &mut *mutex.value.get()
        }
    }
}

impl<T> Row<T> for BiasedRow<T> {
    type Wait = NativeWait;

    fn new(_: Class, count: usize, make: impl Fn() -> T) -> BiasedRow<T> {
        let mutex = || Guarded { lock: AtomicUsize::new(0), value: UnsafeCell::new(make()) };
        let none = || AtomicPtr::new(ptr::null_mut());
        BiasedRow {
            bias: Bias { owner: none(), is_biased: AtomicBool::new(false), gate: Mutex::new(()) },
            count: Count { last: none(), times: AtomicU32::new(0) },
            first: mutex(),
            others: (1..count).map(|_| mutex()).collect(),
        }
    }

    #[inline]
    fn until<R>(
        &self,
        place: usize,
        _: Site,
        wait: &NativeWait,
        mut f: impl FnMut(&mut T) -> Option<R>,
    ) -> R {
        let mutex = self.at(place);
        loop {
            let mut hold = self.take(mutex);
            // The count is read under the lock, so that no later change is missed.
            let seen = wait.seen();
            if let Some(result) = f(hold.value(mutex)) {
                return result;
            }
            drop(hold);
            wait.for_other_than(seen);
        }
    }
}

impl<T> BiasedRow<T> {
    #[inline]
    fn at(&self, place: usize) -> &Guarded<T> {
        match place.checked_sub(1) {
            None => &self.first,
            Some(place) => &self.others[place],
        }
    }

    #[inline]
    fn take<'a>(&'a self, mutex: &'a Guarded<T>) -> Hold<'a> {
        self.noted().unwrap_or_else(|| self.locked(&mutex.lock))
    }

    /// A note of the owner; `None` if this thread is not the owner or no note is free.
    #[inline]
    fn noted(&self) -> Option<Hold<'_>> {
        let notes = OWN.get()?;
        if !self.is_of(notes, Ordering::Relaxed) {
            return None;
        }
        self.confirmed(notes, notes.free_for_row(self.address())?)
    }

    /// Notes the row; `None` if its bias has ended since this thread was found to be the owner.
    #[inline]
    fn confirmed<'a>(&self, notes: &Notes, note: &'a AtomicUsize) -> Option<Hold<'a>> {
        note.store(self.address(), Ordering::Release);
        let hold = Hold(note);
        barrier::stay_before();
        self.is_of(notes, Ordering::Acquire).then_some(hold)
    }

    #[inline(never)]
    fn locked<'a>(&'a self, lock: &'a AtomicUsize) -> Hold<'a> {
        let own = own();
        // A thread that already holds a mutex of the row would wait for itself.
        let is_noted = own.is_some_and(|notes| notes.has_row(self.address()));
        assert!(!is_noted, "a thread that has a mutex of a row takes another one of it");
        if let Some(notes) = own
            && self.counts(notes)
            && self.begin_bias(notes)
            && let Some(hold) = self.noted()
        {
            return hold;
        }
        let free = || {
            let taken = lock.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed);
            taken.is_ok().then(|| Hold(lock))
        };
        let hold = free().unwrap_or_else(|| patiently(free));
        let is_owner = || own.is_some_and(|notes| self.is_of(notes, Ordering::Relaxed));
        if self.bias.is_biased.load(Ordering::SeqCst) && !is_owner() {
            self.end_bias();
        }
        hold
    }

    /// Counts some of the mutexes that this thread locks. Returns whether it has locked enough to own
    /// the row.
    fn counts(&self, notes: &Notes) -> bool {
        let locked = notes.locked.load(Ordering::Relaxed).wrapping_add(1);
        notes.locked.store(locked, Ordering::Relaxed);
        if !locked.is_multiple_of(COUNTED) {
            return false;
        }
        let this = ptr::from_ref(notes).cast_mut();
        if self.count.last.load(Ordering::Relaxed) != this {
            self.count.last.store(this, Ordering::Relaxed);
            self.count.times.store(0, Ordering::Relaxed);
        }
        let times = self.count.times.load(Ordering::Relaxed).saturating_add(1);
        self.count.times.store(times, Ordering::Relaxed);
        times >= LOCKED_MIN / COUNTED && barrier::is_possible()
    }

    /// Makes a thread the owner. Returns false if this is impossible because a mutex is locked.
    #[cold]
    fn begin_bias(&self, notes: &Notes) -> bool {
        let Some(_gate) = free(self.bias.gate.try_lock()) else { return false };
        if self.is_biased() {
            return false;
        }
        self.bias.is_biased.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let mut all = std::iter::once(&self.first).chain(&self.others);
        let is_free = all.all(|of| of.lock.load(Ordering::SeqCst) == 0);
        if is_free {
            self.bias.owner.store(ptr::from_ref(notes).cast_mut(), Ordering::Relaxed);
        } else {
            self.count.times.store(0, Ordering::Relaxed);
            self.bias.is_biased.store(false, Ordering::Release);
        }
        is_free
    }

    /// Ends the bias: on return, no thread holds a mutex of this row by a note.
    #[cold]
    fn end_bias(&self) {
        let gate = spun(|| free(self.bias.gate.try_lock()));
        let _gate =
            gate.unwrap_or_else(|| self.bias.gate.lock().unwrap_or_else(PoisonError::into_inner));
        if !self.is_biased() {
            return;
        }
        let owner = self.bias.owner.swap(ptr::null_mut(), Ordering::Relaxed);
        if !barrier::pass() {
            // The owner continues to take mutexes by notes, so the next thread must look for the
            // notes too.
            self.bias.owner.store(owner, Ordering::Relaxed);
            panic!("a barrier that was possible before has failed");
        }
        await_no_note(self.address(), |notes| &notes.rows);
        self.count.times.store(0, Ordering::Relaxed);
        // A thread that sees this needs no barrier of its own.
        self.bias.is_biased.store(false, Ordering::Release);
    }

    #[inline]
    fn is_of(&self, notes: &Notes, order: Ordering) -> bool {
        ptr::eq(self.bias.owner.load(order), notes)
    }

    fn is_biased(&self) -> bool {
        self.bias.is_biased.load(Ordering::Relaxed)
    }

    /// The address of a part of the row outside of its values: another row inside a value could
    /// have the value's address.
    fn address(&self) -> usize {
        ptr::from_ref(&self.bias) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::atomic::AtomicU64,
        thread,
        time::{Duration, Instant},
    };

    use hat::locking::Wait as _;

    use super::*;
    use crate::{biased::tests::late_notes, waiting::pause};

    type Halves = [AtomicU64; 2];

    fn row<T: Default>(count: usize) -> BiasedRow<T> {
        BiasedRow::new(Class::Frame, count, T::default)
    }

    fn take<T, R>(row: &BiasedRow<T>, place: usize, f: impl FnOnce(&mut T) -> R) -> R {
        let (wait, mut f) = (NativeWait::new(Class::Frame), Some(f));
        row.until(place, Site::Look, &wait, |value| f.take().map(|f| f(value)))
    }

    /// Takes a mutex so often that the row gets an owner, if that is possible.
    fn take_often<T>(row: &BiasedRow<T>) {
        (0..LOCKED_MIN + COUNTED).for_each(|_| take(row, 0, |_| ()));
    }

    fn is_own<T>(row: &BiasedRow<T>) -> bool {
        own().is_some_and(|notes| row.is_of(notes, Ordering::Relaxed))
    }

    fn wait_for(f: impl Fn() -> bool) {
        let start = Instant::now();
        while !f() {
            assert!(start.elapsed() < Duration::from_secs(20), "it never comes");
            thread::yield_now();
        }
    }

    #[test]
    fn who_takes_many_owns_a_row_until_another_comes() {
        let row: BiasedRow<u32> = row(2);
        assert!(!row.is_biased());
        for round in 1..4 {
            take_often(&row);
            assert_eq!(is_own(&row), barrier::is_possible());
            take(&row, 1, |value| *value += round);
            let other = || take(&row, 1, |value| std::mem::replace(value, 10 * round));
            assert_eq!(thread::scope(|scope| scope.spawn(other).join().unwrap()), round);
            assert!(!is_own(&row) && !row.is_biased());
            assert_eq!(take(&row, 1, std::mem::take), 10 * round);
        }
    }

    /// If a value contains another row, that row may have the address of the outer one.
    #[test]
    fn a_row_in_a_row_is_taken_while_the_outer_one_is() {
        let outer: BiasedRow<BiasedRow<u32>> = BiasedRow::new(Class::Frame, 1, || row(1));
        take_often(&outer);
        take(&outer, 0, |inner| {
            assert_ne!(outer.address(), inner.address());
            take_often(inner);
            let other = || take(inner, 0, |value| *value = 7);
            thread::scope(|scope| scope.spawn(other).join().unwrap());
            assert_eq!(take(inner, 0, |value| *value), 7);
        });
    }

    #[test]
    fn who_ends_a_bias_sees_notes_that_are_late() {
        let row: BiasedRow<Halves> = row(1);
        late_notes(
            1000,
            Duration::from_millis(2),
            || !row.bias.owner.load(Ordering::Relaxed).is_null(),
            |f| take(&row, 0, |halves| f(halves)),
            |f| take(&row, 0, |halves| f(halves)),
        );
    }

    /// One thread uses a row and soon owns it; another thread also uses it from time to time, and
    /// later all the time. The row is long, so that many mutexes are taken while an owner is
    /// established.
    #[test]
    fn no_two_threads_have_one_mutex() {
        const ROUNDS: u64 = if cfg!(miri) { 20 } else { 2000 };
        let row: BiasedRow<u64> = row(1024);
        let inside = AtomicUsize::new(0);
        // `enter` contains no locked instruction.
        let enter = |thread: usize, stay: u64| {
            take(&row, 0, |taken| {
                assert_eq!(inside.load(Ordering::Relaxed), 0);
                inside.store(thread, Ordering::Relaxed);
                *taken += 1;
                (0..stay).for_each(|_| pause());
                assert_eq!(inside.load(Ordering::Relaxed), thread);
                inside.store(0, Ordering::Relaxed);
            });
        };
        let is_done = AtomicBool::new(false);
        let used = thread::scope(|scope| {
            let user = scope.spawn(|| {
                let mut used = 0;
                while !is_done.load(Ordering::Relaxed) {
                    enter(1, 0);
                    used += 1;
                }
                used
            });
            let guest = scope.spawn(|| {
                for round in 0..ROUNDS {
                    (0..round * 7919 % 1000).for_each(|_| pause());
                    enter(2, 200);
                }
            });
            let is_sound = guest.join();
            is_done.store(true, Ordering::Relaxed);
            is_sound.unwrap();
            user.join().unwrap()
        });
        assert_eq!(take(&row, 0, |taken| *taken), used + ROUNDS);
    }

    /// Tests an owner that is suspended after it has checked that it is the owner.
    #[test]
    fn an_owner_that_notes_a_row_too_late_is_none() {
        let row: BiasedRow<u32> = row(1);
        take_often(&row);
        thread::scope(|scope| {
            scope.spawn(|| take(&row, 0, |_| ()));
        });
        let notes = own().expect("this thread does not end");
        assert!(row.confirmed(notes, &notes.rows[0]).is_none());
        assert_eq!(notes.rows[0].load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_row_of_which_one_is_locked_gets_no_owner() {
        let row: BiasedRow<u32> = row(2);
        let (is_taken, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                take(&row, 1, |_| {
                    is_taken.store(true, Ordering::Release);
                    wait_for(|| is_done.load(Ordering::Acquire));
                });
            });
            wait_for(|| is_taken.load(Ordering::Acquire));
            take_often(&row);
            let is_biased = row.is_biased();
            is_done.store(true, Ordering::Release);
            assert!(!is_biased);
        });
        take_often(&row);
        assert_eq!(is_own(&row), barrier::is_possible());
    }

    /// One thread ends the bias and waits for the owner. Meanwhile another thread requests the
    /// mutex that the owner holds.
    #[test]
    fn the_second_who_ends_a_bias_waits_for_the_owner_too() {
        let row: BiasedRow<u32> = row(2);
        take_often(&row);
        let is_inside = AtomicBool::new(true);
        thread::scope(|scope| {
            take(&row, 1, |_| {
                scope.spawn(|| take(&row, 0, |_| ()));
                if barrier::is_possible() {
                    wait_for(|| !is_own(&row));
                }
                scope.spawn(|| take(&row, 1, |_| assert!(!is_inside.load(Ordering::Relaxed))));
                thread::sleep(Duration::from_millis(20));
                is_inside.store(false, Ordering::Relaxed);
            });
        });
    }

    #[test]
    fn a_thread_that_takes_many_rows_at_once_locks_the_last() {
        let rows: [BiasedRow<u32>; 3] = std::array::from_fn(|_| row(1));
        rows.iter().for_each(take_often);
        fn nested(rows: &[BiasedRow<u32>]) -> usize {
            let is_noted = |note: &&AtomicUsize| note.load(Ordering::Relaxed) != 0;
            match rows {
                [] => own().map_or(0, |notes| notes.rows.iter().filter(is_noted).count()),
                [first, others @ ..] => take(first, 0, |_| nested(others)),
            }
        }
        for _ in 0..2 {
            assert_eq!(nested(&rows), if barrier::is_possible() { 2 } else { 0 });
        }
        // No note is left, so other threads do not wait for an owner.
        thread::scope(|scope| {
            scope.spawn(|| rows.iter().for_each(|row| take(row, 0, |_| ())));
        });
        assert_eq!(nested(&rows), 0);
    }

    #[test]
    fn a_thread_that_has_one_of_its_row_gets_no_other() {
        let row: BiasedRow<u32> = row(2);
        take_often(&row);
        if barrier::is_possible() {
            for place in 0..2 {
                let again = || take(&row, 0, |_| take(&row, place, |_| ()));
                assert!(catch_unwind(AssertUnwindSafe(again)).is_err());
            }
        }
        // The panic has removed the note.
        thread::scope(|scope| {
            scope.spawn(|| take(&row, 0, |_| ()));
        });
        take(&row, 1, |_| ());
    }

    /// A waiting thread gives up its note, and so does the thread that wakes it.
    #[test]
    fn an_owner_waits_for_what_another_changes() {
        const ROUNDS: u32 = if cfg!(miri) { 4 } else { 40 };
        let (row, wait) = (row::<u32>(1), NativeWait::new(Class::Frame));
        let to = |is: u32, next: u32| {
            row.until(0, Site::Look, &wait, |value| (*value == is).then(|| *value = next));
            wait.wake_all();
        };
        thread::scope(|scope| {
            scope.spawn(|| (0..ROUNDS).for_each(|round| to(2 * round + 1, 2 * round + 2)));
            for round in 0..ROUNDS {
                take_often(&row);
                to(2 * round, 2 * round + 1);
            }
        });
        assert_eq!(take(&row, 0, |value| *value), 2 * ROUNDS);
    }
}
