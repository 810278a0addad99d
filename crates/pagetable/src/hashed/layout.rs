use alloc::vec::Vec;

use addr::{PageSize, PhysAddr, VirtAddr};

use super::shape::{HashedShape, LARGER_MAX, WalkedBy};
use crate::Geometry;
use crate::pte::Width;

/// The positions of fields in entries, and the layout of tags: a checked [`HashedShape`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) table: PageSize,
    pub(super) buckets: u64,
    /// Bytes from one bucket to the next.
    stride: u64,
    entry_pages: u64,
    /// The contents of the entries of each code; elements from `codes` on are unused.
    held: [Held; CODES_MAX],
    codes: usize,
    code_bits: u32,
    id_bits: u32,
    replicated: bool,
    packed: bool,
    walker: WalkedBy,
}

/// The contents of the entries of one code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// The size of each page. A replicated page is larger than `span`.
    pub(super) page: PageSize,
    /// The size of the aligned range of addresses that an entry covers.
    pub(super) span: PageSize,
    pub(super) form: Form,
    /// Which number of an entry is hashed. 0 means the number of its cluster; n means its page
    /// number in units of the n-th larger page size.
    pub(super) probe: usize,
}

/// The layout of an entry after its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// A page entry for each page of a cluster.
    Full,
    /// One frame for all pages of a cluster, and one byte of flags for each page.
    Partial,
    /// One page entry.
    Single,
}

impl Form {
    pub(super) const ALL: [Form; 3] = [Form::Full, Form::Partial, Form::Single];
}

/// The number of ways to hash an address: by its cluster, and by its page number for each larger
/// size.
pub(super) const PROBES_MAX: usize = 1 + LARGER_MAX;

/// The code of entries with a page entry for each base page.
pub(super) const FULL: usize = 0;

pub(super) const BASE: PageSize = PageSize::SIZE_4K;
const VALID: u64 = 1;
const CODE_SHIFT: u32 = 1;
pub(super) const HEADER_BYTES: u64 = 16;
/// The bytes of a page entry, including the note if entries have notes.
const PAGE_BYTES: u64 = 8;
const NOTE_BYTES: u64 = 4;
const ENTRY_PAGES_MAX: u64 = 256;
/// The largest number of codes: base pages, eight sizes of superpages up to the largest cluster,
/// the larger page sizes, and partial subblocks.
const CODES_MAX: usize = 16;
const PAGE_SHIFT_MAX: u64 = 51;

/// The bytes of an entry that has a page entry for each page of its cluster.
const fn full_bytes(entry_pages: u64) -> u64 {
    HEADER_BYTES.saturating_add(entry_pages.saturating_mul(PAGE_BYTES))
}

/// The bytes of a bucket with padding: the bytes of its entry, rounded up to a power of two.
pub(super) const fn bucket_bytes(entry_pages: u64) -> u64 {
    full_bytes(entry_pages).next_power_of_two()
}

impl Layout {
    pub(super) fn new(shape: &HashedShape) -> Result<Layout, Geometry> {
        let HashedShape { table_bytes, entry_pages, .. } = *shape;
        Geometry::power_of_two("pages in an entry", entry_pages, 1, ENTRY_PAGES_MAX)?;
        let bucket_bytes = bucket_bytes(entry_pages);
        let table = Geometry::size("bytes of the hash table", table_bytes, bucket_bytes, 1 << 40)?;
        let all = held(shape)?;
        let mut held = [all[FULL]; CODES_MAX];
        held[..all.len()].copy_from_slice(&all);
        let code_bits = u32::BITS - (all.len() as u32 - 1).leading_zeros();
        // The entries with the smallest span have the fewest bits in their tag below the address.
        let free_bits = all.iter().map(|held| held.span.shift()).min().unwrap_or(BASE.shift());
        Ok(Layout {
            table,
            buckets: table_bytes / bucket_bytes,
            stride: if shape.packed { full_bytes(entry_pages) } else { bucket_bytes },
            entry_pages,
            held,
            codes: all.len(),
            code_bits,
            id_bits: free_bits - CODE_SHIFT - code_bits,
            replicated: shape.replicated,
            packed: shape.packed,
            walker: shape.walker,
        })
    }

    fn codes(&self) -> &[Held] {
        &self.held[..self.codes]
    }

    /// The supported page sizes, ascending.
    pub(super) fn sizes(&self) -> Vec<PageSize> {
        let pages = self.codes().iter().filter(|held| held.form != Form::Partial);
        pages.map(|held| held.page).collect()
    }

    /// The number of spaces that the tags can distinguish.
    pub(super) const fn spaces_max(&self) -> u64 {
        1 << self.id_bits
    }

    /// The contents of the entries of `code`.
    #[inline]
    pub(super) const fn held(&self, code: usize) -> Held {
        self.held[code]
    }

    /// The code of the entries for pages of `size`. Base pages can also be in entries of the code
    /// [`Layout::partial`].
    pub(super) fn code_of(&self, size: PageSize) -> usize {
        self.codes().iter().position(|held| held.page == size).unwrap_or(FULL)
    }

    /// Whether pages of `size` are replicated.
    #[inline]
    pub(super) fn is_replicated(&self, size: PageSize) -> bool {
        self.replicated && size > self.held[FULL].span
    }

    /// The code of partial-subblock entries, if the shape has them.
    pub(super) fn partial(&self) -> Option<usize> {
        self.codes().iter().position(|held| held.form == Form::Partial)
    }

    /// The size of the range of addresses that are hashed together by `probe`.
    pub(super) fn span(&self, probe: usize) -> PageSize {
        let hashed = self.codes().iter().find(|held| held.probe == probe);
        hashed.map_or(BASE, |held| held.span)
    }

    /// The bytes of an entry outside the array of buckets. If hardware walks the table, an entry is
    /// aligned so that it lies within one cache line, unless entries are packed.
    pub(super) const fn bytes(&self, form: Form) -> u64 {
        match (form, self.walker) {
            (Form::Full, WalkedBy::Hardware) if !self.packed => bucket_bytes(self.entry_pages),
            (Form::Full, _) => full_bytes(self.entry_pages),
            (Form::Partial, _) => HEADER_BYTES + PAGE_BYTES + self.entry_pages.next_multiple_of(8),
            (Form::Single, _) => HEADER_BYTES + PAGE_BYTES,
        }
    }

    /// The width of a page entry.
    #[inline]
    pub(super) const fn width(&self) -> Width {
        match self.walker {
            WalkedBy::Software => Width::Narrow,
            WalkedBy::Hardware => Width::Wide,
        }
    }

    /// The bytes that a walk reads at the start of an entry, and whether they include the page
    /// entry.
    #[inline]
    pub(super) const fn header_read(&self) -> (u8, bool) {
        match self.walker {
            WalkedBy::Software => (8, false),
            WalkedBy::Hardware if self.entry_pages == 1 => (32, true),
            WalkedBy::Hardware => (16, false),
        }
    }

    /// The address of the bucket for `addr` when hashed by `probe`.
    ///
    /// The hash must send adjacent clusters, and regions that start at round addresses, to
    /// different buckets. The hash for software folds the number down to twelve bits and fewer. The
    /// hash for hardware multiplies it by the golden ratio, which spreads the clusters evenly.
    #[inline]
    pub(super) fn bucket(&self, base: PhysAddr, addr: VirtAddr, id: u64, probe: usize) -> PhysAddr {
        let span = if probe == 0 { self.held[FULL].span } else { self.span(probe) };
        let mut hash = addr.get() >> span.shift();
        match self.walker {
            WalkedBy::Software => {
                hash ^= hash >> 24;
                hash ^= hash >> 12;
                hash ^= id.wrapping_mul(0x9e37_79b9) >> 12;
            }
            WalkedBy::Hardware => {
                hash = (hash ^ id << 52).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                hash = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                hash >>= 20;
            }
        }
        self.nth_bucket(base, hash & (self.buckets - 1))
    }

    /// The address of bucket number `n`.
    #[inline]
    pub(super) const fn nth_bucket(&self, base: PhysAddr, n: u64) -> PhysAddr {
        base.wrapping_add(n * self.stride)
    }

    /// The tag of the entry of `code` that covers `addr`.
    #[inline]
    pub(super) const fn tag(&self, addr: VirtAddr, code: usize, id: u64) -> u64 {
        let low = id << (CODE_SHIFT + self.code_bits) | (code as u64) << CODE_SHIFT | VALID;
        addr.align_down(self.held[code].span).get() | low
    }

    #[inline]
    pub(super) const fn code(&self, tag: u64) -> usize {
        (tag >> CODE_SHIFT) as usize & ((1 << self.code_bits) - 1)
    }

    /// Whether `tag` belongs to an entry in use of the space numbered `id`.
    #[inline]
    pub(super) const fn is_of(&self, tag: u64, id: u64) -> bool {
        let ids = (1 << self.id_bits) - 1;
        is_valid(tag) && tag >> (CODE_SHIFT + self.code_bits) & ids == id
    }

    /// Whether an entry with this tag covers `addr`.
    #[inline]
    pub(super) const fn covers(&self, tag: u64, addr: VirtAddr, id: u64) -> bool {
        tag == self.tag(addr, self.code(tag), id)
    }

    /// The index, in its cluster, of the base page that holds `addr`.
    #[inline]
    pub(super) const fn index(&self, addr: VirtAddr) -> u64 {
        addr.offset_in(self.held[FULL].span) >> BASE.shift()
    }

    /// The address of the page entry for `addr` in the entry of `code` at `node`; in a partial
    /// subblock, the address of the page's flags.
    #[inline]
    pub(super) const fn pte_at(&self, node: PhysAddr, code: usize, addr: VirtAddr) -> PhysAddr {
        let first = node.wrapping_add(HEADER_BYTES);
        match self.held[code].form {
            Form::Full => first.wrapping_add(self.index(addr) * self.width().bytes() as u64),
            Form::Partial => first.wrapping_add(PAGE_BYTES + self.index(addr)),
            Form::Single => first,
        }
    }

    /// Whether pages have notes.
    pub(super) const fn has_notes(&self) -> bool {
        match self.walker {
            WalkedBy::Software => true,
            WalkedBy::Hardware => false,
        }
    }

    /// The address of the note that belongs to the page entry at `at` in an entry of `code`.
    /// Entries that hardware reads have no notes. A partial subblock has none either, because its
    /// pages would have to share a note.
    #[inline]
    pub(super) const fn note_at(&self, at: PhysAddr, code: usize) -> Option<PhysAddr> {
        match (self.walker, self.held[code].form) {
            (WalkedBy::Hardware, _) | (WalkedBy::Software, Form::Partial) => None,
            (WalkedBy::Software, Form::Full) => {
                Some(at.wrapping_add(self.entry_pages * NOTE_BYTES))
            }
            (WalkedBy::Software, Form::Single) => Some(at.wrapping_add(NOTE_BYTES)),
        }
    }
}

/// The contents of the entries of each code for `shape`; code 0 is the code of base pages.
fn held(shape: &HashedShape) -> Result<Vec<Held>, Geometry> {
    let cluster_shift = BASE.shift() + shape.entry_pages.trailing_zeros();
    let size = |shift: u32| PageSize::from_shift(shift as u8).unwrap_or(BASE);
    let cluster = size(cluster_shift);
    let mut held = Vec::from([Held { page: BASE, span: cluster, form: Form::Full, probe: 0 }]);
    if shape.superpages {
        held.extend((BASE.shift() + 1..=cluster_shift).map(size).map(|page| Held {
            page,
            span: page,
            form: Form::Single,
            probe: 0,
        }));
    }
    let mut least = u64::from(cluster_shift) + 1;
    for (n, page) in shape.larger_sizes.into_iter().flatten().enumerate() {
        let shift = u64::from(page.shift());
        Geometry::in_range("bits in a larger page's offset", shift, least, PAGE_SHIFT_MAX)?;
        held.push(if shape.replicated {
            Held { page, span: cluster, form: Form::Full, probe: 0 }
        } else {
            Held { page, span: page, form: Form::Single, probe: 1 + n }
        });
        least = shift + 1;
    }
    if shape.partial_subblocks {
        held.push(Held { page: BASE, span: cluster, form: Form::Partial, probe: 0 });
    }
    Ok(held)
}

pub(super) const fn is_valid(tag: u64) -> bool {
    tag & VALID != 0
}
