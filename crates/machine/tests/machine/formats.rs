//! Tests every page table with every MMU cache, on one and on two processors, with small and large
//! pages, in random spaces as large as the table allows. Pages are mapped, moved, protected and
//! unmapped, and the run checks each translation and each node to which an MMU cache leads.

use std::collections::BTreeSet;

use addr::Kind;
use machine::{Machine, RunOptions};
use trace::Event;

use crate::support::{Row, Rows, Stream, run};

const PAGE: u64 = 4096;
const LARGE_PAGE: u64 = 2 << 20;
const REGION_PAGES: u64 = 16;

/// Random events and accesses of four threads, in regions of pages of `page_bytes` bytes. The
/// regions lie anywhere below 2 to the power of `bits`, some of them next to each other. Returns
/// the rows and the number of first touches.
fn life(seed: u64, page_bytes: u64, bits: u32, steps: u64) -> (Vec<Row>, u64) {
    let mut stream = Stream(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let region_bytes = REGION_PAGES * page_bytes;
    let mut regions: Vec<u64> = Vec::new();
    while regions.len() < 24 {
        let far = stream.next() >> (64 - bits + stream.below(20) as u32);
        let near = regions.last().map_or(far, |last| last ^ region_bytes << stream.below(6));
        let start = [far, near][stream.below(2) as usize] & !(region_bytes - 1);
        if start >= region_bytes && !regions.contains(&start) {
            regions.push(start);
        }
    }
    let mut rows = Vec::new();
    let mut touched: BTreeSet<u64> = BTreeSet::new();
    let mut first_touches = 0;
    for _ in 0..steps {
        let region = regions[stream.below(24) as usize];
        if stream.below(8) == 0 {
            rows.push(Row::Thread(stream.below(4) as u32));
        }
        let first = stream.below(REGION_PAGES);
        let count = 1 + stream.below((REGION_PAGES - first).min(4));
        let (addr, bytes) = (region + first * page_bytes, count * page_bytes);
        let pages = || (0..count).map(|page| addr + page * page_bytes);
        match stream.below(24) {
            0 => {
                touched.retain(|&page| pages().all(|gone| gone != page));
                rows.push(Row::Event(Event::Munmap { addr, bytes, result: 0 }));
            }
            1 => {
                let prot = stream.below(8) as u32;
                rows.push(Row::Event(Event::Mprotect { addr, bytes, prot, result: 0 }));
            }
            2 | 3 => {
                let to = regions[stream.below(24) as usize];
                if to == region {
                    continue;
                }
                let new = to + stream.below(REGION_PAGES - count + 1) * page_bytes;
                for page in 0..count {
                    touched.remove(&(new + page * page_bytes));
                    if touched.remove(&(addr + page * page_bytes)) {
                        touched.insert(new + page * page_bytes);
                    }
                }
                rows.push(Row::Event(Event::Mremap {
                    addr,
                    old_bytes: bytes,
                    new_bytes: bytes,
                    flags: 3,
                    new_addr: new,
                    result: new as i64,
                }));
            }
            _ => {
                let kind = Kind::ALL[stream.below(3) as usize];
                rows.push(Row::Access(kind, addr + stream.below(500) * 8, 8));
                first_touches += u64::from(touched.insert(addr));
            }
        }
    }
    (rows, first_touches)
}

const DESIGNS: [&str; 6] = ["none", "uptc", "sptc", "utc", "stc", "tpc"];

/// For each page table: its settings, the number of bits of its addresses, and the MMU caches that
/// its walker can have.
const TABLES: [(&[&str], u32, &[&str]); 28] = [
    (&["page_table.levels=4"], 47, &DESIGNS),
    (&["page_table.levels=5"], 56, &DESIGNS),
    (&["page_table.format=x86-32", "core.asid_bits=0", "memory.size=2G"], 32, &DESIGNS),
    (&["page_table.format=x86-pae", "core.asid_bits=0", "memory.size=2G"], 32, &DESIGNS),
    (&["page_table.format=arm", "core.asid_bits=0", "memory.size=2G"], 32, &["none", "utc"]),
    (&["page_table.format=sparc-reference", "memory.size=2G"], 32, &DESIGNS),
    (&["page_table.format=sv39"], 38, &DESIGNS),
    (&["page_table.format=sv48"], 47, &DESIGNS),
    (&["page_table.format=sv57"], 56, &DESIGNS),
    (&["page_table.format=aarch64"], 47, &DESIGNS),
    (&["page_table.format=aarch64", "page_table.address_bits=52"], 51, &DESIGNS),
    (&["page_table.format=flattened"], 47, &DESIGNS),
    (&["page_table.format=mpt"], 63, &DESIGNS),
    (&["page_table.format=guarded", "page_table.nodes=2"], 63, &UNIFIED),
    (&["page_table.format=guarded", "page_table.nodes=16"], 63, &UNIFIED),
    (&["page_table.format=guarded", "page_table.nodes=256"], 63, &UNIFIED),
    (&["page_table.format=guarded-adaptive"], 63, &UNIFIED),
    (&["page_table.levels=4", "page_table.software_tlb=8K"], 47, &NONE),
    (&["page_table.format=guarded", "page_table.software_tlb=8K"], 63, &NONE),
    (&["page_table.format=linear"], 63, &NONE),
    (&["page_table.format=hashed"], 63, &NONE),
    (&["page_table.format=clustered", "page_table.partial_subblocks=true"], 63, &NONE),
    (&["page_table.format=hashed", "page_table.software_tlb=8K"], 63, &NONE),
    (&["page_table.format=inverted", "memory.size=64M"], 63, &NONE),
    (&["page_table.format=inverted", "page_table.replicated=true", "memory.size=64M"], 63, &NONE),
    (&["page_table.format=tsb", "page_table.table=8K"], 63, &NONE),
    (&["page_table.format=powerpc", "memory.size=64M"], 47, &NONE),
    (&["page_table.format=elastic-cuckoo"], 63, &NONE),
];

const UNIFIED: [&str; 4] = ["none", "uptc", "utc", "tpc"];
const NONE: [&str; 1] = ["none"];

#[test]
fn every_page_table_under_every_mmu_cache_stays_right() {
    let mut large_runs = 0;
    for (number, (table, bits, designs)) in (1..).zip(TABLES) {
        for (n, design) in (0..).zip(designs) {
            let seed = 100 * number + n;
            println!("seed {seed}: {table:?} {design}");
            let cache =
                [format!("mmu_cache.design={design}"), format!("mmu_cache.entries={}", 4 + n)];
            let small = ["walker.kind=hardware", "tlb.l1.entries=4", "tlb.l1.paired=false"];
            let format = ["page_table.format=x86-64"];
            let cache = [cache[0].as_str(), cache[1].as_str()];
            let settings = [&format[..], &small, &cache, table].concat();
            let large = [
                "os.page_size=2M",
                "os.uniform=true",
                "tlb.l1.page_sizes=[\"2M\"]",
                "memory.size=2G",
            ];
            for (page_bytes, size) in [(PAGE, &[][..]), (LARGE_PAGE, &large)] {
                if page_bytes == LARGE_PAGE {
                    if !exists(&[&settings[..], size].concat()) {
                        continue;
                    }
                    large_runs += 1;
                }
                let (rows, first_touches) = life(seed, page_bytes, bits, 700);
                for processors in ["core.count=1", "core.count=2"] {
                    let settings = [&settings[..], size, &[processors]].concat();
                    let results = run("r4700", &settings, &rows);
                    let found = results.faults.first_touch;
                    assert_eq!(found, first_touches, "seed {seed}: {settings:?}");
                }
            }
        }
    }
    // Most formats hold large pages; an `mpt` does not.
    assert!(large_runs > 20, "{large_runs}");
}

/// Whether an R4700 with `settings` can be built. Not every format can map pages of every size.
fn exists(settings: &[&str]) -> bool {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    Machine::load("r4700", &settings).is_ok()
}

/// A host with a guarded table, which moves nodes as it maps the guest's pages.
#[test]
fn a_host_with_a_guarded_table_stays_right() {
    for (seed, format) in [(1, "guarded"), (2, "guarded-adaptive")] {
        for design in UNIFIED {
            println!("seed {seed}: {format} {design}");
            let (rows, first_touches) = life(seed, PAGE, 47, 1000);
            let host = [
                format!("nested.format={format}"),
                format!("nested.mmu_cache.design={design}"),
                "nested.mmu_cache.entries=6".to_owned(),
            ];
            let host: Vec<&str> = host.iter().map(String::as_str).collect();
            let guest = ["page_table.format=x86-64", "walker.kind=hardware", "tlb.l1.entries=4"];
            let settings = [&guest[..], &host].concat();
            let results = run("r4700", &settings, &rows);
            assert_eq!(results.faults.first_touch, first_touches, "seed {seed}: {settings:?}");
        }
    }
}

/// The number of entries that each event flushes from the TLBs, computed by hand. Before each
/// event, eight pages are in both levels.
#[test]
fn a_flush_takes_what_it_names_and_no_more() {
    let at = |page: u64| 0x4000_0000 + page * PAGE;
    let touches = || (0..8).map(move |page| Row::Access(Kind::Store, at(page), 8));
    let (addr, bytes) = (at(2), 3 * PAGE);
    let protect = |prot| Event::Mprotect { addr, bytes, prot, result: 0 };
    let remap = |new: u64| Event::Mremap {
        addr,
        old_bytes: bytes,
        new_bytes: bytes,
        flags: 3,
        new_addr: new,
        result: new as i64,
    };
    for (event, flushed) in [
        (Event::Munmap { addr, bytes, result: 0 }, 3),
        (Event::Munmap { addr: at(6), bytes: 100 * PAGE, result: 0 }, 2),
        (Event::Munmap { addr, bytes, result: -22 }, 0),
        (Event::Madvise { addr, bytes, advice: 4, result: 0 }, 3),
        (Event::Madvise { addr, bytes, advice: 14, result: 0 }, 0),
        (protect(1), 3),
        // The pages have all rights already, so no right is withdrawn.
        (protect(7), 0),
        (remap(at(100)), 3),
        // The pages that were mapped at the destination are unmapped too.
        (remap(at(5)), 6),
    ] {
        let mut rows: Vec<Row> = touches().collect();
        rows.push(Row::Event(event.clone()));
        let results = run("opteron-2008", &["core.asid_bits=8"], &rows);
        let of = |name: &str| results.tlbs.iter().find(|tlb| tlb.name == name).unwrap();
        for name in ["l1d", "l2d"] {
            assert_eq!(of(name).flushed, flushed, "{name}: {event:?}");
        }
    }
    // Without ASIDs a switch flushes all eight entries; with ASIDs it flushes none.
    for (asid_bits, flushed) in [("core.asid_bits=0", 8), ("core.asid_bits=8", 0)] {
        let mut rows: Vec<Row> = touches().collect();
        rows.push(Row::Event(Event::Run { cpu: None, space: 1 }));
        let results = run("opteron-2008", &[asid_bits], &rows);
        let of = |name: &str| results.tlbs.iter().find(|tlb| tlb.name == name).unwrap().flushed;
        assert_eq!((of("l1d"), of("l2d")), (flushed, flushed), "{asid_bits}");
    }
}

/// 32-bit machines run programs with 32-bit addresses, under a manager without and with eviction.
/// Other programs are refused with an error that says which programs the machine runs.
#[test]
fn machines_of_32_bits_take_programs_of_32_bits() {
    for name in ["pentium4", "sparccenter-2000"] {
        for manager in ["os.manager=first-touch", "os.manager=base"] {
            let (rows, first_touches) = life(7, PAGE, 32, 2000);
            let results = run(name, &["core.count=1", manager], &rows);
            assert_eq!(results.walks.cold, first_touches, "{name} {manager}");
            let wide = vec![Row::Access(Kind::Load, 1 << 40, 8)];
            let machine = Machine::load(name, &[manager.to_owned()]).unwrap();
            let options = RunOptions { check: true, progress: &mut |_| true };
            let error = machine.run(&mut Rows::new(wide), options).unwrap_err().to_string();
            assert!(error.contains("it needs a program of 32 bits"), "{name} {manager}: {error}");
        }
    }
}

/// If a page table cannot hold an address, the error names the setting that gives the machine a
/// table of the same family which can, if there is one. The run with that setting succeeds.
#[test]
fn an_address_that_is_too_long_has_the_setting_that_holds_it() {
    for (name, format, bits, expected) in [
        ("epyc-9005", "page_table.format=x86-64", 47, None),
        ("epyc-9005", "page_table.format=x86-64", 48, Some("page_table.levels=5")),
        ("epyc-9005", "page_table.format=x86-64", 56, Some("page_table.levels=5")),
        ("epyc-9005", "page_table.format=x86-64", 57, Some("--arch aarch64")),
        ("xiangshan-kunminghu", "page_table.format=sv39", 38, None),
        ("xiangshan-kunminghu", "page_table.format=sv39", 39, Some("page_table.format=sv48")),
        ("xiangshan-kunminghu", "page_table.format=sv39", 47, Some("page_table.format=sv48")),
        ("xiangshan-kunminghu", "page_table.format=sv39", 48, Some("page_table.format=sv57")),
        ("xiangshan-kunminghu", "page_table.format=sv48", 48, Some("page_table.format=sv57")),
        ("xiangshan-kunminghu", "page_table.format=sv57", 56, None),
        ("neoverse-n1", "page_table.format=aarch64", 48, None),
        ("neoverse-n1", "page_table.format=aarch64", 49, Some("page_table.address_bits=52")),
        ("neoverse-n1", "page_table.format=aarch64", 52, Some("page_table.address_bits=52")),
        ("neoverse-n1", "page_table.format=aarch64", 57, Some("--arch aarch64")),
    ] {
        // The highest set bit of the address is bit `bits - 1`.
        let long = || Rows::new(vec![Row::Access(Kind::Load, 1 << (bits - 1), 8)]);
        let with = |settings: &[&str]| {
            let settings: Vec<String> = settings.iter().map(|&one| one.to_owned()).collect();
            let options = RunOptions { check: true, progress: &mut |_| true };
            Machine::load(name, &settings).unwrap().run(&mut long(), options)
        };
        let found = with(&[format]).map(|results| results.walks.cold);
        let Some(expected) = expected else {
            assert_eq!(found.map_err(|error| error.to_string()), Ok(1), "{format}, {bits} bits");
            continue;
        };
        let error = found.unwrap_err().to_string();
        assert!(error.contains(expected), "{format}, {bits} bits: {error}");
        if expected.starts_with("page_table") {
            let settings = [format, expected];
            let settings = if expected.starts_with("page_table.format") {
                &settings[1..]
            } else {
                &settings[..]
            };
            assert_eq!(with(settings).unwrap().walks.cold, 1, "{format}, {bits} bits");
        }
    }
}
