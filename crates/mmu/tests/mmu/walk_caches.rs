//! Compares the MMU caches with lists that are searched in order, over random trees, geometries and
//! walks. Also tests the sizes of B10 table 4.2 and the coverage theorems of B10 appendix A.

use addr::{Asid, VirtAddr, VirtRange};
use mmu::{AnyWalkCache, Design, GeometryError, Held, Policy, WalkCache, WalkCacheParams};
use pagetable::{Leads, Node, Reference, TreeShape};

use crate::model::{
    Rng,
    trees::{arrays, guarded, random_address, root, walk, x86},
    walk_cache::ModelWalkCache,
};

const SEEDS: u64 = 400;
const STEPS: u64 = 600;

/// Runs one walk as a walker does. One of the host's walks in `below` precedes each of its
/// references, and one precedes the page that it finds. Returns the answers of the cache.
fn run_nested(
    cache: &mut impl FnMut(Ask<'_>) -> Answer,
    tree: &TreeShape,
    walk: &OneWalk,
    below: &[OneWalk],
) -> Vec<(Node, Vec<Held>)> {
    let mut said = Vec::new();
    let at = VirtAddr::new(walk.va);
    let Answer::Start(start) = cache(Ask::Start(at, walk.asid, root(tree))) else { unreachable!() };
    let past = |reference: &Reference| reference.next() == Some(start);
    let skipped = match start.level {
        0 => walk.references.len() + 1,
        _ if start == root(tree) => 0,
        // If the table was exchanged without a flush, the walk is not followed further.
        _ => walk.references.iter().position(past).map_or(walk.references.len(), |n| n + 1),
    };
    let mut held = Vec::new();
    for step in skipped..=walk.references.len() {
        if let Some(host) = below.get(step) {
            said.extend(run_nested(cache, tree, host, &[]));
        }
        if let Some(reference) = walk.references.get(step) {
            let Answer::Held(answer) = cache(Ask::Read(at, walk.asid, reference)) else {
                unreachable!()
            };
            held.push(answer);
        }
    }
    cache(Ask::Finish(at, walk.asid, walk.found));
    if start.level > 0
        && walk.found
        && let Some(page) = walk.page
    {
        cache(Ask::Page(at, walk.asid, page));
    }
    said.push((start, held));
    said
}

/// A complete walk from the root.
struct OneWalk {
    va: u64,
    asid: Asid,
    references: Vec<Reference>,
    found: bool,
    /// The page that is inserted at the end of the walk, if the cache holds pages.
    page: Option<Node>,
}

/// A walk of a random address, which mostly finds its page.
fn random_walk(rng: &mut Rng, params: &WalkCacheParams, asid: Asid) -> OneWalk {
    let tree = &params.tree;
    let va = random_address(rng, tree.address_bits.into());
    let page = Node { level: 0, shift: 12, ..root(tree) };
    OneWalk {
        va,
        asid,
        references: walk(tree, va, asid, 1, 0),
        found: rng.chance(95),
        page: params.pages.then_some(page),
    }
}

/// Tests a cache that guest and host share: the host's walks run inside the guest's walks.
#[test]
fn a_shared_mmu_cache_does_what_a_list_searched_in_order_does() {
    for seed in 0..SEEDS {
        let mut rng = Rng(seed);
        let params = random_params(&mut rng);
        let mut cache = AnyWalkCache::new(&params).unwrap();
        let mut model = ModelWalkCache::new(&params);
        for step in 0..STEPS / 4 {
            let context = || format!("seed {seed}, step {step}, {params:?}");
            let guest = Asid(rng.below(2) as u16);
            let one = random_walk(&mut rng, &params, guest);
            let below: Vec<OneWalk> = (0..=one.references.len())
                .map(|_| random_walk(&mut rng, &params, Asid::HOST))
                .collect();
            let range = VirtRange::new(VirtAddr::new(one.va), 1 + rng.pick(&[0, 1 << 21])).unwrap();
            match rng.below(40) {
                0 => {
                    cache.flush_all();
                    model.flush_all();
                }
                1 => {
                    cache.flush_asid(guest);
                    model.flush_asid(guest);
                }
                2..5 => {
                    cache.flush_pages(range, guest);
                    model.flush_pages(range, guest);
                }
                5 => {
                    cache.flush_range(range, Asid::HOST);
                    model.flush_range(range, Asid::HOST);
                }
                _ => {
                    let seen = run_nested(&mut fast(&mut cache), &params.tree, &one, &below);
                    let expected = run_nested(&mut obvious(&mut model), &params.tree, &one, &below);
                    assert_eq!(seen, expected, "{}", context());
                }
            }
            assert_eq!(cache.searches(), model.searches, "{}", context());
            assert_eq!(sorted(cache.nodes()), sorted(model.nodes()), "{}", context());
        }
    }
}

/// Runs one walk as a walker does. Returns the answers of the cache.
fn run(
    cache: &mut impl FnMut(Ask<'_>) -> Answer,
    tree: &TreeShape,
    va: u64,
    asid: Asid,
    references: &[Reference],
    found: bool,
) -> (Node, Vec<Held>) {
    let at = VirtAddr::new(va);
    let Answer::Start(start) = cache(Ask::Start(at, asid, root(tree))) else { unreachable!() };
    let mut rest = references;
    if start != root(tree) {
        match references.iter().position(|reference| reference.next() == Some(start)) {
            Some(before) => rest = &references[before + 1..],
            None => rest = &[],
        }
    }
    let mut held = Vec::new();
    for reference in rest {
        let Answer::Held(answer) = cache(Ask::Read(at, asid, reference)) else { unreachable!() };
        held.push(answer);
    }
    cache(Ask::Finish(at, asid, found));
    (start, held)
}

enum Ask<'a> {
    Start(VirtAddr, Asid, Node),
    Read(VirtAddr, Asid, &'a Reference),
    Finish(VirtAddr, Asid, bool),
    Page(VirtAddr, Asid, Node),
}

enum Answer {
    Start(Node),
    Held(Held),
    Done,
}

fn fast(cache: &mut AnyWalkCache) -> impl FnMut(Ask<'_>) -> Answer {
    |ask| match ask {
        Ask::Start(va, asid, root) => Answer::Start(cache.start(va, asid, root)),
        Ask::Read(va, asid, reference) => Answer::Held(cache.read(va, asid, reference)),
        Ask::Finish(va, asid, found) => {
            cache.finish(va, asid, found);
            Answer::Done
        }
        Ask::Page(va, asid, page) => {
            cache.page(va, asid, page);
            Answer::Done
        }
    }
}

fn obvious(cache: &mut ModelWalkCache) -> impl FnMut(Ask<'_>) -> Answer {
    |ask| match ask {
        Ask::Start(va, asid, root) => Answer::Start(cache.start(va, asid, root)),
        Ask::Read(va, asid, reference) => Answer::Held(cache.read(va, asid, reference)),
        Ask::Finish(va, asid, found) => {
            cache.finish(va, asid, found);
            Answer::Done
        }
        Ask::Page(va, asid, page) => {
            cache.page(va, asid, page);
            Answer::Done
        }
    }
}

fn sorted(mut nodes: Vec<Node>) -> Vec<Node> {
    nodes.sort_unstable_by_key(|node| (node.level, node.table, node.shift));
    nodes
}

fn distinct(nodes: Vec<Node>) -> Vec<Node> {
    let mut nodes = sorted(nodes);
    nodes.dedup();
    nodes
}

fn random_params(rng: &mut Rng) -> WalkCacheParams {
    let design = rng.pick(&Design::ALL);
    let tree = match rng.below(3) {
        0 => x86(4),
        1 => x86(5),
        _ if design.is_split() => x86(3),
        _ => guarded(),
    };
    let ways = rng.pick(&[1, 2, 3, 4, 8, 11, 24, 40]);
    let sets =
        if design == Design::Tpc && tree.spans.is_none() { 1 } else { rng.pick(&[1, 1, 2, 3]) };
    let mut arrays = arrays(design, &tree, ways * sets, ways);
    for array in arrays.iter_mut().skip(1) {
        array.entries = array.ways * rng.pick(&[1, 2]);
    }
    if arrays.len() > 1 && rng.chance(20) {
        arrays.remove(rng.below(arrays.len() as u64) as usize);
    }
    let replacement = rng.pick(&Policy::ALL);
    let pages = design == Design::Utc && rng.chance(50);
    WalkCacheParams { design, arrays, replacement, seed: rng.next(), pages, tree }
}

#[test]
fn an_mmu_cache_does_what_a_list_searched_in_order_does() {
    for seed in 0..SEEDS {
        let mut rng = Rng(seed);
        let params = random_params(&mut rng);
        let tree = &params.tree;
        let mut cache = AnyWalkCache::new(&params).unwrap();
        let mut model = ModelWalkCache::new(&params);
        let asids = rng.pick(&[1, 3]);
        // If tables are exchanged without a flush, walks still follow the old tables.
        let mut generation = 0;
        for step in 0..STEPS {
            let context = || format!("seed {seed}, step {step}, {params:?}");
            let va = random_address(&mut rng, tree.address_bits.into());
            let asid = Asid(rng.below(asids) as u16);
            match rng.below(100) {
                0..92 => {
                    let leaf = rng.pick(&[1, 1, 1, 2, 3]);
                    let mut found = rng.chance(95);
                    let mut references = walk(tree, va, asid, leaf, generation);
                    if tree.spans.is_none() && rng.chance(10) {
                        // A guard on the path does not match.
                        references.truncate(1 + rng.below(references.len() as u64) as usize);
                        let last = references.last_mut().unwrap();
                        last.leads = last.next().map_or(Leads::Nowhere, Leads::Elsewhere);
                        found = false;
                    }
                    let args = (tree, va, asid, &references[..], found);
                    let seen = run(&mut fast(&mut cache), args.0, args.1, args.2, args.3, args.4);
                    let expected =
                        run(&mut obvious(&mut model), args.0, args.1, args.2, args.3, args.4);
                    assert_eq!(seen, expected, "{}", context());
                }
                92..97 => {
                    let bytes = 1 + rng.pick(&[0, 4095, 1 << 21, 1 << 32]);
                    let range = VirtRange::new(VirtAddr::new(va), bytes).unwrap();
                    cache.flush_range(range, asid);
                    model.flush_range(range, asid);
                }
                97 => {
                    cache.flush_asid(asid);
                    model.flush_asid(asid);
                }
                98 => {
                    cache.flush_all();
                    model.flush_all();
                }
                _ => generation += u64::from(rng.chance(30)),
            }
            assert_eq!(cache.searches(), model.searches, "{}", context());
            if step % 16 == 0 {
                assert_eq!(sorted(cache.nodes()), sorted(model.nodes()), "{}", context());
            }
        }
    }
}

/// Tests the sizes of B10 table 4.2, which is for physical addresses of 52 bits and four levels,
/// and the corresponding sizes for 46 bits and five levels.
#[test]
fn the_bits_of_an_entry_are_those_of_the_thesis() {
    let bits = |design: Design, levels: u8, physical: u32| {
        let tree = x86(levels);
        let arrays = arrays(design, &tree, 24, 24);
        let params = WalkCacheParams {
            design,
            arrays,
            replacement: Policy::Lru,
            seed: 1,
            pages: false,
            tree,
        };
        let of = params.bits(physical).unwrap();
        (
            of.iter().map(|array| array.tag_bits).collect::<Vec<_>>(),
            of.iter().map(|array| array.data_bits).collect::<Vec<_>>(),
        )
    };
    for (design, levels, physical, tags, data) in [
        (Design::Uptc, 4, 52, vec![49], vec![40]),
        (Design::Sptc, 4, 52, vec![49; 3], vec![40; 3]),
        (Design::Utc, 4, 52, vec![27], vec![40]),
        // The lowest level is first here; the thesis has the opposite order.
        (Design::Stc, 4, 52, vec![27, 18, 9], vec![40; 3]),
        (Design::Tpc, 4, 52, vec![27], vec![120]),
        (Design::Uptc, 5, 46, vec![43], vec![34]),
        (Design::Stc, 5, 46, vec![36, 27, 18, 9], vec![34; 4]),
        (Design::Tpc, 5, 46, vec![36], vec![136]),
    ] {
        assert_eq!(bits(design, levels, physical), (tags, data), "{design:?} {levels} {physical}");
    }
}

/// Runs one stream of walks on two LRU caches. Returns whether the cache `larger` always holds all
/// nodes that `of` holds.
fn covers(of: &WalkCacheParams, larger: &WalkCacheParams, seed: u64) -> bool {
    let mut rng = Rng(seed);
    let mut caches = [of, larger].map(|params| AnyWalkCache::new(params).unwrap());
    let spread = rng.pick(&[2, 8, 40]);
    (0..400).all(|_| {
        let upper = rng.below(spread) << 39 | rng.below(spread) << 30;
        let va = upper | rng.below(spread) << 21 | rng.below(512) << 12;
        let references = walk(&of.tree, va, Asid(0), 1, 0);
        for cache in &mut caches {
            run(&mut fast(cache), &of.tree, va, Asid(0), &references, true);
        }
        let [less, more] = [0, 1].map(|n| distinct(caches[n].nodes()));
        less.iter().all(|node| more.contains(node))
    })
}

fn lru(design: Design, entries: u32) -> WalkCacheParams {
    let tree = x86(4);
    let arrays = arrays(design, &tree, entries, entries);
    WalkCacheParams { design, arrays, replacement: Policy::Lru, seed: 1, pages: false, tree }
}

/// Tests lemmas A.1.1 and A.1.2 and theorem A.1.3 of B10.
#[test]
fn a_path_cache_holds_what_a_unified_cache_of_as_many_entries_holds() {
    for seed in 0..60 {
        for entries in [1, 2, 3, 5, 8, 24] {
            for unified in [Design::Uptc, Design::Utc] {
                let context = format!("seed {seed}, {entries} entries, {unified:?}");
                let paths = lru(Design::Tpc, entries);
                assert!(covers(&lru(unified, entries), &paths, seed), "{context}");
            }
        }
    }
}

/// Tests lemma A.1.2 of B10: if a cache holds an entry of an upper level, it also holds an entry
/// for a table below it.
#[test]
fn a_unified_lru_cache_holds_no_table_without_one_below_it() {
    for (seed, design) in (0..40).flat_map(|seed| [(seed, Design::Uptc), (seed, Design::Utc)]) {
        let mut rng = Rng(seed);
        let params = lru(design, rng.pick(&[1, 2, 3, 5, 9, 24]));
        let mut cache = AnyWalkCache::new(&params).unwrap();
        let mut under: Vec<(Node, Vec<Node>)> = Vec::new();
        for _ in 0..300 {
            let va = rng.below(6) << 39 | rng.below(6) << 30 | rng.below(6) << 21;
            let references = walk(&params.tree, va, Asid(0), 1, 0);
            let nodes: Vec<Node> = references.iter().filter_map(|read| read.next()).collect();
            for node in &nodes[..2] {
                match under.iter_mut().find(|(known, _)| known == node) {
                    Some((_, leaves)) => leaves.push(nodes[2]),
                    None => under.push((*node, vec![nodes[2]])),
                }
            }
            run(&mut fast(&mut cache), &params.tree, va, Asid(0), &references, true);
            let held = cache.nodes();
            for (node, leaves) in &under {
                let orphan = held.contains(node) && !leaves.iter().any(|leaf| held.contains(leaf));
                assert!(!orphan, "seed {seed}, {design:?}: {node:?}");
            }
        }
    }
}

/// Tests lemmas A.2.1 and A.2.2 and theorem A.2.3 of B10.
#[test]
fn a_split_page_table_cache_holds_what_a_path_cache_of_as_many_entries_holds() {
    for seed in 0..60 {
        for entries in [1, 2, 3, 5, 8, 24] {
            let (paths, split) = (lru(Design::Tpc, entries), lru(Design::Sptc, entries));
            assert!(covers(&paths, &split, seed), "seed {seed}, {entries} entries");
            // Lemma A.2.1: both caches hold the same entries of the lowest level.
            let mut lowest = lru(Design::Sptc, entries);
            lowest.arrays.truncate(1);
            assert!(covers(&lowest, &paths, seed), "seed {seed}, {entries} entries, lowest");
        }
    }
}

/// Tests the note after theorem A.2.3 of B10: the theorem does not hold if the arrays of upper
/// levels are smaller.
#[test]
fn smaller_upper_levels_break_the_second_theorem() {
    let mut split = lru(Design::Sptc, 8);
    for array in split.arrays.iter_mut().filter(|array| array.level > 2) {
        (array.entries, array.ways) = (2, 2);
    }
    let held = (0..60).filter(|&seed| covers(&lru(Design::Tpc, 8), &split, seed)).count();
    assert!(held < 60, "some access pattern shows it");
}

#[test]
fn a_cache_that_cannot_be_is_refused_with_the_array_that_is_wrong() {
    for design in Design::ALL {
        let mut params = lru(design, 24);
        let last = params.arrays.len() - 1;
        params.arrays[last].ways = 7;
        let (array, error) = AnyWalkCache::new(&params).unwrap_err();
        assert_eq!(array, params.arrays[last]);
        assert_eq!(error, GeometryError::Ways { entries: 24, ways: 7 });
        params.arrays.clear();
        assert_eq!(AnyWalkCache::new(&params).is_err(), !design.is_split());
    }
    let error = "pwc".parse::<Design>().unwrap_err().to_string();
    assert_eq!(error, "`pwc` is not an MMU cache: write none, uptc, sptc, utc, stc, tpc");
}
