//! Locks over any platform that count how many times each class is taken, and measure the time
//! spent under each lock. A load on this host can thus be compared with the same load in virtual
//! time.
//!
//! ```text
//!   op    [ space          [ MMU             [ frame ]      ]    ]
//!    outside |   space        |     MMU         | frame | MMU | space | outside     whose the time is
//! ```
//!
//! Time is attributed to a single lock: of all locks that are held, the lock that was taken last.

use std::{cell::RefCell, collections::BTreeMap, marker::PhantomData, time::Instant};

use hat::locking::{Class, Locks, Mutex, Row, Rw, Site};

/// The platform `L`, observed per thread.
#[derive(Debug)]
pub struct Watched<L>(PhantomData<L>);

/// The observations of a thread.
#[derive(Debug, Default)]
pub struct Watch {
    /// For each class, how often its locks were taken. Under `None`, how often a lock was taken
    /// while no other lock was held.
    pub taken: BTreeMap<Option<Class>, u64>,
    /// For each class, the time during which the lock taken last, of all locks held, was of this
    /// class. Under `None`, the time without a lock.
    pub spent: BTreeMap<Option<Class>, Spent>,
    held: Vec<Class>,
    since: Option<Instant>,
}

/// An amount of time, with the number of clock reads and lock operations in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// The time in nanoseconds, including that of clock reads.
    pub nanoseconds: u64,
    /// The number of clock reads, each of which is part of the time.
    pub looks: u64,
    /// The number of locks taken and released.
    pub locks: u64,
}

thread_local! {
    static WATCH: RefCell<Watch> = RefCell::default();
}

/// The observations of this thread since the last call.
pub fn watched() -> Watch {
    WATCH.with_borrow_mut(|watch| {
        watch.look();
        let held = std::mem::take(&mut watch.held);
        std::mem::replace(watch, Watch { held, since: Some(Instant::now()), ..Watch::default() })
    })
}

impl Watch {
    /// Attributes the time since the last clock read to the lock that was taken last.
    fn look(&mut self) -> &mut Spent {
        let now = Instant::now();
        let spent = self.spent.entry(self.held.last().copied()).or_default();
        if let Some(since) = self.since.replace(now) {
            spent.nanoseconds += (now - since).as_nanos() as u64;
            spent.looks += 1;
        }
        spent
    }

    fn count(&mut self, class: Class) {
        *self.taken.entry(Some(class)).or_default() += 1;
        if self.held.is_empty() {
            *self.taken.entry(None).or_default() += 1;
        }
    }

    fn take(&mut self, class: Class) {
        self.look().locks += 1;
        self.count(class);
        self.held.push(class);
    }

    fn release(&mut self, class: Class) {
        self.look();
        if let Some(place) = self.held.iter().rposition(|of| *of == class) {
            self.held.remove(place);
        }
    }
}

fn watch(f: impl FnOnce(&mut Watch)) {
    WATCH.with_borrow_mut(f);
}

/// Runs `f` while a lock of `class` is held.
fn within<R>(class: Class, f: impl FnOnce() -> R) -> R {
    watch(|watch| watch.take(class));
    let result = f();
    watch(|watch| watch.release(class));
    result
}

impl<L: Locks> Locks for Watched<L> {
    type Mutex<T: Send> = WatchedMutex<L::Mutex<T>>;
    type Row<T: Send> = WatchedRow<L::Row<T>>;
    type Rw<T> = WatchedRw<L::Rw<T>>;
    type Wait = L::Wait;
    type Once<T> = L::Once<T>;

    fn acquired(of: Class, site: Site, was_busy: bool) {
        watch(|watch| watch.take(of));
        L::acquired(of, site, was_busy);
    }

    fn acquired_too(of: Class, site: Site) {
        watch(|watch| watch.take(of));
        L::acquired_too(of, site);
    }

    fn flags(count: usize) {
        L::flags(count);
    }

    fn released(of: Class) {
        watch(|watch| watch.release(of));
        L::released(of);
    }
}

/// A mutex of [`Watched`].
#[derive(Debug)]
pub struct WatchedMutex<M> {
    class: Class,
    inner: M,
}

impl<T, M: Mutex<T>> Mutex<T> for WatchedMutex<M> {
    type Wait = M::Wait;

    fn new(class: Class, value: T) -> WatchedMutex<M> {
        WatchedMutex { class, inner: M::new(class, value) }
    }

    fn with<R>(&self, site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        self.inner.with(site, |value| within(self.class, || f(value)))
    }

    fn until<R>(&self, site: Site, wait: &M::Wait, mut f: impl FnMut(&mut T) -> Option<R>) -> R {
        // Each attempt takes the lock again.
        self.inner.until(site, wait, |value| within(self.class, || f(value)))
    }

    fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

/// A row of mutexes of [`Watched`].
#[derive(Debug)]
pub struct WatchedRow<R> {
    class: Class,
    inner: R,
}

impl<T, I: Row<T>> Row<T> for WatchedRow<I> {
    type Wait = I::Wait;

    fn new(class: Class, count: usize, make: impl Fn() -> T) -> WatchedRow<I> {
        WatchedRow { class, inner: I::new(class, count, make) }
    }

    fn try_new(class: Class, count: usize, make: impl Fn() -> T) -> Option<WatchedRow<I>> {
        Some(WatchedRow { class, inner: I::try_new(class, count, make)? })
    }

    fn until<R>(
        &self,
        place: usize,
        site: Site,
        wait: &I::Wait,
        mut f: impl FnMut(&mut T) -> Option<R>,
    ) -> R {
        self.inner.until(place, site, wait, |value| within(self.class, || f(value)))
    }
}

/// A reader/writer lock of [`Watched`].
#[derive(Debug)]
pub struct WatchedRw<R> {
    class: Class,
    inner: R,
}

impl<T, I: Rw<T>> Rw<T> for WatchedRw<I> {
    fn new(class: Class, value: T) -> WatchedRw<I> {
        WatchedRw { class, inner: I::new(class, value) }
    }

    fn read<R>(&self, site: Site, f: impl FnOnce(&T) -> R) -> R {
        self.inner.read(site, |value| within(self.class, || f(value)))
    }

    fn write<R>(&self, site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        self.inner.write(site, |value| within(self.class, || f(value)))
    }
}

#[cfg(test)]
mod tests {
    use std::{thread::sleep, time::Duration};

    use super::*;
    use crate::native::Native;

    #[test]
    fn time_is_that_of_the_lock_taken_last() {
        type Lock = <Watched<Native> as Locks>::Mutex<()>;
        let (outer, inner) = (Lock::new(Class::Mmu, ()), Lock::new(Class::Frame, ()));
        watched();
        for _ in 0..2 {
            outer.with(Site::Load, |()| {
                sleep(Duration::from_millis(4));
                inner.with(Site::Load, |()| sleep(Duration::from_millis(8)));
            });
        }
        inner.with(Site::Load, |()| ());
        let Watch { taken, spent, .. } = watched();
        let (mmu, frame) = (Some(Class::Mmu), Some(Class::Frame));
        assert_eq!(taken, BTreeMap::from([(None, 3), (mmu, 2), (frame, 3)]));
        assert!(spent[&mmu].nanoseconds >= 8_000_000 && spent[&frame].nanoseconds >= 16_000_000);
        assert!(spent[&None].nanoseconds < spent[&mmu].nanoseconds);
        let counts = |place| (spent[&place].looks, spent[&place].locks);
        // Each hold has two clock reads; if another lock is taken during the hold, one more.
        assert_eq!([counts(None), counts(mmu), counts(frame)], [(4, 3), (4, 2), (3, 0)]);
    }
}
