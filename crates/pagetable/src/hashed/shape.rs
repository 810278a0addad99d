use addr::{PageSize, PhysAddr, VirtAddr};

use crate::Geometry;
use crate::pte::Width;

/// Who walks a hashed table, and so what an entry looks like and how it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walker {
    /// A refill handler of a 32-bit kernel on a 64-bit machine (E99): four bytes for a page's
    /// entry and four for the kernel's pointer, read one field at a time. The number of the
    /// cluster is folded into the number of a bucket by a few shifts.
    Software,
    /// A walker in the way of the Itanium (B10 §5.1): eight bytes for a page's entry. It reads
    /// tag and chain at once, with one page an entry the page's entry too. The number of the
    /// cluster is multiplied and so spread over all buckets.
    Hardware,
}

/// What distinguishes one hashed table from another.
///
/// The constants are those of E99 §3.2: 8 KiB and 128 KiB with two pages an entry, and
/// clustered with eight, one table a space, the hit moved to the front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashedShape {
    /// Bytes of the array of buckets, a power of two.
    pub table_bytes: u64,
    /// Base pages in one entry, a power of two up to 256: 2 is the hashed table of E99, more
    /// is a clustered one.
    pub entry_pages: u64,
    /// Whether pages of 2, 4, ... up to `entry_pages` base pages have entries of their own.
    pub superpages: bool,
    /// Whether all spaces are in one table, told apart by their number in the tag.
    pub shared: bool,
    /// Whether a walk that hits in a chain moves the entry to its front.
    pub move_to_front: bool,
    /// Whether walks set usage bits.
    pub walk_sets_usage: bool,
    /// Who walks.
    pub walker: Walker,
}

impl HashedShape {
    /// H8k: 256 buckets, one table a space.
    pub const H8K: HashedShape = HashedShape {
        table_bytes: 8 << 10,
        entry_pages: 2,
        superpages: false,
        shared: false,
        move_to_front: true,
        walk_sets_usage: false,
        walker: Walker::Software,
    };

    /// H128k: 4096 buckets, one table a space.
    pub const H128K: HashedShape = HashedShape { table_bytes: 128 << 10, ..HashedShape::H8K };

    /// C128k: 1024 buckets of eight pages, one table a space, superpages up to 32 KiB.
    pub const C128K: HashedShape = HashedShape {
        table_bytes: 128 << 10,
        entry_pages: 8,
        superpages: true,
        ..HashedShape::H8K
    };

    /// The inverted table of B10 §5.1: shared by all spaces, with twice as many places as
    /// `memory_bytes` has frames of 4 KiB, so half full at most, and 1, 2 or 16 translations
    /// under one tag.
    pub const fn inverted(memory_bytes: u64, entry_pages: u64) -> HashedShape {
        let entry_pages = if entry_pages == 0 { 1 } else { entry_pages };
        let places = (memory_bytes / PageSize::SIZE_4K.bytes()).saturating_mul(2);
        let buckets = places.div_ceil(entry_pages);
        let bucket_bytes = bucket_bytes(entry_pages);
        let table_bytes = match buckets.saturating_mul(bucket_bytes).checked_next_power_of_two() {
            Some(bytes) => bytes,
            None => 1 << 63,
        };
        HashedShape {
            table_bytes,
            entry_pages,
            superpages: false,
            shared: true,
            move_to_front: false,
            walk_sets_usage: false,
            walker: Walker::Hardware,
        }
    }
}

/// The bytes of a bucket: those of its entry, up to a power of two.
const fn bucket_bytes(entry_pages: u64) -> u64 {
    HEADER_BYTES.saturating_add(entry_pages.saturating_mul(PAGE_BYTES)).next_power_of_two()
}

/// Where things lie in entries, and what tags look like: a checked [`HashedShape`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) table: PageSize,
    pub(super) buckets: u64,
    bucket_shift: u32,
    pub(super) entry_pages: u64,
    /// log2 of the bytes of virtual memory that an entry covers.
    pub(super) cluster: PageSize,
    code_bits: u32,
    id_bits: u32,
    walker: Walker,
}

const BASE: PageSize = PageSize::SIZE_4K;
const VALID: u64 = 1;
const CODE_SHIFT: u32 = 1;
const HEADER_BYTES: u64 = 16;
/// A page's entry, with its pointer into the mapping tree where it has one.
const PAGE_BYTES: u64 = 8;
const ENTRY_PAGES_MAX: u64 = 256;

impl Layout {
    pub(super) fn new(shape: &HashedShape) -> Result<Layout, Geometry> {
        let HashedShape { table_bytes, entry_pages, .. } = *shape;
        Geometry::power_of_two("pages in an entry", entry_pages, 1, ENTRY_PAGES_MAX)?;
        let bucket_bytes = bucket_bytes(entry_pages);
        let table = Geometry::size("bytes of the hash table", table_bytes, bucket_bytes, 1 << 40)?;
        let cluster_pages_shift = entry_pages.trailing_zeros();
        let cluster_shift = BASE.shift() + cluster_pages_shift;
        let cluster = PageSize::from_shift(cluster_shift as u8).unwrap_or(BASE);
        let superpages = shape.superpages && entry_pages > 1;
        let code_bits =
            if superpages { u32::BITS - cluster_pages_shift.leading_zeros() } else { 0 };
        // The smallest superpage leaves the fewest bits below the address in its tag.
        let free_bits = if superpages { BASE.shift() + 1 } else { cluster_shift };
        Ok(Layout {
            table,
            buckets: table_bytes / bucket_bytes,
            bucket_shift: bucket_bytes.trailing_zeros(),
            entry_pages,
            cluster,
            code_bits,
            id_bits: free_bits - CODE_SHIFT - code_bits,
            walker: shape.walker,
        })
    }

    /// The page sizes with entries, ascending.
    pub(super) fn sizes(&self) -> impl Iterator<Item = PageSize> + use<> {
        let last = if self.code_bits > 0 { self.cluster.shift() } else { BASE.shift() };
        (BASE.shift()..=last).filter_map(|shift| PageSize::from_shift(shift as u8))
    }

    /// How many spaces the tags can tell apart.
    pub(super) const fn spaces_max(&self) -> u64 {
        1 << self.id_bits
    }

    /// The bytes of an entry for base pages; hardware wants it inside one line of a cache.
    pub(super) const fn full_bytes(&self) -> u64 {
        match self.walker {
            Walker::Software => HEADER_BYTES + PAGE_BYTES * self.entry_pages,
            Walker::Hardware => bucket_bytes(self.entry_pages),
        }
    }

    /// The bytes of an entry for one superpage.
    pub(super) const fn single_bytes(&self) -> u64 {
        HEADER_BYTES + PAGE_BYTES
    }

    /// How wide the entries of pages are.
    #[inline]
    pub(super) const fn width(&self) -> Width {
        match self.walker {
            Walker::Software => Width::Narrow,
            Walker::Hardware => Width::Wide,
        }
    }

    /// The bytes that a walk reads at the start of an entry, and whether the page's entry is
    /// among them.
    #[inline]
    pub(super) const fn header_read(&self) -> (u8, bool) {
        match self.walker {
            Walker::Software => (8, false),
            Walker::Hardware if self.entry_pages == 1 => (32, true),
            Walker::Hardware => (16, false),
        }
    }

    /// The first entry of the chain for `addr`.
    ///
    /// Folding to twelve bits and less sends neighbors to different buckets, and so regions
    /// that start at round addresses; multiplying by the golden ratio spreads both evenly.
    #[inline]
    pub(super) const fn bucket(&self, base: PhysAddr, addr: VirtAddr, id: u64) -> PhysAddr {
        let mut hash = addr.get() >> self.cluster.shift();
        match self.walker {
            Walker::Software => {
                hash ^= hash >> 24;
                hash ^= hash >> 12;
                hash ^= id.wrapping_mul(0x9e37_79b9) >> 12;
            }
            Walker::Hardware => {
                hash = (hash ^ id << 52).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                hash >>= 20;
            }
        }
        base.wrapping_add((hash & (self.buckets - 1)) << self.bucket_shift)
    }

    /// The first entry of chain number `n`.
    pub(super) const fn nth_bucket(&self, base: PhysAddr, n: u64) -> PhysAddr {
        base.wrapping_add(n << self.bucket_shift)
    }

    /// The tag of an entry that holds the page at `addr` of the size with `code`: 0 for base
    /// pages, else log2 of the base pages in it.
    #[inline]
    pub(super) fn tag(&self, addr: VirtAddr, code: u32, id: u64) -> u64 {
        let low = id << (CODE_SHIFT + self.code_bits) | u64::from(code) << CODE_SHIFT | VALID;
        addr.align_down(self.tagged(code)).get() | low
    }

    /// What an entry with the tag of `code` covers.
    #[inline]
    pub(super) const fn tagged(&self, code: u32) -> PageSize {
        if code == 0 { self.cluster } else { size_of(code) }
    }

    #[inline]
    pub(super) const fn code(&self, tag: u64) -> u32 {
        (tag >> CODE_SHIFT) as u32 & ((1 << self.code_bits) - 1)
    }

    /// Whether `tag` is of an entry of the space numbered `id`.
    #[inline]
    pub(super) const fn is_of(&self, tag: u64, id: u64) -> bool {
        let ids = (1 << self.id_bits) - 1;
        tag & VALID != 0 && tag >> (CODE_SHIFT + self.code_bits) & ids == id
    }

    /// Whether an entry with this tag covers `addr`.
    #[inline]
    pub(super) fn covers(&self, tag: u64, addr: VirtAddr, id: u64) -> bool {
        tag == self.tag(addr, self.code(tag), id)
    }

    /// Where in an entry of `code` at `node` the page entry for `addr` lies.
    #[inline]
    pub(super) const fn pte_at(&self, node: PhysAddr, code: u32, addr: VirtAddr) -> PhysAddr {
        let index = if code == 0 { addr.offset_in(self.cluster) >> BASE.shift() } else { 0 };
        node.wrapping_add(HEADER_BYTES + index * self.width().bytes() as u64)
    }
}

/// The size of the pages in an entry of `code`.
#[inline]
pub(super) const fn size_of(code: u32) -> PageSize {
    match PageSize::from_shift((BASE.shift() + code) as u8) {
        Some(size) => size,
        None => BASE,
    }
}

/// The code of entries for pages of `size`.
#[inline]
pub(super) const fn code_of(size: PageSize) -> u32 {
    size.shift() - BASE.shift()
}

pub(super) const fn is_valid(tag: u64) -> bool {
    tag & VALID != 0
}
