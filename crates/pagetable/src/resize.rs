//! The same frames by pages of another size: gathered, removed, and entered anew.
//!
//! ```text
//!   one page of 2M, at frame f        <-->        512 pages of 4K, at f, f + 4K, ...
//!                                                 equal rights, no hole, f aligned to 2M
//! ```
//!
//! A format that says a page's size in each of its entries changes it there; any other removes the
//! pages and enters them anew. An operating system makes a page smaller when only a part of it is to change (G98 §6.7), and
//! larger when all parts of it are there (G98 §6.8).

use alloc::vec::Vec;

use addr::{Frames, PageSize, PhysAddr, VirtRange};

use crate::{Error, Flush, Mapping, Mounted, Space, Translation, Unfit, Usage};

/// What became of pages that were to have another size.
#[must_use = "hardware may still hold the pages of the other size: flush them"]
#[derive(Debug)]
pub struct Resized {
    /// What hardware may hold of the pages as they were.
    pub flush: Flush,
    /// The pages as they are now.
    pub mapped: Vec<Mapping>,
    /// The pages for whose tables no frame was left: they are mapped no more.
    pub lost: Vec<Mapping>,
}

/// [`Mounted::resize`] for any table.
pub(crate) fn resize<T: Mounted + ?Sized>(
    table: &mut T,
    space: Space,
    range: VirtRange,
    to: PageSize,
    frames: &mut dyn Frames,
) -> Result<Resized, Error> {
    if !table.page_sizes().contains(&to) {
        return Err(Error::Unfit(Unfit::PageSize(to)));
    }
    let mut before = Vec::new();
    table.visit(space, range, &mut |mapping| before.push(mapping));
    let after = resized(&before, range, to)?;
    if let Some(flush) = table.restamp(space, range, to) {
        // A bit that was of a whole page is of each of its parts, and the other way round.
        for mapping in after.iter().filter(|mapping| mapping.usage != Usage::default()) {
            table.set_usage(space, mapping.translation.page.start(), mapping.usage)?;
        }
        return Ok(Resized { flush, mapped: after, lost: Vec::new() });
    }
    let mut flush = table.unmap(space, range, &mut |_| ())?;
    let (mut mapped, mut lost) = (Vec::with_capacity(after.len()), Vec::new());
    for mapping in after {
        match table.map(space, mapping.translation, 1, frames) {
            Ok(moved) => {
                flush.merge(moved);
                if mapping.usage != Usage::default() {
                    table.set_usage(space, mapping.translation.page.start(), mapping.usage)?;
                }
                mapped.push(mapping);
            }
            // Nothing else can be wrong with pages that were there.
            Err(_) => lost.push(mapping),
        }
    }
    Ok(Resized { flush, mapped, lost })
}

/// `before`, the pages of `range` in order, by pages of the size `to`.
fn resized(before: &[Mapping], range: VirtRange, to: PageSize) -> Result<Vec<Mapping>, Error> {
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
                    && mapping.translation.global == whole.global;
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
