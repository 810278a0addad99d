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
        self.counts = RangeTlbCounts::default();
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
