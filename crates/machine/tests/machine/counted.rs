//! Compares runs in which some accesses are only counted with runs of the same accesses one by one.
//! All results must be equal.
//!
//! A list of the pages in each first-level TLB, the most recently used one last, plays the part of
//! the recorder. An access to a page in the list is only counted. Any other access is a row of a
//! batch, after a report of the hits of the page that it evicts. At events, and at random times,
//! the hits of all pages are reported. For TLBs with FIFO or random replacement the recorder asks
//! for the contents of the TLBs (`asking`).

mod asking;

use std::collections::VecDeque;

use addr::{Kind, PageSize};
use asking::Asking;
use machine::{
    Machine, Results, RunOptions,
    curve::{Curve, Sampled},
};
use trace::{Batch, Error, Event, Header, Hits, Meta, Replaces, Source, SurePages};

use crate::support::{Row, Rows, Stream, mapping};

const PAGE: u64 = 4096;

/// An element of a batch.
enum Part {
    Row(Kind, u64, u32),
    Event(Event),
    Hits { kind: Kind, page: u64, count: u64, goes: bool },
    Passed(u64),
    Instructions(u64),
}

/// A page in a first-level TLB, and for each kind of access that was reported the number of later
/// uses.
struct Held {
    page: u64,
    counts: [Option<u64>; Kind::COUNT],
    /// The time of the last use, by kind of access.
    used: [u64; Kind::COUNT],
}

impl Held {
    fn last_use(&self) -> u64 {
        self.used.into_iter().max().unwrap()
    }
}

/// Makes the batches for `rows`, while it maintains the lists of pages that the first-level TLBs
/// hold.
struct Teller {
    lists: [Vec<Held>; 2],
    sure: SurePages,
    now: u64,
    passed: u64,
    instructions: u64,
    parts: Vec<Part>,
}

impl Teller {
    fn index(&self, kind: Kind) -> usize {
        usize::from(kind != Kind::Fetch && !self.sure.together)
    }

    /// Counts an access, or adds it to the batch.
    fn access(&mut self, kind: Kind, addr: u64, bytes: u32) {
        let (first, last) = (addr / PAGE * PAGE, (addr + u64::from(bytes) - 1) / PAGE * PAGE);
        let index = self.index(kind);
        let list = &mut self.lists[index];
        self.now += 2;
        let held = list.iter_mut().find(|held| held.page == first);
        if let Some(Held { counts, used, .. }) = held.filter(|_| first == last)
            && let Some(count) = &mut counts[kind as usize]
        {
            *count += 1;
            used[kind as usize] = self.now;
            self.passed += 1;
            self.instructions += 1;
            return;
        }
        let mut pages = vec![first, last];
        pages.dedup();
        let is_new = |page: &&u64| !list.iter().any(|held| held.page == **page);
        let new: Vec<u64> = pages.iter().filter(is_new).copied().collect();
        let is_tight = |&page: &u64| {
            let (set, room) = (self.set_of(index, page), self.room(index, page));
            let here = new.iter().filter(|&&other| self.set_of(index, other) == set).count();
            room > 0 && here > room
        };
        if new.iter().any(is_tight) {
            self.settle();
        }
        for page in pages {
            self.now += 1;
            if !self.lists[index].iter().any(|held| held.page == page) {
                if self.room(index, page) == 0 {
                    self.make_room(index, page);
                }
                self.lists[index].push(Held { page, counts: [None; 3], used: [0; 3] });
            }
            let held = self.lists[index].iter_mut().find(|held| held.page == page).unwrap();
            held.used[kind as usize] = self.now;
            held.counts[kind as usize].get_or_insert(0);
        }
        self.parts.push(Part::Passed(std::mem::take(&mut self.passed)));
        self.parts.push(Part::Row(kind, addr, bytes));
    }

    fn set_of(&self, index: usize, page: u64) -> u64 {
        page / PAGE % u64::from(self.sure.sets[index])
    }

    /// The number of free ways in the set of `page`.
    fn room(&self, index: usize, page: u64) -> usize {
        let set = self.set_of(index, page);
        let held = self.lists[index].iter().filter(|held| self.set_of(index, held.page) == set);
        (self.sure.pages[index] / self.sure.sets[index]) as usize - held.count()
    }

    /// Reports the hits of the least recently used page in the set of `page`, and removes this
    /// page.
    fn make_room(&mut self, index: usize, page: u64) {
        let set = self.set_of(index, page);
        let oldest = (0..self.lists[index].len())
            .filter(|&place| self.set_of(index, self.lists[index][place].page) == set)
            .min_by_key(|&place| self.lists[index][place].last_use())
            .unwrap();
        let Held { page, counts, .. } = self.lists[index].remove(oldest);
        let mut goes = true;
        for kind in Kind::ALL {
            if let Some(count) = counts[kind as usize] {
                let goes = std::mem::take(&mut goes);
                self.parts.push(Part::Hits { kind, page, count, goes });
            }
        }
    }

    /// Reports all hits that were counted, in the order of the last uses.
    fn settle(&mut self) {
        for list in &mut self.lists {
            let mut uses = Vec::new();
            for Held { page, counts, used } in list.drain(..) {
                for kind in Kind::ALL {
                    let count = counts[kind as usize];
                    uses.extend(count.map(|count| (used[kind as usize], kind, page, count)));
                }
            }
            uses.sort_by_key(|&(used, ..)| used);
            let hits = |(_, kind, page, count)| Part::Hits { kind, page, count, goes: false };
            self.parts.extend(uses.into_iter().map(hits));
        }
        self.parts.push(Part::Passed(std::mem::take(&mut self.passed)));
        self.parts.push(Part::Instructions(std::mem::take(&mut self.instructions)));
    }
}

fn parts(rows: &[Row], sure: SurePages, stream: &mut Stream) -> VecDeque<Part> {
    let lists = [Vec::new(), Vec::new()];
    let mut teller = Teller { lists, sure, now: 0, passed: 0, instructions: 0, parts: Vec::new() };
    for row in rows {
        match row {
            Row::Access(kind, addr, bytes) => teller.access(*kind, *addr, *bytes),
            Row::Event(event) => {
                teller.settle();
                teller.parts.push(Part::Event(event.clone()));
            }
            Row::Thread(_) => unreachable!("there is one"),
        }
        if stream.below(3000) == 0 {
            teller.settle();
        }
    }
    teller.settle();
    teller.parts.into()
}

/// A source that returns the parts in small batches.
struct Counted {
    rows: Rows,
    parts: VecDeque<Part>,
    stream: Stream,
}

impl Source for Counted {
    fn header(&self) -> &Header {
        self.rows.header()
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        for _ in 0..1 + self.stream.below(200) {
            let at = batch.len() as u32;
            match self.parts.pop_front() {
                Some(Part::Row(kind, addr, bytes)) => {
                    batch.push(0, addr, Meta::new(kind, bytes, 1))
                }
                Some(Part::Event(event)) => batch.push_event(0, event),
                Some(Part::Hits { kind, page, count, goes }) => {
                    batch.hits.push(Hits { at, thread: 0, kind, page, count, goes });
                }
                Some(Part::Passed(accesses)) => batch.passed.push((at, accesses)),
                Some(Part::Instructions(instructions)) => {
                    batch.push_event(0, Event::Gap { accesses: 0, instructions });
                }
                None => break,
            }
        }
        Ok(!self.parts.is_empty())
    }
}

/// The curve of a sample of the accesses of `source`.
fn curve(source: &mut dyn Source) -> Curve {
    let sizes = [PageSize::SIZE_4K];
    let mut sampled = Sampled::new(source, &sizes, 600);
    let mut batch = Batch::default();
    while sampled.next(&mut batch).unwrap() {}
    sampled.curves(&sizes).remove(0).curve
}

/// The order of counted accesses between two reports is not known. But all of them are to pages in
/// the first-level TLB, so depths in the LRU list differ from the exact depths by at most the
/// number of its entries.
#[test]
fn a_sample_knows_where_counted_accesses_belong() {
    for seed in 1..=20 {
        let mut stream = Stream(seed);
        let rows = program(&mut stream);
        for entries in [4, 16, 30] {
            let replaces = [Replaces::Lru; 2];
            let sure = SurePages { pages: [entries; 2], sets: [1; 2], replaces, together: false };
            let told = curve(&mut Rows::new(rows.clone()));
            let parts = parts(&rows, sure, &mut stream);
            let (rows, stream) = (Rows::new(Vec::new()), Stream(seed));
            let counted = curve(&mut Counted { rows, parts, stream });
            assert_eq!((counted.total, counted.cold), (told.total, told.cold), "seed {seed}");
            let (counted, told): (Vec<_>, Vec<_>) =
                (counted.misses().collect(), told.misses().collect());
            let entries = entries as usize;
            for at in entries..told.len() - entries {
                let between = told[at + entries]..=told[at - entries];
                assert!(
                    between.contains(&counted[at]),
                    "seed {seed}, {entries} held: {} of {at} entries, {between:?}",
                    counted[at]
                );
            }
        }
    }
}

/// Accesses with locality in a changing number of pages. Some accesses cross from one page to the
/// next, and some events flush TLBs.
fn program(stream: &mut Stream) -> Vec<Row> {
    const START: u64 = 0x4000_0000;
    const PAGES: u64 = 256;
    let map = || {
        let (code, data) =
            (mapping(START, PAGES * PAGE), mapping(START + PAGES * PAGE, PAGES * PAGE));
        [code, data]
    };
    let mut rows = Vec::from(map());
    let mut spaces = 1;
    for _ in 0..30 {
        let (pages, first) = (1 + stream.below(80), stream.below(PAGES - 80));
        for _ in 0..stream.below(600) {
            let kind = Kind::ALL[stream.below(3) as usize];
            let region = START + if kind == Kind::Fetch { 0 } else { PAGES * PAGE };
            // Low pages are used more often than high ones.
            let page = first + stream.below(pages) * stream.below(pages) / pages;
            let offset = match stream.below(20) {
                0 => PAGE - 4,
                _ => stream.below(PAGE - 8),
            };
            rows.push(Row::Access(kind, region + page * PAGE + offset, 8));
        }
        let (addr, bytes) = (START + (PAGES + stream.below(PAGES - 9)) * PAGE, 9 * PAGE);
        match stream.below(6) {
            0 => rows.push(Row::Event(Event::Munmap { addr, bytes, result: 0 })),
            1 => rows.push(Row::Event(Event::Mprotect { addr, bytes, prot: 3, result: 0 })),
            2 => {
                let space = stream.below(spaces + 1) as u32;
                rows.push(Row::Event(Event::Run { cpu: None, space }));
                if u64::from(space) == spaces {
                    rows.extend(map());
                    spaces += 1;
                }
            }
            _ => {}
        }
    }
    rows
}

const UNIFIED: &str = "title = \"\"\nsource = \"\"\n\
    [tlb.l1]\nentries = 24\n[tlb.l2]\nentries = 64\nways = 4\n[os]\nsource = \"\"\n";

/// The number of machines that consist of TLBs alone.
const TLBS: usize = 10;

#[test]
fn counted_accesses_are_as_good_as_told_ones() {
    let split = |first: &str, second: &str| {
        let settings = [format!("tlb.l1i.entries={first}"), format!("tlb.l1d.entries={second}")];
        Machine::load("tlb-only", &settings).unwrap()
    };
    let sets = |data: &str, data_ways: &str, code: &str, code_ways: &str| {
        let settings = [("l1d.entries", data), ("l1d.ways", data_ways)];
        let code = [("l1i.entries", code), ("l1i.ways", code_ways)];
        let settings = settings.into_iter().chain(code);
        let settings: Vec<_> = settings.map(|(key, to)| format!("tlb.{key}={to}")).collect();
        Machine::load("tlb-only", &settings).unwrap()
    };
    let with = |setting: &str| Machine::load("tlb-only", &[setting.to_owned()]).unwrap();
    let mut machines = vec![
        split("32", "32"),
        split("16", "17"),
        split("128", "16"),
        with("tlb.l2.entries=32"),
        with("core.asid_bits=2"),
        with("core.contexts=lru"),
        sets("64", "4", "64", "8"),
        sets("24", "8", "18", "6"),
        sets("48", "6", "32", "32"),
        Machine::parse("unified", UNIFIED, "unified", &[]).unwrap(),
    ];
    assert_eq!(machines.len(), TLBS);
    // Hardware that walks page tables is notified only of misses.
    for format in machine::page_table_formats() {
        let table = format!("page_table.format={format}");
        for kind in ["hardware", "software"] {
            for behind in [
                r#"mmu_cache={design="uptc",entries=8}"#,
                "nested.page_size=4K",
                "walker.tracks_dirty=true",
            ] {
                let settings =
                    [&table, &format!("walker.kind={kind}"), &behind.to_owned()].map(String::clone);
                machines.extend(Machine::load("tlb-only", &settings));
            }
        }
    }
    machines.retain(|machine| machine.sure_pages().is_ok());
    assert!(machines.len() > TLBS + 50, "{} machines", machines.len());
    for seed in 1..=40 {
        let mut stream = Stream(seed);
        let rows = program(&mut stream);
        // Of the machines with page tables, each seed runs a twentieth.
        let turn = |&(index, _): &(usize, _)| index < TLBS || index as u64 % 20 == seed % 20;
        for (_, machine) in machines.iter().enumerate().filter(turn) {
            let run = |source: &mut dyn Source| -> Results {
                let options = RunOptions { check: false, progress: &mut |_| true };
                let results = machine.run(source, options);
                let failed = |error| panic!("seed {seed}, {:?}: {error}", machine.settings());
                // The rows in this form belong to no block, so they have no origins to compare.
                Results { origins: None, ..results.unwrap_or_else(failed) }
            };
            let told = run(&mut Rows::new(rows.clone()));
            let parts = parts(&rows, machine.sure_pages().unwrap(), &mut stream);
            let held = parts.iter().filter(|part| matches!(part, Part::Row(..))).count();
            assert!(held * 4 < rows.len() * 3, "seed {seed}: {held} of {} are told", rows.len());
            let rows = Rows::new(Vec::new());
            let counted = run(&mut Counted { rows, parts, stream: Stream(seed) });
            let name = format!("seed {seed}, {} {:?}", machine.name(), machine.settings());
            assert_eq!(counted.tlbs, told.tlbs, "{name}");
            assert_eq!(counted.timeline, told.timeline, "{name}");
            assert!(counted == told, "{name}: {counted:?}, for {told:?}");
        }
    }
}

#[test]
fn tlbs_that_were_asked_need_not_be_told_of_hits() {
    let both = |replaces: [&str; 2], shapes: [&str; 2], more: &[&str]| {
        let mut settings: Vec<String> = more.iter().map(|&more| more.to_owned()).collect();
        for (tlb, (replaces, shape)) in ["l1i", "l1d"].iter().zip(replaces.iter().zip(shapes)) {
            let (entries, ways) = shape.split_once('/').unwrap_or((shape, "full"));
            settings.push(format!("tlb.{tlb}.replacement={replaces}"));
            settings.push(format!("tlb.{tlb}.entries={entries}"));
            settings.push(format!("tlb.{tlb}.ways={ways}"));
        }
        Machine::load("tlb-only", &settings).unwrap()
    };
    let mut machines = vec![both(["fifo", "random"], ["33", "48/6"], &[])];
    for replaces in ["fifo", "random"] {
        let unified =
            UNIFIED.replace("entries = 24", &format!("entries = 24\nreplacement = \"{replaces}\""));
        machines.push(Machine::parse("unified", &unified, "unified", &[]).unwrap());
        for shapes in
            [["32", "32"], ["16", "17"], ["128", "64"], ["64/8", "64/4"], ["24/8", "18/6"]]
        {
            machines.push(both([replaces; 2], shapes, &[]));
        }
        for more in ["tlb.l2.entries=32", "tlb.l2.replacement=random", "core.asid_bits=2"] {
            machines.push(both([replaces; 2], ["20", "32/16"], &[more]));
        }
    }
    let mut answers = 0;
    for seed in 1..=30 {
        let mut stream = Stream(seed);
        let rows = program(&mut stream);
        for machine in &machines {
            let name = format!("seed {seed}, {} {:?}", machine.name(), machine.settings());
            let run = |source: &mut dyn Source| -> Results {
                let options = RunOptions { check: false, progress: &mut |_| true };
                let results = machine.run(source, options);
                let results = results.unwrap_or_else(|error| panic!("{name}: {error}"));
                Results { origins: None, ..results }
            };
            let told = run(&mut Rows::new(rows.clone()));
            let mut asking = Asking::new(rows.clone(), machine.sure_pages().unwrap(), seed);
            let counted = run(&mut asking);
            assert_eq!(counted.tlbs, told.tlbs, "{name}");
            assert!(counted == told, "{name}: {counted:?}, for {told:?}");
            let held = asking.told;
            assert!(held * 4 < rows.len() * 3, "{name}: {held} of {} are told", rows.len());
            answers += asking.answers;
        }
    }
    assert!(answers > 10 * machines.len() * 30, "{answers} answers");
}

/// The recorder gets no answer from a TLB whose replacement depends on hits, because it cannot
/// predict the evictions of such a TLB, and none from a TLB with entries of other sizes.
#[test]
fn what_a_tlb_holds_is_not_told_if_that_says_nothing() {
    for settings in [&[][..], &["tlb.l1d.replacement=nru"], &["tlb.l1i.replacement=tree-plru"]] {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let machine = Machine::load("tlb-only", &settings).unwrap();
        let sure = SurePages {
            pages: [32; 2],
            sets: [1; 2],
            replaces: [Replaces::Fifo; 2],
            together: false,
        };
        let rows = program(&mut Stream(1));
        let mut asking = Asking::new(rows, sure, 1);
        machine.run(&mut asking, RunOptions { check: false, progress: &mut |_| true }).unwrap();
        assert_eq!(asking.answers, 0);
    }
}

#[test]
fn accesses_are_told_where_more_than_tlbs_hears_of_hits() {
    let why = |name: &str, setting: &str| {
        let settings = [setting.to_owned()];
        let settings = if setting.is_empty() { &settings[..0] } else { &settings };
        Machine::load(name, settings).unwrap().sure_pages().unwrap_err()
    };
    for (name, setting, part) in [
        ("tlb-only", "tlb.l1d.replacement=nru", "tlb.l1d replaces by nru, not lru, fifo or random"),
        ("tlb-only", "tlb.l1d.replacement=fifo", "one of tlb.l1i and tlb.l1d replaces by lru"),
        ("tlb-only", "tlb.l1d.ways=2", "tlb.l1d has sets of fewer than 4"),
        ("tlb-only", "tlb.l1d.entries=15", "tlb.l1d has 15 entries"),
        ("tlb-only", "tlb.l1i.entries=129", "tlb.l1i has 129 entries"),
        ("tlb-only", "core.count=2", "core.count"),
        ("tlb-only", "os.page_size=16K", "pages of 16K"),
        ("tlb-only", "os.page_size=2M", "pages of 2M"),
        ("tlb-only", "page_table.format=linear", "read through the TLB"),
        ("opteron-2008", "", "core.fetches"),
        ("epyc-9005", "", "cache.l1"),
    ] {
        let why = why(name, setting);
        assert!(why.contains(part), "{name} {setting}: {why}");
    }
}
