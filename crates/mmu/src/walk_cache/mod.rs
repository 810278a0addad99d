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
pub use params::{ParseDesignError, WalkArray, WalkCacheParams};
pub use sptc::Sptc;
pub use stc::Stc;
pub use tpc::Tpc;
pub use uptc::Uptc;
pub use utc::Utc;

use crate::GeometryError;

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

    /// Takes in the page at which the walk of `va` has ended, as a node of level 0; where pages are
    /// held. The caller has not found it here.
    fn page(&mut self, _va: VirtAddr, _asid: Asid, _page: Node) {}

    /// Forgets the pages with an address in `range` in `asid`, if it holds any.
    fn flush_pages(&mut self, _range: VirtRange, _asid: Asid) {}

    /// Forgets all that a walk of an address in `range` in `asid` could use, and perhaps more.
    fn flush_range(&mut self, range: VirtRange, asid: Asid);

    /// Forgets all that a walk in `asid` could use, and perhaps more.
    fn flush_asid(&mut self, asid: Asid);

    /// Forgets everything. What is tagged as the host's may stay: its page table is another.
    fn flush_all(&mut self);

    /// How often it was searched so far. A search for each level counts (B10 table 4.4).
    fn searches(&self) -> u64;

    /// The tables that its entries lead to, in no order: what it covers.
    fn nodes(&self) -> Vec<Node>;
}

/// Makes [`Design`] and [`AnyWalkCache`] out of a row for each design: its doc, its type, its name,
/// and whether each level has an array of its own.
macro_rules! designs {
    ($($(#[$doc:meta])+ $design:ident $name:literal split: $is_split:literal;)+) => {
        /// The name of a design (B10 §4.2.4).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Design {
            $($(#[$doc])+ $design,)+
        }

        impl Design {
            /// All designs.
            pub const ALL: [Design; [$(Design::$design),+].len()] = [$(Design::$design),+];

            /// The name as machine files write it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Design::$design => $name,)+
                }
            }

            /// Whether each level has an array of its own.
            pub const fn is_split(self) -> bool {
                match self {
                    $(Design::$design => $is_split,)+
                }
            }
        }

        /// The MMU cache of a walker, chosen when the program runs.
        #[derive(Clone, Debug, Default)]
        pub enum AnyWalkCache {
            /// Every walk starts at the root and every reference goes to memory.
            #[default]
            None,
            $(#[doc = concat!("See [`", stringify!($design), "`].")] $design($design),)+
        }

        impl AnyWalkCache {
            /// An empty cache, or what is wrong with which array.
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
