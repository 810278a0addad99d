use super::{Class, Locks, Once, Site};
use crate::sparse::{CHUNK, PART, PARTS, places};
use alloc::{boxed::Box, vec::Vec};

/// Descriptors of one kind, each of which one thread has at a time.
pub trait Array<D> {
    /// Runs `f` on descriptor `number`, until it gives something. In between nobody has it, and the
    /// caller sleeps until it has changed.
    fn until<R>(&self, site: Site, number: u64, f: impl FnMut(&mut D) -> Option<R>) -> R;

    /// Runs `f` on `count` descriptors, numbered by `number`, in turn, as long as it says so. Several may
    /// be taken at once, if none is waited for with another in hand.
    #[inline]
    fn several(
        &self,
        site: Site,
        count: usize,
        number: impl Fn(usize) -> u64,
        mut f: impl FnMut(usize, &mut D) -> bool,
    ) {
        for place in 0..count {
            if !self.until(site, number(place), |descriptor| Some(f(place, descriptor))) {
                return;
            }
        }
    }

    /// Runs `f` on a part of a descriptor: as a rule the whole.
    ///
    /// An array whose descriptors have parts takes the one at `lowest`, and asks `covering` then, which
    /// level it has to be; a higher one where that says so.
    #[inline]
    fn part<R>(
        &self,
        site: Site,
        number: u64,
        _lowest: impl Fn(&D) -> Option<Place>,
        _covering: impl Fn(&D) -> u8,
        f: impl FnOnce(Part<'_, D>) -> R,
    ) -> R {
        let mut f = Some(f);
        self.until(site, number, |descriptor| f.take().map(|f| f(Part::Whole(descriptor))))
    }

    /// Gives `f` each descriptor that was ever asked for. Nobody else is at work.
    fn each(&self, f: &mut dyn FnMut(u64, &D));
}

/// How descriptors are locked: what [`Fine`](super::Fine) schemes differ in.
pub trait Arrays<L: Locks> {
    /// Descriptors `D`.
    type Of<D: Default + Send>: Array<D>;
    /// MMU descriptors `D`.
    type Mmus<D: Default + Send>: Array<D>;

    /// None so far. Their locks are of the class `of`, and flags that guard them of `flags`.
    fn array<D: Default + Send>(&self, of: Class, flags: Class) -> Self::Of<D>;

    /// MMU descriptors, none so far.
    fn mmus<D: Default + Send>(&self) -> Self::Mmus<D>;
}

/// What an operation has of a descriptor.
pub enum Part<'a, D> {
    /// All of it, and nobody else has any.
    Whole(&'a mut D),
    /// What lies below one of its tables, of this level; others have other parts.
    Shared(&'a D, u8),
}

/// A table of a page table: which one, from the root down.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    levels: u8,
    /// Its level.
    pub(super) level: u8,
    /// By level, the entry that leads on there.
    indices: [u16; LEVELS],
}

/// Levels that a page table has at most.
const LEVELS: usize = 9;

impl Place {
    /// The table of `level` in a page table of so many `levels`, with `index` the entry that leads on in
    /// a table of a level.
    pub(crate) fn new(levels: u8, level: u8, index: impl Fn(u8) -> u64) -> Place {
        let at = |at: usize| {
            let is_passed = at > level as usize && at <= levels as usize;
            if is_passed { index(at as u8) as u16 } else { 0 }
        };
        Place { levels, level, indices: core::array::from_fn(at) }
    }

    /// Tables above it.
    pub(super) const fn depth(&self) -> u8 {
        self.levels.saturating_sub(self.level)
    }

    /// The entry that leads to the table of `depth`.
    pub(super) const fn index(&self, depth: u8) -> usize {
        self.indices[(self.levels + 1 - depth) as usize] as usize
    }
}

/// A descriptor, and whether somebody sleeps until it changes.
#[derive(Default)]
pub(super) struct Slot<D> {
    pub(super) descriptor: D,
    pub(super) is_wanted: bool,
}

impl<D> Slot<D> {
    /// Runs `f`; with its result comes whether sleepers must be woken.
    #[inline]
    pub(super) fn run<R>(&mut self, f: &mut impl FnMut(&mut D) -> Option<R>) -> Option<(R, bool)> {
        match f(&mut self.descriptor) {
            Some(result) => Some((result, core::mem::take(&mut self.is_wanted))),
            None => {
                self.is_wanted = true;
                None
            }
        }
    }
}

/// Elements by number that several threads look up at once: parts are made when an element is first
/// asked for, and stay.
pub(super) struct Shared<X, L: Locks> {
    parts: Box<[L::Once<Chunks<X, L>>]>,
}

type Chunks<X, L> = Box<[<L as Locks>::Once<Box<[X]>>]>;

impl<X, L: Locks> Shared<X, L> {
    pub(super) fn new() -> Shared<X, L> {
        Shared { parts: many(PARTS, L::Once::new) }
    }

    #[inline]
    pub(super) fn get(&self, number: u64, make: impl Fn() -> X) -> &X {
        let [part, chunk, place] = places(number);
        let chunks = self.parts[part].get(|| many(PART, L::Once::new));
        &chunks[chunk].get(|| many(CHUNK, make))[place]
    }

    pub(super) fn each(&self, f: &mut dyn FnMut(u64, &X)) {
        for (part, chunks) in self.parts.iter().enumerate() {
            for (chunk, elements) in chunks.made().into_iter().flatten().enumerate() {
                for (place, element) in elements.made().into_iter().flatten().enumerate() {
                    f(((part * PART + chunk) * CHUNK + place) as u64, element);
                }
            }
        }
    }
}

pub(super) fn many<X>(count: usize, make: impl Fn() -> X) -> Box<[X]> {
    let mut made = Vec::with_capacity(count);
    made.resize_with(count, make);
    made.into_boxed_slice()
}
