//! Physical memory: who uses which frame, and which free frame is given out next.
//!
//! ```text
//!                  Physmem
//!     +---------------+----------------+
//!     |  FrameTable                    |  a page-frame descriptor (pfdat) per base frame:
//!     |  | pfdat | pfdat | pfdat | ... |  identity, state, wired count, node
//!     |     ^ links                    |
//!     |  Allocator                     |  which free frames are taken: Buddy, SizeLists,
//!     +--------------------------------+  PageBlocks; one of them per NUMA node (Nodes), or
//!                                         below Reservations, Contiguous,
//!                                         Restrictive, or a Magazine
//! ```
//!
//! Descriptors carry no page size (G98 section 6.1): a large page is adjacent, aligned base
//! frames. Allocators keep their free lists inside the descriptors of free frames. Which operations
//! allocate memory of their own, such as that for descriptors that are touched for the first time, is
//! listed at [`Allocator`].
//! Whom a frame's contents belong to and where it is mapped is for the memory manager to know.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod ager;
mod allocator;
mod apart;
mod bitmap;
mod blocks;
mod buddy;
mod chunks;
mod coalesced;
mod contiguous;
mod frame;
mod iceberg;
mod lists;
mod magazine;
mod nodes;
mod physmem;
mod refusing;
mod reservations;
mod restrictive;
mod scattered;
mod size_lists;
mod table;

pub use addr::{Frames, OutOfFrames};

pub use ager::{AGED_OBJECT, Aged, Aging, TooMuch, age};
pub use allocator::{Allocator, Home, Rather, Request};
pub use apart::Apart;
pub use blocks::{BlockCounts, BlockType, Blocks, PageBlocks};
pub use buddy::Buddy;
pub use coalesced::{Coalesced, Level, Scanned};
pub use contiguous::{Contiguous, Places};
pub use frame::{FrameId, Identity, NO_FRAME, Pfdat, State};
pub use iceberg::{Berth, Iceberg};
pub use lists::Color;
pub use magazine::Magazine;
pub use nodes::Nodes;
pub use physmem::{FreeError, GeometryError, Physmem};
pub use refusing::Refusing;
pub use reservations::{
    Broken, Neighbor, Place, ReservationCounts, Reservations, Reserver, Unplaced,
};
pub use restrictive::{Restrictive, Segment};
pub use scattered::Scattered;
pub use size_lists::{SizeListError, SizeLists};
pub use table::FrameTable;
