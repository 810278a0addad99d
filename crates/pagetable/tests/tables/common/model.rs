use std::collections::BTreeMap;

use addr::{Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Error, Flush, Mapping, Scope, Translation, Usage};

/// One space of the model page table: its pages by first address.
#[derive(Clone, Default, Debug)]
pub(crate) struct Model {
    pages: BTreeMap<u64, Mapping>,
}

impl Model {
    pub(crate) fn mappings(&self) -> impl Iterator<Item = Mapping> + '_ {
        self.pages.values().copied()
    }

    pub(crate) fn at(&self, addr: VirtAddr) -> Option<Mapping> {
        let (_, mapping) = self.pages.range(..=addr.get()).next_back()?;
        VirtRange::of_page(mapping.translation.page).contains(addr).then_some(*mapping)
    }

    /// Maps pages. `notes` has the notes of the first pages; the other pages have the note 0.
    pub(crate) fn map(
        &mut self,
        first: Translation,
        count: u64,
        notes: &[u32],
    ) -> Result<(), Error> {
        let size = first.page.size();
        let page = |n: u64| first.page.start().wrapping_add(n * size.bytes()).page(size);
        let range = VirtRange::new(first.page.start(), count * size.bytes())?;
        if let Some(mapping) = self.overlapping(range).first() {
            return Err(Error::AlreadyMapped { page: mapping.translation.page });
        }
        for n in 0..count {
            let frame = first.frame.wrapping_add(n * size.bytes());
            let translation = Translation { page: page(n), frame, ..first };
            let note = notes.get(n as usize).copied().unwrap_or(0);
            self.put(Mapping { translation, usage: Usage::default(), note });
        }
        Ok(())
    }

    pub(crate) fn unmap(&mut self, range: VirtRange) -> Result<Vec<Mapping>, Error> {
        let gone = self.whole(range)?;
        for mapping in &gone {
            self.pages.remove(&mapping.translation.page.start().get());
        }
        Ok(gone)
    }

    pub(crate) fn protect(
        &mut self,
        range: VirtRange,
        rights: Rights,
    ) -> Result<Vec<Mapping>, Error> {
        let mut changed = self.whole(range)?;
        changed.retain(|mapping| mapping.translation.rights != rights);
        for mapping in &changed {
            let translation = Translation { rights, ..mapping.translation };
            self.put(Mapping { translation, ..*mapping });
        }
        Ok(changed)
    }

    /// Replaces the pages in `range` by pages of the size `to`. Returns the pages that had another
    /// size. `None` if this is impossible, or if the range ends inside a page.
    pub(crate) fn resize(&mut self, range: VirtRange, to: PageSize) -> Option<Vec<Mapping>> {
        let before = self.whole(range).ok()?;
        let bytes = |mapping: &Mapping| mapping.translation.page.size().bytes();
        let mut after: BTreeMap<u64, (Mapping, u64)> = BTreeMap::new();
        for mapping in &before {
            let Translation { page, frame, .. } = mapping.translation;
            for into in (0..page.size().bytes()).step_by(to.bytes() as usize) {
                let at = page.start().wrapping_add(into);
                let offset = at.get() - at.align_down(to).get();
                let start = frame.get().checked_add(into)?.checked_sub(offset)?;
                let frame = PhysAddr::new(start);
                if !frame.is_aligned(to) || !range.covers(VirtRange::of_page(at.page(to))) {
                    return None;
                }
                let wanted = Translation { page: at.page(to), frame, ..mapping.translation };
                // A page that already has this size is unchanged.
                let note = if page.size() == to { mapping.note } else { 0 };
                let part = Mapping { translation: wanted, note, ..*mapping };
                let (whole, filled) = after.entry(wanted.page.start().get()).or_insert((part, 0));
                if whole.translation != wanted {
                    return None;
                }
                whole.usage.referenced |= mapping.usage.referenced;
                whole.usage.dirty |= mapping.usage.dirty;
                *filled += bytes(mapping).min(to.bytes());
            }
        }
        if after.values().any(|(_, filled)| *filled != to.bytes()) {
            return None;
        }
        for gone in &before {
            self.pages.remove(&gone.translation.page.start().get());
        }
        after.into_values().for_each(|(mapping, _)| self.put(mapping));
        Some(before.into_iter().filter(|mapping| mapping.translation.page.size() != to).collect())
    }

    pub(crate) fn clear_usage(
        &mut self,
        range: VirtRange,
        bits: Usage,
    ) -> Result<Vec<Mapping>, Error> {
        let mut changed = self.whole(range)?;
        changed.retain(|Mapping { usage, .. }| {
            usage.referenced && bits.referenced || usage.dirty && bits.dirty
        });
        for mapping in &changed {
            let referenced = mapping.usage.referenced && !bits.referenced;
            let dirty = mapping.usage.dirty && !bits.dirty;
            let usage = Usage { referenced, dirty, ..mapping.usage };
            self.put(Mapping { usage, ..*mapping });
        }
        Ok(changed)
    }

    pub(crate) fn set_usage(&mut self, addr: VirtAddr, bits: Usage) -> Result<(), Error> {
        let mapping = self.at(addr).ok_or(Error::NotMapped { addr })?;
        let referenced = mapping.usage.referenced || bits.referenced;
        let dirty = mapping.usage.dirty || bits.dirty;
        let usage = Usage { referenced, dirty, ..mapping.usage };
        self.put(Mapping { usage, ..mapping });
        Ok(())
    }

    pub(crate) fn set_note(&mut self, addr: VirtAddr, note: u32) -> Result<(), Error> {
        let mapping = self.at(addr).ok_or(Error::NotMapped { addr })?;
        self.put(Mapping { note, ..mapping });
        Ok(())
    }

    /// The page that a walk finds, and whether the page allows the access.
    pub(crate) fn walk(
        &mut self,
        addr: VirtAddr,
        kind: Kind,
        marks: bool,
    ) -> Option<(Translation, bool)> {
        let mapping = self.at(addr)?;
        let allowed = mapping.translation.rights.allows(kind);
        if allowed && marks {
            let bits = Usage { referenced: true, dirty: kind == Kind::Store, marked: false };
            self.set_usage(addr, bits).unwrap();
        }
        Some((mapping.translation, allowed))
    }

    /// The pages that overlap `range`.
    pub(crate) fn overlapping(&self, range: VirtRange) -> Vec<Mapping> {
        let touches =
            |mapping: &Mapping| VirtRange::of_page(mapping.translation.page).intersection(range);
        self.mappings().filter(|mapping| touches(mapping).is_some()).collect()
    }

    /// The pages in `range`. The error is a page that is only partly in the range.
    fn whole(&self, range: VirtRange) -> Result<Vec<Mapping>, Error> {
        let pages = self.overlapping(range);
        let cut = |page: &Page| !range.covers(VirtRange::of_page(*page));
        match pages.iter().map(|mapping| mapping.translation.page).find(cut) {
            Some(page) => Err(Error::Splits { page }),
            None => Ok(pages),
        }
    }

    fn put(&mut self, mapping: Mapping) {
        self.pages.insert(mapping.translation.page.start().get(), mapping);
    }
}

/// Checks that a token names the pages of `changed`, or nothing if there are none.
pub(crate) fn check_flush(flush: &Flush, changed: &[Mapping]) {
    let pages = changed.iter().map(|mapping| mapping.translation.page);
    let expected = match (pages.clone().next(), pages.clone().next_back()) {
        (Some(first), Some(last)) => Scope::Pages {
            range: VirtRange::of_page(first).hull(VirtRange::of_page(last)),
            pages: changed.len() as u64,
        },
        _ => Scope::Nothing,
    };
    assert_eq!(flush.scope(), expected);
    let mut sizes: Vec<_> = pages.map(Page::size).collect();
    sizes.sort();
    sizes.dedup();
    assert!(flush.sizes().eq(sizes));
    assert_eq!(flush.global(), changed.iter().any(|mapping| mapping.translation.global));
}
