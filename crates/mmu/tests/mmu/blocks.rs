//! Compares TLBs whose entries are for blocks of pages with a model, in which an entry lists each
//! of its pages, and with TLBs that have an entry for each page.

use std::collections::BTreeMap;

use addr::{Asid, Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use mmu::{
    ArrayParams, BlockKind, BlockParams, EACH, Evicted, Miss, Policy, Random, SpanTlbs, Tlb,
    TlbCounts, TlbEntry, TlbParams,
};

use crate::model::{Rng, policy::ModelPolicy};

const SMALL: PageSize = PageSize::SIZE_4K;
const LARGE: PageSize = PageSize::SIZE_2M;

type Known = (PhysAddr, Rights);

/// An entry, with a list of its pages.
#[derive(Clone)]
struct Entry {
    size: PageSize,
    block: u64,
    asid: Asid,
    global: bool,
    pages: BTreeMap<u64, Known>,
    label: u32,
    hits: [u64; 3],
}

impl Entry {
    fn serves(&self, asid: Asid) -> bool {
        self.global || self.asid == asid
    }

    fn gone(self, pages_of_block: u64) -> Evicted {
        let page = if self.size == SMALL { self.block * pages_of_block } else { self.block };
        let page = VirtAddr::new(page << self.size.shift()).page(self.size);
        Evicted { page, asid: self.asid, label: self.label, hits: self.hits }
    }
}

/// A model TLB with one array for pages of 4K and 2M, as a list of sets with their ways.
struct Model {
    blocks: BlockParams,
    sets: Vec<(Vec<Option<Entry>>, ModelPolicy)>,
    random: Random,
    counts: TlbCounts,
}

impl Model {
    fn new(params: &TlbParams) -> Model {
        let array = &params.arrays[0];
        let set = || {
            let ways = array.ways as usize;
            (vec![None; ways], ModelPolicy::new(array.replacement, ways))
        };
        Model {
            blocks: params.blocks.unwrap(),
            sets: (0..array.entries / array.ways).map(|_| set()).collect(),
            random: Random::new(array.seed),
            counts: TlbCounts::default(),
        }
    }

    fn block(&self, page: Page) -> u64 {
        if page.size() == SMALL {
            page.number() / u64::from(self.blocks.pages)
        } else {
            page.number()
        }
    }

    fn lookup(&mut self, va: VirtAddr, asid: Asid, kind: Kind) -> Result<(PhysAddr, u32), Miss> {
        let mut found: Option<(PageSize, PhysAddr, Rights, usize, usize)> = None;
        let mut has_tag = false;
        for (s, (ways, _)) in self.sets.iter().enumerate() {
            for (w, entry) in ways.iter().enumerate() {
                let Some(entry) = entry.as_ref().filter(|entry| entry.serves(asid)) else {
                    continue;
                };
                let page = va.page(entry.size);
                has_tag |= entry.block == self.block(page);
                let Some(&(frame, rights)) = entry.pages.get(&page.number()) else { continue };
                assert!(found.is_none_or(|(size, ..)| size != entry.size), "{va} has two entries");
                if found.is_none_or(|(size, ..)| entry.size < size) {
                    let phys = PhysAddr::new(frame.get() + va.offset_in(entry.size));
                    found = Some((entry.size, phys, rights, s, w));
                }
            }
        }
        let miss = match found {
            Some((_, phys, rights, s, w)) if rights.allows(kind) => {
                let (ways, policy) = &mut self.sets[s];
                policy.touched(w);
                let entry = ways[w].as_mut().unwrap();
                entry.hits[kind as usize] += 1;
                self.counts.hits[kind as usize] += 1;
                return Ok((phys, entry.label));
            }
            Some(_) => Miss::Denied,
            None => Miss::Absent,
        };
        self.counts.misses[kind as usize] += 1;
        self.counts.denied += u64::from(miss == Miss::Denied);
        self.counts.tag_hits += u64::from(miss == Miss::Absent && has_tag);
        Err(miss)
    }

    /// The pages that are inserted together with `page`; `table` has all mapped pages.
    fn pages(&self, page: Page, table: &Table) -> BTreeMap<u64, Known> {
        let own = |number: u64| table.small.get(&number).copied();
        let alone = || BTreeMap::from([(page.number(), table.at(page).unwrap())]);
        if page.size() != SMALL || !self.blocks.prefetch {
            return alone();
        }
        let pages = u64::from(self.blocks.pages);
        let block = page.number() / pages * pages..page.number() / pages * pages + pages;
        let (frame, rights) = own(page.number()).unwrap();
        let follows = |number: u64| {
            own(number).is_some_and(|(other, allowed)| {
                let apart = i128::from(other.get()) - i128::from(frame.get());
                apart == (i128::from(number) - i128::from(page.number())) * 4096
                    && allowed == rights
            })
        };
        let is_aligned = frame.get() / 4096 % pages == page.number() % pages;
        let chosen: Vec<u64> = match self.blocks.kind {
            BlockKind::CompleteSubblock => block.filter(|&at| own(at).is_some()).collect(),
            BlockKind::Mosaic => {
                block.filter(|&at| own(at).is_some_and(|(_, of)| of == rights)).collect()
            }
            BlockKind::PartialSubblock if is_aligned => block.filter(|&at| follows(at)).collect(),
            BlockKind::Whole if is_aligned && block.clone().all(follows) => block.collect(),
            BlockKind::PartialSubblock | BlockKind::Whole => return alone(),
            BlockKind::Coalesced => {
                let (mut first, mut last) = (page.number(), page.number());
                while first > block.start && follows(first - 1) {
                    first -= 1;
                }
                while last + 1 < block.end && follows(last + 1) {
                    last += 1;
                }
                (first..=last).collect()
            }
        };
        chosen.into_iter().map(|at| (at, own(at).unwrap())).collect()
    }

    fn fill(
        &mut self,
        page: Page,
        (asid, global): (Asid, bool),
        table: &Table,
        label: u32,
        evicted: &mut Vec<Evicted>,
    ) {
        let (size, block) = (page.size(), self.block(page));
        let mut pages = self.pages(page, table);
        let aligned = |pages: &BTreeMap<u64, Known>| {
            let (number, (frame, rights)) = pages.first_key_value().unwrap();
            (frame.get().wrapping_sub(number * 4096), *rights)
        };
        let kind = self.blocks.kind;
        let whole = u64::from(self.blocks.pages);
        let sets = self.sets.len() as u64;
        let (ways, policy) = &mut self.sets[(block % sets) as usize];
        let mut way = None;
        while let Some(other) = ways.iter().position(|entry| {
            entry.as_ref().is_some_and(|entry| {
                let same = entry.size == size && entry.block == block;
                let joins = joins(entry, (asid, global), size, kind)
                    && (kind == BlockKind::CompleteSubblock
                        || aligned(&entry.pages) == aligned(&pages));
                let overlaps = entry.pages.keys().any(|at| pages.contains_key(at));
                same && (global || entry.serves(asid)) && (joins || overlaps)
            })
        }) {
            let gone = ways[other].take().unwrap();
            let joined = joins(&gone, (asid, global), size, kind)
                && (kind == BlockKind::CompleteSubblock || aligned(&gone.pages) == aligned(&pages));
            if joined {
                for (at, known) in &gone.pages {
                    pages.entry(*at).or_insert(*known);
                }
            }
            evicted.push(gone.gone(whole));
            way = way.or(Some(other));
        }
        let way = way.or_else(|| ways.iter().position(Option::is_none)).unwrap_or_else(|| {
            let way = policy.victim(&mut self.random);
            evicted.push(ways[way].take().unwrap().gone(whole));
            self.counts.evictions += 1;
            way
        });
        if size == SMALL {
            self.counts.block_fills += 1;
            self.counts.block_pages += pages.len() as u64;
        }
        ways[way] = Some(Entry { size, block, asid, global, pages, label, hits: [0; 3] });
        policy.inserted(way, 0, false);
        self.counts.fills += 1;
    }

    fn flush(&mut self, evicted: &mut Vec<Evicted>, goes: impl Fn(&Entry) -> bool) -> u64 {
        let whole = u64::from(self.blocks.pages);
        let mut flushed = 0;
        for way in self.sets.iter_mut().flat_map(|(ways, _)| ways) {
            if way.as_ref().is_some_and(&goes) {
                evicted.push(way.take().unwrap().gone(whole));
                flushed += 1;
            }
        }
        self.counts.flushed += flushed;
        flushed
    }
}

/// Whether an entry is merged with a new entry for the same block.
fn joins(entry: &Entry, whose: (Asid, bool), size: PageSize, kind: BlockKind) -> bool {
    let joined = [BlockKind::CompleteSubblock, BlockKind::PartialSubblock];
    (entry.asid, entry.global) == whose && size == SMALL && joined.contains(&kind)
}

/// The mapped pages, which are the same in all spaces.
#[derive(Default)]
struct Table {
    small: BTreeMap<u64, Known>,
    large: BTreeMap<u64, Known>,
}

impl Table {
    fn at(&self, page: Page) -> Option<Known> {
        let pages = if page.size() == SMALL { &self.small } else { &self.large };
        pages.get(&page.number()).copied()
    }

    /// The page that a walk finds.
    fn page(&self, va: VirtAddr) -> Option<Page> {
        [SMALL, LARGE].map(|size| va.page(size)).into_iter().find(|page| self.at(*page).is_some())
    }

    /// Maps the page at `va`: mostly to the frame after that of the previous page, and often at its
    /// own position in a block of frames.
    fn map(&mut self, rng: &mut Rng, va: VirtAddr) {
        let number = va.page(SMALL).number();
        let before = number.checked_sub(1).and_then(|before| self.small.get(&before).copied());
        let rights = if rng.chance(85) { Rights::ALL } else { Rights::READ | Rights::USER };
        let (frame, rights) = match before {
            Some((before, rights)) if rng.chance(70) => (before.get() + 4096, rights),
            _ if rng.chance(60) => ((rng.below(4) << 30) + number * 4096, rights),
            _ => (rng.below(1 << 28) * 4096, rights),
        };
        if rng.chance(97) {
            self.small.insert(number, (PhysAddr::new(frame), rights));
        } else {
            let frame = PhysAddr::new(rng.below(1 << 18) * LARGE.bytes());
            self.large.insert(va.page(LARGE).number(), (frame, Rights::ALL));
        }
    }

    /// The translations that a refill passes to a TLB with blocks of `pages` pages.
    fn around(&self, page: Page, pages: u64) -> Vec<Option<Known>> {
        let first = page.number() / pages * pages;
        let at = |number: u64| VirtAddr::new(number << page.size().shift()).page(page.size());
        (first..first + pages).map(|number| self.at(at(number))).collect()
    }
}

fn random_params(rng: &mut Rng) -> TlbParams {
    let ways = rng.pick(&[1, 2, 4, 6, 8, 16, 24, 48]);
    let array = ArrayParams {
        page_sizes: vec![SMALL, LARGE],
        entries: ways * rng.pick(&[1, 1, 2, 3, 8]),
        ways,
        replacement: if rng.chance(40) { Policy::Lru } else { rng.pick(&Policy::ALL) },
        seed: rng.next(),
    };
    let blocks = BlockParams {
        pages: rng.pick(&[2, 4, 8, 16, 64]),
        kind: rng.pick(&BlockKind::ALL),
        prefetch: rng.chance(75),
    };
    TlbParams { arrays: vec![array], paired: false, blocks: Some(blocks) }
}

#[test]
fn a_tlb_with_blocks_does_what_a_list_of_all_pages_does() {
    for seed in 0..250 {
        let mut rng = Rng(seed);
        let params = random_params(&mut rng);
        let build = if rng.chance(50) { Tlb::new } else { Tlb::behind_another };
        let (mut tlb, mut model) = (build(&params).unwrap(), Model::new(&params));
        let large = rng.chance(50).then_some(LARGE);
        tlb.favour(SMALL, large);
        let pages = u64::from(params.blocks.unwrap().pages);
        let (reach, spaces) = (rng.pick(&[16, 60, 300, 3000]), rng.pick(&[1, 1, 3]));
        let (mut table, mut asid) = (Table::default(), Asid(0));
        let (mut seen, mut expected): (Vec<Evicted>, Vec<Evicted>) = Default::default();
        let mut clock = 1 << 20;
        for step in 0..1500 {
            let context = || format!("seed {seed}, step {step}, {params:?}");
            if rng.chance(3) {
                asid = Asid(rng.below(spaces) as u16);
            }
            let far = rng.pick(&[0, 0, 1 << 30]);
            let va = VirtAddr::new(far + (rng.below(reach) << 12) + rng.below(4096));
            match rng.below(1000) {
                0..950 => {
                    let kind = rng.pick(&Kind::ALL);
                    if table.page(va).is_none() {
                        table.map(&mut rng, va);
                    }
                    let (mut found, before) = (None, tlb.now());
                    if rng.chance(70)
                        && let Some(span) = tlb.span::<EACH>(asid, (SMALL, large))
                    {
                        clock = clock.max(before) + 1;
                        let serving = |_| Some(span);
                        let time = clock;
                        let granules = (SMALL, large);
                        found = match large {
                            Some(_) => SpanTlbs::<EACH, true>::new(serving, granules, [false; 4])
                                .lookup(va, 1, kind as usize, time),
                            None => SpanTlbs::<EACH, false>::new(serving, granules, [false; 4])
                                .lookup(va, 1, kind as usize, time),
                        };
                        tlb.set_now(time);
                    }
                    let hit = match found {
                        Some(found) => Ok((found.phys, found.label)),
                        None => tlb.lookup(va, asid, kind).map(|hit| (hit.phys, hit.label)),
                    };
                    assert_eq!(hit, model.lookup(va, asid, kind), "{}", context());
                    let page = table.page(va).unwrap();
                    let allows = table.at(page).is_some_and(|(_, rights)| rights.allows(kind));
                    if hit.is_err() && allows {
                        // The entry that forbids the access is flushed first, as a processor does.
                        if hit == Err(Miss::Denied) {
                            tlb.flush_page(va, asid, &mut |gone| seen.push(gone));
                            let covers = |entry: &Entry| {
                                entry.serves(asid)
                                    && entry.pages.contains_key(&va.page(entry.size).number())
                            };
                            model.flush(&mut expected, covers);
                        }
                        let (label, global) = (rng.next() as u32, rng.chance(4));
                        let around = table.around(page, pages);
                        let whose = (asid, global);
                        let gone = &mut |gone| seen.push(gone);
                        assert!(tlb.fill_block(page, whose, &around, label, kind, gone));
                        model.fill(page, whose, &table, label, &mut expected);
                    }
                }
                // Pages are unmapped or moved, and flushed.
                950..975 => {
                    let bytes = rng.pick(&[1, 4096, 3 << 12, 1 << 16, 1 << 22]);
                    let range = VirtRange::new(va, bytes).unwrap();
                    for page in range.pages(SMALL) {
                        table.small.remove(&page.number());
                    }
                    for page in range.pages(LARGE) {
                        table.large.remove(&page.number());
                    }
                    let goes = |entry: &Entry| {
                        let at = |number: u64| VirtAddr::new(number << entry.size.shift());
                        let touches = |number: &u64| {
                            let start = at(*number).get();
                            start <= range.last().get()
                                && range.start().get() < start + entry.size.bytes()
                        };
                        entry.pages.keys().any(touches)
                    };
                    for space in 0..spaces as u16 {
                        let gone = &mut |gone| seen.push(gone);
                        let flushed = tlb.flush_range(range, Asid(space), gone);
                        let of = |entry: &Entry| entry.serves(Asid(space)) && goes(entry);
                        assert_eq!(flushed, model.flush(&mut expected, of), "{}", context());
                    }
                }
                975..985 => {
                    tlb.flush_asid(asid, &mut |gone| seen.push(gone));
                    model.flush(&mut expected, |entry| !entry.global && entry.asid == asid);
                }
                985..990 => {
                    tlb.flush_non_global(&mut |gone| seen.push(gone));
                    model.flush(&mut expected, |entry| !entry.global);
                }
                _ => {
                    let held: Vec<TlbEntry> = tlb.entries().map(|(entry, _)| entry).collect();
                    let all = model.sets.iter().flat_map(|(ways, _)| ways.iter().flatten());
                    let pages: usize = all.map(|entry| entry.pages.len()).sum();
                    assert_eq!(held.len(), pages, "{}", context());
                    for entry in held {
                        assert!(tlb.peek(entry.page.start(), entry.asid).is_some());
                        // One page is searched for; for a range of many pages, all entries are
                        // examined.
                        for pages in [1, 1000] {
                            let range = VirtRange::new(entry.page.start(), pages * SMALL.bytes());
                            let found = tlb.entries_for(range.unwrap(), entry.asid);
                            assert!(
                                found.iter().any(|(found, _)| *found == entry),
                                "{}",
                                context()
                            );
                        }
                    }
                }
            }
            seen.sort_unstable();
            expected.sort_unstable();
            assert_eq!(seen, expected, "{}", context());
            seen.clear();
            expected.clear();
            assert_eq!(tlb.counts(), model.counts, "{}", context());
        }
    }
}

/// The number of misses of a stream of accesses to `table`, without any flush.
fn misses(params: &TlbParams, stream: &[VirtAddr], table: &Table) -> u64 {
    let mut tlb = Tlb::new(params).unwrap();
    let pages = params.blocks.map_or(1, |blocks| u64::from(blocks.pages));
    let mut misses = 0;
    for &va in stream {
        if tlb.lookup(va, Asid(0), Kind::Load).is_err() {
            misses += 1;
            let page = va.page(SMALL);
            if params.blocks.is_some() {
                let around = table.around(page, pages);
                tlb.fill_block(page, (Asid(0), false), &around, 0, Kind::Load, &mut |_| {});
            } else {
                let (frame, rights) = table.at(page).unwrap();
                let entry = TlbEntry::single(page, frame, Asid(0), false, rights);
                tlb.fill(&entry, 0, Kind::Load, &mut |_| {});
            }
        }
    }
    misses
}

/// In a fully associative TLB with LRU replacement and without flushes, entries for blocks never
/// cause additional misses. In a set-associative TLB they can.
#[test]
fn blocks_never_add_a_miss_to_full_lru() {
    let mut fewer = [0; BlockKind::ALL.len()];
    let mut more_in_sets = 0;
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let mut table = Table::default();
        let reach = rng.pick(&[20, 100, 500]);
        for number in 0..reach {
            while !table.small.contains_key(&number) {
                table.map(&mut rng, VirtAddr::new(number << 12));
            }
        }
        let mut at = 0;
        let stream: Vec<VirtAddr> = (0..2000)
            .map(|_| {
                at = if rng.chance(70) { (at + 1) % reach } else { rng.below(reach) };
                VirtAddr::new(at << 12)
            })
            .collect();
        let entries = rng.pick(&[4, 16, 64]);
        let pages = rng.pick(&[2, 4, 8, 16, 64]);
        let params = |blocks: Option<BlockKind>, ways: u32| TlbParams {
            arrays: vec![ArrayParams {
                page_sizes: vec![SMALL],
                entries,
                ways,
                replacement: Policy::Lru,
                seed: 1,
            }],
            paired: false,
            blocks: blocks.map(|kind| BlockParams { pages, kind, prefetch: true }),
        };
        let plain = misses(&params(None, entries), &stream, &table);
        for (kind, fewer) in BlockKind::ALL.into_iter().zip(&mut fewer) {
            let of = misses(&params(Some(kind), entries), &stream, &table);
            assert!(of <= plain, "seed {seed}: {kind:?} of {pages} misses {of} times for {plain}");
            *fewer += usize::from(of < plain);
        }
        let in_sets = misses(&params(None, 2), &stream, &table);
        let of = misses(&params(Some(BlockKind::Coalesced), 2), &stream, &table);
        more_in_sets += usize::from(of > in_sets);
    }
    assert!(fewer.iter().all(|fewer| *fewer > 100), "{fewer:?}");
    assert!(more_in_sets > 0, "pages of a block compete for one set");
}

#[test]
fn blocks_that_cannot_be_are_refused_with_a_reason() {
    let array = ArrayParams {
        page_sizes: vec![SMALL],
        entries: 8,
        ways: 8,
        replacement: Policy::Lru,
        seed: 1,
    };
    for (pages, paired, reason) in [
        (3, false, "a block of 3 pages: write a power of two from 2 to 64"),
        (1, false, "a block of 1 pages: write a power of two from 2 to 64"),
        (128, false, "a block of 128 pages: write a power of two from 2 to 64"),
        (4, true, "an entry maps either a pair or a block: leave paired or blocks out"),
    ] {
        let blocks = Some(BlockParams { pages, kind: BlockKind::Coalesced, prefetch: true });
        let params = TlbParams { arrays: vec![array.clone()], paired, blocks };
        assert_eq!(Tlb::new(&params).unwrap_err().to_string(), reason);
    }
}
