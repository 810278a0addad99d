//! One lock for the whole layer: each operation takes it, does all of its work including the
//! shootdown, and releases it, as Solaris 2.1 did (K94 sections 4.4 and 5.1).
//!
//! ```text
//!   lock ---- change tables ---- shoot, wait for answers ---- free ---- unlock
//! ```
//!
//! With locks for one thread ([`Single`](super::Single)), this scheme is the layer without mutual
//! exclusion.

use alloc::vec::Vec;

use pagetable::Mounted;

use super::{Below, Class, Held, Locks, Mutex, Scheme, Site, wrong_without_waiting};
use crate::{
    contexts::Contexts,
    frame::Frame,
    pool::Pool,
    space::{AddressSpace, Mmu, Numbers},
    sparse::Sparse,
};

/// The scheme with one lock, of the platform `L`, for everything.
pub struct Global<T: Mounted + ?Sized, L: Locks> {
    pub(crate) state: L::Mutex<Plain<T>>,
}

impl<T: Mounted + ?Sized, L: Locks> Global<T, L> {
    /// A scheme without spaces; tables get their memory from `pool`.
    pub fn new(pool: Pool) -> Global<T, L> {
        Global { state: L::Mutex::new(Class::Hat, Plain::new(pool)) }
    }
}

impl<T: Mounted + ?Sized, L: Locks> Scheme for Global<T, L> {
    type Table = T;
    type Held<'a>
        = Plain<T>
    where
        Self: 'a;

    #[inline]
    fn enter<R>(&self, site: Site, f: impl FnOnce(&mut Plain<T>) -> R) -> R {
        self.state.with(site, f)
    }
}

/// All descriptors, without locks of their own.
pub struct Plain<T: Mounted + ?Sized> {
    spaces: Vec<Option<AddressSpace>>,
    mmus: Vec<Mmu<T>>,
    below: PlainBelow,
}

/// Page-frame descriptors and free resources, without locks of their own.
pub struct PlainBelow {
    frames: Sparse<Frame>,
    pool: Pool,
    numbers: Numbers,
    contexts: Contexts,
}

impl<T: Mounted + ?Sized> Plain<T> {
    fn new(pool: Pool) -> Plain<T> {
        let (frames, numbers) = (Sparse::new(), Numbers::default());
        let contexts = Contexts::default();
        let below = PlainBelow { frames, pool, numbers, contexts };
        Plain { spaces: Vec::new(), mmus: Vec::new(), below }
    }

    pub(crate) fn table(&self, mmu: usize) -> Option<&T> {
        self.mmus.get(mmu)?.table.as_deref()
    }

    #[inline]
    pub(crate) fn table_mut(&mut self, mmu: usize) -> Option<&mut T> {
        self.mmus.get_mut(mmu)?.table.as_deref_mut()
    }
}

impl<T: Mounted + ?Sized> Held for Plain<T> {
    type Table = T;
    type Below = PlainBelow;

    #[inline]
    fn space<K, R>(
        &mut self,
        space: u32,
        of: impl FnOnce(&AddressSpace) -> Option<K>,
        f: impl FnOnce(Option<K>, &mut Self) -> R,
    ) -> R {
        let known = self.spaces.get(space as usize).and_then(Option::as_ref);
        f(known.and_then(of), self)
    }

    fn place_of_space<R>(
        &mut self,
        space: u32,
        f: impl FnOnce(Option<&mut Option<AddressSpace>>) -> R,
    ) -> R {
        let more = (space as usize + 1).saturating_sub(self.spaces.len());
        if self.spaces.try_reserve(more).is_err() {
            return f(None);
        }
        self.spaces.resize(self.spaces.len() + more, None);
        f(Some(&mut self.spaces[space as usize]))
    }

    #[inline]
    fn try_mmu<R>(
        &mut self,
        mmu: u32,
        f: impl FnOnce(&mut Mmu<T>, &mut PlainBelow) -> R,
    ) -> Option<R> {
        let mmu = mmu as usize;
        if mmu >= self.mmus.len() {
            self.mmus.try_reserve(mmu + 1 - self.mmus.len()).ok()?;
            self.mmus.resize_with(mmu + 1, Mmu::default);
        }
        Some(f(&mut self.mmus[mmu], &mut self.below))
    }

    fn each_frame(&mut self, f: &mut dyn FnMut(u64, &Frame)) {
        self.below.frames.each(f);
    }
}

impl<T: Mounted + ?Sized> Below for Plain<T> {
    #[inline]
    fn frame<R>(&mut self, frame: u64, f: impl FnMut(&mut Frame) -> Option<R>) -> Option<R> {
        self.below.frame(frame, f)
    }

    fn pool<R>(&mut self, f: impl FnOnce(&mut Pool) -> R) -> R {
        self.below.pool(f)
    }

    fn numbers<R>(&mut self, f: impl FnOnce(&mut Numbers) -> R) -> R {
        self.below.numbers(f)
    }

    fn contexts<R>(&mut self, f: impl FnOnce(&mut Contexts) -> R) -> R {
        self.below.contexts(f)
    }
}

impl Below for PlainBelow {
    #[inline]
    fn frame<R>(&mut self, frame: u64, mut f: impl FnMut(&mut Frame) -> Option<R>) -> Option<R> {
        Some(f(self.frames.get_mut(frame)?).unwrap_or_else(wrong_without_waiting))
    }

    fn pool<R>(&mut self, f: impl FnOnce(&mut Pool) -> R) -> R {
        f(&mut self.pool)
    }

    fn numbers<R>(&mut self, f: impl FnOnce(&mut Numbers) -> R) -> R {
        f(&mut self.numbers)
    }

    fn contexts<R>(&mut self, f: impl FnOnce(&mut Contexts) -> R) -> R {
        f(&mut self.contexts)
    }
}
