//! What a walk gives: its references on the way, a translation or a fault at the end.
//!
//! ```text
//!            Node(root)         Node             Node
//!               |                |                |
//!   va -> read entry 4 -> read entry 3 -> read entry 2 -> read entry 1 -> Translation
//!          Reference        Reference        Reference       Reference       or Fault
//!          .leads -----------^               ...            .leads = Nowhere
//! ```
//!
//! An MMU cache may remember any `Node` for the pages that agree in `va >> node.shift` and let
//! the next walk start there.

use core::fmt;

use addr::{Attributes, Page, PhysAddr, Rights, VirtAddr};

/// One memory access of a walk.
///
/// Reading an entry and setting bits in it are two references to one address, the second with
/// `write`: hardware does the second as a locked update, and only if a bit changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// Where.
    pub addr: PhysAddr,
    /// How many bytes.
    pub bytes: u8,
    /// Whether it changes the entry.
    pub write: bool,
    /// In a tree, the level of the table that holds the entry: the root's is the number of
    /// levels, that of base-page entries is 1. In other tables always 1, and 0 in a cache of
    /// translations in front of a table.
    pub level: u8,
    /// Where the entry read here leads.
    pub leads: Leads,
}

/// Where an entry leads that a walk has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leads {
    /// To no table: the entry is empty or a page's, or the reference writes.
    Nowhere,
    /// To the table in which the walk goes on.
    To(Node),
    /// To a table for other addresses: a guard that does not match ends the walk here. What
    /// remembers the entry holds this node, and is right to.
    Elsewhere(Node),
}

impl Reference {
    /// The table in which the walk goes on after this reference.
    #[inline]
    pub const fn next(&self) -> Option<Node> {
        match self.leads {
            Leads::To(node) => Some(node),
            Leads::Nowhere | Leads::Elsewhere(_) => None,
        }
    }
}

/// A table of a tree, as reached on the way to an address: where a walk can start.
///
/// It is valid for every address of the space that agrees with that one in the bits from
/// `shift` up, until the OS removes or restricts something there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its first byte.
    pub table: PhysAddr,
    /// Its level; see [`Reference::level`].
    pub level: u8,
    /// log2 of the bytes of virtual memory that it is valid for.
    pub shift: u8,
    /// What the entries on the way to it allow.
    pub rights: Rights,
}

impl Node {
    /// The bits of `va` that an address must share with it for the node to be valid for both: 0
    /// for a node that is valid for every address.
    #[inline]
    pub const fn prefix(&self, va: VirtAddr) -> u64 {
        match va.get().checked_shr(self.shift as u32) {
            Some(prefix) => prefix,
            None => 0,
        }
    }
}

/// What a walk finds: a page, its frame and what is allowed there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// The page that holds the address.
    pub page: Page,
    /// The first byte of its frame, which is as large as the page and aligned to its size.
    pub frame: PhysAddr,
    /// What is allowed.
    pub rights: Rights,
    /// Whether it is the same in all spaces, so that a TLB need not compare the ASID.
    pub global: bool,
    /// How its memory is accessed.
    pub attributes: Attributes,
}

impl Translation {
    /// A page of one space in ordinary memory.
    #[inline]
    pub const fn new(page: Page, frame: PhysAddr, rights: Rights) -> Translation {
        Translation { page, frame, rights, global: false, attributes: Attributes::NORMAL }
    }

    /// The translation with these attributes: a framebuffer, mapped write-combining.
    ///
    /// ```
    /// use addr::{Attributes, Kind, MemoryType, PageSize, PhysAddr, Rights, VirtAddr};
    /// use pagetable::{Error, PageTable, SparseMemory, Sv39, Translation, Unfit, X86_64};
    /// use physmem::Physmem;
    ///
    /// let mut memory = SparseMemory::new(1 << 40);
    /// let mut frames = Physmem::buddy(PhysAddr::new(0), 64 << 20, PageSize::SIZE_4K)?;
    /// let mut table = X86_64::<4>::new();
    /// // The processor's IA32_PAT holds `X86Entries::PAT`.
    /// let space = table.create(&mut memory, &mut frames)?;
    ///
    /// // 8 MiB of a device, by pages of 2M.
    /// let page = VirtAddr::new(0xffff_c000_0000_0000).page(PageSize::SIZE_2M);
    /// let rights = Rights::READ | Rights::WRITE;
    /// let first = Translation::new(page, PhysAddr::new(0xe000_0000), rights)
    ///     .with(Attributes::of(MemoryType::WriteCombining));
    /// table.map(space, first, 4, &mut memory, &mut frames)?.done(&mut frames);
    ///
    /// let found = table.walk(space, page.start(), Kind::Store, &mut memory, &mut |_| {})?;
    /// assert_eq!(found.attributes.memory, MemoryType::WriteCombining);
    ///
    /// // A format without the type says so: Svpbmt has no uncached memory that is not a device's.
    /// let mut table = Sv39::<true>::new();
    /// let space = table.create(&mut memory, &mut frames)?;
    /// let first = Translation::new(VirtAddr::new(0).page(PageSize::SIZE_4K), PhysAddr::new(0), rights)
    ///     .with(Attributes::of(MemoryType::Uncached));
    /// let refused = table.map(space, first, 1, &mut memory, &mut frames).unwrap_err();
    /// assert_eq!(refused, Error::Unfit(Unfit::Memory(MemoryType::Uncached)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub const fn with(self, attributes: Attributes) -> Translation {
        Translation { attributes, ..self }
    }

    /// The physical address of `addr`, which lies in the page.
    #[inline]
    pub const fn apply(&self, addr: VirtAddr) -> PhysAddr {
        // No mask is made of the page's size, which is known later than where the page starts.
        PhysAddr::new(self.frame.get() | addr.get() ^ self.page.start().get())
    }
}

/// Why a walk ends without a translation: the OS acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No valid entry leads on from the table of this level.
    NotMapped {
        /// The level at which the walk ended; see [`Reference::level`].
        level: u8,
    },
    /// The page is there and forbids the access.
    Denied {
        /// What it does allow.
        translation: Translation,
    },
    /// No table of this format can hold the address: it is not canonical.
    Unfit,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotMapped { level } => write!(f, "no valid entry at level {level}"),
            Fault::Denied { translation } => write!(
                f,
                "the page at {} allows {} only",
                translation.page.start(),
                translation.rights
            ),
            Fault::Unfit => f.write_str("this page table cannot map the address"),
        }
    }
}

impl core::error::Error for Fault {}
