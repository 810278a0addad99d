//! A lock in each descriptor: what a system does that has the memory. No two descriptors exclude
//! each other, and no line is touched but the descriptor's own.

use super::{
    Array, Arrays, Class, Locks, Mutex, Site, Wait,
    array::{Shared, Slot, many},
};
use alloc::boxed::Box;

/// Condition variables of an array.
const WAITS: usize = 64;

/// A lock per descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Embedded;

impl<L: Locks> Arrays<L> for Embedded {
    type Of<D: Default + Send> = EmbeddedArray<D, L>;
    type Mmus<D: Default + Send> = EmbeddedArray<D, L>;

    fn array<D: Default + Send>(&self, of: Class, _: Class) -> EmbeddedArray<D, L> {
        EmbeddedArray { of, all: Shared::new(), waits: many(WAITS, || L::Wait::new(of)) }
    }

    fn mmus<D: Default + Send>(&self) -> EmbeddedArray<D, L> {
        Arrays::<L>::array(self, Class::Mmu, Class::MmuFlags)
    }
}

/// Descriptors with a lock each.
pub struct EmbeddedArray<D: Send, L: Locks> {
    of: Class,
    all: Shared<L::Mutex<Slot<D>>, L>,
    waits: Box<[L::Wait]>,
}

impl<D: Default + Send, L: Locks> Array<D> for EmbeddedArray<D, L> {
    #[inline]
    fn until<R>(&self, site: Site, number: u64, mut f: impl FnMut(&mut D) -> Option<R>) -> R {
        let mutex = self.all.get(number, || L::Mutex::new(self.of, Slot::default()));
        let wait = &self.waits[number as usize % WAITS];
        let (result, is_wanted) = mutex.until(site, wait, |slot| slot.run(&mut f));
        if is_wanted {
            wait.wake_all();
        }
        result
    }

    fn each(&self, f: &mut dyn FnMut(u64, &D)) {
        self.all.each(&mut |number, mutex| {
            mutex.with(Site::Look, |slot| f(number, &slot.descriptor));
        });
    }
}
