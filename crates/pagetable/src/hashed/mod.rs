//! Hashed and clustered page tables: buckets with chains (E99 §2.2 and §3.2; Talluri, Hill,
//! Khalidi 1995 for clusters).
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
//!     | PTE of page 0, 1, ...                    |   4 bytes each
//!     | mapping tree of page 0, 1, ...           |   4 bytes each, the kernel's
//!     +------------------------------------------+
//! ```
//!
//! The first entry of each chain lies in the bucket itself; it may be empty while others
//! follow. With two pages an entry is E99's of 32 bytes, with eight its C128k (80 bytes, buckets
//! padded to 128). A superpage no larger than a cluster has a small entry of its own, beside the
//! one for the base pages of the same cluster; `code` in the tag is log2 of the base pages in
//! it. `id` is the space's number where spaces share the table, and 0 elsewhere.
//!
//! Walked by hardware and sized by physical memory, it is an inverted table of the Itanium's
//! kind ([`HashedShape::inverted`]): entries of eight bytes, no pointers of the kernel's, 32 bytes an
//! entry with one page, which is read at once.
//!
//! A range is found by its clusters, or, where it has more of them than there are buckets, by
//! a sweep over the table.

mod shape;

use alloc::vec::Vec;

use addr::{Frames, Kind, Memory, Page, PageSize, PhysAddr, VirtAddr, VirtRange};

use crate::pages::{Found, Pages, conclude, exchange, read_of};
use crate::pool::Pool;
use crate::pte::{Pte, Width};
use crate::spaces::Spaces;
use crate::{Error, Fault, Flush, Footprint, Geometry, Reference, Space, Translation, Unfit};

pub use shape::{HashedShape, Walker};
use shape::{Layout, code_of, is_valid, size_of};

const NEXT: u64 = 8;
const NONE: u64 = 0;

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

/// An array of buckets with the nodes of its chains.
#[derive(Debug)]
struct Store {
    base: PhysAddr,
    full: Pool,
    single: Pool,
}

impl Hashed {
    /// A table of that shape, without spaces.
    pub fn new(shape: HashedShape) -> Result<Hashed, Geometry> {
        let layout = Layout::new(&shape)?;
        let sizes = layout.sizes().collect();
        Ok(Hashed { shape, layout, sizes, spaces: Spaces::default(), stores: Vec::new() })
    }

    fn id(&self, space: Space) -> u64 {
        if self.shape.shared { u64::from(space.id()) } else { 0 }
    }

    fn store(&mut self, space: Space) -> &mut Store {
        let index = if self.shape.shared { 0 } else { space.id() as usize };
        let store = self.stores.get_mut(index).and_then(Option::as_mut);
        store.expect("a space that exists has a store")
    }

    fn bucket(&self, space: Space, addr: VirtAddr) -> PhysAddr {
        self.layout.bucket(space.root(), addr, self.id(space))
    }

    fn frame_size(&self) -> PageSize {
        self.layout.table.max(PageSize::SIZE_4K)
    }

    fn store_footprint(&self, store: &Store) -> Footprint {
        let mut taken = Footprint {
            table_bytes: self.layout.table.bytes(),
            frame_bytes: self.frame_size().bytes(),
        };
        taken += store.full.footprint();
        taken += store.single.footprint();
        taken
    }

    /// The pages of the entry at `node` that lie in `range`, whole or in part.
    fn gather_entry(
        &self,
        node: PhysAddr,
        tag: u64,
        range: VirtRange,
        memory: &impl Memory,
        found: &mut Vec<Found>,
    ) {
        let code = self.layout.code(tag);
        let tagged = self.layout.tagged(code);
        let start = VirtAddr::new(tag).align_down(tagged);
        let covered = VirtRange::of_page(start.page(tagged));
        let Some(part) = covered.intersection(range) else { return };
        for page in part.pages(size_of(code)) {
            let at = self.layout.pte_at(node, code, page.start());
            let pte = self.layout.width().read(at, memory);
            if pte.is_mapped() {
                found.push(Found { page, at, pte });
            }
        }
    }

    /// Gives `each` the entries of the chain from `bucket`, used or not, until it says no.
    fn chain(&self, bucket: PhysAddr, memory: &impl Memory, mut each: impl FnMut(Link) -> bool) {
        let mut link = Link { node: bucket, before: bucket, tag: memory.read_u64(bucket) };
        while each(link) {
            let next = memory.read_u64(link.node.wrapping_add(NEXT));
            if next == NONE {
                return;
            }
            let node = PhysAddr::new(next);
            link = Link { node, before: link.node, tag: memory.read_u64(node) };
        }
    }

    /// The entry that `page` has or could be added to.
    fn entry(&self, space: Space, page: Page, memory: &impl Memory) -> Option<Link> {
        let tag = self.layout.tag(page.start(), code_of(page.size()), self.id(space));
        let mut found = None;
        self.chain(self.bucket(space, page.start()), memory, |link| {
            found = (link.tag == tag).then_some(link);
            found.is_none()
        });
        found
    }

    /// Takes the entry at `link` out of its chain.
    fn release(&mut self, space: Space, link: Link, memory: &mut impl Memory, flush: &mut Flush) {
        let code = self.layout.code(link.tag);
        if link.node == link.before {
            memory.write_u64(link.node, NONE);
            return;
        }
        let next = memory.read_u64(link.node.wrapping_add(NEXT));
        memory.write_u64(link.before.wrapping_add(NEXT), next);
        let store = self.store(space);
        let pool = if code == 0 { &mut store.full } else { &mut store.single };
        pool.put(link.node, flush);
    }

    /// Moves the entry at `node`, which follows `before`, to the front of the overflow chain.
    fn move_to_front(
        &self,
        bucket: PhysAddr,
        before: PhysAddr,
        node: PhysAddr,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) {
        let next = |node: PhysAddr| node.wrapping_add(NEXT);
        let (after, first) = (memory.read_u64(next(node)), memory.read_u64(next(bucket)));
        if self.layout.header_read().0 <= 8 {
            each(read_of(next(node), 8));
        }
        for (at, value) in [(before, after), (node, first), (bucket, node.get())] {
            memory.write_u64(next(at), value);
            each(Reference { write: true, ..read_of(next(at), 8) });
        }
    }
}

/// An entry as reached in a chain; the first one comes before itself.
#[derive(Clone, Copy)]
struct Link {
    node: PhysAddr,
    before: PhysAddr,
    tag: u64,
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
        let full = Pool::new(self.layout.full_bytes());
        let single = Pool::new(self.layout.single_bytes());
        let index = space.id() as usize;
        if index >= self.stores.len() {
            self.stores.resize_with(index + 1, || None);
        }
        self.stores[index] = Some(Store { base, full, single });
        Ok(space)
    }

    fn close(&mut self, space: Space, memory: &mut impl Memory, flush: &mut Flush) {
        let id = self.id(space);
        if self.shape.shared && self.spaces.count() > 0 {
            for n in 0..self.layout.buckets {
                let bucket = self.layout.nth_bucket(space.root(), n);
                let mut of_space = Vec::new();
                self.chain(bucket, memory, |link| {
                    if self.layout.is_of(link.tag, id) {
                        of_space.push(link);
                    }
                    true
                });
                // From the end, so that what comes before an entry is still there.
                for link in of_space.into_iter().rev() {
                    self.release(space, link, memory, flush);
                }
            }
            return;
        }
        let index = if self.shape.shared { 0 } else { space.id() as usize };
        if let Some(store) = self.stores.get_mut(index).and_then(Option::take) {
            flush.add_table(store.base, self.frame_size());
            store.full.put_all(flush);
            store.single.put_all(flush);
        }
    }

    fn find(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Found> {
        let id = self.id(space);
        let mut found = None;
        self.chain(self.bucket(space, addr), memory, |link| {
            if self.layout.covers(link.tag, addr, id) {
                let code = self.layout.code(link.tag);
                let at = self.layout.pte_at(link.node, code, addr);
                let pte = self.layout.width().read(at, memory);
                let page = addr.page(size_of(code));
                found = pte.is_mapped().then_some(Found { page, at, pte });
            }
            found.is_none()
        });
        found
    }

    fn gather(&self, space: Space, range: VirtRange, memory: &impl Memory, found: &mut Vec<Found>) {
        let id = self.id(space);
        let cluster = self.layout.cluster;
        let numbers = |addr: VirtAddr| addr.get() >> cluster.shift();
        if numbers(range.last()) - numbers(range.start()) < self.layout.buckets {
            for page in range.pages(cluster) {
                self.chain(self.bucket(space, page.start()), memory, |link| {
                    let same = VirtAddr::new(link.tag).page(cluster) == page;
                    if same && self.layout.is_of(link.tag, id) {
                        self.gather_entry(link.node, link.tag, range, memory, found);
                    }
                    true
                });
            }
            return;
        }
        for n in 0..self.layout.buckets {
            self.chain(self.layout.nth_bucket(space.root(), n), memory, |link| {
                if self.layout.is_of(link.tag, id) {
                    self.gather_entry(link.node, link.tag, range, memory, found);
                }
                true
            });
        }
    }

    fn insert(
        &mut self,
        space: Space,
        translation: Translation,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(), Error> {
        let Translation { page, frame, rights, global } = translation;
        let pte = self.layout.width().pte(frame, rights, global);
        let code = code_of(page.size());
        if let Some(link) = self.entry(space, page, memory) {
            self.layout.width().write(
                self.layout.pte_at(link.node, code, page.start()),
                pte,
                memory,
            );
            return Ok(());
        }
        let bucket = self.bucket(space, page.start());
        let is_inline = !is_valid(memory.read_u64(bucket));
        let (node, bytes) = if is_inline {
            (bucket, self.layout.full_bytes())
        } else {
            let store = self.store(space);
            let pool = if code == 0 { &mut store.full } else { &mut store.single };
            (pool.take(frames)?, pool.node_bytes())
        };
        let header = NEXT + 8;
        memory.zero(node.wrapping_add(header), bytes - header);
        self.layout.width().write(self.layout.pte_at(node, code, page.start()), pte, memory);
        memory.write_u64(node, self.layout.tag(page.start(), code, self.id(space)));
        if !is_inline {
            let first = memory.read_u64(bucket.wrapping_add(NEXT));
            memory.write_u64(node.wrapping_add(NEXT), first);
            memory.write_u64(bucket.wrapping_add(NEXT), node.get());
        }
        Ok(())
    }

    fn remove(
        &mut self,
        space: Space,
        page: Page,
        memory: &mut impl Memory,
        flush: &mut Flush,
    ) -> Pte {
        let link = self.entry(space, page, memory).expect("the page has an entry");
        let code = code_of(page.size());
        let at = self.layout.pte_at(link.node, code, page.start());
        let found = Found { page, at, pte: self.layout.width().read(at, memory) };
        let last =
            exchange(self.layout.width(), found, memory, |_| Some(Pte::EMPTY)).unwrap_or(found.pte);
        let others = page.start().page(self.layout.tagged(code));
        let is_empty = VirtRange::of_page(others).pages(page.size()).all(|page| {
            !self
                .layout
                .width()
                .read(self.layout.pte_at(link.node, code, page.start()), memory)
                .is_mapped()
        });
        if is_empty {
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
        let id = self.id(space);
        let width = self.layout.width();
        let (header_bytes, with_pte) = self.layout.header_read();
        let bucket = self.layout.bucket(space.root(), addr, id);
        let (mut node, mut before) = (bucket, bucket);
        loop {
            let tag = memory.read_u64(node);
            each(read_of(node, header_bytes));
            if self.layout.covers(tag, addr, id) {
                let code = self.layout.code(tag);
                let at = self.layout.pte_at(node, code, addr);
                let pte = width.read(at, memory);
                if !with_pte {
                    each(read_of(at, width.bytes()));
                }
                if pte.is_mapped() {
                    if self.shape.move_to_front && before != bucket {
                        self.move_to_front(bucket, before, node, memory, each);
                    }
                    let found = Found { page: addr.page(size_of(code)), at, pte };
                    return conclude(width, found, kind, self.shape.walk_sets_usage, memory, each);
                }
            }
            let next = node.wrapping_add(NEXT);
            let following = memory.read_u64(next);
            if header_bytes <= 8 {
                each(read_of(next, 8));
            }
            if following == NONE {
                return Err(Fault::NotMapped { level: 1 });
            }
            before = node;
            node = PhysAddr::new(following);
        }
    }

    fn taken(&self) -> Footprint {
        self.stores.iter().flatten().fold(Footprint::default(), |mut sum, store| {
            sum += self.store_footprint(store);
            sum
        })
    }

    fn taken_by(&self, space: Space) -> Footprint {
        match self.stores.get(space.id() as usize) {
            Some(Some(store)) if !self.shape.shared => self.store_footprint(store),
            _ => Footprint::default(),
        }
    }
}
