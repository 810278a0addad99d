//! The hardware between a program's addresses and memory: TLBs, MMU caches, data caches.
//!
//! ```text
//!   TraceCache                              decoded instructions, before the TLB of fetches
//!   SetArray ----+---> Tlb                  sets, ways, which slot may hold a key
//!   Replacement -+---> Cache ---> Hierarchy
//!                 \--> MMU caches           behind WalkCache, asked by the walker
//!                      families of them     all sizes in one pass
//! ```
//!
//! Every structure consists of a set-associative array and a replacement policy. A structure keeps
//! its contents until they are replaced or flushed, and counts its operations. The time that these
//! operations take is computed in another crate.
#![forbid(unsafe_code)]

mod cache;
mod geometry;
mod hints;
mod offsets;
mod range_tlb;
mod replacement;
mod set_array;
mod spec_tlb;
mod stack_distance;
mod tlb;
mod trace_cache;
mod walk_cache;
mod walk_family;

pub use cache::{
    Cache, CacheCounts, CacheParams, Entrance, Flushed, Hierarchy, HierarchyParams, Requester,
    Requests, Served,
};
pub use geometry::GeometryError;
pub use offsets::{Offsets, OffsetsParams};
pub use range_tlb::{RangeEntry, RangeTlb, RangeTlbCounts, RangeTlbParams};
pub use replacement::{
    AnyReplacement, Fifo, FixedInsertion, FromTable, GreedyDual, GreedyDual2d, Learns, Lfu, Lru,
    Nru, ParsePolicyError, Policy, Random, Replacement, Srrip, TreePlru, ViLru, ViLru2d,
};
pub use set_array::SetArray;
pub use spec_tlb::{SpecFill, SpecTlb, SpecTlbParams, Speculation, Spot};
pub use stack_distance::StackDistance;
pub use tlb::{
    ArrayParams, BlockKind, BlockParams, DenseHit, DenseTlb, EACH, Evicted, Found, Hit, Miss,
    NOTHING, Occupant, Occupants, SpanTlb, SpanTlbs, TIME, Tlb, TlbCounts, TlbEntry, TlbParams,
};
pub use trace_cache::{TraceCache, TraceCacheCounts, TraceCacheParams};
pub use walk_cache::{
    AnyWalkCache, ArrayBits, Design, Held, ParseDesignError, Sptc, Stc, Tpc, Uptc, Utc, WalkArray,
    WalkCache, WalkCacheParams,
};
pub use walk_family::{Step, WalkCacheFamily};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
