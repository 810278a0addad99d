//! What memory is like where a program ends: how large its pages are, and how long its runs of adjacent
//! pages in adjacent frames.
//!
//! ```text
//!   pages    0 1 2 3 | 8 9           a run ends where either is not the next
//!   frames   4 5 6 7 | 8 3           4, 1, 1 base pages
//! ```

use addr::{PageSize, VirtRange};
use pagetable::Translation;

use super::Base;
use crate::{
    count::results::{EndOfProgram, RegionSizes, RunsOfLength},
    ram::Ram,
};

impl Base {
    /// Keeps what memory is like now, if more is in use than when it was looked at last.
    pub(super) fn look_at_end(&mut self, access: u64, ram: &Ram) {
        if self.end.as_ref().is_none_or(|last| used(last) < self.used(ram)) {
            self.end = Some(self.end(access, ram));
        }
    }

    /// The fullest of those ends, and of now.
    pub(super) fn fullest_end(&self, ram: &Ram) -> EndOfProgram {
        let last = self.end.as_ref();
        match last.filter(|last| used(last) > self.used(ram)) {
            Some(last) => last.clone(),
            None => self.end(last.map_or(0, |last| last.access), ram),
        }
    }

    fn used(&self, ram: &Ram) -> u64 {
        let bytes = self.kind_bytes(ram);
        bytes.anonymous + bytes.file + bytes.shared
    }

    fn end(&self, access: u64, ram: &Ram) -> EndOfProgram {
        let base = self.vm.base();
        let (hat, _) = ram.parts();
        // By log2 of its bytes: the size of the pages, and their bytes.
        let mut sizes = [const { None::<(PageSize, u64)> }; u64::BITS as usize];
        // By log2 of base pages: runs, and base pages in them.
        let mut runs = [(0, 0); u64::BITS as usize];
        let mut regions = Vec::new();
        for (number, space) in ram.hat_spaces() {
            let mut known = self.vm.regions(space).into_iter().peekable();
            let mut last: Option<(u64, u64, u64)> = None;
            let mut ends = |pages: u64| {
                let of = &mut runs[pages.ilog2() as usize];
                *of = (of.0 + 1, of.1 + pages);
            };
            hat.visit(space, VirtRange::ALL, &mut |mapping| {
                let of = mapping.translation;
                if self.vm.thp().is_some() && self.vm.is_zero_frame(ram.frame_at(of.frame)) {
                    return;
                }
                let page = of.page.start().get() >> base.shift();
                while known.next_if(|region| region.pages.end <= page).is_some() {}
                if let Some(region) = known.peek().filter(|region| region.pages.contains(&page)) {
                    add(&mut regions, (number, self.files.name(region.label)), region, &of, base);
                }
                let (size, count) = (of.page.size(), of.page.size().count_of(base));
                sizes[size.shift() as usize].get_or_insert((size, 0)).1 += size.bytes();
                let (page, frame) =
                    (of.page.start().get() >> base.shift(), of.frame.get() >> base.shift());
                last = match last {
                    Some((next, to, pages)) if (next, to) == (page, frame) => {
                        Some((page + count, frame + count, pages + count))
                    }
                    other => {
                        other.into_iter().for_each(|(_, _, pages)| ends(pages));
                        Some((page + count, frame + count, count))
                    }
                };
            });
            last.into_iter().for_each(|(_, _, pages)| ends(pages));
        }
        let runs = (0..).zip(runs).filter(|(_, (runs, _))| *runs > 0);
        let runs = runs.map(|(log2, (runs, pages))| RunsOfLength {
            bytes_min: base.bytes() << log2,
            runs,
            bytes: pages * base.bytes(),
        });
        let sizes = sizes.into_iter().flatten();
        EndOfProgram {
            access,
            bytes: self.kind_bytes(ram),
            mapped_by_size: sizes.map(|(size, bytes)| (size.to_string(), bytes)).collect(),
            runs: runs.collect(),
            regions,
        }
    }
}

/// Adds a page to the row of its region, which is the last one.
fn add(
    regions: &mut Vec<RegionSizes>,
    (space, name): (u32, String),
    region: &vm::Region,
    page: &Translation,
    base: PageSize,
) {
    let (start, end) = (region.pages.start << base.shift(), region.pages.end << base.shift());
    if regions.last().is_none_or(|last| (last.space, last.start) != (space, start)) {
        let (bytes, mapped_by_size) = (end - start, BTreeMap::new());
        regions.push(RegionSizes { space, name, start, bytes, mapped_by_size });
    }
    if let Some(last) = regions.last_mut() {
        let size = page.page.size();
        *last.mapped_by_size.entry(size.to_string()).or_insert(0) += size.bytes();
    }
}

/// Bytes of pages.
fn used(end: &EndOfProgram) -> u64 {
    end.bytes.anonymous + end.bytes.file + end.bytes.shared
}
