//! Compares the effects of events on the operating system with a model, which is a set of touched
//! pages.

use std::collections::BTreeSet;

use addr::Kind;
use trace::Event;

use crate::support::{Row, Stream, run};

const BASE: u64 = 0x4000_0000;
const PAGES: u64 = 64;

fn addr(page: u64) -> u64 {
    BASE + page * 4096
}

/// Random mappings in a small range of addresses, with accesses anywhere in this range. Returns the
/// rows and the number of first touches.
fn life(seed: u64, steps: u64) -> (Vec<Row>, u64) {
    let mut stream = Stream(seed);
    let mut rows = Vec::new();
    let mut touched: BTreeSet<u64> = BTreeSet::new();
    let mut first_touches = 0;
    let mut program_break = 0;
    for _ in 0..steps {
        let first = stream.below(PAGES);
        let count = 1 + stream.below((PAGES - first).min(12));
        let (start, bytes) = (addr(first), count * 4096);
        let event = match stream.below(40) {
            0 => {
                touched.retain(|page| !(first..first + count).contains(page));
                Event::Munmap { addr: start, bytes, result: 0 }
            }
            1 => {
                touched.retain(|page| !(first..first + count).contains(page));
                Event::Mmap {
                    addr: start,
                    bytes,
                    prot: 3,
                    flags: 0x32,
                    fd: -1,
                    offset: 0,
                    path: None,
                    file: None,
                    result: start as i64,
                }
            }
            2 => Event::Mprotect { addr: start, bytes, prot: stream.below(8) as u32, result: 0 },
            3 => {
                touched.retain(|page| !(first..first + count).contains(page));
                Event::Madvise { addr: start, bytes, advice: 4, result: 0 }
            }
            4 => Event::Madvise { addr: start, bytes, advice: 14, result: 0 },
            5 => Event::Munmap { addr: start, bytes, result: -22 },
            6 => {
                // The region moves out of the arena and back, as a growing array does, and becomes
                // one page shorter.
                let away = BASE + (1 << 32) + stream.below(1 << 16) * 4096;
                let kept = count - u64::from(count > 1);
                rows.push(Row::Event(remap(start, bytes, away, kept * 4096)));
                touched.retain(|page| !(first + kept..first + count).contains(page));
                remap(away, kept * 4096, start, kept * 4096)
            }
            7 => {
                let now = addr(PAGES + 10) + stream.below(40) * 1024;
                let gone = now.div_ceil(4096) * 4096;
                touched.retain(|page| !(gone..program_break).contains(&addr(*page)));
                program_break = now;
                Event::Brk { addr: now, result: now as i64 }
            }
            _ => {
                let page = stream.below(PAGES + 20);
                let kind = Kind::ALL[stream.below(3) as usize];
                rows.push(Row::Access(kind, addr(page) + stream.below(4000), 8));
                first_touches += u64::from(touched.insert(page));
                continue;
            }
        };
        rows.push(Row::Event(event));
    }
    (rows, first_touches)
}

fn remap(addr: u64, old_bytes: u64, to: u64, new_bytes: u64) -> Event {
    Event::Mremap { addr, old_bytes, new_bytes, flags: 3, new_addr: to, result: to as i64 }
}

#[test]
fn pages_come_and_go_as_in_a_set() {
    for seed in 1..=12 {
        let (rows, first_touches) = life(seed, 4000);
        for machine in ["tlb-only", "r4700", "epyc-9005", "xeon-6900p"] {
            let results = run(machine, &[], &rows);
            assert_eq!(results.faults.first_touch, first_touches, "{machine}, seed {seed}");
            assert_eq!(results.walks.cold, first_touches, "{machine}, seed {seed}");
            let regions: u64 = results.regions.iter().map(|region| region.pages).sum();
            assert_eq!(regions, first_touches, "{machine}, seed {seed}");
        }
    }
}

/// All page-table formats give equal translations, faults and frames.
#[test]
fn every_page_table_serves() {
    let (rows, first_touches) = life(77, 4000);
    for table in [
        &["page_table.levels=5"][..],
        &["page_table.format=flattened"],
        &["page_table.format=mpt"],
        &["page_table.format=linear"],
        &["page_table.format=linear", "walker.kind=hardware", "tlb.l1.paired=false"],
        &["tlb.l2.entries=64", "tlb.l1.entries=8"],
        &["page_table.format=linear", "tlb.l2.entries=64", "tlb.l1.entries=8"],
        &["page_table.format=guarded", "page_table.nodes=4"],
        &["page_table.format=guarded"],
        &["page_table.format=guarded-adaptive"],
        &["page_table.format=hashed", "page_table.table=8K"],
        &["page_table.format=hashed", "page_table.software_tlb=8K"],
        &["page_table.format=clustered"],
        &["page_table.format=clustered", "page_table.partial_subblocks=true"],
        &["page_table.format=inverted"],
        &["page_table.format=inverted", "page_table.entry_pages=16"],
        &["page_table.format=inverted", "page_table.replicated=true"],
        &["page_table.format=tsb", "page_table.table=8K"],
        &["page_table.format=powerpc"],
        &["page_table.format=powerpc", "memory.size=16M"],
        &["page_table.format=elastic-cuckoo"],
    ] {
        let results = run("r4700", &[&["page_table.format=x86-64"], table].concat(), &rows);
        assert_eq!(results.faults.first_touch, first_touches, "{table:?}");
    }
}

/// Tables are allocated and freed under every design of MMU cache. A checked run stops at a stale
/// entry.
#[test]
fn no_mmu_cache_remembers_a_table_that_has_gone() {
    let small = ["page_table.format=x86-64", "tlb.l1.entries=4", "walker.kind=hardware"];
    for (seed, design) in (1..).zip(["none", "uptc", "sptc", "utc", "stc", "tpc"]) {
        let (rows, first_touches) = life(seed, 6000);
        let design = format!("mmu_cache.design={design}");
        for table in ["page_table.levels=4", "page_table.levels=5", "page_table.format=guarded"] {
            let split = design.ends_with("stc") || design.ends_with("sptc");
            if split && table.ends_with("guarded") {
                continue;
            }
            let settings = [&small[..], &[&design, "mmu_cache.entries=6", table]].concat();
            let results = run("r4700", &settings, &rows);
            assert_eq!(results.faults.first_touch, first_touches, "{settings:?}");
        }
    }
}

/// In virtual machines, with a host whose pages are larger or smaller than the guest's, the guest
/// has as many first touches as without a host.
#[test]
fn a_virtual_machine_sees_the_same() {
    for (seed, guest, host) in [(21, "4K", "4K"), (22, "4K", "2M"), (23, "2M", "4K")] {
        let (rows, first_touches) = life(seed, 4000);
        let sizes = [format!("os.page_size={guest}"), format!("nested.page_size={host}")];
        let settings = ["memory.size=64G", "nested.tlb.entries=16", "nested.mmu_cache.entries=8"];
        let settings = [&settings[..], &[&sizes[0], &sizes[1]]].concat();
        for machine in ["epyc-9005", "xeon-6900p"] {
            let results = run(machine, &settings, &rows);
            if guest == "4K" {
                assert_eq!(results.faults.first_touch, first_touches, "{machine}, seed {seed}");
            }
        }
    }
}

/// If several regions share superpages, every identity of counts and every translation is still
/// correct.
#[test]
fn superpages_over_many_regions_stay_right() {
    for seed in 1..=10 {
        let (rows, _) = life(seed, 4000);
        for machine in ["tlb-only", "epyc-9005", "xeon-6900p"] {
            for uniform in ["os.uniform=false", "os.uniform=true"] {
                run(machine, &["os.page_size=2M", uniform], &rows);
            }
        }
    }
}

/// Two spaces use equal addresses, with and without ASIDs in the TLB.
#[test]
fn spaces_do_not_see_each_other() {
    let mut rows = Vec::new();
    for round in 0..20 {
        rows.push(Row::Event(Event::Run { cpu: None, space: round % 3 }));
        rows.extend((0..30).map(|page| Row::Access(Kind::Store, addr(page), 8)));
    }
    for design in ["uptc", "utc", "tpc"] {
        let design = format!("mmu_cache.design={design}");
        let hardware = ["walker.kind=hardware", "page_table.format=x86-64"];
        let settings = [&[&design, "mmu_cache.entries=8"], &hardware[..]].concat();
        run("r4700", &settings, &rows);
        run("r4700", &[&settings[..], &["core.asid_bits=1"]].concat(), &rows);
    }
    let tagged = run("r4700", &[], &rows);
    let untagged = run("r4700", &["core.asid_bits=0"], &rows);
    assert_eq!(tagged.faults.first_touch, 90);
    assert_eq!(untagged.faults.first_touch, 90);
    let flushed = |results: &machine::Results| results.tlbs[0].flushed;
    assert!(flushed(&untagged) > flushed(&tagged));
    assert_eq!(tagged.regions.len(), 3);
}

#[test]
fn memory_that_runs_out_stops_the_run() {
    let settings = vec!["memory.size=1M".to_owned()];
    let machine = machine::Machine::load("epyc-9005", &settings).unwrap();
    let rows = (0..300).map(|page| Row::Access(Kind::Load, addr(page), 8)).collect();
    let options = machine::RunOptions { check: false, progress: &mut |_| true };
    let error = machine.run(&mut crate::support::Rows::new(rows), options).unwrap_err().to_string();
    assert!(error.contains("out of memory") && error.contains("memory.size"), "{error}");
}
