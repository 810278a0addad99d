//! What was decided about sizes of pages, by the regions that misses are counted under.
//!
//! ```text
//!   vm::Kernel --> Board: space, addresses, decision --settle--> label of the region --> counts
//!                                                       ^
//!                       the layout, with what the event under way has changed
//! ```
//!
//! Regions of the memory manager are not those that a trace tells of: adjacent mappings become one, so that
//! a page can be as large as both. So each decision is taken down with its address, and counted once the
//! operation is over.

use std::collections::BTreeMap;

use addr::{VirtAddr, VirtRange};
use hat::HatSpace;
use vm::{Decided, Decision, Why};

use crate::{
    count::results::{ManagerCounts, SizeDecision, SizeReasons},
    os::Layout,
    ram::Ram,
};

/// Pages by region and what was decided.
type Counts = BTreeMap<(u32, Decision), u64>;

/// One that was taken down.
pub(super) struct Made {
    pub(super) space: HatSpace,
    /// What it is about.
    pub(super) range: VirtRange,
    pub(super) decision: Decision,
    pub(super) of: Decided,
}

/// All of them.
#[derive(Default)]
pub(super) struct Decisions {
    /// Those of the operation under way.
    pub(super) made: Vec<Made>,
    /// By label: pages that were loaded ...
    loaded: Counts,
    /// ... and large pages that were asked for.
    asked: Counts,
    /// Spaces that a fork made, and the numbers of those that they are like until they run.
    pub(super) forked: BTreeMap<HatSpace, u32>,
    /// The number of the space that one was of last.
    number: u32,
}

impl Decisions {
    /// All that were made at the fault under way are about `addr`.
    pub(super) fn are_at(&mut self, addr: VirtAddr) {
        if let Ok(at) = VirtRange::new(addr, 1) {
            self.made.iter_mut().for_each(|made| made.range = at);
        }
    }

    /// Counts what the operation has decided.
    pub(super) fn settle(&mut self, ram: &Ram, layout: &mut Layout) {
        for Made { space, range, decision, of } in self.made.drain(..) {
            if ram.hat_space(self.number) != Some(space) {
                let named = ram.hat_spaces().find(|(_, known)| *known == space);
                let number = named.map(|(number, _)| number).or(self.forked.get(&space).copied());
                self.number = number.expect("a space is the trace's, or of a fork in it");
            }
            let label = layout.label_within(self.number, range);
            let (counts, pages) = match of {
                Decided::Loaded(pages) => (&mut self.loaded, pages),
                Decided::Asked => (&mut self.asked, 1),
            };
            *counts.entry((label, decision)).or_insert(0) += pages;
        }
    }

    pub(super) fn forget_counts(&mut self) {
        (self.loaded, self.asked) = Default::default();
        self.made.clear();
    }

    /// Enters what was decided into `counts`; `places` are those of the labels among the results' regions.
    pub(super) fn enter(&self, places: &[u32], counts: &mut ManagerCounts) {
        let (loaded, asked) = (placed(&self.loaded, places), placed(&self.asked, places));
        counts.page_sizes = reasons(&loaded);
        (counts.sizes, counts.upgrades) = (rows(&loaded), rows(&asked));
    }
}

/// The same by the region's place.
fn placed(counts: &Counts, places: &[u32]) -> Counts {
    let mut sums = Counts::new();
    for (&(label, decision), pages) in counts {
        *sums.entry((places[label as usize], decision)).or_insert(0) += pages;
    }
    sums
}

/// Regions without their names, and the reasons there.
fn reasons(counts: &Counts) -> Vec<SizeReasons> {
    let mut rows: Vec<SizeReasons> = Vec::new();
    for (&(place, decision), pages) in counts {
        if rows.last().is_none_or(|row| row.place != place) {
            rows.push(SizeReasons { region: String::new(), pages: BTreeMap::new(), place });
        }
        if let Some(row) = rows.last_mut() {
            *row.pages.entry(decision.why.name().to_owned()).or_insert(0) += pages;
        }
    }
    rows
}

/// What was decided where there was a choice, without the names of regions.
fn rows(counts: &Counts) -> Vec<SizeDecision> {
    let chosen = counts.iter().filter(|((_, of), _)| of.why != Why::PolicyAsksBase);
    let row = |(&(place, of), &pages): (&(u32, Decision), &u64)| SizeDecision {
        region: String::new(),
        wanted: of.wanted.to_string(),
        got: of.got.to_string(),
        why: of.why.name().to_owned(),
        pages,
        place,
    };
    chosen.map(row).collect()
}
