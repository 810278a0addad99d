//! Small address spaces in a run: which spaces of the trace are in which slots, and how addresses
//! of the running space are relocated to those that TLBs use (U02).
//!
//! ```text
//!   access at va --> view: va + base --> trace cache, TLBs --> walk from the root that is loaded
//!                     | beyond the limit                         | an entry of it is missing
//!                     v                                          v
//!                   the space becomes large                    copied from the space's own root
//! ```
//!
//! [`hat::small`] makes the decisions, and has no access to TLBs or traces. This module applies
//! them to the processors of a run, prices them, and chooses which of a trace's spaces are
//! requested to be small. The base of a space that is not small is 0, so that accesses need no test
//! whether their space is small.

mod members;
mod switch;
mod view;

use std::collections::BTreeMap;

use description::{self, Description, Refusal};
use hat::{
    HatSpace,
    small::{Counts, Revoke, Schedule, SlotLayout, SmallSpaces},
};
use pagetable::Space;
use ram::table::{
    Relocation,
    small::{layout, relocation},
};
use results::{SmallSpaceCounts, SwitchCycles};

use self::members::Wish;
pub(super) use self::view::{View, moved, relocate};
use super::hooks::Hook;

/// Bytes of a cache line. A root is searched line by line.
const LINE_BYTES: u64 = 64;

/// A space that has run.
#[derive(Clone, Copy, Debug)]
struct SpaceState {
    hat: HatSpace,
    /// Whether the space has addresses beyond a slot.
    is_too_large: bool,
    was_small: bool,
    has_run: bool,
    was_entered: bool,
}

/// Cycles of the parts of a switch.
#[derive(Clone, Copy, Debug)]
struct Prices {
    root: u64,
    segments: u64,
    /// The cycles of searching a root for the entries of a slot.
    looked: u64,
    entry: u64,
}

/// The small spaces on the processors of a run.
pub struct Small {
    spaces: SmallSpaces,
    layout: SlotLayout,
    relocation: Relocation,
    described: description::Small,
    prices: Option<Prices>,
    /// The requests by the trace's number of the space; `None` if all spaces are to be small.
    wishes: Option<BTreeMap<u32, Wish>>,
    known: BTreeMap<u32, SpaceState>,
    /// The spaces whose page tables are the roots of groups.
    roots: BTreeMap<HatSpace, Space>,
    /// The operations since the counts were reset, without the entry of each processor into its
    /// first space.
    counted: Counts,
    no_slot: u64,
    worst: u64,
    cycles: u64,
}

impl Small {
    /// `Some` if `description` requests small spaces. The error has the key that is wrong.
    pub fn of(description: &Description) -> Result<Option<Small>, Refusal> {
        let Some(layout) = layout(description)? else { return Ok(None) };
        let Some(described) = description.os.small.clone() else { return Ok(None) };
        let refuse =
            |key: &str, what: &str| Err(Refusal::new(format!("os.small.{key}"), what.to_owned()));
        let revoke = match described.revoke {
            description::Revoke::Purge => Revoke::Purge,
            description::Revoke::Versioned => Revoke::Versioned,
            description::Revoke::Groups => Revoke::Groups,
        };
        let has_groups = !described.groups.is_empty() || !described.everywhere.is_empty();
        match (revoke, has_groups) {
            (Revoke::Groups, false) => {
                return refuse(
                    "groups",
                    "the groups are missing: set os.small.groups, as in groups = [[\"cat\", \
                     \"wc\"]]; `pagewalk info --switches FILE` proposes groups",
                );
            }
            (Revoke::Purge | Revoke::Versioned, true) => {
                return refuse(
                    "revoke",
                    "os.small.groups and os.small.everywhere need os.small.revoke = \"groups\"",
                );
            }
            (Revoke::Groups, true) | (Revoke::Purge | Revoke::Versioned, false) => {}
        }
        if described.everywhere.len() > usize::from(layout.slots()) {
            let what = format!(
                "{} spaces should be in every group, but there are only {} slots: name fewer \
                 spaces, or make os.small.slot smaller",
                described.everywhere.len(),
                layout.slots()
            );
            return Err(Refusal::new("os.small.everywhere", what));
        }
        let schedule = match described.schedule {
            description::Schedule::FirstCome => Schedule::FirstCome,
            description::Schedule::Lru => Schedule::Lru,
            description::Schedule::Frequent => Schedule::Frequent,
        };
        let cpus = description.core.count as usize;
        let relocation = relocation(description)?;
        let entries = layout.slot_bytes() / relocation.covers;
        let prices = description.os.costs.as_ref().map(|costs| {
            let [root, segments, line, entry] = costs.of_switch();
            let lines = (entries * relocation.entry_bytes).div_ceil(LINE_BYTES);
            Prices { root, segments, looked: lines * line + entries * entry, entry }
        });
        Ok(Some(Small {
            spaces: SmallSpaces::new(layout, revoke, schedule, cpus),
            layout,
            relocation,
            described,
            prices,
            wishes: None,
            known: BTreeMap::new(),
            roots: BTreeMap::new(),
            counted: Counts::default(),
            no_slot: 0,
            worst: 0,
            cycles: 0,
        }))
    }

    /// Counts and prices the operations since `before`.
    fn note(&mut self, before: Counts, is_switch: bool) -> Done {
        let done = self.spaces.counts() - before;
        self.counted += done;
        let cycles = self.prices.map_or(0, |prices| {
            done.root_loads * prices.root
                + done.segment_loads * prices.segments
                + done.roots_purged * prices.looked
                + (done.entries_purged + done.versions_compared) * prices.entry
        });
        if is_switch {
            self.worst = self.worst.max(cycles);
            self.cycles += cycles;
        }
        Done { root_loads: done.root_loads, segment_loads: done.segment_loads, cycles }
    }

    /// The places at which the TLBs of `processor` can have entries of the space: for each place,
    /// the number that is added to the space's addresses.
    pub(super) fn bases(&self, processor: usize, hat: HatSpace) -> [Option<u64>; 2] {
        let is_loaded = self.spaces.on(processor).0 == Some(hat);
        let slot = self.spaces.slot_of(hat).map(|slot| self.layout.range(slot).start().get());
        [is_loaded.then_some(0), slot]
    }

    /// The size of a slot in bytes.
    pub(super) fn slot_bytes(&self) -> u64 {
        self.layout.slot_bytes()
    }

    /// The counts for the results.
    pub fn counts(&self) -> SmallSpaceCounts {
        let Counts {
            root_loads,
            segment_loads,
            switches,
            copies,
            revoked,
            roots_purged,
            entries_purged,
            versions_compared,
            promoted,
        } = self.counted;
        SmallSpaceCounts {
            slots: self.layout.slots().into(),
            slot_bytes: self.layout.slot_bytes(),
            spaces: self.known.len() as u64,
            small: self.known.values().filter(|known| known.was_small).count() as u64,
            switches,
            root_loads,
            segment_loads,
            copies,
            promoted,
            revoked,
            no_slot: self.no_slot,
            roots_purged,
            entries_purged,
            versions_compared,
            switch_cycles: self.prices.map(|_| SwitchCycles {
                mean: self.cycles as f64 / switches.max(1) as f64,
                worst: self.worst,
            }),
        }
    }
}

impl Hook for Small {
    /// True, because walks of many misses together also start at the loaded root, and this feature
    /// acts only on faults.
    fn allows_dense(&self) -> bool {
        true
    }

    fn forget_counts(&mut self) {
        let Small {
            spaces: _,
            layout: _,
            relocation: _,
            described: _,
            prices: _,
            wishes: _,
            known: _,
            roots: _,
            counted,
            no_slot,
            worst,
            cycles,
        } = self;
        *counted = Counts::default();
        (*no_slot, *worst, *cycles) = (0, 0, 0);
    }
}

/// The effects of a switch or a promotion on the processor.
struct Done {
    root_loads: u64,
    segment_loads: u64,
    cycles: u64,
}
