use addr::{Memory, Page, PageSize, PhysAddr, VirtAddr, VirtRange};

/// log2 of the bytes that an external node of two base pages covers.
pub(super) const PAIR_SHIFT: u32 = 13;
pub(super) const ENTRY_BYTES: u64 = 16;
/// log2 of the bytes that the root entry covers.
pub(super) const ALL_SHIFT: u32 = u64::BITS;

const GUARD: u64 = 8;
const PREFIX: u64 = !0xfff;
const SHIFT_AT: u32 = 6;
const SHIFT_MASK: u64 = 0x3f;
const INDEX_AT: u32 = 2;
const INDEX_MASK: u64 = 0xf;
const PAIR: u64 = 1 << 1;

/// An entry that is not empty: the node or external node to which it leads, and the addresses for
/// which the entry is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) pointer: PhysAddr,
    guard: u64,
}

/// A node: the address bits from `low` to `shift` are its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Table {
    pub(super) start: PhysAddr,
    pub(super) shift: u32,
    pub(super) low: u32,
}

impl Entry {
    /// The entry at `at`, unless it is empty.
    #[inline]
    pub(super) fn read(at: PhysAddr, memory: &impl Memory) -> Option<Entry> {
        let pointer = memory.read_u64(at);
        let guard = memory.read_u64(at.wrapping_add(GUARD));
        // A pointer may be 0, since a node may be at address 0. A guard is never 0, because every
        // entry covers at least a pair.
        (guard != 0).then_some(Entry { pointer: PhysAddr::new(pointer), guard })
    }

    /// Writes `entry`, or an empty entry if it is `None`, to `at`.
    pub(super) fn write(entry: Option<Entry>, at: PhysAddr, memory: &mut impl Memory) {
        let (pointer, guard) = entry.map_or((0, 0), |entry| (entry.pointer.get(), entry.guard));
        memory.write_u64(at.wrapping_add(GUARD), guard);
        memory.write_u64(at, pointer);
    }

    /// The entry for `table`, which holds `addr`.
    pub(super) fn node(table: Table, addr: VirtAddr) -> Entry {
        Entry::new(table.start, addr, table.shift, u64::from(table.index_bits()) << INDEX_AT)
    }

    /// The entry for an external node at `pointer`, valid for `page`, or for both base pages of its
    /// pair.
    pub(super) fn leaf(pointer: PhysAddr, page: Page) -> Entry {
        if page.size() == PageSize::SIZE_4K {
            Entry::new(pointer, page.start(), PAIR_SHIFT, PAIR)
        } else {
            Entry::new(pointer, page.start(), page.size().shift(), 0)
        }
    }

    fn new(pointer: PhysAddr, addr: VirtAddr, shift: u32, low_bits: u64) -> Entry {
        let prefix = low_bytes(shift) ^ u64::MAX;
        let shift = u64::from(shift - 1) << SHIFT_AT;
        Entry { pointer, guard: addr.get() & prefix & PREFIX | shift | low_bits }
    }

    /// log2 of the bytes of virtual memory for which the entry is valid.
    #[inline]
    pub(super) const fn shift(self) -> u32 {
        (self.guard >> SHIFT_AT & SHIFT_MASK) as u32 + 1
    }

    /// The first address for which the entry is valid.
    #[inline]
    pub(super) const fn start(self) -> VirtAddr {
        VirtAddr::new(self.guard & !low_bytes(self.shift()))
    }

    /// All addresses for which the entry is valid.
    pub(super) fn range(self) -> VirtRange {
        let last = self.start().get() | low_bytes(self.shift());
        VirtRange::new(self.start(), 1)
            .unwrap_or(VirtRange::ALL)
            .hull(VirtRange::new(VirtAddr::new(last), 1).unwrap_or(VirtRange::ALL))
    }

    /// The highest bit in which `addr` differs from the guard, or `None` if the guard matches.
    #[inline]
    pub(super) fn mismatch(self, addr: VirtAddr) -> Option<u32> {
        let differing = (addr.get() ^ self.guard) & !low_bytes(self.shift());
        differing.checked_ilog2()
    }

    /// The node to which the entry leads, or `None` if this is an external node.
    #[inline]
    pub(super) const fn table(self) -> Option<Table> {
        let index_bits = (self.guard >> INDEX_AT & INDEX_MASK) as u32;
        let shift = self.shift();
        if index_bits == 0 {
            return None;
        }
        Some(Table { start: self.pointer, shift, low: shift - index_bits })
    }

    /// The page of the external node that contains `addr`, and the address of the page's entry.
    #[inline]
    pub(super) const fn page(self, addr: VirtAddr) -> (Page, PhysAddr) {
        if self.guard & PAIR == 0 {
            let size = match PageSize::from_shift(self.shift() as u8) {
                Some(size) => size,
                None => PageSize::SIZE_4K,
            };
            return (addr.page(size), self.pointer);
        }
        let odd = addr.get() >> (PAIR_SHIFT - 1) & 1;
        (addr.page(PageSize::SIZE_4K), self.pointer.wrapping_add(odd * 4))
    }
}

impl Table {
    #[inline]
    pub(super) const fn index_bits(self) -> u32 {
        self.shift - self.low
    }

    /// The address of the entry for `addr` in this node.
    #[inline]
    pub(super) fn entry_at(self, addr: VirtAddr) -> PhysAddr {
        let index = addr.get().checked_shr(self.low).unwrap_or(0) & ((1 << self.index_bits()) - 1);
        self.nth(index)
    }

    pub(super) const fn nth(self, index: u64) -> PhysAddr {
        self.start.wrapping_add(index * ENTRY_BYTES)
    }

    /// The number of entries of the node.
    pub(super) const fn len(self) -> u64 {
        1 << self.index_bits()
    }

    /// The entries in use, in order; a superpage's identical entries are given once.
    pub(super) fn entries<M: Memory>(self, memory: &M) -> impl Iterator<Item = Entry> + '_ {
        let mut before = None;
        (0..self.len()).filter_map(move |index| {
            let entry = Entry::read(self.nth(index), memory);
            let again = entry.is_some() && entry == before;
            before = entry;
            entry.filter(|_| !again)
        })
    }

    /// Writes `entry` to all places of this node that the entry `covered` occupies; `None` empties
    /// these places.
    pub(super) fn fill(self, covered: Entry, entry: Option<Entry>, memory: &mut impl Memory) {
        let places = 1 << covered.shift().saturating_sub(self.low);
        let first = self.entry_at(covered.start());
        for place in 0..places {
            Entry::write(entry, first.wrapping_add(place * ENTRY_BYTES), memory);
        }
    }
}

/// The bits below `shift`.
#[inline]
const fn low_bytes(shift: u32) -> u64 {
    match 1u64.checked_shl(shift) {
        Some(bytes) => bytes - 1,
        None => u64::MAX,
    }
}
