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
        _lowest: impl Fn(&D) -> Option<SubtreePlace>,
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
pub struct SubtreePlace {
    levels: u8,
    /// Its level.
    pub(super) level: u8,
    /// By level, the entry that leads on there.
    indices: [u16; LEVELS],
}

/// Levels that a page table has at most.
const LEVELS: usize = 9;

impl SubtreePlace {
    /// The table of `level` in a page table of so many `levels`, with `index` the entry that leads on in
    /// a table of a level.
    pub(crate) fn new(levels: u8, level: u8, index: impl Fn(u8) -> u64) -> SubtreePlace {
        let at = |at: usize| {
            let is_passed = at > level as usize && at <= levels as usize;
            if is_passed { index(at as u8) as u16 } else { 0 }
        };
        SubtreePlace { levels, level, indices: core::array::from_fn(at) }
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

/// Chunks `C` of elements by number that several threads look up at once: parts are made when an element is
/// first asked for, and stay.
pub(super) struct Chunks<C, L: Locks> {
    parts: Box<[L::Once<ChunksOfPart<C, L>>]>,
}

type ChunksOfPart<C, L> = Box<[<L as Locks>::Once<C>]>;

impl<C, L: Locks> Chunks<C, L> {
    pub(super) fn new() -> Chunks<C, L> {
        Chunks { parts: many(PARTS, L::Once::new) }
    }

    /// The chunk of an element, and its place in there.
    #[inline]
    pub(super) fn get(&self, number: u64, make: impl Fn() -> C) -> (&C, usize) {
        let [part, chunk, place] = places(number);
        let chunks = self.parts[part].get(|| many(PART, L::Once::new));
        (chunks[chunk].get(make), place)
    }

    /// Gives `f` each chunk, and the number of its first element.
    pub(super) fn each(&self, f: &mut dyn FnMut(u64, &C)) {
        for (part, chunks) in self.parts.iter().enumerate() {
            for (chunk, elements) in chunks.made().into_iter().flatten().enumerate() {
                if let Some(elements) = elements.made() {
                    f(((part * PART + chunk) * CHUNK) as u64, elements);
                }
            }
        }
    }
}

/// Elements by small numbers that several threads look up at once, in segments of which each has as many as all
/// before it: which one a number lies in follows from its highest bit, and one address leads there.
///
/// ```text
///   segment 0  64 elements    1  64    2  128    3  256   ...      each made when one of it is first asked for
/// ```
pub(super) struct Shared<X, L: Locks> {
    segments: [L::Once<Box<[X]>>; SEGMENTS],
}

/// Elements of the first segment, by the power of two.
const FIRST_SHIFT: u32 = 6;
/// For all numbers of 32 bits.
const SEGMENTS: usize = (u32::BITS - FIRST_SHIFT) as usize + 1;

/// The segment of an element, and its place in there.
const fn segment(number: u64) -> (usize, usize) {
    let first = 1 << FIRST_SHIFT;
    if number < first {
        return (0, number as usize);
    }
    let highest = number.ilog2();
    ((highest - FIRST_SHIFT + 1) as usize, (number - (1 << highest)) as usize)
}

/// The first element of a segment, which has as many as come before it.
const fn first_of(segment: usize) -> u64 {
    if segment == 0 { 0 } else { 1 << (segment as u32 - 1 + FIRST_SHIFT) }
}

impl<X, L: Locks> Shared<X, L> {
    pub(super) fn new() -> Shared<X, L> {
        Shared { segments: core::array::from_fn(|_| L::Once::new()) }
    }

    #[inline]
    pub(super) fn get(&self, number: u64, make: impl Fn() -> X) -> &X {
        let (segment, place) = segment(number);
        let count = || first_of(segment).max(1 << FIRST_SHIFT) as usize;
        &self.segments[segment].get(|| many(count(), &make))[place]
    }

    pub(super) fn each(&self, f: &mut dyn FnMut(u64, &X)) {
        for (segment, elements) in self.segments.iter().enumerate() {
            let elements = elements.made().into_iter().flatten();
            (first_of(segment)..).zip(elements).for_each(|(number, element)| f(number, element));
        }
    }
}

pub(super) fn many<X>(count: usize, make: impl Fn() -> X) -> Box<[X]> {
    let mut made = Vec::with_capacity(count);
    made.resize_with(count, make);
    made.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::locking::Single;

    /// Segments follow one another without a gap, up to the last number.
    #[test]
    fn each_number_has_an_element_of_its_own() {
        let shared: Shared<core::cell::Cell<u64>, Single> = Shared::new();
        (0..5000).for_each(|number| shared.get(number, Default::default).set(number + 1));
        let mut found = Vec::new();
        shared.each(&mut |number, element| found.push((number, element.get())));
        assert!(
            found.iter().all(|&(number, set)| set == if number < 5000 { number + 1 } else { 0 })
        );
        assert_eq!(found.len(), 8192);
        assert_eq!(segment(u32::MAX.into()), (SEGMENTS - 1, (1 << 31) - 1));
    }
}
