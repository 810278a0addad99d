//! The split page-table cache (B10 §4.2.1): a separate page-table cache for each level, so that
//! entries of different levels do not compete.
//!
//! ```text
//!   L2   125 | 0ae | 508  ...        one array a level, each with its own
//!   L3   042 | 00c | 125  ...        entries and ways
//!   L4   613 | 0b9 | 042  ...
//! ```

use addr::{Asid, VirtAddr, VirtRange};
use pagetable::{Node, Reference};

use super::{Held, WalkArray, WalkCache, WalkCacheParams, entry_array::EntryArray};
use crate::GeometryError;

/// A split page-table cache.
#[derive(Clone, Debug)]
pub struct Sptc {
    /// The array of each level.
    arrays: Box<[Option<EntryArray>]>,
    searches: u64,
}

impl Sptc {
    /// An empty cache. The error has the array that cannot be built, and why.
    pub fn new(params: &WalkCacheParams) -> Result<Sptc, (WalkArray, GeometryError)> {
        let arrays = params.split(|array| EntryArray::new(array, params))?;
        Ok(Sptc { arrays, searches: 0 })
    }
}

impl WalkCache for Sptc {
    #[inline]
    fn start(&mut self, _va: VirtAddr, _asid: Asid, root: Node) -> Node {
        root
    }

    #[inline]
    fn read(&mut self, _va: VirtAddr, asid: Asid, reference: &Reference) -> Held {
        match self.arrays.get_mut(usize::from(reference.level)) {
            Some(Some(array)) => {
                self.searches += 1;
                array.read(asid, reference)
            }
            _ => Held::Absent,
        }
    }

    #[inline]
    fn finish(&mut self, _va: VirtAddr, _asid: Asid, _found: bool) {}

    fn flush_range(&mut self, _range: VirtRange, _asid: Asid) {
        self.flush_all();
    }

    fn flush_asid(&mut self, _asid: Asid) {
        self.flush_all();
    }

    fn flush_all(&mut self) {
        self.arrays.iter_mut().flatten().for_each(EntryArray::clear);
    }

    #[inline]
    fn searches(&self) -> u64 {
        self.searches
    }

    fn nodes(&self) -> Vec<Node> {
        self.arrays.iter().flatten().flat_map(EntryArray::nodes).collect()
    }
}
