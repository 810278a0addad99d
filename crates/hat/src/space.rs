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

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
};

use core::sync::atomic::{AtomicUsize, Ordering};

use addr::VirtRange;
use pagetable::{Mounted, Space};

use crate::loans::Loans;

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
    pub(crate) loaded: BTreeMap<u32, AtomicUsize>,
    /// The copies of root entries that spaces of this table have lent to each other.
    pub(crate) loans: Loans,
}

impl<T: Mounted + ?Sized> Default for Mmu<T> {
    fn default() -> Mmu<T> {
        Mmu {
            table: None,
            has_notes: false,
            population: Box::default(),
            loaded: BTreeMap::new(),
            loans: Loans::default(),
        }
    }
}

impl<T: Mounted + ?Sized> Mmu<T> {
    /// Sets the descriptor's table, which is empty, and the number of page sizes.
    pub(crate) fn begin(&mut self, table: Box<T>, sizes: usize) -> &mut T {
        self.has_notes = table.has_notes();
        self.population = (0..sizes).map(|_| AtomicUsize::new(0)).collect();
        self.table.insert(table)
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

/// Numbers from 0; the lowest free number is used first.
#[derive(Debug, Default)]
pub(crate) struct Series {
    free: BTreeSet<u32>,
    next: u32,
}

impl Series {
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    pub(crate) fn put(&mut self, number: u32) {
        self.free.insert(number);
    }

    /// One more than the highest number that was ever used.
    pub(crate) const fn end(&self) -> u32 {
        self.next
    }
}
