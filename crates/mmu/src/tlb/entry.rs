use addr::{Asid, Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

/// What a TLB is to hold: the translation of a page, or of two adjacent pages under one tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlbEntry {
    /// The page; in a paired TLB either page of the pair.
    pub page: Page,
    /// The space it belongs to.
    pub asid: Asid,
    /// Whether it serves every space.
    pub global: bool,
    /// What it allows: of a pair the even and the odd page. In any other TLB the first counts and
    /// the second is not looked at.
    pub rights: [Rights; 2],
    /// Its frame. In a paired TLB the frames of the even and of the odd page; a page without a
    /// frame misses. In any other the first is the page's and the second is not looked at.
    pub frames: [Option<PhysAddr>; 2],
}

impl TlbEntry {
    /// A single page's translation.
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

    /// The pages that it translates, with their frames and rights: two at most, if it is one of a
    /// `paired` TLB.
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

/// What a lookup finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// Where the address lies in physical memory.
    pub phys: PhysAddr,
    /// What the filler wrote on the entry.
    pub label: u32,
    /// What is allowed there: the access that was looked up, and perhaps more.
    pub rights: Rights,
    /// The size of the page.
    pub size: PageSize,
    /// Whether the entry serves every space.
    pub global: bool,
}

impl Hit {
    /// The frame that the address lies in.
    #[inline]
    pub fn frame(&self) -> PhysAddr {
        self.phys.align_down(self.size)
    }

    /// The entry that another TLB is filled with, where `va` in the space `asid` was looked up:
    /// the one page, even if this TLB's entry maps two.
    #[inline]
    pub fn entry(&self, va: VirtAddr, asid: Asid) -> TlbEntry {
        TlbEntry::single(va.page(self.size), self.frame(), asid, self.global, self.rights)
    }
}

/// Why a lookup is a miss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// No entry bears the tag.
    Absent,
    /// The entry does not allow the access.
    Denied,
    /// The tag is that of a pair of which this page has no frame: MIPS processors raise an
    /// exception of their own for it, TLB invalid, in place of the refill.
    Invalid,
}

/// What an entry did, handed out when it goes and by [`crate::Tlb::drain`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Evicted {
    /// Its page; of a pair the even one.
    pub page: Page,
    /// The space it was filled for.
    pub asid: Asid,
    /// What the filler wrote on it.
    pub label: u32,
    /// Its hits by [`Kind`], since it was filled or last handed out.
    pub hits: [u64; Kind::COUNT],
}

/// Bits of `Slot::flags`: fetch, load and store of the even page, or of the only one, ...
const RIGHTS: u8 = Rights::READ.bits() | Rights::WRITE.bits() | Rights::EXECUTE.bits();
/// ... and of the odd page, so many bits further up.
const ODD: u32 = 4;
/// User mode, for both pages of a pair.
const USER: u8 = Rights::USER.bits();
/// The entry serves every space.
const GLOBAL: u8 = 1 << 7;

/// A place for an entry: all that a hit needs in one line of the host's cache.
///
/// It matches an address if `address & mask == base`. The mask covers one page, or both pages
/// of a pair that has two frames. No address matches an empty slot. The mask of a block covers all of
/// it; then the second frame is a bit for each of its pages, set where the entry translates it.
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

    /// The slot that holds `entry`. There must be a frame that counts.
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

    /// The slot of another TLB that holds the same entry for the space `asid`, neither for a pair nor for a block.
    #[inline(always)]
    pub(super) fn anew(&self, asid: Asid) -> Slot {
        Slot { hits: [0; Kind::COUNT], asid, ..*self }
    }

    /// A block of so many `pages` around a page, with the frame of its first one and a bit for each that it
    /// translates.
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

    /// This slot in a TLB of blocks, where each entry has a bit for each of its pages. It translates one
    /// page, whose bit is set.
    pub(super) fn of_one_page(mut self) -> Slot {
        self.frames[1] = 1;
        self
    }

    /// In a TLB of blocks: the pages of the block that it translates.
    #[inline]
    pub(super) fn bits(&self) -> u64 {
        self.frames[1]
    }

    /// In a TLB of blocks: the number in its block of the page at `addr`, which the block covers.
    #[inline]
    pub(super) fn index(&self, addr: VirtAddr) -> usize {
        ((addr.get() & !self.mask) >> self.size.shift()) as usize
    }

    /// In a TLB of blocks: whether it translates `addr`, which the block covers.
    #[inline]
    pub(super) fn has(&self, addr: VirtAddr) -> bool {
        self.frames[1] >> self.index(addr) & 1 == 1
    }

    /// Whether the frame of its first page would be this one.
    pub(super) fn is_block_at(&self, first: PhysAddr) -> bool {
        self.frames[0] == first.get()
    }

    /// Whether these are the rights of its only page or of all pages of its block.
    pub(super) fn has_rights(&self, rights: Rights) -> bool {
        self.flags & (RIGHTS | USER) == rights.bits() & (RIGHTS | USER)
    }

    /// In a TLB of blocks: whether a page that it translates has a byte in `range`.
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

    /// Whether it translates `addr`, in a space that the caller compares.
    #[inline]
    pub(super) fn covers(&self, addr: VirtAddr) -> bool {
        addr.get() & self.mask == self.base
    }

    /// Whether it holds an entry of this size, and of this number if numbers are counted in
    /// units of `1 << shift` bytes.
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

    /// The physical address of `addr`, which it covers.
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

    /// What is allowed in the page of the pair with the number `half`; 0 where there are no pairs.
    #[inline]
    fn rights_of(&self, half: usize) -> Rights {
        Rights::from_bits(self.flags >> (ODD * half as u32) & RIGHTS | self.flags & USER)
    }

    /// What is allowed at `addr`, which it covers.
    #[inline]
    pub(super) fn rights(&self, addr: VirtAddr, paired: bool) -> Rights {
        self.rights_of(usize::from(paired && addr.get() & self.size.bytes() != 0))
    }

    /// What a lookup of `addr`, which it covers, gives.
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

    /// The bytes that the tag covers.
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

    /// Whether its page, or a page of its pair, has a byte in `range`.
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

    /// What it did since it was last asked.
    pub(super) fn take_hits(&mut self, paired: bool) -> Evicted {
        Evicted {
            page: self.page(paired),
            asid: self.asid,
            label: self.label,
            hits: core::mem::take(&mut self.hits),
        }
    }
}

/// Adds up hits, kind by kind.
#[inline]
pub(super) fn add(sum: &mut [u64; Kind::COUNT], hits: [u64; Kind::COUNT]) {
    for (sum, hits) in sum.iter_mut().zip(hits) {
        *sum += hits;
    }
}

const _: () = assert!(size_of::<Slot>() == 64);
