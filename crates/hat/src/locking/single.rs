//! Locks of a kernel or a simulated machine that runs one thread: a lock is only a flag, and taking
//! it twice is a defect that panics.

use alloc::boxed::Box;
use core::cell::{OnceCell, Ref, RefCell};

use super::{Class, Locks, Mutex, Once, Rw, Site, Wait, held::wrong_without_waiting};

/// The platform of locks for one thread.
#[derive(Debug)]
pub enum Single {}

impl Locks for Single {
    type Mutex<T: Send> = SingleMutex<T>;
    type Row<T: Send> = Box<[SingleMutex<T>]>;
    type Rw<T> = SingleMutex<T>;
    type Wait = Nobody;
    type Once<T> = OnceCell<T>;
}

/// A lock of [`Single`].
#[derive(Debug)]
pub struct SingleMutex<T>(RefCell<T>);

impl<T> SingleMutex<T> {
    /// The guarded value, for reading.
    pub fn look(&self) -> Ref<'_, T> {
        self.0.borrow()
    }
}

impl<T> Mutex<T> for SingleMutex<T> {
    type Wait = Nobody;

    #[inline]
    fn new(_: Class, value: T) -> SingleMutex<T> {
        SingleMutex(RefCell::new(value))
    }

    #[inline]
    fn with<R>(&self, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }

    #[inline]
    fn until<R>(&self, _: Site, _: &Nobody, mut f: impl FnMut(&mut T) -> Option<R>) -> R {
        f(&mut self.0.borrow_mut()).unwrap_or_else(wrong_without_waiting)
    }

    #[inline]
    fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T> Rw<T> for SingleMutex<T> {
    fn new(_: Class, value: T) -> SingleMutex<T> {
        SingleMutex(RefCell::new(value))
    }

    #[inline]
    fn read<R>(&self, _: Site, f: impl FnOnce(&T) -> R) -> R {
        f(&self.0.borrow())
    }

    #[inline]
    fn write<R>(&self, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.0.borrow_mut())
    }
}

/// A place to wait that is never used: there is no other thread that could wake the waiting thread.
#[derive(Debug)]
pub struct Nobody;

impl Wait for Nobody {
    fn new(_: Class) -> Nobody {
        Nobody
    }

    fn wake_all(&self) {}
}

impl<T> Once<T> for OnceCell<T> {
    fn new() -> OnceCell<T> {
        OnceCell::new()
    }

    fn get(&self, make: impl FnOnce() -> T) -> &T {
        self.get_or_init(make)
    }

    #[inline]
    fn made(&self) -> Option<&T> {
        OnceCell::get(self)
    }
}
