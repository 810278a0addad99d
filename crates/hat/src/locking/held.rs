use pagetable::Mounted;

use super::{
    Site,
    array::{Part, SubtreePlace},
};
use crate::{
    contexts::Contexts,
    frame::Frame,
    pool::Pool,
    space::{AddressSpace, Mmu, Numbers},
};

/// A locking scheme: which lock guards which descriptor.
pub trait Scheme {
    /// The page tables.
    type Table: Mounted + ?Sized;
    /// The access that an operation has under this scheme.
    type Held<'a>: Held<Table = Self::Table>
    where
        Self: 'a;

    /// Runs an operation. A scheme with one lock for everything holds it from beginning to end,
    /// including shootdowns.
    fn enter<R>(&self, site: Site, f: impl FnOnce(&mut Self::Held<'_>) -> R) -> R;
}

/// Access to the descriptors, one at a time (K94 figure 2). See [`locking`](super) for the order of
/// locks.
pub trait Held: Below {
    /// The page tables.
    type Table: Mounted + ?Sized;
    /// The access that remains while an operation holds an MMU descriptor.
    type Below: Below;

    /// Reads the list of a space's MMU descriptors. `of` copies the needed data from the list, and
    /// then `f` runs with this data. No MMU is added or removed until `f` has returned. `None` if
    /// there is no such space.
    fn space<K, R>(
        &mut self,
        space: u32,
        of: impl FnOnce(&AddressSpace) -> Option<K>,
        f: impl FnOnce(Option<K>, &mut Self) -> R,
    ) -> R;

    /// Changes the list of a space's MMU descriptors while no other thread reads it.
    fn space_mut<R>(&mut self, space: u32, f: impl FnOnce(&mut Option<AddressSpace>) -> R) -> R {
        self.place_of_space(space, |place| f(place.unwrap_or(&mut None)))
    }

    /// Calls `f` with the place of a space's descriptor, which `f` may fill or empty. `f` gets
    /// `None` if the place does not exist yet and no memory is left for it.
    fn place_of_space<R>(
        &mut self,
        space: u32,
        f: impl FnOnce(Option<&mut Option<AddressSpace>>) -> R,
    ) -> R;

    /// Runs `f` on an MMU descriptor with its page table.
    fn mmu<R>(
        &mut self,
        mmu: u32,
        f: impl FnOnce(&mut Mmu<Self::Table>, &mut Self::Below) -> R,
    ) -> R {
        self.try_mmu(mmu, f).expect("an MMU that has begun has a descriptor")
    }

    /// Like [`Held::mmu`], for an MMU that is created. Returns `None` if no memory is left for its
    /// descriptor.
    fn try_mmu<R>(
        &mut self,
        mmu: u32,
        f: impl FnOnce(&mut Mmu<Self::Table>, &mut Self::Below) -> R,
    ) -> Option<R>;

    /// Runs `f` on a part of an MMU descriptor; in most schemes the part is the whole descriptor.
    /// See [`Array::part`](super::Array::part).
    fn part<R>(
        &mut self,
        mmu: u32,
        _lowest: impl Fn(&Mmu<Self::Table>) -> Option<SubtreePlace>,
        _covering: impl Fn(&Mmu<Self::Table>) -> u8,
        f: impl FnOnce(Part<'_, Mmu<Self::Table>>, &mut Self::Below) -> R,
    ) -> R {
        self.mmu(mmu, |mmu, below| f(Part::Whole(mmu), below))
    }

    /// Calls `f` for every page-frame descriptor that was ever used, with its number. No other
    /// thread may use the layer during the call.
    fn each_frame(&mut self, f: &mut dyn FnMut(u64, &Frame));
}

/// Access to the data that an operation may lock whether or not it holds an MMU descriptor.
pub trait Below {
    /// Runs `f` on a page-frame descriptor until it returns a value: after each attempt that
    /// returns none, the caller sleeps until the descriptor has changed.
    fn frame<R>(&mut self, frame: u64, f: impl FnMut(&mut Frame) -> Option<R>) -> Option<R>;

    /// Runs `f` on `count` page-frame descriptors in turn, until `f` returns false. `number` gives
    /// the number of each descriptor. A scheme may hold several descriptors at once, but does not
    /// wait for one while it holds another.
    fn frames(
        &mut self,
        count: usize,
        number: impl Fn(usize) -> u64,
        mut f: impl FnMut(usize, Option<&mut Frame>) -> bool,
    ) {
        for place in 0..count {
            let each = |frame: &mut Frame| Some(f(place, Some(frame)));
            if !self.frame(number(place), each).unwrap_or_else(|| f(place, None)) {
                return;
            }
        }
    }

    /// Runs `f` on the pool of memory for page tables.
    fn pool<R>(&mut self, f: impl FnOnce(&mut Pool) -> R) -> R;

    /// Runs `f` on the free numbers of spaces and of MMU descriptors.
    fn numbers<R>(&mut self, f: impl FnOnce(&mut Numbers) -> R) -> R;

    /// Runs `f` on the contexts of spaces.
    fn contexts<R>(&mut self, f: impl FnOnce(&mut Contexts) -> R) -> R;
}

/// Called if an operation would have to wait although there is no other thread that could end the
/// wait. It panics.
#[cold]
pub(crate) fn wrong_without_waiting<R>() -> R {
    panic!("the only thread waits for what another one would have to do");
}
