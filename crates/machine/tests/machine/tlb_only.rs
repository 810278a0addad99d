//! Compares `tlb-only` with a simple model of a two-level TLB: vectors that are searched in order,
//! with published replacement rules.

use addr::Kind;

use crate::support::{Row, Stream, run};

/// A TLB as a list of sets. Each way is `(page, last use, filled, uses)`, or `None` if it is empty.
struct Model {
    sets: Vec<Vec<Option<Way>>>,
    policy: &'static str,
    clock: u64,
    lookups: u64,
    misses: u64,
}

#[derive(Clone, Copy)]
struct Way {
    page: u64,
    used: u64,
    filled: u64,
    uses: u64,
}

impl Model {
    fn new(entries: usize, ways: usize, policy: &'static str) -> Model {
        let sets = vec![vec![None; ways]; entries / ways];
        Model { sets, policy, clock: 0, lookups: 0, misses: 0 }
    }

    /// Looks up `page`, and inserts it if it is missing. Returns whether it was found.
    fn access(&mut self, page: u64) -> bool {
        self.clock += 1;
        self.lookups += 1;
        let count = self.sets.len() as u64;
        let set = &mut self.sets[(page % count) as usize];
        if let Some(way) = set.iter_mut().flatten().find(|way| way.page == page) {
            way.used = self.clock;
            way.uses += 1;
            return true;
        }
        self.misses += 1;
        let policy = self.policy;
        let age = |way: &Way| match policy {
            "lru" => way.used,
            "fifo" => way.filled,
            _ => way.uses,
        };
        // An empty way first, then the least by the policy, the lowest way on a tie.
        let victim = match set.iter().position(Option::is_none) {
            Some(empty) => empty,
            None => (0..set.len()).min_by_key(|&way| (set[way].as_ref().map(age), way)).unwrap(),
        };
        set[victim] = Some(Way { page, used: self.clock, filled: self.clock, uses: 1 });
        false
    }
}

/// Accesses with the locality of a program: to a few hot pages, to successive pages, and sometimes
/// anywhere. Some accesses touch two pages.
fn stream(seed: u64, accesses: u64) -> Vec<Row> {
    let mut stream = Stream(seed);
    let mut rows = Vec::new();
    for index in 0..accesses {
        let kind = Kind::ALL[stream.below(3) as usize];
        let page = match stream.below(10) {
            0..6 => stream.below(24),
            6..9 => 1000 + index / 7 % 300,
            _ => stream.below(1 << 34),
        };
        let offset = if stream.below(50) == 0 { 4093 } else { stream.below(4088) };
        let bytes = [1, 2, 4, 8][stream.below(4) as usize];
        rows.push(Row::Access(kind, page * 4096 + offset, bytes));
    }
    rows
}

#[test]
fn counts_equal_those_of_a_simple_simulator() {
    for (seed, (l1, l1_ways), (l2, l2_ways)) in [
        (1, (32, 32), (1024, 4)),
        (2, (64, 4), (1536, 12)),
        (3, (12, 3), (100, 5)),
        (4, (1, 1), (7, 7)),
        (5, (48, 6), (96, 96)),
    ] {
        for policy in ["lru", "fifo", "lfu"] {
            let rows = stream(seed, 30_000);
            let mut l1i = Model::new(l1, l1_ways, policy);
            let mut l1d = Model::new(l1, l1_ways, policy);
            let mut second = Model::new(l2, l2_ways, policy);
            for row in &rows {
                let Row::Access(kind, addr, bytes) = *row else { continue };
                let first = if kind == Kind::Fetch { &mut l1i } else { &mut l1d };
                for page in addr / 4096..=(addr + u64::from(bytes) - 1) / 4096 {
                    if !first.access(page) {
                        second.access(page);
                    }
                }
            }
            let settings = [
                format!("tlb.l1i.entries={l1}"),
                format!("tlb.l1i.ways={l1_ways}"),
                format!("tlb.l1i.replacement={policy}"),
                format!("tlb.l1d.entries={l1}"),
                format!("tlb.l1d.ways={l1_ways}"),
                format!("tlb.l1d.replacement={policy}"),
                format!("tlb.l2.entries={l2}"),
                format!("tlb.l2.ways={l2_ways}"),
                format!("tlb.l2.replacement={policy}"),
            ];
            let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
            let results = run("tlb-only", &settings, &rows);
            for (model, name) in [(&l1i, "l1i"), (&l1d, "l1d"), (&second, "l2")] {
                let tlb = results.tlbs.iter().find(|tlb| tlb.name == name).unwrap();
                assert_eq!(
                    (tlb.total.lookups, tlb.total.misses),
                    (model.lookups, model.misses),
                    "{name} of {settings:?} under seed {seed}"
                );
            }
        }
    }
}

#[test]
fn two_runs_count_alike() {
    let rows = stream(7, 20_000);
    for machine in ["tlb-only", "opteron-2008", "r4700", "epyc-9005", "xeon-6900p"] {
        assert_eq!(run(machine, &[], &rows), run(machine, &[], &rows), "{machine}");
    }
}

#[test]
fn a_page_size_changes_what_counts_as_one_page() {
    let rows: Vec<Row> =
        (0..64).map(|page| Row::Access(Kind::Load, page * 4096 + 4092, 8)).collect();
    let small = run("tlb-only", &[], &rows);
    let large = run("tlb-only", &["os.page_size=2M"], &rows);
    assert_eq!((small.page_crossings, small.walks.walks), (64, 65));
    assert_eq!((large.page_crossings, large.walks.walks), (0, 1));
}
