//! Properties of the free blocks of an allocator that hold after any requests.

use alloc::vec::Vec;

use physmem::{Allocator, FrameId, Physmem};

use crate::model::Model;

/// Checks that free blocks cannot be joined into a larger aligned block.
pub(crate) fn buddies_are_joined<A: Allocator>(memory: &Physmem<A>, model: &Model) {
    joined(memory, model, &(0..32).collect::<Vec<_>>());
}

/// Checks that free blocks cannot be joined into a larger aligned block of a page size that has a
/// list.
pub(crate) fn sizes_are_joined<A: Allocator>(memory: &Physmem<A>, model: &Model) {
    joined(memory, model, &[0, 2, 4, 6, 8, 10, 12]);
}

fn joined<A: Allocator>(memory: &Physmem<A>, model: &Model, orders: &[u32]) {
    for (place, &order) in orders.iter().enumerate() {
        let Some(&larger) = orders.get(place + 1) else { continue };
        let first = model.first >> order;
        let last = u64::from(model.end) >> order;
        let free = (first.into()..=last).filter(|&block| {
            let (at, around) = ((block << order) as u32, block << order >> larger << larger);
            model.is_free(at, order) && !model.is_free(around as u32, larger)
        });
        assert_eq!(memory.allocator().free_blocks(order), free.count() as u64, "order {order}");
    }
}

/// Checks that an allocator with a bitmap knows how much of a block is in use, and whether the
/// whole block is free.
pub(crate) fn uses_are_counted<A: Allocator>(memory: &Physmem<A>, model: &Model) {
    for order in [0, 2, 4] {
        let last = u64::from(model.end) >> order;
        for block in (u64::from(model.first).div_ceil(1 << order)..last).take(32) {
            let first = (block << order) as u32;
            let used = model.used.range(first..first + (1 << order)).count() as u64;
            let counted = memory.allocator().frames_in_use(FrameId(first), order, u64::MAX);
            assert_eq!(counted, used, "of 2^{order} frames from {first}");
        }
    }
}
