//! The trace: what a program did to memory, as a file and as a stream of batches.
//!
//! Whoever has accesses to give is a [`Source`]: a stored trace, a generator, a program that
//! runs. Whoever wants them asks it for one [`Batch`] after the other.

mod batch;
mod event;
mod source;

pub use batch::{Batch, Meta, Placed, Segment};
pub use event::{Event, Origin};
pub use source::{Arch, Error, Filter, Header, Source};
