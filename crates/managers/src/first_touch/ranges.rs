//! Requests of events that concern a range: pages are unmapped, moved, or get other rights.
//!
//! ```text
//!   range       [.......]            a page larger than the base page that it covers in part
//!   pages    |  2M  | 4K | 4K |      is made small first: then each page is in it or is not
//! ```

use addr::{PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use os::Platform;
use pagetable::{Flush, Mapping, Space, Translation, Usage};
use ram::Failure;

use super::{FirstTouch, expressible};

impl FirstTouch {
    /// The whole base pages in the `bytes` bytes from `start`: a base page that the range covers
    /// only in part is not included. A larger page that the range covers in part is split.
    fn whole_pages(
        &mut self,
        space: Space,
        (start, bytes): (u64, u64),
        platform: &mut dyn Platform,
    ) -> Result<Option<VirtRange>, Failure> {
        let Some(range) = self.covered(start, bytes) else { return Ok(None) };
        let ends = [Some(range.start()), range.last().checked_add(1)];
        let ends = ends.into_iter().flatten().take(if self.has_larger() { 2 } else { 0 });
        for end in ends {
            let Some(known) = platform.ram().mapping(space, end) else { continue };
            let page = known.translation.page;
            if page.size() > self.base && page.start() != end {
                let flush = platform.ram().resize(space, page, self.base)?;
                platform.shoot(flush);
                for part in VirtRange::of_page(page).pages(self.base) {
                    self.note(space, part);
                }
            }
        }
        Ok(Some(range))
    }

    /// Whether pages larger than the base page are possible.
    fn has_larger(&self) -> bool {
        self.large.is_some() || self.recorded.as_ref().is_some_and(|known| known.translated.is_told)
    }

    fn covered(&self, start: u64, bytes: u64) -> Option<VirtRange> {
        let first = start.checked_add(self.base.mask())? & !self.base.mask();
        let end = start.checked_add(bytes)?;
        // The system rounds a length up to its own base page, which is at most our page size.
        let end = end.checked_add(PageSize::SIZE_4K.mask())? & !PageSize::SIZE_4K.mask();
        let end = end & !self.base.mask();
        VirtRange::new(VirtAddr::new(first), end.checked_sub(first)?).ok()
    }

    /// Removes all pages in `range` from the page table. Hardware may still hold translations of
    /// these pages, and their frames stay allocated.
    pub(super) fn take(
        &mut self,
        space: Space,
        range: VirtRange,
        platform: &mut dyn Platform,
    ) -> Result<(Flush, Vec<Mapping>), Failure> {
        let mut gone = Vec::new();
        let flush = platform.ram().unmap(space, range, &mut |mapping| gone.push(mapping))?;
        for mapping in &gone {
            self.note_gone(space, mapping.translation.page);
        }
        Ok((flush, gone))
    }

    pub(super) fn unmap(
        &mut self,
        space: Space,
        bytes: (u64, u64),
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let Some(range) = self.whole_pages(space, bytes, platform)? else { return Ok(()) };
        let (flush, gone) = self.take(space, range, platform)?;
        platform.shoot(flush);
        for Mapping { translation, .. } in gone {
            self.free(translation.frame, translation.page.size(), platform.ram());
        }
        Ok(())
    }

    pub(super) fn protect(
        &mut self,
        space: Space,
        bytes: (u64, u64),
        rights: Rights,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let Some(range) = self.whole_pages(space, bytes, platform)? else { return Ok(()) };
        let flush = platform.ram().protect(space, range, expressible(rights))?;
        platform.shoot(flush);
        Ok(())
    }

    /// Moves pages with their frames and usage bits; pages beyond the new length are unmapped.
    pub(super) fn remap(
        &mut self,
        space: Space,
        (from, from_bytes): (u64, u64),
        (to, to_bytes): (u64, u64),
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let kept_bytes = from_bytes.min(to_bytes);
        if to_bytes < from_bytes {
            let tail = from.saturating_add(to_bytes);
            self.unmap(space, (tail, from_bytes - to_bytes), platform)?;
        }
        if from == to {
            return Ok(());
        }
        self.unmap(space, (to, to_bytes), platform)?;
        let distance = to.wrapping_sub(from);
        if distance & self.base.mask() != 0 {
            // The distance is not a multiple of this machine's page size, so the pages are unmapped
            // and mapped again when they are touched at their new addresses.
            return self.unmap(space, (from, kept_bytes), platform);
        }
        let kept = self.whole_pages(space, (from, kept_bytes), platform)?;
        let Some(range) = kept else { return Ok(()) };
        let (flush, moved) = self.take(space, range, platform)?;
        let mut flushes = vec![flush];
        for Mapping { translation, usage, .. } in moved {
            let Translation { page, frame, .. } = translation;
            // A page that would not be aligned at its new address is moved as base pages.
            let size = if distance & page.size().mask() == 0 { page.size() } else { self.base };
            for part in VirtRange::of_page(page).pages(size) {
                let offset = part.start().get() - page.start().get();
                let addr = part.start().wrapping_add(distance);
                let frame = PhysAddr::new(frame.get() + offset);
                let there = Translation { page: addr.page(size), frame, ..translation };
                flushes.push(platform.ram().map(space, there)?);
                self.note(space, there.page);
                if usage != Usage::default() {
                    platform.ram().set_usage(space, addr, usage)?;
                }
            }
        }
        flushes.into_iter().for_each(|flush| platform.shoot(flush));
        Ok(())
    }
}
