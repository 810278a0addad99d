//! An array of mutexes: each guards the descriptors whose number hashes to it (K94 sections 4.4 and
//! 6.2).
//!
//! ```text
//!   descriptor 0 --+-- mutex 0        unrelated descriptors exclude each other
//!   descriptor 4 --+                  only where they share a mutex
//!   descriptor 1 ----- mutex 1
//! ```

use super::{
    Array, Arrays, Class, Locks, Mutex, Site, Wait,
    array::{Slot, many},
};
use crate::sparse::Sparse;
use alloc::boxed::Box;

/// The scheme with this number of mutexes for the frames, and the same number for the MMU
/// descriptors.
#[derive(Clone, Copy, Debug)]
pub struct Hashed {
    /// The number of mutexes.
    pub mutexes: usize,
}

impl<L: Locks> Arrays<L> for Hashed {
    type Of<D: Default + Send> = HashedArray<D, L>;
    type Mmus<D: Default + Send> = HashedArray<D, L>;

    fn array<D: Default + Send>(&self, of: Class, _: Class) -> HashedArray<D, L> {
        let bucket = || (L::Mutex::new(of, Sparse::new()), L::Wait::new(of));
        HashedArray { buckets: many(self.mutexes.max(1), bucket) }
    }

    fn mmus<D: Default + Send>(&self) -> HashedArray<D, L> {
        Arrays::<L>::array(self, Class::Mmu, Class::MmuFlags)
    }
}

/// Descriptors in buckets, with one mutex per bucket.
pub struct HashedArray<D: Send, L: Locks> {
    buckets: Box<[Bucket<D, L>]>,
}

type Bucket<D, L> = (<L as Locks>::Mutex<Sparse<Slot<D>>>, <L as Locks>::Wait);

impl<D: Default + Send, L: Locks> Array<D> for HashedArray<D, L> {
    fn until<R>(
        &self,
        site: Site,
        number: u64,
        mut f: impl FnMut(&mut D) -> Option<R>,
    ) -> Option<R> {
        let count = self.buckets.len() as u64;
        let (mutex, wait) = &self.buckets[(number % count) as usize];
        let (result, is_wanted) =
            mutex.until(site, wait, |all| match all.get_mut(number / count) {
                Some(slot) => slot.run(&mut f).map(Some),
                None => Some(None),
            })?;
        if is_wanted {
            wait.wake_all();
        }
        Some(result)
    }

    fn each(&self, f: &mut dyn FnMut(u64, &D)) {
        let count = self.buckets.len() as u64;
        for (bucket, (mutex, _)) in (0u64..).zip(&self.buckets) {
            mutex.with(Site::Look, |all| {
                all.each(&mut |number, slot| f(number * count + bucket, &slot.descriptor));
            });
        }
    }
}
