//! A lock in each descriptor, as in a system that can afford the memory. No two descriptors exclude
//! each other, and a lock is in the same cache line as its descriptor.
//!
//! Page-frame descriptors that are adjacent are a [row](Row) of locks. An MMU descriptor, which mostly one
//! processor uses, has a lock of its own outside any row.

use super::{
    Array, Arrays, Class, Locks, Row, Site, Wait,
    array::{Chunks, Shared, Slot},
};
use crate::sparse::CHUNK;
use alloc::boxed::Box;

/// The number of condition variables of an array.
const WAITS: usize = 64;

/// The scheme with one lock per descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Embedded;

impl<L: Locks> Arrays<L> for Embedded {
    type Of<D: Default + Send> = EmbeddedArray<D, L>;
    type Mmus<D: Default + Send> = EmbeddedMmus<D, L>;

    fn array<D: Default + Send>(&self, of: Class, _: Class) -> EmbeddedArray<D, L> {
        EmbeddedArray { of, all: Chunks::new(), waits: Waits::new(of) }
    }

    fn mmus<D: Default + Send>(&self) -> EmbeddedMmus<D, L> {
        EmbeddedMmus { all: Shared::new(), waits: Waits::new(Class::Mmu) }
    }
}

/// Descriptors with one lock each.
pub struct EmbeddedArray<D: Send, L: Locks> {
    of: Class,
    all: Chunks<L::Row<Slot<D>>, L>,
    waits: Waits<L>,
}

impl<D: Default + Send, L: Locks> Array<D> for EmbeddedArray<D, L> {
    #[inline]
    fn until<R>(&self, site: Site, number: u64, f: impl FnMut(&mut D) -> Option<R>) -> Option<R> {
        Some(self.waits.until(self.at(number)?, site, number, f))
    }

    fn each(&self, f: &mut dyn FnMut(u64, &D)) {
        self.all.each(&mut |first, row| {
            (0..CHUNK).for_each(|place| self.waits.look((row, place), first + place as u64, f));
        });
    }
}

impl<D: Default + Send, L: Locks> EmbeddedArray<D, L> {
    #[inline]
    fn at(&self, number: u64) -> Option<(&L::Row<Slot<D>>, usize)> {
        self.all.get(number, || L::Row::try_new(self.of, CHUNK, Slot::default))
    }
}

/// MMU descriptors with one lock each.
pub struct EmbeddedMmus<D: Send, L: Locks> {
    all: Shared<L::Row<Slot<D>>, L>,
    waits: Waits<L>,
}

impl<D: Default + Send, L: Locks> Array<D> for EmbeddedMmus<D, L> {
    #[inline]
    fn until<R>(&self, site: Site, number: u64, f: impl FnMut(&mut D) -> Option<R>) -> Option<R> {
        Some(self.waits.until(self.at(number)?, site, number, f))
    }

    fn each(&self, f: &mut dyn FnMut(u64, &D)) {
        self.all.each(&mut |number, row| self.waits.look((row, 0), number, f));
    }
}

impl<D: Default + Send, L: Locks> EmbeddedMmus<D, L> {
    #[inline]
    fn at(&self, number: u64) -> Option<(&L::Row<Slot<D>>, usize)> {
        Some((self.all.get(number, || L::Row::try_new(Class::Mmu, 1, Slot::default))?, 0))
    }
}

/// Where threads wait for descriptors; several descriptors share an element.
struct Waits<L: Locks>(Box<[L::Wait; WAITS]>);

impl<L: Locks> Waits<L> {
    fn new(of: Class) -> Waits<L> {
        Waits(Box::new(core::array::from_fn(|_| L::Wait::new(of))))
    }

    /// Runs `f` on the descriptor at this place of a row until it returns a value.
    #[inline]
    fn until<D: Send, R>(
        &self,
        (row, place): (&L::Row<Slot<D>>, usize),
        site: Site,
        number: u64,
        mut f: impl FnMut(&mut D) -> Option<R>,
    ) -> R {
        let wait = &self.0[number as usize % WAITS];
        let (result, is_wanted) = row.until(place, site, wait, |slot| slot.run(&mut f));
        if is_wanted {
            wait.wake_all();
        }
        result
    }

    /// Calls `f` with the descriptor at this place of a row.
    fn look<D: Send>(
        &self,
        at: (&L::Row<Slot<D>>, usize),
        number: u64,
        f: &mut dyn FnMut(u64, &D),
    ) {
        self.until(at, Site::Look, number, |descriptor| {
            f(number, descriptor);
            Some(())
        });
    }
}
