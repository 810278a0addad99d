use addr::{PageSize, PhysAddr, VirtAddr};

use crate::Geometry;
use crate::pte::Width;

/// The parameters of a cache of translations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheShape {
    /// Bytes of the array of entries, 16 each; a power of two.
    pub table_bytes: u64,
    /// The number of entries in a bucket: a power of two up to 16. With 1, the cache is
    /// direct-mapped.
    pub bucket_entries: u64,
    /// Whether a page may also be in a second bucket.
    pub second_bucket: bool,
    /// Whether an entry holds a pair of base pages, with four bytes for each; a refill handler then
    /// reads one field at a time. Otherwise an entry holds one page in eight bytes, which are read
    /// together.
    pub pairs: bool,
    /// Whether walks of the table behind the cache set usage bits that must not be missed. If so,
    /// the first store to a page always walks that table, and a miss inserts only the page of a
    /// pair that was accessed.
    pub keeps_usage: bool,
}

impl CacheShape {
    /// The software TLB S8k of E99 §3.2, with 512 pairs.
    pub const S8K: CacheShape = CacheShape {
        table_bytes: 8 << 10,
        bucket_entries: 1,
        second_bucket: false,
        pairs: true,
        keeps_usage: false,
    };

    /// The software TLB S128k of E99 §3.2, with 8192 pairs.
    pub const S128K: CacheShape = CacheShape { table_bytes: 128 << 10, ..CacheShape::S8K };

    /// The largest translation storage buffer of SPARC (B10 §5.2), with 65536 pages.
    pub const TSB_1M: CacheShape =
        CacheShape { table_bytes: 1 << 20, pairs: false, ..CacheShape::S8K };

    /// The hashed table of the PowerPC (B10 §5.2): each page has two buckets of eight entries.
    /// There are half as many buckets as `memory_bytes` has frames of 4 KiB.
    pub const fn powerpc(memory_bytes: u64) -> CacheShape {
        let places = (memory_bytes / PageSize::SIZE_4K.bytes()).saturating_mul(4);
        let table_bytes = match places.saturating_mul(ENTRY_BYTES).checked_next_power_of_two() {
            Some(bytes) => bytes,
            None => 1 << 63,
        };
        CacheShape {
            table_bytes,
            bucket_entries: 8,
            second_bucket: true,
            pairs: false,
            keeps_usage: false,
        }
    }

    /// This shape, in front of a table whose walks set usage bits.
    pub const fn keeping_usage(self) -> CacheShape {
        CacheShape { keeps_usage: true, ..self }
    }
}

/// The positions of entries and the layout of their tags: a checked [`CacheShape`] for given page
/// sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) table: PageSize,
    pub(super) entries: u64,
    /// The smallest memory that one tag covers: a base page or a pair.
    pub(super) unit: PageSize,
    /// The size of each page of a pair.
    page_of_pair: Option<PageSize>,
    pub(super) bucket_entries: u64,
    second_bucket: bool,
    buckets: u64,
    code_bits: u32,
    id_bits: u32,
}

pub(super) const ENTRY_BYTES: u64 = 16;
const PTE_AT: u64 = 8;
const BUCKET_ENTRIES_MAX: u64 = 16;
const VALID: u64 = 1;
const CODE_SHIFT: u32 = 1;

impl Layout {
    pub(super) fn new(shape: &CacheShape, sizes: &[PageSize]) -> Result<Layout, Geometry> {
        let CacheShape { table_bytes, bucket_entries, second_bucket, pairs, .. } = *shape;
        Geometry::power_of_two("entries in a bucket", bucket_entries, 1, BUCKET_ENTRIES_MAX)?;
        let min = (bucket_entries * ENTRY_BYTES) << u32::from(second_bucket);
        let table = Geometry::size("bytes of the cache", table_bytes, min, 1 << 40)?;
        let unit_shift = sizes[0].shift() + u32::from(pairs);
        let code_bits = u32::BITS - (sizes.len() as u32 - 1).leading_zeros();
        let tag_bits = u64::from(unit_shift);
        let needed = u64::from(CODE_SHIFT + code_bits);
        Geometry::in_range("page sizes for so small a base page", needed, 1, tag_bits)?;
        Ok(Layout {
            table,
            entries: table_bytes / ENTRY_BYTES,
            unit: PageSize::from_shift(unit_shift as u8).unwrap_or(sizes[0]),
            page_of_pair: pairs.then_some(sizes[0]),
            bucket_entries,
            second_bucket,
            buckets: table_bytes / ENTRY_BYTES / bucket_entries,
            code_bits,
            id_bits: unit_shift - CODE_SHIFT - code_bits,
        })
    }

    /// The number of spaces that the tags can distinguish.
    pub(super) const fn spaces_max(&self) -> u64 {
        1 << self.id_bits
    }

    /// The addresses of the buckets that may have the page at `addr`, in the array at `base`. The
    /// index of the second bucket is the bitwise complement of the index of the first.
    #[inline]
    pub(super) fn buckets(
        &self,
        base: PhysAddr,
        addr: VirtAddr,
        id: u64,
    ) -> impl Iterator<Item = PhysAddr> + use<> {
        let mut hash = addr.get() >> self.unit.shift() ^ id.wrapping_mul(0x9e37_79b9) >> 12;
        if self.second_bucket {
            hash ^= hash >> 16 ^ hash >> 32;
        }
        let (mask, bytes) = (self.buckets - 1, self.bucket_entries * ENTRY_BYTES);
        let nth = move |n: u64| base.wrapping_add((n & mask) * bytes);
        let second = self.second_bucket.then(|| nth(!hash));
        core::iter::once(nth(hash)).chain(second)
    }

    /// The addresses of a bucket's entries.
    #[inline]
    pub(super) fn places(&self, bucket: PhysAddr) -> impl Iterator<Item = PhysAddr> + use<> {
        (0..self.bucket_entries).map(move |n| bucket.wrapping_add(n * ENTRY_BYTES))
    }

    /// The entry of a full bucket that is replaced by the page at `addr`.
    pub(super) const fn victim(&self, bucket: PhysAddr, addr: VirtAddr) -> PhysAddr {
        let mixed = (addr.get() >> self.unit.shift()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        bucket.wrapping_add((mixed & (self.bucket_entries - 1)) * ENTRY_BYTES)
    }

    /// The tag of the entry for the page that holds `addr`, whose size has the index `code`.
    #[inline]
    pub(super) const fn tag(&self, addr: VirtAddr, code: u64, id: u64) -> u64 {
        let low = id << (CODE_SHIFT + self.code_bits) | code << CODE_SHIFT | VALID;
        addr.align_down(self.unit).get() | low
    }

    /// The index of the page size in a tag.
    #[inline]
    pub(super) const fn code(&self, tag: u64) -> u64 {
        tag >> CODE_SHIFT & ((1 << self.code_bits) - 1)
    }

    /// The size of the pages of an entry with this tag, if they are a pair: only base pages are paired.
    pub(super) fn page_of_pair(&self, tag: u64) -> Option<PageSize> {
        self.page_of_pair.filter(|_| self.code(tag) == 0)
    }

    /// Whether an entry with this tag may hold the page at `addr`.
    #[inline]
    pub(super) const fn matches(&self, tag: u64, addr: VirtAddr, id: u64) -> bool {
        tag == self.tag(addr, self.code(tag), id)
    }

    /// The number that stands for the space in a tag, if the entry is in use.
    pub(super) fn id(&self, tag: u64) -> Option<u64> {
        let ids = (1 << self.id_bits) - 1;
        (tag & VALID != 0).then_some(tag >> (CODE_SHIFT + self.code_bits) & ids)
    }
}

/// The address, in the entry at `place`, of the page entry for `addr`, if the entry is for pages of
/// `size`.
#[inline]
pub(super) const fn pte_at(
    place: PhysAddr,
    width: Width,
    size: PageSize,
    unit: PageSize,
    addr: VirtAddr,
) -> PhysAddr {
    let index = match width {
        Width::Narrow if size.shift() < unit.shift() => addr.offset_in(unit) >> size.shift(),
        _ => 0,
    };
    place.wrapping_add(PTE_AT + index * 4)
}

/// The address of the page entries in the entry at `place`.
pub(super) const fn ptes_of(place: PhysAddr) -> PhysAddr {
    place.wrapping_add(PTE_AT)
}
