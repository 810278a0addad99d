//! Promotes base pages that are in memory to a large page, because they miss often in the TLB.
//!
//! ```text
//!   rights alike, one region, a large frame free?
//!       --> out of the table, flushed --> copied into the large frame; the rest is zeros
//!       --> one translation --> the frames of the base pages are free
//! ```

use addr::{Page, VirtRange};
use os::{Platform, Who};
use pagetable::{Mapping, Translation, Usage};
use ram::Failure;

use super::FirstTouch;

impl FirstTouch {
    /// Makes `page` from the base pages in its place. Returns the number of large pages made, 0 or
    /// 1.
    pub(super) fn promoted(
        &mut self,
        who: Who,
        page: Page,
        platform: &mut dyn Platform,
    ) -> Result<u64, Failure> {
        let range = VirtRange::of_page(page);
        let mut held: Vec<Mapping> = Vec::new();
        for part in range.pages(self.base) {
            held.extend(platform.ram().mapping(who.space, part.start()));
        }
        let Some(first) = held.first().map(|held| held.translation) else { return Ok(0) };
        let is_alike = held.iter().all(|held| {
            held.translation.rights == first.rights && held.translation.page.size() == self.base
        });
        if !is_alike || !self.has_room(who, page, platform.layout()) {
            return Ok(0);
        }
        let frame = match platform.ram().allocate(page) {
            Ok(frame) => frame,
            Err(Failure::OutOfFrames) => return Ok(0),
            Err(failure) => return Err(failure),
        };
        let (flush, gone) = self.take(who.space, range, platform)?;
        platform.shoot(flush);
        for Mapping { translation, .. } in &gone {
            self.free(translation.frame, translation.page.size(), platform.ram());
        }
        let there = Translation { page, frame, ..first };
        let flush = platform.ram().map(who.space, there)?;
        platform.shoot(flush);
        self.note(who.space, page);
        let usage = Usage {
            referenced: gone.iter().any(|gone| gone.usage.referenced),
            dirty: gone.iter().any(|gone| gone.usage.dirty),
            ..Usage::default()
        };
        if usage != Usage::default() {
            platform.ram().set_usage(who.space, page.start(), usage)?;
        }
        Ok(1)
    }
}
