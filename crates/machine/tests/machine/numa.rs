//! Tests memory nodes: the placement of pages, references by node, migration, the effect of
//! distances on time, and errors in settings. Counts are compared with a simple model.

use std::collections::BTreeMap;

use addr::Kind;
use machine::{Machine, Results, results::NumaCounts};
use trace::{Event, Origin};

use crate::support::{Row, Stream, run};

const HEAP: u64 = 0x4000_0000;
/// The bytes of the two pages that a TLB entry of `origin-200qc` covers.
const PAIR: u64 = 32 << 10;
const PAGES: u64 = 48;

fn heap(bytes: u64) -> Row {
    let (rights, origin) = (3, Origin::Heap);
    let mapping =
        Event::Mapping { start: HEAP, bytes, rights, origin, offset: Some(0), file: None };
    Row::Event(mapping)
}

/// Four processors on two nodes, each with a TLB of one entry.
const SMALL: [&str; 3] = ["core.count=4", "tlb.l1.entries=1", "memory.numa={nodes=2}"];

/// Stores to the first page of a pair, as processor and pair. For some time most stores are by one
/// processor, then by another.
fn stores(seed: u64, count: u64) -> Vec<(u64, u64)> {
    let mut stream = Stream(seed);
    let mut often = 0;
    (0..count)
        .map(|_| {
            if stream.below(150) == 0 {
                often = stream.below(4);
            }
            let processor = if stream.below(4) == 0 { stream.below(4) } else { often };
            (processor, stream.below(PAGES))
        })
        .collect()
}

fn rows(stores: &[(u64, u64)]) -> Vec<Row> {
    let each = stores.iter().flat_map(|(processor, page)| {
        let at = HEAP + page * PAIR;
        [Row::Thread(*processor as u32), Row::Access(Kind::Store, at, 8)]
    });
    std::iter::once(heap(PAGES * PAIR)).chain(each).collect()
}

/// A simple model of the counts of nodes.
#[derive(Default)]
struct Model {
    held: BTreeMap<u64, u64>,
    home: BTreeMap<u64, usize>,
    references: BTreeMap<u64, [u32; 2]>,
    misses: [[u64; 2]; 2],
    moved: u64,
}

impl Model {
    fn store(&mut self, (processor, page): (u64, u64), on: fn(u64, usize) -> usize, after: u32) {
        if self.held.insert(processor, page) == Some(page) {
            return;
        }
        let from = processor as usize / 2;
        let home = *self.home.entry(page).or_insert_with(|| on(page, from));
        self.misses[from][home] += 1;
        let references = self.references.entry(page).or_default();
        references[from] += 1;
        if from != home && references[from].saturating_sub(references[home]) >= after {
            *references = [0; 2];
            self.home.insert(page, from);
            self.moved += 1;
            // The page's translation is flushed on all processors.
            self.held.retain(|_, held| *held != page);
        }
    }
}

fn numa(results: &Results) -> &NumaCounts {
    results.numa.as_ref().unwrap()
}

fn misses(results: &Results) -> [[u64; 2]; 2] {
    let of = |node: usize| numa(results).nodes[node].misses.clone().try_into().unwrap();
    [of(0), of(1)]
}

#[test]
fn references_and_moves_are_those_of_a_model() {
    type On = fn(u64, usize) -> usize;
    let placements: [(&str, On); 3] = [
        ("local", |_, from| from),
        ("in-turn", |page, _| (page * 2) as usize % 2),
        ("node 1", |_, _| 1),
    ];
    for manager in ["irix", "base"] {
        for (seed, (placement, on)) in (1..).zip(placements) {
            for after in [None, Some(3), Some(40)] {
                let stores = stores(seed, 4000);
                let migrate = after.map_or(String::new(), |n| format!(",migrate_after={n}"));
                let numa = format!("os.numa={{placement=\"{placement}\"{migrate}}}");
                let manager = format!("os.manager={manager}");
                let settings = [&SMALL[..], &[&numa, &manager]].concat();
                let results = run("origin-200qc", &settings, &rows(&stores));
                let mut model = Model::default();
                for store in stores {
                    model.store(store, on, after.unwrap_or(u32::MAX));
                }
                assert_eq!(misses(&results), model.misses, "{settings:?}");
                let migration = self::numa(&results).migration.as_ref();
                assert_eq!(migration.map_or(0, |all| all.pages), model.moved, "{settings:?}");
                assert_eq!(migration.is_some(), after.is_some());
                if let Some(migration) = migration {
                    assert_eq!(migration.references, results.walks.walks);
                    assert_eq!(migration.counting_cycles, 30 * migration.references);
                    assert!(after != Some(3) || model.moved > 50, "{} pages moved", model.moved);
                }
            }
        }
    }
}

/// A page in the range of a rule migrates as a whole, even if it is large. A page in no rule does
/// not migrate.
#[test]
fn rules_say_it_for_their_range() {
    let rows: Vec<Row> = [heap(4 << 20)]
        .into_iter()
        .chain((0..64).map(|n| Row::Access(Kind::Store, HEAP + (n % 4) * (1 << 20), 8)))
        .chain([Row::Thread(3)])
        .chain((0..200).map(|n| Row::Access(Kind::Load, HEAP + (n % 4) * (1 << 20), 8)))
        .collect();
    let place =
        format!("os.place=range {HEAP:#x}..{:#x}=64K migrate 20\nheap=64K", HEAP + (2 << 20));
    let results = run("origin-200qc", &[&SMALL[..], &[&place]].concat(), &rows);
    let migration = numa(&results).migration.clone().unwrap();
    assert_eq!((migration.pages, migration.base_pages), (2, 8), "64K of 16K");
    assert_eq!(migration.refused, BTreeMap::new());
    assert_eq!(results.memory.pages_by_size["64K"], 4);
    // Node 0 has accessed each page 16 times. Two pages become due after 36 accesses by node 1, and
    // two pages never.
    assert_eq!(misses(&results)[1], [50 + 50 + 36 + 36, 14 + 14]);
}

/// Distances change the cost of references, and nothing else.
#[test]
fn a_remote_reference_takes_as_much_more_as_it_is_farther() {
    let stores = stores(9, 3000);
    let with = |distances: &str| {
        let numa = format!("memory.numa={{nodes=2,distances={distances}}}");
        let settings = ["core.count=4", "tlb.l1.entries=1", &numa, "cache.l2.size=64K"];
        run("origin-200qc", &settings, &rows(&stores))
    };
    let (near, far) = (with("[[10,10],[10,10]]"), with("[[10,30],[15,10]]"));
    assert_eq!(
        (near.walks.clone(), near.numa.as_ref().map(|numa| numa.remote_misses)),
        (far.walks.clone(), far.numa.as_ref().map(|numa| numa.remote_misses))
    );
    // A local access to memory takes 61 cycles; a remote one takes 122 more from node 0 and 30 more
    // from node 1.
    let more = |of: fn(&machine::results::NodeCounts) -> &Vec<u64>| {
        let nodes = &numa(&far).nodes;
        of(&nodes[0])[1] * 122 + of(&nodes[1])[0] * 30
    };
    let (before, after) = (near.time.as_ref().unwrap(), far.time.as_ref().unwrap());
    assert!(more(|node| &node.accesses) > 0);
    assert_eq!(after.program_cycles.hi - before.program_cycles.hi, more(|node| &node.accesses));
    assert_eq!(
        after.translation_cycles.hi - before.translation_cycles.hi,
        more(|node| &node.walk_references)
    );
    let served: u64 = numa(&far).nodes.iter().flat_map(|node| &node.accesses).sum();
    let l2 = far.caches.iter().find(|cache| cache.name == "l2").unwrap();
    assert_eq!(served, l2.program.read_misses + l2.program.write_misses);
}

/// Under every manager, a page is on the node of the processor that touches it first.
#[test]
fn every_manager_places_locally() {
    for manager in ["first-touch", "base", "irix", "freebsd", "linux"] {
        let mut rows = vec![heap(16 << 20)];
        for n in 0..2000u64 {
            let thread = n % 2;
            rows.push(Row::Thread(thread as u32));
            let at = HEAP + thread * (8 << 20) + n * 4096 * 37 % (8 << 20);
            rows.push(Row::Access(Kind::Store, at, 8));
        }
        let manager = format!("os.manager={manager}");
        let sizes =
            ["l1i", "l1d"].map(|tlb| format!("tlb.{tlb}.page_sizes=[\"4K\",\"2M\",\"1G\"]"));
        let settings = [
            &manager,
            "core.count=2",
            "memory.size=64M",
            "memory.numa={nodes=2}",
            &sizes[0],
            &sizes[1],
        ];
        let results = run("epyc-9005", &settings, &rows);
        let numa = numa(&results);
        assert_eq!(numa.remote_misses, 0, "{manager}");
        assert_eq!(numa.local_misses, results.walks.walks, "{manager}");
        let used = numa.nodes.iter().map(|node| node.used_bytes.unwrap());
        let reserved = results.manager.as_ref().map_or(0, |manager| manager.bytes.reserved);
        let all = results.memory.frames_used_bytes + reserved;
        assert_eq!(used.clone().sum::<u64>(), all, "{manager}");
        assert!(used.min().unwrap() > 3 << 20, "{manager}: both nodes have pages");
    }
}

/// If a node has no large page, the page is borrowed from the next node, or a smaller page of the
/// node itself is used.
#[test]
fn borrow_or_stay() {
    let rows: Vec<Row> = [heap(24 << 20)]
        .into_iter()
        .chain((0..384).map(|n| Row::Access(Kind::Store, HEAP + n * (64 << 10), 8)))
        .collect();
    // Each node has 16M of memory, so node 0 has no room for all pages.
    let machine = [
        "core.count=2",
        "memory.size=32M",
        "memory.numa={nodes=2}",
        "os.marks={min=\"0K\",low=\"0K\",high=\"0K\"}",
    ];
    let of = |rule: &str| {
        let place = format!("os.place=heap=64K {rule}");
        let results = run("origin-200qc", &[&machine[..], &[&place]].concat(), &rows);
        (misses(&results)[0], results.memory.pages_by_size.clone())
    };
    let (borrowed, sizes) = of("borrow");
    assert_eq!(sizes["64K"], 384);
    assert!(borrowed[0] > 200 && borrowed[1] > 100, "{borrowed:?}");
    let (stays, sizes) = of("stay");
    assert!(sizes["64K"] < 260 && sizes["16K"] > 100, "{sizes:?}");
    assert!(stays[1] < borrowed[1], "base pages alone are borrowed: {stays:?}");
}

#[test]
fn what_cannot_be() {
    let base = ["core.count=2", "memory.numa={nodes=2}"];
    for (machine, settings, expected) in [
        ("origin-200qc", vec!["memory.numa={nodes=0}"], "memory.numa.nodes: "),
        (
            "origin-200qc",
            vec!["memory.numa={nodes=2,distances=[[10]]}"],
            "the distances must be 2 rows of 2 numbers",
        ),
        (
            "origin-200qc",
            vec!["memory.numa={nodes=2,distances=[[10,9],[20,10]]}"],
            "the distance from node 0 to node 1 is 9: write 10",
        ),
        (
            "origin-200qc",
            vec!["memory.numa={nodes=2,processors=[0,2]}"],
            "processors must list the node of each of the 2 processors (core.count)",
        ),
        (
            "origin-200qc",
            vec!["os.numa={placement=\"local\"}"],
            "os.numa: this policy needs several memory nodes",
        ),
        (
            "origin-200qc",
            vec!["os.place=data=64K node 1"],
            "line 1: the machine has only one memory node",
        ),
        ("tlb-only", vec!["memory.numa={nodes=2}"], "a machine without a page table has no frames"),
        (
            "epyc-9005",
            [&base[..], &["os.manager=linux", "os.numa={migrate_after=9}"]].concat(),
            "os.numa.migrate_after: pages of the manager `linux` stay on their nodes",
        ),
        (
            "epyc-9005",
            [&base[..], &["os.manager=linux", "os.place=data=2M migrate 5"]].concat(),
            "line 1: pages of the manager `linux` stay on their nodes",
        ),
        (
            "origin-200qc",
            [&base[1..], &["os.numa={placement=\"node 2\"}"]].concat(),
            "os.numa.placement: there is no node 2: the highest node is 1",
        ),
        (
            "origin-200qc",
            [&base[1..], &["os.place=data=64K node 7"]].concat(),
            "line 1: there is no node 7: the highest node is 1",
        ),
        (
            "origin-200qc",
            [&base[1..], &["os.numa={placement=\"near\"}"]].concat(),
            "`near` is not a placement: choose local, in-turn, or a node, as in `node 1`",
        ),
        ("origin-200qc", vec!["os.colors=0"], "os.colors: write 1 or more"),
    ] {
        let settings: Vec<String> = settings.iter().map(|one| (*one).to_owned()).collect();
        let error = Machine::load(machine, &settings).err().map(|error| error.to_string());
        let error = error.unwrap_or_else(|| panic!("{settings:?} was taken"));
        assert!(error.contains(expected), "{settings:?}: {error}");
    }
}
