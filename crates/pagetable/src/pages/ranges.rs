//! Ranges, errors and tokens, implemented over single pages.

use alloc::vec::{self, Vec};

use addr::{Frames, Kind, Memory, Page, PageSize, RangeError, Rights, VirtAddr, VirtRange};

use super::{Found, Pages, Run};
use crate::pte::Pte;
use crate::resize::resized;
use crate::{
    Error, Fault, Flush, Footprint, Mapping, PageTable, Reference, Space, Translation, Unfit, Usage,
};

/// The pages that overlap `range`, by ascending address.
fn sorted<P: Pages>(
    table: &P,
    space: Space,
    range: VirtRange,
    memory: &impl Memory,
) -> Result<Vec<Found>, Error> {
    let (mut found, mut is_short) = (Vec::new(), false);
    table.gather(space, range, memory, &mut |page| {
        is_short = is_short || found.try_reserve(1).is_err();
        if !is_short {
            found.push(page);
        }
    });
    if is_short {
        return Err(Error::NoMemory);
    }
    found.sort_unstable_by_key(|found| found.page);
    if table.repeats() {
        found.dedup_by_key(|found| found.page);
        found.iter_mut().for_each(|found| *found = table.with_all_usage(space, *found, memory));
    }
    Ok(found)
}

/// Finds the page with the lowest address that overlaps `range`, without a list.
fn first_page<P: Pages>(
    table: &P,
    space: Space,
    range: VirtRange,
    memory: &impl Memory,
) -> Option<Found> {
    let mut first: Option<Found> = None;
    table.gather(space, range, memory, &mut |found| {
        if first.is_none_or(|first| found.page < first.page) {
            first = Some(found);
        }
    });
    first.map(|found| table.with_all_usage(space, found, memory))
}

/// The pages of a range, by ascending address. For a range of one base page, the usual case, no
/// list is allocated.
enum Gathered {
    One(Option<Found>),
    Many(vec::IntoIter<Found>),
    /// The remaining part of the range. No memory was left for a list, so each next page is
    /// searched for.
    Sought(Option<VirtRange>),
}

impl Gathered {
    fn of<P: Pages>(table: &P, space: Space, range: VirtRange, memory: &impl Memory) -> Gathered {
        match sorted(table, space, range, memory) {
            Ok(found) => Gathered::Many(found.into_iter()),
            Err(_) => Gathered::Sought(Some(range)),
        }
    }

    /// Returns the next page. The caller may have removed the previous pages.
    #[inline]
    fn next<P: Pages>(&mut self, table: &P, space: Space, memory: &impl Memory) -> Option<Found> {
        match self {
            Gathered::One(found) => found.take(),
            Gathered::Many(found) => found.next(),
            Gathered::Sought(rest) => {
                let range = (*rest)?;
                let found = first_page(table, space, range, memory)?;
                let next = VirtRange::of_page(found.page).last().checked_add(1);
                let next = next.filter(|next| *next <= range.last());
                *rest = next.and_then(|next| {
                    VirtRange::new(next, range.last().get() - next.get() + 1).ok()
                });
                Some(found)
            }
        }
    }

    /// An upper bound of the number of remaining pages; `usize::MAX` if it is not known.
    fn count(&self) -> usize {
        match self {
            Gathered::One(_) => 1,
            Gathered::Many(found) => found.len(),
            Gathered::Sought(_) => usize::MAX,
        }
    }
}

/// The pages in `range`, neither end of which may lie inside a page.
fn whole<P: Pages>(
    table: &P,
    space: Space,
    range: VirtRange,
    memory: &impl Memory,
) -> Result<Gathered, Error> {
    table.spaces().check(space)?;
    let base = table.sizes()[0];
    if range.bytes() == base.bytes() && range.start().is_aligned(base) {
        let found = table.find(space, range.start(), memory);
        return match found.filter(|found| found.page.size() != base) {
            Some(Found { page, .. }) => Err(Error::Splits { page }),
            None => Ok(Gathered::One(found)),
        };
    }
    for boundary in [range.start(), range.last().wrapping_add(1)] {
        if !boundary.is_aligned(base) {
            return Err(Error::Misaligned { addr: boundary.get(), size: base });
        }
    }
    let found = Gathered::of(table, space, range, memory);
    let ends = match &found {
        Gathered::Many(found) => {
            [found.as_slice().first(), found.as_slice().last()].map(Option::<&Found>::copied)
        }
        Gathered::One(_) | Gathered::Sought(_) => {
            [range.start(), range.last()].map(|end| table.find(space, end, memory))
        }
    };
    for end in ends.into_iter().flatten() {
        if !range.covers(VirtRange::of_page(end.page)) {
            return Err(Error::Splits { page: end.page });
        }
    }
    Ok(found)
}

/// Exchanges the entries of those pages in `range` that `new` changes.
fn edit<P: Pages>(
    table: &P,
    space: Space,
    range: VirtRange,
    memory: &mut impl Memory,
    new: impl Fn(Pte) -> Pte,
    mut report: impl FnMut(&mut Flush, Mapping),
) -> Result<Flush, Error> {
    let width = table.width();
    let mut flush = Flush::nothing(space);
    let mut pages = whole(table, space, range, memory)?;
    while let Some(found) = pages.next(table, space, memory) {
        let changed = |pte: Pte| Some(new(pte)).filter(|&new| pte.is_mapped() && new != pte);
        if let Some(before) = table.exchange(space, found, memory, changed) {
            report(&mut flush, width.mapping(before, found.page));
        }
    }
    Ok(flush)
}

/// Checks that there is at least one page, that pages and frames are aligned, and that the table
/// supports them. Returns the range of the pages.
fn check_run<P: Pages>(table: &P, first: Translation, count: u64) -> Result<VirtRange, Error> {
    let size = first.page.size();
    if !table.sizes().contains(&size) {
        return Err(Unfit::PageSize(size).into());
    }
    if !first.frame.is_aligned(size) {
        return Err(Error::Misaligned { addr: first.frame.get(), size });
    }
    Unfit::unless_normal(first.attributes)?;
    let bytes = count.checked_mul(size.bytes()).ok_or(RangeError::Wraps)?;
    let range = VirtRange::new(first.page.start(), bytes)?;
    let end = first.frame.get().checked_add(bytes);
    if end.is_none_or(|end| end > table.width().physical_end()) {
        return Err(Unfit::Physical(first.frame).into());
    }
    Ok(range)
}

/// Whether `mapping` ends before the start of `page`.
fn ends_before(mapping: &Mapping, page: Page) -> bool {
    VirtRange::of_page(mapping.translation.page).last() < page.start()
}

/// The mapping of a page with its note.
fn noted<P: Pages>(table: &P, found: &Found, memory: &impl Memory) -> Mapping {
    let note = table.note_at(found).map_or(0, |at| memory.read_u32(at));
    Mapping { note, ..table.width().mapping(found.pte, found.page) }
}

impl<P: Pages> PageTable for P {
    fn page_sizes(&self) -> &[PageSize] {
        self.sizes()
    }

    fn create(
        &mut self,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Space, Error> {
        self.spaces_mut().prepare()?;
        let (root, own) = self.open(memory, frames)?;
        Ok(self.spaces_mut().create(root, own))
    }

    fn destroy(&mut self, space: Space, memory: &mut impl Memory) -> Result<Flush, Error> {
        self.spaces().check(space)?;
        let mut flush = Flush::whole(space, false);
        flush.try_reserve(self.frames_of(space, memory))?;
        let (global, own) = self.spaces_mut().destroy(space)?;
        flush.merge(Flush::whole(space, global));
        self.close(space, own, memory, &mut flush);
        Ok(flush)
    }

    fn map_noted(
        &mut self,
        space: Space,
        (first, count): (Translation, u64),
        notes: &[u32],
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Flush, Error> {
        self.spaces().check(space)?;
        let range = check_run(self, first, count)?;
        let in_the_way = if count == 1 && first.page.size() == self.sizes()[0] {
            self.find(space, first.page.start(), memory)
        } else {
            first_page(self, space, range, memory)
        };
        if let Some(found) = in_the_way {
            return Err(Error::AlreadyMapped { page: found.page });
        }
        let run = Run::new(first, count, notes);
        let mut flush = Flush::nothing(space);
        self.insert(space, &run, memory, frames, &mut flush)?;
        if first.global {
            self.spaces_mut().set_global(space);
        }
        Ok(flush)
    }

    fn has_notes(&self) -> bool {
        self.keeps_notes()
    }

    fn set_note(
        &mut self,
        space: Space,
        addr: VirtAddr,
        note: u32,
        memory: &mut impl Memory,
    ) -> Result<(), Error> {
        self.spaces().check(space)?;
        let found = self.find(space, addr, memory).ok_or(Error::NotMapped { addr })?;
        self.write_note(space, &found, note, memory);
        Ok(())
    }

    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error> {
        let mut flush = Flush::nothing(space);
        let mut pages = whole(self, space, range, memory)?;
        flush.try_reserve(self.frees_max(space, pages.count()))?;
        while let Some(found) = pages.next(self, space, memory) {
            // The note is read before the entry can be reused for another page.
            let note = noted(self, &found, memory).note;
            let pte = self.remove(space, found.page, memory, &mut flush);
            flush.add(found.page, pte.global());
            each(Mapping { note, ..self.width().mapping(pte, found.page) });
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
        let new = |pte: Pte| pte.with_rights(rights);
        edit(self, space, range, memory, new, |flush, mapping| {
            let Translation { page, global, rights: before, .. } = mapping.translation;
            if !rights.contains(before) {
                flush.add(page, global);
            }
            each(mapping);
        })
    }

    fn protect_page(
        &mut self,
        space: Space,
        page: Page,
        rights: &mut impl FnMut(&Mapping) -> Option<Rights>,
        memory: &mut impl Memory,
    ) -> Result<Flush, Error> {
        self.spaces().check(space)?;
        let mut flush = Flush::nothing(space);
        let found = self.find(space, page.start(), memory).filter(|found| found.page == page);
        let Some(found) = found else { return Ok(flush) };
        let before = self.width().mapping(found.pte, page);
        let Some(rights) = rights(&before) else { return Ok(flush) };
        let changed =
            |pte: Pte| Some(pte.with_rights(rights)).filter(|&new| pte.is_mapped() && new != pte);
        if self.exchange(space, found, memory, changed).is_some()
            && !rights.contains(before.translation.rights)
        {
            flush.add(page, before.translation.global);
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
        let new = |pte: Pte| pte.without_usage(bits);
        edit(self, space, range, memory, new, |flush, mapping| {
            flush.add(mapping.translation.page, mapping.translation.global);
            each(mapping);
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
        self.spaces().check(space)?;
        if !self.sizes().contains(&to) {
            return Err(Unfit::PageSize(to).into());
        }
        let found = sorted(self, space, range, memory)?;
        let mut before = Vec::new();
        before.try_reserve_exact(found.len())?;
        before.extend(found.iter().map(|found| noted(self, found, memory)));
        let mut mapped = resized(&before, range, to)?;
        let is_new = |page: Page| {
            before.binary_search_by_key(&page, |before| before.translation.page).is_err()
        };
        let pages = before.iter().map(|mapping| mapping.translation.page);
        let (mut old, mut new) = (Vec::<Page>::new(), Vec::<Translation>::new());
        old.try_reserve_exact(before.len())?;
        old.extend(pages.filter(|page| page.size() != to));
        new.try_reserve_exact(mapped.len())?;
        new.extend(mapped.iter().map(|new| new.translation).filter(|new| is_new(new.page)));
        let mut flush = Flush::nothing(space);
        flush.try_reserve(self.frees_max(space, usize::MAX))?;
        for gone in self.replace(space, &old, &new, memory, frames, &mut flush)? {
            let Translation { page, global, .. } = gone.translation;
            flush.add(page, global);
            let parts = mapped.partition_point(|mapping| ends_before(mapping, page));
            let parts = &mut mapped[parts..];
            let last = VirtRange::of_page(page).last();
            for part in parts.iter_mut().take_while(|part| part.translation.page.start() <= last) {
                part.usage.referenced |= gone.usage.referenced;
                part.usage.dirty |= gone.usage.dirty;
            }
        }
        for &Mapping { translation: Translation { page, .. }, usage, .. } in &mapped {
            if usage != Usage::default()
                && is_new(page)
                && let Some(found) = self.find(space, page.start(), memory)
            {
                let used = |pte: Pte| pte.is_mapped().then(|| pte.with_usage(usage));
                self.exchange(space, found, memory, used);
            }
        }
        if !flush.is_empty() {
            forget(&flush, memory);
        }
        flush.done(frames);
        Ok(mapped)
    }

    fn set_usage(
        &mut self,
        space: Space,
        addr: VirtAddr,
        bits: Usage,
        memory: &mut impl Memory,
    ) -> Result<(), Error> {
        self.spaces().check(space)?;
        let found = self.find(space, addr, memory).ok_or(Error::NotMapped { addr })?;
        self.exchange(space, found, memory, |pte| pte.is_mapped().then(|| pte.with_usage(bits)));
        Ok(())
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
        self.look_up(space, addr, kind, memory, each)
    }

    fn query(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Mapping> {
        self.spaces().check(space).ok()?;
        Some(noted(self, &self.find(space, addr, memory)?, memory))
    }

    fn visit(
        &self,
        space: Space,
        range: VirtRange,
        memory: &impl Memory,
        each: &mut impl FnMut(Mapping),
    ) {
        if self.spaces().check(space).is_ok() {
            let mut pages = Gathered::of(self, space, range, memory);
            while let Some(found) = pages.next(self, space, memory) {
                each(noted(self, &found, memory));
            }
        }
    }

    fn footprint(&self) -> Footprint {
        let mut taken = self.taken_by_all();
        taken += self.spaces().owns().map(|own| self.taken_by(own)).sum();
        taken
    }

    fn footprint_of(&self, space: Space) -> Footprint {
        self.spaces().own(space).map(|own| self.taken_by(own)).unwrap_or_default()
    }
}
