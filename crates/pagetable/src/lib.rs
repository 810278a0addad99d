//! Page tables as bit-exact entries in physical memory, one file per organisation, all behind
//! one contract.
//!
//! ```text
//!                  PageTable                      map, unmap, protect, walk, usage, footprint
//!                 /         \
//!             Tree           hashed, inverted     a tree's walk may start below the root
//!          /    |
//!     Radix   guarded ...
//!       |
//!     Format: where the bits of an entry are      x86-64
//! ```
//!
//! A table keeps its entries in a [`Memory`] and takes the frames for them from a [`Frames`];
//! both are passed to each operation, so that many tables, the VM and a walker share them. A
//! walk yields its memory accesses as [`Reference`]s in order and never knows what they cost.
//! Nothing here does IO, prints, or asks whether it is simulated.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod contract;
mod error;
mod flush;
mod format;
mod radix;
mod spaces;
mod sparse;
mod walk;
mod x86_64;

pub use addr::{Frames, Memory, OutOfFrames};

pub use contract::{Footprint, Mapping, PageTable, Space, Tree, Usage};
pub use error::{Error, Unfit};
pub use flush::{Flush, Scope};
pub use format::{Entry, Format};
pub use radix::Radix;
pub use sparse::SparseMemory;
pub use walk::{Fault, Node, Reference, Translation};
pub use x86_64::{X86_64, X86Entries};
