//! The results of a walk: its references in order, and a translation or a fault at the end.
//!
//! ```text
//!            Node(root)         Node             Node
//!               |                |                |
//!   va -> read entry 4 -> read entry 3 -> read entry 2 -> read entry 1 -> Translation
//!          Reference        Reference        Reference       Reference       or Fault
//!          .leads -----------^               ...            .leads = Nowhere
//! ```
//!
//! An MMU cache may hold any `Node` for all addresses that agree in `va >> node.shift`, and let a
//! later walk start at this node.

use core::fmt;

use addr::{Attributes, Page, PhysAddr, Rights, VirtAddr};

/// One memory reference of a walk.
///
/// Reading an entry and setting bits in it are two references to one address, the second with
/// `write` set: hardware sets the bits by a locked update, and only if a bit changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// The physical address.
    pub addr: PhysAddr,
    /// The number of bytes that are read or written.
    pub bytes: u8,
    /// Whether the reference writes to the entry.
    pub write: bool,
    /// In a tree, the level of the table that holds the entry: the number of levels for the root, 1
    /// for entries of base pages. In tables of other kinds the level is always 1; in a cache of
    /// translations in front of a table it is 0.
    pub level: u8,
    /// The table to which the entry leads, if it leads to one.
    pub leads: Leads,
}

/// Whether, and to which table, an entry leads that a walk has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leads {
    /// To no table: the entry is empty or maps a page, or the reference is a write.
    Nowhere,
    /// To the table in which the walk continues.
    To(Node),
    /// To a table for other addresses than the walk's: the walk ends at this entry because its
    /// guard does not match. An MMU cache that holds the entry may hold this node, which is correct
    /// for the other addresses.
    Elsewhere(Node),
}

impl Reference {
    /// The table in which the walk continues after this reference.
    #[inline]
    pub const fn next(&self) -> Option<Node> {
        match self.leads {
            Leads::To(node) => Some(node),
            Leads::Nowhere | Leads::Elsewhere(_) => None,
        }
    }
}

/// A table of a tree, reached on the path to an address: a walk can start there.
///
/// The node is valid for every address of the space that agrees with that address in the bits from
/// `shift` up, until the OS removes or restricts an entry on the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// The address of the table.
    pub table: PhysAddr,
    /// The level of the table; see [`Reference::level`].
    pub level: u8,
    /// log2 of the bytes of virtual memory for which the node is valid.
    pub shift: u8,
    /// The rights that all entries on the path to the table allow.
    pub rights: Rights,
}

impl Node {
    /// The bits of `va` that another address must share with `va` for the node to be valid for
    /// both; 0 if the node is valid for every address.
    #[inline]
    pub const fn prefix(&self, va: VirtAddr) -> u64 {
        match va.get().checked_shr(self.shift as u32) {
            Some(prefix) => prefix,
            None => 0,
        }
    }
}

/// The result of a walk: a page, its frame and its attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// The page that holds the address.
    pub page: Page,
    /// The first byte of the page's frame, which is as large as the page and aligned to its size.
    pub frame: PhysAddr,
    /// The accesses that the page allows.
    pub rights: Rights,
    /// Whether the page is global: all spaces have the same page at this address, so that a TLB
    /// need not compare the ASID.
    pub global: bool,
    /// How the memory of the page is accessed.
    pub attributes: Attributes,
}

impl Translation {
    /// A page that is not global, in ordinary memory.
    #[inline]
    pub const fn new(page: Page, frame: PhysAddr, rights: Rights) -> Translation {
        Translation { page, frame, rights, global: false, attributes: Attributes::NORMAL }
    }

    /// This translation with other attributes, for example for a framebuffer that is mapped
    /// write-combining.
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
    /// // 8 MiB of a device, with pages of 2 MiB.
    /// let page = VirtAddr::new(0xffff_c000_0000_0000).page(PageSize::SIZE_2M);
    /// let rights = Rights::READ | Rights::WRITE;
    /// let first = Translation::new(page, PhysAddr::new(0xe000_0000), rights)
    ///     .with(Attributes::of(MemoryType::WriteCombining));
    /// table.map(space, first, 4, &mut memory, &mut frames)?.done(&mut frames);
    ///
    /// let found = table.walk(space, page.start(), Kind::Store, &mut memory, &mut |_| {})?;
    /// assert_eq!(found.attributes.memory, MemoryType::WriteCombining);
    ///
    /// // A format reports an error if it lacks the type: Svpbmt has no uncached memory other than a device's.
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
        // No mask of the page size is used, because the processor knows the page's start earlier
        // than its size.
        PhysAddr::new(self.frame.get() | addr.get() ^ self.page.start().get())
    }
}

/// Why a walk ends without a translation. The OS handles the fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The entry in the table of this level is not valid.
    NotMapped {
        /// The level at which the walk ended; see [`Reference::level`].
        level: u8,
    },
    /// The page is mapped but forbids the access.
    Denied {
        /// The translation, with the rights that the page has.
        translation: Translation,
    },
    /// The format cannot map the address: it is not canonical.
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
