//! Tests the results that are not counts of events: geometry, regions and their names,
//! reservations, nodes. The expected values are from docs/reference/keys.md and the machine files,
//! or counted again from the rows.

use std::collections::BTreeMap;

use addr::Kind;
use machine::{
    Machine, RunOptions,
    results::{ByKind, FrameName, SiteCounts},
};
use trace::{
    Arch, Batch, Error, Event, Filter, Header, Origin, Process, Program, Source, mix::Switches,
};

use crate::support::{Row, Rows, Stream, mapping, run};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Some accesses, so that no part of the results is empty.
fn some() -> Vec<Row> {
    (0..50).map(|n| Row::Access(Kind::ALL[n as usize % 3], (1 << 30) + n * 4096, 8)).collect()
}

#[test]
fn what_tlbs_and_caches_are() {
    let results = run("xeon-6900p", &["page_table.levels=4"], &some());
    let tlbs: Vec<_> = results
        .tlbs
        .iter()
        .map(|tlb| (&*tlb.name, tlb.level, tlb.entries, &tlb.ways[..]))
        .collect();
    assert_eq!(
        tlbs,
        [
            ("l1i", 1, 256 + 32, &[8, 8][..]),
            ("l1d", 1, 96 + 32 + 8, &[6, 4, 8]),
            ("l1s", 1, 16, &[16]),
            ("l2", 2, 2048, &[16]),
        ]
    );
    let serves: Vec<_> = results.tlbs.iter().map(|tlb| tlb.serves.join(" ")).collect();
    assert_eq!(serves, ["fetch", "load", "store", "fetch load store"]);
    let caches: Vec<_> = results
        .caches
        .iter()
        .map(|cache| (&*cache.name, cache.size_bytes, cache.line_bytes, cache.ways))
        .collect();
    assert_eq!(
        caches[..3],
        [("l1i", 64 * KIB, 64, 16), ("l1d", 48 * KIB, 64, 12), ("l2", 2 * MIB, 64, 16)]
    );
    // The table has one table in each of its four levels.
    assert_eq!(results.memory.table_used_bytes, 4 * 4096);
    assert_eq!(results.memory.table_bytes, 4 * 4096);
}

/// Table 4.2 of B10, for physical addresses of 52 bits.
#[test]
fn how_long_tags_and_data_of_mmu_caches_are() {
    type Arrays = &'static [(Option<u8>, u64, u64)];
    let designs: [(&str, Arrays); 5] = [
        ("uptc", &[(None, 49, 40)]),
        ("sptc", &[(Some(2), 49, 40), (Some(3), 49, 40), (Some(4), 49, 40)]),
        ("utc", &[(None, 27, 40)]),
        ("stc", &[(Some(2), 27, 40), (Some(3), 18, 40), (Some(4), 9, 40)]),
        ("tpc", &[(None, 27, 120)]),
    ];
    for (design, expected) in designs {
        let settings =
            [&*format!("mmu_cache.design={design}"), "mmu_cache.entries=24", "page_table.levels=4"];
        let results = run(
            "opteron-2008",
            &[&settings[..], &["mmu_cache.physical_bits=52"]].concat(),
            &some(),
        );
        let cache = results.mmu_cache.unwrap();
        let arrays: Vec<_> = cache
            .arrays
            .iter()
            .map(|array| (array.level, array.tag_bits.unwrap(), array.data_bits.unwrap()))
            .collect();
        assert_eq!(arrays, expected, "{design}");
        assert!(cache.arrays.iter().all(|array| array.entries == 24), "{design}");
        let levels: Vec<u8> = cache.by_level.iter().map(|level| level.level).collect();
        assert_eq!(levels, [4, 3, 2], "{design}");
    }
}

/// The space of a region, its start, its bytes, its rights and its name.
type Place = (u32, u64, u64, u8, &'static str);

const PLACES: [Place; 6] = [
    (0, 0x4000_0000, 1 << 20, 3, "heap of ls (0)"),
    (0, 0x7000_0000, 1 << 16, 5, "libc.so.6 (r-x) of ls (0)"),
    (0, 0x7001_0000, 1 << 16, 1, "libc.so.6 (r--) of ls (0)"),
    (1, 0x4000_0000, 1 << 19, 3, "heap in space 1"),
    (1, 0x7000_0000, 1 << 14, 1, "libc.so.6 (r--) in space 1"),
    (1, 0x7fff_0000, 1 << 16, 3, "stack in space 1"),
];

fn map(&(_, start, bytes, rights, name): &Place) -> Row {
    let origin = match name {
        name if name.starts_with("heap") => Origin::Heap,
        name if name.starts_with("stack") => Origin::Stack,
        name if name.starts_with("late") => Origin::Other("late".to_owned()),
        _ => Origin::File("/lib/libc.so.6".to_owned()),
    };
    let offset = Some(0);
    Row::Event(Event::Mapping { start, bytes, rights, origin, offset, file: None })
}

fn ls() -> Process {
    let program = Program { arch: Arch::Unknown, command: vec!["/bin/ls".to_owned()], from: 0 };
    Process {
        number: 0,
        pid: 100,
        parent: None,
        parent_accesses: None,
        shares_space: false,
        began_ns: 0,
        programs: vec![program],
        accesses: 0,
        instructions: 0,
    }
}

/// Regions of two spaces at equal addresses have separate rows, with the accesses of each space.
#[test]
fn regions_are_where_they_are_mapped_and_count_what_is_done_there() {
    let mut stream = Stream(5);
    let mut rows = Vec::new();
    let mut expected: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    let late = (1, 0x7fff_0000, 1 << 16, 1, "late in space 1");
    for turn in 0..400 {
        let space = turn % 2;
        rows.push(Row::Event(Event::Run { cpu: None, space }));
        let own: Vec<&Place> = PLACES.iter().filter(|place| place.0 == space).collect();
        if turn < 2 {
            rows.extend(own.iter().map(|place| map(place)));
        }
        if turn == 301 {
            // From here on, the addresses of the stack belong to another mapping.
            let (_, addr, bytes, ..) = late;
            rows.push(Row::Event(Event::Munmap { addr, bytes, result: 0 }));
            rows.push(map(&late));
        }
        for _ in 0..stream.below(30) {
            let mut place = own[stream.below(own.len() as u64) as usize];
            if turn >= 301 && place.4 == "stack in space 1" {
                place = &late;
            }
            let &(_, start, bytes, rights, name) = place;
            let allowed = [rights & 4 != 0, true, rights & 2 != 0];
            let kind = stream.below(3) as usize;
            if allowed[kind] {
                let at = start + stream.below(bytes / 8) * 8;
                rows.push(Row::Access(Kind::ALL[kind], at, 8));
                expected.entry(name).or_default()[kind] += 1;
            }
        }
    }
    let machine = Machine::load("epyc-9005", &[]).unwrap();
    let options = RunOptions { check: true, progress: &mut |_| true };
    let results = machine.run(&mut Rows::new(rows).of(vec![ls()]), options).unwrap();
    for (_, start, bytes, rights, name) in PLACES.into_iter().chain([late]) {
        let [region] =
            &results.regions.iter().filter(|region| region.name == name).collect::<Vec<_>>()[..]
        else {
            panic!("{name} in {:?}", results.regions)
        };
        let said = ["---", "r--", "", "rw-", "", "r-x"][rights as usize];
        assert_eq!((region.start, region.bytes, &*region.rights), (start, bytes, said), "{name}");
        assert!(!region.inferred && region.site.is_none());
        assert_eq!(region.by_kind, ByKind::from(expected[name]), "{name}");
        assert_eq!(region.lookups, expected[name].iter().sum::<u64>(), "{name}");
    }
    assert_eq!(results.regions.len(), PLACES.len() + 1);
}

/// Accesses that no event explains are counted by blocks of 2 MiB. Blocks near each other are one
/// row.
#[test]
fn unexplained_accesses_are_rows_of_what_lies_together() {
    let mut stream = Stream(6);
    let blocks = [0u64, 1, 2, 4, 100, 101];
    let mut rows = Vec::new();
    let mut expected = [[0; 3]; 2];
    for _ in 0..3000 {
        let block = blocks[stream.below(6) as usize];
        let kind = stream.below(3) as usize;
        rows.push(Row::Access(Kind::ALL[kind], block * 2 * MIB + stream.below(MIB / 8) * 8, 8));
        expected[usize::from(block >= 100)][kind] += 1;
    }
    // The first and the last page of each block are accessed.
    for block in blocks {
        for page in [0, 255] {
            rows.push(Row::Access(Kind::Load, block * 2 * MIB + page * 4096, 8));
            expected[usize::from(block >= 100)][Kind::Load as usize] += 1;
        }
    }
    let results = run("epyc-9005", &[], &rows);
    let found: Vec<_> = results
        .regions
        .iter()
        .map(|region| {
            (region.start, region.bytes, region.inferred, &*region.rights, region.by_kind)
        })
        .collect();
    assert_eq!(
        found,
        [
            (0, 9 * MIB, true, "---", ByKind::from(expected[0])),
            (200 * MIB, 3 * MIB, true, "---", ByKind::from(expected[1])),
        ]
    );
}

/// Three reservations. Ten pages of each are used. One of them is freed when its pages are
/// unmapped.
#[test]
fn reservations_that_are_left() {
    let heap = |n: u64| (1 << 30) + n * 4 * MIB;
    let mut rows: Vec<Row> = (0..3).map(|n| mapping(heap(n), 2 * MIB)).collect();
    for page in 0..30 {
        let at = heap(page % 3) + page / 3 * 8192;
        rows.push(Row::Access(Kind::Store, at, 8));
    }
    rows.push(Row::Event(Event::Munmap { addr: heap(1), bytes: 2 * MIB, result: 0 }));
    rows.push(Row::Access(Kind::Load, heap(0), 8));
    let results = run("opteron-2008", &["os.manager=freebsd"], &rows);
    let all = results.manager.unwrap().reservations.unwrap().sizes;
    let [of] = &all[..] else { panic!("{all:?}") };
    assert_eq!((of.made, of.placed, of.emptied, of.filled), (3, 30, 1, 0));
}

/// Six threads on four processors of two nodes.
#[test]
fn processors_and_nodes_by_number() {
    let mut stream = Stream(8);
    let mut rows = Vec::new();
    let mut instructions = [0; 4];
    for _ in 0..2000 {
        let thread = stream.below(6);
        rows.push(Row::Thread(thread as u32));
        rows.push(Row::Access(Kind::Load, (1 << 30) + stream.below(4000) * 4096, 8));
        // Each row is an instruction.
        instructions[thread as usize % 4] += 1;
    }
    let numa = "memory.numa={nodes=2,distances=[[10,17],[23,10]],processors=[0,1,1,0]}";
    let results = run("epyc-9005", &["core.count=4", numa], &rows);
    let found: Vec<u64> = results.processors.iter().map(|one| one.instructions).collect();
    assert_eq!(found, instructions);
    assert_eq!(results.instructions, 2000);
    let numa = results.numa.unwrap();
    let nodes: Vec<_> =
        numa.nodes.iter().map(|node| (&node.processors[..], &node.distances[..])).collect();
    assert_eq!(nodes, [(&[0, 3][..], &[10, 17][..]), (&[1, 2], &[23, 10])]);
    let [one, other] = &numa.nodes[..] else { panic!() };
    assert_eq!(numa.remote_misses, one.misses[1] + other.misses[0]);
    assert_eq!(numa.local_misses + numa.remote_misses, results.walks.walks);
    assert!(numa.remote_misses > 100 && numa.local_misses > 100);
}

/// Two processes run one program. Its line 7 allocates at two places, and its line 9 uses the
/// memory. The same code is one row, whichever process ran it.
#[test]
fn code_and_sites_of_one_name_are_one() {
    const CODE: u64 = 0x1_0000;
    let table = |n: u64| (1 << 32) + n * 64 * MIB;
    let mut rows = Vec::new();
    for space in 0..2 {
        rows.push(Row::Event(Event::Run { cpu: None, space }));
        let identity = Some("crc32 1".to_owned());
        rows.push(Row::Event(Event::Image { path: "/bin/own".to_owned(), identity }));
        let (origin, offset) = (Origin::File("/bin/own".to_owned()), Some(0));
        let mapped =
            Event::Mapping { start: CODE, bytes: 4096, rights: 5, origin, offset, file: None };
        rows.push(Row::Event(mapped));
        // The return addresses 0x100 and 0x200 lie in functions that `main` calls.
        for number in 0..2 {
            let stack = vec![CODE + 0x100 * (1 + u64::from(number)), CODE + 0x300];
            rows.push(Row::Event(Event::Site { number, stack }));
            let (addr, bytes) = (table(number.into()), MIB);
            rows.push(Row::Event(Event::Mmap {
                addr,
                bytes,
                prot: 3,
                flags: 0x22,
                fd: -1,
                offset: 0,
                path: None,
                file: None,
                result: addr as i64,
            }));
            rows.push(Row::Event(Event::Allocate { addr, bytes, site: number }));
        }
        // Two code addresses of one line access each page of one table once, and half of the pages
        // of the other table twice.
        for page in 0..512 {
            let at = if page < 256 {
                table(1) + page * 4096
            } else {
                table(0) + page / 2 * 2 % 256 * 4096
            };
            rows.push(Row::Access(Kind::Fetch, CODE + 0x40 + page % 2 * 16, 4));
            rows.push(Row::Access(Kind::Store, at, 8));
        }
    }
    let settings = ["tlb.l1d.entries=1", "tlb.l2d.entries=16"].map(str::to_owned);
    let machine = Machine::load("epyc-9005", &settings).unwrap();
    let options = RunOptions { check: true, progress: &mut |_| true };
    let mut results = machine.run(&mut Rows::new(rows), options).unwrap();
    let before = results.origins.clone().unwrap();
    assert!(before.sites.len() == 4 && before.code.len() > 1, "{before:?}");
    let sum = |of: fn(&SiteCounts) -> u64| before.sites.iter().map(of).sum::<u64>();
    results.name_origins(&mut |place, is_return| {
        let (function, line) = match place.offset {
            0x40..0x100 => ("fill", 9),
            0x100 | 0x200 => ("make", 7),
            _ => ("main", 20),
        };
        assert_eq!(is_return, line != 9);
        let file = Some("/home/one/own.c".to_owned());
        let inlined = (line == 9).then(|| "put".to_owned());
        let frame = |function| FrameName { function, file: file.clone(), line: Some(line) };
        inlined.into_iter().chain([function.to_owned()]).map(|name| frame(Some(name))).collect()
    });
    let named = results.origins.unwrap();
    // Two calls in one line are two sites; one call in two processes is one site.
    let sites: Vec<_> = named
        .sites
        .iter()
        .map(|site| (&*site.name, site.allocations, site.bytes, site.peak_bytes, site.misses))
        .collect();
    let (name, both) = ("make (own.c:7)", 2 * MIB);
    assert_eq!(sites, [(name, 2, both, both, 2 * 256), (name, 2, both, both, 2 * 128)]);
    assert!(named.sites.iter().all(|site| site.cold_misses == site.misses));
    assert_eq!(sum(|site| site.misses), 2 * (256 + 128));
    let [code] = &named.code[..] else { panic!("{:?}", named.code) };
    assert_eq!((code.offset, code.function.as_deref(), code.line), (0x40, Some("fill"), Some(9)));
    assert_eq!(code.inlined, ["put"]);
    let of_tables: Vec<_> = named
        .misses
        .iter()
        .filter(|row| row.2.is_some())
        .map(|row| (row.0, row.1, row.5))
        .collect();
    assert_eq!(of_tables.len(), 4, "a row per region: {of_tables:?}");
    assert!(of_tables.is_sorted_by_key(|row| std::cmp::Reverse(row.2)), "{of_tables:?}");
    assert_eq!(of_tables.iter().map(|row| row.2).sum::<u64>(), 2 * (256 + 128));
    let cold: u64 = named.misses.iter().filter(|row| row.2.is_some()).map(|row| row.6).sum();
    assert_eq!(cold, 2 * (256 + 128));
    let of_first = named.misses.iter().filter(|row| row.2 == Some(0)).map(|row| row.5).sum::<u64>();
    assert_eq!(of_first, named.sites[0].misses);
    for (at, region, misses) in of_tables {
        assert_eq!((at, misses), (Some(0), results.regions[region as usize].misses));
    }
    let mut names: Vec<&str> = results.regions.iter().map(|region| &*region.name).collect();
    names.sort_unstable();
    assert_eq!(
        names[..4],
        ["make (own.c:7)", "make (own.c:7)", "make (own.c:7) 2", "make (own.c:7) 2"]
    );
}

/// Rows with all that a trace records about itself.
struct Told {
    rows: Rows,
    header: Header,
    processes: Vec<Process>,
    switches: Switches,
}

impl Source for Told {
    fn header(&self) -> &Header {
        &self.header
    }

    fn processes(&self) -> &[Process] {
        &self.processes
    }

    fn switches(&self) -> Option<Switches> {
        Some(self.switches.clone())
    }

    fn digest(&self) -> Option<String> {
        Some("0123456789abcdef".repeat(4))
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        self.rows.next(batch)
    }
}

/// The results repeat what a trace and a machine say about themselves. The processes with most
/// accesses come first.
#[test]
fn what_ran_and_what_it_ran_on() {
    let header = Header {
        producer: "test 3".to_owned(),
        command: vec!["ls".to_owned(), "-l".to_owned()],
        arch: Arch::Aarch64,
        fetches: false,
        filter: Filter::Page16,
        page_bytes: 4096,
        notes: vec!["a note".to_owned()],
        kernel_from: None,
    };
    let process = |number, accesses| Process { number, accesses, ..ls() };
    let switches = Switches {
        order: "turns",
        quantum_instructions: Some(7),
        cpus: 1,
        by_cause: BTreeMap::from([("turn", 3)]),
        unexplained: 1,
    };
    let mut source = Told {
        rows: Rows::new(some()),
        header: header.clone(),
        processes: vec![process(0, 5), process(1, 9), process(2, 5), process(3, 7)],
        switches: switches.clone(),
    };
    let setting = "tlb.l1d.entries=32".to_owned();
    let machine = Machine::load("opteron-2008", std::slice::from_ref(&setting)).unwrap();
    let options = RunOptions { check: true, progress: &mut |_| true };
    let results = machine.run(&mut source, options).unwrap();
    assert_eq!((results.schema, &*results.pagewalk), (2, env!("CARGO_PKG_VERSION")));
    assert_eq!(results.trace.digest, source.digest());
    assert_eq!(results.switches, Some(switches));
    assert_eq!(results.threads, 1);
    let told = &results.trace.header;
    let Header { producer, command, arch, fetches, filter, notes, .. } = header;
    assert_eq!((&told.producer, &told.command, told.arch), (&producer, &command, arch));
    assert_eq!((told.fetches, told.filter, &told.notes), (fetches, filter, &notes));
    let order: Vec<u32> = told.processes.iter().map(|process| process.number).collect();
    assert_eq!(order, [1, 3, 0, 2]);
    for note in [
        "fetches: the machine simulates only data accesses",
        "accesses that the page16 filter dropped",
        "a note",
    ] {
        assert!(results.not_modelled.iter().any(|said| said.contains(note)), "{note}");
    }
    let on = &results.machine;
    assert_eq!((&*on.name, &on.settings), ("opteron-2008", &vec![setting]));
    assert!(on.title.contains("Opteron") && on.source.contains("B10"), "{on:?}");
    assert_eq!(on.description["tlb"]["l1d"]["entries"], 32);
    let as_it_is = Machine::load("opteron-2008", &[]).unwrap();
    assert!(on.digest == machine.digest() && on.digest != as_it_is.digest());
    assert_eq!(on.digest.len(), 64);
}

/// Three spaces take turns on a processor without tags. Each switch loads the root and flushes the
/// TLBs.
#[test]
fn changes_of_space_and_the_trace_cache() {
    let mut rows = Vec::new();
    for turn in 0..30 {
        rows.push(Row::Event(Event::Run { cpu: None, space: turn % 3 }));
        rows.extend((0..9).map(|n| Row::Access(Kind::Fetch, (1 << 20) + n * 4096, 8)));
    }
    let results = run("pentium4", &[], &rows);
    let of = &results.space_switches;
    // The first program runs without a switch.
    assert_eq!((of.switches, of.root_loads, of.emptying, of.segment_loads), (29, 29, 29, 0));
    assert_eq!(of.cycles, Some(29 * 480));
    let cache = results.trace_cache.as_ref().unwrap();
    assert_eq!((cache.uops, cache.ways, cache.emptied), (12288, 8, 29));
    assert_eq!(cache.build_cycles, 4 * cache.lines_built);
    assert!(cache.lines_built > 0);
    // If the machine file has no prices, the results give no cost instead of a cost of 0.
    let untimed = run("opteron-2008", &["core.asid_bits=0"], &rows);
    assert_eq!((untimed.space_switches.switches, untimed.space_switches.cycles), (29, None));
}

/// The cycles that right predictions overlap are the cycles of the references, by the cache or
/// memory that served them.
#[test]
fn the_spec_tlb_and_what_it_overlaps() {
    let mut stream = Stream(9);
    let mut rows = vec![mapping(1 << 30, 8 * MIB)];
    rows.extend(
        (0..4000).map(|_| Row::Access(Kind::Load, (1 << 30) + stream.below(2048) * 4096, 8)),
    );
    let results = run(
        "freebsd-2009",
        &["tlb.l1d.entries=8", "tlb.l2d.array=[{page_sizes=[\"4K\",\"2M\"],entries=16,ways=4}]"],
        &rows,
    );
    let of = results.spec_tlb.as_ref().unwrap();
    assert_eq!((of.entries, of.ways), (24, 24));
    assert_eq!((&*of.replacement, &*of.page_size, &*of.fill), ("random", "2M", "heuristic"));
    let cycles = |place: &str| if place == "memory" { 200 } else { 12 };
    let overlapped: u64 = of.overlapped.iter().map(|(place, count)| count * cycles(place)).sum();
    assert!(of.right > 1000 && overlapped > 0, "{of:?}");
    assert_eq!(of.overlapped_cycles, Some(overlapped));
    assert_eq!((of.devices, of.devices_reached), (0, 0));
}
