//! Compares the SpecTLB with a list in the order of use.

use addr::{Asid, PageSize, PhysAddr, VirtAddr};
use mmu::{Policy, SpecFill, SpecTlb, SpecTlbParams, Speculation, Spot};

use crate::model::Rng;

const K4: u64 = 4096;
const M2: u64 = 2 << 20;

fn params(entries: u32, ways: u32, replacement: Policy, fill: SpecFill) -> SpecTlbParams {
    let page_size = PageSize::SIZE_2M;
    SpecTlbParams { entries, ways, replacement, seed: 1, page_size, fill, keeps_absent: false }
}

/// The reference model: for each set, a list of (large page, space, address of its frame,
/// reserved). The entry that is replaced next is first.
struct List {
    params: SpecTlbParams,
    sets: Vec<Vec<(u64, Asid, u64, bool)>>,
}

impl List {
    fn new(params: SpecTlbParams) -> List {
        List { params, sets: vec![Vec::new(); (params.entries / params.ways) as usize] }
    }

    fn walked(&mut self, va: u64, asid: Asid, found: Option<Spot>) -> Speculation {
        let (large, inside) = (va / M2, va % M2);
        let count = self.sets.len() as u64;
        let set = &mut self.sets[(large % count) as usize];
        let mut said = Speculation::None;
        if let Some(at) = set.iter().position(|held| (held.0, held.1) == (large, asid)) {
            let held = set.remove(at);
            said = match found {
                None => Speculation::WrongAbsent,
                Some(spot) if spot.phys.get() == held.2 + inside => Speculation::Right,
                Some(_) if held.3 => Speculation::WrongBroken,
                Some(_) => Speculation::WrongChance,
            };
            let stays = self.params.keeps_absent && said == Speculation::WrongAbsent;
            if said == Speculation::Right || stays {
                let back = if self.params.replacement == Policy::Lru { set.len() } else { at };
                set.insert(back, held);
                return said;
            }
        }
        if let Some(spot) = found
            && spot.size.bytes() < M2
            && spot.phys.get() % M2 == inside
            && (self.params.fill == SpecFill::Heuristic || spot.marked)
        {
            if set.len() == self.params.ways as usize {
                set.remove(0);
            }
            set.push((large, asid, spot.phys.get() - inside, spot.reserved));
        }
        said
    }
}

/// The random position of a page: at its position in a large page, at any other position, or not
/// mapped.
fn spot(rng: &mut Rng, va: u64, asid: Asid) -> Option<Spot> {
    let large = (va / M2 * 7 + u64::from(asid.0)) % 64 * M2;
    let size =
        rng.pick(&[PageSize::SIZE_4K, PageSize::SIZE_4K, PageSize::SIZE_4K, PageSize::SIZE_2M]);
    let marked = rng.chance(70);
    let (phys, reserved) = match rng.below(10) {
        0 => return None,
        1 | 2 => (rng.below(1 << 18) * K4 + va % K4, false),
        3 => (large + (64 << 21) + va % M2, rng.chance(50)),
        _ => (large + va % M2, rng.chance(80)),
    };
    Some(Spot { phys: PhysAddr::new(phys), size, reserved, marked, run: 0 })
}

#[test]
fn every_geometry_says_what_a_list_says() {
    for seed in 0..200 {
        let mut rng = Rng(seed);
        let sets = 1 + rng.below(4) as u32;
        let ways = 1 + rng.below(8) as u32;
        let replacement = rng.pick(&[Policy::Lru, Policy::Fifo]);
        let params = SpecTlbParams {
            keeps_absent: rng.chance(50),
            ..params(sets * ways, ways, replacement, rng.pick(&SpecFill::ALL))
        };
        println!("seed {seed}: {params:?}");
        let (mut fast, mut list) = (SpecTlb::new(params).unwrap(), List::new(params));
        for step in 0..3000 {
            let va = rng.below(40) * M2 + rng.below(512) * K4 + rng.below(K4);
            let asid = Asid(rng.below(3) as u16);
            let found = spot(&mut rng, va, asid);
            let said = fast.walked(VirtAddr::new(va), asid, found);
            assert_eq!(said, list.walked(va, asid, found), "step {step}");
            if rng.chance(1) {
                fast.clear();
                list.sets.iter_mut().for_each(Vec::clear);
            }
        }
    }
}

/// If pages are placed at random, the addresses of one page in 512 agree by chance (B10 section
/// 6.2.2).
#[test]
fn random_places_make_an_entry_once_in_512() {
    let params = params(1, 1, Policy::Lru, SpecFill::Heuristic);
    let mut rng = Rng(9);
    let (batches, pages) = (256u64, 4096u64);
    let mut filled = Vec::new();
    for batch in 0..batches {
        let count = (batch * pages..(batch + 1) * pages).filter(|page| {
            let mut fresh = SpecTlb::new(params).unwrap();
            let va = VirtAddr::new(page * K4);
            let phys = PhysAddr::new(rng.below(1 << 24) * K4);
            let found = Some(Spot {
                phys,
                size: PageSize::SIZE_4K,
                reserved: false,
                marked: false,
                run: 0,
            });
            fresh.walked(va, Asid(0), found);
            fresh.walked(va, Asid(0), found) == Speculation::Right
        });
        filled.push(count.count() as f64);
    }
    // Pages are independent, so the counts of batches have a binomial distribution, with a mean of
    // 8 and a variance of nearly 8. The test allows six standard deviations of both.
    let (count, mean) = (batches as f64, filled.iter().sum::<f64>() / batches as f64);
    let variance = filled.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
    assert!((mean - 8.0).abs() < 6.0 * (8.0 / count).sqrt(), "{mean} of {pages}");
    assert!((variance / mean - 1.0).abs() < 6.0 * (2.0 / count).sqrt(), "{variance}, {mean}");
}

#[test]
fn more_entries_under_lru_are_never_worse_where_nothing_is_wrong() {
    let mut rng = Rng(3);
    let walks: Vec<u64> =
        (0..20_000).map(|_| rng.below(60).min(rng.below(60)) * M2 + rng.below(512) * K4).collect();
    let mut before = 0;
    for entries in 1..=48 {
        let params = params(entries, entries, Policy::Lru, SpecFill::Marks);
        let mut spec = SpecTlb::new(params).unwrap();
        let right = walks.iter().filter(|&&va| {
            let spot = Spot {
                phys: PhysAddr::new(va + (1 << 40)),
                size: PageSize::SIZE_4K,
                reserved: true,
                marked: true,
                run: 0,
            };
            spec.walked(VirtAddr::new(va), Asid(0), Some(spot)) == Speculation::Right
        });
        let right = right.count();
        assert!(right >= before, "{entries} entries: {right} for {before}");
        before = right;
    }
    assert!(before > 10_000);
}
