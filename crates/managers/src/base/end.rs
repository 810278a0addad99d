//! The state of memory at the end of a program: the sizes of its pages, and the lengths of its runs of
//! adjacent pages in adjacent frames.
//!
//! ```text
//!   pages    0 1 2 3 | 8 9           a run ends where either is not the next
//!   frames   4 5 6 7 | 8 3           4, 1, 1 base pages
//! ```

use addr::{PageSize, VirtRange};
use ram::Ram;
use results::{EndOfProgram, RegionSizes, RunsOfLength};

use super::Base;

impl Base {
    /// Records the current state of memory, if more memory is in use than in the recorded one.
    pub(super) fn look_at_end(&mut self, access: u64, ram: &Ram) {
        if self.end.as_ref().is_none_or(|last| used(last) < self.used(ram)) {
            self.end = Some(self.end(access, ram));
        }
    }

    /// The recorded state or the current state, whichever has more memory in use.
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
        let mut sizes = BySize::NOTHING;
        // By log2 of the length of a run in base pages: the number of runs, and the base pages in
        // them.
        let mut runs = [(0, 0); u64::BITS as usize];
        let mut regions = Vec::new();
        for (number, space) in ram.hat_spaces() {
            let mut known = self.vm.regions(space).into_iter().peekable();
            // The region of the current pages, and its mapped pages by size.
            let mut mapped: Option<(vm::Region, BySize)> = None;
            let row = |(region, by_size): (vm::Region, BySize)| RegionSizes {
                space: number,
                name: self.files.name(region.label),
                start: region.pages.start << base.shift(),
                bytes: (region.pages.end - region.pages.start) << base.shift(),
                mapped_by_size: by_size.named().collect(),
            };
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
                while known.next_if(|region| region.pages.end <= page).is_some() {
                    regions.extend(mapped.take().map(row));
                }
                let (size, count) = (of.page.size(), of.page.size().count_of(base));
                sizes.add(size);
                if let Some(region) = known.peek().filter(|region| region.pages.contains(&page)) {
                    let new = || (region.clone(), BySize::NOTHING);
                    mapped.get_or_insert_with(new).1.add(size);
                }
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
            regions.extend(mapped.map(row));
        }
        let runs = (0..).zip(runs).filter(|(_, (runs, _))| *runs > 0);
        let runs = runs.map(|(log2, (runs, pages))| RunsOfLength {
            bytes_min: base.bytes() << log2,
            runs,
            bytes: pages * base.bytes(),
        });
        EndOfProgram {
            access,
            bytes: self.kind_bytes(ram),
            mapped_by_size: sizes.named().collect(),
            runs: runs.collect(),
            regions,
        }
    }
}

/// For each log2 of a page size: the size, and the bytes in pages of that size.
struct BySize([Option<(PageSize, u64)>; u64::BITS as usize]);

impl BySize {
    const NOTHING: BySize = BySize([None; u64::BITS as usize]);

    fn add(&mut self, size: PageSize) {
        self.0[size.shift() as usize].get_or_insert((size, 0)).1 += size.bytes();
    }

    fn named(self) -> impl Iterator<Item = (String, u64)> {
        self.0.into_iter().flatten().map(|(size, bytes)| (size.to_string(), bytes))
    }
}

/// The bytes in pages.
fn used(end: &EndOfProgram) -> u64 {
    end.bytes.anonymous + end.bytes.file + end.bytes.shared
}
