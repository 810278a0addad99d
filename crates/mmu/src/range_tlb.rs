//! A range TLB: translations of ranges of any length, under a base and a limit (Karakostas and others
//! 2015, *Redundant Memory Mappings*).
//!
//! ```text
//!   va --> base <= va < limit?  | base | limit | offset | rights |     va + offset
//!                               | ...                            |
//! ```
//!
//! It is fully associative, as no bits of an address tell which entry could cover it, and so has few
//! entries. It is asked where the TLB of the second level is, at the same time.
//!
//! What an entry is made of is the filler's matter: a range that an operating system tells, or the run that
//! a walk finds in the one line of page-table entries that it reads. Runs of several lines then become one
//! entry as they come in (CoLT's fully associative part, Pham and others 2012):
//!
//! ```text
//!   line of 8 entries   | . . a a+1 a+2 a+3 a+4 a+5 |      held already   | .. a-1 |
//!                             '---- the new run ---'   -->  one entry      | .. a-1 a ... a+5 |
//! ```

use addr::{Asid, Kind, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::{AnyReplacement, GeometryError, Miss, Policy, SetArray};

/// What a range TLB is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeTlbParams {
    /// Ranges that it holds.
    pub entries: u32,
    /// Which entry makes room.
    pub replacement: Policy,
    /// Where the random numbers of the replacement begin.
    pub seed: u64,
}

/// Adjacent pages in adjacent frames, with equal rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeEntry {
    /// The addresses.
    pub range: VirtRange,
    /// Where the first of them lies.
    pub first: PhysAddr,
    /// Whose they are.
    pub asid: Asid,
    /// What is allowed.
    pub rights: Rights,
}

impl RangeEntry {
    /// Where `va`, which it covers, lies.
    pub fn apply(&self, va: VirtAddr) -> PhysAddr {
        PhysAddr::new(self.first.get() + (va.get() - self.range.start().get()))
    }

    fn covers(&self, va: VirtAddr, asid: Asid) -> bool {
        self.asid == asid && self.range.start() <= va && va <= self.range.last()
    }

    /// This entry and `other` in one, if they can be and that is more than this one.
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

/// What a range TLB has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RangeTlbCounts {
    /// Entries put in.
    pub fills: u64,
    /// Entries that made room for others.
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
    /// An empty one.
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

    /// What it is like.
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

    /// Makes `entry` part of it; what overlaps it goes.
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

    /// Makes `entry` part of it, as one with those that it continues: adjacent or the same addresses, at one
    /// offset, with equal rights. What else overlaps it goes.
    pub fn fill_merged(&mut self, entry: RangeEntry) {
        let mut all = entry;
        while let Some(joined) = self.entries().find_map(|held| all.joined(held)) {
            all = joined;
        }
        self.fill(all);
    }

    /// Forgets what covers any address of `range` in `asid`; gives how many entries.
    pub fn flush_range(&mut self, range: VirtRange, asid: Asid) -> u64 {
        self.flush_where(|entry| entry.touches(range, asid))
    }

    /// Forgets all of one space.
    pub fn flush_asid(&mut self, asid: Asid) -> u64 {
        self.flush_where(|entry| entry.asid == asid)
    }

    /// Forgets everything.
    pub fn flush_all(&mut self) -> u64 {
        self.flush_where(|_| true)
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = &RangeEntry> {
        self.slots.iter().flatten()
    }

    /// What has been counted so far.
    pub const fn counts(&self) -> RangeTlbCounts {
        self.counts
    }

    /// Begins to count anew; the entries stay.
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
