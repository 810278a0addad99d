//! Compares TLBs, MMU caches and data caches with models that search every entry in order.

mod blocks;
mod caches;
mod model;
mod offsets;
mod range_tlb;
mod spec_tlb;
mod stack_distance;
mod tlb;
mod walk_caches;
mod walk_families;
