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
//! Three structures of the literature are this one in different shapes: the *software TLB*
//! (Bala, Kaashoek, Weihl 1994; E99 §2.4), direct-mapped with pairs; the *TSB* of SPARC,
//! direct-mapped with single pages; and the *hashed table of the PowerPC*, two buckets of eight
//! for each page, of which the kernel keeps the rest elsewhere. All spaces share the array; an
//! entry's tag has a number that stands for its space (`tags`).
//!
//! A superpage is entered once for each of the pages or pairs that is asked for; `size` is its
//! place among the page sizes of the table behind. What the OS changes there is thrown out
//! here: nothing stale is found.

mod shape;
mod tags;

use addr::{Frames, Kind, Memory, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::pte::{Pte, Width};
use crate::{
    Error, Fault, Flush, Footprint, Geometry, Mapping, PageTable, Reference, Space, Translation,
    Unfit, Usage,
};

pub use shape::CacheShape;
use shape::{ENTRY_BYTES, Layout, pte_at, ptes_of};
use tags::Tags;

/// References to the cache are of this level, below those of any table.
const LEVEL: u8 = 0;
const INVALID: u64 = 0;

/// A page table `T` behind a cache of its translations.
///
/// A walk that hits has references of level 0 alone; after those of a miss come the walk of the
/// table behind and the writes of the new entry.
#[derive(Debug)]
pub struct Cached<T> {
    behind: T,
    shape: CacheShape,
    layout: Layout,
    base: Option<PhysAddr>,
    spaces: u64,
    tags: Tags,
}

/// What is looked up.
#[derive(Clone, Copy)]
struct Key {
    base: PhysAddr,
    space: Space,
    /// The space's tag.
    id: u64,
    addr: VirtAddr,
}

/// A page found in the cache.
struct Hit {
    pte: Pte,
    page: Page,
}

impl<T: PageTable> Cached<T> {
    /// A cache of that shape in front of `behind`, which has no spaces yet.
    pub fn new(shape: CacheShape, behind: T) -> Result<Cached<T>, Geometry> {
        let layout = Layout::new(&shape, behind.page_sizes())?;
        Ok(Cached { behind, shape, layout, base: None, spaces: 0, tags: Tags::default() })
    }

    /// The table behind the cache.
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

    /// Looks into the one or two buckets for `key`.
    #[inline]
    fn probe(
        &self,
        key: Key,
        memory: &impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Option<Hit> {
        let Key { base, addr, id, .. } = key;
        let width = self.width();
        for bucket in self.layout.buckets(base, addr, id) {
            for place in self.layout.places(bucket) {
                let tag = memory.read_u64(place);
                each(reference(place, if self.shape.pairs { 8 } else { 16 }, false));
                if !self.layout.matches(tag, addr, id) {
                    continue;
                }
                let size = self.size(tag);
                let at = pte_at(place, width, size, self.layout.unit, addr);
                let pte = width.read(at, memory);
                if self.shape.pairs {
                    each(reference(at, width.bytes(), false));
                }
                return pte.is_mapped().then(|| Hit { pte, page: addr.page(size) });
            }
        }
        None
    }

    /// Enters what a walk of the table behind has found.
    fn fill(
        &self,
        key: Key,
        found: Translation,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) {
        let Key { space, addr, id, .. } = key;
        let width = self.width();
        let size = found.page.size();
        let code = self.behind.page_sizes().iter().position(|&other| other == size);
        let end = found.frame.get().saturating_add(size.bytes());
        let Some(code) = code.filter(|_| end <= width.physical_end()) else { return };
        let (place, kept) = self.place(key, code as u64, memory);
        if !kept {
            memory.write_u64(ptes_of(place), 0);
            self.fill_other(place, space, found, memory);
        }
        let usage = Usage { referenced: true, dirty: kind == Kind::Store };
        let pte = width.pte(found.frame, found.rights, found.global).with_usage(usage);
        width.write(pte_at(place, width, size, self.layout.unit, addr), pte, memory);
        memory.write_u64(place, self.layout.tag(addr, code as u64, id));
        each(reference(ptes_of(place), 8, true));
        each(reference(place, 8, true));
    }

    /// Brings the other page of a pair along: the table behind has it in the same place.
    fn fill_other(
        &self,
        place: PhysAddr,
        space: Space,
        found: Translation,
        memory: &mut impl Memory,
    ) {
        let (size, unit, width) = (found.page.size(), self.layout.unit, self.width());
        if self.shape.keeps_usage || size >= unit {
            return;
        }
        let other = VirtAddr::new(found.page.start().get() ^ size.bytes());
        let mapping = self.behind.query(space, other, memory);
        if let Some(Mapping { translation, .. }) = mapping
            && translation.page == other.page(size)
            && translation.frame.get() < width.physical_end()
        {
            let pte = width.pte(translation.frame, translation.rights, translation.global);
            width.write(pte_at(place, width, size, unit, other), pte, memory);
        }
    }

    /// The place for a new page: where its tag is already (and what else is there stays), else
    /// a free one, else somebody's.
    fn place(&self, key: Key, code: u64, memory: &impl Memory) -> (PhysAddr, bool) {
        let Key { base, addr, id, .. } = key;
        let (mut free, mut first) = (None, base);
        for (n, bucket) in self.layout.buckets(base, addr, id).enumerate() {
            if n == 0 {
                first = bucket;
            }
            for place in self.layout.places(bucket) {
                let tag = memory.read_u64(place);
                if self.layout.matches(tag, addr, id) {
                    return (place, self.layout.code(tag) == code);
                }
                if tag == INVALID {
                    free = free.or(Some(place));
                }
            }
        }
        (free.unwrap_or_else(|| self.layout.victim(first, addr)), false)
    }

    /// Throws out what the cache holds of `range`.
    fn forget(&self, space: Space, range: VirtRange, memory: &mut impl Memory) {
        let (Some(base), Some(id)) = (self.base, self.tags.of(space)) else { return };
        let unit = self.layout.unit;
        let units = (range.last().get() >> unit.shift()) - (range.start().get() >> unit.shift());
        if units >= self.layout.entries {
            forget_all(&self.layout, base, &|other| other == id, memory);
            return;
        }
        for addr in range.pages(unit).map(Page::start) {
            for bucket in self.layout.buckets(base, addr, id) {
                for place in self.layout.places(bucket) {
                    let tag = memory.read_u64(place);
                    if self.layout.matches(tag, addr, id) {
                        self.forget_entry(place, tag, range, memory);
                    }
                }
            }
        }
    }

    /// Throws out the pages of an entry that lie in `range`.
    fn forget_entry(&self, place: PhysAddr, tag: u64, range: VirtRange, memory: &mut impl Memory) {
        let (unit, size) = (self.layout.unit, self.size(tag));
        if size < unit {
            let pair = VirtRange::of_page(VirtAddr::new(tag).page(unit));
            for page in pair.intersection(range).into_iter().flat_map(|part| part.pages(size)) {
                let at = pte_at(place, self.width(), size, unit, page.start());
                self.width().write(at, Pte::EMPTY, memory);
            }
            if memory.read_u64(ptes_of(place)) != 0 {
                return;
            }
        }
        memory.write_u64(place, INVALID);
    }
}

/// Throws out all that the cache at `base` holds of the spaces with these tags.
fn forget_all(
    layout: &Layout,
    base: PhysAddr,
    gone: &dyn Fn(u64) -> bool,
    memory: &mut impl Memory,
) {
    for n in 0..layout.entries {
        let place = base.wrapping_add(n * ENTRY_BYTES);
        if layout.id(memory.read_u64(place)).is_some_and(gone) {
            memory.write_u64(place, INVALID);
        }
    }
}

/// The smallest range with all pages that it was told of.
#[derive(Default)]
struct Changed(Option<VirtRange>);

impl Changed {
    fn add(&mut self, mapping: &Mapping) {
        let page = VirtRange::of_page(mapping.translation.page);
        self.0 = Some(self.0.map_or(page, |range| range.hull(page)));
    }
}

#[inline]
const fn reference(addr: PhysAddr, bytes: u8, write: bool) -> Reference {
    Reference { addr, bytes, write, level: LEVEL, next: None }
}

impl<T: PageTable> PageTable for Cached<T> {
    fn page_sizes(&self) -> &[PageSize] {
        self.behind.page_sizes()
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
        match self.behind.create(memory, frames) {
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
            if self.spaces == 0 {
                flush.add_table(base, self.frame_size());
                self.base = None;
                self.tags = Tags::default();
            } else {
                self.tags.retire(space);
            }
        }
        Ok(flush)
    }

    fn map(
        &mut self,
        space: Space,
        first: Translation,
        count: u64,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(), Error> {
        self.behind.map(space, first, count, memory, frames)
    }

    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error> {
        let mut changed = Changed::default();
        let flush = self.behind.unmap(space, range, memory, &mut |mapping| {
            changed.add(&mapping);
            each(mapping);
        })?;
        if let Some(range) = changed.0 {
            self.forget(space, range, memory);
        }
        Ok(flush)
    }

    fn protect(
        &mut self,
        space: Space,
        range: VirtRange,
        rights: Rights,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error> {
        let mut changed = Changed::default();
        let flush = self.behind.protect(space, range, rights, memory, &mut |mapping| {
            changed.add(&mapping);
            each(mapping);
        })?;
        if let Some(range) = changed.0 {
            self.forget(space, range, memory);
        }
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
        let mut changed = Changed::default();
        let flush = self.behind.clear_usage(space, range, bits, memory, &mut |mapping| {
            changed.add(&mapping);
            each(mapping);
        })?;
        if let Some(range) = changed.0 {
            self.forget(space, range, memory);
        }
        Ok(flush)
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
        self.fill(key, found, kind, memory, each);
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
