//! The split translation cache (B10 §4.2.2): a separate translation cache for each level, like
//! Intel's paging-structure caches.
//!
//! ```text
//!   L2 entries   0b9 00c 0ae | 508      searched first: the longest prefix
//!   L3 entries   0b9 00c     | 125      then these
//!   L4 entries   0b9         | 042      and these
//! ```
//!
//! The search ends at the first array that has an entry; the arrays of higher levels are then
//! neither searched nor counted as used.

use addr::{Asid, VirtAddr, VirtRange};
use pagetable::{Node, Reference};

use super::{Held, WalkArray, WalkCache, WalkCacheParams, prefix_array::PrefixArray};
use crate::GeometryError;

/// A split translation cache.
#[derive(Clone, Debug)]
pub struct Stc {
    /// For each level, the array for entries of this level; their tables have the level below.
    arrays: Box<[Option<PrefixArray>]>,
    searches: u64,
}

impl Stc {
    /// An empty cache. The error has the array that cannot be built, and why.
    pub fn new(params: &WalkCacheParams) -> Result<Stc, (WalkArray, GeometryError)> {
        let arrays = params.split(|array| PrefixArray::new(array, params))?;
        Ok(Stc { arrays, searches: 0 })
    }
}

impl WalkCache for Stc {
    #[inline]
    fn start(&mut self, va: VirtAddr, asid: Asid, root: Node) -> Node {
        for array in self.arrays.iter_mut().flatten() {
            self.searches += 1;
            if let Some(node) = array.longest(va, asid) {
                return node;
            }
        }
        root
    }

    #[inline]
    fn read(&mut self, va: VirtAddr, asid: Asid, reference: &Reference) -> Held {
        if let Some(node) = reference.next()
            && let Some(Some(array)) = self.arrays.get_mut(usize::from(node.level) + 1)
        {
            array.insert(va, asid, node, reference.level);
        }
        Held::Absent
    }

    #[inline]
    fn finish(&mut self, _va: VirtAddr, _asid: Asid, _found: bool) {}

    fn flush_range(&mut self, range: VirtRange, asid: Asid) {
        self.arrays.iter_mut().flatten().for_each(|array| array.flush_range(range, asid));
    }

    fn flush_asid(&mut self, asid: Asid) {
        self.arrays.iter_mut().flatten().for_each(|array| array.flush_asid(asid));
    }

    fn flush_all(&mut self) {
        self.arrays.iter_mut().flatten().for_each(PrefixArray::clear);
    }

    #[inline]
    fn searches(&self) -> u64 {
        self.searches
    }

    fn nodes(&self) -> Vec<Node> {
        self.arrays.iter().flatten().flat_map(PrefixArray::nodes).collect()
    }
}
