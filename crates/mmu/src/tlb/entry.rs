use addr::{Asid, Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

/// The content of a TLB entry: the translation of a page, or of two adjacent pages under one tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlbEntry {
    /// The page; in a paired TLB either page of the pair.
    pub page: Page,
    /// The space the entry belongs to.
    pub asid: Asid,
    /// Whether the entry is global: valid in every space.
    pub global: bool,
    /// The allowed accesses. In a paired TLB, element 0 is for the even page and element 1 for the
    /// odd page; in other TLBs only element 0 is used.
    pub rights: [Rights; 2],
    /// The frames. In a paired TLB, element 0 is for the even page and element 1 for the odd page;
    /// a page without a frame misses. In other TLBs only element 0 is used.
    pub frames: [Option<PhysAddr>; 2],
}

impl TlbEntry {
    /// The translation of a single page.
    #[inline]
    pub fn single(
        page: Page,
        frame: PhysAddr,
        asid: Asid,
        global: bool,
        rights: Rights,
    ) -> TlbEntry {
        TlbEntry { page, asid, global, rights: [rights; 2], frames: [Some(frame), None] }
    }

    /// The pages that the entry translates, with their frames and rights; at most two if it is an
    /// entry of a `paired` TLB.
    pub fn pages(&self, paired: bool) -> impl Iterator<Item = (Page, PhysAddr, Rights)> + use<> {
        let TlbEntry { page, rights, frames, .. } = *self;
        let size = page.size();
        let even = page.start().get() & !size.bytes();
        let page_of = move |half: usize| match paired {
            true => VirtAddr::new(even + half as u64 * size.bytes()).page(size),
            false => page,
        };
        let halves = if paired { 0..2 } else { 0..1 };
        halves.filter_map(move |half| Some((page_of(half), frames[half]?, rights[half])))
    }
}

/// The result of a lookup that hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// The physical address.
    pub phys: PhysAddr,
    /// The label that was given when the entry was inserted.
    pub label: u32,
    /// The accesses that are allowed at the address, including the one that was looked up.
    pub rights: Rights,
    /// The size of the page.
    pub size: PageSize,
    /// Whether the entry is global: valid in every space.
    pub global: bool,
}

impl Hit {
    /// The frame that contains the address.
    #[inline]
    pub fn frame(&self) -> PhysAddr {
        self.phys.align_down(self.size)
    }

    /// The entry with which another TLB is filled after a hit for `va` in the space `asid`: the
    /// entry is for one page, even if this TLB's entry maps two.
    #[inline]
    pub fn entry(&self, va: VirtAddr, asid: Asid) -> TlbEntry {
        TlbEntry::single(va.page(self.size), self.frame(), asid, self.global, self.rights)
    }
}

/// Why a lookup misses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// No entry has the tag.
    Absent,
    /// The entry does not allow the access.
    Denied,
    /// The entry has the tag of a pair, but no frame for this page. MIPS processors raise the
    /// exception TLB invalid for this, instead of TLB refill.
    Invalid,
}

/// The hits of an entry, reported when the entry is removed and by [`crate::Tlb::drain`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Evicted {
    /// The page of the entry; for a pair, the even page.
    pub page: Page,
    /// The space for which the entry was inserted.
    pub asid: Asid,
    /// The label that was given when the entry was inserted.
    pub label: u32,
    /// The hits of the entry by [`Kind`], since the entry was inserted or last reported.
    pub hits: [u64; Kind::COUNT],
}

/// Bits of `Slot::flags` with the rights to fetch, load and store, for the even page of a pair or
/// for the only page.
const RIGHTS: u8 = Rights::READ.bits() | Rights::WRITE.bits() | Rights::EXECUTE.bits();
/// The distance in bits, in `Slot::flags`, from the rights of the even page to those of the odd
/// page.
const ODD: u32 = 4;
/// The bit of `Slot::flags` that allows access from user mode, for both pages of a pair.
const USER: u8 = Rights::USER.bits();
/// The bit of `Slot::flags` that marks a global entry.
const GLOBAL: u8 = 1 << 7;

/// A slot for an entry: everything that a hit needs, in one cache line of the host.
///
/// The slot matches an address if `address & mask == base`. The mask covers one page, or both pages
/// of a pair with two frames; for a block it covers the whole block. No address matches an empty
/// slot. In a slot for a block, the field of the second frame is a bit mask of the pages that the
/// entry translates.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Slot {
    base: u64,
    mask: u64,
    frames: [u64; 2],
    pub(super) hits: [u64; Kind::COUNT],
    label: u32,
    asid: Asid,
    size: PageSize,
    flags: u8,
}

impl Slot {
    pub(super) const EMPTY: Slot = Slot {
        base: 1,
        mask: 0,
        frames: [0; 2],
        hits: [0; Kind::COUNT],
        label: 0,
        asid: Asid(0),
        size: PageSize::SIZE_4K,
        flags: 0,
    };

    /// A slot with `entry`, which must have at least one frame.
    #[inline(always)]
    pub(super) fn new(entry: &TlbEntry, label: u32, paired: bool) -> Slot {
        let size = entry.page.size();
        let start = entry.page.start().get();
        let global = if entry.global { GLOBAL } else { 0 };
        let [even_rights, odd_rights] = entry.rights.map(Rights::bits);
        let mut slot = Slot {
            base: start,
            mask: !size.mask(),
            frames: entry.frames.map(|frame| frame.unwrap_or_default().get()),
            hits: [0; Kind::COUNT],
            label,
            asid: entry.asid,
            size,
            flags: even_rights | (odd_rights & RIGHTS) << ODD | global,
        };
        if paired {
            let even = start & !size.bytes();
            (slot.base, slot.mask) = match entry.frames {
                [Some(_), Some(_)] => (even, slot.mask & !size.bytes()),
                [Some(_), None] => (even, slot.mask),
                [None, _] => (even | size.bytes(), slot.mask),
            };
        }
        slot
    }

    /// A copy of the slot of another TLB, for the space `asid`; the entry is neither for a pair nor for a
    /// block.
    #[inline(always)]
    pub(super) fn anew(&self, asid: Asid) -> Slot {
        Slot { hits: [0; Kind::COUNT], asid, ..*self }
    }

    /// A slot with an entry for the block of `pages` pages around a page. The entry has the frame
    /// of the block's first page and a bit mask of the translated pages.
    pub(super) fn block(
        (page, pages): (Page, u64),
        (first, bits): (PhysAddr, u64),
        (asid, global): (Asid, bool),
        rights: Rights,
        label: u32,
    ) -> Slot {
        let size = page.size();
        let mask = !(pages * size.bytes() - 1);
        Slot {
            base: page.start().get() & mask,
            mask,
            frames: [first.get(), bits],
            hits: [0; Kind::COUNT],
            label,
            asid,
            size,
            flags: rights.bits() & (RIGHTS | USER) | if global { GLOBAL } else { 0 },
        }
    }

    /// This slot converted for a TLB of blocks, where each entry has a bit mask of its pages. The
    /// slot translates one page, whose bit is set.
    pub(super) fn of_one_page(mut self) -> Slot {
        self.frames[1] = 1;
        self
    }

    /// For a TLB of blocks. The bit mask of the block's pages that the entry translates.
    #[inline]
    pub(super) fn bits(&self) -> u64 {
        self.frames[1]
    }

    /// For a TLB of blocks. The index, in the block, of the page at `addr`.
    #[inline]
    pub(super) fn index(&self, addr: VirtAddr) -> usize {
        ((addr.get() & !self.mask) >> self.size.shift()) as usize
    }

    /// For a TLB of blocks. Whether the entry translates `addr`, which must be in the block.
    #[inline]
    pub(super) fn has(&self, addr: VirtAddr) -> bool {
        self.frames[1] >> self.index(addr) & 1 == 1
    }

    /// Whether the frame of the entry's first page is `first`.
    pub(super) fn is_block_at(&self, first: PhysAddr) -> bool {
        self.frames[0] == first.get()
    }

    /// Whether the entry's only page, or all pages of its block, have these rights.
    pub(super) fn has_rights(&self, rights: Rights) -> bool {
        self.flags & (RIGHTS | USER) == rights.bits() & (RIGHTS | USER)
    }

    /// For a TLB of blocks. Whether a page that the entry translates overlaps `range`.
    pub(super) fn translates_some_of(&self, range: VirtRange) -> bool {
        let last = self.base + !self.mask;
        if self.base > range.last().get() || range.start().get() > last {
            return false;
        }
        let from = self.index(VirtAddr::new(range.start().get().max(self.base)));
        let to = self.index(VirtAddr::new(range.last().get().min(last)));
        (from..=to).any(|at| self.frames[1] >> at & 1 == 1)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.mask == 0
    }

    /// Whether the entry translates `addr`; the caller compares the space.
    #[inline]
    pub(super) fn covers(&self, addr: VirtAddr) -> bool {
        addr.get() & self.mask == self.base
    }

    /// Whether the slot holds an entry for a page of this size with this number, in units of `1 <<
    /// shift` bytes.
    pub(super) fn is_tagged(&self, size: PageSize, number: u64, shift: u32) -> bool {
        !self.is_empty() && self.size == size && self.base >> shift == number
    }

    #[inline]
    pub(super) fn serves(&self, asid: Asid) -> bool {
        self.asid == asid || self.is_global()
    }

    #[inline]
    pub(super) fn is_global(&self) -> bool {
        self.flags & GLOBAL != 0
    }

    pub(super) fn asid(&self) -> Asid {
        self.asid
    }

    pub(super) fn size(&self) -> PageSize {
        self.size
    }

    /// The physical address of `addr`, which the entry covers.
    #[inline(always)]
    pub(super) fn phys(&self, addr: VirtAddr, paired: bool) -> PhysAddr {
        let phys = if paired {
            let half = (addr.get() >> self.size.shift()) as usize & 1;
            self.frames[half] | addr.offset_in(self.size)
        } else {
            self.frames[0].wrapping_add(addr.get() & !self.mask)
        };
        PhysAddr::new(phys)
    }

    /// The rights of page number `half` of a pair; 0 without pairs.
    #[inline]
    fn rights_of(&self, half: usize) -> Rights {
        Rights::from_bits(self.flags >> (ODD * half as u32) & RIGHTS | self.flags & USER)
    }

    /// The rights at `addr`, which the entry covers.
    #[inline]
    pub(super) fn rights(&self, addr: VirtAddr, paired: bool) -> Rights {
        self.rights_of(usize::from(paired && addr.get() & self.size.bytes() != 0))
    }

    /// The result of a lookup of `addr`, which the entry covers.
    #[inline]
    pub(super) fn hit(&self, addr: VirtAddr, paired: bool) -> Hit {
        Hit {
            phys: self.phys(addr, paired),
            label: self.label,
            rights: self.rights(addr, paired),
            size: self.size,
            global: self.is_global(),
        }
    }

    pub(super) fn page(&self, paired: bool) -> Page {
        let even = if paired { self.base & !self.size.bytes() } else { self.base };
        VirtAddr::new(even).page(self.size)
    }

    /// The number of bytes that the tag covers.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        (!self.mask).wrapping_add(1)
    }

    pub(super) fn entry(&self, paired: bool) -> TlbEntry {
        let frame = |half: usize| {
            let is_there = match half {
                0 => !paired || self.base & self.size.bytes() == 0,
                _ => paired && (self.base | !self.mask) & self.size.bytes() != 0,
            };
            is_there.then(|| PhysAddr::new(self.frames[half]))
        };
        TlbEntry {
            page: self.page(paired),
            asid: self.asid,
            global: self.is_global(),
            rights: [self.rights_of(0), self.rights_of(usize::from(paired))],
            frames: [frame(0), frame(1)],
        }
    }

    /// Whether the entry's page, or a page of its pair, overlaps `range`.
    pub(super) fn touches(&self, range: VirtRange, paired: bool) -> bool {
        let even = self.page(paired);
        let bytes = even.size().bytes() << u32::from(paired);
        let last = even.start().get() + (bytes - 1);
        even.start() <= range.last() && range.start().get() <= last
    }

    #[inline]
    pub(super) fn add_hits(&mut self, more: [u64; Kind::COUNT]) {
        add(&mut self.hits, more);
    }

    pub(super) fn label(&self) -> u32 {
        self.label
    }

    /// Returns the hits of the entry since the last call, and resets them.
    pub(super) fn take_hits(&mut self, paired: bool) -> Evicted {
        Evicted {
            page: self.page(paired),
            asid: self.asid,
            label: self.label,
            hits: core::mem::take(&mut self.hits),
        }
    }
}

/// Adds hits, kind by kind.
#[inline]
pub(super) fn add(sum: &mut [u64; Kind::COUNT], hits: [u64; Kind::COUNT]) {
    for (sum, hits) in sum.iter_mut().zip(hits) {
        *sum += hits;
    }
}

const _: () = assert!(size_of::<Slot>() == 64);
