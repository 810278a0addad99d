//! Locks that count how often each class of them is taken, over any platform: so that what a load
//! takes on this host can be compared with what it takes in virtual time.

use std::{cell::RefCell, collections::BTreeMap, marker::PhantomData};

use hat::locking::{Class, Locks, Mutex, Rw, Site};

/// The platform `L`, with its acquisitions counted by thread.
#[derive(Debug)]
pub struct Counted<L>(PhantomData<L>);

thread_local! {
    static TAKEN: RefCell<BTreeMap<Class, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// What this thread has taken since it was last asked.
pub fn taken() -> BTreeMap<Class, u64> {
    TAKEN.take()
}

fn count(class: Class) {
    TAKEN.with_borrow_mut(|taken| *taken.entry(class).or_insert(0) += 1);
}

impl<L: Locks> Locks for Counted<L> {
    type Mutex<T: Send> = CountedMutex<L::Mutex<T>>;
    type Rw<T> = CountedRw<L::Rw<T>>;
    type Wait = L::Wait;
    type Once<T> = L::Once<T>;

    fn acquired(of: Class, site: Site, was_busy: bool) {
        count(of);
        L::acquired(of, site, was_busy);
    }

    fn acquired_too(of: Class, site: Site) {
        count(of);
        L::acquired_too(of, site);
    }

    fn flags(count: usize) {
        L::flags(count);
    }

    fn released(of: Class) {
        L::released(of);
    }
}

/// A mutex of [`Counted`].
#[derive(Debug)]
pub struct CountedMutex<M> {
    class: Class,
    inner: M,
}

impl<T, M: Mutex<T>> Mutex<T> for CountedMutex<M> {
    type Wait = M::Wait;

    fn new(class: Class, value: T) -> CountedMutex<M> {
        CountedMutex { class, inner: M::new(class, value) }
    }

    fn with<R>(&self, site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        count(self.class);
        self.inner.with(site, f)
    }

    fn until<R>(&self, site: Site, wait: &M::Wait, mut f: impl FnMut(&mut T) -> Option<R>) -> R {
        self.inner.until(site, wait, |value| {
            // Each look takes it anew.
            count(self.class);
            f(value)
        })
    }

    fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

/// A reader/writer lock of [`Counted`].
#[derive(Debug)]
pub struct CountedRw<R> {
    class: Class,
    inner: R,
}

impl<T, I: Rw<T>> Rw<T> for CountedRw<I> {
    fn new(class: Class, value: T) -> CountedRw<I> {
        CountedRw { class, inner: I::new(class, value) }
    }

    fn read<R>(&self, site: Site, f: impl FnOnce(&T) -> R) -> R {
        count(self.class);
        self.inner.read(site, f)
    }

    fn write<R>(&self, site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        count(self.class);
        self.inner.write(site, f)
    }
}
