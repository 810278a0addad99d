//! Address-space and MMU descriptors (K94 figure 2).
//!
//! ```text
//!   space 7 --> [ processor's MMU: table 7, root ] [ I/O MMU: table 12, root ]     a list
//!                          |                                 |
//!   MMU descriptor         v                                 v
//!                 page table of its own             of another format, perhaps
//! ```
//!
//! If all spaces share one page table (for example an inverted page table or a software TLB), the
//! descriptor of every space names the same table, and locking it locks the translations of all
//! spaces.

use alloc::{boxed::Box, vec::Vec};
use core::sync::atomic::{AtomicUsize, Ordering};

use addr::VirtRange;
use pagetable::{Mounted, Space};

use crate::{loans::Loans, room::NoMemory};

/// The largest number of MMUs of a space.
pub const MMUS_MAX: usize = 4;

/// An address space, as the memory manager identifies it.
///
/// The number is reused after [`Hat::destroy`](crate::Hat::destroy); a value of this type does not prove that
/// the space still exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HatSpace(pub u32);

/// An address-space descriptor: the list of its MMU descriptors.
#[derive(Clone, Copy, Debug)]
pub struct AddressSpace {
    pub(crate) mmus: [Option<MmuEntry>; MMUS_MAX],
    /// The number by which hardware identifies the space, if these numbers are limited.
    pub(crate) context: Option<u32>,
}

/// An MMU of a space, as an element of the space's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MmuEntry {
    /// The number of the descriptor with the table.
    pub(crate) table: u32,
    /// The space in that table.
    pub(crate) inner: Space,
    /// The addresses that the MMU translates; `None` means all addresses. An I/O MMU, for example,
    /// may translate only addresses of the kernel.
    pub(crate) limit: Option<VirtRange>,
}

/// The index of an MMU in a space's list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MmuPlace(pub(crate) u8);

impl MmuPlace {
    /// The index of the processors' MMU.
    pub const PROCESSOR: MmuPlace = MmuPlace(0);
}

impl AddressSpace {
    pub(crate) const fn of(processor: MmuEntry) -> AddressSpace {
        AddressSpace { mmus: [Some(processor), None, None, None], context: None }
    }

    /// The MMU of the processors, which each space has.
    pub(crate) fn processor(&self) -> Option<MmuEntry> {
        self.mmus[0]
    }

    /// The MMU at `place`.
    pub(crate) fn at(&self, place: u8) -> Option<MmuEntry> {
        *self.mmus.get(usize::from(place))?
    }

    /// A copy of the whole list.
    pub(crate) fn whole(&self) -> Option<AddressSpace> {
        Some(*self)
    }

    /// All MMUs of the space, with their indices.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u8, MmuEntry)> {
        (0u8..).zip(&self.mmus).filter_map(|(place, mmu)| Some((place, (*mmu)?)))
    }
}

/// Returns a function that finds the MMU at index `place` in the list of a space.
pub(crate) fn in_place(place: u8) -> impl Fn(&AddressSpace) -> Option<MmuEntry> {
    move |known| known.at(place)
}

/// An MMU descriptor: a page table, and the time when each of its spaces was last loaded.
pub struct Mmu<T: ?Sized> {
    pub(crate) table: Option<Box<T>>,
    /// Whether the table stores the names of nodes in frames' lists as notes.
    pub(crate) has_notes: bool,
    /// The number of pages in the table for each size, by the index of the size. An operation that holds
    /// the whole descriptor counts without a locked instruction.
    population: Box<[AtomicUsize]>,
    /// The time of the last load of each space; recorded only if tables may be stolen.
    pub(crate) loaded: Loaded,
    /// The copies of root entries that spaces of this table have lent to each other.
    pub(crate) loans: Loans,
}

impl<T: Mounted + ?Sized> Default for Mmu<T> {
    fn default() -> Mmu<T> {
        Mmu {
            table: None,
            has_notes: false,
            population: Box::default(),
            loaded: Loaded::default(),
            loans: Loans::default(),
        }
    }
}

impl<T: Mounted + ?Sized> Mmu<T> {
    /// Sets the descriptor's table, which is empty, and the number of page sizes.
    pub(crate) fn begin(&mut self, table: Box<T>, sizes: usize) -> Result<&mut T, NoMemory> {
        let mut population = Vec::new();
        population.try_reserve_exact(sizes)?;
        population.resize_with(sizes, AtomicUsize::default);
        self.has_notes = table.has_notes();
        self.population = population.into_boxed_slice();
        Ok(self.table.insert(table))
    }

    /// Adds `pages`, which may be negative, to the count of pages of the size with this index.
    #[inline]
    pub(crate) fn count(&mut self, size: usize, pages: isize) {
        let counted = self.population[size].get_mut();
        *counted = counted.wrapping_add_signed(pages);
    }

    /// Adds `pages` to the count of pages of the size number `size`, while other operations work on other
    /// parts of the table.
    pub(crate) fn count_beside(&self, size: usize, pages: isize) {
        self.population[size].fetch_add(pages as usize, Ordering::Relaxed);
    }

    /// The number of pages of each size.
    pub(crate) fn population(&self) -> impl Iterator<Item = usize> {
        self.population.iter().map(|pages| pages.load(Ordering::Relaxed))
    }
}

/// The free numbers of spaces and of MMU descriptors.
#[derive(Debug, Default)]
pub struct Numbers {
    pub(crate) spaces: Series,
    pub(crate) mmus: Series,
}

/// For each space, the time at which it last loaded a page. The list is sorted by the space's
/// number.
#[derive(Debug, Default)]
pub(crate) struct Loaded(Vec<(u32, AtomicUsize)>);

impl Loaded {
    fn place(&self, space: u32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&space, |(space, _)| *space)
    }

    pub(crate) fn get(&self, space: u32) -> Option<&AtomicUsize> {
        Some(&self.0[self.place(space).ok()?].1)
    }

    /// Reserves memory for one more space.
    pub(crate) fn prepare(&mut self) -> Result<(), NoMemory> {
        Ok(self.0.try_reserve(1)?)
    }

    /// Records the time at which a space loaded a page. The memory has been reserved by
    /// [`Loaded::prepare`].
    pub(crate) fn set(&mut self, space: u32, now: usize) {
        match self.place(space) {
            Ok(place) => *self.0[place].1.get_mut() = now,
            Err(place) => self.0.insert(place, (space, AtomicUsize::new(now))),
        }
    }

    pub(crate) fn remove(&mut self, space: u32) {
        if let Ok(place) = self.place(space) {
            self.0.remove(place);
        }
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        self.0.iter().map(|(space, at)| (*space, at.load(Ordering::Relaxed)))
    }
}

/// Allocates numbers from 0 upwards: always the lowest free number.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// A bit for each number below `next`, set if the number is free.
    free: Vec<u64>,
    /// The index of a word; no word before it has a free number.
    first: usize,
    next: u32,
}

impl Series {
    pub(crate) fn take(&mut self) -> Result<u32, NoMemory> {
        while let Some(word) = self.free.get_mut(self.first) {
            if *word != 0 {
                let bit = word.trailing_zeros();
                *word &= *word - 1;
                return Ok(self.first as u32 * u64::BITS + bit);
            }
            self.first += 1;
        }
        if self.next / u64::BITS >= self.free.len() as u32 {
            self.free.try_reserve(1)?;
            self.free.push(0);
        }
        self.first = self.free.len() - 1;
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Frees a number. This needs no memory.
    pub(crate) fn put(&mut self, number: u32) {
        let word = (number / u64::BITS) as usize;
        self.free[word] |= 1 << (number % u64::BITS);
        self.first = self.first.min(word);
    }

    /// One more than the largest number that was ever in use.
    pub(crate) const fn end(&self) -> u32 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_lowest_free_number_is_next() {
        let (mut series, mut free, mut random) = (Series::default(), BTreeSet::new(), 1_u64);
        for step in 0..3000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(step);
            let number = (random >> 40) as u32 % 300;
            if number < series.end() && !free.contains(&number) && random >> 33 & 1 == 0 {
                series.put(number);
                free.insert(number);
                continue;
            }
            let lowest = free.pop_first().unwrap_or(series.end());
            assert_eq!(series.take(), Ok(lowest));
        }
    }
}
