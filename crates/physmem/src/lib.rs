//! Physical memory: descriptors that record who uses each frame, and allocators of free frames.
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
//! Descriptors have no page size (G98 section 6.1): a large page consists of adjacent, aligned base
//! frames. Allocators keep their free lists inside the descriptors of free frames. [`Allocator`]
//! lists the operations that allocate memory of their own, for example for descriptors that are
//! used for the first time. The memory manager records to which object a frame's contents belong
//! and where the frame is mapped.
//!
//! ```
//! use addr::{PageSize, PhysAddr};
//! use physmem::{FrameId, FreeError, Physmem, State};
//!
//! // 64 MiB from 1 GiB up, in frames of 4 KiB, under the buddy system.
//! let (base, bytes) = (PageSize::SIZE_4K, 64 << 20);
//! let mut memory = Physmem::buddy(PhysAddr::new(1 << 30), bytes, base)?;
//! let large = memory.allocate_page(PageSize::SIZE_2M, State::Movable)?;
//! assert!(large.is_aligned(PageSize::SIZE_2M));
//! assert_eq!(memory.free_bytes(), bytes - (2 << 20));
//!
//! // A page can be freed in parts, and no frame can be freed twice.
//! let first = FrameId((large.get() >> base.shift()) as u32);
//! memory.try_free(first, 0)?;
//! assert_eq!(memory.try_free(first, 0), Err(FreeError::NotOut { frame: large }));
//!
//! // An allocation that does not fit is an error, which has the number of free bytes.
//! let none = memory.allocate_page(PageSize::SIZE_1G, State::Movable);
//! assert_eq!(none.unwrap_err().free_bytes, memory.free_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod ager;
mod allocator;
mod apart;
mod bitmap;
mod blocks;
mod buddy;
mod capabilities;
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
mod request;
mod reservations;
mod restrictive;
mod scattered;
mod size_lists;
mod table;

pub use addr::{Frames, OutOfFrames};

pub use ager::{AGED_OBJECT, Aged, Aging, TooMuch, age};
pub use allocator::Allocator;
pub use apart::Apart;
pub use blocks::PageBlocks;
pub use buddy::Buddy;
pub use capabilities::{
    BlockCounts, BlockType, Blocks, Broken, Places, ReservationCounts, Reserver, Unplaced,
};
pub use coalesced::{Coalesced, Level, Scanned};
pub use contiguous::Contiguous;
pub use frame::{FrameId, Identity, NO_FRAME, Pfdat, State};
pub use iceberg::{Berth, Iceberg};
pub use magazine::Magazine;
pub use nodes::Nodes;
pub use physmem::{FreeError, GeometryError, Physmem};
pub use refusing::Refusing;
pub use request::{Color, Home, Neighbor, ObjectPage, Rather, Request};
pub use reservations::Reservations;
pub use restrictive::{Restrictive, Segment};
pub use scattered::Scattered;
pub use size_lists::{SizeListError, SizeLists};
pub use table::FrameTable;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
