//! Compares stack distances with a list in the order of use, and with TLBs of every size.

use addr::{Asid, Kind, PageSize, PhysAddr, Rights, VirtAddr};
use mmu::{ArrayParams, Policy, StackDistance, Tlb, TlbEntry, TlbParams};

use crate::model::Rng;

/// A model of the stack: a list with the youngest key first.
struct ModelStack(Vec<u64>);

impl ModelStack {
    fn touch(&mut self, key: u64) -> Option<usize> {
        let depth = self.0.iter().position(|&held| held == key);
        depth.map(|depth| self.0.remove(depth));
        self.0.insert(0, key);
        depth
    }
}

#[test]
fn depths_are_those_of_a_list_kept_in_order() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let depth_max = rng.pick(&[1, 2, 15, 16, 17, 18, 40, 64, 65, 200]);
        let span = rng.pick(&[3, 16, 20, 70, 300, 5000]);
        let (mut stack, mut model) = (StackDistance::new(depth_max), ModelStack(Vec::new()));
        for step in 0..4000 {
            // Half of the keys are small, and the others are from the whole span. With odd seeds,
            // the keys are hashes instead of page numbers.
            let key = if rng.chance(50) { rng.below(span.min(20)) } else { rng.below(span) };
            let key = if seed % 2 == 0 { key } else { key.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
            let expected = model.touch(key).filter(|&depth| depth < depth_max);
            assert_eq!(stack.touch(key), expected, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn a_key_that_was_forgotten_was_never_touched() {
    for seed in 0..40 {
        let mut rng = Rng(seed);
        // The stack has room for all keys: a key that was dropped for lack of room would not return
        // when a younger key is removed.
        let span = rng.pick(&[3, 16, 17, 20, 70, 300]);
        let (mut stack, mut model) = (StackDistance::new(300), ModelStack(Vec::new()));
        for step in 0..4000 {
            let key = rng.below(span);
            if rng.chance(20) {
                stack.forget(key);
                model.0.retain(|&held| held != key);
                continue;
            }
            assert_eq!(stack.touch(key), model.touch(key), "seed {seed}, step {step}");
        }
    }
}

#[test]
fn a_depth_says_which_tlbs_hit() {
    let sizes: Vec<u32> = (1..=40).collect();
    let mut tlbs: Vec<Tlb> = sizes.iter().map(|&entries| lru_tlb(entries)).collect();
    let mut stack = StackDistance::new(40);
    let mut rng = Rng(7);
    for step in 0..6000 {
        let span = rng.pick(&[4, 30, 90]);
        let page = VirtAddr::new(rng.below(span) << 12).page(PageSize::SIZE_4K);
        let depth = stack.touch(page.number());
        for (tlb, &entries) in tlbs.iter_mut().zip(&sizes) {
            let hit = tlb.lookup(page.start(), Asid(0), Kind::Load).is_ok();
            assert_eq!(hit, depth.is_some_and(|depth| depth < entries as usize), "step {step}");
            if !hit {
                let frame = PhysAddr::new(page.start().get());
                let entry = TlbEntry::single(page, frame, Asid(0), false, Rights::READ);
                tlb.fill(&entry, 0, Kind::Load, &mut |_| {});
            }
        }
    }
}

fn lru_tlb(entries: u32) -> Tlb {
    let array = ArrayParams {
        page_sizes: vec![PageSize::SIZE_4K],
        entries,
        ways: entries,
        replacement: Policy::Lru,
        seed: 1,
    };
    Tlb::new(&TlbParams { arrays: vec![array], paired: false, blocks: None }).unwrap()
}
