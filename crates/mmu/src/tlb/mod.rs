//! The TLB: translations of recently used pages, tagged by page, page size and ASID.
//!
//! ```text
//!            +-- shortcut of its page? ----------- yes: hit, counted there
//!   va ------+                     | no
//!            +-- for each page size that lives here, smallest first:
//!                   array -> set -> fingerprints -> slots: size, page and ASID equal? hit
//! ```
//!
//! A lookup that finds an entry which does not allow the access is not a hit but a miss with a
//! reason ([`Miss`]).
//!
//! Shortcuts do not model hardware. For each kind of access, shortcuts record the slots in which
//! pages were last found or inserted. A usual hit therefore neither selects a set nor compares tags
//! and rights, however associative the TLB is. A shortcut is removed with its entry, and all
//! shortcuts are removed when the ASID changes. A lookup therefore always has the result of a
//! search.
//!
//! A TLB never consults the page table. An entry stays, whether correct or stale, until it is
//! replaced or flushed. If entries of several sizes cover an address, the smallest page is used.
//!
//! Hits are counted in the shortcut or slot that served them, and are reported when the entry is
//! removed. The cost of an access therefore does not depend on how finely hits are classified
//! later.

mod block;
mod contents;
mod dense;
mod entry;
mod fill;
mod flush;
mod params;
mod policy;
mod shortcuts;
mod span;

use core::cell::RefCell;
use std::collections::VecDeque;

use addr::{Asid, Kind, Page, PageSize, PhysAddr, Rights, VirtAddr};

pub use block::{BlockKind, BlockParams};
pub use contents::{Occupant, Occupants};
pub use dense::{DenseHit, DenseTlb};
pub use entry::{Evicted, Hit, Miss, TlbEntry};
pub use params::{ArrayParams, TlbParams};
pub use span::{EACH, Found, NOTHING, SpanTlb, SpanTlbs, TIME};

use crate::{GeometryError, SetArray};
use block::Blocks;
use entry::Slot;
use fill::retire;
use policy::TlbPolicy;
use shortcuts::{Shortcuts, Target, Use};

/// Searching a set of at most this many ways is about as fast as following a shortcut.
const SEARCHED_WAYS_MAX: u32 = 16;

/// Counts of a TLB. Lookups are the sum of hits and misses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TlbCounts {
    /// Lookups that hit, by [`Kind`].
    pub hits: [u64; Kind::COUNT],
    /// Lookups that found no entry that allows the access, by [`Kind`].
    pub misses: [u64; Kind::COUNT],
    /// Misses that found an entry which does not allow the access.
    pub denied: u64,
    /// Misses that found a pair without a frame for the page.
    pub invalid: u64,
    /// Misses that found an entry for the page's block, which does not translate this page.
    pub tag_hits: u64,
    /// Entries for blocks inserted.
    pub block_fills: u64,
    /// Pages in inserted entries for blocks, including pages that were present before.
    pub block_pages: u64,
    /// Entries inserted.
    pub fills: u64,
    /// Entries replaced by another page's.
    pub evictions: u64,
    /// Entries flushed.
    pub flushed: u64,
}

/// A TLB.
#[derive(Clone, Debug)]
pub struct Tlb {
    /// The space for which the shortcuts are valid.
    space: Asid,
    /// Whether there can be entries of several spaces.
    is_mixed: bool,
    shortcuts: Shortcuts,
    smallest: PageSize,
    slots: Box<[Slot]>,
    /// The information that the policy uses of hits: one of the constants `NOTHING`, `TIME` and
    /// `EACH`.
    learns: u8,
    /// The policy, which spans share.
    policy: RefCell<TlbPolicy>,
    /// Whether the shortcuts have recorded hits that were not yet reported to the policy.
    ahead: Ahead,
    /// The slots of entries that are replaced next, without a call of the policy; only for TLBs
    /// with one set.
    going: VecDeque<usize>,
    paired: bool,
    /// Whether sets are so small that a search takes about as long as following a shortcut.
    has_small_sets: bool,
    /// Whether the last lookup was by [`Tlb::lookup_apart`].
    is_apart: bool,
    /// The number of low bits of a page number that an entry's tag omits: first for pages of the
    /// smallest size, then for other sizes.
    tag_shifts: (u32, u32),
    /// The data of entries for several pages of the smallest size, if the TLB has such entries.
    blocks: Option<Blocks>,
    /// Whether the entry that was removed last had been hit. If so, a shortcut for a new entry is
    /// worthwhile immediately.
    was_used: bool,
    misses: [u64; Kind::COUNT],
    /// The address and space for which the last lookup found no entry with the tag, if nothing has
    /// been inserted since.
    absent: Option<(VirtAddr, Asid)>,
    arrays: Box<[Array]>,
    /// For each log2 of a page size: the array that holds pages of that size.
    array_of: [Option<u8>; 64],
    /// For each log2 of a page size: the number of entries of that size.
    live: [u32; 64],
    /// A bit mask of the log2 page sizes that have entries.
    live_sizes: u64,
    /// The only size that has entries, if there is one and no entry is for several pages.
    only: Option<OnlySize>,
    /// Counts of entries whose hits were reported. Misses are counted in `misses`.
    retired: TlbCounts,
}

/// Whether the shortcuts may have recorded hits that were not yet reported to the policy. This is
/// the case after a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ahead {
    No,
    /// There was a span since the last replacement.
    Now,
    /// There was a span before the last replacement and none since.
    Before,
}

/// How entries are found in a TLB whose entries are all of one size, which is the usual case.
#[derive(Clone, Copy, Debug)]
struct OnlySize {
    shift: u8,
    /// The array that holds pages of the size.
    array: u8,
}

#[derive(Clone, Debug)]
struct Array {
    sets: SetArray,
    /// The TLB's number of the array's first slot.
    first: usize,
}

impl Tlb {
    /// An empty TLB.
    pub fn new(params: &TlbParams) -> Result<Tlb, GeometryError> {
        Tlb::build(params, true)
    }

    /// An empty TLB that is looked up only after another TLB has missed. Each page is therefore
    /// looked up so rarely that shortcuts to small sets would cost more than they save. This TLB
    /// has no spans; its lookups have the results of any other TLB.
    pub fn behind_another(params: &TlbParams) -> Result<Tlb, GeometryError> {
        Tlb::build(params, !has_small_sets(params))
    }

    fn build(params: &TlbParams, has_shortcuts: bool) -> Result<Tlb, GeometryError> {
        let mut first = 0;
        let mut arrays = Vec::new();
        for sets in params.check()? {
            let entries = sets.entries();
            arrays.push(Array { sets, first });
            first += entries;
        }
        let mut array_of = [None; 64];
        for (number, array) in params.arrays.iter().enumerate() {
            for size in &array.page_sizes {
                array_of[size.shift() as usize] = Some(number as u8);
            }
        }
        let smallest = params.smallest_page_size()?;
        let policy = TlbPolicy::new(params, &arrays, has_shortcuts);
        Ok(Tlb {
            learns: policy.learns(),
            space: Asid(0),
            is_mixed: false,
            shortcuts: match has_shortcuts {
                true => Shortcuts::new(smallest, None, first),
                false => Shortcuts::never(smallest),
            },
            smallest,
            slots: vec![Slot::EMPTY; first].into_boxed_slice(),
            policy: RefCell::new(policy),
            ahead: Ahead::No,
            going: VecDeque::new(),
            paired: params.paired,
            has_small_sets: has_small_sets(params),
            is_apart: false,
            tag_shifts: match params.blocks {
                Some(blocks) => (blocks.shift(), 0),
                None => (params.paired.into(), params.paired.into()),
            },
            blocks: params.blocks.map(|blocks| Blocks::new(blocks, first)),
            was_used: true,
            misses: [0; Kind::COUNT],
            absent: None,
            arrays: arrays.into_boxed_slice(),
            array_of,
            live: [0; 64],
            live_sizes: 0,
            only: None,
            retired: TlbCounts::default(),
        })
    }

    /// Whether the TLB can hold pages of `size`.
    #[inline]
    pub fn holds(&self, size: PageSize) -> bool {
        self.array_of[size.shift() as usize].is_some()
    }

    /// Whether an entry maps two adjacent pages.
    pub fn is_paired(&self) -> bool {
        self.paired
    }

    /// Keeps shortcuts for pages of the sizes `small` and, if given, `large`, instead of the
    /// smallest size. The caller should choose the sizes that most entries have. This affects only
    /// the speed of lookups.
    pub fn favour(&mut self, small: PageSize, large: Option<PageSize>) {
        if !self.shortcuts.are_kept() {
            return;
        }
        self.forget_shortcuts();
        self.shortcuts = Shortcuts::new(small, large, self.slots.len());
        for slot in 0..self.slots.len() {
            if !self.slots[slot].is_empty() {
                self.crowd(slot, true);
            }
        }
    }

    /// Looks up `va` for an access of `kind` in the space `asid`, and counts the lookup.
    // Inlined whatever its size, because passing a hit in memory would cost more than finding it.
    #[inline(always)]
    pub fn lookup(&mut self, va: VirtAddr, asid: Asid, kind: Kind) -> Result<Hit, Miss> {
        self.is_apart = false;
        let slot = if asid == self.space
            && let Some(slot) = self.shortcuts.hit(va, kind)
        {
            self.policy.get_mut().touched(slot);
            slot
        } else {
            self.search_and_count(va, asid, kind)?
        };
        Ok(self.hit_at(slot, va))
    }

    /// Looks up `va` for an access of `kind` in the space `asid`, and counts the lookup. For TLBs behind the
    /// first level, where misses are likely: if sets are small, neither this lookup nor the insertion after
    /// it makes a shortcut, which would cost more than it saves.
    #[inline(always)]
    pub fn lookup_apart(&mut self, va: VirtAddr, asid: Asid, kind: Kind) -> Result<Hit, Miss> {
        if asid == self.space && self.has_small_sets {
            self.is_apart = true;
            let slot = self.find_and_count(va, asid, kind)?;
            return Ok(self.hit_at(slot, va));
        }
        if asid == self.space && self.is_surely_absent(va) {
            self.misses[kind as usize] += 1;
            self.is_apart = false;
            return Err(self.count_miss(va, asid, false));
        }
        self.lookup(va, asid, kind)
    }

    /// Counts `count` accesses of `kind` to the page at `va`, which all hit the entry of this page.
    /// If `goes` is false, the last of these accesses is the most recent use. If `goes` is true,
    /// the entry will be the next one replaced in its set, without a call of the policy. Returns
    /// the entry's label, or `None` if there is no entry to hit.
    pub fn hits(
        &mut self,
        va: VirtAddr,
        asid: Asid,
        kind: Kind,
        count: u64,
        goes: bool,
    ) -> Option<u32> {
        let by_shortcut = || (asid == self.space).then(|| self.shortcuts.slot_of(va, kind))?;
        let allowed = |slot: &usize| self.rights_at(*slot, va).allows(kind);
        let slot = by_shortcut().or_else(|| self.search(va, asid).filter(allowed))?;
        self.slots[slot].hits[kind as usize] += count;
        if goes {
            self.going.push_back(slot);
        } else {
            self.policy.get_mut().touched(slot);
        }
        Some(self.slots[slot].label())
    }

    /// The result of a lookup of `va` that hits in `slot`.
    #[inline(always)]
    fn hit_at(&self, slot: usize, va: VirtAddr) -> Hit {
        let hit = self.slots[slot].hit(va, self.paired);
        if self.blocks.is_none() { hit } else { self.own_hit(slot, va, hit) }
    }

    /// Returns `hit`, which is in `slot`. If entries for blocks have a frame and rights for each
    /// page, those of the page at `va` are filled in.
    fn own_hit(&self, slot: usize, va: VirtAddr, hit: Hit) -> Hit {
        let entry = &self.slots[slot];
        let blocks = self.blocks.as_ref().filter(|_| hit.size == self.smallest);
        match blocks.and_then(|blocks| blocks.own(slot, entry.index(va))) {
            Some((frame, rights)) => {
                Hit { phys: PhysAddr::new(frame.get() + va.offset_in(hit.size)), rights, ..hit }
            }
            None => hit,
        }
    }

    /// The number of the page of `size` at `va`, which selects its set.
    #[inline]
    fn number(&self, va: VirtAddr, size: PageSize) -> u64 {
        va.get() >> self.number_shift(size)
    }

    #[inline]
    fn number_shift(&self, size: PageSize) -> u32 {
        let (smallest, others) = self.tag_shifts;
        size.shift() + if size == self.smallest { smallest } else { others }
    }

    /// Whether it is known without a search that no entry translates `va`.
    #[inline(always)]
    fn is_surely_absent(&self, va: VirtAddr) -> bool {
        let sets = |only: OnlySize| &self.arrays[only.array as usize].sets;
        self.only.is_some_and(|only| !sets(only).may_hold(va.get() >> only.shift))
    }

    /// The part of [`Tlb::lookup`] that runs if no shortcut leads to a hit. Returns the slot of a
    /// hit.
    #[inline(never)]
    fn search_and_count(&mut self, va: VirtAddr, asid: Asid, kind: Kind) -> Result<usize, Miss> {
        if asid != self.space {
            self.forget_shortcuts();
            self.space = asid;
            self.is_mixed = true;
        }
        let slot = self.find_and_count(va, asid, kind)?;
        self.link(va, kind, slot);
        Ok(slot)
    }

    /// Searches for `va` and counts the result. Returns the slot of a hit.
    #[inline(always)]
    fn find_and_count(&mut self, va: VirtAddr, asid: Asid, kind: Kind) -> Result<usize, Miss> {
        let found = self.search(va, asid);
        let slot = match found {
            Some(slot) if self.rights_at(slot, va).allows(kind) => slot,
            other => {
                self.misses[kind as usize] += 1;
                return Err(self.count_miss(va, asid, other.is_some()));
            }
        };
        self.slots[slot].hits[kind as usize] += 1;
        self.policy.get_mut().touched(slot);
        Ok(slot)
    }

    /// The rights at `va` in the entry in `slot`, which translates it.
    #[inline]
    fn rights_at(&self, slot: usize, va: VirtAddr) -> Rights {
        match self.blocks {
            None => self.slots[slot].rights(va, self.paired),
            Some(_) => self.hit_at(slot, va).rights,
        }
    }

    /// Counts a miss and returns its reason. `is_there` is true if an entry was found, which then
    /// denies the access.
    #[inline]
    fn count_miss(&mut self, va: VirtAddr, asid: Asid, is_there: bool) -> Miss {
        if is_there {
            self.retired.denied += 1;
            Miss::Denied
        } else if self.paired && self.has_tag(va, asid) {
            self.retired.invalid += 1;
            Miss::Invalid
        } else {
            if self.blocks.is_some() && self.has_tag(va, asid) {
                self.retired.tag_hits += 1;
            }
            self.absent = Some((va, asid));
            Miss::Absent
        }
    }

    /// Whether an entry has the tag of the page or pair at `va`.
    #[cold]
    #[inline(never)]
    fn has_tag(&self, va: VirtAddr, asid: Asid) -> bool {
        sizes(self.live_sizes).any(|size| {
            self.array_of[size.shift() as usize].is_some_and(|array| {
                let number = self.number(va, size);
                let set = self.arrays[array as usize].sets.set_of(number);
                let serves = |slot: &Slot| slot.serves(asid);
                self.find_tagged(array as usize, set, size, number, serves).is_some()
            })
        })
    }

    /// The slot that translates `va` in `asid`, searched for without shortcuts.
    #[inline(always)]
    fn search(&self, va: VirtAddr, asid: Asid) -> Option<usize> {
        let Some(OnlySize { shift, array }) = self.only else { return self.search_sizes(va, asid) };
        let Array { sets, first } = &self.arrays[array as usize];
        let number = va.get() >> shift;
        let found = sets.find(sets.set_of(number), number, |slot| {
            let slot = &self.slots[first + slot];
            slot.covers(va) && slot.serves(asid)
        });
        found.map(|slot| first + slot)
    }

    /// The slot that translates `va` in `asid`, if there are entries of several sizes or for several
    /// pages.
    #[inline(never)]
    fn search_sizes(&self, va: VirtAddr, asid: Asid) -> Option<usize> {
        let mut shifts = self.live_sizes;
        while shifts != 0 {
            let shift = shifts.trailing_zeros();
            shifts &= shifts - 1;
            let array = self.array_of[shift as usize % 64]?;
            let Array { sets, first } = &self.arrays[array as usize];
            let (smallest, others) = self.tag_shifts;
            let more = if shift == self.smallest.shift() { smallest } else { others };
            let number = va.get() >> (shift + more);
            let has_bits = self.blocks.is_some();
            let found = sets.find(sets.set_of(number), number, |slot| {
                let slot = &self.slots[first + slot];
                slot.covers(va)
                    && slot.size().shift() == shift
                    && slot.serves(asid)
                    && (!has_bits || slot.has(va))
            });
            if let Some(slot) = found {
                return Some(first + slot);
            }
        }
        None
    }

    /// The slot of an entry with this tag for which `accepts` returns true.
    fn find_tagged(
        &self,
        array: usize,
        set: usize,
        size: PageSize,
        number: u64,
        accepts: impl Fn(&Slot) -> bool,
    ) -> Option<usize> {
        let Array { sets, first } = &self.arrays[array];
        let shift = self.number_shift(size);
        let found = sets.find(set, number, |slot| {
            let slot = &self.slots[first + slot];
            slot.is_tagged(size, number, shift) && accepts(slot)
        });
        found.map(|slot| first + slot)
    }

    /// Removes shortcuts to larger pages that cover `page`, which was just inserted, so that
    /// lookups find the smaller page.
    #[inline(never)]
    fn distrust_shortcuts(&mut self, page: Page) {
        let Tlb { shortcuts, slots, policy, .. } = self;
        let mut note = |forgotten| note(slots, policy.get_mut(), forgotten);
        if self.paired || self.blocks.is_some() || shortcuts.forget_page(page, &mut note) {
            self.forget_shortcuts();
        }
    }

    /// Makes a shortcut for the whole granule at `va` (see [`shortcuts`]) to `slot`. A search for
    /// `va` must end in this slot, and its entry must allow `kind`.
    #[inline]
    fn link(&mut self, va: VirtAddr, kind: Kind, slot: usize) {
        if !self.shortcuts.are_kept() {
            return;
        }
        let (entry, (small, _)) = (&self.slots[slot], self.shortcuts.granules());
        // No shortcut is made if there are entries for pages smaller than the granule, because such
        // a page may cover a part of it.
        let smaller_sizes = self.live_sizes & ((1 << small.shift()) - 1);
        if smaller_sizes == 0 {
            let phys = match self.blocks {
                None => entry.phys(va, self.paired),
                Some(_) => self.hit_at(slot, va).phys,
            };
            link(
                &mut self.shortcuts,
                (&mut self.slots, self.policy.get_mut()),
                (va, kind),
                (slot, phys),
            );
        }
    }

    /// Removes all shortcuts. The hits that they have recorded are kept.
    #[cold]
    #[inline(never)]
    fn forget_shortcuts(&mut self) {
        for slot in 0..self.slots.len() {
            let forgotten = self.shortcuts.forget(slot);
            note(&mut self.slots, self.policy.get_mut(), forgotten);
        }
    }

    /// Empties `slot`.
    fn remove(&mut self, slot: usize, evicted: &mut impl FnMut(Evicted)) {
        let size = self.slots[slot].size();
        self.retire(slot, evicted);
        self.slots[slot] = Slot::EMPTY;
        if let Some(array) = self.array_of[size.shift() as usize] {
            let Array { sets, first } = &mut self.arrays[array as usize];
            sets.vacate(slot - *first);
        }
    }
}

/// Whether searching each array takes about as long as following a shortcut.
fn has_small_sets(params: &TlbParams) -> bool {
    params.arrays.iter().all(|array| array.ways <= SEARCHED_WAYS_MAX)
}

/// Makes a shortcut for the granule at `va`, for accesses of `kind`, to `slot`, which translates `va`
/// to `phys`.
#[inline]
fn link(
    shortcuts: &mut Shortcuts,
    (slots, policy): (&mut [Slot], &mut TlbPolicy),
    (va, kind): (VirtAddr, Kind),
    (slot, phys): (usize, PhysAddr),
) {
    let entry = &slots[slot];
    let to_phys = phys.get().wrapping_sub(va.get());
    let target = Target { slot, label: entry.label(), to_phys };
    if let Some(displaced) = shortcuts.link(va, kind, entry.size(), target) {
        note(slots, policy, displaced);
    }
}

/// Stores the hits that a removed shortcut has recorded.
#[inline]
fn note(slots: &mut [Slot], policy: &mut TlbPolicy, forgotten: Use) {
    let Use { slot, hits, last } = forgotten;
    slots[slot].add_hits(hits);
    policy.touched_at(slot, last);
}

/// The page sizes whose log2 are the bits set in `shifts`, ascending.
#[inline]
fn sizes(shifts: u64) -> impl Iterator<Item = PageSize> {
    let mut left = shifts;
    core::iter::from_fn(move || {
        let shift = left.trailing_zeros() as u8;
        left &= left.wrapping_sub(1);
        PageSize::from_shift(shift)
    })
}
