//! The vocabulary of address translation: addresses, page sizes, ASIDs, rights and ranges.
//!
//! Every other crate uses these types. An address is therefore never mistaken for a page number,
//! nor a shift for a byte count.
//!
//! ```text
//!   63            shift          0
//!  +---------------+-------------+
//!  |  page number  |   offset    |   VirtAddr; PhysAddr has a frame number on the left
//!  +---------------+-------------+
//!        Page            shift = PageSize::shift()
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod access;
mod address;
mod attributes;
mod memory;
mod page;
mod range;
mod rights;

pub use access::Kind;
pub use address::{PhysAddr, VirtAddr};
pub use attributes::{Attributes, MemoryType};
pub use memory::{Frames, Memory, OutOfFrames};
pub use page::{Asid, Page, PageSize, ParsePageSizeError};
pub use range::{Pages, RangeError, VirtRange};
pub use rights::Rights;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
