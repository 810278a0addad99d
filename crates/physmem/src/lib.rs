//! Physical frames: who hands them out and takes them back.
//!
//! [`Buddy`] owns a range of physical memory and gives out frames of any power-of-two size
//! through [`addr::Frames`]. It keeps its own books apart from the memory it manages, so that
//! their size follows what is in use and a machine of 16 TiB costs nothing to construct.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod buddy;
mod ledger;

pub use addr::{Frames, OutOfFrames};

pub use buddy::{Buddy, FreeError, GeometryError};
