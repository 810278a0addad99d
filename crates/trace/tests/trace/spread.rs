//! Compares traces whose mappings are moved apart with a model that records the contents of each
//! page by its address. After every event the mapped contents must exist, each access must find the
//! same contents as before, and no block may contain two mappings.

use std::collections::{BTreeMap, BTreeSet};

use addr::Kind;
use proptest::prelude::*;
use trace::{
    Aligned, Arch, Batch, Error, Event, Header, KernelLayout, Meta, Origin, Process, Seen, Source,
    Spread, Translation,
};

use crate::common::{Rows, Stream, in_sevens, script};

const PAGE: u64 = 4096;
const BLOCK: u64 = 4 * PAGE;
const FIXED: u32 = 0x10;
const MAY_MOVE: u32 = 1;
const TO_FIXED: u32 = 2;

/// The contents of a page: its mapping, its index in the mapping, and the effects of calls on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Contents {
    mapping: u64,
    index: u64,
    rights: u32,
    advised: u32,
}

/// The pages of one space, by address. Events change them as a kernel would.
#[derive(Clone, Default)]
struct Pages {
    all: BTreeMap<u64, Contents>,
    heap_end: Option<u64>,
}

const HEAP: u64 = 1 << 40;

fn pages(addr: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let first = addr & !(PAGE - 1);
    (first..(addr + bytes).next_multiple_of(PAGE)).step_by(PAGE as usize)
}

impl Pages {
    fn map(&mut self, addr: u64, bytes: u64, mapping: u64, offset: u64, rights: u32) {
        for (nth, page) in pages(addr, bytes).enumerate() {
            let index = offset / PAGE + nth as u64;
            self.all.insert(page, Contents { mapping, index, rights, advised: 0 });
        }
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Mapping { start, bytes, rights, ref origin, offset, .. } => {
                let Origin::Other(name) = origin else { panic!("{origin:?}") };
                let (mapping, offset) = (name.parse().unwrap(), offset.unwrap());
                self.map(start, bytes, mapping, offset, rights.into());
            }
            Event::Mmap { bytes, prot, fd, offset, result, .. } if result >= 0 => {
                self.map(result as u64, bytes, fd as u64, offset, prot);
            }
            Event::Munmap { addr, bytes, result: 0 } => {
                pages(addr, bytes).for_each(|page| {
                    self.all.remove(&page);
                });
            }
            Event::Mprotect { addr, bytes, prot, result: 0 } => {
                for page in pages(addr, bytes) {
                    self.all.entry(page).and_modify(|page| page.rights = prot);
                }
            }
            Event::Madvise { addr, bytes, result: 0, .. } => {
                for page in pages(addr, bytes) {
                    self.all.entry(page).and_modify(|page| page.advised += 1);
                }
            }
            Event::Mremap { addr, old_bytes, new_bytes, result, .. } => {
                let moved: Vec<Contents> =
                    pages(addr, old_bytes).filter_map(|page| self.all.remove(&page)).collect();
                assert_eq!(moved.len() as u64, old_bytes / PAGE, "{event:?}");
                let last = moved[moved.len() - 1];
                for (nth, page) in pages(result as u64, new_bytes).enumerate() {
                    let beyond = (nth + 1).saturating_sub(moved.len()) as u64;
                    let grown = Contents { index: last.index + beyond, ..last };
                    self.all.insert(page, moved.get(nth).copied().unwrap_or(grown));
                }
            }
            Event::Brk { result, .. } => {
                let end = (result as u64).next_multiple_of(PAGE);
                let before = self.heap_end.replace(end).unwrap_or(end);
                (before..end).step_by(PAGE as usize).for_each(|page| {
                    let index = page / PAGE;
                    let grown = Contents { mapping: HEAP, index, rights: 3, advised: 0 };
                    assert!(self.all.insert(page, grown).is_none());
                });
                pages(end, before.saturating_sub(end)).for_each(|page| {
                    self.all.remove(&page);
                });
            }
            Event::Execve { result: 0, .. } => *self = Pages::default(),
            _ => {}
        }
    }
}

/// All spaces, as events describe them.
#[derive(Default)]
struct Spaces {
    all: BTreeMap<u32, Pages>,
    forked: BTreeMap<i64, Pages>,
    here: u32,
}

impl Spaces {
    fn here(&mut self) -> &mut Pages {
        let (here, forked) = (self.here, &mut self.forked);
        self.all.entry(here).or_insert_with(|| forked.remove(&pid(here)).unwrap_or_default())
    }

    fn apply(&mut self, event: &Event) {
        if let Event::Run { space, .. } = *event {
            self.here = space;
        }
        if let Event::Fork { result, .. } = *event {
            let copy = self.here().clone();
            self.forked.insert(result, copy);
        }
        self.here().apply(event);
    }
}

fn pid(space: u32) -> i64 {
    100 + i64::from(space)
}

/// A program that makes random calls to a kernel.
struct Program {
    random: Stream,
    spaces: Spaces,
    next: u64,
    rows: Rows,
    /// The address from which the kernel chooses addresses: downwards, or upwards if it is low.
    base: u64,
    /// The mappings whose addresses the kernel chose.
    apart: BTreeSet<u64>,
    /// Whether mappings grow and move.
    moves: bool,
}

impl Program {
    fn event(&mut self, event: Event) {
        self.spaces.apply(&event);
        self.rows.events.push((self.rows.rows.len() as u64, 0, event));
    }

    fn begin(&mut self) {
        for (start, pages) in [(0x40_0000, 3), (self.base & !0xfff_ffff, 5)] {
            let origin = Origin::Other(self.number().to_string());
            let (bytes, offset) = (pages * PAGE, Some(0));
            self.event(Event::Mapping { start, bytes, rights: 5, origin, offset, file: None });
        }
        self.event(Event::Brk { addr: 0, result: 0x50_0123 });
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The address at which Linux would map `pages` pages.
    fn free(&mut self, pages: u64) -> u64 {
        let known = &self.spaces.here().all;
        let mut at = self.base;
        while (0..pages).any(|page| known.contains_key(&(at + page * PAGE))) {
            at = if self.base >> 46 == 0 { at + PAGE } else { at - PAGE };
        }
        at
    }

    /// A random mapped page.
    fn mapped(&mut self) -> Option<u64> {
        let count = self.spaces.here().all.len() as u64;
        let nth = self.random.below(count.max(1)) as usize;
        self.spaces.here().all.keys().nth(nth).copied()
    }

    /// The number of successive mapped pages from `addr` on, at most `most`.
    fn run(&mut self, addr: u64, most: u64) -> u64 {
        let known = &self.spaces.here().all;
        (0..most).take_while(|page| known.contains_key(&(addr + page * PAGE))).count() as u64
    }

    fn mmap(&mut self, addr: u64, pages: u64, flags: u32, result: u64) {
        let (number, offset) = (self.number(), self.random.below(9) * PAGE);
        if flags & FIXED == 0 {
            self.apart.insert(number);
        }
        let bytes = pages * PAGE - self.random.below(PAGE);
        let (prot, fd, path, file) = (3, number as i32, None, None);
        let result = result as i64;
        self.event(Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result });
    }

    fn step(&mut self) {
        let (what, pages) = (self.random.below(100), 1 + self.random.below(11));
        let bytes = pages * PAGE;
        let Some(addr) = self.mapped() else { return self.begin() };
        match what {
            0..10 => {
                let free = self.free(pages);
                self.mmap(0, pages, 0x22, free);
            }
            10..14 => self.mmap(addr, pages, 0x22 | FIXED, addr),
            14..20 => self.event(Event::Munmap { addr, bytes, result: 0 }),
            20..22 => self.event(Event::Munmap { addr, bytes, result: -22 }),
            22..26 => self.event(Event::Mprotect { addr, bytes, prot: 1, result: 0 }),
            26..28 => self.event(Event::Madvise { addr, bytes, advice: 4, result: 0 }),
            28..33 if self.moves => {
                let old = self.run(addr, pages);
                let wanted = 1 + self.random.below(11);
                let past = addr + old * PAGE;
                let fits = wanted <= old
                    || self.run(past, 1) == 0 && {
                        let known = &self.spaces.here().all;
                        (old..wanted).all(|page| !known.contains_key(&(addr + page * PAGE)))
                    };
                let to = if fits { addr } else { self.free(wanted) };
                let (old_bytes, new_bytes) = (old * PAGE, wanted * PAGE);
                let (flags, new_addr, result) = (MAY_MOVE, 0, to as i64);
                self.event(Event::Mremap { addr, old_bytes, new_bytes, flags, new_addr, result });
            }
            33 if self.moves => {
                // Onto something else.
                let Some(onto) = self.mapped() else { return };
                let old = self.run(addr, pages);
                if onto.abs_diff(addr) >= 16 * PAGE {
                    let (old_bytes, new_bytes) = (old * PAGE, bytes);
                    let (flags, new_addr, result) = (MAY_MOVE | TO_FIXED, onto, onto as i64);
                    let event =
                        Event::Mremap { addr, old_bytes, new_bytes, flags, new_addr, result };
                    self.event(event);
                }
            }
            34..36 => {
                let end: u64 = 0x50_0000 + self.random.below(64 << 10);
                let known = self.spaces.here();
                let before = known.heap_end.unwrap_or(0);
                if (before..end.next_multiple_of(PAGE))
                    .step_by(PAGE as usize)
                    .any(|page| known.all.contains_key(&page))
                {
                    return;
                }
                self.event(Event::Brk { addr: end, result: end as i64 });
            }
            36 if self.random.below(4) == 0 => {
                self.event(Event::Execve { path: "x".to_owned(), result: 0 });
                self.begin();
            }
            37 if self.spaces.all.len() < 4 => self.fork(),
            38..40 => {
                let others = self.spaces.all.len() as u64;
                let space = self.random.below(others) as u32;
                self.event(Event::Run { cpu: None, space });
            }
            _ => {
                for nth in 0..self.random.below(4) {
                    let addr = self.mapped().unwrap_or(addr) + self.random.below(PAGE);
                    // Some accesses are to addresses that no event reports.
                    let addr = if nth == 3 { 0x7fff_0000 + addr % (64 * PAGE) } else { addr };
                    self.rows.rows.push((0, addr, Meta::new(Kind::Load, 4, 1), None));
                }
            }
        }
    }

    /// Forks a child, which has the contents of its parent, and adds events of its mappings.
    fn fork(&mut self) {
        let space = self.spaces.all.len() as u32;
        self.event(Event::Fork { result: pid(space), flags: 17 });
        let known: Vec<(u64, Contents)> =
            self.spaces.here().all.iter().map(|(&at, &page)| (at, page)).collect();
        let heap_end = self.spaces.here().heap_end;
        self.event(Event::Run { cpu: None, space });
        for (start, Contents { mapping, index, rights, .. }) in known {
            let (origin, offset) = (Origin::Other(mapping.to_string()), Some(index * PAGE));
            let (bytes, rights) = (PAGE, rights as u8);
            self.event(Event::Mapping { start, bytes, rights, origin, offset, file: None });
        }
        let result = heap_end.unwrap_or(0x50_0000) as i64;
        self.event(Event::Brk { addr: 0, result });
    }
}

/// A source with processes.
struct Family(Box<dyn Source + Send>, Vec<Process>);

impl Source for Family {
    fn header(&self) -> &Header {
        self.0.header()
    }
    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        self.0.next(batch)
    }
    fn processes(&self) -> &[Process] {
        &self.1
    }
}

fn process(number: u32) -> Process {
    Process {
        number,
        pid: pid(number) as u32,
        parent: number.checked_sub(1),
        parent_accesses: None,
        shares_space: false,
        began_ns: 0,
        programs: Vec::new(),
        accesses: 0,
        instructions: 0,
    }
}

/// Checks that no block contains two mappings that were moved apart, except parts that were mapped
/// over others or moved there. Returns the number of blocks with a mapping.
fn check_apart(pages: &Pages, apart: &BTreeSet<u64>, seed: u64) -> usize {
    let mut blocks: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (page, contents) in &pages.all {
        if apart.contains(&contents.mapping) {
            blocks.entry(page / BLOCK).or_default().insert(contents.mapping);
        }
    }
    for (block, mappings) in &blocks {
        assert_eq!(mappings.len(), 1, "seed {seed}: {mappings:?} at {:#x}", block * BLOCK);
    }
    blocks.len()
}

/// Checks a program of `steps` random steps. Returns the number of accesses whose address changed,
/// and the number of compared blocks.
fn check(seed: u64, steps: u64, moves: bool, kernel: Option<KernelLayout>) -> (usize, usize) {
    let base = if seed.is_multiple_of(2) { 0x40_0200_3000 } else { 0x7fff_f7fd_1000 };
    let mut program = Program {
        random: Stream(seed),
        spaces: Spaces::default(),
        next: 0,
        rows: Rows::default(),
        base,
        apart: BTreeSet::new(),
        moves,
    };
    program.begin();
    for _ in 0..steps {
        program.step();
    }
    let all = program.rows;
    let processes = (0..4).map(process).collect();
    let source: Box<dyn Source> = Box::new(Family(in_sevens(&all), processes));
    let mut source = match kernel {
        Some(how) => Spread::as_kernel(source, how).unwrap(),
        None => Spread::new(source, BLOCK).unwrap(),
    };
    let found = Rows::of(&mut source, 0).unwrap();
    assert_eq!(found.rows.len(), all.rows.len());

    let (mut before, mut after) = (Spaces::default(), Spaces::default());
    let mut changed = found.events.iter().peekable();
    let mut recorded = all.events.iter().peekable();
    let (mut moved, mut blocks) = (0, 0);
    for index in 0..=all.rows.len() {
        let (mut asked, mut given) = (Vec::new(), Vec::new());
        while let Some((_, _, event)) = recorded.next_if(|event| event.0 <= index as u64) {
            before.apply(event);
            asked.push(event);
        }
        while let Some((_, _, event)) = changed.next_if(|event| event.0 <= index as u64) {
            after.apply(event);
            given.push(event);
        }
        let contents = |spaces: &mut Spaces| {
            let mut all: Vec<Contents> = spaces.here().all.values().copied().collect();
            all.sort();
            all
        };
        let are_equal = contents(&mut before) == contents(&mut after);
        assert!(are_equal, "seed {seed}, access {index}: {asked:x?} became {given:x?}");
        if !moves && kernel.is_none() {
            blocks += check_apart(after.here(), &program.apart, seed);
        }
        let Some(((_, old, ..), (_, new, ..))) = all.rows.get(index).zip(found.rows.get(index))
        else {
            continue;
        };
        assert_eq!(old % PAGE, new % PAGE);
        let [was, is] = [(&mut before, old), (&mut after, new)]
            .map(|(spaces, addr)| spaces.here().all.get(&(addr & !(PAGE - 1))).copied());
        match was {
            Some(_) => assert_eq!(was, is, "seed {seed}: {old:#x} became {new:#x}"),
            None => assert_eq!(old, new, "seed {seed}"),
        }
        moved += usize::from(old != new);
    }
    (moved, blocks)
}

#[test]
fn everything_is_found_where_it_went() {
    let (mut moved, mut blocks) = (0, 0);
    for seed in 1..=60 {
        let (rows, apart) = check(seed, 400, seed % 3 != 0, None);
        moved += rows;
        blocks += apart;
    }
    assert!(moved > 1000 && blocks > 1000, "{moved} accesses, {blocks} blocks");
}

#[test]
fn everything_is_found_where_a_kernel_would_place_it() {
    let mut moved = 0;
    for seed in 1..=60 {
        let aligned = [Aligned::Nothing, Aligned::Long, Aligned::Multiples][seed as usize % 3];
        let how = KernelLayout { seed: (seed % 2 == 0).then_some(seed), aligned };
        moved += check(seed, 400, seed % 3 != 0, Some(how)).0;
    }
    assert!(moved > 1000, "{moved} accesses");
}

/// The addresses that Linux 6.18 gives to a program without address-space randomisation (`setarch
/// -R`).
#[test]
fn memory_lies_where_linux_places_it() {
    const LARGE: u64 = 2 << 20;
    let mut all = Rows::default();
    let mut at = 0x4000_0000_0000;
    let mut wanted = Vec::new();
    // The mapping gets the highest free addresses, which are aligned to 2M if the length is a
    // multiple of 2M.
    for (bytes, expected) in [
        (0x3000, 0x7fff_f7ff_c000),
        (LARGE, 0x7fff_f7c0_0000),
        (5 << 20, 0x7fff_f770_0000),
        (0x1000, 0x7fff_f7ff_b000),
        (3 * LARGE, 0x7fff_f700_0000),
    ] {
        let (addr, prot, flags, fd, offset) = (0, 3, 0x22, -1, 0);
        let (path, file, result) = (None, None, at as i64);
        let event = Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result };
        all.events.push((0, 0, event));
        all.rows.push((0, at, Meta::new(Kind::Load, 8, 1), None));
        wanted.push(expected);
        at += bytes.next_multiple_of(LARGE) + 0x5000;
    }
    let how = KernelLayout { seed: None, aligned: Aligned::Multiples };
    let found = Rows::of(&mut Spread::as_kernel(in_sevens(&all), how).unwrap(), 0).unwrap();
    let addrs: Vec<u64> = found.rows.iter().map(|row| row.1).collect();
    assert_eq!(addrs, wanted, "{addrs:x?}");
}

proptest! {
    #[test]
    fn any_events_are_taken(
        script in script(60),
        wild in prop::collection::vec((0u8..6, any::<u64>(), any::<u64>(), any::<i64>()), 0..30),
    ) {
        let mut sink = trace::Batcher::new();
        script.play(&mut sink).unwrap();
        for (what, addr, bytes, result) in wild {
            let (flags, file, path) = (addr as u32, None, None);
            let event = match what {
                0 => Event::Mmap { addr, bytes, prot: 3, flags, fd: 0, offset: bytes, path, file, result },
                1 => Event::Munmap { addr, bytes, result: result & 1 },
                2 => Event::Brk { addr, result },
                3 => {
                    let new_bytes = addr >> 40;
                    Event::Mremap { addr, old_bytes: bytes, new_bytes, flags, new_addr: bytes, result }
                }
                4 => Event::Shmat { id: 1, addr, flags, bytes: Some(bytes), file, result },
                _ => Event::Madvise { addr, bytes, advice: 4, result: 0 },
            };
            trace::Sink::event(&mut sink, 0, event).unwrap();
        }
        sink.finish();
        let mut all = Rows::default();
        let mut batch = Batch::default();
        while sink.take(&mut batch) {
            batch.first = all.rows.len() as u64;
            all.extend(&batch, 0);
        }
        all.extend(&batch, 0);
        let mut spread = Spread::new(in_sevens(&all), 2 << 20).unwrap();
        match Rows::of(&mut spread, 0) {
            Ok(found) => prop_assert_eq!(found.rows.len(), all.rows.len()),
            Err(error) => prop_assert!(error.to_string().contains("no room for the"), "{}", error),
        }
    }
}

#[test]
fn translations_go_where_their_pages_went() {
    let mut all = Rows::default();
    let mut event = |event| all.events.push((0, 0, event));
    let (first, second) = (0x7f00_0020_0000, 0x7f00_0060_0000);
    for (result, bytes) in [(first, 0x40_0000), (second, 0x1000)] {
        let (addr, prot, flags, fd, offset) = (0, 3, 0x22, -1, 0);
        let (path, file) = (None, None);
        let result = result as i64;
        event(Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result });
    }
    // One run covers both mappings and two base pages before them. One page is larger than any
    // mapping.
    let base = Translation::base(Seen::Snapshot, first - 0x2000);
    let run = Translation { pages: 2 + 0x400 + 1, paddr: Some(0x1000_0000), ..base.clone() };
    let large = Translation { addr: first, page_bytes: 2 << 20, pages: 2, ..base.clone() };
    let larger = Translation { addr: 0x7f00_0000_0000, page_bytes: 1 << 30, ..base };
    for found in [&run, &large, &larger] {
        event(Event::Translation(Box::new(found.clone())));
    }
    all.rows.push((0, first, Meta::new(Kind::Load, 8, 1), None));
    let mut spread = Spread::new(in_sevens(&all), 2 << 20).unwrap();
    let found = Rows::of(&mut spread, 0).unwrap();
    let mapped: Vec<u64> = found
        .events
        .iter()
        .filter_map(|(_, _, event)| match event {
            Event::Mmap { result, .. } => Some(*result as u64),
            _ => None,
        })
        .collect();
    let translations: Vec<&Translation> = found
        .events
        .iter()
        .filter_map(|(_, _, event)| match event {
            Event::Translation(found) => Some(&**found),
            _ => None,
        })
        .collect();
    let at = |addr: u64| {
        let holds = |found: &&&Translation| {
            found.page_bytes == 4096 && addr.wrapping_sub(found.addr) < found.pages * 4096
        };
        let found = translations.iter().find(holds).unwrap();
        found.paddr.unwrap() + (addr - found.addr)
    };
    assert_eq!(at(first - 0x2000), 0x1000_0000);
    assert_eq!(at(mapped[0]), 0x1000_2000);
    assert_eq!(at(mapped[0] + 0x3f_f000), 0x1000_2000 + 0x3f_f000);
    assert_eq!(at(mapped[1]), 0x1000_2000 + 0x40_0000);
    let large: Vec<_> = translations.iter().filter(|found| found.page_bytes > 4096).collect();
    assert_eq!(large.len(), 1, "{large:?}");
    assert_eq!((large[0].addr, large[0].pages), (mapped[0], 2));
}

#[test]
fn a_librarys_parts_stay_together() {
    let mut all = Rows::default();
    let mut event = |event| all.events.push((0, 0, event));
    let map = |addr, bytes, flags, offset, result| Event::Mmap {
        addr,
        bytes,
        prot: 5,
        flags,
        fd: 3,
        offset,
        path: Some("libc.so.6".to_owned()),
        file: None,
        result,
    };
    event(map(0, 0x1d_0000, 2, 0, 0x7f00_1234_5000));
    event(map(0x7f00_1236_b000, 0x15_5000, 2 | FIXED, 0x2_6000, 0x7f00_1236_b000));
    // The next mapping would begin at the end of the first one.
    event(map(0, 0x3000, 2, 0x5000, 0x7f00_1234_2000));
    for addr in [0x7f00_1234_5010, 0x7f00_1236_b020, 0x7f00_1234_2030, 0x7fff_0000_0000] {
        all.rows.push((0, addr, Meta::new(Kind::Load, 8, 1), None));
    }
    let found = Rows::of(&mut Spread::new(in_sevens(&all), 2 << 20).unwrap(), 0).unwrap();
    let addrs: Vec<u64> = found.rows.iter().map(|row| row.1).collect();
    // The mappings are placed downwards. Each has the distance from a multiple of 2M that its file
    // offset has.
    let expected = [0x7f00_1220_0010, 0x7f00_1222_6020, 0x7f00_1200_5030, 0x7fff_0000_0000];
    assert_eq!(addrs, expected);
}

#[test]
fn room_that_is_given_back_is_taken_again() {
    let mut all = Rows::default();
    let base = 0x7f00_0000_0000;
    for nth in 0..1000 {
        // Two pages are mapped, and the older one is unmapped.
        let start = base - nth % 3 * PAGE;
        let (addr, bytes, prot, flags, fd) = (0, PAGE, 3, 0x22, -1);
        let (offset, path, file, result) = (0, None, None, start as i64);
        let event = Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result };
        all.events.push((nth, 0, event));
        all.rows.push((0, start, Meta::new(Kind::Load, 8, 1), None));
        let addr = base - (nth + 2) % 3 * PAGE;
        all.events.push((nth + 1, 0, Event::Munmap { addr, bytes, result: 0 }));
    }
    let found = Rows::of(&mut Spread::new(in_sevens(&all), BLOCK).unwrap(), 0).unwrap();
    let blocks: BTreeSet<u64> = found.rows.iter().map(|row| row.1 / BLOCK).collect();
    assert_eq!(blocks.len(), 2);
}

#[test]
fn what_cannot_be_put_apart_is_refused() {
    for block in [0, 4096, 3 << 20, 2 << 30] {
        let error = Spread::new(in_sevens(&Rows::default()), block).err().unwrap().to_string();
        assert!(error.contains("a power of two from 8K to 1G"), "{error}");
    }
    // 32 bits hold 2048 blocks of 2M.
    let mut all = Rows::default();
    for nth in 0..2048 {
        let (addr, result) = (0, 0x4000_0000 + nth * 0x1000);
        let (bytes, prot, flags, fd) = (PAGE, 3, 0x22, -1);
        let (offset, path, file) = (0, None, None);
        let event = Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result };
        all.events.push((0, 0, event));
    }
    all.rows.push((0, 0, Meta::new(Kind::Load, 8, 1), None));
    struct Narrow(Box<dyn Source + Send>, Header);
    impl Source for Narrow {
        fn header(&self) -> &Header {
            &self.1
        }
        fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
            self.0.next(batch)
        }
    }
    let source = in_sevens(&all);
    let header = Header { arch: Arch::I386, ..source.header().clone() };
    let narrow: Box<dyn Source> = Box::new(Narrow(source, header.clone()));
    let error = Rows::of(&mut Spread::new(narrow, 2 << 20).unwrap(), 0).err().unwrap().to_string();
    assert!(error.contains("no room for the 4096 bytes that were mapped at 0x40"), "{error}");
    let filtered = Header { filter: trace::Filter::Page16, ..header };
    let filtered: Box<dyn Source> = Box::new(Narrow(in_sevens(&all), filtered));
    assert!(Spread::new(filtered, 2 << 20).err().unwrap().to_string().contains("filter"));
}
