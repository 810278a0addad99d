//! Which page leaves memory: policies over lists of frames.
//!
//! ```text
//!                 enter                    victim: referenced?
//!   page loaded --------> [ list of frames ] ----------------> no: leaves memory
//!                             ^                     |
//!                             +------ yes ----------+
//! ```
//!
//! The lists lie in the page-frame descriptors, so that a policy needs no memory to run when there
//! is none. A policy learns of uses by asking [`Pages::referenced`] when it looks for a victim:
//! nothing is told of a hit. Frames that are wired are in no list.

mod clock;
mod list;
mod lru;
mod two_queues;

use alloc::boxed::Box;
use core::ops::RangeInclusive;

use physmem::{FrameId, FrameTable};

use clock::Clock;
use lru::Lru;
use two_queues::TwoQueues;

/// A policy. A page is named by its first base frame.
pub trait Replacement: Send {
    /// A page has come into memory; its descriptor has its identity.
    fn enter(&mut self, table: &mut FrameTable, frame: FrameId);

    /// A page that was entered and is no victim goes.
    fn leave(&mut self, table: &mut FrameTable, frame: FrameId);

    /// The page that goes next. It is in no list any more.
    fn victim(&mut self, pages: &mut dyn Pages) -> Option<FrameId>;

    /// The pages `indices` of an object, none of which is in memory, are no more. Others get their
    /// identities.
    fn forget(&mut self, object: u32, indices: RangeInclusive<u64>);

    /// How many pages are in its lists.
    fn pages(&self) -> u64;
}

/// What a policy asks of the pages.
pub trait Pages {
    /// Does something with the descriptors.
    fn with_table(&mut self, f: &mut dyn FnMut(&mut FrameTable));

    /// Whether the page was used since this was asked last.
    fn referenced(&mut self, frame: FrameId) -> bool;
}

/// The policy called `name` for so many pages of memory, if there is one.
pub(crate) fn policy(name: &str, pages: u64) -> Option<Box<dyn Replacement>> {
    let known = POLICIES.iter().find(|(known, _)| *known == name);
    known.map(|(_, make)| make(pages))
}

/// Makes a policy for so many pages of memory.
type Make = fn(u64) -> Box<dyn Replacement>;

/// All policies by name.
pub const POLICIES: [(&str, Make); 3] = [
    ("clock", |_| Box::new(Clock::default())),
    ("lru", |_| Box::new(Lru::default())),
    ("2q", |pages| Box::new(TwoQueues::new(pages))),
];
