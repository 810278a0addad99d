//! Tests small address spaces in runs: exact counts of the work of a switch, and random switches,
//! faults, changes and revoked slots, compared with each space alone.

use std::collections::BTreeSet;

use addr::Kind;
use machine::{Machine, Results, RunOptions, results::SmallSpaceCounts};
use trace::{Event, KERNEL, Source, import::Options};

use crate::support::{Row, Rows, Stream};

const SLOT: u64 = 16 << 20;

fn machine(settings: &[&str]) -> Machine {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    Machine::load("pentium4", &settings).unwrap_or_else(|error| panic!("{error}"))
}

fn run_of(machine: &Machine, source: &mut dyn Source) -> Result<Results, machine::Error> {
    machine.run(source, RunOptions { check: true, progress: &mut |_| true })
}

fn generated(settings: &[&str], spec: &str) -> Results {
    let mut source = trace::open(&format!("generate:{spec}"), &Options::default()).unwrap();
    run_of(&machine(settings), &mut *source).unwrap_or_else(|error| panic!("{settings:?} {error}"))
}

fn rows(settings: &[&str], rows: Vec<Row>) -> Result<Results, String> {
    run_of(&machine(settings), &mut Rows::new(rows)).map_err(|error| error.to_string())
}

fn misses(results: &Results, name: &str) -> u64 {
    results.tlbs.iter().find(|tlb| tlb.name == name).unwrap().total.misses
}

fn small(results: &Results) -> &SmallSpaceCounts {
    results.small_spaces.as_ref().unwrap()
}

/// Two processes that exchange messages. With small spaces the base register is never loaded;
/// without them it is loaded twice per round. For a round without a working set, the difference is
/// 2 x (480 - 9) cycles, the refills of the flushed entries, and the rebuilt lines of the trace
/// cache.
#[test]
fn a_switch_between_small_spaces_loads_no_root() {
    // A turn of a process is one fetch. A turn of the kernel fetches two lines of code and makes a
    // load that represents its entry; it uses three pages.
    let rounds = 500;
    let spec = format!("pingpong,ipc=90,idle=1,bits=32,accesses={}", rounds * 14);
    let flat = generated(&["memory.size=64M"], &spec);
    let [purge, groups] = [
        &["os.small.slot=256M", "memory.size=64M"][..],
        &["os.small.revoke=groups", "os.small.groups=[[\"0\",\"1\"]]", "memory.size=64M"],
    ]
    .map(|settings| generated(settings, &spec));
    for results in [&purge, &groups] {
        assert_eq!(small(results).small, 2);
        assert_eq!(small(results).root_loads, 0, "{:?}", small(results));
        assert_eq!(results.space_switches.root_loads, 0);
        assert_eq!(results.space_switches.segment_loads, 2 * rounds - 1);
        assert_eq!(results.trace_cache.unwrap().emptied, 0);
    }
    assert_eq!(flat.space_switches.root_loads, 2 * rounds - 1);
    assert_eq!(flat.space_switches.emptying, 2 * rounds - 1);
    assert_eq!(flat.trace_cache.unwrap().emptied, 2 * rounds - 1);
    // The kernel's pages are global. Each process has one page of code.
    assert_eq!(misses(&purge, "l1i"), 3);
    assert_eq!(misses(&flat, "l1i"), 2 * rounds + 1);
    assert_eq!(misses(&purge, "l1d"), misses(&flat, "l1d"));

    let time = |results: &Results| {
        let time = results.time.as_ref().unwrap();
        time.program_cycles.lo + time.translation_cycles.hi + time.kernel.as_ref().unwrap().cycles
    };
    let parts = |results: &Results| {
        let by_work = &results.time.as_ref().unwrap().kernel.as_ref().unwrap().by_work;
        let copies = by_work.get("copies").copied().unwrap_or(0);
        let walks = results.time.as_ref().unwrap().translation_cycles.hi;
        (by_work["switches"] + by_work["faults"] + copies, walks)
    };
    let (of_flat, of_small) = (parts(&flat), parts(&purge));
    assert_eq!(of_flat.0 - 480 * (2 * rounds - 1), of_small.0 - 9 * (2 * rounds - 1) - 500 * 2);
    let built = flat.trace_cache.unwrap().build_cycles - purge.trace_cache.unwrap().build_cycles;
    // The process's line of 20 instructions takes four lines of micro-ops. The kernel's 30
    // instructions take five lines and one more.
    assert!(built > 4 * 5 * (2 * rounds - 2), "{built}");
    let direct = (480 - 9) * (2 * rounds - 1) - 500 * 2;
    assert_eq!(time(&flat) - time(&purge), direct + (of_flat.1 - of_small.1) + built);
}

/// An entry of a PAE root covers 1G, so two slots fit below the kernel's addresses.
#[test]
fn slots_of_a_gigabyte_end_where_one_does() {
    let spec = "pingpong,ipc=90,dtlb=8,idle=1,bits=32,accesses=7k";
    for format in ["page_table.format=x86-pae", "page_table.format=x86-32"] {
        let results = generated(&[format, "os.small.slot=1G", "os.small.members=[0, 1]"], spec);
        let counts = small(&results);
        assert_eq!((counts.slots, counts.small, counts.root_loads), (2, 2, 0), "{format}");
    }
}

/// Programs that communicate with all others have slots of their own if there are no groups, as
/// cat, cat, wc and the shell.
#[test]
fn all_can_be_everywhere() {
    for revoke in ["os.small.revoke=groups", "os.small.revoke=purge"] {
        let everywhere = "os.small.everywhere=[0,1,2]";
        let settings = ["os.small.slot=16M", revoke, everywhere];
        let settings = if revoke.ends_with("groups") { &settings[..] } else { &settings[..2] };
        let (rows_of, _) = life(12, 3, 0);
        let results = rows(settings, rows_of).unwrap_or_else(|error| panic!("{revoke}: {error}"));
        let counts = small(&results);
        assert_eq!((counts.small, counts.root_loads, counts.no_slot), (3, 0, 0), "{revoke}");
    }
}

/// The root of a large program stays loaded while small programs run, so a switch back to the large
/// program loads no root.
#[test]
fn the_same_large_space_is_there_already() {
    let order = [0, 1, 0, 2, 0, 3, 1, 3, 0];
    let mut all = Vec::new();
    for space in order {
        all.push(Row::Event(Event::Run { cpu: None, space }));
        all.push(Row::Access(Kind::Load, 0x1000 * u64::from(space) + 0x10_0000, 4));
    }
    let results = rows(&["os.small.slot=16M", "os.small.members=[\"1\",\"2\"]"], all).unwrap();
    // The run switches twice from space 0 to space 3 and back.
    let switches = results.space_switches;
    assert_eq!((switches.switches, switches.root_loads, switches.segment_loads), (8, 2, 6));
    assert_eq!(small(&results).small, 2);
}

/// Random turns of many spaces, with the kernel between them and with mappings that change. Also
/// returns the spaces that access addresses beyond a slot.
fn life(seed: u64, spaces: u64, beyond: u64) -> (Vec<Row>, BTreeSet<u32>) {
    let mut stream = Stream(seed);
    let (mut rows, mut large) = (Vec::new(), BTreeSet::new());
    let mut last = 0;
    for step in 0..1500 {
        let is_called = stream.below(5) == 0;
        if is_called {
            rows.push(Row::Event(Event::Run { cpu: None, space: KERNEL }));
            for _ in 0..stream.below(6) {
                let page = 0xe000_0000 + (stream.below(20) << 12);
                rows.push(Row::Access(Kind::ALL[stream.below(3) as usize], page, 4));
            }
        } else {
            last = stream.below(spaces) as u32;
        }
        rows.push(Row::Event(Event::Run { cpu: None, space: last }));
        for _ in 0..stream.below(30) {
            let block = stream.below(SLOT >> 16) << 16;
            let page = block + (stream.below(4) << 12);
            match stream.below(40) {
                0 => rows.push(unmap(block, 1 << 16)),
                // The pages of a whole subtree are unmapped, with its tables.
                1 => rows.push(unmap(page & !((4 << 20) - 1), 4 << 20)),
                2 if beyond > 0 && stream.below(beyond) == 0 => {
                    large.insert(last);
                    rows.push(Row::Access(Kind::Store, SLOT + (stream.below(8) << 12), 8));
                }
                _ => {
                    let kind = Kind::ALL[stream.below(3) as usize];
                    rows.push(Row::Access(kind, page + step % 4000, 8));
                }
            }
        }
    }
    (rows, large)
}

fn unmap(addr: u64, bytes: u64) -> Row {
    Row::Event(Event::Munmap { addr, bytes, result: 0 })
}

/// Each run is checked: a TLB hit always agrees with the page table of the running space, whichever
/// space had the slot before, and all identities of counts hold. The number of first touches is
/// that of the spaces without slots.
#[test]
fn small_spaces_see_what_they_would_see_alone() {
    let groups = |spaces: u64| {
        let name = |space: u64| format!("\"{space}\"");
        let group = |rest: u64| {
            let of: Vec<String> = (1..spaces).filter(|one| one % 3 == rest).map(name).collect();
            format!("[{}]", of.join(","))
        };
        format!("os.small.groups=[{},{},{}]", group(0), group(1), group(2))
    };
    let shapes = [
        (1, 5, 0, "purge", "lru", "2G"),
        (2, 64, 0, "purge", "lru", "64M"),
        (3, 40, 30, "purge", "frequent", "64M"),
        (4, 64, 0, "versioned", "lru", "64M"),
        (5, 33, 40, "versioned", "lru", "48M"),
        (6, 20, 30, "versioned", "first-come", "64M"),
        (7, 30, 0, "groups", "lru", "64M"),
        (8, 64, 30, "groups", "lru", "48M"),
    ];
    for (seed, spaces, beyond, revoke, schedule, area) in shapes {
        let (rows_of, large) = life(seed, spaces, beyond);
        let flat =
            rows(&[], rows_of.clone()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for table in ["os.manager=first-touch", "os.manager=base"] {
            let groups = groups(spaces);
            let (revoke_key, schedule_key, area_key) = (
                format!("os.small.revoke={revoke}"),
                format!("os.small.schedule={schedule}"),
                format!("os.small.area={area}"),
            );
            let mut settings =
                vec![table, "os.small.slot=16M", &*revoke_key, &*schedule_key, &*area_key];
            // Some spaces are never small, so that switches to them load a root.
            let few: Vec<String> =
                (0..spaces).filter(|one| one % 4 > 0).map(|one| format!("\"{one}\"")).collect();
            let members = format!("os.small.members=[{}]", few.join(","));
            if revoke == "versioned" {
                settings.push(&members);
            }
            if revoke == "groups" {
                settings.extend([&*groups, "os.small.everywhere=[\"0\"]"]);
            }
            let what = format!("seed {seed} {settings:?}");
            let results = rows(&settings, rows_of.clone());
            let results = results.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(results.faults.first_touch, flat.faults.first_touch, "{what}");
            let counts = small(&results);
            assert_eq!(counts.spaces, spaces.min(counts.spaces), "{what}");
            assert!(counts.copies > 0 && counts.small > 3, "{what} {counts:?}");
            assert!(counts.promoted <= large.len() as u64, "{what} {counts:?}");
            assert_eq!(counts.promoted > 0, beyond > 0, "{what} {counts:?}");
            let is_scarce = spaces > counts.slots;
            match (revoke, schedule) {
                ("purge", "lru" | "frequent") => {
                    assert_eq!(counts.revoked > 0, is_scarce, "{what} {counts:?}");
                    assert_eq!(counts.versions_compared, 0);
                }
                ("versioned", _) => assert!(counts.versions_compared > 0, "{what}"),
                _ => {}
            }
            if schedule == "first-come" {
                assert!(counts.revoked == 0 && counts.no_slot > 0, "{what} {counts:?}");
            }
        }
    }
}

/// On several processors, a slot that is revoked is flushed on all of them.
#[test]
fn slots_change_hands_on_several_processors() {
    for revoke in ["os.small.revoke=purge", "os.small.revoke=versioned"] {
        let (all, _) = life(11, 24, 0);
        let touched = rows(&[], all.clone()).unwrap().faults.first_touch;
        let mut turn = 0;
        let all = all.into_iter().map(|row| match row {
            Row::Event(Event::Run { space, .. }) => {
                // The kernel runs on the processor on which it was called.
                turn += u32::from(space != KERNEL);
                let turn = if space == KERNEL { turn } else { turn - 1 };
                Row::Event(Event::Run { cpu: Some(turn % 3), space })
            }
            other => other,
        });
        let settings = ["core.count=3", "os.small.slot=16M", "os.small.area=128M", revoke];
        let results = rows(&settings, all.collect()).unwrap();
        assert_eq!(results.faults.first_touch, touched);
        assert!(small(&results).revoked > 0);
    }
}

/// Fetches that miss the trace cache look up the TLB; the others do not. A program whose code fits
/// into the trace cache is served by it entirely from the second round on.
#[test]
fn what_the_trace_cache_delivers_reaches_no_tlb() {
    let code =
        |start: u64| (0..100).map(move |line| Row::Access(Kind::Fetch, start + line * 24, 24));
    let both = || code(0x1_0000).chain(code(0x10_0000));
    let results = rows(&[], (0..5).flat_map(|_| both()).collect()).unwrap();
    let cache = results.trace_cache.unwrap();
    assert_eq!((cache.fetches, cache.delivered), (1000, 800));
    assert_eq!((cache.lines_built, results.accesses.fetch), (200, 200));
    assert_eq!(cache.build_cycles, 800);
    let served: u64 = results.caches.iter().find(|cache| cache.name == "l2").unwrap().program.reads;
    // A quarter of the accesses extend into another line.
    assert_eq!(served, 250);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|one| (*one).to_owned()).collect();
        Machine::load("pentium4", &settings).unwrap_err().to_string()
    };
    let has = |text: String, parts: &[&str]| {
        for part in parts {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(text.lines().count(), 1, "{text}");
    };
    for slot in ["3M", "2M", "2G", "4G"] {
        let slot = format!("os.small.slot={slot}");
        has(refused(&[&slot]), &["os.small.slot", "a power of two from 4M to 1G"]);
    }
    let pae = "page_table.format=x86-pae";
    has(refused(&[pae, "os.small.slot=256M"]), &["os.small.slot", "write 1G"]);
    has(refused(&["os.small.area=300M"]), &["os.small.area", "multiple of 256M"]);
    has(refused(&["os.small.area=8G"]), &["os.small.area", "no room", "write 3328M or less"]);
    has(refused(&["os.small.area=3G", "os.small.slot=1G"]), &["no room", "write 2G or less"]);
    has(refused(&["os.small.slot=16M", "core.asid_bits=4"]), &["core.asid_bits", "leave one out"]);
    has(refused(&["os.small.revoke=groups"]), &["os.small.groups", "info --switches"]);
    has(refused(&["os.small.everywhere=[\"1\"]"]), &["os.small.revoke"]);
    has(refused(&["os.small.revoke=never"]), &["os.small.revoke", "purge, versioned or groups"]);
    has(refused(&["os.small.members=cat"]), &["os.small.members: ", "`cat` is not a list"]);
    has(refused(&["os.small.members=[true]"]), &["os.small.members", "the number of its space"]);
    has(refused(&["trace_cache.ways=7"]), &["trace_cache.ways"]);
    let wide = Machine::load("epyc-9005", &["os.small.slot=16M".to_owned()]);
    has(wide.unwrap_err().to_string(), &["os.small", "x86-32"]);
    let load = |addr| vec![Row::Access(Kind::Load, addr, 4)];
    // The space is requested by name, but its first access already lies beyond its slot.
    let named = rows(&["os.small.slot=16M", "os.small.members=[\"0\"]"], load(SLOT));
    has(named.unwrap_err(), &["access 0", "beyond its slot of 16M", "os.small.slot"]);
    // The space is not requested by name, so it becomes large.
    let large = rows(&["os.small.slot=16M"], load(SLOT)).unwrap();
    assert_eq!((small(&large).promoted, small(&large).small), (1, 1));
    let unknown = rows(&["os.small.members=[\"mysqld\"]"], load(0));
    has(unknown.unwrap_err(), &["os.small.members", "mysqld"]);
    let missing = rows(&["os.small.members=[\"7\"]"], load(0));
    has(
        missing.unwrap_err(),
        &["os.small.members", "no space with the number 7", "the spaces that ran are 0"],
    );
    let groups = |lists: &str| {
        rows(&["os.small.revoke=groups", &format!("os.small.groups={lists}")], load(0)).unwrap_err()
    };
    has(
        groups("[[0, 7]]"),
        &["os.small.groups", "no space with the number 7", "the spaces that ran are 0"],
    );
    has(groups("[[0, 1], [2, 0]]"), &["os.small.groups", "`0` is in more than one group"]);
}
