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
//!     |             next entry, or 0             |   8 bytes
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
//! The first entry of each chain lies in the bucket itself; it may be empty while others
//! follow. With two pages an entry is E99's of 32 bytes, with eight its C128k (80 bytes, buckets
//! padded to 128). `code` says which of the three an entry is, and of which page size; `id` is
//! the space's number where spaces share the table, and 0 elsewhere.
//!
//! A superpage no larger than a cluster has a small entry in the chain of that cluster. A larger
//! one is hashed by the number of a page of its own size, in the same array: a walk that does
//! not find its address by the cluster tries the larger sizes in turn, each at the cost of a
//! chain. The kernel counts the entries by size, so sizes that no page has are not tried. Pages
//! that are placed in memory as in their cluster take a partial-subblock entry; the first that
//! is not starts a full one beside it.
//!
//! Walked by hardware and sized by physical memory, it is an inverted table of the Itanium's
//! kind ([`HashedShape::inverted`]): entries of eight bytes, no pointers of the kernel's, 32 bytes an
//! entry with one page, which is read at once.
//!
//! A range is found by its clusters, or, where it has more of them than there are buckets, by
//! a sweep over the table.

mod chain;
mod layout;
mod search;
mod shape;
mod store;

use alloc::vec::Vec;

use addr::{Frames, Kind, Memory, Page, PageSize, PhysAddr, VirtAddr, VirtRange};

use crate::pages::{Found, Pages, conclude, exchange, read_of};
use crate::pte::{Pte, Width};
use crate::spaces::Spaces;
use crate::{Error, Fault, Flush, Footprint, Geometry, Reference, Space, Translation, Unfit};

use chain::{NEXT, NONE, move_to_front};
use layout::{Form, HEADER_BYTES, Layout, is_valid};
pub use shape::{HashedShape, Walker};
use store::Store;

/// A hashed page table, with all of its spaces.
#[derive(Debug)]
pub struct Hashed {
    shape: HashedShape,
    layout: Layout,
    sizes: Vec<PageSize>,
    spaces: Spaces,
    /// By the number of the space; the first is everybody's in a shared table.
    stores: Vec<Option<Store>>,
}

impl Hashed {
    /// A table of that shape, without spaces.
    pub fn new(shape: HashedShape) -> Result<Hashed, Geometry> {
        let layout = Layout::new(&shape)?;
        let sizes = layout.sizes();
        Ok(Hashed { shape, layout, sizes, spaces: Spaces::default(), stores: Vec::new() })
    }

    fn id(&self, space: Space) -> u64 {
        if self.shape.shared { u64::from(space.id()) } else { 0 }
    }

    fn store_index(&self, space: Space) -> usize {
        if self.shape.shared { 0 } else { space.id() as usize }
    }

    fn store(&mut self, space: Space) -> &mut Store {
        let index = self.store_index(space);
        let store = self.stores.get_mut(index).and_then(Option::as_mut);
        store.expect("a space that exists has a store")
    }

    /// The ways to hash an address by which the table has entries, in the order in which a walk
    /// tries them.
    #[inline]
    fn probes(&self, space: Space) -> impl Iterator<Item = usize> + use<> {
        let store = self.stores.get(self.store_index(space)).and_then(Option::as_ref);
        let used = store.map_or([false; _], Store::probes);
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

impl Pages for Hashed {
    fn sizes(&self) -> &[PageSize] {
        &self.sizes
    }

    fn width(&self) -> Width {
        self.layout.width()
    }

    fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    fn spaces_mut(&mut self) -> &mut Spaces {
        &mut self.spaces
    }

    fn open(&mut self, memory: &mut impl Memory, frames: &mut impl Frames) -> Result<Space, Error> {
        if self.shape.shared {
            let max = self.layout.spaces_max();
            if self.spaces.count() >= max {
                return Err(Unfit::Spaces(max).into());
            }
            if let Some(Some(store)) = self.stores.first() {
                return Ok(self.spaces.create(store.base));
            }
        }
        let base = frames.allocate(self.frame_size())?;
        memory.zero(base, self.layout.table.bytes());
        let space = self.spaces.create(base);
        let index = space.id() as usize;
        if index >= self.stores.len() {
            self.stores.resize_with(index + 1, || None);
        }
        self.stores[index] = Some(Store::new(base, &self.layout));
        Ok(space)
    }

    fn close(&mut self, space: Space, memory: &mut impl Memory, flush: &mut Flush) {
        if self.shape.shared && self.spaces.count() > 0 {
            let mut of_space = Vec::new();
            self.links(space, VirtRange::ALL, memory, &mut |link| of_space.push(link));
            // From the end, so that what comes before an entry is still there.
            for link in of_space.into_iter().rev() {
                self.release(space, link, memory, flush);
            }
            return;
        }
        let index = self.store_index(space);
        if let Some(store) = self.stores.get_mut(index).and_then(Option::take) {
            flush.add_table(store.base, self.frame_size());
            store.put_all(flush);
        }
    }

    fn find(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Found> {
        self.locate(space, addr, memory).map(|(_, found)| found)
    }

    fn gather(&self, space: Space, range: VirtRange, memory: &impl Memory, found: &mut Vec<Found>) {
        self.links(space, range, memory, &mut |link| {
            found.extend(self.layout.pages_in(link, range, memory));
        });
    }

    fn insert(
        &mut self,
        space: Space,
        translation: Translation,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(), Error> {
        let Translation { page, frame, rights, global } = translation;
        let addr = page.start();
        let pte = self.layout.width().pte(frame, rights, global);
        let (code, node) = self.room(space, page, frame, memory);
        if let Some(node) = node {
            self.layout.set_page(node, code, addr, pte, memory);
            return Ok(());
        }
        let held = self.layout.held(code);
        let bucket = self.bucket(space, addr, held.probe);
        let is_inline = !is_valid(memory.read_u64(bucket));
        let (node, bytes) = if is_inline {
            (bucket, self.layout.bytes(Form::Full))
        } else {
            let pool = self.store(space).pool(held.form);
            (pool.take(frames)?, pool.node_bytes())
        };
        memory.zero(node.wrapping_add(HEADER_BYTES), bytes - HEADER_BYTES);
        if let (Form::Partial, Some(block)) = (held.form, self.layout.block_of(addr, frame)) {
            self.layout.set_block(node, block, memory);
        }
        self.layout.set_page(node, code, addr, pte, memory);
        memory.write_u64(node, self.layout.tag(addr, code, self.id(space)));
        if !is_inline {
            let first = memory.read_u64(bucket.wrapping_add(NEXT));
            memory.write_u64(node.wrapping_add(NEXT), first);
            memory.write_u64(bucket.wrapping_add(NEXT), node.get());
        }
        self.store(space).count_in(held.probe);
        Ok(())
    }

    fn remove(
        &mut self,
        space: Space,
        page: Page,
        memory: &mut impl Memory,
        flush: &mut Flush,
    ) -> Pte {
        let (link, found) =
            self.locate(space, page.start(), memory).expect("the page has an entry");
        let last =
            exchange(self.layout.width(), found, memory, |_| Some(Pte::EMPTY)).unwrap_or(found.pte);
        if self.layout.pages_in(link, VirtRange::ALL, memory).next().is_none() {
            self.release(space, link, memory, flush);
        }
        last
    }

    #[inline]
    fn look_up(
        &self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault> {
        let (id, width) = (self.id(space), self.layout.width());
        let (header_bytes, with_pte) = self.layout.header_read();
        for probe in self.probes(space) {
            let bucket = self.bucket(space, addr, probe);
            let (mut node, mut before) = (bucket, bucket);
            loop {
                let tag = memory.read_u64(node);
                each(read_of(node, header_bytes));
                if self.layout.covers(tag, addr, id) {
                    let code = self.layout.code(tag);
                    let found = self.layout.page_in(node, code, addr, memory);
                    if found.flags_only {
                        each(read_of(node.wrapping_add(HEADER_BYTES), width.bytes()));
                        each(read_of(found.at, 1));
                    } else if !with_pte {
                        each(read_of(found.at, width.bytes()));
                    }
                    if found.pte.is_mapped() {
                        if self.shape.move_to_front && before != bucket {
                            move_to_front(&self.layout, bucket, before, node, memory, each);
                        }
                        let sets_usage = self.shape.walk_sets_usage;
                        return conclude(width, found, kind, sets_usage, memory, each);
                    }
                }
                let next = node.wrapping_add(NEXT);
                let following = memory.read_u64(next);
                if header_bytes <= 8 {
                    each(read_of(next, 8));
                }
                if following == NONE {
                    break;
                }
                before = node;
                node = PhysAddr::new(following);
            }
        }
        Err(Fault::NotMapped { level: 1 })
    }

    fn taken(&self) -> Footprint {
        self.stores.iter().flatten().map(|store| self.store_footprint(store)).sum()
    }

    fn taken_by(&self, space: Space) -> Footprint {
        match self.stores.get(space.id() as usize) {
            Some(Some(store)) if !self.shape.shared => self.store_footprint(store),
            _ => Footprint::default(),
        }
    }
}
