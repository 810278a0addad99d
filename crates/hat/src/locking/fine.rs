//! A lock for each descriptor: several operations run at once, on different spaces and frames (K94
//! section 4.4).
//!
//! ```text
//!   space   reader/writer lock around the list of MMU descriptors
//!   MMU     one thread has it, with its page table          \  Arrays: what `monitor`, `hashed`
//!   frame   one thread has it, with its list                /  and `embedded` differ in
//!   lists   one mutex for all free resources, or one for each list (K94 section 6.2)
//! ```
//!
//! Shootdowns happen while the space's list of MMU descriptors is locked for reading and no other
//! lock is held.

use pagetable::Mounted;

use super::{
    Below, Class, Held, Locks, Mutex, Rw, Scheme, Site,
    array::{Array, Arrays, Part, Shared, SubtreePlace},
};
use crate::{
    contexts::Contexts,
    frame::Frame,
    pool::Pool,
    space::{AddressSpace, Mmu, Numbers},
};

/// A scheme with one lock per descriptor, in arrays of kind `A` with locks of `L`.
pub struct Fine<T: Mounted + ?Sized, L: Locks, A: Arrays<L>> {
    spaces: Shared<L::Rw<Option<AddressSpace>>, L>,
    mmus: A::Mmus<Mmu<T>>,
    frames: A::Of<Frame>,
    lists: FreeLists<L>,
}

/// How the lists of free resources are locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListLocks {
    /// One lock for all lists: K94's `hat_resource_mutex`.
    One,
    /// One lock for each list.
    Each,
}

enum FreeLists<L: Locks> {
    One(L::Mutex<(Pool, Numbers, Contexts)>),
    Each(L::Mutex<Pool>, L::Mutex<Numbers>, L::Mutex<Contexts>),
}

impl<T: Mounted + ?Sized, L: Locks, A: Arrays<L>> Fine<T, L, A> {
    /// A scheme without spaces; tables get their memory from `pool`.
    pub fn new(arrays: &A, pool: Pool, lists: ListLocks) -> Fine<T, L, A> {
        let (numbers, contexts) = (Numbers::default(), Contexts::default());
        let lists = match lists {
            ListLocks::One => {
                FreeLists::One(L::Mutex::new(Class::Resource(0), (pool, numbers, contexts)))
            }
            ListLocks::Each => FreeLists::Each(
                L::Mutex::new(Class::Resource(1), pool),
                L::Mutex::new(Class::Resource(2), numbers),
                L::Mutex::new(Class::Resource(3), contexts),
            ),
        };
        Fine {
            spaces: Shared::new(),
            mmus: arrays.mmus(),
            frames: arrays.array(Class::Frame, Class::FrameFlags),
            lists,
        }
    }

    #[inline]
    fn space(&self, space: u32) -> Option<&L::Rw<Option<AddressSpace>>> {
        self.spaces.get(space.into(), || Some(L::Rw::new(Class::Space, None)))
    }
}

impl<T: Mounted + ?Sized, L: Locks, A: Arrays<L>> Scheme for Fine<T, L, A> {
    type Table = T;
    type Held<'a>
        = Locked<'a, T, L, A>
    where
        Self: 'a;

    #[inline]
    fn enter<R>(&self, site: Site, f: impl FnOnce(&mut Locked<'_, T, L, A>) -> R) -> R {
        f(&mut Locked { fine: self, site })
    }
}

/// An operation in progress.
pub struct Locked<'a, T: Mounted + ?Sized, L: Locks, A: Arrays<L>> {
    fine: &'a Fine<T, L, A>,
    site: Site,
}

impl<T: Mounted + ?Sized, L: Locks, A: Arrays<L>> Held for Locked<'_, T, L, A> {
    type Table = T;
    type Below = Self;

    #[inline]
    fn space<K, R>(
        &mut self,
        space: u32,
        of: impl FnOnce(&AddressSpace) -> Option<K>,
        f: impl FnOnce(Option<K>, &mut Self) -> R,
    ) -> R {
        let Some(place) = self.fine.space(space) else { return f(None, self) };
        place.read(self.site, |known| f(known.as_ref().and_then(of), self))
    }

    fn place_of_space<R>(
        &mut self,
        space: u32,
        f: impl FnOnce(Option<&mut Option<AddressSpace>>) -> R,
    ) -> R {
        let Some(place) = self.fine.space(space) else { return f(None) };
        place.write(self.site, |known| f(Some(known)))
    }

    #[inline]
    fn try_mmu<R>(&mut self, mmu: u32, f: impl FnOnce(&mut Mmu<T>, &mut Self) -> R) -> Option<R> {
        let mut f = Some(f);
        self.fine.mmus.until(self.site, mmu.into(), |mmu| f.take().map(|f| f(mmu, self)))
    }

    #[inline]
    fn part<R>(
        &mut self,
        mmu: u32,
        lowest: impl Fn(&Mmu<T>) -> Option<SubtreePlace>,
        covering: impl Fn(&Mmu<T>) -> u8,
        f: impl FnOnce(Part<'_, Mmu<T>>, &mut Self) -> R,
    ) -> R {
        let fine = self.fine;
        let done = fine.mmus.part(self.site, mmu.into(), lowest, covering, |part| f(part, self));
        done.expect("an MMU that has begun has a descriptor")
    }

    fn each_frame(&mut self, f: &mut dyn FnMut(u64, &Frame)) {
        self.fine.frames.each(f);
    }
}

impl<T: Mounted + ?Sized, L: Locks, A: Arrays<L>> Below for Locked<'_, T, L, A> {
    #[inline]
    fn frame<R>(&mut self, frame: u64, f: impl FnMut(&mut Frame) -> Option<R>) -> Option<R> {
        self.fine.frames.until(self.site, frame, f)
    }

    #[inline]
    fn frames(
        &mut self,
        count: usize,
        number: impl Fn(usize) -> u64,
        f: impl FnMut(usize, Option<&mut Frame>) -> bool,
    ) {
        self.fine.frames.several(self.site, count, number, f);
    }

    fn pool<R>(&mut self, f: impl FnOnce(&mut Pool) -> R) -> R {
        match &self.fine.lists {
            FreeLists::One(all) => all.with(self.site, |(pool, ..)| f(pool)),
            FreeLists::Each(pool, ..) => pool.with(self.site, f),
        }
    }

    fn numbers<R>(&mut self, f: impl FnOnce(&mut Numbers) -> R) -> R {
        match &self.fine.lists {
            FreeLists::One(all) => all.with(self.site, |(_, numbers, _)| f(numbers)),
            FreeLists::Each(_, numbers, _) => numbers.with(self.site, f),
        }
    }

    fn contexts<R>(&mut self, f: impl FnOnce(&mut Contexts) -> R) -> R {
        match &self.fine.lists {
            FreeLists::One(all) => all.with(self.site, |(.., contexts)| f(contexts)),
            FreeLists::Each(.., contexts) => contexts.with(self.site, f),
        }
    }
}
