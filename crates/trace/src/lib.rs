//! Traces: the memory accesses of a program, as a file and as a stream of batches.
//!
//! Everything that provides accesses is a [`Source`]: a stored trace, a generator, a running
//! program. Its consumer requests one [`Batch`] after the other. A recorder reports blocks and
//! addresses to a [`Sink`]: the [`Writer`] of a file, or the [`Batcher`] of a run at the same time
//! as the program.
//!
//! ```text
//!   recorder --Sink--> Writer --> FILE.pwt --> Reader --Source--> machine, info, export
//!            \-Sink--> Batcher ------------------------Source-->
//!                      generate::*  importers ---------Source-->  copy --> Writer
//! ```

mod allocations;
mod batch;
mod batcher;
mod call;
mod carry;
mod copy;
mod count;
mod data_only;
mod event;
pub mod export;
mod family;
mod format;
pub mod generate;
mod halves;
pub mod import;
mod info;
pub mod kernel;
mod known;
mod located;
pub mod mix;
mod open;
mod output;
mod part;
mod process;
#[cfg(test)]
mod random;
mod reader;
mod recording;
mod regions;
mod shape;
mod sink;
mod source;
mod spread;
mod switches;
mod translation;
mod units;
mod window;
mod words;
mod writer;

pub use allocations::{Allocations, Site};
pub use batch::{
    Batch, Block, Contents, Counted, Hits, Meta, Place, Placed, Replaces, Segment, Stamp, SurePages,
};
pub use batcher::Batcher;
pub use call::{Buffer, Call, Descriptor, FileId, FileKind};
pub use copy::copy;
pub use data_only::DataOnly;
pub use event::{CLONE_VM, Event, KERNEL, Origin};
pub use family::Family;
pub use info::{
    ByKind, BySize, Distinct, Info, Missing, RegionInfo, SiteCall, SnapshotInfo, SpaceInfo, info,
};
pub use known::KnownPages;
pub use open::open;
pub use process::{Process, Program, name_in_space};
pub use reader::{ChunkInfo, Reader, Replay};
pub use recording::Recording;
pub use regions::{
    Backing, Location, MappedFile, Populated, Region, RegionId, Regions, adjoin, joined_bytes,
};
pub use shape::{Address, Op, Shape, ShapeId};
pub use sink::Sink;
pub use source::{Arch, Error, Filter, Forward, Header, Source, Stored};
pub use spread::{Aligned, KernelLayout, Spread};
pub use translation::{KnownSizes, Seen, Translation, When};
pub use window::{Bounds, Window};
pub use words::{
    Taken, WORD_AMID, WORD_BLOCK, WORD_COUNT_SHIFT, WORD_FIXED, WORD_MADE_SHIFT, WORD_NONE,
    WORD_ROWS_MAX, WORD_SHIFT,
};
pub use writer::{Options, Summary, Writer};
