//! The unified page-table cache (B10 §4.2.1): a small data cache for entries of the upper levels,
//! like AMD's page walk cache.
//!
//! ```text
//!   base of table | index | next table          the walk looks up L4, then L3, then L2:
//!        125      |  0ae  |    508        L2    each address comes from the entry above
//!        042      |  00c  |    125        L3
//!        613      |  0b9  |    042        L4
//! ```

use addr::{Asid, VirtAddr, VirtRange};
use pagetable::{Node, Reference};

use super::{Held, WalkArray, WalkCache, WalkCacheParams, entry_array::EntryArray};
use crate::GeometryError;

/// A unified page-table cache.
#[derive(Clone, Debug)]
pub struct Uptc {
    array: EntryArray,
    searches: u64,
}

impl Uptc {
    /// An empty cache. The error has the array that cannot be built, and why.
    pub fn new(params: &WalkCacheParams) -> Result<Uptc, (WalkArray, GeometryError)> {
        Ok(Uptc { array: EntryArray::new(params.unified()?, params)?, searches: 0 })
    }
}

impl WalkCache for Uptc {
    #[inline]
    fn start(&mut self, _va: VirtAddr, _asid: Asid, root: Node) -> Node {
        root
    }

    #[inline]
    fn read(&mut self, _va: VirtAddr, asid: Asid, reference: &Reference) -> Held {
        if reference.level < 2 {
            return Held::Absent;
        }
        self.searches += 1;
        self.array.read(asid, reference)
    }

    #[inline]
    fn finish(&mut self, _va: VirtAddr, _asid: Asid, _found: bool) {}

    fn flush_range(&mut self, _range: VirtRange, _asid: Asid) {
        self.array.clear();
    }

    fn flush_asid(&mut self, _asid: Asid) {
        self.array.clear();
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
