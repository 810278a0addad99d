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
use ram::Ram;
use results::{ManagerCounts, SizeDecision, SizeReasons, count::labels::Layout};
use vm::{Decided, Decision, Why};

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
    /// The last that was counted of a load, and its pages so far: faults one after the other are mostly alike.
    last: Option<((u32, Decision), u64)>,
    /// By label: pages that were loaded before ...
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
            let of_region = (layout.label_within(self.number, range), decision);
            match (of, &mut self.last) {
                (Decided::Asked, _) => *self.asked.entry(of_region).or_insert(0) += 1,
                (Decided::Loaded(more), Some((last, pages))) if *last == of_region => {
                    *pages += more
                }
                (Decided::Loaded(pages), last) => {
                    if let Some((before, pages)) = last.replace((of_region, pages)) {
                        *self.loaded.entry(before).or_insert(0) += pages;
                    }
                }
            }
        }
    }

    pub(super) fn forget_counts(&mut self) {
        let Decisions { made, last, loaded, asked, forked: _, number: _ } = self;
        (*last, *loaded, *asked) = Default::default();
        made.clear();
    }

    /// Enters what was decided into `counts`; `places` are those of the labels among the results' regions.
    pub(super) fn enter(&self, places: &[u32], counts: &mut ManagerCounts) {
        let loaded = self.loaded.iter().map(|(of, pages)| (*of, *pages)).chain(self.last);
        let loaded = placed(loaded, places);
        let asked = placed(self.asked.iter().map(|(of, pages)| (*of, *pages)), places);
        counts.page_sizes = reasons(&loaded);
        (counts.sizes, counts.upgrades) = (rows(&loaded), rows(&asked));
    }
}

/// `counts` by the place of the region among the results' regions, in place of its label.
fn placed(counts: impl Iterator<Item = ((u32, Decision), u64)>, places: &[u32]) -> Counts {
    let mut sums = Counts::new();
    for ((label, decision), pages) in counts {
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
