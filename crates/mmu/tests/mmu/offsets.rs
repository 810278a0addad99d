//! Compares the table of offsets with lists.

use addr::{Asid, PageSize, PhysAddr, VirtAddr};
use mmu::{Offsets, OffsetsParams, Speculation, Spot};

use crate::model::Rng;

/// For each set, its entries as (instruction, space, offset, counter); the least recently used
/// entry is first.
type Lists = Vec<Vec<(u64, u16, u64, u32)>>;

fn walked(
    lists: &mut Lists,
    params: &OffsetsParams,
    (va, instruction, asid): (u64, u64, u16),
    found: Option<(u64, u32)>,
) -> Speculation {
    let count = lists.len() as u64;
    let list = &mut lists[(instruction % count) as usize];
    let at = list.iter().position(|held| (held.0, held.1) == (instruction, asid));
    let sure = at.map(|at| list[at]).filter(|held| held.3 > 1);
    let Some((phys, run)) = found else {
        return if sure.is_some() { Speculation::WrongAbsent } else { Speculation::None };
    };
    let said = match sure {
        None => Speculation::None,
        Some(held) if va + held.2 == phys => Speculation::Right,
        Some(_) => Speculation::WrongChance,
    };
    let long = run >= params.pages_min;
    if let Some(at) = at {
        let mut held = list.remove(at);
        if va + held.2 == phys {
            held.3 = 3.min(held.3 + 1);
        } else if held.3 > 0 {
            held.3 -= 1;
        } else if long {
            held = (instruction, asid, phys - va, 1);
        }
        list.push(held);
    } else if long {
        if list.len() == params.ways as usize {
            let Some(at) = list.iter().position(|held| held.3 == 0) else {
                list[0].3 -= 1;
                return said;
            };
            list.remove(at);
        }
        list.push((instruction, asid, phys - va, 1));
    }
    said
}

#[test]
fn every_geometry_says_what_lists_say() {
    let mut said = [0_u32; Speculation::ALL.len()];
    for seed in 1..=200 {
        let mut rng = Rng(seed);
        let (entries, ways) = rng.pick(&[(1, 1), (4, 4), (8, 2), (32, 4)]);
        let params = OffsetsParams { entries, ways, pages_min: rng.pick(&[0, 8, 32]) };
        let mut table = Offsets::new(params).unwrap();
        let mut lists: Lists = vec![Vec::new(); (entries / ways) as usize];
        for step in 0..800 {
            let (va, instruction) = (rng.below(1 << 20), rng.below(24));
            let asid = rng.below(2) as u16;
            // Most accesses of an instruction have the same offset.
            let offset =
                if rng.chance(80) { 1 << 20 | instruction << 12 } else { rng.below(4) << 12 };
            let found = rng.chance(90).then(|| (va + offset, rng.below(64) as u32));
            let spot = found.map(|(phys, run)| Spot {
                phys: PhysAddr::new(phys),
                size: PageSize::SIZE_4K,
                reserved: false,
                marked: false,
                run,
            });
            let expected = walked(&mut lists, &params, (va, instruction, asid), found);
            let told = table.walked(VirtAddr::new(va), instruction, Asid(asid), spot);
            assert_eq!(told, expected, "seed {seed}, step {step}");
            said[told as usize] += 1;
            if rng.chance(1) {
                table.clear();
                lists.iter_mut().for_each(Vec::clear);
            }
        }
    }
    assert!(said[0] > 500 && said[1] > 500 && said[2] > 500 && said[4] > 500, "{said:?}");
}
