//! MMU caches, which make walks shorter or cheaper (B10 ch. 4).
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
//! A translation cache, tagged by virtual address, returns its result in `start` and inserts nodes
//! in `read`. A page-table cache, tagged by the physical address of an entry, always starts at the
//! root and returns its result in `read`. A path cache inserts in `finish`. One walker works with
//! all of them, over any tree, and none of them depends on the layout of entries.

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
pub use params::{ParseDesignError, WalkArray, WalkCacheParams};
pub use sptc::Sptc;
pub use stc::Stc;
pub use tpc::Tpc;
pub use uptc::Uptc;
pub use utc::Utc;

use crate::GeometryError;

/// Whether an MMU cache holds the entry that a walk is about to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// The cache does not hold the entry: it is read from memory.
    Absent,
    /// The cache holds the entry.
    Here,
    /// The cache holds the entry, which leads to this node, but the page table now has another node
    /// there: a flush is missing.
    Stale(Node),
}

/// A cache that a page-table walker looks up.
///
/// The cache keeps its entries until they are replaced or flushed, whether they are correct or
/// stale.
pub trait WalkCache {
    /// The node at which the walk of `va` in `asid` starts: `root`, or a lower node that covers
    /// `va`.
    fn start(&mut self, va: VirtAddr, asid: Asid, root: Node) -> Node;

    /// Called for each reference of the current walk before it accesses memory; returns whether the
    /// cache holds the entry. Only entries that lead to tables can be held, and only such entries
    /// are inserted; entries of the lowest level are not looked up.
    fn read(&mut self, va: VirtAddr, asid: Asid, reference: &Reference) -> Held;

    /// Called at the end of the walk; `found` is true if the walk found a page.
    fn finish(&mut self, va: VirtAddr, asid: Asid, found: bool);

    /// Inserts the page at which the walk of `va` ended, as a node of level 0, in a cache that also
    /// holds pages. The cache does not hold this page yet.
    fn page(&mut self, _va: VirtAddr, _asid: Asid, _page: Node) {}

    /// Removes the pages that overlap `range` in `asid`, if the cache holds pages.
    fn flush_pages(&mut self, _range: VirtRange, _asid: Asid) {}

    /// Removes at least all entries that a walk of an address in `range` in `asid` could use.
    fn flush_range(&mut self, range: VirtRange, asid: Asid);

    /// Removes at least all entries that a walk in `asid` could use.
    fn flush_asid(&mut self, asid: Asid);

    /// Removes all entries. Entries that are tagged as the host's may stay, since the host has
    /// another page table.
    fn flush_all(&mut self);

    /// The number of searches so far. A search for each level counts (B10 table 4.4).
    fn searches(&self) -> u64;

    /// The tables to which the cache's entries lead, in any order.
    fn nodes(&self) -> Vec<Node>;
}

/// Defines [`Design`] and [`AnyWalkCache`] from one row per design: its doc, its type, its name,
/// and whether each level has its own array.
macro_rules! designs {
    ($($(#[$doc:meta])+ $design:ident $name:literal split: $is_split:literal;)+) => {
        /// A design of MMU caches (B10 §4.2.4).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Design {
            $($(#[$doc])+ $design,)+
        }

        impl Design {
            /// All designs.
            pub const ALL: [Design; [$(Design::$design),+].len()] = [$(Design::$design),+];

            /// The name in machine files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Design::$design => $name,)+
                }
            }

            /// Whether each level has its own array.
            pub const fn is_split(self) -> bool {
                match self {
                    $(Design::$design => $is_split,)+
                }
            }
        }

        /// The MMU cache of a walker, chosen at run time.
        #[derive(Clone, Debug, Default)]
        pub enum AnyWalkCache {
            /// No cache: every walk starts at the root and every reference accesses memory.
            #[default]
            None,
            $(#[doc = concat!("See [`", stringify!($design), "`].")] $design($design),)+
        }

        impl AnyWalkCache {
            /// An empty cache. The error has the array that cannot be built, and why.
            pub fn new(
                params: &WalkCacheParams,
            ) -> Result<AnyWalkCache, (WalkArray, GeometryError)> {
                Ok(match params.design {
                    $(Design::$design => AnyWalkCache::$design($design::new(params)?),)+
                })
            }
        }

        impl WalkCache for AnyWalkCache {
            #[inline]
            fn start(&mut self, va: VirtAddr, asid: Asid, root: Node) -> Node {
                match self {
                    AnyWalkCache::None => root,
                    $(AnyWalkCache::$design(cache) => cache.start(va, asid, root),)+
                }
            }

            #[inline]
            fn read(&mut self, va: VirtAddr, asid: Asid, reference: &Reference) -> Held {
                match self {
                    AnyWalkCache::None => Held::Absent,
                    $(AnyWalkCache::$design(cache) => cache.read(va, asid, reference),)+
                }
            }

            #[inline]
            fn finish(&mut self, va: VirtAddr, asid: Asid, found: bool) {
                match self {
                    AnyWalkCache::None => {}
                    $(AnyWalkCache::$design(cache) => cache.finish(va, asid, found),)+
                }
            }

            fn page(&mut self, va: VirtAddr, asid: Asid, page: Node) {
                match self {
                    AnyWalkCache::None => {}
                    $(AnyWalkCache::$design(cache) => cache.page(va, asid, page),)+
                }
            }

            fn flush_pages(&mut self, range: VirtRange, asid: Asid) {
                match self {
                    AnyWalkCache::None => {}
                    $(AnyWalkCache::$design(cache) => cache.flush_pages(range, asid),)+
                }
            }

            fn flush_range(&mut self, range: VirtRange, asid: Asid) {
                match self {
                    AnyWalkCache::None => {}
                    $(AnyWalkCache::$design(cache) => cache.flush_range(range, asid),)+
                }
            }

            fn flush_asid(&mut self, asid: Asid) {
                match self {
                    AnyWalkCache::None => {}
                    $(AnyWalkCache::$design(cache) => cache.flush_asid(asid),)+
                }
            }

            fn flush_all(&mut self) {
                match self {
                    AnyWalkCache::None => {}
                    $(AnyWalkCache::$design(cache) => cache.flush_all(),)+
                }
            }

            #[inline]
            fn searches(&self) -> u64 {
                match self {
                    AnyWalkCache::None => 0,
                    $(AnyWalkCache::$design(cache) => cache.searches(),)+
                }
            }

            fn nodes(&self) -> Vec<Node> {
                match self {
                    AnyWalkCache::None => Vec::new(),
                    $(AnyWalkCache::$design(cache) => cache.nodes(),)+
                }
            }
        }
    };
}

designs! {
    /// Unified page-table cache.
    Uptc "uptc" split: false;
    /// Split page-table cache.
    Sptc "sptc" split: true;
    /// Unified translation cache.
    Utc "utc" split: false;
    /// Split translation cache.
    Stc "stc" split: true;
    /// Translation-path cache.
    Tpc "tpc" split: false;
}
