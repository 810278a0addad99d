//! Tests on-line promotion under every manager: misses are charged as in a simple model. Also tests
//! pages that cannot be promoted, or can no longer be promoted.

use std::collections::{BTreeMap, BTreeSet};

use addr::Kind;
use machine::{
    Machine, Results, RunOptions,
    results::PromotionCounts,
    sweep::{SweepOptions, sweep},
};
use trace::{Event, Origin};

use crate::support::{Row, Rows, Stream};

const HEAP: u64 = 0x4000_0000;
const MIB: u64 = 1 << 20;

fn heap(bytes: u64) -> Row {
    let (rights, origin) = (3, Origin::Heap);
    let mapping =
        Event::Mapping { start: HEAP, bytes, rights, origin, offset: Some(0), file: None };
    Row::Event(mapping)
}

/// Stores to random words of `bytes` bytes: for some time to all of them, then to a part.
fn stores(seed: u64, bytes: u64, count: u64) -> Vec<Row> {
    let mut stream = Stream(seed);
    let mut rows = vec![heap(bytes)];
    let (mut from, mut within) = (0, bytes);
    for _ in 0..count {
        if stream.below(200) == 0 {
            within = [bytes, bytes / 8, bytes / 32][stream.below(3) as usize];
            from = stream.below(bytes - within + 1) & !7;
        }
        rows.push(Row::Access(Kind::Store, HEAP + from + stream.below(within / 8) * 8, 8));
    }
    rows
}

fn load(machine: &str, settings: &[&str]) -> Result<Machine, String> {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    Machine::load(machine, &settings).map_err(|error| error.to_string())
}

fn run(machine: &str, settings: &[&str], rows: &[Row]) -> Results {
    let options = RunOptions { check: true, progress: &mut |_| true };
    load(machine, settings).unwrap().run(&mut Rows::new(rows.to_vec()), options).unwrap()
}

fn promotion(results: &Results) -> &PromotionCounts {
    results.promotion.as_ref().unwrap()
}

fn promoted(results: &Results) -> u64 {
    promotion(results).sizes.iter().map(|of| of.promoted).sum()
}

/// A simple model of a TLB with LRU replacement, and of the charges.
#[derive(Default)]
struct Model {
    /// The first address and the bytes of each page, the most recently used page last.
    tlb: Vec<(u64, u64)>,
    /// Base pages that were touched or filled, each with the bytes of the page that contains it.
    mapped: BTreeMap<u64, u64>,
    charges: BTreeMap<(u64, u64), u64>,
    misses: u64,
    charged: u64,
    counted: u64,
    made: BTreeMap<u64, u64>,
}

impl Model {
    fn access(&mut self, addr: u64, base: u64, entries: usize, thresholds: &[(u64, u64)]) {
        let held = |&(start, bytes): &(u64, u64)| start <= addr && addr < start + bytes;
        if let Some(place) = self.tlb.iter().position(held) {
            let entry = self.tlb.remove(place);
            self.tlb.push(entry);
            return;
        }
        self.misses += 1;
        let page = addr / base * base;
        if let Some(&own) = self.mapped.get(&page) {
            let candidates: Vec<(u64, u64)> =
                thresholds.iter().copied().filter(|(bytes, _)| *bytes > own).collect();
            self.counted += u64::from(!candidates.is_empty());
            let (mut due, mut is_charged) = (None, false);
            for (bytes, threshold) in candidates {
                let first = addr / bytes * bytes;
                let is_near = |(start, _): &(u64, u64)| first <= *start && *start < first + bytes;
                if self.tlb.iter().any(is_near) {
                    is_charged = true;
                    let charge = self.charges.entry((first, bytes)).or_insert(0);
                    *charge += 1;
                    if *charge >= threshold {
                        due = Some((first, bytes));
                    }
                }
            }
            self.charged += u64::from(is_charged);
            if let Some((first, bytes)) = due {
                *self.made.entry(bytes).or_insert(0) += 1;
                (first..first + bytes).step_by(base as usize).for_each(|page| {
                    self.mapped.insert(page, bytes);
                });
                self.tlb.retain(|(start, _)| *start < first || first + bytes <= *start);
                self.charges.retain(|(start, of), _| {
                    *of > bytes || *start < first || first + bytes <= *start
                });
            }
        }
        let own = *self.mapped.entry(page).or_insert(base);
        if self.tlb.len() == entries {
            self.tlb.remove(0);
        }
        self.tlb.push((addr / own * own, own));
    }
}

#[test]
fn misses_are_charged_as_a_model_charges_them() {
    const BASE: u64 = 16 << 10;
    for (manager, page_cycles) in
        [("irix", 100), ("base", 100), ("irix", 400), ("base", 40), ("irix", 2000)]
    {
        let rows = stores(page_cycles, 8 * MIB, 40_000);
        let manager = format!("os.manager={manager}");
        let asked = format!(
            "os.promotion={{sizes=[\"64K\",\"256K\",\"1M\"],miss_cycles=50,count_cycles=7,page_cycles={page_cycles}}}"
        );
        let settings = [
            manager.as_str(),
            asked.as_str(),
            "tlb.l1.entries=8",
            "tlb.l1.paired=false",
            "tlb.l1.replacement=lru",
        ];
        let results = run("origin-2000", &settings, &rows);
        let sizes = [64 << 10, 256 << 10, MIB];
        let thresholds = sizes.map(|bytes| (bytes, (bytes / BASE * page_cycles).div_ceil(50)));
        let mut model = Model::default();
        for row in &rows {
            let &Row::Access(_, addr, _) = row else { continue };
            model.access(addr, BASE, 8, &thresholds);
        }
        let counts = promotion(&results);
        assert_eq!(results.walks.walks, model.misses, "{settings:?}");
        assert_eq!((counts.misses, counts.charged), (model.counted, model.charged));
        for (of, (bytes, threshold)) in counts.sizes.iter().zip(thresholds) {
            let made = model.made.get(&bytes).copied().unwrap_or(0);
            assert_eq!((of.promoted, of.threshold_misses), (made, threshold), "{of:?}");
            assert_eq!(of.refused, 0);
        }
        assert!(page_cycles >= 2000 || promoted(&results) > 0);
        assert_eq!(counts.counting_cycles, 7 * model.counted);
        let kernel = results.time.as_ref().unwrap().kernel.as_ref().unwrap();
        assert_eq!(kernel.by_work["counting"], counts.counting_cycles);
    }
}

#[test]
fn every_manager_promotes_what_misses_often() {
    let rows = stores(3, 32 * MIB, 60_000);
    let cheap = "os.promotion={page_cycles=20,miss_cycles=40}";
    for (machine, manager) in [
        ("origin-2000", "irix"),
        ("origin-2000", "base"),
        ("epyc-9005", "first-touch"),
        ("epyc-9005", "base"),
        ("epyc-9005", "linux"),
        ("opteron-2008", "freebsd"),
        ("opteron-2008", "first-touch"),
        ("opteron-2008", "base"),
    ] {
        let manager = format!("os.manager={manager}");
        let mut settings = vec![manager.as_str()];
        if manager.ends_with("linux") {
            settings.push("os.linux={enabled=\"never\"}");
        }
        let without = run(machine, &settings, &rows);
        settings.push(cheap);
        let with = run(machine, &settings, &rows);
        assert!(without.promotion.is_none());
        assert!(promoted(&with) > 0, "{machine} {manager}: {:?}", with.promotion);
        assert!(with.walks.walks < without.walks.walks, "{machine} {manager}");
        let base = if machine == "origin-2000" { "16K" } else { "4K" };
        let large = with.memory.pages_by_size.iter().filter(|(size, _)| *size != base);
        assert!(large.map(|(_, pages)| pages).sum::<u64>() > 0, "{:?}", with.memory.pages_by_size);
    }
    let refused = load("epyc-9005", &["os.manager=recorded", cheap]).unwrap_err();
    assert!(refused.contains("os.promotion: the manager `recorded` has no larger"), "{refused}");
}

#[test]
fn both_pages_of_a_pair_become_larger_together() {
    let rows = stores(4, 16 * MIB, 60_000);
    let asked = "os.promotion={sizes=[\"64K\"],page_cycles=20,miss_cycles=40}";
    let results = run("origin-2000", &["tlb.l1.entries=16", asked], &rows);
    let [of] = promotion(&results).sizes.as_slice() else { panic!() };
    // Promoting a pair of pages of 64K (8 base pages of 16K) at 20 cycles each takes 160 cycles,
    // which are 4 misses of 40 cycles.
    assert_eq!(of.threshold_misses, 4);
    assert!(of.promoted > 20 && of.promoted % 2 == 0, "{of:?}");
}

#[test]
fn what_is_unmapped_has_no_charge_and_what_is_scarce_stays_small() {
    // Two adjacent pages evict each other, one time less often than would promote them.
    let settings = [
        "os.manager=base",
        "tlb.l1.entries=2",
        "tlb.l1.paired=false",
        "tlb.l1.replacement=lru",
        "os.promotion={sizes=[\"64K\"],page_cycles=100,miss_cycles=40}",
    ];
    let round = |times: u64| {
        let pages = (0..times).flat_map(|_| [0u64, 1, 2]);
        pages.map(|page| Row::Access(Kind::Store, HEAP + page * 16384, 8)).collect::<Vec<Row>>()
    };
    // The first round has 3 first touches, and each other round 3 misses. The cost of 400 cycles
    // equals 10 misses.
    let mut rows = vec![heap(MIB)];
    rows.extend(round(4));
    assert_eq!(promoted(&run("origin-2000", &settings, &rows)), 0);
    let mut more = rows.clone();
    more.extend(round(1));
    assert_eq!(promoted(&run("origin-2000", &settings, &more)), 1);
    rows.push(Row::Event(Event::Munmap { addr: HEAP, bytes: MIB, result: 0 }));
    rows.push(heap(MIB));
    rows.extend(round(4));
    assert_eq!(promoted(&run("origin-2000", &settings, &rows)), 0);

    // After the first page of 4M, the rest of the 8 MiB has no room for another such page above the
    // high mark.
    let little = [
        "os.manager=base",
        "memory.size=8M",
        "tlb.l1.entries=8",
        "os.marks={min=\"512K\",low=\"1M\",high=\"2M\"}",
        "os.promotion={sizes=[\"4M\"],page_cycles=1,miss_cycles=40}",
    ];
    let results = run("origin-2000", &little, &stores(5, 8 * MIB, 20_000));
    let [of] = promotion(&results).sizes.as_slice() else { panic!() };
    assert!(of.promoted <= 1 && of.refused > 0, "{of:?}");
    let whys: BTreeSet<&str> =
        results.manager.as_ref().unwrap().upgrades.iter().map(|one| one.why.as_str()).collect();
    assert!(whys.contains("scarce"), "{whys:?}");
}

#[test]
fn a_sweep_promotes_as_a_run_does() {
    let rows = stores(6, 32 * MIB, 30_000);
    let asked = "os.promotion={page_cycles=20,miss_cycles=40}";
    let settings: [&[&str]; 2] = [&[asked], &[asked, "cache.l2.size=512K"]];
    let machines: Vec<Machine> =
        settings.iter().map(|set| load("epyc-9005", set).unwrap()).collect();
    let options = SweepOptions { progress: &mut |_| true, threads: 1 };
    let outcomes = sweep(&machines, &mut Rows::new(rows.clone()), options).unwrap();
    for (outcome, set) in outcomes.iter().zip(settings) {
        let alone = run("epyc-9005", set, &rows);
        assert_eq!(outcome.as_ref().unwrap().promotion, alone.promotion);
    }
}

#[test]
fn what_is_wrong_is_said() {
    for (settings, expected) in [
        (
            ["os.promotion={sizes=[\"2M\"]}"],
            "os.promotion.sizes: pages cannot be promoted to 2M on this machine",
        ),
        (
            ["os.promotion={miss_cycles=0}"],
            "os.promotion.miss_cycles: 0 cycles are not possible: write 1 or more",
        ),
        (
            ["os.promotion={page_cycles=0}"],
            "os.promotion.page_cycles: 0 cycles are not possible: write 1 or more",
        ),
        (["os.promotion={size=\"64K\"}"], "there is no key `size` here"),
    ] {
        let error = load("origin-2000", &settings).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
