//! A split or a merge: the frames stay, and pages of another size map them.
//!
//! ```text
//!   one page of 2M, at frame f        <-->        512 pages of 4K, at f, f + 4K, ...
//!                                                 equal rights, no hole, f aligned to 2M
//!
//!   resize  -->  hardware forgets the pages as they were  -->  complete  -->  done
//! ```
//!
//! An operating system makes a page smaller when only a part of it is to change (G98 §6.7), and larger when
//! all parts of it are there (G98 §6.8). A radix tree does it while processors walk it, by one exchange of
//! an entry (`radix/resize.rs`). Other organisations have no entry that stands for all parts: there the
//! pages are removed and entered anew.

use alloc::vec::Vec;

use addr::{Frames, Memory, PageSize, PhysAddr, VirtAddr, VirtRange};

use crate::{Error, Flush, Mapping, Mounted, PageTable, Space, Translation, Unfit, Usage};

/// What became of pages that were to have another size. The operation ends with
/// [`PageTable::complete`].
#[must_use = "hardware may still hold the pages of the other size: flush them, then call `complete`"]
#[derive(Debug)]
pub struct Resized {
    /// What hardware may hold of the pages as they were.
    pub flush: Flush,
    /// The pages as they are now. Bits that hardware sets in the old ones until it has forgotten them are
    /// not in here.
    pub mapped: Vec<Mapping>,
    /// The pages for whose tables no frame was left: they are mapped no more. There are none in a radix
    /// tree, which takes all frames before it changes anything.
    pub lost: Vec<Mapping>,
    /// What is left to do.
    pub(crate) pending: Vec<Pending>,
}

/// An entry that is not complete before hardware has forgotten what was there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) level: u8,
    pub(crate) at: PhysAddr,
    /// The entry to be made there, if it was broken.
    pub(crate) made: Option<u64>,
    /// A table that went, in which hardware may have set bits of pages meanwhile.
    pub(crate) went: Option<PhysAddr>,
}

/// A space of a table, as far as a resize changes it.
trait Pages {
    fn visit(&self, range: VirtRange, each: &mut dyn FnMut(Mapping));
    fn unmap(&mut self, range: VirtRange, each: &mut dyn FnMut(Mapping)) -> Result<Flush, Error>;
    fn map(&mut self, page: Translation) -> Result<Flush, Error>;
    fn set_usage(&mut self, addr: VirtAddr, usage: Usage) -> Result<(), Error>;
}

struct OfTable<'a, T, M, A> {
    table: &'a mut T,
    space: Space,
    memory: &'a mut M,
    frames: &'a mut A,
}

impl<T: PageTable, M: Memory, A: Frames> Pages for OfTable<'_, T, M, A> {
    fn visit(&self, range: VirtRange, mut each: &mut dyn FnMut(Mapping)) {
        self.table.visit(self.space, range, self.memory, &mut each);
    }

    fn unmap(
        &mut self,
        range: VirtRange,
        mut each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        self.table.unmap(self.space, range, self.memory, &mut each)
    }

    fn map(&mut self, page: Translation) -> Result<Flush, Error> {
        self.table.map(self.space, page, 1, self.memory, self.frames)
    }

    fn set_usage(&mut self, addr: VirtAddr, usage: Usage) -> Result<(), Error> {
        self.table.set_usage(self.space, addr, usage, self.memory)
    }
}

struct OfMounted<'a, T: ?Sized> {
    table: &'a mut T,
    space: Space,
    frames: &'a mut dyn Frames,
}

impl<T: Mounted + ?Sized> Pages for OfMounted<'_, T> {
    fn visit(&self, range: VirtRange, each: &mut dyn FnMut(Mapping)) {
        self.table.visit(self.space, range, each);
    }

    fn unmap(&mut self, range: VirtRange, each: &mut dyn FnMut(Mapping)) -> Result<Flush, Error> {
        self.table.unmap(self.space, range, each)
    }

    fn map(&mut self, page: Translation) -> Result<Flush, Error> {
        self.table.map(self.space, page, 1, self.frames)
    }

    fn set_usage(&mut self, addr: VirtAddr, usage: Usage) -> Result<(), Error> {
        self.table.set_usage(self.space, addr, usage)
    }
}

/// [`PageTable::resize`] for any table.
pub(crate) fn resize<T: PageTable>(
    table: &mut T,
    space: Space,
    range: VirtRange,
    to: PageSize,
    memory: &mut impl Memory,
    frames: &mut impl Frames,
) -> Result<Resized, Error> {
    let has = table.page_sizes().contains(&to);
    replace(OfTable { table, space, memory, frames }, has, range, to)
}

/// [`Mounted::resize`] for any table.
pub(crate) fn resize_mounted<T: Mounted + ?Sized>(
    table: &mut T,
    space: Space,
    range: VirtRange,
    to: PageSize,
    frames: &mut dyn Frames,
) -> Result<Resized, Error> {
    let has = table.page_sizes().contains(&to);
    replace(OfMounted { table, space, frames }, has, range, to)
}

/// Removes the pages of `range` and enters them anew.
fn replace(
    mut pages: impl Pages,
    has: bool,
    range: VirtRange,
    to: PageSize,
) -> Result<Resized, Error> {
    if !has {
        return Err(Unfit::PageSize(to).into());
    }
    let mut before = Vec::new();
    pages.visit(range, &mut |mapping| before.push(mapping));
    resized(&before, range, to)?;
    // With the bits that they had when they went, and not when they were looked at.
    before.clear();
    let mut flush = pages.unmap(range, &mut |mapping| before.push(mapping))?;
    let after = resized(&before, range, to)?;
    let (mut mapped, mut lost) = (Vec::with_capacity(after.len()), Vec::new());
    for mapping in after {
        match pages.map(mapping.translation) {
            Ok(moved) => {
                flush.merge(moved);
                if mapping.usage != Usage::default() {
                    pages.set_usage(mapping.translation.page.start(), mapping.usage)?;
                }
                mapped.push(mapping);
            }
            // Nothing else can be wrong with pages that were there.
            Err(_) => lost.push(mapping),
        }
    }
    Ok(Resized { flush, mapped, lost, pending: Vec::new() })
}

/// `before`, the pages of `range` in order, by pages of the size `to`.
pub(crate) fn resized(
    before: &[Mapping],
    range: VirtRange,
    to: PageSize,
) -> Result<Vec<Mapping>, Error> {
    let mut after: Vec<Mapping> = Vec::new();
    for mapping in before {
        let Translation { page, frame, .. } = mapping.translation;
        if !range.covers(VirtRange::of_page(page)) {
            return Err(Error::Splits { page });
        }
        if page.size() >= to {
            for number in 0..page.size().count_of(to) {
                let offset = number * to.bytes();
                let mut part = Mapping { note: 0, ..*mapping };
                part.translation.page = page.start().wrapping_add(offset).page(to);
                part.translation.frame = PhysAddr::new(frame.get() + offset);
                after.push(part);
            }
            continue;
        }
        let large = page.start().page(to);
        let offset = page.start().get() - large.start().get();
        match after.last_mut().filter(|last| last.translation.page == large) {
            Some(last) => {
                let whole = &last.translation;
                let fits = frame.get() == whole.frame.get().wrapping_add(offset)
                    && mapping.translation.rights == whole.rights
                    && mapping.translation.global == whole.global
                    && mapping.translation.attributes == whole.attributes;
                if !fits {
                    return Err(Error::AlreadyMapped { page });
                }
                last.usage.referenced |= mapping.usage.referenced;
                last.usage.dirty |= mapping.usage.dirty;
                last.usage.marked &= mapping.usage.marked;
            }
            None => {
                if offset != 0 || !frame.is_aligned(to) || !range.covers(VirtRange::of_page(large))
                {
                    return Err(Error::Misaligned { addr: frame.get(), size: to });
                }
                let mut whole = Mapping { note: 0, ..*mapping };
                whole.translation.page = large;
                after.push(whole);
            }
        }
    }
    let bytes = |mappings: &[Mapping]| -> u64 {
        mappings.iter().map(|mapping| mapping.translation.page.size().bytes()).sum()
    };
    match bytes(before) == bytes(&after) {
        true => Ok(after),
        // A hole: some part of a larger page is not mapped.
        false => Err(Error::NotMapped { addr: range.start() }),
    }
}
