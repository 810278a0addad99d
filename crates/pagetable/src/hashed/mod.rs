//! Hashed and clustered page tables: buckets with chains (E99 §2.2 and §3.2; Talluri, Hill,
//! Khalidi 1995 for clusters, superpages and partial subblocks).
//!
//! ```text
//!   cluster of va --hash--> bucket                  overflow chain
//!                        +----------+            +----------+            +----------+
//!                        | tag next | ---------> | tag next | ---------> | tag next |
//!                        | PTE PTE  |            | PTE PTE  |            | PTE PTE  |
//!                        +----------+            +----------+            +----------+
//!                                                      ^--- a hit further on comes here
//!
//!      63                     c        1        0
//!     +------------------------+----+------+-----+
//!     | address of the cluster | id | code |valid|   tag: 8 bytes
//!     +------------------------+----+------+-----+
//!     |    next entry, with bit 0 set; or 0      |   8 bytes: an entry may lie at address 0
//!     +---------------------+--------------------+
//!     | PTE of page 0, 1, ...                    |   full: 4 bytes each
//!     | mapping tree of page 0, 1, ...           |   4 bytes each, the kernel's
//!     +---------------------+--------------------+
//!     | PTE   mapping tree                       |   single: one superpage
//!     +---------------------+--------------------+
//!     | frame of page 0   mapping tree           |   partial subblock: page n in the n-th
//!     | flags of page 0, 1, ...: a byte each     |   frame from there
//!     +------------------------------------------+
//! ```
//!
//! The first entry of each chain lies in the bucket itself; it may be unused while the overflow
//! chain has entries. With two pages, an entry has the layout of E99 (32 bytes). With eight pages,
//! it has the layout of E99's table C128k (80 bytes, in buckets that are padded to 128 bytes unless
//! they are packed). `code` encodes the entry's form (full, single or partial subblock) and its
//! page size. `id` is the space's number if spaces share the table, and 0 otherwise.
//!
//! A superpage no larger than a cluster has a small entry in the chain of that cluster. A larger
//! superpage is hashed by its page number, in units of its own size, in the same array. A walk that
//! finds no page in the cluster's chain therefore tries the larger sizes one after the other. Each
//! of these attempts costs the search of a chain. The kernel counts the entries of each size, so
//! that walks skip sizes without pages. A page is properly placed if its position in an aligned
//! block of frames is its position in the cluster. Properly placed pages share a partial-subblock
//! entry; the first page of a cluster with another position gets a full entry in addition. The
//! pointers into the mapping tree are the pages' notes ([`crate::PageTable::has_notes`]). In a
//! partial subblock the note is always zero, because its pages would have to share it.
//!
//! If hardware walks the table and physical memory determines its size, it is an inverted table
//! like the Itanium's ([`HashedShape::inverted`]). Its page entries have eight bytes and no
//! pointers of the kernel. An entry with one page has 32 bytes, which are read together.
//!
//! A range operation looks up each cluster of the range or, if there are more clusters than
//! buckets, sweeps over the whole table.
//!
//! Processors may not walk the table while it is changed
//! ([`crate::PageTable::walks_beside_changes`]). A run of pages is inserted page by page. If no
//! frame is left for a later page, the earlier pages are removed again, but a walk could have found
//! them before. A walk that moves the entry it hit to the front of its chain writes three pointers,
//! one after the other.

mod chain;
mod layout;
mod pages;
mod replicated;
mod search;
mod shape;
mod store;

use alloc::vec::Vec;

use addr::{PageSize, PhysAddr, VirtAddr};

use crate::spaces::Spaces;
use crate::{Footprint, Geometry, Space};

use layout::Layout;
pub use shape::{HashedShape, WalkedBy};
use store::Store;

/// A hashed page table, with all of its spaces.
#[derive(Debug)]
pub struct Hashed {
    shape: HashedShape,
    layout: Layout,
    sizes: Vec<PageSize>,
    spaces: Spaces<Option<Store>>,
    /// The table of all spaces, if they share one.
    shared: Option<Store>,
}

impl Hashed {
    /// A table of the given shape, without spaces.
    pub fn new(shape: HashedShape) -> Result<Hashed, Geometry> {
        let layout = Layout::new(&shape)?;
        let sizes = layout.sizes();
        Ok(Hashed { shape, layout, sizes, spaces: Spaces::new(), shared: None })
    }

    fn id(&self, space: Space) -> u64 {
        if self.shape.shared { u64::from(space.id()) } else { 0 }
    }

    /// The buckets and entries of a space that exists.
    fn store(&mut self, space: Space) -> &mut Store {
        let store = self.shared.as_mut().or_else(|| self.spaces.own_mut(space).as_mut());
        store.expect("a space has a store of its own or shares one")
    }

    /// The store of `space`, or the store that all spaces share. `None` if the space does not
    /// exist.
    fn store_of(&self, space: Space) -> Option<&Store> {
        self.shared.as_ref().or_else(|| self.spaces.own(space)?.as_ref())
    }

    /// The ways to hash an address for which the table has entries, in the order in which a walk
    /// tries them.
    #[inline]
    fn probes(&self, space: Space) -> impl Iterator<Item = usize> + use<> {
        let used = self.store_of(space).map_or([false; _], Store::probes);
        (0..used.len()).filter(move |&probe| used[probe])
    }

    #[inline]
    fn bucket(&self, space: Space, addr: VirtAddr, probe: usize) -> PhysAddr {
        self.layout.bucket(space.root(), addr, self.id(space), probe)
    }

    fn frame_size(&self) -> PageSize {
        self.layout.table.max(PageSize::SIZE_4K)
    }

    fn store_footprint(&self, store: &Store) -> Footprint {
        let mut taken = Footprint {
            table_bytes: self.layout.table.bytes(),
            frame_bytes: self.frame_size().bytes(),
        };
        taken += store.footprint();
        taken
    }
}
