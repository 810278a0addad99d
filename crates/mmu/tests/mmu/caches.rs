//! Compares data caches with lists that are searched in order, for random geometries and streams.

use addr::{Kind, PhysAddr};
use mmu::{CacheParams, GeometryError, Hierarchy, HierarchyParams, Policy, Requester, Served};

use crate::model::{Rng, cache::ModelHierarchy};

const SEEDS: u64 = 400;
const STEPS: u64 = 3000;

/// A small cache of random geometry in `percent` of a hundred cases, otherwise `None`.
fn random_cache(rng: &mut Rng, percent: u64, line_shift: u32) -> Option<CacheParams> {
    let line_bytes = 1 << line_shift;
    let ways = rng.pick(&[1, 2, 3, 4, 8, 11, 12, 16, 20]);
    let sets = rng.pick(&[1, 2, 3, 4, 7, 8, 16]);
    let params = CacheParams {
        size_bytes: u64::from(line_bytes * ways * sets),
        line_bytes,
        ways,
        replacement: rng.pick(&Policy::ALL),
        seed: rng.next(),
    };
    rng.chance(percent).then_some(params)
}

/// Random parameters: each of the four caches may exist, and the lines of a level are never shorter
/// than those of the level in front.
fn random_params(rng: &mut Rng) -> HierarchyParams {
    let mut line_shift = 4 + rng.below(3) as u32;
    let (l1i, l1d) = (random_cache(rng, 60, line_shift), random_cache(rng, 80, line_shift));
    line_shift += rng.below(2) as u32;
    let l2 = random_cache(rng, 80, line_shift);
    line_shift += rng.below(2) as u32;
    let l3 = random_cache(rng, 50, line_shift);
    let places = [(l1d, Served::L1d), (l2, Served::L2), (l3, Served::L3)];
    let mut enters = vec![None, Some(Served::Memory)];
    enters.extend(places.iter().filter(|(cache, _)| cache.is_some()).map(|(_, at)| Some(*at)));
    HierarchyParams { l1i, l1d, l2, l3, walker_enters: rng.pick(&enters) }
}

#[test]
fn caches_do_what_lists_searched_in_order_do() {
    let mut in_all = 0;
    for seed in 0..SEEDS {
        let mut rng = Rng(seed);
        let params = random_params(&mut rng);
        let (mut caches, mut model) =
            (Hierarchy::new(&params).unwrap(), ModelHierarchy::new(&params));
        let span = rng.pick(&[1 << 9, 1 << 12, 1 << 15]);
        let base = rng.pick(&[0, 1 << 40, u64::MAX - (1 << 16)]);
        // In every second case, accesses that change nothing are only counted and reported
        // together, as sweeps do.
        let in_bulk = seed % 2 == 0;
        let (mut repeats, mut walks) = ([0; Kind::COUNT], [0; 2]);
        for step in 0..STEPS {
            let addr = base + rng.below(span);
            let bytes = rng.pick(&[1, 2, 4, 8, 8, 8, 16, 32, 64, 100, 300]);
            let who = match rng.below(10) {
                0 => Requester::Walker,
                1..4 => Requester::Program(Kind::Fetch),
                4..8 => Requester::Program(Kind::Load),
                _ => Requester::Program(Kind::Store),
            };
            let write = match who {
                Requester::Walker => rng.chance(20),
                Requester::Program(kind) => kind == Kind::Store,
            };
            let phys = PhysAddr::new(addr);
            let expected = model.access(addr, bytes, write, who);
            let repeated = match who {
                Requester::Program(kind) if in_bulk && caches.hit(phys, bytes, kind) => {
                    repeats[kind as usize] += 1;
                    Some(caches.entrance(who).place)
                }
                Requester::Walker if in_bulk => {
                    let place = caches.is_repeated_walk(phys, bytes, write);
                    walks[usize::from(write)] += u64::from(place.is_some());
                    place
                }
                Requester::Program(_) | Requester::Walker => None,
            };
            let served = repeated.unwrap_or_else(|| match who {
                Requester::Program(kind) if in_bulk => caches.access_anew(phys, bytes, kind),
                Requester::Program(_) | Requester::Walker => caches.access(phys, bytes, write, who),
            });
            assert_eq!(served, expected, "seed {seed}, step {step}, {params:?}");
        }
        for (kind, hits) in Kind::ALL.into_iter().zip(repeats) {
            let place = caches.repeated(kind, hits);
            assert_eq!(place, caches.entrance(Requester::Program(kind)).place);
        }
        caches.repeated_walks(walks[0], walks[1]);
        in_all += repeats.iter().chain(&walks).sum::<u64>();
        for place in Served::ALL {
            assert_eq!(caches.counts(place), model.counts(place), "seed {seed}, {params:?}");
            for addr in (base..base + span).step_by(16) {
                let held = caches.cache(place).and_then(|cache| cache.peek(PhysAddr::new(addr)));
                assert_eq!(held, model.peek(place, addr), "seed {seed}, {addr:#x}, {params:?}");
            }
        }
    }
    assert!(in_all > SEEDS, "{in_all} accesses changed nothing");
}

#[test]
fn caches_that_cannot_be_are_refused_with_place_and_reason() {
    let cache = |size_bytes, line_bytes, ways| {
        let (replacement, seed) = (Policy::Lru, 0);
        Some(CacheParams { size_bytes, line_bytes, ways, replacement, seed })
    };
    let none = HierarchyParams::default();
    for (params, place, error) in [
        (
            HierarchyParams { l1d: cache(32768, 48, 8), ..none },
            Served::L1d,
            GeometryError::Line { bytes: 48 },
        ),
        (
            HierarchyParams { l2: cache(1000, 64, 8), ..none },
            Served::L2,
            GeometryError::Size { bytes: 1000, line_bytes: 64 },
        ),
        (HierarchyParams { l3: cache(0, 64, 8), ..none }, Served::L3, GeometryError::Empty),
        (
            HierarchyParams { l1i: cache(4096, 64, 7), ..none },
            Served::L1i,
            GeometryError::Ways { entries: 64, ways: 7 },
        ),
        (
            HierarchyParams { l1i: cache(4096, 128, 4), l3: cache(8192, 64, 4), ..none },
            Served::L3,
            GeometryError::ShorterLine { bytes: 64, front_bytes: 128 },
        ),
        (
            HierarchyParams { l1d: cache(4096, 64, 4), walker_enters: Some(Served::L2), ..none },
            Served::Memory,
            GeometryError::NoSuchCache("l2"),
        ),
    ] {
        assert_eq!(Hierarchy::new(&params).unwrap_err(), (place, error), "{params:?}");
    }
}

/// In a machine without caches, memory serves all accesses.
#[test]
fn without_caches_memory_serves() {
    let mut caches = Hierarchy::new(&HierarchyParams::default()).unwrap();
    for who in [Requester::Walker, Requester::Program(Kind::Store)] {
        assert_eq!(caches.access(PhysAddr::new(u64::MAX), 8, true, who), Served::Memory);
    }
}
