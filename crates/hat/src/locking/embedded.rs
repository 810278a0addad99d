//! A lock in each descriptor: what a system does that has the memory. No two descriptors exclude
//! each other, and no line is touched but the descriptor's own.
//!
//! Page-frame descriptors that lie together are a [row](Row) of locks; an MMU descriptor, which mostly one
//! processor uses, is one by itself.

use super::{
    Array, Arrays, Class, Locks, Row, Site, Wait,
    array::{Chunks, Shared, Slot},
};
use crate::sparse::CHUNK;
use alloc::boxed::Box;

/// Condition variables of an array.
const WAITS: usize = 64;

/// A lock per descriptor.
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

/// Descriptors with a lock each.
pub struct EmbeddedArray<D: Send, L: Locks> {
    of: Class,
    all: Chunks<L::Row<Slot<D>>, L>,
    waits: Waits<L>,
}

impl<D: Default + Send, L: Locks> Array<D> for EmbeddedArray<D, L> {
    #[inline]
    fn until<R>(&self, site: Site, number: u64, f: impl FnMut(&mut D) -> Option<R>) -> R {
        self.waits.until(self.at(number), site, number, f)
    }

    fn each(&self, f: &mut dyn FnMut(u64, &D)) {
        self.all.each(&mut |first, row| {
            (0..CHUNK).for_each(|place| self.waits.look((row, place), first + place as u64, f));
        });
    }
}

impl<D: Default + Send, L: Locks> EmbeddedArray<D, L> {
    #[inline]
    fn at(&self, number: u64) -> (&L::Row<Slot<D>>, usize) {
        self.all.get(number, || L::Row::new(self.of, CHUNK, Slot::default))
    }
}

/// MMU descriptors with a lock each.
pub struct EmbeddedMmus<D: Send, L: Locks> {
    all: Shared<L::Row<Slot<D>>, L>,
    waits: Waits<L>,
}

impl<D: Default + Send, L: Locks> Array<D> for EmbeddedMmus<D, L> {
    #[inline]
    fn until<R>(&self, site: Site, number: u64, f: impl FnMut(&mut D) -> Option<R>) -> R {
        self.waits.until(self.at(number), site, number, f)
    }

    fn each(&self, f: &mut dyn FnMut(u64, &D)) {
        self.all.each(&mut |number, row| self.waits.look((row, 0), number, f));
    }
}

impl<D: Default + Send, L: Locks> EmbeddedMmus<D, L> {
    #[inline]
    fn at(&self, number: u64) -> (&L::Row<Slot<D>>, usize) {
        (self.all.get(number, || L::Row::new(Class::Mmu, 1, Slot::default)), 0)
    }
}

/// Where threads wait for descriptors: those of several numbers in one place.
struct Waits<L: Locks>(Box<[L::Wait; WAITS]>);

impl<L: Locks> Waits<L> {
    fn new(of: Class) -> Waits<L> {
        Waits(Box::new(core::array::from_fn(|_| L::Wait::new(of))))
    }

    /// Runs `f` on the descriptor in this place of a row, until it gives something.
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

    /// Gives `f` the descriptor in this place of a row.
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
