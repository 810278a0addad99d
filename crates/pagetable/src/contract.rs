use alloc::vec::Vec;
use core::{
    iter::Sum,
    ops::{AddAssign, SubAssign},
};

use addr::{Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::{Error, Fault, Flush, Frames, Memory, Node, Reference, Translation, Unfit};

/// An address space in a page table: what the processor's base register would hold.
///
/// Holding one does not prove that the space still exists; operations of the OS check that, and
/// a walk, as in hardware, does not.
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

    /// Its number: unique among the spaces that a table holds, and small. Shared tables tag
    /// their entries with it.
    #[inline]
    pub const fn id(self) -> u32 {
        self.id
    }

    /// The first byte of its root table, or of the table that it shares with others.
    #[inline]
    pub const fn root(self) -> PhysAddr {
        self.root
    }
}

/// What was done to a page since its bits were last cleared, and what the operating system notes there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// A walk has found it: the accessed bit.
    pub referenced: bool,
    /// A walk for a store has found it: the dirty bit.
    pub dirty: bool,
    /// The operating system has marked it, in a bit that hardware for translations ignores. It
    /// stays false where a format has no such bit.
    pub marked: bool,
}

/// A mapped page as the OS sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// The page, its frame and its rights; they may be [`Rights::NONE`].
    pub translation: Translation,
    /// Its bits.
    pub usage: Usage,
    /// What the operating system has noted beside the entry ([`PageTable::map_noted`]), or 0. Operations
    /// that change a page and leave it there do not look, and give 0.
    pub note: u32,
}

/// What a table takes of physical memory, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// In nodes, buckets and tables that are in use.
    pub table_bytes: u64,
    /// In frames taken for them, used or not.
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

/// An entry of one space's root, for another space to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loan {
    /// Whose entry it is.
    pub from: Space,
    /// An address that it covers there.
    pub addr: VirtAddr,
    /// Who is to see it.
    pub to: Space,
    /// Where that address is seen: as far into the copied entry as `addr` is into its own.
    pub at: VirtAddr,
}

/// What came of a [`Loan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lent {
    /// The entry is copied now.
    Copied {
        /// Whether it is that of a page: walks there set bits in the copy.
        is_page: bool,
    },
    /// There was a copy already.
    There,
    /// The lender has no entry there.
    Absent,
}

/// A page table of any organisation, with all of its spaces.
///
/// Range operations take pages as they come: they skip holes, and cost what is mapped rather
/// than what the range could hold. An error leaves table and memory as they were. `each` is
/// told of every page that an operation changes, in order unless said otherwise, as it was
/// before.
pub trait PageTable {
    /// The page sizes that it can hold, ascending; the first is the base page.
    fn page_sizes(&self) -> &[PageSize];

    /// The least rights with all of `rights` that its entries can express. A page that is mapped with
    /// `rights` has these.
    fn granted(&self, rights: Rights) -> Rights {
        rights
    }

    /// Whether processors may walk the table while an operation changes it: each walk finds a page as it was before
    /// the operation, or as it is after it, and no usage bit that a walk sets is lost.
    ///
    /// A radix tree says yes: a change of a page is one exchange of one word, and a new table is filled before it is
    /// linked. Wherever this is `false`, an operation needs processors that do not walk meanwhile. As no caller can
    /// change a table through `&mut self` while another one walks it through `&self`, this matters to who lets hardware
    /// walk it.
    fn walks_beside_changes(&self) -> bool {
        false
    }

    /// A new, empty space.
    fn create(
        &mut self,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Space, Error>;

    /// Ends a space. Frames that are still mapped in it stay their owner's; the table's own
    /// ride in the token.
    fn destroy(&mut self, space: Space, memory: &mut impl Memory) -> Result<Flush, Error>;

    /// Maps `count` pages to adjacent frames: the first as `first` says, each next one a page
    /// and a frame further on, with the same size and rights. Nothing may be mapped there.
    ///
    /// No TLB holds any of it, so the token names no page. It names tables in a format whose
    /// nodes move when a page is added.
    ///
    /// A processor that keeps what it has not found, or whose walker does not see the stores yet, is the caller's:
    /// before the first access AArch64 wants `DSB` and `ISB`, and RISC-V `SFENCE.VMA`, or a handler that repeats an access
    /// whose fault finds the page there. No operation here executes a barrier.
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

    /// [`PageTable::map`] with a note for each page, which is kept where there is room for it; without any,
    /// all are 0.
    fn map_noted(
        &mut self,
        space: Space,
        pages: (Translation, u64),
        notes: &[u32],
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Flush, Error>;

    /// Whether entries of pages have a note beside them: 32 bits that are the operating system's own, as E99
    /// reserves in each leaf for a pointer into the mapping tree (section 3.2).
    ///
    /// A page may have none where others do: its note stays 0.
    fn has_notes(&self) -> bool {
        false
    }

    /// Changes the note of the page that holds `addr`, if it has room for one.
    fn set_note(
        &mut self,
        _space: Space,
        _addr: VirtAddr,
        _note: u32,
        _memory: &mut impl Memory,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Removes every page in `range`, whose ends are base-page boundaries, and the tables that
    /// become empty. `each` gets the pages removed.
    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error>;

    /// Gives every page in `range` these rights; the token names those that lost some.
    /// `each` gets the pages whose rights change.
    fn protect(
        &mut self,
        space: Space,
        range: VirtRange,
        rights: Rights,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error>;

    /// Gives `page`, if it is mapped as just that, the rights that `rights` makes of what it finds, in one
    /// search: `None` leaves it as it is. Its note is not looked at. The token names the page if it lost some.
    fn protect_page(
        &mut self,
        space: Space,
        page: Page,
        rights: &mut impl FnMut(&Mapping) -> Option<Rights>,
        memory: &mut impl Memory,
    ) -> Result<Flush, Error>;

    /// Clears the bits that `bits` names of every page in `range`. `each` gets the pages that had one of them.
    ///
    /// The token names the same pages, unless `bits` is [`Usage::marked`] alone: then the token names none. No hardware
    /// reads a mark, so no TLB has to forget a page whose mark was cleared.
    fn clear_usage(
        &mut self,
        space: Space,
        range: VirtRange,
        bits: Usage,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Result<Flush, Error>;

    /// Maps what is mapped in `range` by pages of the size `to`, to the same frames with the same rights,
    /// attributes and bits. The result is the pages as they are now, without bits that hardware has set in the old
    /// entries during the operation.
    ///
    /// Both ends of `range` lie between pages that are there: to have a part of a page in another size, split the
    /// whole of it. Where `to` is larger than pages there, each larger page must be full, with adjacent and aligned
    /// frames and equal rights and attributes. What is refused changes nothing.
    ///
    /// `forget` is called once, after the entries have been exchanged, with a token that names the pages that were of
    /// another size: it has every processor forget them, and returns when all have. Where nothing has to be forgotten it
    /// is not called. When it has returned, bits that hardware has set in the old entries until then are carried over
    /// to the new pages, entries that had to be broken are made, and the frames of tables that went are freed.
    ///
    /// A walk finds a page at every moment, unless the format says that hardware needs a break before the make
    /// (AArch64 without FEAT_BBM at level 2). Then hardware finds no page while `forget` runs, and the handler of a
    /// fault waits until `resize` has returned.
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
    ///     // Here every processor forgets what `flush` names, while it goes on to use the page.
    ///     assert_eq!(flush.scope(), Scope::Pages { range, pages: 1 });
    /// };
    /// let small = table.resize(space, range, PageSize::SIZE_4K, &mut memory, &mut frames, forget)?;
    /// assert_eq!(small.len(), 512);
    ///
    /// let part = table.query(space, VirtAddr::new(0x4000_5000), &memory).expect("it is mapped");
    /// assert_eq!(part.translation.frame, PhysAddr::new(0x2000_5000));
    /// // Which part was written to, nobody knows: all are dirty.
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

    /// Sets bits of the page that holds `addr`: for the OS, where no hardware does it.
    fn set_usage(
        &mut self,
        space: Space,
        addr: VirtAddr,
        bits: Usage,
        memory: &mut impl Memory,
    ) -> Result<(), Error>;

    /// Copies an entry of one space's root into the area of another's, so that walks there go through
    /// the lender's tables (U02 section 2.2). Refused where the format was given no area.
    ///
    /// The copy is not kept up: it must be [taken back](PageTable::take_back) before the lender's entry
    /// changes and before the table behind it is free.
    fn lend(&mut self, loan: Loan, _memory: &mut impl Memory) -> Result<Lent, Error> {
        Err(Unfit::Virtual(loan.at).into())
    }

    /// Empties the copied entries of `of` in `range`. `each` gets the first address of each copy and,
    /// where it was one of a page, the bits that walkers have set in it. No token names them: the caller
    /// has hardware forget `range`, global pages and MMU caches too.
    fn take_back(
        &mut self,
        _of: Space,
        _range: VirtRange,
        _memory: &mut impl Memory,
        _each: &mut impl FnMut(VirtAddr, Option<Usage>),
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Looks `addr` up for an access of `kind` as hardware or the refill handler would, giving
    /// each of its references to `each` in order.
    ///
    /// Fetch, load and store are checked against the rights; user mode is the caller's to
    /// check, who alone knows the mode.
    fn walk(
        &self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault>;

    /// Where a walk of `addr` would read an entry for a base page, for who wants it near before the walk.
    /// `None` where the walk ends before, and where a format does not say.
    fn last_entry(&self, _space: Space, _addr: VirtAddr, _: &impl Memory) -> Option<PhysAddr> {
        None
    }

    /// The page that holds `addr`, without touching its bits.
    fn query(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Mapping>;

    /// Gives `each` every page that lies in `range`, whole or in part, by ascending address.
    fn visit(
        &self,
        space: Space,
        range: VirtRange,
        memory: &impl Memory,
        each: &mut impl FnMut(Mapping),
    );

    /// What all spaces together take.
    fn footprint(&self) -> Footprint;

    /// What is taken for `space` alone: nothing if it does not exist or shares all it has.
    fn footprint_of(&self, space: Space) -> Footprint;
}

/// What hardware that remembers tables of a tree must know of its format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeShape {
    /// See [`Tree::levels`].
    pub levels: u8,
    /// Bits of an address that the indices and the offset in a base page take.
    pub address_bits: u8,
    /// log2 of the bytes of an entry.
    pub entry_shift: u8,
    /// log2 of the bytes to which tables below the root are aligned.
    pub table_shift: u8,
    /// By level, from 1 to the one below the root's: log2 of the bytes of virtual memory that a
    /// table is valid for. `None` where that differs between tables of a level.
    pub spans: Option<Vec<u8>>,
}

/// A page table whose walk descends from a root: it can start at any table on the way.
pub trait Tree: PageTable {
    /// What the format looks like from outside.
    fn shape(&self) -> TreeShape;

    /// Tables on the longest way from the root to a page, both ends counted. The root is at
    /// this level, entries for base pages at level 1.
    fn levels(&self) -> u8;

    /// Where a walk in `space` starts if nothing is remembered.
    fn root(&self, space: Space) -> Node;

    /// [`PageTable::walk`], started at a table that an earlier walk of an address with the same
    /// bits from `start.shift` up has passed, if no token since then has named it in
    /// [`Flush::tables`].
    fn walk_from(
        &self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault>;
}
