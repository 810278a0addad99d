//! Tests of large pages as in Linux: the streams of the model test with advice, collapses and
//! `khugepaged`, and small scenarios with a few blocks.

use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace};
use pagetable::{Mount, Mounted, SparcReference, SparseMemory};
use physmem::{Contiguous, FrameId, Iceberg, PageBlocks, Physmem, Segment};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vm::{
    Defrag, Hashed, Ingens, Kernel, Khugepaged, Marks, Module, POLICIES, Parts, Physical, Placing,
    Promoter, Ranger, ScanResult, Settings, Source, Thp, Vm, Why,
};

use crate::{
    board::Board,
    tables::{TABLES, Table},
    world::{AnyAllocator, BASE, Large, SIZES, World},
};

/// The order of the large pages of the streams: 256K.
pub(crate) const ORDER: u32 = 6;

/// The settings of the daemon for this order.
const DAEMON: Khugepaged = Khugepaged::of(ORDER);

/// Settings with blocks of 16K and 64K and with large pages, with base pages at faults, and with
/// other daemons.
const KNOBS: [Thp; 7] = [
    Thp { defrag: Defrag::Always, ..Thp::new(1 << ORDER, 0, DAEMON) },
    Thp { use_zero_page: false, defrag: Defrag::Defer, ..Thp::new(0, 1 << ORDER, DAEMON) },
    Thp { defrag: Defrag::Never, ..Thp::new(1 << 2 | 1 << 4, 1 << ORDER, DAEMON) },
    Thp {
        defrag: Defrag::DeferMadvise,
        ..Thp::new(1 << 4 | 1 << ORDER, 1 << 2, Khugepaged { max_ptes_none: 10, ..DAEMON })
    },
    Thp {
        faults: false,
        fault_around: 4,
        promoter: Promoter::Ingens(Ingens {
            util_threshold: 40,
            hot_every: Some(2),
            aggressive_below: 300,
        }),
        ..Thp::new(1 << ORDER, 0, Khugepaged { max_ptes_none: 24, ..DAEMON })
    },
    Thp { faults: false, promoter: Promoter::HawkEye, ..Thp::new(1 << ORDER, 0, DAEMON) },
    Thp {
        placing: Some(Placing { offsets_max: 3, order: 7 }),
        ranger: Some(Ranger { pages_min: 1, moves: 200 }),
        ..Thp::new(1 << ORDER, 0, DAEMON)
    },
];

fn table(name: &str) -> &'static Table {
    TABLES.iter().find(|table| table.name == name).unwrap()
}

/// Runs streams in which an address determines the frames that its page may have: with a hash table
/// over all memory, and with segments at the end of memory for pages of both sizes.
#[test]
fn streams_with_frames_that_addresses_allow() {
    let (mut hashed, mut unhashed) = ([0; 2], [0; 2]);
    for (seed, thp) in (0..).zip(KNOBS).take(6) {
        for frames in [300, 1 << 12] {
            let iceberg = Iceberg::new(0..frames, 5, 2, 2).unwrap();
            let large = frames / 64 * 64 - 128;
            let first = FrameId(large - frames / 8);
            let segments = [
                Some(Segment { first, sets: frames / 16, ways: 2, order: 0 }),
                Some(Segment { first: FrameId(large), sets: 1, ways: 2, order: ORDER }),
            ];
            for (at, of) in [Hashed::Mosaic(iceberg), Hashed::Utopia(segments)].iter().enumerate() {
                println!("seed {seed}, {frames} frames, {of:?}");
                let large = Large::Hashed(thp, *of);
                let mut world =
                    World::with(table("sparc-reference"), "clock", frames.into(), seed, large);
                world.run(600);
                let work = world.vm.work();
                hashed[at] += work.hashed;
                unhashed[at] += work.unhashed;
            }
        }
    }
    assert!(hashed.iter().chain(&unhashed).all(|&count| count > 20), "{hashed:?} {unhashed:?}");
}

/// For each allocation of a stream, repeats the stream with this allocation failing.
#[test]
fn every_allocation_fails_once() {
    let run = |number: u64| {
        let large = Large::Linux(KNOBS[3]);
        let mut world = World::with(table("sparc-reference"), "clock", 300, 9, large);
        world.memory.get_mut().allocator_mut().0.refuse(number);
        world.run(50);
        world.memory.get_mut().allocator().has_refused()
    };
    let refused = (1..).take_while(|&number| run(number)).count();
    assert!(refused > 20, "{refused} allocations were made to fail");
}

#[test]
fn streams_under_every_knob() {
    let (mut work, mut sizes, mut results) = ([0; 2], [0; SIZES.len()], [0; 9]);
    let mut split = 0;
    for name in ["sparc-reference", "irix"] {
        for (seed, thp) in (0..).zip(KNOBS) {
            for (policy, _) in POLICIES {
                for frames in [300, 1 << 12] {
                    println!("{name}, {policy}, seed {seed}, {frames} frames");
                    let table = table(name);
                    let mut world = World::with(table, policy, frames, seed, Large::Linux(thp));
                    world.run(600);
                    for (decision, count) in world.vm.decisions() {
                        let place = SIZES.iter().position(|size| *size == decision.got).unwrap();
                        sizes[place] += count;
                    }
                    let done = world.vm.work();
                    let counts = [done.downgrades, done.upgrades];
                    work.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
                    let scanned = world.vm.scanned().results;
                    results.iter_mut().zip(scanned).for_each(|(all, count)| *all += count);
                    let (held, more) = world.vm.folios();
                    assert_eq!(held, 0, "nothing is mapped any more");
                    split += more;
                }
            }
        }
    }
    assert!(sizes.iter().all(|&pages| pages > 2), "{sizes:?} pages by size");
    assert!(work.iter().all(|&count| count > 8), "splits and collapses: {work:?}");
    assert!(results.iter().filter(|&&count| count > 0).count() >= 7, "{results:?}");
    assert!(split > 20, "{split} folios split");
}

pub(crate) const LARGE: PageSize = SIZES[3];
/// The number of base pages of a large page.
pub(crate) const BLOCK: u64 = 1 << ORDER;
/// The first page of the regions in the small scenarios; the next constant is the number of blocks
/// of the largest region.
pub(crate) const FIRST: u64 = 0x1000;
pub(crate) const BLOCKS: u64 = 4;

/// A kernel over the SPARC reference MMU with pages of 4K and 256K, whose walkers set usage bits.
pub(crate) struct Small {
    pub(crate) vm: Vm,
    pub(crate) hat: Hat,
    pub(crate) memory: Physical<AnyAllocator>,
    pub(crate) board: Board,
    pages: u64,
}

impl Small {
    pub(crate) fn new(pages: u64, thp: Thp) -> Small {
        let memory = Physmem::new(PhysAddr::new(0), pages * BASE.bytes(), BASE, |frames| {
            Box::new(Contiguous::new(PageBlocks::new(frames, ORDER, ORDER + 1), ORDER + 1))
                as AnyAllocator
        });
        let settings = Settings {
            sizes: &[BASE, LARGE],
            swap_pages: 1 << 14,
            thp: Some(thp),
            ..Settings::default()
        };
        let table = Mount::tree(SparcReference::<true>::new(), SparseMemory::new(1 << 34));
        Small {
            vm: Vm::new(settings, pages).unwrap(),
            hat: Hat::new(Box::new(table)),
            memory: Physical::new(memory.unwrap()),
            board: Board::default(),
            pages,
        }
    }

    pub(crate) fn kernel(&mut self) -> Kernel<'_, Parts<dyn Mounted, AnyAllocator, Board>> {
        let Small { vm, hat, memory, board, .. } = self;
        Kernel::new(vm, hat, memory, board)
    }

    /// A space with a region of several blocks, and with a region that is too small for a block.
    pub(crate) fn space(&mut self) -> HatSpace {
        let space = self.kernel().create().unwrap();
        for range in [pages(FIRST..FIRST + BLOCKS * BLOCK), pages(0x800..0x810)] {
            let rights = Rights::READ | Rights::WRITE;
            self.kernel().map(space, range, rights, Source::Anonymous, 0).unwrap();
        }
        space
    }

    pub(crate) fn store(&mut self, space: HatSpace, page: u64) {
        let addr = VirtAddr::new(page << BASE.shift());
        let inner = self.hat.space(space).unwrap();
        if self.hat.table_mut().walk(inner, addr, Kind::Store, &mut Vec::new()).is_err() {
            self.kernel().fault(space, addr, Kind::Store).unwrap();
            let walked = self.hat.table_mut().walk(inner, addr, Kind::Store, &mut Vec::new());
            walked.unwrap();
        }
    }

    pub(crate) fn advise(&mut self, space: HatSpace, page_size: Option<PageSize>) {
        let module = Module { page_size, ..Module::default() };
        let all = pages(FIRST..FIRST + BLOCKS * BLOCK);
        self.kernel().attach(space, all, module).unwrap();
    }

    /// Evicts all pages to swap.
    fn swap_out(&mut self) {
        let all = self.pages;
        self.kernel().set_marks(Marks { min: 0, low: all, high: all }).unwrap();
        while self.kernel().tick() > 0 {}
        assert_eq!(self.vm.resident().anon, 0);
        self.kernel().set_marks(Marks::default()).unwrap();
    }

    /// Whether hardware has a large page at `page`.
    pub(crate) fn is_large(&self, space: HatSpace, page: u64) -> bool {
        let found = self.hat.query(space, VirtAddr::new(page << BASE.shift()));
        found.is_some_and(|found| found.translation.page.size() == LARGE)
    }

    pub(crate) fn free(&mut self) -> u64 {
        self.memory.get_mut().free_bytes() >> BASE.shift()
    }
}

pub(crate) fn pages(pages: core::ops::Range<u64>) -> VirtRange {
    let bytes = (pages.end - pages.start) << BASE.shift();
    VirtRange::new(VirtAddr::new(pages.start << BASE.shift()), bytes).unwrap()
}

fn reasons(vm: &Vm) -> BTreeMap<Why, u64> {
    let mut reasons = BTreeMap::new();
    for (decision, count) in vm.decisions() {
        *reasons.entry(decision.why).or_insert(0) += count;
    }
    reasons
}

/// A slow model of `khugepaged`. A page is a number, to which spaces refer, and a flag that tells
/// whether it is in swap.
#[derive(Default)]
struct Model {
    spaces: BTreeMap<u32, Known>,
    pages: BTreeMap<u64, (u32, bool)>,
    fresh: u64,
    /// The place at which the next pass continues.
    cursor: (u32, u64),
    results: BTreeMap<ScanResult, u64>,
}

#[derive(Clone, Default)]
struct Known {
    pages: BTreeMap<u64, u64>,
    large: [bool; BLOCKS as usize],
    /// Whether a block has a table of base pages, which may be empty.
    tables: [bool; BLOCKS as usize],
}

impl Model {
    fn new_page(&mut self) -> u64 {
        self.fresh += 1;
        self.pages.insert(self.fresh, (1, false));
        self.fresh
    }

    fn release(&mut self, id: u64) {
        let (users, _) = self.pages.get_mut(&id).unwrap();
        *users -= 1;
        if *users == 0 {
            self.pages.remove(&id);
        }
    }

    fn store(&mut self, space: u32, page: u64) {
        let known = self.spaces[&space].clone();
        let block = (page - FIRST) / BLOCK;
        let mut inside = known.pages.range(FIRST + block * BLOCK..FIRST + (block + 1) * BLOCK);
        if inside.any(|(_, id)| self.pages[id].0 > 1) {
            self.spaces.get_mut(&space).unwrap().large[block as usize] = false;
        }
        self.spaces.get_mut(&space).unwrap().tables[block as usize] = true;
        let id = match known.pages.get(&page).copied() {
            None => self.new_page(),
            Some(id) => {
                self.pages.get_mut(&id).unwrap().1 = false;
                if self.pages[&id].0 == 1 {
                    return;
                }
                self.release(id);
                self.new_page()
            }
        };
        self.spaces.get_mut(&space).unwrap().pages.insert(page, id);
    }

    fn discard(&mut self, space: u32, pages: core::ops::Range<u64>) {
        for page in pages.clone() {
            let known = self.spaces.get_mut(&space).unwrap();
            let block = ((page - FIRST) / BLOCK) as usize;
            known.tables[block] |= known.large[block];
            known.large[block] = false;
            if let Some(id) = known.pages.remove(&page) {
                self.release(id);
            }
        }
        for block in 0..BLOCKS {
            let first = FIRST + block * BLOCK;
            if pages.start <= first && first + BLOCK <= pages.end {
                self.spaces.get_mut(&space).unwrap().tables[block as usize] = false;
            }
        }
    }

    fn fork(&mut self, parent: u32, child: u32) {
        let known = self.spaces[&parent].clone();
        known.pages.values().for_each(|id| self.pages.get_mut(id).unwrap().0 += 1);
        self.spaces.insert(child, known);
    }

    fn exit(&mut self, space: u32) {
        for id in self.spaces.remove(&space).unwrap().pages.into_values() {
            self.release(id);
        }
    }

    fn swap_out(&mut self) {
        self.pages.values_mut().for_each(|(_, is_swapped)| *is_swapped = true);
        self.spaces.values_mut().for_each(|known| known.large = Default::default());
    }

    fn scan(&self, space: u32, block: u64, limits: &Khugepaged) -> ScanResult {
        let known = &self.spaces[&space];
        let first = FIRST + block * BLOCK;
        let is_empty = known.pages.range(first..first + BLOCK).next().is_none();
        if is_empty && !known.tables[block as usize] {
            return ScanResult::PmdNone;
        }
        if known.large[block as usize] {
            return ScanResult::PmdMapped;
        }
        let (mut none, mut swapped, mut shared, mut used) = (0, 0, 0, 0);
        for page in first..first + BLOCK {
            let id = known.pages.get(&page);
            match id.map(|id| self.pages[id]) {
                None => none += 1,
                Some((users, true)) => {
                    swapped += 1;
                    if users > 1 {
                        return ScanResult::ExceedSharedPte;
                    }
                }
                Some((users, false)) => {
                    shared += u64::from(users > 1);
                    used += 1;
                }
            }
            for (count, limit, result) in [
                (none, limits.max_ptes_none, ScanResult::ExceedNonePte),
                (swapped, limits.max_ptes_swap, ScanResult::ExceedSwapPte),
                (shared, limits.max_ptes_shared, ScanResult::ExceedSharedPte),
            ] {
                if count > limit {
                    return result;
                }
            }
        }
        match used < if swapped > 0 { BLOCK / 2 } else { 1 } {
            true => ScanResult::LackReferencedPage,
            false => ScanResult::Succeed,
        }
    }

    /// Scans the blocks of all spaces in order, from the place where the last pass ended, as many
    /// as the budget of a pass allows.
    fn pass(&mut self, limits: &Khugepaged) {
        let mut left = limits.pages_to_scan;
        let spaces: Vec<u32> = self.spaces.keys().copied().collect();
        let from = self.cursor;
        let (before, after): (Vec<u32>, Vec<u32>) =
            spaces.into_iter().partition(|space| *space < from.0);
        self.cursor = (0, 0);
        for space in after.into_iter().chain(before) {
            let page = if space == from.0 { from.1 } else { 0 };
            // The small region is at lower addresses.
            if page < 0x810 {
                left -= 1;
                if left == 0 {
                    self.cursor = (space, 0x810);
                    return;
                }
            }
            for block in 0..BLOCKS {
                let first = FIRST + block * BLOCK;
                if first < page {
                    continue;
                }
                let result = self.scan(space, block, limits);
                *self.results.entry(result).or_insert(0) += 1;
                if result == ScanResult::Succeed {
                    self.collapse(space, block);
                }
                left = left.saturating_sub(BLOCK);
                if left == 0 {
                    self.cursor = (space, first + BLOCK);
                    return;
                }
            }
        }
    }

    fn collapse(&mut self, space: u32, block: u64) {
        for page in FIRST + block * BLOCK..FIRST + (block + 1) * BLOCK {
            self.store(space, page);
        }
        self.spaces.get_mut(&space).unwrap().large[block as usize] = true;
    }
}

/// Makes stores, discards, forks, exits and evictions between passes, and compares the result with
/// the slow model.
#[test]
fn khugepaged_does_what_the_slow_model_says() {
    let mut results: BTreeMap<ScanResult, u64> = BTreeMap::new();
    for seed in 0..12 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let khugepaged = Khugepaged {
            defrag: true,
            pages_to_scan: random.random_range(1..400),
            max_ptes_none: random.random_range(0..BLOCK),
            max_ptes_swap: random.random_range(0..BLOCK),
            max_ptes_shared: random.random_range(0..BLOCK),
        };
        println!("seed {seed}, {khugepaged:?}");
        let mut world = Small::new(1 << 13, Thp::new(0, 1 << ORDER, khugepaged));
        let mut model = Model::default();
        let first = world.space();
        model.spaces.insert(first.0, Known::default());
        for _ in 0..150 {
            let known: Vec<u32> = model.spaces.keys().copied().collect();
            let number = known[random.random_range(0..known.len())];
            let space = HatSpace(number);
            let start = FIRST + random.random_range(0..BLOCKS * BLOCK - 90);
            let part = start..start + random.random_range(1..90);
            match random.random_range(0..20) {
                0..9 => part.for_each(|page| {
                    world.store(space, page);
                    model.store(number, page);
                }),
                9..11 => {
                    world.kernel().discard(space, pages(part.clone())).unwrap();
                    model.discard(number, part);
                }
                11 if known.len() < 3 => {
                    let child = world.kernel().create().unwrap();
                    world.kernel().fork(space, child).unwrap();
                    model.fork(number, child.0);
                }
                12 if known.len() > 1 => {
                    world.kernel().exit(space).unwrap();
                    model.exit(number);
                }
                13 => {
                    world.swap_out();
                    model.swap_out();
                }
                _ => {
                    for &number in &known {
                        world.advise(HatSpace(number), Some(LARGE));
                    }
                    world.kernel().khugepaged();
                    model.pass(&khugepaged);
                    for &number in &known {
                        world.advise(HatSpace(number), None);
                    }
                }
            }
            world.kernel().check().unwrap();
            for (&number, known) in &model.spaces {
                for (block, &is_large) in (0..).zip(&known.large) {
                    let page = FIRST + block * BLOCK;
                    let found = world.is_large(HatSpace(number), page);
                    assert_eq!(found, is_large, "block {block} of space {number}");
                }
            }
        }
        let counted = ScanResult::ALL.into_iter().zip(world.vm.scanned().results);
        for (result, count) in counted {
            let expected = model.results.get(&result).copied().unwrap_or(0);
            assert_eq!(count, expected, "{}", result.name());
            *results.entry(result).or_insert(0) += count;
        }
    }
    let met = results.values().filter(|&&count| count > 3).count();
    assert!(met >= 7, "{results:?}");
}

/// Two thirds of a large page are discarded. No frame becomes free until memory is scarce; then
/// exactly these frames are freed.
#[test]
fn what_is_discarded_of_a_large_page_is_held_until_it_is_split() {
    let thp = Thp::new(1 << ORDER, 0, DAEMON);
    let mut world = Small::new(1 << 12, thp);
    let space = world.space();
    world.store(space, FIRST + 3);
    assert!(world.is_large(space, FIRST));
    let free = world.free();
    world.kernel().discard(space, pages(FIRST + 10..FIRST + 50)).unwrap();
    assert!(!world.is_large(space, FIRST));
    assert_eq!(world.vm.folios(), (40, 0));
    // The remaining base pages need a node of the page table.
    let free = {
        assert!(free - world.free() <= 1);
        world.free()
    };
    let want = free + 1;
    world.kernel().set_marks(Marks { min: 0, low: want, high: want }).unwrap();
    assert_eq!(world.kernel().tick(), 40);
    assert_eq!((world.free(), world.vm.folios()), (free + 40, (0, 1)));
    // When the rest of a large page is unmapped too, all its frames are freed without a split.
    world.kernel().set_marks(Marks::default()).unwrap();
    world.store(space, FIRST + BLOCK);
    let free = world.free();
    world.kernel().unmap(space, pages(FIRST + BLOCK..FIRST + BLOCK + 20)).unwrap();
    world.kernel().unmap(space, pages(FIRST + BLOCK + 20..FIRST + 2 * BLOCK)).unwrap();
    assert_eq!(world.vm.folios(), (0, 1));
    assert!(world.free() >= free + BLOCK);
}

/// After a fork, a store to a large page copies one base page and splits only the page of the
/// storing space.
#[test]
fn a_store_to_a_shared_large_page_copies_a_base_page() {
    let thp = Thp::new(1 << ORDER, 0, DAEMON);
    let mut world = Small::new(1 << 12, thp);
    let (parent, child) = (world.space(), world.kernel().create().unwrap());
    world.store(parent, FIRST);
    world.kernel().fork(parent, child).unwrap();
    assert!(world.is_large(parent, FIRST) && world.is_large(child, FIRST));
    let copied = world.vm.work().copied;
    world.store(child, FIRST + 7);
    assert_eq!(world.vm.work().copied - copied, 1);
    assert!(world.is_large(parent, FIRST) && !world.is_large(child, FIRST));
    assert_eq!(reasons(&world.vm)[&Why::Shared], 1);
    // When the space is the last user of the whole large page, it may store to it without a copy.
    world.kernel().exit(child).unwrap();
    world.store(parent, FIRST + 9);
    assert!(world.is_large(parent, FIRST));
    assert_eq!(world.vm.work().copied - copied, 1);
}

/// Stores get blocks of 64K, the largest size that fits.
#[test]
fn smaller_blocks_come_at_stores() {
    let thp = Thp::new(1 << 2 | 1 << 4, 0, DAEMON);
    let mut world = Small::new(1 << 10, thp);
    let space = world.space();
    world.kernel().fault(space, VirtAddr::new(FIRST << 12), Kind::Load).unwrap();
    world.store(space, FIRST + 1);
    world.store(space, FIRST + 4);
    world.store(space, FIRST + 16);
    let got: Vec<(PageSize, Why, u64)> =
        world.vm.decisions().into_iter().map(|(of, count)| (of.got, of.why, count)).collect();
    let [k16, k64] = [SIZES[1], SIZES[2]];
    assert_eq!(
        got,
        [
            // A load and an adjacent store: no block around them is empty.
            (BASE, Why::PolicyAsksBase, 1),
            (BASE, Why::BasePages, 1),
            (k16, Why::BasePages, 1),
            (k64, Why::Obtained, 1)
        ]
    );
}
