//! Page replacement: policies that choose pages to evict, over lists of frames.
//!
//! ```text
//!                 enter                    victim: referenced?
//!   page loaded --------> [ list of frames ] ----------------> no: leaves memory
//!                             ^                     |
//!                             +------ yes ----------+
//! ```
//!
//! The lists are in the page-frame descriptors, so that a policy can run when no memory is free. A
//! policy is not notified of hits. It finds uses only by calling [`Pages::referenced`] when it
//! chooses a victim. Wired frames are in no list.

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

/// A page replacement policy. A page is identified by its first base frame.
pub trait Replacement: Send {
    /// Called when a page has come into memory; its descriptor has its identity.
    fn enter(&mut self, table: &mut FrameTable, frame: FrameId);

    /// Called when a page is removed from the policy's lists that was not chosen as a victim.
    fn leave(&mut self, table: &mut FrameTable, frame: FrameId);

    /// Chooses the next page to evict and removes it from its list.
    fn victim(&mut self, pages: &mut dyn Pages) -> Option<FrameId>;

    /// Called when the pages `indices` of an object cease to exist. None of them is in memory.
    /// Later pages may get these identities.
    fn forget(&mut self, object: u32, indices: RangeInclusive<u64>);

    /// The number of pages in the policy's lists.
    fn pages(&self) -> u64;
}

/// Access to pages, for a policy.
pub trait Pages {
    /// Runs `f` with the descriptors.
    fn with_table(&mut self, f: &mut dyn FnMut(&mut FrameTable));

    /// Whether the page was used since the last call of this function for it.
    fn referenced(&mut self, frame: FrameId) -> bool;
}

/// The policy called `name` for `pages` pages of memory, if there is such a policy.
pub(crate) fn policy(name: &str, pages: u64) -> Option<Box<dyn Replacement>> {
    let known = POLICIES.iter().find(|(known, _)| *known == name);
    known.map(|(_, make)| make(pages))
}

/// Creates a policy for this many pages of memory.
type Make = fn(u64) -> Box<dyn Replacement>;

/// All policies by name.
pub const POLICIES: [(&str, Make); 3] = [
    ("clock", |_| Box::new(Clock::default())),
    ("lru", |_| Box::new(Lru::default())),
    ("2q", |pages| Box::new(TwoQueues::new(pages))),
];
