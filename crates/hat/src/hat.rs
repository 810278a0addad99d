use alloc::{boxed::Box, vec::Vec};
use core::fmt;

use addr::{PageSize, PhysAddr, Rights, VirtRange};
use pagetable::{Error, Flush, Mapping, Mounted, Resized, Space, Translation, Usage};

use crate::{
    mappings::{Mapped, Mappings},
    platform::{Platform, Step},
};

/// An address space as the memory manager names it.
///
/// Its number is used again after [`Hat::destroy`]; holding one does not prove that the space
/// still exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HatSpace(pub u32);

/// The HAT layer over one page table, which holds all spaces: `T` is a [`Mounted`] table, or any
/// of them, `dyn Mounted`, where it is chosen when the program runs.
pub struct Hat<T: Mounted + ?Sized = dyn Mounted> {
    spaces: Vec<Option<Space>>,
    mappings: Mappings,
    sizes: Box<[PageSize]>,
    table: T,
}

/// Why translations were not loaded. Those there were before are as they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// No memory is left for a table. The pages can be loaded again later: nothing is lost.
    NoTableMemory,
    /// The page table cannot hold these pages, or something is mapped there.
    Table(Error),
    /// The space does not exist.
    NoSpace(HatSpace),
}

impl From<Error> for LoadError {
    fn from(error: Error) -> LoadError {
        match error {
            Error::OutOfFrames(_) => LoadError::NoTableMemory,
            other => LoadError::Table(other),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::NoTableMemory => f.write_str("no memory is left for a page table"),
            LoadError::Table(error) => error.fmt(f),
            LoadError::NoSpace(space) => write!(f, "there is no space {}", space.0),
        }
    }
}

impl core::error::Error for LoadError {}

impl<T: Mounted> Hat<T> {
    /// The layer over a table that has no spaces yet.
    pub fn new(table: T) -> Hat<T> {
        let sizes: Box<[PageSize]> = table.page_sizes().into();
        let base = sizes.first().copied().unwrap_or(PageSize::SIZE_4K);
        Hat { spaces: Vec::new(), mappings: Mappings::new(base), sizes, table }
    }
}

impl<T: Mounted + ?Sized> Hat<T> {
    /// The table, for walks and for looking at.
    pub const fn table(&self) -> &T {
        &self.table
    }

    /// The table, for walks, which may set bits of entries. Whoever maps or unmaps here breaks
    /// the mapping lists.
    pub const fn table_mut(&mut self) -> &mut T {
        &mut self.table
    }

    /// The space in the page table: what a processor's base register holds.
    pub fn space(&self, space: HatSpace) -> Option<Space> {
        *self.spaces.get(space.0 as usize)?
    }

    /// Mappings of all frames in all spaces.
    pub const fn mappings(&self) -> u64 {
        self.mappings.count()
    }

    /// A new, empty space.
    pub fn create(&mut self, platform: &mut impl Platform) -> Result<HatSpace, LoadError> {
        let space = self.table.create(platform.frames())?;
        let unused = self.spaces.iter().position(Option::is_none);
        let number = unused.unwrap_or_else(|| {
            self.spaces.push(None);
            self.spaces.len() - 1
        });
        self.spaces[number] = Some(space);
        Ok(HatSpace(number as u32))
    }

    /// Ends a space and all its mappings; the mapped frames stay their owner's.
    pub fn destroy(&mut self, space: HatSpace, platform: &mut impl Platform) {
        let Some(inner) = self.spaces.get_mut(space.0 as usize).and_then(Option::take) else {
            return;
        };
        let (mappings, mut removed) = (&mut self.mappings, 0);
        self.table.visit(inner, VirtRange::ALL, &mut |mapping| {
            mappings.remove(mapping.translation.frame, mapped(space, &mapping));
            removed += 1;
        });
        platform.work(Step::Mapping, removed);
        // A space that was created can be destroyed.
        if let Ok(flush) = self.table.destroy(inner) {
            finish(alloc::vec![(space, flush)], platform);
        }
    }

    /// Maps `count` pages to adjacent frames, the first as `first` says (K94 operation 1).
    ///
    /// Nothing may be mapped there; the memory manager unloads first what it replaces.
    pub fn load(
        &mut self,
        space: HatSpace,
        first: Translation,
        count: u64,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        let inner = self.space(space).ok_or(LoadError::NoSpace(space))?;
        let flush = self.table.map(inner, first, count, platform.frames())?;
        let bytes = first.page.size().bytes();
        for number in 0..count {
            let page = first.page.start().wrapping_add(number * bytes).page(first.page.size());
            let frame = PhysAddr::new(first.frame.get() + number * bytes);
            self.mappings.insert(frame, Mapped { space: space.0, page });
        }
        platform.work(Step::TableWrite, count);
        platform.work(Step::Mapping, count);
        finish(alloc::vec![(space, flush)], platform);
        Ok(())
    }

    /// Removes every mapping of these frames from all spaces (K94 operation 2), with one
    /// shootdown for all. `each` gets the pages as they were.
    ///
    /// A page that is larger than the frames it is asked for goes whole.
    pub fn unload_frames(
        &mut self,
        frames: &[(PhysAddr, PageSize)],
        each: &mut dyn FnMut(HatSpace, Mapping),
        platform: &mut impl Platform,
    ) {
        let mut flushes = Vec::new();
        for found in self.mapped_at(frames) {
            let space = HatSpace(found.space);
            let Some(inner) = self.space(space) else { continue };
            let range = VirtRange::of_page(found.page);
            let mappings = &mut self.mappings;
            let flush = self.table.unmap(inner, range, &mut |mapping| {
                mappings.remove(mapping.translation.frame, mapped(space, &mapping));
                each(space, mapping);
            });
            // The list names whole pages that are mapped.
            if let Ok(flush) = flush {
                gather(&mut flushes, space, flush);
            }
            platform.work(Step::TableWrite, 1);
            platform.work(Step::Mapping, 1);
        }
        finish(flushes, platform);
    }

    /// Removes every mapping in `range` from one space (K94 operation 3). `each` gets the pages
    /// as they were.
    ///
    /// A range that ends inside a larger page is refused: [`Hat::resize`] it first.
    pub fn unload(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        each: &mut dyn FnMut(Mapping),
        platform: &mut impl Platform,
    ) -> Result<(), Error> {
        let Some(inner) = self.space(space) else { return Ok(()) };
        let (mappings, mut pages) = (&mut self.mappings, 0);
        let flush = self.table.unmap(inner, range, &mut |mapping| {
            mappings.remove(mapping.translation.frame, mapped(space, &mapping));
            pages += 1;
            each(mapping);
        })?;
        platform.work(Step::TableWrite, pages);
        platform.work(Step::Mapping, pages);
        finish(alloc::vec![(space, flush)], platform);
        Ok(())
    }

    /// Gives every mapping in `range` these rights (K94 operation 4).
    pub fn protect(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        rights: Rights,
        platform: &mut impl Platform,
    ) -> Result<(), Error> {
        let Some(inner) = self.space(space) else { return Ok(()) };
        let mut pages = 0;
        let flush = self.table.protect(inner, range, rights, &mut |_| pages += 1)?;
        platform.work(Step::TableWrite, pages);
        finish(alloc::vec![(space, flush)], platform);
        Ok(())
    }

    /// What was done to a frame through any of its mappings since the bits were last cleared, and
    /// clears those that `clear` names (K94 operation 5).
    pub fn usage(
        &mut self,
        frame: PhysAddr,
        size: PageSize,
        clear: Usage,
        platform: &mut impl Platform,
    ) -> Usage {
        let mut usage = Usage::default();
        let mut flushes = Vec::new();
        for found in self.mapped_at(&[(frame, size)]) {
            let space = HatSpace(found.space);
            let Some(inner) = self.space(space) else { continue };
            platform.work(Step::TableRead, 1);
            let Some(mapping) = self.table.query(inner, found.page.start()) else { continue };
            usage.referenced |= mapping.usage.referenced;
            usage.dirty |= mapping.usage.dirty;
            let range = VirtRange::of_page(found.page);
            if (clear.referenced && mapping.usage.referenced)
                || (clear.dirty && mapping.usage.dirty)
            {
                platform.work(Step::TableWrite, 1);
                if let Ok(flush) = self.table.clear_usage(inner, range, clear, &mut |_| ()) {
                    gather(&mut flushes, space, flush);
                }
            }
        }
        finish(flushes, platform);
        usage
    }

    /// Maps what is mapped in `range` by pages of the size `to`, to the same frames: a downgrade
    /// or an upgrade (G98 sections 6.7 and 6.8).
    ///
    /// Both ends of the range are multiples of `to` and of the pages that are mapped there. For
    /// larger pages than there are now, each must be full, with adjacent and aligned frames and
    /// equal rights: else this is refused, and nothing has changed. Where no memory is left for a
    /// table, the pages are gone from the hardware and come back by minor faults.
    pub fn resize(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        to: PageSize,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        let inner = self.space(space).ok_or(LoadError::NoSpace(space))?;
        let mut before = Vec::new();
        self.table.visit(inner, range, &mut |mapping| before.push(mapping));
        let resized = self.table.resize(inner, range, to, platform.frames());
        let Resized { flush, mapped: after, lost } = resized.map_err(LoadError::Table)?;
        for mapping in &before {
            self.mappings.remove(mapping.translation.frame, mapped(space, mapping));
        }
        for mapping in &after {
            self.mappings.insert(mapping.translation.frame, mapped(space, mapping));
        }
        let changed = before.len() as u64 + after.len() as u64;
        platform.work(Step::TableWrite, changed);
        platform.work(Step::Mapping, changed);
        finish(alloc::vec![(space, flush)], platform);
        if lost.is_empty() { Ok(()) } else { Err(LoadError::NoTableMemory) }
    }

    /// Gives the space `to` the mappings that `from` has in `range`, both without the right to
    /// write: for a fork whose pages are copied on write.
    ///
    /// Where table memory runs out, `to` has only some of them and faults for the others.
    pub fn duplicate(
        &mut self,
        from: HatSpace,
        to: HatSpace,
        range: VirtRange,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        let inner = self.space(from).ok_or(LoadError::NoSpace(from))?;
        let mut shared = Vec::new();
        self.table.visit(inner, range, &mut |mapping| shared.push(mapping.translation));
        platform.work(Step::TableRead, shared.len() as u64);
        let mut flushes = Vec::new();
        for translation in &shared {
            let rights = without_write(translation.rights);
            if rights != translation.rights {
                let range = VirtRange::of_page(translation.page);
                let flush = self.table.protect(inner, range, rights, &mut |_| ());
                gather(&mut flushes, from, flush.map_err(LoadError::Table)?);
                platform.work(Step::TableWrite, 1);
            }
        }
        finish(flushes, platform);
        for translation in shared {
            let rights = without_write(translation.rights);
            self.load(to, Translation { rights, ..translation }, 1, platform)?;
        }
        Ok(())
    }

    /// Gives `each` every page that maps one of these frames, in any space.
    pub fn each_mapping(
        &self,
        frame: PhysAddr,
        size: PageSize,
        each: &mut dyn FnMut(HatSpace, Mapping),
    ) {
        for found in self.mapped_at(&[(frame, size)]) {
            let space = HatSpace(found.space);
            let Some(inner) = self.space(space) else { continue };
            if let Some(mapping) = self.table.query(inner, found.page.start()) {
                each(space, mapping);
            }
        }
    }

    /// Compares the mapping lists with the page table, both ways. An error says what differs.
    pub fn check(&self) -> Result<(), &'static str> {
        let mut pages: u64 = 0;
        for inner in self.spaces.iter().flatten() {
            self.table.visit(*inner, VirtRange::ALL, &mut |_| pages += 1);
        }
        if pages != self.mappings.count() {
            return Err("there are not as many mapping nodes as mapped pages");
        }
        let mut wrong = false;
        self.mappings.all(&mut |frame, found| {
            let inner = self.space(HatSpace(found.space));
            let there = inner.and_then(|inner| self.table.query(inner, found.page.start()));
            wrong |= !there.is_some_and(|mapping| {
                mapping.translation.page == found.page && mapping.translation.frame == frame
            });
        });
        if wrong { Err("a mapping node names a page that is not mapped so") } else { Ok(()) }
    }

    fn mapped_at(&self, frames: &[(PhysAddr, PageSize)]) -> Vec<Mapped> {
        let mut found = Vec::new();
        for &(frame, size) in frames {
            self.mappings.of(frame, size, &self.sizes, &mut |mapped| found.push(mapped));
        }
        // A large page is found once for each of its frames that was asked for.
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn mapped(space: HatSpace, mapping: &Mapping) -> Mapped {
    Mapped { space: space.0, page: mapping.translation.page }
}

fn without_write(rights: Rights) -> Rights {
    Rights::from_bits(rights.bits() & !Rights::WRITE.bits())
}

/// Adds a token to those of the same space.
fn gather(flushes: &mut Vec<(HatSpace, Flush)>, space: HatSpace, flush: Flush) {
    match flushes.iter_mut().find(|(of, _)| *of == space) {
        Some((_, gathered)) => gathered.merge(flush),
        None => flushes.push((space, flush)),
    }
}

/// Has the processors forget, then frees what hardware could still have used.
fn finish(flushes: Vec<(HatSpace, Flush)>, platform: &mut impl Platform) {
    if flushes.iter().any(|(_, flush)| !flush.is_empty()) {
        platform.work(Step::Shootdown, 1);
        platform.shoot(&flushes);
    }
    for (_, flush) in flushes {
        flush.done(platform.frames());
    }
}
