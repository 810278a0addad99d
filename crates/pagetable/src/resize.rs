//! Splitting and merging pages: the frames remain, and pages of another size map them.
//!
//! ```text
//!   one page of 2M, at frame f        <-->        512 pages of 4K, at f, f + 4K, ...
//!                                                 equal rights, no hole, f aligned to 2M
//!
//!   exchange  -->  `forget`: hardware forgets the pages as they were  -->  complete  -->  free the tables that went
//! ```
//!
//! [`PageTable::resize`](crate::PageTable::resize) does all four steps. The caller provides
//! `forget`, which is called between the exchange and the completion. No caller can therefore omit
//! the completion. Without the completion, the page would not be mapped on AArch64, and bits that
//! hardware has set would be lost.
//!
//! An operating system splits a page when only a part of it is to change (G98 §6.7), and merges pages when
//! all parts of a larger one are mapped (G98 §6.8). Every organisation keeps the old pages until the new
//! ones exist, and allocates all memory before it changes anything:
//!
//! * a radix tree exchanges one entry while processors walk it (`radix/resize.rs`);
//! * a hashed or a cuckoo table, in which pages of two sizes can map the same addresses, inserts the new pages
//!   and then removes the old ones (`pages/mod.rs`);
//! * a guarded table builds the new nodes first, and then exchanges the entry that leads to them
//!   (`guarded/resize.rs`).

use alloc::vec::Vec;

use addr::{Page, PageSize, PhysAddr, VirtAddr, VirtRange};

use crate::{Error, Mapping, Translation};

/// An entry that can be completed only after hardware has flushed the old translation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) level: u8,
    pub(crate) at: PhysAddr,
    /// The new entry to be written, if the old one was invalidated for break-before-make.
    pub(crate) made: Option<u64>,
    /// A removed table. Hardware may have set usage bits in its entries after the exchange.
    pub(crate) went: Option<PhysAddr>,
}

/// The mapped pages of `range` after a resize: `before`, which are in order, replaced by pages of the size
/// `to` with the same frames, rights, attributes and usage bits. A page that already has that size keeps its
/// note; the other pages have no note.
///
/// The request is refused if a larger page would have a hole, frames that are not adjacent and
/// aligned, or parts that differ in rights or attributes. It is also refused if a page extends
/// beyond an end of `range`, or if no memory is left for the list ([`Error::NoMemory`]).
pub fn resized(before: &[Mapping], range: VirtRange, to: PageSize) -> Result<Vec<Mapping>, Error> {
    let mut after: Vec<Mapping> = Vec::new();
    // An upper bound of the length of the result: the parts of pages that are split, and one for
    // each other page.
    let parts = |page: Page| if page.size() > to { page.size().count_of(to) as usize } else { 1 };
    after.try_reserve(before.iter().map(|mapping| parts(mapping.translation.page)).sum())?;
    // The address at which the next part of a larger page must begin, until all parts have been
    // found.
    let mut missing: Option<VirtAddr> = None;
    for mapping in before {
        let Translation { page, frame, .. } = mapping.translation;
        if let Some(addr) = missing.filter(|addr| *addr != page.start()) {
            return Err(Error::NotMapped { addr });
        }
        if !range.covers(VirtRange::of_page(page)) {
            return Err(Error::Splits { page });
        }
        if page.size() == to {
            after.push(*mapping);
            continue;
        }
        if page.size() > to {
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
        if missing.is_some() {
            let last = after.last_mut().expect("the page that parts are missing of");
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
        } else {
            let covered = VirtRange::of_page(large);
            if !range.covers(covered) {
                let starts = range.start() <= covered.start();
                let addr = if starts { range.last().wrapping_add(1) } else { range.start() };
                return Err(Error::Misaligned { addr: addr.get(), size: to });
            }
            if offset != 0 {
                return Err(Error::NotMapped { addr: large.start() });
            }
            if !frame.is_aligned(to) {
                return Err(Error::Misaligned { addr: frame.get(), size: to });
            }
            let mut whole = Mapping { note: 0, ..*mapping };
            whole.translation.page = large;
            after.push(whole);
        }
        let end = offset + page.size().bytes();
        missing = (end < to.bytes()).then(|| large.start().wrapping_add(end));
    }
    match missing {
        Some(addr) => Err(Error::NotMapped { addr }),
        None => Ok(after),
    }
}
