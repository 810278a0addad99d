//! The reference model of the HAT layer, with one entry per base page, and a processor whose TLB
//! must never have a stale entry.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use addr::{Frames, Kind, OutOfFrames, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace, LoadError, Platform};
use pagetable::{Flush, Translation};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const TABLES_START: u64 = 1 << 28;

/// A TLB of unlimited size, and an allocator of frames for page tables. It checks that only
/// allocated frames are freed.
#[derive(Default)]
pub(crate) struct Processor {
    tlb: BTreeMap<(HatSpace, Page), Translation>,
    out: BTreeSet<PhysAddr>,
    next: u64,
    pub(crate) shootdowns: u64,
    /// The number of frames that can still be allocated; `None` means unlimited.
    pub(crate) allocations_left: Option<usize>,
}

impl Processor {
    pub(crate) fn frames_out(&self) -> usize {
        self.out.len()
    }
}

impl Frames for Processor {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        if let Some(left) = &mut self.allocations_left {
            *left = left.checked_sub(1).ok_or(OutOfFrames { size, free_bytes: 0 })?;
        }
        self.next = (self.next + 2 * size.bytes()) & !size.mask();
        let frame = PhysAddr::new(TABLES_START + self.next);
        self.out.insert(frame);
        Ok(frame)
    }

    fn free(&mut self, frame: PhysAddr, _: PageSize) {
        assert!(self.out.remove(&frame), "{frame} is not out");
        if let Some(left) = &mut self.allocations_left {
            *left += 1;
        }
    }
}

impl Platform for Processor {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        self.shootdowns += 1;
        for (space, flush) in flushes {
            self.tlb.retain(|&(of, page), _| of != *space || !flush.scope().covers(page));
        }
    }

    fn frames(&mut self) -> &mut dyn Frames {
        self
    }
}

/// The expected mappings, by space and base page.
type Model = BTreeMap<(HatSpace, u64), Translation>;

/// The layer, the model, and a stream of operations for both.
pub(crate) struct World {
    hat: Hat,
    pub(crate) processor: Processor,
    rng: Xoshiro256PlusPlus,
    spaces: Vec<HatSpace>,
    model: Model,
    sizes: Vec<PageSize>,
}

/// Rights that every format can express.
const RIGHTS: [Rights; 2] = [Rights::ALL, Rights::from_bits(1 | 4 | 8)];

impl World {
    pub(crate) fn new(seed: u64, hat: Hat) -> World {
        let limit = PageSize::SIZE_2M;
        let sizes = hat.page_sizes().iter().copied().filter(|&size| size <= limit);
        World {
            sizes: sizes.collect(),
            hat,
            processor: Processor::default(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            spaces: Vec::new(),
            model: Model::new(),
        }
    }

    /// Runs `steps` operations. Returns a digest of the number of mappings after each step.
    pub(crate) fn run(mut self, steps: u32) -> u64 {
        let mut digest = 0xcbf2_9ce4_8422_2325;
        for step in 0..steps {
            self.step();
            self.fill();
            if step % 20 == 0 {
                self.compare();
            }
            self.no_stale_entry();
            digest = (digest ^ self.hat.mappings()).wrapping_mul(0x0000_0100_0000_01b3);
        }
        for space in core::mem::take(&mut self.spaces) {
            self.hat.destroy(space, &mut self.processor);
            self.model.retain(|&(of, _), _| of != space);
        }
        self.compare();
        assert_eq!(self.hat.mappings(), 0);
        digest
    }

    fn step(&mut self) {
        let choice = self.rng.random_range(0..100);
        let Some(space) = self.any_space().filter(|_| choice >= 3) else {
            if self.spaces.len() < 5 {
                match self.hat.create(&mut self.processor) {
                    Ok(space) => self.spaces.push(space),
                    Err(error) => assert_eq!(error, LoadError::NoTableMemory),
                }
            }
            return;
        };
        match choice {
            3 => {
                self.spaces.retain(|&of| of != space);
                self.hat.destroy(space, &mut self.processor);
                self.model.retain(|&(of, _), _| of != space);
            }
            4..45 => self.load(space),
            45..60 => self.unload(space),
            60..70 => self.unload_frames(),
            70..80 => self.protect(space),
            80..92 => self.resize(space),
            _ => self.duplicate(space),
        }
    }

    fn load(&mut self, space: HatSpace) {
        let size = self.sizes[self.rng.random_range(0..self.sizes.len())];
        let count = self.rng.random_range(1..if size == self.sizes[0] { 600 } else { 3 });
        let page = VirtAddr::new(self.rng.random_range(0..1 << 25)).page(size);
        let frame = PhysAddr::new(self.rng.random_range(0..1u64 << 25) & !size.mask());
        // Half of the loads are aligned so that the pages could become a larger page.
        let (page, frame) = if self.rng.random_bool(0.5) {
            let large = *self.sizes.last().unwrap();
            (page.start().align_down(large).page(size), PhysAddr::new(frame.get() & !large.mask()))
        } else {
            (page, frame)
        };
        let rights = RIGHTS[self.rng.random_range(0..2)];
        let first = Translation::new(page, frame, rights);
        let wanted: Vec<_> = (0..count * size.count_of(self.sizes[0]))
            .map(|n| page.start().get() + n * self.sizes[0].bytes())
            .collect();
        let is_there = wanted.iter().any(|&at| self.model.contains_key(&(space, at)));
        match self.hat.load(space, first, count, &mut self.processor) {
            Ok(()) => {
                assert!(!is_there, "mapped twice");
                for n in 0..count {
                    let page = page.start().wrapping_add(n * size.bytes()).page(size);
                    let frame = PhysAddr::new(frame.get() + n * size.bytes());
                    self.enter(space, Translation::new(page, frame, rights));
                }
            }
            Err(LoadError::NoTableMemory) => {
                assert!(self.processor.allocations_left.is_some());
            }
            Err(error) => assert!(is_there, "{error}"),
        }
    }

    fn unload(&mut self, space: HatSpace) {
        let range = self.range(space);
        let mut told = 0;
        let result = self.hat.unload(space, range, &mut |_| told += 1, &mut self.processor);
        assert!(result.is_ok(), "{result:?}");
        let gone = self.pages_in(space, range);
        assert_eq!(told, gone.len());
        gone.iter().for_each(|page| self.strike(space, *page));
    }

    fn unload_frames(&mut self) {
        let size = self.sizes[self.rng.random_range(0..self.sizes.len())];
        let frames: Vec<_> = (0..3)
            .map(|_| (PhysAddr::new(self.rng.random_range(0..1u64 << 25) & !size.mask()), size))
            .collect();
        let touched = |translation: &Translation| {
            let start = translation.frame.get();
            let end = start + translation.page.size().bytes();
            frames
                .iter()
                .any(|(frame, size)| start < frame.get() + size.bytes() && frame.get() < end)
        };
        let mut gone: Vec<(HatSpace, Page)> = (self.model.iter())
            .filter(|(_, translation)| touched(translation))
            .map(|(&(space, _), translation)| (space, translation.page))
            .collect();
        gone.dedup();
        let mut told = Vec::new();
        let each = &mut |space, mapping: pagetable::Mapping| {
            told.push((space, mapping.translation.page));
        };
        self.hat.unload_frames(&frames, each, &mut self.processor);
        told.sort_unstable();
        assert_eq!(told, gone);
        gone.iter().for_each(|&(space, page)| self.strike(space, page));
    }

    fn protect(&mut self, space: HatSpace) {
        let (range, rights) = (self.range(space), RIGHTS[self.rng.random_range(0..2)]);
        self.hat.protect(space, range, rights, &mut self.processor).unwrap();
        for (_, translation) in self.model.range_mut(bounds(space, range)) {
            translation.rights = rights;
        }
    }

    fn resize(&mut self, space: HatSpace) {
        let to = self.sizes[self.rng.random_range(0..self.sizes.len())];
        let large = *self.sizes.last().unwrap();
        let start = VirtAddr::new(self.rng.random_range(0..1 << 25)).align_down(large);
        let range = VirtRange::new(start, large.bytes()).unwrap();
        let before = self.pages_in(space, range);
        match self.hat.resize(space, range, to, &mut self.processor) {
            Ok(()) => {
                let pages: Vec<_> =
                    before.iter().map(|page| self.model[&(space, page.start().get())]).collect();
                before.iter().for_each(|page| self.strike(space, *page));
                for old in pages {
                    for n in 0..old.page.size().count_of(to).max(1) {
                        let at = old.page.start().wrapping_add(n * to.bytes());
                        // When several pages become one larger page, the first of them determines
                        // its frame.
                        if at.page(to).start() == at {
                            let frame = old.apply(old.page.start()).get() + n * to.bytes();
                            let (page, frame) = (at.page(to), PhysAddr::new(frame));
                            self.enter(space, Translation { page, frame, ..old });
                        }
                    }
                }
            }
            // The pages that were mapped there are restored by minor faults.
            Err(LoadError::NoTableMemory) => {
                assert!(self.processor.allocations_left.is_some());
                before.iter().for_each(|page| self.strike(space, *page));
                self.hat.unload(space, range, &mut |_| (), &mut self.processor).unwrap();
            }
            Err(_) => assert!(to > self.sizes[0], "a downgrade is always possible"),
        }
    }

    fn duplicate(&mut self, from: HatSpace) {
        let (to, range) = (self.any_space().unwrap(), self.range(from));
        if to == from || !self.pages_in(to, range).is_empty() {
            return;
        }
        let result = self.hat.duplicate(from, to, range, &mut self.processor);
        for (_, translation) in self.model.range_mut(bounds(from, range)) {
            translation.rights = RIGHTS[1];
        }
        if result == Err(LoadError::NoTableMemory) {
            assert!(self.processor.allocations_left.is_some());
            self.hat.unload(to, range, &mut |_| (), &mut self.processor).unwrap();
            return;
        }
        result.unwrap();
        for page in self.pages_in(from, range) {
            let translation = self.model[&(from, page.start().get())];
            self.enter(to, translation);
        }
    }

    /// A random range that contains only whole pages of `space`.
    fn range(&mut self, space: HatSpace) -> VirtRange {
        let large = *self.sizes.last().unwrap();
        if self.rng.random_bool(0.5) {
            let start = VirtAddr::new(self.rng.random_range(0..1 << 25)).align_down(large);
            return VirtRange::new(start, large.bytes() * self.rng.random_range(1..4)).unwrap();
        }
        let some = self.model.range((space, self.rng.random_range(0..1 << 25))..).next();
        match some {
            Some((&(of, _), translation)) if of == space => VirtRange::of_page(translation.page),
            _ => VirtRange::new(VirtAddr::new(0), large.bytes()).unwrap(),
        }
    }

    fn pages_in(&self, space: HatSpace, range: VirtRange) -> Vec<Page> {
        let inside = self.model.range(bounds(space, range));
        let mut pages: Vec<Page> = inside.map(|(_, translation)| translation.page).collect();
        pages.dedup();
        pages
    }

    fn enter(&mut self, space: HatSpace, translation: Translation) {
        for at in VirtRange::of_page(translation.page).pages(self.sizes[0]) {
            self.model.insert((space, at.start().get()), translation);
        }
    }

    fn strike(&mut self, space: HatSpace, page: Page) {
        for at in VirtRange::of_page(page).pages(self.sizes[0]) {
            self.model.remove(&(space, at.start().get()));
        }
    }

    fn any_space(&mut self) -> Option<HatSpace> {
        let count = self.spaces.len();
        (count > 0).then(|| self.spaces[self.rng.random_range(0..count)])
    }

    /// The processor accesses some pages and keeps their translations in its TLB.
    fn fill(&mut self) {
        for _ in 0..20 {
            let Some(space) = self.any_space() else { return };
            let at = self.rng.random_range(0..1u64 << 25);
            let Some((&(space, at), _)) = self.model.range((space, at)..).next() else { continue };
            let inner = self.hat.space(space).unwrap();
            let walked =
                self.hat.table_mut().walk(inner, VirtAddr::new(at), Kind::Load, &mut Vec::new());
            let translation = walked.expect("what the model has is mapped");
            self.processor.tlb.insert((space, translation.page), translation);
        }
    }

    fn no_stale_entry(&self) {
        for (&(space, page), held) in &self.processor.tlb {
            let known = self.model.get(&(space, page.start().get()));
            let known = known.unwrap_or_else(|| panic!("the TLB has {page:?}, which is gone"));
            let at = page.start();
            assert_eq!(held.apply(at), known.apply(at), "{page:?} is elsewhere");
            assert!(known.rights.contains(held.rights), "{page:?} allows less now");
        }
    }

    fn compare(&self) {
        self.hat.check().unwrap();
        let mut pages = 0;
        for (&(space, at), expected) in &self.model {
            let inner = self.hat.space(space).unwrap();
            let table = self.hat.table();
            let found = table.query(inner, VirtAddr::new(at));
            let translation = found.map(|mapping| mapping.translation);
            assert_eq!(translation, Some(*expected), "space {}, {at:#x}", space.0);
            // Each of these formats has room either for the notes of all pages or for none.
            let is_noted = found.map(|mapping| mapping.note != 0);
            assert_eq!(is_noted, Some(table.has_notes()), "space {}, {at:#x}", space.0);
            pages += u64::from(expected.page.start().get() == at);
        }
        assert_eq!(self.hat.mappings(), pages);
    }
}

fn bounds(space: HatSpace, range: VirtRange) -> core::ops::RangeInclusive<(HatSpace, u64)> {
    (space, range.start().get())..=(space, range.last().get())
}
