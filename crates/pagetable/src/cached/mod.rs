//! Caches of translations in memory, in front of any page table.
//!
//! ```text
//!   va --hash--> bucket                                    the table behind
//!              +------------------+  no tag matches      +------------------+
//!              | tag | PTE (PTE)  | -------------------> |  walk            |
//!              +------------------+ <------------------- |                  |
//!                 |                     fill             +------------------+
//!                 +--> translation                          ^ map, query, ...
//!
//!      63                              12        1     0
//!     +-----------------------------------+----+------+-----+
//!     | address of the page or pair       | id | size |valid|   8 bytes
//!     +-----------------------------------+----+------+-----+
//!     | PTE of the even and of the odd page, or one of 8    |   8 bytes
//!     +-----------------------------------------------------+
//! ```
//!
//! Three structures of the literature have this form; they differ only in parameters. The *software
//! TLB* (Bala, Kaashoek, Weihl 1994; E99 §2.4) is direct-mapped, with pairs of pages. The *TSB* of
//! SPARC is direct-mapped, with single pages. The *hashed table of the PowerPC* has two buckets of
//! eight entries for each page; if both buckets of a page are full, the page is only in a table of
//! the kernel. All spaces share the array: an entry's tag includes a number that stands for its
//! space (`tags`).
//!
//! A superpage is inserted once for each of its base pages (or pairs) that is looked up; `size` is
//! its index among the page sizes of the table behind the cache. When the OS changes the table
//! behind the cache, the operation evicts the changed pages from the cache, so a lookup never finds
//! a stale entry.
//!
//! Processors may not walk the table while it is changed ([`PageTable::walks_beside_changes`]), for
//! two reasons. First, an entry is two words, which a walk that misses writes one after the other.
//! Second, a walk could read a page before the OS changes it, and insert the old page after the OS
//! has evicted the page from the cache.

mod array;
mod shape;
mod tags;

use alloc::vec::Vec;

use addr::{
    Attributes, Frames, Kind, Memory, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange,
};

use crate::pte::{Pte, Width};
use crate::{
    Error, Fault, Flush, Footprint, Geometry, Mapping, PageTable, Reference, Scope, Space,
    Translation, Unfit, Usage,
};

use array::forget_all;
pub use shape::CacheShape;
use shape::Layout;
use tags::Tags;

/// A page table `T` with a cache of its translations in front.
///
/// A walk that hits has only references of level 0. A walk that misses has references of level 0,
/// then those of the walk in the table behind the cache, then the writes of the new entry.
#[derive(Debug)]
pub struct Cached<T> {
    behind: T,
    shape: CacheShape,
    layout: Layout,
    base: Option<PhysAddr>,
    spaces: u64,
    tags: Tags,
}

/// The key of a lookup.
#[derive(Clone, Copy)]
struct Key {
    base: PhysAddr,
    space: Space,
    /// The tag that stands for the space.
    id: u64,
    addr: VirtAddr,
}

/// A page found in the cache.
struct Hit {
    pte: Pte,
    page: Page,
}

/// Pages that were changed, as maximal ranges of adjacent pages, because a list of single pages
/// could be too long.
#[derive(Default)]
struct Changed {
    /// The range that is being extended; a single range allocates no list.
    last: Option<VirtRange>,
    before: Vec<VirtRange>,
}

impl Changed {
    fn add(&mut self, page: VirtRange) {
        let (next, before) = match self.last {
            Some(range) if range.last().checked_add(1) == Some(page.start()) => {
                (range.hull(page), None)
            }
            // If no memory is left for another range, the two ranges become one. It also covers the
            // pages between them, whose cached entries are then dropped without need.
            Some(range) if self.before.try_reserve(1).is_err() => (range.hull(page), None),
            other => (page, other),
        };
        self.before.extend(before);
        self.last = Some(next);
    }

    fn ranges(&self) -> impl Iterator<Item = VirtRange> + '_ {
        self.before.iter().copied().chain(self.last)
    }
}

impl<T: PageTable> Cached<T> {
    /// A cache of the given shape in front of `behind`, which must not have spaces yet.
    pub fn new(shape: CacheShape, behind: T) -> Result<Cached<T>, Geometry> {
        let layout = Layout::new(&shape, behind.page_sizes())?;
        Ok(Cached { behind, shape, layout, base: None, spaces: 0, tags: Tags::default() })
    }

    /// The table behind the cache, which has all mappings.
    pub const fn behind(&self) -> &T {
        &self.behind
    }

    const fn width(&self) -> Width {
        if self.shape.pairs { Width::Narrow } else { Width::Wide }
    }

    fn frame_size(&self) -> PageSize {
        self.layout.table.max(PageSize::SIZE_4K)
    }

    fn size(&self, tag: u64) -> PageSize {
        let sizes = self.behind.page_sizes();
        let code = self.layout.code(tag) as usize;
        sizes.get(code).copied().unwrap_or(sizes[0])
    }

    /// Lets `change` change the table behind the cache, then evicts the changed pages from the
    /// cache.
    fn changing<M: Memory>(
        &mut self,
        space: Space,
        memory: &mut M,
        each: &mut impl FnMut(Mapping),
        change: impl FnOnce(&mut T, &mut M, &mut dyn FnMut(Mapping)) -> Result<Flush, Error>,
    ) -> Result<Flush, Error> {
        let mut changed = Changed::default();
        let flush = change(&mut self.behind, memory, &mut |mapping| {
            changed.add(VirtRange::of_page(mapping.translation.page));
            each(mapping);
        })?;
        self.forget(space, &changed, memory);
        Ok(flush)
    }
}

impl<T: PageTable> PageTable for Cached<T> {
    fn page_sizes(&self) -> &[PageSize] {
        self.behind.page_sizes()
    }

    fn granted(&self, rights: Rights) -> Rights {
        self.behind.granted(rights)
    }

    fn create(
        &mut self,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Space, Error> {
        let max = self.layout.spaces_max();
        if self.spaces >= max {
            return Err(Unfit::Spaces(max).into());
        }
        let size = self.frame_size();
        let base = match self.base {
            Some(base) => base,
            None => frames.allocate(size)?,
        };
        let created = match self.tags.prepare(self.spaces) {
            Ok(()) => self.behind.create(memory, frames),
            Err(error) => Err(error.into()),
        };
        match created {
            Ok(space) => {
                if self.base.is_none() {
                    memory.zero(base, self.layout.table.bytes());
                    self.base = Some(base);
                }
                self.spaces += 1;
                let layout = &self.layout;
                self.tags.assign(space, max, |gone| forget_all(layout, base, gone, memory));
                Ok(space)
            }
            Err(error) => {
                if self.base.is_none() {
                    frames.free(base, size);
                }
                Err(error)
            }
        }
    }

    fn destroy(&mut self, space: Space, memory: &mut impl Memory) -> Result<Flush, Error> {
        let mut flush = self.behind.destroy(space, memory)?;
        self.spaces -= 1;
        if let Some(base) = self.base {
            // If no memory is left for the token, the array is kept for the next space.
            if self.spaces == 0 && flush.try_reserve(1).is_ok() {
                flush.add_table(base, self.frame_size());
                self.base = None;
                self.tags = Tags::default();
            } else {
                self.tags.retire(space);
            }
        }
        Ok(flush)
    }

    fn map_noted(
        &mut self,
        space: Space,
        pages: (Translation, u64),
        notes: &[u32],
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Flush, Error> {
        self.behind.map_noted(space, pages, notes, memory, frames)
    }

    fn has_notes(&self) -> bool {
        self.behind.has_notes()
    }

    fn set_note(
        &mut self,
        space: Space,
        addr: VirtAddr,
        note: u32,
        memory: &mut impl Memory,
    ) -> Result<(), Error> {
        self.behind.set_note(space, addr, note, memory)
    }

    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error> {
        self.changing(space, memory, each, |behind, memory, mut each| {
            behind.unmap(space, range, memory, &mut each)
        })
    }

    fn protect(
        &mut self,
        space: Space,
        range: VirtRange,
        rights: Rights,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error> {
        self.changing(space, memory, each, |behind, memory, mut each| {
            behind.protect(space, range, rights, memory, &mut each)
        })
    }

    fn protect_page(
        &mut self,
        space: Space,
        page: Page,
        rights: &mut impl FnMut(&Mapping) -> Option<Rights>,
        memory: &mut impl Memory,
    ) -> Result<Flush, Error> {
        let mut changed = Changed::default();
        let wanted = &mut |mapping: &Mapping| {
            let wanted = rights(mapping);
            if wanted.is_some_and(|wanted| wanted != mapping.translation.rights) {
                changed.add(VirtRange::of_page(page));
            }
            wanted
        };
        let flush = self.behind.protect_page(space, page, wanted, memory)?;
        self.forget(space, &changed, memory);
        Ok(flush)
    }

    fn clear_usage(
        &mut self,
        space: Space,
        range: VirtRange,
        bits: Usage,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error> {
        self.changing(space, memory, each, |behind, memory, mut each| {
            behind.clear_usage(space, range, bits, memory, &mut each)
        })
    }

    fn resize<M: Memory>(
        &mut self,
        space: Space,
        range: VirtRange,
        to: PageSize,
        memory: &mut M,
        frames: &mut impl Frames,
        forget: &mut impl FnMut(&Flush, &mut M),
    ) -> Result<Vec<Mapping>, Error> {
        let entries = self.entries(space);
        // The old pages are evicted before processors flush them, so that no processor can load
        // them from the cache again.
        let forget = &mut |flush: &Flush, memory: &mut M| {
            if let (Scope::Pages { range, .. }, Some(entries)) = (flush.scope(), &entries) {
                let mut changed = Changed::default();
                changed.add(range);
                entries.forget(&changed, memory);
            }
            forget(flush, memory);
        };
        self.behind.resize(space, range, to, memory, frames, forget)
    }

    fn set_usage(
        &mut self,
        space: Space,
        addr: VirtAddr,
        bits: Usage,
        memory: &mut impl Memory,
    ) -> Result<(), Error> {
        self.behind.set_usage(space, addr, bits, memory)
    }

    #[inline]
    fn walk(
        &self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault> {
        let (Some(base), Some(id)) = (self.base, self.tags.of(space)) else {
            return self.behind.walk(space, addr, kind, memory, each);
        };
        let key = Key { base, space, id, addr };
        if let Some(Hit { pte, page }) = self.probe(key, memory, each) {
            let translation = self.width().translation(pte, page);
            if !translation.rights.allows(kind) {
                return Err(Fault::Denied { translation });
            }
            if kind != Kind::Store || !self.shape.keeps_usage || pte.usage().dirty {
                return Ok(translation);
            }
        }
        let found = self.behind.walk(space, addr, kind, memory, each)?;
        // An entry of the cache has no attributes, so only pages with ordinary attributes are
        // inserted.
        if found.attributes == Attributes::NORMAL {
            self.fill(key, found, kind, memory, each);
        }
        Ok(found)
    }

    fn query(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Mapping> {
        self.behind.query(space, addr, memory)
    }

    fn visit(
        &self,
        space: Space,
        range: VirtRange,
        memory: &impl Memory,
        each: &mut impl FnMut(Mapping),
    ) {
        self.behind.visit(space, range, memory, each);
    }

    fn footprint(&self) -> Footprint {
        let mut taken = self.behind.footprint();
        if self.base.is_some() {
            taken += Footprint {
                table_bytes: self.layout.table.bytes(),
                frame_bytes: self.frame_size().bytes(),
            };
        }
        taken
    }

    fn footprint_of(&self, space: Space) -> Footprint {
        self.behind.footprint_of(space)
    }
}
