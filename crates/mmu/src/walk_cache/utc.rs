//! The unified translation cache (B10 §4.2.2): tables of all levels in one array, tagged by the
//! prefix of the virtual address.
//!
//! ```text
//!    L4 | L3 | L2 | table          va (0b9, 00c, 0dd, ...): two entries fit, the walk starts
//!   0b9 | 00c| 0ae|  508           at table 125 and skips L4 and L3
//!   0b9 | 00c|  x |  125  <--
//!   0b9 |  x |  x |  042
//! ```
//!
//! The entries of levels that a walk skips do not count as used, so they are replaced earlier. The
//! array is searched for the longest prefix first, once per level. If the cache also holds pages,
//! as a TLB does, a page has the longest prefix and replaces the whole walk. If prefixes can have
//! any length (a guarded table), one search finds the longest prefix, as in a ternary
//! content-addressable memory.

use addr::{Asid, VirtAddr, VirtRange};
use pagetable::{Node, Reference};

use super::{Held, WalkArray, WalkCache, WalkCacheParams, prefix_array::PrefixArray};
use crate::GeometryError;

/// A unified translation cache.
#[derive(Clone, Debug)]
pub struct Utc {
    array: PrefixArray,
    /// The largest number of searches per walk.
    searches_max: u8,
    searches: u64,
    /// Whether the cache also holds pages, which takes one more search per walk.
    pages: bool,
}

impl Utc {
    /// An empty cache. The error has the array that cannot be built, and why.
    pub fn new(params: &WalkCacheParams) -> Result<Utc, (WalkArray, GeometryError)> {
        let array = PrefixArray::new(params.unified()?, params)?;
        Ok(Utc { array, searches_max: params.searches_max(), searches: 0, pages: params.pages })
    }
}

impl WalkCache for Utc {
    #[inline]
    fn start(&mut self, va: VirtAddr, asid: Asid, root: Node) -> Node {
        let found = self.array.longest(va, asid);
        let searches = found.map_or(self.searches_max, |node| node.level.min(self.searches_max));
        self.searches += u64::from(searches) + u64::from(self.pages);
        found.unwrap_or(root)
    }

    #[inline]
    fn read(&mut self, va: VirtAddr, asid: Asid, reference: &Reference) -> Held {
        if let Some(node) = reference.next() {
            self.array.insert(va, asid, node, reference.level);
        }
        Held::Absent
    }

    #[inline]
    fn finish(&mut self, _va: VirtAddr, _asid: Asid, _found: bool) {}

    #[inline]
    fn page(&mut self, va: VirtAddr, asid: Asid, page: Node) {
        self.array.insert(va, asid, page, 1);
    }

    fn flush_pages(&mut self, range: VirtRange, asid: Asid) {
        self.array.flush_pages(range, asid);
    }

    fn flush_range(&mut self, range: VirtRange, asid: Asid) {
        self.array.flush_range(range, asid);
    }

    fn flush_asid(&mut self, asid: Asid) {
        self.array.flush_asid(asid);
    }

    fn flush_all(&mut self) {
        self.array.clear();
    }

    #[inline]
    fn searches(&self) -> u64 {
        self.searches
    }

    fn nodes(&self) -> Vec<Node> {
        self.array.nodes().collect()
    }
}
