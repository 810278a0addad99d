use addr::PageSize;

use super::layout::bucket_bytes;

/// The walker of a hashed table. It determines the layout of entries and how they are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkedBy {
    /// A refill handler of a 32-bit kernel on a 64-bit machine (E99). A page entry has four bytes,
    /// and the kernel's pointer has four; the handler reads one field at a time. It hashes the
    /// cluster number by a few shifts.
    Software,
    /// A hardware walker like the Itanium's (B10 §5.1). A page entry has eight bytes. The walker
    /// reads tag and link together and, with one page per entry, the page entry too. It hashes the
    /// cluster number by multiplication, which spreads clusters over all buckets.
    Hardware,
}

/// The largest number of page sizes, larger than an entry, that a table can have.
pub(super) const LARGER_MAX: usize = 2;

/// The parameters of a hashed table.
///
/// The constants are the tables of E99 §3.2: tables of 8 KiB and 128 KiB with two pages per entry,
/// and a clustered table with eight pages per entry. Each of these shapes has one table per space,
/// and a walk moves the entry that it hits to the front of its chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashedShape {
    /// Bytes of the array of buckets, a power of two.
    pub table_bytes: u64,
    /// Base pages per entry, a power of two up to 256. 2 is the hashed table of E99; with more
    /// pages the table is a clustered one.
    pub entry_pages: u64,
    /// Whether pages of 2, 4, ... up to `entry_pages` base pages have entries of their own.
    pub superpages: bool,
    /// Page sizes larger than an entry, ascending. Each size in use has chains of its own in the
    /// same array, hashed by its page numbers, and costs a walk one more probe.
    pub larger_sizes: [Option<PageSize>; LARGER_MAX],
    /// Whether pages of `larger_sizes` are *replicated* instead: a replicated page is inserted once
    /// for each of its base pages. A walk then finds every page in the chain of its cluster.
    pub replicated: bool,
    /// Whether there are partial-subblock entries. In such an entry, pages share one frame number;
    /// this is possible if each page has the same position in an aligned block of frames as in the
    /// entry.
    pub partial_subblocks: bool,
    /// Whether all spaces share one table, with the space's number in the tag.
    pub shared: bool,
    /// Whether a walk moves the entry that it hits to the front of its chain.
    pub move_to_front: bool,
    /// Whether entries follow each other in the array without padding, so that some entries cross a
    /// cache-line boundary. The array's size is rounded up to a power of two, as without packing.
    pub packed: bool,
    /// Whether walks set usage bits.
    pub walk_sets_usage: bool,
    /// Whether software or hardware walks the table.
    pub walker: WalkedBy,
}

impl HashedShape {
    /// The table H8k, with 256 buckets and one table per space.
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

    /// The table H128k, with 4096 buckets and one table per space.
    pub const H128K: HashedShape = HashedShape { table_bytes: 128 << 10, ..HashedShape::H8K };

    /// The clustered table C128k, with 1024 buckets of eight pages, one table per space, and
    /// superpages up to 32 KiB.
    pub const C128K: HashedShape = HashedShape {
        table_bytes: 128 << 10,
        entry_pages: 8,
        superpages: true,
        ..HashedShape::H8K
    };

    /// The chains from which Solaris fills a TSB: clusters of eight pages, shared by all spaces.
    /// The number of buckets is such that chains have four entries when all of `memory_bytes` is
    /// mapped (Solaris's `HMENT_HASHAVELEN`); the array has at least 128 KiB.
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

    /// The inverted table of B10 §5.1, shared by all spaces, with 1, 2 or 16 pages per tag
    /// (`entry_pages`). It has room for twice as many pages as `memory_bytes` has frames of 4 KiB,
    /// so the table is at most half full.
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

    /// This shape, with pages of 2 MiB and 1 GiB as well.
    pub const fn with_large_pages(self) -> HashedShape {
        let larger_sizes = [Some(PageSize::SIZE_2M), Some(PageSize::SIZE_1G)];
        HashedShape { larger_sizes, ..self }
    }

    /// This shape, with partial-subblock entries.
    pub const fn with_partial_subblocks(self) -> HashedShape {
        HashedShape { partial_subblocks: true, ..self }
    }
}
