//! MMU caches: what makes a walk shorter or cheaper (B10 ch. 4).
//!
//! ```text
//!   TLB miss --> start(va, root) --> the node to walk from        translation caches: skip
//!                                                                  the upper levels
//!                walk from there --> reference --> read(..)       Held: served by the MMU cache
//!                                        |                        Absent: to the data caches
//!                                       ...
//!                                    finish(va): the walk is over
//!
//!   tagged by             | unified    split      path
//!   ----------------------+-------------------------------
//!   address of an entry   | Uptc       Sptc        -
//!   prefix of a virtual   | Utc        Stc        Tpc
//!   address               |
//! ```
//!
//! A translation cache, tagged by virtual address, answers in `start` and learns nodes in
//! `read`. A page-table cache, tagged by the physical address of an entry, leaves the start at
//! the root and answers in `read`. A path cache learns in `finish`. One walker serves them all,
//! over any tree, and none of them knows the layout of an entry.

mod bits;
mod entry_array;
mod params;
mod prefix_array;
mod sptc;
mod stc;
mod tpc;
mod uptc;
mod utc;

use addr::{Asid, VirtAddr, VirtRange};
use pagetable::{Node, Reference};

pub use bits::ArrayBits;
pub use params::{Design, ParseDesignError, WalkArray, WalkCacheParams};
pub use sptc::Sptc;
pub use stc::Stc;
pub use tpc::Tpc;
pub use uptc::Uptc;
pub use utc::Utc;

/// What an MMU cache says of an entry that a walk is about to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// Nothing: it comes from memory.
    Absent,
    /// That it is here.
    Here,
    /// That it leads to this node, which is not what the page table says now: a flush was
    /// forgotten.
    Stale(Node),
}

/// A cache that a page-table walker asks.
///
/// It keeps what it learnt until it is told to forget, right or wrong.
pub trait WalkCache {
    /// Where the walk of `va` in `asid` starts: at `root`, or at a node below it that covers
    /// `va`.
    fn start(&mut self, va: VirtAddr, asid: Asid, root: Node) -> Node;

    /// Sees a reference of that walk before it goes to memory, and says whether it need not.
    /// Only entries that lead to tables can be held, and only those that lead on come in; those of
    /// the lowest level are not even looked for.
    fn read(&mut self, va: VirtAddr, asid: Asid, reference: &Reference) -> Held;

    /// The walk is over, and has `found` a page or not.
    fn finish(&mut self, va: VirtAddr, asid: Asid, found: bool);

    /// Forgets all that a walk of an address in `range` in `asid` could use, and perhaps more.
    fn flush_range(&mut self, range: VirtRange, asid: Asid);

    /// Forgets all that a walk in `asid` could use, and perhaps more.
    fn flush_asid(&mut self, asid: Asid);

    /// Forgets everything.
    fn flush_all(&mut self);

    /// How often it was searched so far. A search for each level counts (B10 table 4.4).
    fn searches(&self) -> u64;

    /// The tables that its entries lead to, in no order: what it covers.
    fn nodes(&self) -> Vec<Node>;
}

/// The MMU cache of a walker, chosen when the program runs.
#[derive(Clone, Debug, Default)]
pub enum AnyWalkCache {
    /// Every walk starts at the root and every reference goes to memory.
    #[default]
    None,
    /// See [`Uptc`].
    Uptc(Uptc),
    /// See [`Sptc`].
    Sptc(Sptc),
    /// See [`Utc`].
    Utc(Utc),
    /// See [`Stc`].
    Stc(Stc),
    /// See [`Tpc`].
    Tpc(Tpc),
}

/// Calls the cache that there is; `$none` is what no cache answers.
macro_rules! any {
    ($self:expr, $none:expr, $cache:ident => $call:expr) => {
        match $self {
            AnyWalkCache::None => $none,
            AnyWalkCache::Uptc($cache) => $call,
            AnyWalkCache::Sptc($cache) => $call,
            AnyWalkCache::Utc($cache) => $call,
            AnyWalkCache::Stc($cache) => $call,
            AnyWalkCache::Tpc($cache) => $call,
        }
    };
}

impl WalkCache for AnyWalkCache {
    #[inline]
    fn start(&mut self, va: VirtAddr, asid: Asid, root: Node) -> Node {
        any!(self, root, cache => cache.start(va, asid, root))
    }

    #[inline]
    fn read(&mut self, va: VirtAddr, asid: Asid, reference: &Reference) -> Held {
        any!(self, Held::Absent, cache => cache.read(va, asid, reference))
    }

    #[inline]
    fn finish(&mut self, va: VirtAddr, asid: Asid, found: bool) {
        any!(self, (), cache => cache.finish(va, asid, found));
    }

    fn flush_range(&mut self, range: VirtRange, asid: Asid) {
        any!(self, (), cache => cache.flush_range(range, asid));
    }

    fn flush_asid(&mut self, asid: Asid) {
        any!(self, (), cache => cache.flush_asid(asid));
    }

    fn flush_all(&mut self) {
        any!(self, (), cache => cache.flush_all());
    }

    #[inline]
    fn searches(&self) -> u64 {
        any!(self, 0, cache => cache.searches())
    }

    fn nodes(&self) -> Vec<Node> {
        any!(self, Vec::new(), cache => cache.nodes())
    }
}
