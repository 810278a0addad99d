//! Compares a family of MMU caches of many sizes with each of these caches separately.

use std::collections::{HashMap, HashSet};

use addr::{Asid, VirtAddr, VirtRange};
use mmu::{
    AnyWalkCache, Design, Held, Policy, Step, WalkArray, WalkCache, WalkCacheFamily,
    WalkCacheParams,
};
use pagetable::{Leads, Reference, TreeShape};

use crate::model::{
    Rng,
    trees::{guarded, random_address, root, walk, x86},
};

const SEEDS: u64 = 300;
const STEPS: u64 = 500;

/// The numbers of nodes, by the addresses and space for which the nodes are valid.
#[derive(Default)]
struct Numbers {
    /// All tables so far; no table is removed, whatever is flushed.
    exist: HashSet<(u64, u8, Asid)>,
    of: HashMap<(u64, u8, Asid), u32>,
    next: u32,
}

impl Numbers {
    fn steps(&mut self, va: u64, asid: Asid, references: &[Reference]) -> Vec<Step> {
        let next = &mut self.next;
        let mut number = |shift: u8| {
            self.exist.insert((va >> shift, shift, asid));
            *self.of.entry((va >> shift, shift, asid)).or_insert_with(|| {
                *next += 1;
                *next - 1
            })
        };
        let steps = references.iter().filter_map(|read| read.next().map(|node| (read, node)));
        steps
            .map(|(read, node)| Step { node: number(node.shift), from: read.level, to: node.level })
            .collect()
    }

    fn exists(&self, va: u64, shift: u8, asid: Asid) -> bool {
        self.exist.contains(&(va >> shift, shift, asid))
    }

    /// Removes the numbers for which `goes` returns true, and returns them; they may be reused.
    fn forget(&mut self, goes: impl Fn(&(u64, u8, Asid)) -> bool) -> Vec<u32> {
        let gone = self.of.extract_if(|tag, _| goes(tag)).map(|(_, number)| number);
        gone.collect()
    }
}

/// For each step, whether the walk need not read its entry because `cache` holds or skips it.
fn alone(
    cache: &mut AnyWalkCache,
    tree: &TreeShape,
    va: u64,
    asid: Asid,
    references: &[Reference],
    found: bool,
) -> Vec<bool> {
    let at = VirtAddr::new(va);
    let start = cache.start(at, asid, root(tree));
    let first = references.iter().position(|read| read.next() == Some(start)).map_or(0, |n| n + 1);
    let mut held = vec![true; first];
    held.extend(references[first..].iter().map(|read| cache.read(at, asid, read) == Held::Here));
    cache.finish(at, asid, found);
    held.truncate(references.iter().filter(|read| read.next().is_some()).count());
    held
}

/// Random members of one design. In a split design, levels have equal or different numbers of
/// entries, or no array.
fn random_members(rng: &mut Rng) -> Vec<WalkCacheParams> {
    let design = rng.pick(&Design::ALL);
    let trees = [x86(4), x86(5), x86(3), if design == Design::Utc { guarded() } else { x86(4) }];
    let tree = trees[rng.below(4) as usize].clone();
    let largest = rng.pick(&[3, 12, 60, 256]);
    (0..1 + rng.below(64))
        .map(|_| {
            let entries = 1 + rng.below(largest) as u32;
            let levels = if design.is_split() { 2..=tree.levels } else { 0..=0 };
            let mut arrays: Vec<WalkArray> = levels
                .map(|level| {
                    let own = if rng.chance(70) { entries } else { 1 + rng.below(largest) as u32 };
                    WalkArray { level, entries: own, ways: own }
                })
                .collect();
            if arrays.len() > 1 && rng.chance(20) {
                arrays.remove(rng.below(arrays.len() as u64) as usize);
            }
            WalkCacheParams {
                pages: false,
                design,
                arrays,
                replacement: Policy::Lru,
                seed: 1,
                tree: tree.clone(),
            }
        })
        .collect()
}

#[test]
fn a_member_of_a_family_does_what_it_does_alone() {
    for seed in 0..SEEDS {
        let mut rng = Rng(seed);
        let members = random_members(&mut rng);
        let tree = members[0].tree.clone();
        let mut family = WalkCacheFamily::new(&members.iter().collect::<Vec<_>>(), false).unwrap();
        let mut caches: Vec<AnyWalkCache> =
            members.iter().map(|params| AnyWalkCache::new(params).unwrap()).collect();
        let mut numbers = Numbers::default();
        let asids = rng.pick(&[1, 3]);
        // All pages have one size. In a guarded table the path to a page may end at any level.
        let leaf = rng.pick(&[1, 1, 2]);
        for step in 0..STEPS {
            let va = random_address(&mut rng, tree.address_bits.into());
            let asid = Asid(rng.below(asids) as u16);
            let gone = match rng.below(100) {
                0..95 => {
                    let found = rng.chance(80);
                    let mut references = walk(&tree, va, asid, leaf, 0);
                    let missing = references.iter().position(|read| {
                        read.next().is_some_and(|node| !numbers.exists(va, node.shift, asid))
                    });
                    if let Some(missing) = missing.filter(|_| !found) {
                        references.truncate(missing + 1);
                        references[missing].leads = Leads::Nowhere;
                    }
                    let way = numbers.steps(va, asid, &references);
                    let mut held = vec![0; way.len()];
                    family.walk(&way, found, &mut held);
                    for (member, cache) in caches.iter_mut().enumerate() {
                        let expected = alone(cache, &tree, va, asid, &references, found);
                        let seen: Vec<bool> = held.iter().map(|h| h >> member & 1 == 1).collect();
                        let params = &members[member];
                        assert_eq!(seen, expected, "seed {seed}, step {step}, {params:?}");
                    }
                    continue;
                }
                95..98 => {
                    let bytes = 1 + rng.pick(&[0, 4095, 1 << 21, 1 << 32]);
                    let range = VirtRange::new(VirtAddr::new(va), bytes).unwrap();
                    caches.iter_mut().for_each(|cache| cache.flush_range(range, asid));
                    let (first, last) = (range.start().get(), range.last().get());
                    numbers.forget(|(prefix, shift, of)| {
                        *of == asid && (first >> shift..=last >> shift).contains(prefix)
                    })
                }
                98 => {
                    caches.iter_mut().for_each(|cache| cache.flush_asid(asid));
                    numbers.forget(|(.., of)| *of == asid)
                }
                _ => {
                    caches.iter_mut().for_each(AnyWalkCache::flush_all);
                    numbers.forget(|_| true)
                }
            };
            family.forget(&gone);
            assert!(gone.iter().all(|node| !family.holds(*node)), "seed {seed}, step {step}");
        }
    }
}

#[test]
fn only_caches_that_are_alike_but_for_their_size_are_a_family() {
    let unified = |design, entries, ways, replacement| WalkCacheParams {
        pages: false,
        design,
        arrays: vec![WalkArray { level: 0, entries, ways }],
        replacement,
        seed: 1,
        tree: x86(4),
    };
    let fits = unified(Design::Utc, 8, 8, Policy::Lru);
    assert!(WalkCacheFamily::new(&[&fits; 64], false).is_some());
    assert!(WalkCacheFamily::new(&[&fits; 65], false).is_none());
    assert!(WalkCacheFamily::new(&[], false).is_none());
    let paths = WalkCacheParams { tree: guarded(), ..unified(Design::Tpc, 8, 8, Policy::Lru) };
    for other in [
        unified(Design::Utc, 8, 4, Policy::Lru),
        unified(Design::Utc, 8, 8, Policy::ViLru),
        unified(Design::Utc, 257, 257, Policy::Lru),
        paths,
    ] {
        assert!(!WalkCacheFamily::takes(&other, false), "{other:?}");
        assert!(WalkCacheFamily::new(&[&fits, &other], false).is_none(), "{other:?}");
    }
    let other = unified(Design::Tpc, 8, 8, Policy::Lru);
    assert!(WalkCacheFamily::takes(&other, false));
    assert!(WalkCacheFamily::new(&[&fits, &other], false).is_none());
    // If pages have several sizes, the path to a large page is a part of other paths.
    assert!(!WalkCacheFamily::takes(&other, true) && WalkCacheFamily::takes(&fits, true));
}
