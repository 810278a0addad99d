//! A range TLB: translations of ranges of any length, as base, limit and offset (Karakostas and
//! others 2015, *Redundant Memory Mappings*).
//!
//! ```text
//!   va --> base <= va < limit?  | base | limit | offset | rights |     va + offset
//!                               | ...                            |
//! ```
//!
//! A range TLB is fully associative, since no address bits determine which entry could cover an
//! address, and therefore has few entries. It is looked up at the same time as the second-level
//! TLB.
//!
//! The user of the range TLB determines what becomes an entry. It is either a range that the
//! operating system reports, or a run of pages that a walk finds in the cache line of page-table
//! entries that it reads. In the second case, runs in adjacent lines are merged when they are
//! inserted (CoLT's fully associative part, Pham and others 2012):
//!
//! ```text
//!   line of 8 entries   | . . a a+1 a+2 a+3 a+4 a+5 |      held already   | .. a-1 |
//!                             '---- the new run ---'   -->  one entry      | .. a-1 a ... a+5 |
//! ```

use addr::{Asid, Kind, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::{AnyReplacement, GeometryError, Miss, Policy, SetArray};

/// The parameters of a range TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeTlbParams {
    /// The number of ranges that the range TLB holds.
    pub entries: u32,
    /// The policy that chooses the entry to replace.
    pub replacement: Policy,
    /// The seed of a random replacement policy.
    pub seed: u64,
}

/// A range of adjacent pages in adjacent frames, with equal rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeEntry {
    /// The virtual addresses.
    pub range: VirtRange,
    /// The physical address of the first byte of the range.
    pub first: PhysAddr,
    /// The space of the addresses.
    pub asid: Asid,
    /// The allowed accesses.
    pub rights: Rights,
}

impl RangeEntry {
    /// The physical address of `va`, which is in the range.
    pub fn apply(&self, va: VirtAddr) -> PhysAddr {
        PhysAddr::new(self.first.get() + (va.get() - self.range.start().get()))
    }

    fn covers(&self, va: VirtAddr, asid: Asid) -> bool {
        self.asid == asid && self.range.start() <= va && va <= self.range.last()
    }

    /// The union of this entry and `other`, if the two can be merged and the union is larger than
    /// this entry.
    fn joined(&self, other: &RangeEntry) -> Option<RangeEntry> {
        let offset = |of: &RangeEntry| of.first.get().wrapping_sub(of.range.start().get());
        let is_alike =
            (self.asid, self.rights, offset(self)) == (other.asid, other.rights, offset(other));
        let meets = |a: VirtRange, b: VirtRange| {
            a.last().get().checked_add(1).is_none_or(|end| b.start().get() <= end)
        };
        let (own, others) = (self.range, other.range);
        if !is_alike || !meets(own, others) || !meets(others, own) {
            return None;
        }
        let (start, last) = (own.start().min(others.start()), own.last().max(others.last()));
        let range = VirtRange::new(start, (last.get() - start.get()).checked_add(1)?).ok()?;
        let first = if start == own.start() { self.first } else { other.first };
        (range != own).then_some(RangeEntry { range, first, ..*self })
    }

    fn touches(&self, range: VirtRange, asid: Asid) -> bool {
        self.asid == asid
            && self.range.start() <= range.last()
            && range.start() <= self.range.last()
    }
}

/// Counts of a range TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RangeTlbCounts {
    /// Entries inserted.
    pub fills: u64,
    /// Entries replaced by others.
    pub evictions: u64,
    /// Entries flushed.
    pub flushed: u64,
}

/// A range TLB.
#[derive(Clone, Debug)]
pub struct RangeTlb {
    params: RangeTlbParams,
    slots: Box<[Option<RangeEntry>]>,
    policy: AnyReplacement,
    counts: RangeTlbCounts,
}

impl RangeTlb {
    /// An empty range TLB.
    pub fn new(params: RangeTlbParams) -> Result<RangeTlb, GeometryError> {
        let entries = u64::from(params.entries);
        if entries == 0 {
            return Err(GeometryError::Empty);
        }
        if entries > SetArray::ENTRIES_MAX {
            return Err(GeometryError::TooLarge { entries });
        }
        let ways = params.entries as usize;
        Ok(RangeTlb {
            slots: vec![None; ways].into_boxed_slice(),
            policy: AnyReplacement::new(params.replacement, core::iter::once(ways), params.seed),
            params,
            counts: RangeTlbCounts::default(),
        })
    }

    /// The parameters.
    pub const fn params(&self) -> &RangeTlbParams {
        &self.params
    }

    /// The range that covers `va` for an access of `kind`.
    pub fn lookup(&mut self, va: VirtAddr, asid: Asid, kind: Kind) -> Result<RangeEntry, Miss> {
        let covers = |slot: &Option<RangeEntry>| slot.is_some_and(|entry| entry.covers(va, asid));
        let slot = self.slots.iter().position(covers).ok_or(Miss::Absent)?;
        match self.slots[slot] {
            Some(entry) if entry.rights.allows(kind) => {
                self.policy.touched(slot);
                Ok(entry)
            }
            _ => Err(Miss::Denied),
        }
    }

    /// Inserts `entry` and removes all entries that overlap it.
    pub fn fill(&mut self, entry: RangeEntry) {
        let overlaps = |held: &RangeEntry| held.touches(entry.range, entry.asid);
        self.remove_where(overlaps);
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.counts.evictions += 1;
                self.policy.victim(0..self.slots.len())
            }
        };
        self.slots[slot] = Some(entry);
        self.policy.inserted(slot);
        self.counts.fills += 1;
    }

    /// Inserts `entry`, merged with the entries that it continues. These entries have adjacent or
    /// overlapping addresses, the offset of `entry` and equal rights. Other entries that overlap
    /// `entry` are removed.
    pub fn fill_merged(&mut self, entry: RangeEntry) {
        let mut all = entry;
        while let Some(joined) = self.entries().find_map(|held| all.joined(held)) {
            all = joined;
        }
        self.fill(all);
    }

    /// Removes the entries that cover any address of `range` in `asid`. Returns their number.
    pub fn flush_range(&mut self, range: VirtRange, asid: Asid) -> u64 {
        self.flush_where(|entry| entry.touches(range, asid))
    }

    /// Removes all entries of one space. Returns their number.
    pub fn flush_asid(&mut self, asid: Asid) -> u64 {
        self.flush_where(|entry| entry.asid == asid)
    }

    /// Removes all entries. Returns their number.
    pub fn flush_all(&mut self) -> u64 {
        self.flush_where(|_| true)
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = &RangeEntry> {
        self.slots.iter().flatten()
    }

    /// The counts so far.
    pub const fn counts(&self) -> RangeTlbCounts {
        self.counts
    }

    /// Resets the counts to zero; the entries stay.
    pub fn forget_counts(&mut self) {
        let RangeTlb { params: _, slots: _, policy: _, counts } = self;
        *counts = RangeTlbCounts::default();
    }

    fn flush_where(&mut self, goes: impl Fn(&RangeEntry) -> bool) -> u64 {
        let flushed = self.remove_where(goes);
        self.counts.flushed += flushed;
        flushed
    }

    fn remove_where(&mut self, goes: impl Fn(&RangeEntry) -> bool) -> u64 {
        let mut removed = 0;
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some_and(|entry| goes(&entry)) {
                self.slots[slot] = None;
                self.policy.removed(slot);
                removed += 1;
            }
        }
        removed
    }
}
