//! The contract of tables that reach any page directly: operations on single pages.
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
//! Each organisation finds, inserts and removes the entry of a page. The module `ranges` implements
//! ranges, errors and tokens for all organisations.

mod ranges;

use alloc::vec::Vec;

use addr::{Frames, Kind, Memory, Page, PageSize, PhysAddr, VirtAddr, VirtRange};

use crate::pte::{Pte, Width};
use crate::spaces::Spaces;
use crate::{Error, Fault, Flush, Footprint, Leads, Mapping, Reference, Space, Translation, Usage};

/// A page's entry: its address, and its value when it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) page: Page,
    pub(crate) at: PhysAddr,
    pub(crate) pte: Pte,
    /// Whether `at` is the address of one byte of flags. This is so in a partial subblock, whose
    /// pages share the frame.
    pub(crate) flags_only: bool,
}

impl Found {
    /// The entry of `page`, whose complete entry is at `at`.
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
    /// All pages, ascending, if they or their frames are not adjacent; otherwise empty.
    listed: &'a [Translation],
    /// The note of each page; empty if all notes are 0.
    notes: &'a [u32],
}

impl<'a> Run<'a> {
    /// A run of `count` adjacent pages in adjacent frames, whose first page is `first`. The table
    /// must support their size and their frames.
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

    /// The page, if there is exactly one.
    pub(crate) fn single(&self) -> Option<Translation> {
        (self.count == 1).then_some(self.first)
    }

    /// The pages, ascending.
    pub(crate) fn pages(
        &self,
    ) -> impl DoubleEndedIterator<Item = Translation> + ExactSizeIterator + use<'a> {
        let Run { first, count, listed, .. } = *self;
        let size = first.page.size();
        // The conversion is exact, because a run is never longer than a range.
        (0..count as usize).map(move |n| {
            if let Some(&page) = listed.get(n) {
                return page;
            }
            let offset = n as u64 * size.bytes();
            let page = first.page.start().wrapping_add(offset).page(size);
            Translation { page, frame: first.frame.wrapping_add(offset), ..first }
        })
    }

    /// The pages of the run, each with its note.
    pub(crate) fn noted_pages(&self) -> impl Iterator<Item = (Translation, u32)> {
        let note = |n: usize| self.notes.get(n).copied().unwrap_or(0);
        self.pages().enumerate().map(move |(n, page)| (page, note(n)))
    }
}

/// A page table seen as single pages. Every operation is on a space that exists.
pub(crate) trait Pages {
    /// The data of each space.
    type Own;

    /// The supported page sizes, ascending.
    fn sizes(&self) -> &[PageSize];

    /// The width of a page entry.
    fn width(&self) -> Width;

    /// Whether entries of pages have notes: [`crate::PageTable::has_notes`].
    fn keeps_notes(&self) -> bool {
        false
    }

    /// The address of a page's note, if its entry has one.
    fn note_at(&self, _found: &Found) -> Option<PhysAddr> {
        None
    }

    fn spaces(&self) -> &Spaces<Self::Own>;

    fn spaces_mut(&mut self) -> &mut Spaces<Self::Own>;

    /// Creates the root and the data of a new, empty space.
    fn open(
        &mut self,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(PhysAddr, Self::Own), Error>;

    /// Frees the data of a space that has just ended.
    fn close(&mut self, space: Space, own: Self::Own, memory: &mut impl Memory, flush: &mut Flush);

    /// The entry of the page that holds `addr`.
    fn find(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Found>;

    /// Calls `each` with every page that overlaps `range`, in any order.
    fn gather(
        &self,
        space: Space,
        range: VirtRange,
        memory: &impl Memory,
        each: &mut impl FnMut(Found),
    );

    /// Whether [`Pages::gather`] reports a page several times, once for each of its entries.
    fn repeats(&self) -> bool {
        false
    }

    /// Returns `found`, a page that [`Pages::gather`] has reported, with the usage bits of all of
    /// its entries combined.
    fn with_all_usage(&self, _space: Space, found: Found, _memory: &impl Memory) -> Found {
        found
    }

    /// An upper bound of the number of frames that the removal of `pages` pages of the space frees.
    fn frees_max(&self, space: Space, pages: usize) -> usize;

    /// An upper bound of the number of frames that [`Pages::close`] frees for the space, which must
    /// exist.
    fn frames_of(&self, space: Space, memory: &impl Memory) -> usize;

    /// Maps the pages of `run`: all of them or, after an error, none. The table supports their size
    /// and frames, and no page of that size is mapped at their addresses. Nodes that move are added
    /// to `flush`, which an error leaves unchanged.
    fn insert(
        &mut self,
        space: Space,
        run: &Run<'_>,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) -> Result<(), Error>;

    /// Replaces the pages `before`, which are mapped, by the pages `after`, which have other sizes and the
    /// same frames. Nothing changes if no frame is left. Returns the last entries of `before`, in order.
    ///
    /// A walk finds the old or the new page at every moment. Usage bits that a walk sets in the
    /// meantime are in the returned entries or in the new entries.
    fn replace(
        &mut self,
        space: Space,
        before: &[Page],
        after: &[Translation],
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) -> Result<Vec<Mapping>, Error> {
        let mut gone = Vec::new();
        gone.try_reserve_exact(before.len())?;
        if let Some(run) = Run::listed(after) {
            self.insert(space, &run, memory, frames, flush)?;
        }
        let width = self.width();
        gone.extend(before.iter().map(|&page| {
            let last = self.remove(space, page, memory, flush);
            width.mapping(last, page)
        }));
        Ok(gone)
    }

    /// Unmaps one page, which must be mapped, and returns its last entry. The entries of other
    /// pages do not move. A page of another size may be mapped at these addresses at the same time.
    fn remove(
        &mut self,
        space: Space,
        page: Page,
        memory: &mut impl Memory,
        flush: &mut Flush,
    ) -> Pte;

    /// Replaces all entries of a page, as [`exchange`] does for one entry.
    fn exchange(
        &self,
        _space: Space,
        found: Found,
        memory: &mut impl Memory,
        new: impl Fn(Pte) -> Option<Pte>,
    ) -> Option<Pte> {
        exchange(self.width(), found, memory, new)
    }

    /// Writes the note of a page beside all of its entries.
    fn write_note(&self, _space: Space, found: &Found, note: u32, memory: &mut impl Memory) {
        write_note(self, found, note, memory);
    }

    /// See [`crate::PageTable::walk`].
    fn look_up(
        &self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault>;

    /// The memory that one space alone takes.
    fn taken_by(&self, own: &Self::Own) -> Footprint;

    /// The memory that all spaces together take.
    fn taken_by_all(&self) -> Footprint {
        Footprint::default()
    }
}

/// Writes the kernel's `note` beside the entry `found`, if the table has room for notes.
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

/// The last step of a walk, with the entry that it has found and read: checks the rights and, if
/// walks do so, sets the usage bits by one more reference.
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
            // The page was removed after the walk found it, so no entry is left in which the access
            // could be recorded.
            return Err(Fault::NotMapped { level: 1 });
        }
        let bytes = if flags_only { 1 } else { width.bytes() };
        each(Reference { addr: at, bytes, write: true, level: 1, leads: Leads::Nowhere });
    }
    Ok(translation)
}

/// The reference of a walk that reads `bytes` bytes at `addr`, in a table without levels.
#[inline]
pub(crate) const fn read_of(addr: PhysAddr, bytes: u8) -> Reference {
    Reference { addr, bytes, write: false, level: 1, leads: Leads::Nowhere }
}

/// Replaces an entry by the value that `new` returns for it, and retries if a walker sets bits in
/// between. Returns the old entry, or `None` if `new` returned `None`.
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
