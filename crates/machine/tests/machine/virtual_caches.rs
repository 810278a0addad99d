//! Tests caches that are looked up by virtual address: compared with lists of lines, and the
//! savings of a PID register.

use std::collections::{BTreeMap, VecDeque};

use addr::Kind;
use machine::{Machine, Results, RunOptions};
use trace::{Event, KERNEL, Source, import::Options};

use crate::support::{Row, Rows, Stream};

const LINE: u64 = 32;
/// The sets and ways of `l1d`: 256 lines in sets of 32.
const SETS: u64 = 8;
const WAYS: usize = 32;

fn machine(settings: &[&str]) -> Result<Machine, String> {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    Machine::load("strongarm-1110", &settings).map_err(|error| error.to_string())
}

fn run(settings: &[&str], source: &mut dyn Source) -> Results {
    let options = RunOptions { check: true, progress: &mut |_| true };
    let results = machine(settings).map(|machine| machine.run(source, options));
    results.unwrap_or_else(|error| panic!("{settings:?} {error}")).unwrap()
}

/// A list of the lines in each set, the oldest line first.
#[derive(Default)]
struct Lines {
    sets: BTreeMap<u64, VecDeque<Held>>,
    misses: [u64; 2],
    flushed: u64,
    written: u64,
}

/// A line: its space (`None` for the kernel, or if lines have no space), its address, and whether
/// it is dirty.
type Held = (Option<u32>, u64, bool);

impl Lines {
    fn access(&mut self, whose: Option<u32>, addr: u64, store: bool) {
        let line = addr / LINE;
        let set = self.sets.entry(line % SETS).or_default();
        if let Some(held) = set.iter_mut().find(|held| (held.0, held.1) == (whose, line)) {
            held.2 |= store;
            return;
        }
        self.misses[usize::from(store)] += 1;
        set.push_back((whose, line, store));
        if set.len() > WAYS {
            set.pop_front();
        }
    }

    fn flush(&mut self, goes: impl Fn(&Held) -> bool) {
        for set in self.sets.values_mut() {
            self.flushed += set.iter().filter(|held| goes(held)).count() as u64;
            self.written += set.iter().filter(|held| goes(held) && held.2).count() as u64;
            set.retain(|held| !goes(held));
        }
    }
}

/// Random turns of spaces and the kernel, with pages that are unmapped, with no contexts, few
/// contexts and enough contexts.
#[test]
fn lines_are_those_of_a_list() {
    for (seed, bits, spaces) in [(1, 0, 5), (2, 4, 12), (3, 2, 4), (4, 0, 3), (5, 1, 5)] {
        let mut stream = Stream(seed);
        let (mut rows, mut lines) = (Vec::new(), Lines::default());
        let count = 1_u32 << bits;
        // For each context, the space that uses it. The context of a space is the remainder of the
        // space's number.
        let mut owners: BTreeMap<u32, u32> = BTreeMap::from([(0, 0)]);
        let (mut runs, mut is_kernel) = (0, false);
        for _ in 0..4000 {
            match stream.below(12) {
                0 => {
                    let space = stream.below(spaces) as u32;
                    rows.push(Row::Event(Event::Run { cpu: None, space }));
                    is_kernel = false;
                    if space == runs {
                        continue;
                    }
                    runs = space;
                    if bits == 0 {
                        lines.flush(|_| true);
                    } else if let Some(owner) = owners.insert(space % count, space)
                        && owner != space
                    {
                        // The lines of global pages are searched and flushed too.
                        lines.flush(|held| held.0.is_none() || held.0 == Some(owner));
                    }
                }
                1 => {
                    rows.push(Row::Event(Event::Run { cpu: None, space: KERNEL }));
                    is_kernel = true;
                }
                2 if !is_kernel => {
                    let page = stream.below(24) << 12;
                    rows.push(Row::Event(Event::Munmap { addr: page, bytes: 4096, result: 0 }));
                    let whose = (bits > 0).then_some(runs);
                    let is_own = |held: &Held| held.0 == whose || held.0.is_none();
                    lines.flush(|held| is_own(held) && (held.1 * LINE) & !4095 == page);
                }
                _ => {
                    let addr = stream.below(24) << 12 | (stream.below(4) * 0x120) & 0xfe0;
                    let addr = if is_kernel { 0xe000_0000 + addr } else { addr };
                    let store = stream.below(3) == 0;
                    let kind = if store { Kind::Store } else { Kind::Load };
                    rows.push(Row::Access(kind, addr, 4));
                    let whose = (bits > 0 && !is_kernel).then_some(runs);
                    lines.access(whose, addr, store);
                }
            }
        }
        let bits = format!("core.asid_bits={bits}");
        let results = run(&[&bits, "core.global_pages=true"], &mut Rows::new(rows));
        let cache = results.caches.iter().find(|cache| cache.name == "l1d").unwrap();
        let misses = [cache.program.read_misses, cache.program.write_misses];
        assert_eq!(misses, lines.misses, "seed {seed} {bits}");
        let flushes = cache.flushes.unwrap();
        let flushed = [flushes.lines, flushes.written];
        assert_eq!(flushed, [lines.flushed, lines.written], "seed {seed} {bits}");
        assert!(flushes.lines > 50 && misses[0] > 100, "{flushes:?}");
    }
}

fn misses(results: &Results, name: &str) -> u64 {
    let cache = results.caches.iter().find(|cache| cache.name == name).unwrap();
    cache.program.read_misses + cache.program.write_misses
}

/// A process that only replies, and a process that reads from page to page. With a PID register
/// neither process flushes the other's lines and entries; without it each switch flushes
/// everything.
#[test]
fn a_pid_register_keeps_lines_and_entries() {
    let spec = "generate:pingpong,idle=1,ipc=90,itlb=4,dtlb=8,bits=25,accesses=20k";
    let generated = |settings: &[&str]| {
        let mut source = trace::open(spec, &Options::default()).unwrap();
        run(settings, &mut *source)
    };
    let (flat, small) = (generated(&[]), generated(&["os.small.slot=32M"]));
    let rounds = flat.space_switches.switches;
    assert!(rounds > 1000);
    assert_eq!((flat.space_switches.root_loads, flat.space_switches.emptying), (rounds, rounds));
    assert_eq!((small.space_switches.root_loads, small.space_switches.emptying), (0, 0));
    assert_eq!(small.space_switches.segment_loads, rounds);
    let times =
        |results: &Results| results.caches.iter().find(|one| one.name == "l1d").unwrap().flushes;
    assert_eq!(times(&flat).unwrap().times, rounds);
    // A flush finds no lines except those of first touches.
    assert_eq!(times(&small).unwrap().lines, 0);
    for name in ["l1i", "l1d"] {
        assert!(misses(&small, name) < 60, "{name}: {}", misses(&small, name));
        assert!(misses(&flat, name) > rounds, "{name}: {}", misses(&flat, name));
    }
    let by_work = &flat.time.as_ref().unwrap().kernel.as_ref().unwrap().by_work;
    let written = times(&flat).unwrap().written;
    assert_eq!(by_work["cache flushes"], rounds * 2560 + written * 20);
    let slots = small.small_spaces.unwrap();
    assert_eq!((slots.slots, slots.slot_bytes), (15, 32 << 20));
}

/// The kernel has one of sixteen domains, so fifteen are left. Of twenty spaces, some lose their
/// domain, and everything that is cached for them is flushed.
#[test]
fn domains_change_hands() {
    let mut stream = Stream(7);
    let mut rows = Vec::new();
    for _ in 0..3000 {
        let space = stream.below(20) as u32;
        rows.push(Row::Event(Event::Run { cpu: None, space }));
        for _ in 0..stream.below(8) {
            let addr = stream.below(40) << 12 | stream.below(8) << 8;
            rows.push(Row::Access(Kind::ALL[stream.below(3) as usize], addr, 4));
        }
        if stream.below(9) == 0 {
            rows.push(Row::Event(Event::Munmap { addr: 0, bytes: 10 << 12, result: 0 }));
        }
    }
    let flat = run(&[], &mut Rows::new(rows.clone()));
    for revoke in ["os.small.revoke=purge", "os.small.revoke=versioned"] {
        let small = run(&[revoke], &mut Rows::new(rows.clone()));
        assert_eq!(small.faults, flat.faults, "{revoke}");
        let counts = small.small_spaces.as_ref().unwrap();
        assert!(counts.revoked > 500 && counts.root_loads == 0, "{counts:?}");
        assert!(misses(&small, "l1d") < misses(&flat, "l1d"));
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let has = |settings: &[&str], parts: &[&str]| {
        let text = machine(settings).unwrap_err();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    };
    has(&["os.small.slot=64M"], &["os.small.slot", "slots of 32M"]);
    has(&["os.small.area=512M"], &["os.small.area", "16 slots", "480M or less"]);
    has(&["os.small.slot=32M", "core.asid_bits=4"], &["core.asid_bits", "leave one out"]);
    has(&["walker.enters=l1d"], &["core.virtual_caches", "walker.enters"]);
    has(&["page_table.format=x86-64"], &["core.virtual_caches", "32 bits"]);
    has(
        &["cache.l2.size=64K", "cache.l2.line=32B", "cache.l2.ways=8", "cache.l2.latency_cycles=9"],
        &["core.virtual_caches", "cache.l2"],
    );
}
