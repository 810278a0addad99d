//! Tests which page tables remain where a large page could be, and the effects of calls on large
//! pages, both as in Linux 6.18.

use alloc::{collections::BTreeMap, vec::Vec};
use core::ops::Range;

use addr::{Kind, Rights, VirtAddr};
use hat::HatSpace;
use physmem::FrameId;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vm::{Error, FileKey, Khugepaged, Module, Refused, ScanResult, Source, Thp, Why, Wired};

use crate::{
    linux::{BLOCK, BLOCKS, FIRST, LARGE, ORDER, Small, pages},
    world::BASE,
};

const RW: Rights = Rights::from_bits(3);
const ALWAYS: Thp = Thp::new(1 << ORDER, 0, Khugepaged::of(ORDER));

fn at(page: u64) -> VirtAddr {
    VirtAddr::new(page << BASE.shift())
}

/// A space with one region, in which faults load large pages even if no call requests them.
fn one(range: Range<u64>) -> (Small, HatSpace) {
    let mut world = Small::new(1 << 13, ALWAYS);
    let space = world.kernel().create().unwrap();
    world.kernel().map(space, pages(range), RW, Source::Anonymous, 0).unwrap();
    (world, space)
}

fn advise(world: &mut Small, space: HatSpace, range: Range<u64>, is_large: bool) {
    let page_size = Some(if is_large { LARGE } else { BASE });
    let module = Module { page_size, ..Module::default() };
    world.kernel().attach(space, pages(range), module).unwrap();
}

/// The table or page that is mapped for a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Table {
    #[default]
    None,
    /// A table of base pages, which may be empty.
    Base,
    /// A large page.
    Large,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Page {
    may_store: bool,
    /// Whether the page's region was ever stored to.
    is_own: bool,
}

/// The model: the tables of blocks, by the number of the block, and the mapped pages.
#[derive(Clone, Debug, Default)]
struct Model {
    pages: BTreeMap<u64, Page>,
    tables: BTreeMap<u64, Table>,
}

impl Model {
    /// The region around `page`, which consists of adjacent pages with equal properties.
    fn region(&self, page: u64) -> Range<u64> {
        let alike = |other: u64| {
            self.pages.get(&other).map(|page| page.may_store)
                == self.pages.get(&page).map(|page| page.may_store)
        };
        let (mut start, mut end) = (page, page + 1);
        while alike(start - 1) {
            start -= 1;
        }
        while alike(end) {
            end += 1;
        }
        start..end
    }

    fn regions(&self) -> Vec<Range<u64>> {
        let mut found: Vec<Range<u64>> = Vec::new();
        for &page in self.pages.keys() {
            if found.last().is_none_or(|last| last.end <= page) {
                found.push(self.region(page));
            }
        }
        found
    }

    /// If regions were joined, all pages of the result have the property `is_own` if one of the
    /// regions had it.
    fn settle(&mut self) {
        for region in self.regions() {
            let is_own = region.clone().any(|page| self.pages[&page].is_own);
            region.for_each(|page| self.pages.get_mut(&page).unwrap().is_own = is_own);
        }
    }

    fn table(&self, page: u64) -> Table {
        self.tables.get(&(page / BLOCK)).copied().unwrap_or_default()
    }

    /// Splits large pages that extend across an end of `part`.
    fn cut(&mut self, part: &Range<u64>) {
        for page in [part.start, part.end - 1] {
            let block = page / BLOCK * BLOCK..(page / BLOCK + 1) * BLOCK;
            let is_inside = part.start <= block.start && block.end <= part.end;
            if self.table(page) == Table::Large && !is_inside {
                self.tables.insert(page / BLOCK, Table::Base);
            }
        }
    }

    fn store(&mut self, page: u64) {
        let region = self.region(page);
        let (block, first) = (page / BLOCK, page / BLOCK * BLOCK);
        if self.table(page) == Table::None {
            let fits = region.start <= first && first + BLOCK <= region.end;
            self.tables.insert(block, if fits { Table::Large } else { Table::Base });
        }
        region.for_each(|page| self.pages.get_mut(&page).unwrap().is_own = true);
    }

    fn unmap(&mut self, part: &Range<u64>) {
        self.cut(part);
        self.pages.retain(|page, _| !part.contains(page));
        self.free(part);
    }

    /// Removes the tables of blocks around `part` in which no page is mapped.
    fn free(&mut self, part: &Range<u64>) {
        for block in part.start / BLOCK..=(part.end - 1) / BLOCK {
            if self.pages.range(block * BLOCK..(block + 1) * BLOCK).next().is_none() {
                self.tables.remove(&block);
            }
        }
    }

    fn map(&mut self, part: &Range<u64>) {
        self.unmap(part);
        let page = Page { may_store: true, is_own: false };
        self.pages.extend(part.clone().map(|number| (number, page)));
        self.settle();
    }

    fn parts(&self, part: &Range<u64>) -> Vec<Range<u64>> {
        let parts = self.regions().into_iter();
        let parts = parts.map(|region| region.start.max(part.start)..region.end.min(part.end));
        parts.filter(|part| !part.is_empty()).collect()
    }

    fn discard(&mut self, part: &Range<u64>) {
        for part in self.parts(part) {
            self.cut(&part);
            for block in part.start.div_ceil(BLOCK)..part.end / BLOCK {
                self.tables.remove(&block);
            }
        }
    }

    fn protect(&mut self, part: &Range<u64>, may_store: bool) {
        for part in self.parts(part) {
            if self.pages[&part.start].may_store != may_store {
                self.cut(&part);
                part.for_each(|page| self.pages.get_mut(&page).unwrap().may_store = may_store);
            }
        }
        self.settle();
    }

    fn shift(&mut self, from: &Range<u64>, to: u64) {
        let parts = self.parts(from);
        let moved = |page: u64| page - from.start + to;
        for part in &parts {
            self.unmap(&(moved(part.start)..moved(part.end)));
        }
        self.cut(from);
        let (mut pages, mut tables) = (Vec::new(), Vec::new());
        for part in &parts {
            for block in part.start / BLOCK..=(part.end - 1) / BLOCK {
                let inside = (block * BLOCK).max(part.start)..((block + 1) * BLOCK).min(part.end);
                let (first, last) = (moved(inside.start), moved(inside.end - 1));
                let stays_large = first % BLOCK == 0 && self.table(inside.start) == Table::Large;
                match self.table(inside.start) {
                    Table::None => {}
                    table if stays_large => tables.push((first, table)),
                    Table::Base | Table::Large => {
                        tables.extend([(first, Table::Base), (last, Table::Base)]);
                    }
                }
            }
            pages.extend(part.clone().map(|page| (moved(page), self.pages[&page])));
        }
        self.pages.retain(|page, _| !from.contains(page));
        self.free(from);
        self.pages.extend(pages);
        self.tables.extend(tables.into_iter().map(|(page, table)| (page / BLOCK, table)));
        self.settle();
    }

    /// The state of a child: only regions that were stored to are copied.
    fn fork(&self) -> Model {
        let is_copied = |block: u64| {
            let mut inside = self.pages.range(block * BLOCK..(block + 1) * BLOCK);
            inside.any(|(_, page)| page.is_own)
        };
        let tables = self.tables.iter().filter(|(block, _)| is_copied(**block));
        Model { pages: self.pages.clone(), tables: tables.map(|(a, b)| (*a, *b)).collect() }
    }
}

/// The two areas with regions; pages are moved from one area to the other.
const AREAS: [u64; 2] = [FIRST, FIRST + 16 * BLOCK];

fn look(world: &Small, space: HatSpace, model: &Model, context: &str) {
    for area in AREAS {
        for block in area / BLOCK..area / BLOCK + BLOCKS {
            let page = block * BLOCK;
            let expected = model.table(page) == Table::Large
                && model.pages.get(&page).is_some_and(|page| page.may_store);
            assert_eq!(world.is_large(space, page), expected, "{context}: block {block:#x}");
        }
    }
}

/// Makes stores, and calls that concern parts of blocks, and compares the result with a model of
/// the kernel's tables.
#[test]
fn tables_stay_as_the_model_says() {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 0..40 {
        println!("seed {seed}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut world = Small::new(1 << 13, ALWAYS);
        let space = world.kernel().create().unwrap();
        let mut model = Model::default();
        for step in 0..120 {
            let context = alloc::format!("seed {seed}, step {step}");
            // Most parts begin and end at quarters of blocks.
            let grain = if random.random_bool(0.8) { BLOCK / 4 } else { 1 };
            let mut area = AREAS[random.random_range(0..2)];
            let most = BLOCKS * BLOCK / grain;
            let start = random.random_range(0..most);
            let end = start + random.random_range(1..=(most - start).min(3 * BLOCK / grain));
            let part = area + start * grain..area + end * grain;
            let mapped: Vec<u64> =
                model.pages.iter().filter(|(_, page)| page.may_store).map(|(at, _)| *at).collect();
            match random.random_range(0..20) {
                0..7 if !mapped.is_empty() => {
                    let page = mapped[random.random_range(0..mapped.len())];
                    let table = model.table(page);
                    world.store(space, page);
                    model.store(page);
                    *seen
                        .entry(match (table, model.table(page)) {
                            (Table::None, Table::Large) => "large",
                            (Table::Base, _) => "base in a table",
                            _ => "other",
                        })
                        .or_default() += 1;
                }
                0..10 => {
                    world
                        .kernel()
                        .map(space, pages(part.clone()), RW, Source::Anonymous, 0)
                        .unwrap();
                    model.map(&part);
                }
                10..12 => {
                    world.kernel().unmap(space, pages(part.clone())).unwrap();
                    model.unmap(&part);
                }
                12..15 => {
                    world.kernel().discard(space, pages(part.clone())).unwrap();
                    model.discard(&part);
                }
                15..17 => {
                    let may_store = random.random_bool(0.6);
                    let rights = if may_store { RW } else { Rights::NONE };
                    world.kernel().protect(space, pages(part.clone()), rights).unwrap();
                    model.protect(&part, may_store);
                    // Pages that allow stores again are loaded by a fault.
                    for (page, _) in model.pages.clone().iter().filter(|(_, page)| page.may_store) {
                        if model.table(*page) == Table::Large {
                            world.store(space, *page);
                        }
                    }
                }
                17..19 => {
                    area = AREAS[usize::from(area == AREAS[0])];
                    let shift = if random.random_bool(0.5) { 0 } else { grain };
                    let to = area + start * grain + shift;
                    let count = (part.end - part.start).min(area + BLOCKS * BLOCK - to);
                    if count == 0 {
                        continue;
                    }
                    let from = part.start..part.start + count;
                    let faults: u64 = world.vm.faults().iter().sum();
                    let bytes = count * BASE.bytes();
                    world.kernel().move_pages(space, pages(from.clone()), at(to), bytes).unwrap();
                    model.shift(&from, to);
                    assert_eq!(world.vm.faults().iter().sum::<u64>(), faults);
                }
                _ => {
                    let child = world.kernel().create().unwrap();
                    world.kernel().fork(space, child).unwrap();
                    let mut other = model.fork();
                    look(&world, child, &other, &context);
                    for area in AREAS {
                        for page in (area..area + BLOCKS * BLOCK).step_by(BLOCK as usize) {
                            let may_store =
                                other.pages.get(&page).is_some_and(|page| page.may_store);
                            if other.table(page) != Table::Large && may_store {
                                world.store(child, page);
                                other.store(page);
                            }
                        }
                    }
                    look(&world, child, &other, &context);
                    *seen.entry("fork").or_default() += 1;
                    world.kernel().exit(child).unwrap();
                }
            }
            world.kernel().check().unwrap_or_else(|wrong| panic!("{context}: {wrong}"));
            look(&world, space, &model, &context);
        }
    }
    assert!(seen.values().all(|count| *count > 50) && seen.len() == 4, "{seen:?}");
}

/// After a block was discarded as a whole, a fault makes a large page again; after it was discarded
/// in two halves, it does not.
#[test]
fn a_block_that_is_discarded_by_parts_stays_in_base_pages() {
    let (mut world, space) = one(FIRST..FIRST + BLOCK);
    world.store(space, FIRST);
    for half in [FIRST..FIRST + BLOCK / 2, FIRST + BLOCK / 2..FIRST + BLOCK] {
        world.kernel().discard(space, pages(half)).unwrap();
    }
    world.store(space, FIRST);
    assert!(!world.is_large(space, FIRST));
    let mut why: Vec<Why> = world.vm.decisions().into_keys().map(|of| of.why).collect();
    why.sort_unstable();
    assert_eq!(why, [Why::Obtained, Why::TableKept]);
    world.kernel().discard(space, pages(FIRST..FIRST + BLOCK)).unwrap();
    world.store(space, FIRST);
    assert!(world.is_large(space, FIRST));
}

/// If a region is one page too short for a large page, each of its pages has this reason, not only
/// the first one.
#[test]
fn a_region_that_is_too_short_says_so_for_each_page() {
    let (mut world, space) = one(FIRST..FIRST + BLOCK - 1);
    (FIRST..FIRST + BLOCK - 1).for_each(|page| world.store(space, page));
    let found: Vec<(Why, u64)> =
        world.vm.decisions().into_iter().map(|(of, count)| (of.why, count)).collect();
    assert_eq!(found, [(Why::RegionTooSmall, BLOCK - 1)]);
}

/// A call that sets the properties that a region already has splits no page. A call that changes a
/// part of a region does.
#[test]
fn calls_that_change_nothing_split_nothing() {
    let (mut world, space) = one(FIRST..FIRST + BLOCK);
    world.store(space, FIRST);
    let (half, all) = (pages(FIRST..FIRST + BLOCK / 2), pages(FIRST..FIRST + BLOCK));
    world.kernel().protect(space, half, RW).unwrap();
    world.kernel().unlock(space, half).unwrap();
    advise(&mut world, space, FIRST..FIRST + BLOCK, true);
    advise(&mut world, space, FIRST..FIRST + BLOCK / 2, true);
    world.kernel().lock(space, all).unwrap();
    world.kernel().lock(space, half).unwrap();
    assert!(world.is_large(space, FIRST));
    assert_eq!(world.vm.work().downgrades, 0);
    world.kernel().unlock(space, half).unwrap();
    assert!(!world.is_large(space, FIRST));
    // A region with only the right to store differs from a region with the rights to load and
    // store.
    let (mut world, space) = one(FIRST..FIRST + BLOCK);
    let half = pages(FIRST..FIRST + BLOCK / 2);
    world.kernel().protect(space, half, Rights::WRITE).unwrap();
    world.store(space, FIRST);
    assert!(!world.is_large(space, FIRST));
}

/// Pages that are moved do not fault afterwards: neither base pages nor large pages, even if a
/// large page is moved to an address where it is not aligned.
#[test]
fn pages_that_move_do_not_fault() {
    for (to, large) in [(FIRST + 16 * BLOCK, 2), (FIRST + 16 * BLOCK + 5, 0)] {
        let (mut world, space) = one(FIRST..FIRST + 2 * BLOCK + 9);
        (FIRST..FIRST + 2 * BLOCK + 9).for_each(|page| world.store(space, page));
        let all = pages(FIRST..FIRST + 2 * BLOCK + 9);
        let bytes = all.bytes();
        world.kernel().move_pages(space, all, at(to), bytes).unwrap();
        let faults: u64 = world.vm.faults().iter().sum();
        (to..to + 2 * BLOCK + 9).for_each(|page| world.store(space, page));
        assert_eq!(world.vm.faults().iter().sum::<u64>(), faults);
        let blocks = (to / BLOCK..to / BLOCK + 3).filter(|of| world.is_large(space, of * BLOCK));
        assert_eq!(blocks.count(), large);
        world.kernel().check().unwrap();
    }
}

fn file(first: u64, shared: bool) -> Source {
    Source::File { key: FileKey { device: 1, inode: 1 }, first, shared }
}

/// A large page of a file that a call has made has the file's contents, whoever stores to it.
#[test]
fn a_large_page_of_a_file_keeps_its_contents() {
    for shared in [true, false] {
        for is_promoted in [true, false] {
            let mut world = Small::new(1 << 13, ALWAYS);
            let space = world.kernel().create().unwrap();
            let all = pages(FIRST..FIRST + BLOCK);
            world.kernel().map(space, all, RW, file(0, shared), 0).unwrap();
            let made = match is_promoted {
                true => world.kernel().promote_range(space, all, LARGE),
                false => world.kernel().upgrade(space, all, LARGE),
            };
            assert_eq!(made, Ok(1));
            world.kernel().fault(space, at(FIRST), Kind::Load).unwrap();
            let frame = |world: &Small, page| {
                let held = world.hat.query(space, at(page)).unwrap().translation;
                held.apply(at(page)).align_down(BASE)
            };
            let before: Vec<u64> = (FIRST..FIRST + BLOCK)
                .map(|page| world.board.contents[&frame(&world, page)])
                .collect();
            world.store(space, FIRST + 3);
            world.kernel().check().unwrap();
            (FIRST..FIRST + BLOCK).for_each(|page| {
                let found = world.kernel().fault(space, at(page), Kind::Load);
                found.unwrap();
            });
            let after: Vec<u64> = (FIRST..FIRST + BLOCK)
                .map(|page| world.board.contents[&frame(&world, page)])
                .collect();
            assert_eq!(after, before, "shared: {shared}");
            assert_eq!(world.is_large(space, FIRST), shared);
        }
    }
}

/// The rules of `MADV_COLLAPSE`.
#[test]
fn a_collapse_follows_the_kernels_rules() {
    let results = |world: &Small| world.vm.scanned().results;
    let collapse = |world: &mut Small, space, range: Range<u64>| {
        world.kernel().collapse(space, pages(range), Refused::No).unwrap()
    };
    // Tests a private mapping of a file in which one page was stored to.
    let mut world = Small::new(1 << 13, ALWAYS);
    let space = world.kernel().create().unwrap();
    let all = FIRST..FIRST + BLOCK;
    world.kernel().map(space, pages(all.clone()), RW, file(0, false), 0).unwrap();
    for page in all.clone() {
        world.kernel().fault(space, at(page), Kind::Load).unwrap();
    }
    world.store(space, FIRST + 3);
    assert_eq!((collapse(&mut world, space, all.clone()), results(&world)), (0, [0; 9]));

    // Tests memory that allows no accesses.
    let base = |blocks: u64| {
        let (mut world, space) = one(FIRST..FIRST + blocks * BLOCK);
        advise(&mut world, space, FIRST..FIRST + blocks * BLOCK, false);
        (world, space)
    };
    let (mut world, space) = base(1);
    (FIRST..FIRST + BLOCK).step_by(2).for_each(|page| world.store(space, page));
    advise(&mut world, space, all.clone(), true);
    world.kernel().protect(space, pages(all.clone()), Rights::NONE).unwrap();
    assert_eq!(collapse(&mut world, space, all.clone()), 1);
    world.kernel().check().unwrap();
    assert!(matches!(
        world.kernel().fault(space, at(FIRST), Kind::Load),
        Err(Error::Denied { .. })
    ));
    world.kernel().protect(space, pages(all.clone()), Rights::READ).unwrap();
    world.kernel().fault(space, at(FIRST + 1), Kind::Load).unwrap();
    assert!(world.is_large(space, FIRST));

    // Tests memory with advice against large pages.
    let (mut world, space) = base(1);
    world.store(space, FIRST);
    assert_eq!(collapse(&mut world, space, all.clone()), 0);
    // Tests a block with only pages of zeros, in a region that was never stored to and in one that
    // was.
    let (mut world, space) = base(1);
    world.kernel().fault(space, at(FIRST), Kind::Load).unwrap();
    advise(&mut world, space, all.clone(), true);
    assert_eq!(collapse(&mut world, space, all.clone()), 0);
    advise(&mut world, space, all.clone(), false);
    world.store(space, FIRST + 1);
    world.kernel().discard(space, pages(FIRST + 1..FIRST + 2)).unwrap();
    advise(&mut world, space, all.clone(), true);
    assert_eq!(collapse(&mut world, space, all.clone()), 1);

    // The call ends at a block without any page.
    for (touched, made) in [([1, 1, 1], 3), ([1, 0, 1], 1), ([0, 1, 1], 0)] {
        let (mut world, space) = base(3);
        for block in (0..3).filter(|block| touched[*block as usize] == 1) {
            world.store(space, FIRST + block * BLOCK + 7);
        }
        advise(&mut world, space, FIRST..FIRST + 3 * BLOCK, true);
        let found = collapse(&mut world, space, FIRST..FIRST + 3 * BLOCK);
        assert_eq!(found, made, "{touched:?}");
    }
    // Blocks for which even the upper table is missing are skipped.
    let (far, last) = (FIRST + BLOCK * BLOCK, FIRST + 4 * BLOCK * BLOCK);
    let (mut world, space) = one(FIRST..last);
    world.store(space, far);
    world.kernel().discard(space, pages(far..far + 1)).unwrap();
    assert!(!world.is_large(space, far));
    assert_eq!(collapse(&mut world, space, FIRST..last), 1);
    assert!(world.is_large(space, far));
    // The call continues after a hole, and ends at a region that may not have large pages.
    for (is_hole, made) in [(true, 2), (false, 1)] {
        let (mut world, space) = base(3);
        (0..3).for_each(|block| world.store(space, FIRST + block * BLOCK));
        advise(&mut world, space, FIRST..FIRST + 3 * BLOCK, true);
        let second = FIRST + BLOCK..FIRST + 2 * BLOCK;
        match is_hole {
            true => world.kernel().unmap(space, pages(second)).unwrap(),
            false => advise(&mut world, space, second, false),
        }
        assert_eq!(collapse(&mut world, space, FIRST..FIRST + 3 * BLOCK), made);
    }
    // If a fork shares pages that may not be stored to, a collapse copies them.
    let (mut world, space) = base(1);
    (FIRST..FIRST + BLOCK).for_each(|page| world.store(space, page));
    advise(&mut world, space, all.clone(), true);
    world.kernel().protect(space, pages(all.clone()), Rights::READ).unwrap();
    let child = world.kernel().create().unwrap();
    world.kernel().fork(space, child).unwrap();
    assert_eq!(collapse(&mut world, child, all), 1);
    world.kernel().check().unwrap();
    assert!(world.is_large(child, FIRST) && !world.is_large(space, FIRST));
    assert_eq!(results(&world)[ScanResult::Succeed as usize], 1);
}

/// A refused call has collapsed all blocks before the block or region that a rule refuses. If no
/// rule refuses the call, the kernel of the recording had another reason (before 6.1 it has no
/// `MADV_COLLAPSE`), and nothing is collapsed.
#[test]
fn a_collapse_that_nothing_here_refuses_does_nothing() {
    let world = |touched: [bool; 3], last: bool| {
        let all = FIRST..FIRST + 3 * BLOCK;
        let (mut world, space) = one(all.clone());
        advise(&mut world, space, all.clone(), false);
        for block in (0..3).filter(|block| touched[*block as usize]) {
            world.store(space, FIRST + block * BLOCK + 7);
        }
        advise(&mut world, space, all, true);
        advise(&mut world, space, FIRST + 2 * BLOCK..FIRST + 3 * BLOCK, last);
        (world, space)
    };
    for (touched, last, made) in [
        ([true, true, true], true, 0),
        ([true, true, false], true, 2),
        ([true, true, true], false, 2),
        ([false, true, true], true, 0),
    ] {
        let (mut world, space) = world(touched, last);
        let asked = pages(FIRST..FIRST + 3 * BLOCK);
        let (work, results) = (world.vm.work(), world.vm.scanned().results);
        assert_eq!(
            world.kernel().collapse(space, asked, Refused::Unknown),
            Ok(made),
            "{touched:?}"
        );
        if made == 0 && touched[0] {
            let calls = vm::Work { calls: work.calls + 1, ..work };
            assert_eq!((world.vm.work(), world.vm.scanned().results), (calls, results));
        }
        world.kernel().check().unwrap();
    }
    // A block for which even the upper table is missing does not end the call, but makes it fail.
    let (far, last) = (FIRST + BLOCK * BLOCK, FIRST + 4 * BLOCK * BLOCK);
    for (start, made) in [(FIRST, 1), (far, 0)] {
        let (mut world, space) = one(FIRST..last);
        (far..far + BLOCK * BLOCK).step_by(BLOCK as usize).for_each(|page| {
            world.store(space, page);
            world.kernel().discard(space, pages(page..page + 1)).unwrap();
        });
        let end = far + BLOCK;
        assert_eq!(world.kernel().collapse(space, pages(start..end), Refused::Unknown), Ok(made));
    }
}

/// A kernel that supports the call can have refused it after some blocks, but not after its only
/// block.
#[test]
fn one_block_that_was_refused_is_not_collapsed() {
    for (refused, made) in
        [(Refused::No, [1, 2]), (Refused::Known, [0, 2]), (Refused::Unknown, [0, 0])]
    {
        for (blocks, made) in [1, 2].into_iter().zip(made) {
            let all = FIRST..FIRST + blocks * BLOCK;
            let (mut world, space) = one(all.clone());
            advise(&mut world, space, all.clone(), false);
            all.clone().step_by(9).for_each(|page| world.store(space, page));
            advise(&mut world, space, all.clone(), true);
            assert_eq!(world.kernel().collapse(space, pages(all), refused), Ok(made));
        }
    }
}

/// Locked memory is collapsed, and is then locked as a whole. Locks of another space do not matter
/// if pages are copied; if the memory is shared, locked pages are not moved.
#[test]
fn locked_memory_is_collapsed() {
    for on_fault in [false, true] {
        let all = FIRST..FIRST + BLOCK;
        let (mut world, space) = one(all.clone());
        advise(&mut world, space, all.clone(), false);
        all.clone().step_by(3).for_each(|page| world.store(space, page));
        let child = world.kernel().create().unwrap();
        match on_fault {
            true => world.kernel().lock_on_fault(space, pages(all.clone())).unwrap(),
            false => world.kernel().lock(space, pages(all.clone())).unwrap(),
        }
        world.kernel().fork(space, child).unwrap();
        for space in [space, child] {
            advise(&mut world, space, all.clone(), true);
        }
        let before = wired(&mut world);
        assert_eq!(world.kernel().collapse(child, pages(all.clone()), Refused::No), Ok(1));
        assert_eq!((world.is_large(child, FIRST), wired(&mut world)), (true, before));
        world.kernel().check().unwrap();
        assert_eq!(world.kernel().collapse(space, pages(all.clone()), Refused::No), Ok(1));
        assert_eq!((world.is_large(space, FIRST), wired(&mut world)), (true, BLOCK as usize));
        world.kernel().check().unwrap();
        world.kernel().unlock(space, pages(all)).unwrap();
        assert_eq!(wired(&mut world), 0);
    }
    let mut world = Small::new(1 << 13, Thp::new(0, 0, Khugepaged::of(ORDER)));
    let space = world.kernel().create().unwrap();
    let all = pages(FIRST..FIRST + BLOCK);
    world.kernel().map(space, all, RW, Source::SharedMemory, 0).unwrap();
    world.store(space, FIRST);
    let child = world.kernel().create().unwrap();
    world.kernel().fork(space, child).unwrap();
    world.kernel().lock_on_fault(space, all).unwrap();
    assert_eq!(world.kernel().collapse(child, all, Refused::No), Ok(0));
    assert_eq!(world.kernel().collapse(space, all, Refused::No), Ok(1));
    assert_eq!(wired(&mut world), BLOCK as usize);
    world.kernel().check().unwrap();
}

/// Shared memory is collapsed, and other spaces that share it load it as a large page. It is not
/// split if a part of it is unmapped.
#[test]
fn shared_memory_is_collapsed() {
    let mut world = Small::new(1 << 13, Thp::new(0, 0, Khugepaged::of(ORDER)));
    let space = world.kernel().create().unwrap();
    let all = pages(FIRST..FIRST + 3 * BLOCK);
    world.kernel().map(space, all, RW, Source::SharedMemory, 0).unwrap();
    (FIRST..FIRST + BLOCK / 2).for_each(|page| world.store(space, page));
    world.store(space, FIRST + BLOCK);
    let child = world.kernel().create().unwrap();
    world.kernel().fork(space, child).unwrap();
    (FIRST..FIRST + 9).for_each(|page| world.store(child, page));
    let is_large =
        |world: &Small, space| [0, 1, 2].map(|block| world.is_large(space, FIRST + block * BLOCK));
    // The third block has no page in memory or in swap, which ends the call.
    assert_eq!(world.kernel().collapse(space, all, Refused::No), Ok(2));
    world.kernel().check().unwrap();
    assert_eq!(is_large(&world, space), [true, true, false]);
    assert_eq!(world.kernel().loaded(child, all), 0);
    world.store(child, FIRST + 20);
    assert_eq!(is_large(&world, child), [true, false, false]);
    world.kernel().check().unwrap();
    // Half of a block is discarded or gets other rights. Then the block is loaded as a whole again,
    // if possible.
    world.kernel().discard(space, pages(FIRST..FIRST + BLOCK / 2)).unwrap();
    let half = pages(FIRST + BLOCK..FIRST + 3 * BLOCK / 2);
    world.kernel().protect(space, half, Rights::READ).unwrap();
    assert_eq!(is_large(&world, space), [false; 3]);
    world.kernel().fault(space, at(FIRST), Kind::Load).unwrap();
    world.kernel().fault(space, at(FIRST + BLOCK), Kind::Load).unwrap();
    assert_eq!(is_large(&world, space), [true, false, false]);
    world.kernel().check().unwrap();
    // If addresses and memory differ in alignment, there is no large page.
    let aside = pages(FIRST + 16 * BLOCK + 1..FIRST + 19 * BLOCK);
    world.kernel().map(space, aside, RW, Source::SharedMemory, 0).unwrap();
    (FIRST + 17 * BLOCK..FIRST + 18 * BLOCK).for_each(|page| world.store(space, page));
    assert_eq!(world.kernel().collapse(space, aside, Refused::No), Ok(0));
    for space in [space, child] {
        world.kernel().exit(space).unwrap();
    }
    world.kernel().check().unwrap();
    assert_eq!(world.vm.folios().0, 0);
    assert_eq!(world.vm.resident().shared, 0);
}

/// A large page of shared memory does not affect other shared memory or other blocks: their faults
/// request base pages and do no additional work.
#[test]
fn a_large_page_of_shared_memory_is_looked_for_in_its_block() {
    let count = |collapses: bool| {
        let mut world = Small::new(1 << 13, Thp::new(0, 0, Khugepaged::of(ORDER)));
        let space = world.kernel().create().unwrap();
        let (one, other) = (FIRST, FIRST + 4 * BLOCK);
        for first in [one, other] {
            let all = pages(first..first + 2 * BLOCK);
            world.kernel().map(space, all, RW, Source::SharedMemory, first as u32).unwrap();
        }
        world.store(space, one);
        let child = world.kernel().create().unwrap();
        world.kernel().fork(space, child).unwrap();
        if collapses {
            assert_eq!(world.kernel().collapse(child, pages(one..one + BLOCK), Refused::No), Ok(1));
        }
        world.vm.forget_counts();
        for page in [one + BLOCK, one + BLOCK + 9, other + 3, other + 4, other + BLOCK] {
            world.store(space, page);
        }
        (world.vm.work().table_reads, world.vm.decisions())
    };
    assert_eq!(count(true), count(false));
    assert!(count(true).1.keys().all(|decision| decision.wanted == BASE));
}

/// A child gets the pages of zeros of regions that were stored to, and faults for those of other
/// regions.
#[test]
fn a_fork_copies_what_regions_have_of_their_own() {
    for is_stored in [false, true] {
        let mut world = Small::new(1 << 12, Thp::new(0, 0, Khugepaged::of(ORDER)));
        let space = world.kernel().create().unwrap();
        let all = FIRST..FIRST + BLOCK;
        world.kernel().map(space, pages(all.clone()), RW, Source::Anonymous, 0).unwrap();
        for page in FIRST..FIRST + BLOCK - 1 {
            world.kernel().fault(space, at(page), Kind::Load).unwrap();
        }
        if is_stored {
            world.store(space, FIRST + BLOCK - 1);
        }
        let child = world.kernel().create().unwrap();
        world.kernel().fork(space, child).unwrap();
        let loaded = if is_stored { BLOCK } else { 0 };
        assert_eq!(world.kernel().loaded(child, pages(all)), loaded);
        world.kernel().check().unwrap();
    }
}

/// Regions with different locks stay separate in a child too.
#[test]
fn a_fork_joins_no_regions() {
    let (mut world, space) = one(FIRST..FIRST + BLOCK);
    world.kernel().lock(space, pages(FIRST..FIRST + BLOCK / 2)).unwrap();
    let child = world.kernel().create().unwrap();
    world.kernel().fork(space, child).unwrap();
    assert_eq!(world.vm.regions(child).len(), 2);
}

/// If the source of a move has a hole, the pages at the corresponding target addresses stay.
#[test]
fn a_move_with_a_hole_leaves_what_is_there() {
    let (mut world, space) = one(FIRST..FIRST + 60);
    world.kernel().unmap(space, pages(FIRST + 10..FIRST + 20)).unwrap();
    let from = pages(FIRST..FIRST + 30);
    world.kernel().move_pages(space, from, at(FIRST + 30), from.bytes()).unwrap();
    world.store(space, FIRST + 45);
    let found = world.kernel().fault(space, at(FIRST + 5), Kind::Load);
    assert!(matches!(found, Err(Error::NoRegion(_))));
    world.kernel().check().unwrap();
}

/// Requested pages are brought in without a fault of the process, in the sizes that a fault would
/// choose.
#[test]
fn pages_that_are_asked_for_come_at_once() {
    let (mut world, space) = one(FIRST..FIRST + 2 * BLOCK);
    let all = pages(FIRST..FIRST + 2 * BLOCK);
    world.kernel().prefault(space, all, Some(Kind::Load)).unwrap();
    assert_eq!(world.kernel().loaded(space, all), 2);
    assert_eq!(world.vm.resident().anon, 0);
    world.kernel().prefault(space, all, None).unwrap();
    assert_eq!(world.kernel().loaded(space, all), 2);
    assert_eq!(world.vm.resident().anon, 2 * BLOCK);
    assert_eq!(world.vm.faults().iter().sum::<u64>() + world.vm.work().traps, 0);
    // With a kind, the operation ends at a hole and at a region that forbids the access. Without a
    // kind, it continues after both.
    let (mut world, space) = one(FIRST..FIRST + 30);
    world.kernel().unmap(space, pages(FIRST + 10..FIRST + 12)).unwrap();
    world.kernel().protect(space, pages(FIRST + 20..FIRST + 25), Rights::READ).unwrap();
    let all = pages(FIRST..FIRST + 30);
    world.kernel().prefault(space, all, Some(Kind::Store)).unwrap();
    assert_eq!(world.vm.resident().anon, 10);
    world.kernel().prefault(space, all, None).unwrap();
    assert_eq!(world.kernel().loaded(space, all), 28);
    assert_eq!(world.vm.resident().anon, 23);
    let behind = pages(FIRST + 12..FIRST + 30);
    world.kernel().prefault(space, behind, Some(Kind::Store)).unwrap();
    // Locked pages that may only be read are pages of zeros.
    world.kernel().lock(space, all).unwrap();
    assert_eq!(world.vm.resident().anon, 23);
    world.kernel().check().unwrap();
}

/// The number of wired frames.
fn wired(world: &mut Small) -> usize {
    let table = world.memory.get_mut().table();
    table.frames().filter(|&frame| table.get(FrameId(frame)).wired > 0).count()
}

/// Locks that wire pages on a fault bring no page in. They wire the pages that are in memory, the
/// pages that faults bring in, and the pages that are loaded around a fault on a file
/// (`MLOCK_ONFAULT`, `MCL_ONFAULT`; `mlock_fixup`, `populate_vma_page_range`).
#[test]
fn locks_on_fault_wire_what_comes() {
    let never = Thp::new(0, 0, Khugepaged::of(ORDER));
    let all = pages(FIRST..FIRST + 64);
    let new = |source| {
        let mut world = Small::new(1 << 12, never);
        let space = world.kernel().create().unwrap();
        world.kernel().map(space, all, RW, source, 0).unwrap();
        (world, space)
    };
    let (mut world, space) = new(Source::Anonymous);
    (FIRST..FIRST + 10).for_each(|page| world.store(space, page));
    world.kernel().lock_on_fault(space, all).unwrap();
    assert_eq!(wired(&mut world), 10);
    world.store(space, FIRST + 20);
    // The page of zeros is not wired.
    world.kernel().fault(space, at(FIRST + 30), Kind::Load).unwrap();
    assert_eq!(wired(&mut world), 11);
    world.kernel().check().unwrap();
    // The part by which a region grows has no pages. `mlock` brings in all pages.
    world.kernel().move_pages(space, all, at(FIRST), 80 << BASE.shift()).unwrap();
    assert_eq!(wired(&mut world), 11);
    let all = pages(FIRST..FIRST + 80);
    world.kernel().lock(space, all).unwrap();
    assert_eq!(wired(&mut world), 80);
    // Now the kind of lock is different, but wired pages stay wired.
    world.kernel().lock_on_fault(space, all).unwrap();
    assert_eq!(wired(&mut world), 80);
    assert_eq!(world.vm.regions(space)[0].wired, Wired::OnFault);
    world.kernel().unlock(space, all).unwrap();
    assert_eq!(wired(&mut world), 0);
    world.kernel().check().unwrap();

    // A call that failed at a hole has wired the mapped pages.
    (FIRST..FIRST + 10).for_each(|page| world.store(space, page));
    world.kernel().lock_later(space, all).unwrap();
    assert_eq!(wired(&mut world), 80);

    // In new mappings no page is brought in, even if MAP_POPULATE or MAP_LOCKED requests it.
    let (mut world, space) = new(Source::Anonymous);
    world.store(space, FIRST);
    world.kernel().lock_all(space, Wired::OnFault, Wired::OnFault).unwrap();
    assert_eq!(wired(&mut world), 1);
    let more = pages(FIRST + 64..FIRST + 128);
    world.kernel().map(space, more, RW, Source::Anonymous, 1).unwrap();
    world.kernel().lock_mapping(space, more).unwrap();
    world.kernel().prefault(space, more, None).unwrap();
    assert_eq!(wired(&mut world), 1);
    world.kernel().prefault(space, more, Some(Kind::Store)).unwrap();
    assert_eq!(wired(&mut world), 65);
    world.kernel().lock_all(space, Wired::No, Wired::Now).unwrap();
    let last = pages(FIRST + 128..FIRST + 130);
    world.kernel().map(space, last, RW, Source::Anonymous, 2).unwrap();
    assert_eq!(wired(&mut world), 67);
    world.kernel().check().unwrap();

    // Tests pages of a file around the accessed page.
    let (mut world, space) = new(file(0, false));
    for page in FIRST..FIRST + 16 {
        world.kernel().fault(space, at(page), Kind::Load).unwrap();
    }
    let other = world.kernel().create().unwrap();
    world.kernel().map(other, all, RW, file(0, false), 0).unwrap();
    world.kernel().lock_on_fault(other, all).unwrap();
    world.kernel().fault(other, at(FIRST + 3), Kind::Load).unwrap();
    assert_eq!(wired(&mut world), 16);
    world.kernel().check().unwrap();
}
