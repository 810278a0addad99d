use alloc::vec::Vec;
use core::{
    iter::Sum,
    ops::{AddAssign, SubAssign},
};

use addr::{Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::{Error, Fault, Flush, Frames, Memory, Node, Reference, Translation, Unfit};

/// An address space in a page table: the value for a processor's root register (CR3, satp, TTBR).
///
/// A `Space` value does not prove that the space still exists. Operations of the OS check that the
/// space exists; a walk does not, as in hardware.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Space {
    id: u32,
    root: PhysAddr,
}

impl Space {
    /// The space numbered `id` whose table starts at `root`.
    #[inline]
    pub const fn new(id: u32, root: PhysAddr) -> Space {
        Space { id, root }
    }

    /// The number of the space: unique among the spaces of one table, and small. If spaces share a
    /// table, its entries are tagged with this number.
    #[inline]
    pub const fn id(self) -> u32 {
        self.id
    }

    /// The address of its root table, or of the table that it shares with other spaces.
    #[inline]
    pub const fn root(self) -> PhysAddr {
        self.root
    }
}

/// Whether a page was accessed and stored to since its usage bits were last cleared, and the OS's
/// own mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// The accessed bit: a walk has found the page.
    pub referenced: bool,
    /// The dirty bit: a walk for a store has found the page.
    pub dirty: bool,
    /// The operating system has marked the page, in a bit that hardware ignores for translations.
    /// Always false if the format has no such bit.
    pub marked: bool,
}

/// A mapped page as the OS sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The page, its frame and its rights. The rights may be [`Rights::NONE`].
    pub translation: Translation,
    /// The page's usage bits.
    pub usage: Usage,
    /// The OS's note beside the entry ([`PageTable::map_noted`]), or 0. Operations that change a
    /// page but leave it mapped do not read the note; they report 0.
    pub note: u32,
}

/// The physical memory that a page table uses, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// Bytes of nodes, buckets and tables in use.
    pub table_bytes: u64,
    /// Bytes of the frames allocated for them, including unused parts.
    pub frame_bytes: u64,
}

impl AddAssign for Footprint {
    fn add_assign(&mut self, other: Footprint) {
        let Footprint { table_bytes, frame_bytes } = other;
        self.table_bytes += table_bytes;
        self.frame_bytes += frame_bytes;
    }
}

impl Sum for Footprint {
    fn sum<I: Iterator<Item = Footprint>>(each: I) -> Footprint {
        each.fold(Footprint::default(), |mut sum, footprint| {
            sum += footprint;
            sum
        })
    }
}

impl SubAssign for Footprint {
    fn sub_assign(&mut self, other: Footprint) {
        let Footprint { table_bytes, frame_bytes } = other;
        self.table_bytes -= table_bytes;
        self.frame_bytes -= frame_bytes;
    }
}

/// A request to show an entry of one space's root in another space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loan {
    /// The space whose root has the original entry.
    pub from: Space,
    /// An address that the entry maps in that space.
    pub addr: VirtAddr,
    /// The space that gets a copy of the entry.
    pub to: Space,
    /// The address at which `addr` is visible in the space `to`; it has the same offset in the
    /// copied entry as `addr` has in the original.
    pub at: VirtAddr,
}

/// The result of [`PageTable::lend`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lent {
    /// The entry is copied now.
    Copied {
        /// Whether the entry maps a page. If so, walks through the copy set the usage bits of the
        /// copy, not those of the original.
        is_page: bool,
    },
    /// The entry had been copied before.
    There,
    /// The lender has no entry at the address.
    Absent,
}

/// A page table of any organisation, with all of its spaces.
///
/// Operations on a range skip holes; their cost depends on how much is mapped, and not on the
/// range's length. An operation that fails leaves table and memory as they were. `each` is called
/// for every page that an operation changes, with the state of the page before the change. The
/// calls are by ascending address unless documented otherwise.
pub trait PageTable {
    /// The supported page sizes, ascending; the first is the base page.
    fn page_sizes(&self) -> &[PageSize];

    /// The smallest set of rights that contains `rights` and that the entries can express. A page
    /// that is mapped with `rights` gets this set.
    fn granted(&self, rights: Rights) -> Rights {
        rights
    }

    /// Whether processors may walk the table while an operation changes it. If so, each walk finds a page
    /// either as it was before the operation or as it is after it, and no usage bit that a walk sets is lost.
    ///
    /// A radix tree returns true: a change of a page is one exchange of one word, and a new table is filled
    /// before it is linked. If this is `false`, no processor may walk the table during an operation. Rust's
    /// borrows already keep a caller from changing a table while another walks it through `&self`,
    /// so this function matters only if hardware walks the table.
    fn walks_beside_changes(&self) -> bool {
        false
    }

    /// A new, empty space.
    fn create(
        &mut self,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Space, Error>;

    /// Ends a space. Frames that are still mapped in it remain with their owner; the frames of the
    /// space's tables are in the token, to be freed after the flush.
    ///
    /// If the heap has no memory left for a list of the tables, the method may return
    /// [`Error::NoMemory`] without having changed anything. A space without pages can always be
    /// destroyed.
    fn destroy(&mut self, space: Space, memory: &mut impl Memory) -> Result<Flush, Error>;

    /// Maps `count` adjacent pages to adjacent frames, starting with `first`; all have the size and
    /// the rights of `first`. None of the addresses may be mapped.
    ///
    /// No TLB holds any of these pages, so the token names no page. In a format whose nodes move
    /// when a page is added, the token names the tables that moved.
    ///
    /// The caller must deal with processors that cache invalid entries or whose walkers do not see the stores
    /// yet. Before the first access AArch64 needs `DSB` and `ISB`. RISC-V needs `SFENCE.VMA`, or a fault
    /// handler that retries the access if the page is mapped. No operation here executes a barrier.
    #[inline(always)]
    fn map(
        &mut self,
        space: Space,
        first: Translation,
        count: u64,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Flush, Error> {
        self.map_noted(space, (first, count), &[], memory, frames)
    }

    /// Like [`PageTable::map`], but also stores a note for each page whose entry has room for a
    /// note. If `notes` is empty, all notes are 0.
    fn map_noted(
        &mut self,
        space: Space,
        pages: (Translation, u64),
        notes: &[u32],
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Flush, Error>;

    /// Whether page entries have a note beside them: 32 bits for the operating system, as E99 reserves in
    /// each leaf for a pointer into the mapping tree (section 3.2).
    ///
    /// In a table with notes, single pages may have no room for a note; the note of a page without
    /// room is always 0.
    fn has_notes(&self) -> bool {
        false
    }

    /// Changes the note of the page that holds `addr`, if the page's entry has room for a note.
    fn set_note(
        &mut self,
        _space: Space,
        _addr: VirtAddr,
        _note: u32,
        _memory: &mut impl Memory,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Unmaps every page in `range`, whose ends are base-page boundaries, and removes the tables
    /// that become empty. `each` gets the unmapped pages.
    ///
    /// If the heap has no memory left for a list, the method may return [`Error::NoMemory`] without
    /// having changed anything. The caller can then unmap the pages one by one.
    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error>;

    /// Sets the rights of every page in `range`. The token names the pages that lost rights; `each`
    /// gets the pages whose rights change.
    fn protect(
        &mut self,
        space: Space,
        range: VirtRange,
        rights: Rights,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error>;

    /// Reads and changes the rights of `page` in one search, if it is mapped with this size: calls `rights`
    /// with its mapping and sets the rights that it returns (`None` changes nothing). The mapping's note is
    /// not filled in. The token names the page if it lost rights.
    fn protect_page(
        &mut self,
        space: Space,
        page: Page,
        rights: &mut impl FnMut(&Mapping) -> Option<Rights>,
        memory: &mut impl Memory,
    ) -> Result<Flush, Error>;

    /// Clears, for every page in `range`, the usage bits that are true in `bits`. `each` gets the pages that
    /// had one of these bits set.
    ///
    /// The token names the pages that `each` gets, except if `bits` is only [`Usage::marked`]: hardware never
    /// reads a mark, so no TLB needs a flush.
    fn clear_usage(
        &mut self,
        space: Space,
        range: VirtRange,
        bits: Usage,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error>;

    /// Replaces the mappings in `range` by pages of the size `to`, with the same frames, rights, attributes
    /// and usage bits. Returns the new pages. The returned pages do not have the usage bits that
    /// hardware sets in the old entries during the operation.
    ///
    /// Both ends of `range` must lie between mapped pages: to give a part of a page another size, split the
    /// whole page. If `to` is larger than the mapped pages, each new page must be completely mapped by
    /// adjacent and aligned frames with equal rights and attributes. A refused request changes nothing.
    ///
    /// `forget` is called once, after the entries have been exchanged, with a token that names the
    /// replaced pages. `forget` must make every processor flush these pages, and return when all
    /// processors have flushed them. It is not called if nothing has to be flushed. After `forget`
    /// has returned, `resize` transfers usage bits that hardware has set in the old entries to the
    /// new pages, writes entries that had to be invalidated, and frees the frames of removed
    /// tables.
    ///
    /// A walk finds a page at every moment, unless the format says that hardware needs break-before-make
    /// (AArch64 without FEAT_BBM at level 2). For such hardware, walks find no page while `forget` runs, and
    /// a page-fault handler must wait until `resize` has returned.
    ///
    /// ```
    /// use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
    /// use pagetable::{Flush, PageTable, Scope, SparseMemory, Translation, X86_64};
    /// use physmem::Physmem;
    ///
    /// let mut memory = SparseMemory::new(1 << 30);
    /// let mut frames = Physmem::buddy(PhysAddr::new(0), 64 << 20, PageSize::SIZE_4K)?;
    /// let mut table = X86_64::<4>::new();
    /// let space = table.create(&mut memory, &mut frames)?;
    /// let page = VirtAddr::new(0x4000_0000).page(PageSize::SIZE_2M);
    /// let large = Translation::new(page, PhysAddr::new(0x2000_0000), Rights::ALL);
    /// table.map(space, large, 1, &mut memory, &mut frames)?.done(&mut frames);
    /// table.walk(space, page.start(), Kind::Store, &mut memory, &mut |_| {})?;
    ///
    /// let range = VirtRange::of_page(page);
    /// let forget = &mut |flush: &Flush, _: &mut SparseMemory| {
    ///     // Here every processor flushes what `flush` names, while it continues to use the page.
    ///     assert_eq!(flush.scope(), Scope::Pages { range, pages: 1 });
    /// };
    /// let small = table.resize(space, range, PageSize::SIZE_4K, &mut memory, &mut frames, forget)?;
    /// assert_eq!(small.len(), 512);
    ///
    /// let part = table.query(space, VirtAddr::new(0x4000_5000), &memory).expect("it is mapped");
    /// assert_eq!(part.translation.frame, PhysAddr::new(0x2000_5000));
    /// // It is unknown which part was written to: all are dirty.
    /// assert!(part.usage.dirty);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn resize<M: Memory>(
        &mut self,
        space: Space,
        range: VirtRange,
        to: PageSize,
        memory: &mut M,
        frames: &mut impl Frames,
        forget: &mut impl FnMut(&Flush, &mut M),
    ) -> Result<Vec<Mapping>, Error>;

    /// Sets usage bits of the page that holds `addr`: for an OS whose hardware does not set them.
    fn set_usage(
        &mut self,
        space: Space,
        addr: VirtAddr,
        bits: Usage,
        memory: &mut impl Memory,
    ) -> Result<(), Error>;

    /// Copies an entry of one space's root into the area of another space's root, so that walks there
    /// go through the lender's tables (U02 section 2.2). Refused if the table was created without
    /// an area.
    ///
    /// Later changes of the entry do not change the copy: the copy must be [taken
    /// back](PageTable::take_back) before the lender's entry changes and before the table that it
    /// leads to is freed.
    fn lend(&mut self, loan: Loan, _memory: &mut impl Memory) -> Result<Lent, Error> {
        Err(Unfit::Virtual(loan.at).into())
    }

    /// Empties the copied entries that lie in `range` of the area of the space `of`, which borrowed
    /// them. `each` gets the first address of each copy and, if the entry was a page's, the usage
    /// bits that walkers have set in the copy. There is no token: the caller must flush `range`
    /// from TLBs, including global pages, and from MMU caches.
    fn take_back(
        &mut self,
        _of: Space,
        _range: VirtRange,
        _memory: &mut impl Memory,
        _each: &mut impl FnMut(VirtAddr, Option<Usage>),
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Walks the table for `addr` and an access of `kind`, as hardware or a refill handler would.
    /// `each` gets the walk's memory references in order.
    ///
    /// Fetch, load and store are checked against the rights of the page. The right to access the
    /// page from user mode is not checked: only the caller knows the mode.
    fn walk(
        &self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault>;

    /// The address of the level-1 entry that a walk of `addr` would read, to prefetch it before the walk.
    /// `None` if the walk ends at a higher level, and in formats that do not support this.
    fn last_entry(&self, _space: Space, _addr: VirtAddr, _: &impl Memory) -> Option<PhysAddr> {
        None
    }

    /// The page that holds `addr`. Its usage bits are not changed.
    fn query(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Mapping>;

    /// Calls `each` for every page that overlaps `range`, by ascending address.
    fn visit(
        &self,
        space: Space,
        range: VirtRange,
        memory: &impl Memory,
        each: &mut impl FnMut(Mapping),
    );

    /// The memory that all spaces together use.
    fn footprint(&self) -> Footprint;

    /// The memory that only `space` uses. It is 0 if the space does not exist or shares all of its
    /// tables.
    fn footprint_of(&self, space: Space) -> Footprint;
}

/// The properties of a tree's format that an MMU cache needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeShape {
    /// See [`Tree::levels`].
    pub levels: u8,
    /// Bits of a virtual address that are translated: those of all indices and of the offset in a
    /// base page.
    pub address_bits: u8,
    /// log2 of the bytes of an entry.
    pub entry_shift: u8,
    /// log2 of the alignment, in bytes, of tables below the root.
    pub table_shift: u8,
    /// For each level from 1 to the one below the root: log2 of the bytes of virtual memory that
    /// one table maps. `None` if tables of one level map different amounts of memory.
    pub spans: Option<Vec<u8>>,
}

/// A page table whose walks descend from a root. A walk can also start at any table on the path.
pub trait Tree: PageTable {
    /// The properties of the format that an MMU cache needs.
    fn shape(&self) -> TreeShape;

    /// The number of tables on the longest path from the root to a page, including the root. The
    /// root has this level; entries for base pages have level 1.
    fn levels(&self) -> u8;

    /// The node at which a walk in `space` starts if no MMU cache has a lower node on its path.
    fn root(&self, space: Space) -> Node;

    /// Like [`PageTable::walk`], but starts at the table `start`. An earlier walk, of an address
    /// that agrees with `addr` in the bits from `start.shift` up, must have passed this table. No
    /// later token may have named the table in [`Flush::tables`].
    fn walk_from(
        &self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault>;
}
