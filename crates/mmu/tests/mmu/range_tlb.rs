//! Compares the range TLB with a list of ranges in the order of use.

use addr::{Asid, Kind, PhysAddr, Rights, VirtAddr, VirtRange};
use mmu::{Miss, Policy, RangeEntry, RangeTlb, RangeTlbParams};

use crate::model::Rng;

fn random_entry(rng: &mut Rng, spaces: u64) -> RangeEntry {
    let start = VirtAddr::new(rng.below(64) << 12);
    let range = VirtRange::new(start, (1 + rng.below(12)) << 12).unwrap();
    let rights = if rng.chance(80) { Rights::ALL } else { Rights::READ };
    let (first, asid) = (PhysAddr::new(rng.below(1 << 30) << 12), Asid(rng.below(spaces) as u16));
    RangeEntry { range, first, asid, rights }
}

#[test]
fn a_range_tlb_does_what_a_list_does() {
    for seed in 0..200 {
        let mut rng = Rng(seed);
        let (entries, spaces) = (rng.pick(&[1, 2, 5, 32]), rng.pick(&[1, 3]));
        let params = RangeTlbParams { entries, replacement: Policy::Lru, seed: 1 };
        let mut tlb = RangeTlb::new(params).unwrap();
        // The least recently used range is first.
        let mut list: Vec<RangeEntry> = Vec::new();
        for step in 0..600 {
            let va = VirtAddr::new((rng.below(76) << 12) + rng.below(4096));
            let asid = Asid(rng.below(spaces) as u16);
            let meets = |entry: &RangeEntry, range: VirtRange, asid: Asid| {
                let pages = |range: VirtRange| range.start().get() >> 12..=range.last().get() >> 12;
                entry.asid == asid && pages(entry.range).any(|at| pages(range).contains(&at))
            };
            match rng.below(100) {
                0..60 => {
                    let kind = rng.pick(&Kind::ALL);
                    let one = VirtRange::new(va, 1).unwrap();
                    let at = list.iter().position(|entry| meets(entry, one, asid));
                    let expected = match at {
                        None => Err(Miss::Absent),
                        Some(at) if !list[at].rights.allows(kind) => Err(Miss::Denied),
                        Some(at) => {
                            let used = list.remove(at);
                            list.push(used);
                            Ok(used)
                        }
                    };
                    assert_eq!(tlb.lookup(va, asid, kind), expected, "seed {seed}, step {step}");
                    if let Ok(found) = expected {
                        let apart = va.get() - found.range.start().get();
                        assert_eq!(found.apply(va).get(), found.first.get() + apart);
                    }
                }
                60..90 => {
                    let new = random_entry(&mut rng, spaces);
                    list.retain(|entry| !meets(entry, new.range, new.asid));
                    if list.len() == entries as usize {
                        list.remove(0);
                    }
                    list.push(new);
                    tlb.fill(new);
                }
                90..96 => {
                    let range = VirtRange::new(va, 1 + rng.below(1 << 14)).unwrap();
                    let before = list.len();
                    list.retain(|entry| !meets(entry, range, asid));
                    assert_eq!(tlb.flush_range(range, asid), (before - list.len()) as u64);
                }
                96..99 => {
                    let before = list.len();
                    list.retain(|entry| entry.asid != asid);
                    assert_eq!(tlb.flush_asid(asid), (before - list.len()) as u64);
                }
                _ => {
                    assert_eq!(tlb.flush_all(), list.len() as u64);
                    list.clear();
                }
            }
            assert_eq!(tlb.entries().count(), list.len(), "seed {seed}, step {step}");
        }
    }
}

/// Compares merging insertions with a list whose entries are sets of pages.
#[test]
fn what_continues_a_range_becomes_one_with_it() {
    let mut merged = 0;
    for seed in 1..=200 {
        let mut rng = Rng(seed);
        let entries = rng.pick(&[1, 2, 5, 32]);
        let params = RangeTlbParams { entries, replacement: Policy::Lru, seed: 1 };
        let mut tlb = RangeTlb::new(params).unwrap();
        // The entries as (space, offset, rights) and pages; the least recently used entry is first.
        let mut list: Vec<((u16, u64, Rights), Vec<u64>)> = Vec::new();
        for step in 0..300 {
            let (start, count) = (rng.below(48), 1 + rng.below(8));
            let rights = if rng.chance(85) { Rights::ALL } else { Rights::READ };
            let of = (rng.below(2) as u16, 100 * (1 + rng.below(2)), rights);
            let mut pages: Vec<u64> = (start..start + count).collect();
            loop {
                let beside = |held: &Vec<u64>| {
                    held.iter().any(|at| pages.iter().any(|page| page.abs_diff(*at) <= 1))
                };
                let Some(at) = list.iter().position(|(is, held)| *is == of && beside(held)) else {
                    break;
                };
                pages.extend(list.remove(at).1);
                pages.sort_unstable();
                pages.dedup();
                merged += 1;
            }
            list.retain(|(is, held)| is.0 != of.0 || !held.iter().any(|at| pages.contains(at)));
            if list.len() == entries as usize {
                list.remove(0);
            }
            list.push((of, pages));
            let range = VirtRange::new(VirtAddr::new(start << 12), count << 12).unwrap();
            let first = PhysAddr::new((start + of.1) << 12);
            tlb.fill_merged(RangeEntry { range, first, asid: Asid(of.0), rights });
            let mut found: Vec<(u16, u64, u64, u64)> = tlb
                .entries()
                .map(|held| {
                    let (start, last) = (held.range.start().get(), held.range.last().get());
                    let offset = (held.first.get() - start) >> 12;
                    (held.asid.0, offset, start >> 12, last >> 12)
                })
                .collect();
            let mut expected: Vec<(u16, u64, u64, u64)> = list
                .iter()
                .map(|(of, pages)| (of.0, of.1, pages[0], pages[pages.len() - 1]))
                .collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "seed {seed}, step {step}");
        }
    }
    assert!(merged > 10_000, "{merged}");
}
