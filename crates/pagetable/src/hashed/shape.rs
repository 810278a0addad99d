use addr::PageSize;

use super::layout::bucket_bytes;

/// Who walks a hashed table, and so what an entry looks like and how it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkedBy {
    /// A refill handler of a 32-bit kernel on a 64-bit machine (E99): four bytes for a page's
    /// entry and four for the kernel's pointer, read one field at a time. The number of the
    /// cluster is folded into the number of a bucket by a few shifts.
    Software,
    /// A walker in the way of the Itanium (B10 §5.1): eight bytes for a page's entry. It reads
    /// tag and chain at once, with one page per entry the page's entry too. The number of the
    /// cluster is multiplied and so spread over all buckets.
    Hardware,
}

/// How many sizes of pages larger than an entry's a table can hold.
pub(super) const LARGER_MAX: usize = 2;

/// What distinguishes one hashed table from another.
///
/// The constants are those of E99 §3.2: 8 KiB and 128 KiB with two pages per entry, and
/// clustered with eight, one table per space, the hit moved to the front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashedShape {
    /// Bytes of the array of buckets, a power of two.
    pub table_bytes: u64,
    /// Base pages in one entry, a power of two up to 256: 2 is the hashed table of E99, more
    /// is a clustered one.
    pub entry_pages: u64,
    /// Whether pages of 2, 4, ... up to `entry_pages` base pages have entries of their own.
    pub superpages: bool,
    /// Pages larger than an entry's, ascending. Each size that is in use has chains of its own
    /// in the same array, by the number of its pages, and costs a walk a further probe.
    pub larger_sizes: [Option<PageSize>; LARGER_MAX],
    /// Whether those pages are entered once for each of their base pages instead: *replicated*.
    /// A walk then finds every page in the chain of its cluster.
    pub replicated: bool,
    /// Whether pages of an entry that are placed in their frames as in the entry share one
    /// frame's number: a partial-subblock entry.
    pub partial_subblocks: bool,
    /// Whether all spaces are in one table, told apart by their number in the tag.
    pub shared: bool,
    /// Whether a walk that hits in a chain moves the entry to its front.
    pub move_to_front: bool,
    /// Whether entries follow each other in the array without padding, so that some cross the lines of a cache.
    /// The array takes as much memory as with padding, up to a power of two.
    pub packed: bool,
    /// Whether walks set usage bits.
    pub walk_sets_usage: bool,
    /// Who walks.
    pub walker: WalkedBy,
}

impl HashedShape {
    /// H8k: 256 buckets, one table per space.
    pub const H8K: HashedShape = HashedShape {
        table_bytes: 8 << 10,
        entry_pages: 2,
        superpages: false,
        larger_sizes: [None; LARGER_MAX],
        replicated: false,
        partial_subblocks: false,
        shared: false,
        move_to_front: true,
        packed: false,
        walk_sets_usage: false,
        walker: WalkedBy::Software,
    };

    /// H128k: 4096 buckets, one table per space.
    pub const H128K: HashedShape = HashedShape { table_bytes: 128 << 10, ..HashedShape::H8K };

    /// C128k: 1024 buckets of eight pages, one table per space, superpages up to 32 KiB.
    pub const C128K: HashedShape = HashedShape {
        table_bytes: 128 << 10,
        entry_pages: 8,
        superpages: true,
        ..HashedShape::H8K
    };

    /// The chains from which Solaris fills a TSB: clusters of eight pages, shared by all spaces,
    /// in so many buckets that a chain has four entries when `memory_bytes` are all mapped (its
    /// `HMENT_HASHAVELEN`), but 128 KiB of them at least.
    pub const fn behind_tsb(memory_bytes: u64) -> HashedShape {
        let clusters = memory_bytes / PageSize::SIZE_4K.bytes() / HashedShape::C128K.entry_pages;
        let bytes = (clusters / 4).saturating_mul(bucket_bytes(HashedShape::C128K.entry_pages));
        let table_bytes = match bytes.checked_next_power_of_two() {
            Some(bytes) if bytes < HashedShape::C128K.table_bytes => HashedShape::C128K.table_bytes,
            Some(bytes) => bytes,
            None => 1 << 63,
        };
        HashedShape { table_bytes, shared: true, ..HashedShape::C128K }
    }

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
            larger_sizes: [None; LARGER_MAX],
            replicated: false,
            partial_subblocks: false,
            shared: true,
            move_to_front: false,
            packed: false,
            walk_sets_usage: false,
            walker: WalkedBy::Hardware,
        }
    }

    /// This shape, with pages of 2 MiB and 1 GiB too.
    pub const fn with_large_pages(self) -> HashedShape {
        let larger_sizes = [Some(PageSize::SIZE_2M), Some(PageSize::SIZE_1G)];
        HashedShape { larger_sizes, ..self }
    }

    /// This shape, with partial-subblock entries.
    pub const fn with_partial_subblocks(self) -> HashedShape {
        HashedShape { partial_subblocks: true, ..self }
    }
}
