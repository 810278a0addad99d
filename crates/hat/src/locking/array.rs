use super::{Class, Locks, Once, Site};
use crate::sparse::{CHUNK, PART, PARTS, places};
use alloc::{boxed::Box, vec::Vec};

/// Descriptors of one kind, each of which at most one thread holds at a time.
pub trait Array<D> {
    /// Runs `f` on descriptor `number` until it returns a value. Between attempts the descriptor is
    /// not held, and the caller sleeps until it has changed.
    fn until<R>(&self, site: Site, number: u64, f: impl FnMut(&mut D) -> Option<R>) -> Option<R>;

    /// Runs `f` on `count` descriptors in turn, until `f` returns false. `number` gives the number
    /// of each descriptor. Several descriptors may be held at once, but no thread waits for one
    /// while it holds another.
    #[inline]
    fn several(
        &self,
        site: Site,
        count: usize,
        number: impl Fn(usize) -> u64,
        mut f: impl FnMut(usize, Option<&mut D>) -> bool,
    ) {
        for place in 0..count {
            let each = |descriptor: &mut D| Some(f(place, Some(descriptor)));
            if !self.until(site, number(place), each).unwrap_or_else(|| f(place, None)) {
                return;
            }
        }
    }

    /// Runs `f` on a part of a descriptor; in most schemes, the part is the whole descriptor.
    ///
    /// A scheme with parts first locks the part that `lowest` returns and then calls `covering` for the
    /// level that the operation needs. If the operation needs a higher level, the scheme locks the
    /// higher part instead.
    #[inline]
    fn part<R>(
        &self,
        site: Site,
        number: u64,
        _lowest: impl Fn(&D) -> Option<SubtreePlace>,
        _covering: impl Fn(&D) -> u8,
        f: impl FnOnce(Part<'_, D>) -> R,
    ) -> Option<R> {
        let mut f = Some(f);
        self.until(site, number, |descriptor| f.take().map(|f| f(Part::Whole(descriptor))))
    }

    /// Calls `f` for each descriptor that was ever used. No other thread may use the array during
    /// the call.
    fn each(&self, f: &mut dyn FnMut(u64, &D));
}

/// How descriptors are locked. Only in this do [`Fine`](super::Fine) schemes differ.
pub trait Arrays<L: Locks> {
    /// An array of descriptors `D`.
    type Of<D: Default + Send>: Array<D>;
    /// An array of MMU descriptors `D`.
    type Mmus<D: Default + Send>: Array<D>;

    /// An empty array. Its locks are of the class `of`; mutexes that guard only flags are of the
    /// class `flags`.
    fn array<D: Default + Send>(&self, of: Class, flags: Class) -> Self::Of<D>;

    /// An empty array of MMU descriptors.
    fn mmus<D: Default + Send>(&self) -> Self::Mmus<D>;
}

/// The part of a descriptor that an operation holds.
pub enum Part<'a, D> {
    /// The whole descriptor, exclusively.
    Whole(&'a mut D),
    /// The part below one of its tables, which is at this level; other operations may hold other
    /// parts.
    Shared(&'a D, u8),
}

/// The position of a table in a page table, as a path from the root.
#[derive(Clone, Copy, Debug)]
pub struct SubtreePlace {
    levels: u8,
    /// The level of the table.
    pub(super) level: u8,
    /// For each level, the index of the entry that leads to the next table on the path.
    indices: [u16; LEVELS],
}

/// The largest number of levels that a page table has.
const LEVELS: usize = 9;

impl SubtreePlace {
    /// The table of `level` in a page table with `levels` levels. `index` gives, for each level above,
    /// the index of the entry on the path.
    pub(crate) fn new(levels: u8, level: u8, index: impl Fn(u8) -> u64) -> SubtreePlace {
        let at = |at: usize| {
            let is_passed = at > level as usize && at <= levels as usize;
            if is_passed { index(at as u8) as u16 } else { 0 }
        };
        SubtreePlace { levels, level, indices: core::array::from_fn(at) }
    }

    /// The number of tables above this one.
    pub(super) const fn depth(&self) -> u8 {
        self.levels.saturating_sub(self.level)
    }

    /// The index of the entry that leads to the table of `depth`.
    pub(super) const fn index(&self, depth: u8) -> usize {
        self.indices[(self.levels + 1 - depth) as usize] as usize
    }
}

/// A descriptor, and whether a thread sleeps until the descriptor changes.
#[derive(Default)]
pub(super) struct Slot<D> {
    pub(super) descriptor: D,
    pub(super) is_wanted: bool,
}

impl<D> Slot<D> {
    /// Runs `f`. Returns its value, and whether sleeping threads must be woken.
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

/// Numbered elements in chunks `C`, which several threads can look up at the same time. A chunk is created
/// when one of its elements is first used, and is never removed.
pub(super) struct Chunks<C, L: Locks> {
    parts: Box<[L::Once<ChunksOfPart<C, L>>]>,
}

type ChunksOfPart<C, L> = Box<[<L as Locks>::Once<C>]>;

impl<C, L: Locks> Chunks<C, L> {
    pub(super) fn new() -> Chunks<C, L> {
        Chunks { parts: many(PARTS, L::Once::new) }
    }

    /// The chunk that contains an element, and the element's index in it.
    #[inline]
    pub(super) fn get(&self, number: u64, make: impl Fn() -> Option<C>) -> Option<(&C, usize)> {
        let [part, chunk, place] = places(number);
        let chunks = self.parts[part].try_get(|| try_many(PART, L::Once::new))?;
        Some((chunks[chunk].try_get(make)?, place))
    }

    /// Calls `f` for each chunk, with the number of its first element.
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

/// Elements with small numbers, which several threads can look up at the same time. They are in segments,
/// each as large as all segments before it together: the highest set bit of a number determines its segment,
/// so that a lookup follows one pointer.
///
/// ```text
///   segment 0  64 elements    1  64    2  128    3  256   ...      each made when one of it is first asked for
/// ```
pub(super) struct Shared<X, L: Locks> {
    segments: [L::Once<Box<[X]>>; SEGMENTS],
}

/// log2 of the number of elements in the first segment.
const FIRST_SHIFT: u32 = 6;
/// The number of segments for all 32-bit numbers.
const SEGMENTS: usize = (u32::BITS - FIRST_SHIFT) as usize + 1;

/// The segment of an element, and its index there.
const fn segment(number: u64) -> (usize, usize) {
    let first = 1 << FIRST_SHIFT;
    if number < first {
        return (0, number as usize);
    }
    let highest = number.ilog2();
    ((highest - FIRST_SHIFT + 1) as usize, (number - (1 << highest)) as usize)
}

/// The number of the first element of a segment, which is also the number of elements before it.
const fn first_of(segment: usize) -> u64 {
    if segment == 0 { 0 } else { 1 << (segment as u32 - 1 + FIRST_SHIFT) }
}

impl<X, L: Locks> Shared<X, L> {
    pub(super) fn new() -> Shared<X, L> {
        Shared { segments: core::array::from_fn(|_| L::Once::new()) }
    }

    #[inline]
    pub(super) fn get(&self, number: u64, make: impl Fn() -> Option<X>) -> Option<&X> {
        let (segment, place) = segment(number);
        let count = || first_of(segment).max(1 << FIRST_SHIFT) as usize;
        let made = || {
            let mut made = Vec::new();
            made.try_reserve_exact(count()).ok()?;
            for _ in 0..count() {
                made.push(make()?);
            }
            Some(made.into_boxed_slice())
        };
        Some(&self.segments[segment].try_get(made)?[place])
    }

    pub(super) fn each(&self, f: &mut dyn FnMut(u64, &X)) {
        for (segment, elements) in self.segments.iter().enumerate() {
            let elements = elements.made().into_iter().flatten();
            (first_of(segment)..).zip(elements).for_each(|(number, element)| f(number, element));
        }
    }
}

/// Creates `count` elements when the layer is created. Panics if no memory is left.
pub(super) fn many<X>(count: usize, make: impl Fn() -> X) -> Box<[X]> {
    try_many(count, make).expect("there is memory for a layer that begins")
}

/// Creates `count` elements. `None` if no memory is left.
pub(super) fn try_many<X>(count: usize, make: impl Fn() -> X) -> Option<Box<[X]>> {
    let mut made = Vec::new();
    made.try_reserve_exact(count).ok()?;
    made.resize_with(count, make);
    Some(made.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::locking::Single;

    /// Segments follow one another without gaps, up to the last number.
    #[test]
    fn each_number_has_an_element_of_its_own() {
        let shared: Shared<core::cell::Cell<u64>, Single> = Shared::new();
        (0..5000).for_each(|number| {
            shared.get(number, || Some(Default::default())).unwrap().set(number + 1)
        });
        let mut found = Vec::new();
        shared.each(&mut |number, element| found.push((number, element.get())));
        assert!(
            found.iter().all(|&(number, set)| set == if number < 5000 { number + 1 } else { 0 })
        );
        assert_eq!(found.len(), 8192);
        assert_eq!(segment(u32::MAX.into()), (SEGMENTS - 1, (1 << 31) - 1));
    }
}
