//! Compares managed memory with a model that records where every page is: swapping, forks, shared
//! files, locks. `PAGEWALK_LIFE_SEEDS=4000` runs more streams than usual. Seed 161 tests that `2q`
//! drops freed pages from its list of evicted pages.

mod lists;
mod model;

use addr::Kind;
use lists::Policy;
use machine::{Machine, Results, RunOptions};
use model::{Behind, Counts, HOW, Machinery, Model, Sizes, Tables};
use trace::{Call, Descriptor, Event, FileId, FileKind};

use crate::support::{Row, Rows, Stream, TABLES, process};

const BASE: u64 = 0x4000_0000;
/// The number of pages. The entries of all pages are in one table of the lowest level.
const PAGES: u64 = 90;
const SPACES: u32 = 3;

const MACHINE: &str = r#"
title = "a machine whose TLB hits only where a page is used twice in a row"
source = "none"
[core]
fetches = false
asid_bits = 8
cycles_per_instruction = 1.0
source = "none"
[tlb.l1]
entries = 1
ways = "full"
replacement = "lru"
page_sizes = ["4K"]
source = "none"
[page_table]
format = "x86-64"
source = "none"
[walker]
kind = "hardware"
source = "none"
[memory]
size = "1M"
latency_cycles = 1
source = "none"
[os]
manager = "base"
page_size = "4K"
source = "none"
[swap]
size = "1M"
source = "none"
"#;

const BITS: Machinery<'static> =
    Machinery { settings: &[], policy: Policy::Clock, has_bits: true, tables: Tables::Levels(4) };

/// Each policy with reference bits that hardware sets, and with faults instead of such bits; tables
/// of two, four and five levels.
const MACHINES: [Machinery<'static>; 6] = [
    BITS,
    Machinery { policy: Policy::Lru, ..BITS },
    Machinery { policy: Policy::TwoQueues, ..BITS },
    Machinery {
        settings: &["walker.kind=software", "walker.refill_cycles=1"],
        has_bits: false,
        ..BITS
    },
    Machinery {
        settings: &["walker.kind=software", "walker.refill_cycles=1", "page_table.format=x86-32"],
        policy: Policy::Lru,
        has_bits: false,
        tables: Tables::Levels(2),
    },
    Machinery {
        settings: &["walker.kind=software", "walker.refill_cycles=1", "page_table.levels=5"],
        policy: Policy::TwoQueues,
        has_bits: false,
        tables: Tables::Levels(5),
    },
];

fn addr(page: u64) -> u64 {
    BASE + page * 4096
}

fn file_id(file: u64) -> FileId {
    FileId { device: 1, inode: file, bytes: 1 << 20 }
}

/// The number of the first page, and the number of pages.
type Pages = (u64, u64);

/// A step of a stream. A step that is impossible at its position is skipped.
#[derive(Clone, Copy, Debug)]
enum Step {
    Access(u64, bool),
    Map(Pages, bool, Behind),
    Unmap(Pages),
    Protect(Pages, (bool, bool)),
    Discard(Pages),
    /// The pages, the new first page, and the new number of pages.
    Move(Pages, u64, u64),
    Lock(Pages),
    Unlock,
    Fork,
    Exit,
    Run(u32),
    /// A file, its page, whether the page is written (or read), and whether all of the page is.
    Transfer(u64, u64, bool, bool),
}

fn steps(stream: &mut Stream, count: u64) -> Vec<Step> {
    let mut steps = vec![Step::Map((0, PAGES), true, Behind::Zeros)];
    let mut memories = 0;
    for _ in 0..count {
        let first = stream.below(PAGES);
        let pages = (first, 1 + stream.below((PAGES - first).min(12)));
        let step = match stream.below(90) {
            0 => Step::Unmap(pages),
            1..=4 => {
                let (file, first) = (stream.below(2), stream.below(20));
                memories += 1;
                let behind = match stream.below(5) {
                    0 | 1 => Behind::Zeros,
                    2 => Behind::Private(file, first),
                    3 => Behind::Shared(file, first),
                    _ => Behind::Memory(memories, 0),
                };
                Step::Map(pages, stream.below(4) > 0, behind)
            }
            5 | 6 => {
                let rights = [(false, false), (true, false), (true, true), (true, true)];
                Step::Protect(pages, rights[stream.below(4) as usize])
            }
            7 => Step::Discard(pages),
            8 => {
                let count = 1 + stream.below(pages.1 + 3);
                Step::Move(pages, stream.below(PAGES - count), count)
            }
            9 if stream.below(3) == 0 => Step::Lock((first, pages.1.min(2))),
            10 => Step::Unlock,
            11 => Step::Fork,
            12 if stream.below(4) == 0 => Step::Exit,
            13..=18 => Step::Run(stream.below(SPACES.into()) as u32),
            19 | 20 => {
                let (file, index) = (stream.below(2), stream.below(30));
                Step::Transfer(file, index, stream.below(2) == 0, stream.below(2) == 0)
            }
            _ => {
                for _ in 0..stream.below(10) {
                    let far = stream.below(3) == 0;
                    let page =
                        if far { stream.below(PAGES) } else { (first + stream.below(6)) % PAGES };
                    steps.push(Step::Access(page, stream.below(2) == 0));
                }
                continue;
            }
        };
        steps.push(step);
    }
    steps
}

/// Applies the steps to the rows of a trace and to the model.
struct Life<'a> {
    rows: Vec<Row>,
    model: Model<'a>,
    space: u32,
    forked: u32,
    last: u64,
}

impl Life<'_> {
    fn event(&mut self, event: Event) {
        self.rows.push(Row::Event(event));
    }

    fn step(&mut self, step: Step) {
        let space = self.space;
        let range = |(first, count): Pages| (addr(first), count * 4096);
        match step {
            Step::Access(page, store) => {
                // An access to the page of the previous access would hit in the TLB, so it is left
                // out.
                if page != self.last && self.model.allows(space, page, store) {
                    self.last = page;
                    let kind = if store { Kind::Store } else { Kind::Load };
                    self.rows.push(Row::Access(kind, addr(page) + 8 * page, 8));
                    self.model.access(space, page, store);
                }
            }
            Step::Map(pages, store, behind) => {
                self.event(mmap(range(pages), store, behind));
                self.model.map(space, pages, store, behind);
            }
            Step::Unmap(pages) => {
                let (addr, bytes) = range(pages);
                self.event(Event::Munmap { addr, bytes, result: 0 });
                self.model.unmap(space, pages);
            }
            Step::Protect(pages, rights) => {
                let (addr, bytes) = range(pages);
                let prot = u32::from(rights.0) | u32::from(rights.1) << 1;
                self.event(Event::Mprotect { addr, bytes, prot, result: 0 });
                self.model.protect(space, pages, rights);
            }
            Step::Discard(pages) => {
                let (addr, bytes) = range(pages);
                self.event(Event::Madvise { addr, bytes, advice: 4, result: 0 });
                self.model.discard(space, pages);
            }
            Step::Move((first, count), to, new) => {
                if to < first + count.max(new) && first < to + new {
                    return;
                }
                let ((from, old_bytes), (new_addr, new_bytes)) =
                    (range((first, count)), range((to, new)));
                let result = new_addr as i64;
                self.event(Event::Mremap {
                    addr: from,
                    old_bytes,
                    new_bytes,
                    flags: 3,
                    new_addr,
                    result,
                });
                self.model.remap(space, (first, count), to, new);
            }
            Step::Lock(pages) => {
                let (addr, bytes) = range(pages);
                self.event(Event::Mlock { addr, bytes, flags: 0, result: 0 });
                self.model.lock(space, pages);
            }
            Step::Unlock => {
                let (addr, bytes) = range((0, PAGES));
                self.event(Event::Munlock { addr, bytes, result: 0 });
                self.model.unlock(space, (0, PAGES));
            }
            Step::Fork if self.forked + 1 < SPACES => {
                self.forked += 1;
                self.event(Event::Fork { result: 100 + i64::from(self.forked), flags: 0 });
                self.model.fork(space);
            }
            Step::Fork => {}
            Step::Exit => {
                self.event(Event::Exit { status: 0, group: true });
                self.model.end(space);
            }
            Step::Run(space) if space <= self.forked => {
                self.space = space;
                self.event(Event::Run { cpu: None, space });
                self.model.enter(space);
            }
            Step::Run(_) => {}
            Step::Transfer(file, index, write, whole) => {
                self.event(transfer(file, index * 4096, write, if whole { 4096 } else { 100 }));
                self.model.transfer(file, index, write, whole);
            }
        }
    }
}

fn mmap((start, bytes): (u64, u64), store: bool, behind: Behind) -> Event {
    let (flags, file) = match behind {
        Behind::Zeros => (0x22, None),
        Behind::Memory(..) => (0x21, None),
        Behind::Private(file, first) => (2, Some((file, first))),
        Behind::Shared(file, first) => (1, Some((file, first))),
    };
    Event::Mmap {
        addr: start,
        bytes,
        prot: if store { 3 } else { 1 },
        flags,
        fd: if file.is_some() { 3 } else { -1 },
        offset: file.map_or(0, |(_, first)| first * 4096),
        path: None,
        file: file.map(|(file, _)| file_id(file)),
        result: start as i64,
    }
}

/// A call that reads or writes `bytes` bytes of a file.
fn transfer(file: u64, offset: u64, write: bool, bytes: i64) -> Event {
    let kind = FileKind::Regular;
    let about = Descriptor { fd: 3, kind, file: file_id(file), nonblocking: false };
    Event::Call(Box::new(Call {
        name: if write { "pwrite64" } else { "pread64" }.to_owned(),
        fd: Some(3),
        offset: Some(offset),
        result: bytes,
        descriptors: vec![about],
        ..Call::default()
    }))
}

fn counted(results: &Results, tables: Tables) -> (Counts, [u64; 4], u64) {
    let manager = results.manager.as_ref().unwrap();
    let counts = Counts {
        faults: HOW.map(|how| manager.faults[how]),
        first_touch: results.faults.first_touch,
        returned: results.faults.returned,
        protection: results.faults.protection,
        reads: manager.work["reads"],
        writes: manager.work["writes"],
        zeroed: manager.work["zeroed"],
        copied: manager.work["copied"],
    };
    let bytes = &manager.bytes;
    let pages =
        [bytes.anonymous, bytes.file, bytes.shared, bytes.swapped].map(|bytes| bytes / 4096);
    let tables = match tables {
        Tables::Levels(_) => bytes.tables / 4096,
        Tables::Uncounted => 0,
    };
    (counts, pages, tables)
}

fn run(sizes: Sizes, machinery: Machinery<'_>, rows: &[Row]) -> Result<Results, String> {
    let kib = |pages: u64| pages * 4;
    let Sizes { frames, swap, min, low, high } = sizes;
    let policy = match machinery.policy {
        Policy::Clock => "clock",
        Policy::Lru => "lru",
        Policy::TwoQueues => "2q",
    };
    let own = [
        format!("os.replacement={policy}"),
        format!("memory.size={}K", kib(frames)),
        format!("swap.size={}K", kib(swap)),
        format!(
            "os.marks={{min=\"{}K\", low=\"{}K\", high=\"{}K\"}}",
            kib(min),
            kib(low),
            kib(high)
        ),
    ];
    let kind = machinery.settings.iter().map(|setting| (*setting).to_owned());
    let settings: Vec<String> = kind.chain(own).collect();
    let machine = Machine::parse("x", MACHINE, "x.toml", &settings);
    let machine = machine.unwrap_or_else(|error| panic!("{error}"));
    let run = |check: bool| {
        let mut rows = Rows::new(rows.to_vec()).of((0..SPACES).map(process).collect());
        let options = RunOptions { check, progress: &mut |_| true };
        machine.run(&mut rows, options).map_err(|error| error.to_string())
    };
    let (fast, checked) = (run(false), run(true));
    let as_checked = |results: Results| Results { checked: true, ..results };
    assert_eq!(fast.clone().map(as_checked), checked);
    fast
}

/// Runs the steps. The run and the model must end with equal counts and equal numbers of pages in
/// memory, or both must run out of memory.
fn agree(sizes: Sizes, machinery: Machinery<'_>, steps: &[Step]) -> Result<(), String> {
    let model = Model::new(sizes, machinery);
    let mut life = Life { rows: Vec::new(), model, space: 0, forked: 0, last: u64::MAX };
    for step in steps {
        if !life.model.is_out {
            life.step(*step);
        }
    }
    let ran = run(sizes, machinery, &life.rows);
    if life.model.is_out {
        let said = ran.err().unwrap_or_default();
        return if said.contains("out of memory") { Ok(()) } else { Err(said) };
    }
    let found = counted(&ran?, machinery.tables);
    // The model does the work that has become due at the end of the run.
    life.model.before();
    let expected = (life.model.counts, life.model.pages(), life.model.tables());
    if found == expected { Ok(()) } else { Err(format!("model {expected:?}\nfound {found:?}")) }
}

/// Removes steps as long as the run and the model still differ at the end.
fn shortest(sizes: Sizes, machinery: Machinery<'_>, mut steps: Vec<Step>) -> Vec<Step> {
    let mut part = steps.len() / 2;
    while part > 0 {
        let mut from = 0;
        while from < steps.len() {
            let to = steps.len().min(from + part);
            let without = [&steps[..from], &steps[to..]].concat();
            if agree(sizes, machinery, &without).is_err() {
                steps = without;
            } else {
                from = to;
            }
        }
        part /= 2;
    }
    steps
}

#[test]
fn every_page_is_where_the_model_has_it() {
    let seeds = std::env::var("PAGEWALK_LIFE_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(168) {
        let mut stream = Stream(0x9e37_79b9_7f4a_7c15 ^ seed << 32 ^ seed);
        let frames = [60, 75, 110, 200][stream.below(4) as usize];
        let swap = [256, 256, 256, 90][stream.below(4) as usize];
        let machinery = MACHINES[seed as usize % MACHINES.len()];
        // The frames below the minimum mark, which pages may not use, are for page tables.
        let min = 8.max(2 * machinery.tables.frames_max());
        let low = min + 1 + stream.below(10);
        let sizes = Sizes { frames, swap, min, low, high: low + stream.below(12) };
        live(seed, sizes, machinery, steps(&mut stream, 400));
    }
}

/// Memory is so large that the frames of page tables have no effect.
#[test]
fn every_page_is_where_the_model_has_it_under_every_page_table() {
    const OTHERS: [&[&str]; 2] = [&["page_table.format=x86-32"], &["page_table.format=irix"]];
    const SOFTWARE: [&str; 2] = ["walker.kind=software", "walker.refill_cycles=1"];
    let sizes = Sizes { frames: 4096, swap: 256, min: 8, low: 9, high: 20 };
    for (seed, table) in (1000..).zip(TABLES.iter().chain(&OTHERS)) {
        for has_bits in [true, false] {
            let walker = if has_bits { &[] } else { &SOFTWARE[..] };
            let settings = [*table, walker].concat();
            let machinery =
                Machinery { settings: &settings, has_bits, tables: Tables::Uncounted, ..BITS };
            let mut stream = Stream(0x9e37_79b9_7f4a_7c15 ^ seed << 32 ^ seed);
            live(seed, sizes, machinery, steps(&mut stream, 400));
        }
    }
}

/// Checks that the run and the model agree on these steps.
fn live(seed: u64, sizes: Sizes, machinery: Machinery<'_>, steps: Vec<Step>) {
    if agree(sizes, machinery, &steps).is_err() {
        let steps = shortest(sizes, machinery, steps);
        let wrong = agree(sizes, machinery, &steps).unwrap_err();
        let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
        panic!("seed {seed}, {sizes:?}, {machinery:?}\n{}\n{wrong}", steps.join(", "));
    }
}
