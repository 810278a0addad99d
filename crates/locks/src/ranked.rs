//! Locks that assert their order: a thread that takes a lock must not hold a lock of the same or a
//! higher rank, and a thread that sleeps until a value changes must not hold any lock.
//!
//! [`Ranked`] wraps any platform and includes logical locks, so that every test of a scheme also
//! tests the order documented in [`hat::locking`].

use std::{cell::RefCell, marker::PhantomData};

use hat::locking::{Class, Locks, Mutex, Row, Rw, Site};

/// The platform `L`, with its order asserted.
#[derive(Debug)]
pub struct Ranked<L>(PhantomData<L>);

thread_local! {
    static HELD: RefCell<Vec<Class>> = const { RefCell::new(Vec::new()) };
}

impl<L: Locks> Locks for Ranked<L> {
    type Mutex<T: Send> = RankedMutex<L::Mutex<T>>;
    type Row<T: Send> = RankedRow<L::Row<T>>;
    type Rw<T> = RankedRw<L::Rw<T>>;
    type Wait = L::Wait;
    type Once<T> = L::Once<T>;

    fn acquired(of: Class, site: Site, was_busy: bool) {
        push(of, site);
        L::acquired(of, site, was_busy);
    }

    /// The lock was free, so its thread did not wait for it while it held another lock.
    fn acquired_too(of: Class, site: Site) {
        HELD.with_borrow_mut(|held| {
            assert!(held.contains(&of), "{site:?} takes {of:?} beside {held:?}");
            held.push(of);
        });
        L::acquired_too(of, site);
    }

    fn flags(count: usize) {
        L::flags(count);
    }

    fn released(of: Class) {
        L::released(of);
        pop(of);
    }
}

/// A mutex of [`Ranked`].
#[derive(Debug)]
pub struct RankedMutex<M> {
    class: Class,
    inner: M,
}

impl<T, M: Mutex<T>> Mutex<T> for RankedMutex<M> {
    type Wait = M::Wait;

    fn new(class: Class, value: T) -> RankedMutex<M> {
        RankedMutex { class, inner: M::new(class, value) }
    }

    fn with<R>(&self, site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        check(self.class, site);
        self.inner.with(site, |value| within(self.class, || f(value)))
    }

    fn until<R>(&self, site: Site, wait: &M::Wait, mut f: impl FnMut(&mut T) -> Option<R>) -> R {
        self.inner.until(site, wait, checked(self.class, site, &mut f))
    }

    fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

/// A row of mutexes of [`Ranked`].
#[derive(Debug)]
pub struct RankedRow<R> {
    class: Class,
    inner: R,
}

impl<T, I: Row<T>> Row<T> for RankedRow<I> {
    type Wait = I::Wait;

    fn new(class: Class, count: usize, make: impl Fn() -> T) -> RankedRow<I> {
        RankedRow { class, inner: I::new(class, count, make) }
    }

    fn try_new(class: Class, count: usize, make: impl Fn() -> T) -> Option<RankedRow<I>> {
        Some(RankedRow { class, inner: I::try_new(class, count, make)? })
    }

    fn until<R>(
        &self,
        place: usize,
        site: Site,
        wait: &I::Wait,
        mut f: impl FnMut(&mut T) -> Option<R>,
    ) -> R {
        self.inner.until(place, site, wait, checked(self.class, site, &mut f))
    }
}

/// A reader/writer lock of [`Ranked`].
#[derive(Debug)]
pub struct RankedRw<R> {
    class: Class,
    inner: R,
}

impl<T, I: Rw<T>> Rw<T> for RankedRw<I> {
    fn new(class: Class, value: T) -> RankedRw<I> {
        RankedRw { class, inner: I::new(class, value) }
    }

    fn read<R>(&self, site: Site, f: impl FnOnce(&T) -> R) -> R {
        check(self.class, site);
        self.inner.read(site, |value| within(self.class, || f(value)))
    }

    fn write<R>(&self, site: Site, f: impl FnOnce(&mut T) -> R) -> R {
        check(self.class, site);
        self.inner.write(site, |value| within(self.class, || f(value)))
    }
}

fn check(class: Class, site: Site) {
    HELD.with_borrow(|held| {
        let wrong = held.iter().find(|of| of.rank() >= class.rank());
        assert!(wrong.is_none(), "{site:?} takes {class:?} while it holds {held:?}");
    });
}

/// A thread may wait for a lock while it holds locks of lower rank. But a thread that waits for a
/// change of a frame's descriptor must hold none, since the change may need any lock.
fn check_sleep(class: Class, site: Site, held: &[Class]) {
    let wrong = held.iter().find(|of| of.rank() >= class.rank());
    assert!(wrong.is_none(), "{site:?} sleeps on {class:?} while it holds {held:?}");
}

/// Wraps `f`, which will run under a lock of `class`, so that the rules for sleeping are checked
/// whenever `f` returns `None`.
fn checked<T, R>(
    class: Class,
    site: Site,
    f: &mut impl FnMut(&mut T) -> Option<R>,
) -> impl FnMut(&mut T) -> Option<R> {
    check(class, site);
    let outside = HELD.with_borrow(Vec::clone);
    move |value| {
        let result = within(class, || f(value));
        if result.is_none() {
            check_sleep(class, site, &outside);
        }
        result
    }
}

fn within<R>(class: Class, f: impl FnOnce() -> R) -> R {
    HELD.with_borrow_mut(|held| held.push(class));
    let result = f();
    pop(class);
    result
}

fn push(class: Class, site: Site) {
    check(class, site);
    HELD.with_borrow_mut(|held| held.push(class));
}

fn pop(class: Class) {
    HELD.with_borrow_mut(|held| {
        let place = held.iter().rposition(|of| *of == class);
        held.remove(place.expect("what is released was taken"));
    });
}
