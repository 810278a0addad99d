//! What the free blocks of one allocator look like, whatever was asked of it before.

use alloc::vec::Vec;

use physmem::{Allocator, Physmem};

use crate::model::Model;

/// No larger aligned block could be made of the free ones.
pub(crate) fn buddies_are_joined<A: Allocator>(memory: &Physmem<A>, model: &Model) {
    joined(memory, model, &(0..32).collect::<Vec<_>>());
}

/// The same for the page sizes that have a list.
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
