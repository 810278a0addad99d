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

/// Which lock guards which descriptor.
pub trait Scheme {
    /// The page tables.
    type Table: Mounted + ?Sized;
    /// What an operation of this scheme works through.
    type Held<'a>: Held<Table = Self::Table>
    where
        Self: 'a;

    /// Runs an operation. A scheme with one lock for all holds it from here to the end, shootdowns
    /// included.
    fn enter<R>(&self, site: Site, f: impl FnOnce(&mut Self::Held<'_>) -> R) -> R;
}

/// The descriptors, one at a time (K94 figure 2). See [`locking`](super) for the order.
pub trait Held: Below {
    /// The page tables.
    type Table: Mounted + ?Sized;
    /// What is left to an operation that has an MMU descriptor.
    type Below: Below;

    /// Traverses the list of a space's MMU descriptors: none is added or removed while `f` runs with
    /// what `of` has taken from it. `None` if there is no such space.
    fn space<K, R>(
        &mut self,
        space: u32,
        of: impl FnOnce(&AddressSpace) -> Option<K>,
        f: impl FnOnce(Option<K>, &mut Self) -> R,
    ) -> R;

    /// Changes the list while nobody traverses it.
    fn space_mut<R>(&mut self, space: u32, f: impl FnOnce(&mut Option<AddressSpace>) -> R) -> R;

    /// An MMU descriptor with its page table.
    fn mmu<R>(
        &mut self,
        mmu: u32,
        f: impl FnOnce(&mut Mmu<Self::Table>, &mut Self::Below) -> R,
    ) -> R;

    /// A part of an MMU descriptor: as a rule the whole. See [`Array::part`](super::Array::part).
    fn part<R>(
        &mut self,
        mmu: u32,
        _lowest: impl Fn(&Mmu<Self::Table>) -> Option<SubtreePlace>,
        _covering: impl Fn(&Mmu<Self::Table>) -> u8,
        f: impl FnOnce(Part<'_, Mmu<Self::Table>>, &mut Self::Below) -> R,
    ) -> R {
        self.mmu(mmu, |mmu, below| f(Part::Whole(mmu), below))
    }

    /// Every page-frame descriptor that was ever asked for, with its number. Nobody else is at
    /// work.
    fn each_frame(&mut self, f: &mut dyn FnMut(u64, &Frame));
}

/// What can be had with an MMU descriptor in hand, and without.
pub trait Below {
    /// A page-frame descriptor, when `f` gives something: until then its caller sleeps, and tries
    /// again after each change of the descriptor.
    fn frame<R>(&mut self, frame: u64, f: impl FnMut(&mut Frame) -> Option<R>) -> R;

    /// `count` page-frame descriptors, numbered by `number`, in turn, as long as `f` says so. A scheme
    /// may take several at once, while it waits for none with one in hand.
    fn frames(
        &mut self,
        count: usize,
        number: impl Fn(usize) -> u64,
        mut f: impl FnMut(usize, &mut Frame) -> bool,
    ) {
        for place in 0..count {
            if !self.frame(number(place), |frame| Some(f(place, frame))) {
                return;
            }
        }
    }

    /// Memory of page tables.
    fn pool<R>(&mut self, f: impl FnOnce(&mut Pool) -> R) -> R;

    /// Numbers of spaces and of MMU descriptors.
    fn numbers<R>(&mut self, f: impl FnOnce(&mut Numbers) -> R) -> R;

    /// Contexts of spaces.
    fn contexts<R>(&mut self, f: impl FnOnce(&mut Contexts) -> R) -> R;
}

/// Where nobody else is at work, nothing that is waited for can come.
#[cold]
pub(crate) fn wrong_without_waiting<R>() -> R {
    panic!("the only thread waits for what another one would have to do");
}
