//! Decisions about page sizes, counted by the regions under which misses are reported.
//!
//! ```text
//!   vm::Kernel --> Board: space, addresses, decision --settle--> label of the region --> counts
//!                                                       ^
//!                       the layout, with what the event under way has changed
//! ```
//!
//! The regions of the memory manager differ from those that a trace reports: the manager joins
//! adjacent mappings, so that a page can span two of the reported regions. Each decision is
//! therefore recorded with its address. It is counted when the operation is over, by the trace's
//! region at this address.

use std::collections::BTreeMap;

use addr::{VirtAddr, VirtRange};
use hat::HatSpace;
use ram::Ram;
use results::{ManagerCounts, SizeDecision, SizeReasons, count::labels::Layout};
use vm::{Decided, Decision, Why};

/// The number of pages for each region (by label) and decision.
type Counts = BTreeMap<(u32, Decision), u64>;

/// A recorded decision.
pub(super) struct Made {
    pub(super) space: HatSpace,
    /// The addresses that the decision concerns.
    pub(super) range: VirtRange,
    pub(super) decision: Decision,
    pub(super) of: Decided,
}

/// All decisions.
#[derive(Default)]
pub(super) struct Decisions {
    /// The decisions of the current operation.
    pub(super) made: Vec<Made>,
    /// The decision of the most recent loads, with the number of their pages. It is kept apart
    /// because consecutive faults mostly have equal decisions.
    last: Option<((u32, Decision), u64)>,
    /// By label and decision, the pages that were loaded before those in `last`.
    loaded: Counts,
    /// By label and decision, the number of large pages that were requested.
    asked: Counts,
    /// For each space that a fork created, the number of its parent's space. An entry stays until
    /// the child runs.
    pub(super) forked: BTreeMap<HatSpace, u32>,
    /// The number of the last decision's space.
    number: u32,
}

impl Decisions {
    /// Sets the address of all decisions of the current fault to `addr`.
    pub(super) fn are_at(&mut self, addr: VirtAddr) {
        if let Ok(at) = VirtRange::new(addr, 1) {
            self.made.iter_mut().for_each(|made| made.range = at);
        }
    }

    /// Counts the decisions of the operation.
    pub(super) fn settle(&mut self, ram: &Ram, layout: &mut Layout) {
        for Made { space, range, decision, of } in self.made.drain(..) {
            if ram.hat_space(self.number) != Some(space) {
                let named = ram.hat_spaces().find(|(_, known)| *known == space);
                let number = named.map(|(number, _)| number).or(self.forked.get(&space).copied());
                self.number =
                    number.expect("each space has a number in the trace, or was created by a fork");
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

    /// Adds the decisions to `counts`. `places` has, for each label, the index of its region in the
    /// results.
    pub(super) fn enter(&self, places: &[u32], counts: &mut ManagerCounts) {
        let loaded = self.loaded.iter().map(|(of, pages)| (*of, *pages)).chain(self.last);
        let loaded = placed(loaded, places);
        let asked = placed(self.asked.iter().map(|(of, pages)| (*of, *pages)), places);
        counts.page_sizes = reasons(&loaded);
        (counts.sizes, counts.upgrades) = (rows(&loaded), rows(&asked));
    }
}

/// `counts` with each label replaced by the index of its region in the results.
fn placed(counts: impl Iterator<Item = ((u32, Decision), u64)>, places: &[u32]) -> Counts {
    let mut sums = Counts::new();
    for ((label, decision), pages) in counts {
        *sums.entry((places[label as usize], decision)).or_insert(0) += pages;
    }
    sums
}

/// For each region, the reasons for its page sizes; the names of regions are added later.
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

/// The decisions for which several sizes were possible; the names of regions are added later.
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
