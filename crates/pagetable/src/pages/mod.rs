//! The contract over single pages: what tables have in common that reach any page directly.
//!
//! ```text
//!   map     = nothing there (gather), then insert all or none
//!   unmap   = gather, then remove one by one
//!   protect = gather, then exchange entries
//!   resize  = gather, then replace: insert beside them, then remove
//!                |
//!   Pages: find, gather, insert, remove, look_up         a hashed, an inverted, a guarded table
//! ```
//!
//! An organisation says where the entry of a page is, makes room for one and takes it away;
//! ranges, errors and tokens are dealt with in `ranges`.

mod ranges;

use alloc::vec::Vec;

use addr::{Frames, Kind, Memory, Page, PageSize, PhysAddr, VirtAddr, VirtRange};

use crate::pte::{Pte, Width};
use crate::spaces::Spaces;
use crate::{Error, Fault, Flush, Footprint, Leads, Mapping, Reference, Space, Translation, Usage};

/// A page's entry: where it is, and what it was when it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) page: Page,
    pub(crate) at: PhysAddr,
    pub(crate) pte: Pte,
    /// Whether only the flags lie there, in one byte: pages that share the frame's entry.
    pub(crate) flags_only: bool,
}

impl Found {
    /// The entry of `page`, which lies at `at` whole.
    #[inline]
    pub(crate) const fn new(page: Page, at: PhysAddr, pte: Pte) -> Found {
        Found { page, at, pte, flags_only: false }
    }
}

/// Pages of one size to be mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    first: Translation,
    count: u64,
    /// Where their frames are not adjacent, or they are not: all of them, ascending.
    listed: &'a [Translation],
    /// The note of each page; none where all are 0.
    notes: &'a [u32],
}

impl<'a> Run<'a> {
    /// `count` adjacent pages in adjacent frames, the first as `first` says, which a table can hold.
    pub(crate) const fn new(first: Translation, count: u64, notes: &'a [u32]) -> Run<'a> {
        Run { first, count, listed: &[], notes }
    }

    /// These pages of one size, ascending, without notes. `None` if there are none.
    pub(crate) fn listed(pages: &'a [Translation]) -> Option<Run<'a>> {
        let first = *pages.first()?;
        Some(Run { first, count: pages.len() as u64, listed: pages, notes: &[] })
    }

    /// The size of each page.
    pub(crate) const fn size(&self) -> PageSize {
        self.first.page.size()
    }

    /// The page, if it is only one.
    pub(crate) fn single(&self) -> Option<Translation> {
        (self.count == 1).then_some(self.first)
    }

    /// The pages, ascending.
    pub(crate) fn pages(
        &self,
    ) -> impl DoubleEndedIterator<Item = Translation> + ExactSizeIterator + use<'a> {
        let Run { first, count, listed, .. } = *self;
        let size = first.page.size();
        // A run has as many pages as an address can count, but no more than a range can hold.
        (0..count as usize).map(move |n| {
            if let Some(&page) = listed.get(n) {
                return page;
            }
            let offset = n as u64 * size.bytes();
            let page = first.page.start().wrapping_add(offset).page(size);
            Translation { page, frame: first.frame.wrapping_add(offset), ..first }
        })
    }

    /// The base pages of this answer, each with its note.
    pub(crate) fn noted_pages(&self) -> impl Iterator<Item = (Translation, u32)> {
        let note = |n: usize| self.notes.get(n).copied().unwrap_or(0);
        self.pages().enumerate().map(move |(n, page)| (page, note(n)))
    }
}

/// A page table as single pages. Every operation is about a space that exists.
pub(crate) trait Pages {
    /// What is kept for each space.
    type Own;

    /// The page sizes that it holds, ascending.
    fn sizes(&self) -> &[PageSize];

    /// How wide the entries of pages are.
    fn width(&self) -> Width;

    /// Whether entries of pages have notes: [`crate::PageTable::has_notes`].
    fn keeps_notes(&self) -> bool {
        false
    }

    /// Where the note of a page lies, if it has one.
    fn note_at(&self, _found: &Found) -> Option<PhysAddr> {
        None
    }

    fn spaces(&self) -> &Spaces<Self::Own>;

    fn spaces_mut(&mut self) -> &mut Spaces<Self::Own>;

    /// What an empty space starts with: its root, and what is kept for it.
    fn open(
        &mut self,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(PhysAddr, Self::Own), Error>;

    /// Gives up what was kept for a space that has just ended.
    fn close(&mut self, space: Space, own: Self::Own, memory: &mut impl Memory, flush: &mut Flush);

    /// The entry of the page that holds `addr`.
    fn find(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Found>;

    /// Every page that lies in `range`, whole or in part, in any order.
    fn gather(&self, space: Space, range: VirtRange, memory: &impl Memory, found: &mut Vec<Found>);

    /// Maps the pages of `run`, of a size and with frames that fit, where no page of that size is: all of them or
    /// none. `flush` is told of nodes that move; after an error it has been told nothing.
    fn insert(
        &mut self,
        space: Space,
        run: &Run<'_>,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) -> Result<(), Error>;

    /// Has the pages of `after` in place of those of `before`, which are mapped, have other sizes and lead to
    /// the same frames: all of them, or none where no frame is left. What those of `before` were at last, in
    /// order.
    ///
    /// A walk finds one or the other at every moment, and bits that it sets are in what this returns or in
    /// the new entries.
    fn replace(
        &mut self,
        space: Space,
        before: &[Page],
        after: &[Translation],
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) -> Result<Vec<Mapping>, Error> {
        if let Some(run) = Run::listed(after) {
            self.insert(space, &run, memory, frames, flush)?;
        }
        let width = self.width();
        let gone = before.iter().map(|&page| {
            let last = self.remove(space, page, memory, flush);
            width.mapping(last, page)
        });
        Ok(gone.collect())
    }

    /// Removes one page, which is there, and returns its last entry. No other page's entry
    /// moves, nor does it matter that a page of another size has the same addresses.
    fn remove(
        &mut self,
        space: Space,
        page: Page,
        memory: &mut impl Memory,
        flush: &mut Flush,
    ) -> Pte;

    /// Replaces the entry of a page, in all places where it has one, as [`exchange`] does.
    fn exchange(
        &self,
        _space: Space,
        found: Found,
        memory: &mut impl Memory,
        new: impl Fn(Pte) -> Option<Pte>,
    ) -> Option<Pte> {
        exchange(self.width(), found, memory, new)
    }

    /// Writes the note of a page, in all places where it has an entry.
    fn write_note(&self, _space: Space, found: &Found, note: u32, memory: &mut impl Memory) {
        write_note(self, found, note, memory);
    }

    /// [`crate::PageTable::walk`].
    fn look_up(
        &self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault>;

    /// What is taken for a space alone.
    fn taken_by(&self, own: &Self::Own) -> Footprint;

    /// What is taken for all spaces together.
    fn taken_by_all(&self) -> Footprint {
        Footprint::default()
    }
}

/// Writes the note beside an entry, if there is one.
pub(crate) fn write_note<P: Pages + ?Sized>(
    table: &P,
    found: &Found,
    note: u32,
    memory: &mut impl Memory,
) {
    if let Some(at) = table.note_at(found) {
        memory.write_u32(at, note);
    }
}

/// What a walk does with the entry that it has found and read: checks the rights and sets the
/// usage bits where the walk does that, as a reference of its own.
#[inline]
pub(crate) fn conclude(
    width: Width,
    found: Found,
    kind: Kind,
    sets_usage: bool,
    memory: &mut impl Memory,
    each: &mut impl FnMut(Reference),
) -> Result<Translation, Fault> {
    let Found { page, at, pte, flags_only } = found;
    let translation = width.translation(pte, page);
    if !translation.rights.allows(kind) {
        return Err(Fault::Denied { translation });
    }
    let bits = Usage { referenced: true, dirty: kind == Kind::Store, marked: false };
    if sets_usage && pte.with_usage(bits) != pte {
        let used = |pte: Pte| pte.is_mapped().then(|| pte.with_usage(bits));
        if exchange(width, found, memory, used).is_none() {
            // The page was taken out after it was found: an access would not be noted anywhere.
            return Err(Fault::NotMapped { level: 1 });
        }
        let bytes = if flags_only { 1 } else { width.bytes() };
        each(Reference { addr: at, bytes, write: true, level: 1, leads: Leads::Nowhere });
    }
    Ok(translation)
}

/// The reference of a walk that reads `bytes` at `addr` of a table without levels.
#[inline]
pub(crate) const fn read_of(addr: PhysAddr, bytes: u8) -> Reference {
    Reference { addr, bytes, write: false, level: 1, leads: Leads::Nowhere }
}

/// Replaces an entry by what `new` makes of it, however often a walker sets bits meanwhile;
/// what it was, unless `new` let it be.
pub(crate) fn exchange(
    width: Width,
    found: Found,
    memory: &mut impl Memory,
    new: impl Fn(Pte) -> Option<Pte>,
) -> Option<Pte> {
    let mut pte = found.pte;
    loop {
        let new = new(pte)?;
        let exchanged = if found.flags_only {
            Width::exchange_flags(found.at, pte, new, memory)
        } else {
            width.exchange(found.at, pte, new, memory)
        };
        match exchanged {
            Ok(()) => return Some(pte),
            Err(now) => pte = now,
        }
    }
}
