//! Shootdowns that are left out on purpose, and the check that finds stale entries after a
//! shootdown.
//!
//! ```text
//!   shoot(flush) --> is it the n-th? --> left out: no processor flushes anything
//!                       | no
//!                       v
//!                    TLBs flushed --> checked: what they still hold of its pages is what the
//!                                     page table says
//! ```
//!
//! An entry with fewer rights than the page table gives is not stale: an access that it denies
//! causes a walk.

use addr::Asid;
use description::{Description, Inject};
use hardware::tlbs::TlbUnits;
use mmu::{RangeEntry, TlbEntry};
use os::host::Stack;
use pagetable::{Flush, Scope};
use results::count::census::TABLES;

use super::{constants::Constants, hooks::Hook};

/// The state of left-out shootdowns and of the check for stale entries.
#[derive(Debug)]
pub(super) struct Watch {
    /// The number of shootdowns until the shootdown that is left out; `None` if no shootdown is
    /// left out.
    until_forgotten: Option<u64>,
    /// Whether TLBs are checked after each shootdown.
    check: bool,
    /// The first stale entry, as an error message.
    pub(super) lie: Option<String>,
}

impl Watch {
    /// `Some` if `description` requests that a shootdown be left out, or if the run is checked.
    pub(super) fn of(description: &Description, constants: &Constants) -> Option<Watch> {
        let until_forgotten = match description.os.inject {
            Some(Inject::SkipShootdown(number)) => Some(number),
            Some(Inject::FailAllocation(_)) | None => None,
        };
        let check = constants.check;
        let is_asked = check || until_forgotten.is_some();
        is_asked.then_some(Watch { until_forgotten, check, lie: None })
    }

    /// Whether TLBs are checked.
    pub(super) fn looks(&self) -> bool {
        self.check
    }

    /// Counts a shootdown that drops entries. Returns whether this shootdown must be left out.
    pub(super) fn is_forgotten(&mut self) -> bool {
        let Some(left) = &mut self.until_forgotten else { return false };
        *left -= 1;
        let is_due = *left == 0;
        if is_due {
            self.until_forgotten = None;
        }
        is_due
    }

    /// In a checked run: after a flush, checks the entries that the TLBs of a processor hold for
    /// the pages that `flush` named.
    pub(super) fn look(
        &mut self,
        processor: usize,
        hardware: &TlbUnits,
        stack: &Stack,
        flush: &Flush,
        asid: Asid,
    ) {
        if self.lie.is_none() {
            self.lie = stale(processor, hardware, stack, flush, asid);
        }
    }
}

impl Hook for Watch {
    fn allows_dense(&self) -> bool {
        true
    }

    fn leaves_prices(&self) -> bool {
        true
    }

    fn hears_misses(&self) -> bool {
        false
    }

    /// Does not reset the number of shootdowns, since they are counted from the first access on.
    fn forget_counts(&mut self) {
        let Watch { until_forgotten: _, check: _, lie: _ } = self;
    }
}

/// An error message for a TLB entry of a page named by `flush`, if the entry differs from the page
/// table.
fn stale(
    processor: usize,
    hardware: &TlbUnits,
    stack: &Stack,
    flush: &Flush,
    asid: Asid,
) -> Option<String> {
    let named = flush.scope();
    let is_named = |entry: &&RangeEntry| match named {
        Scope::Nothing => false,
        Scope::Pages { range, .. } => {
            entry.range.start() <= range.last() && range.start() <= entry.range.last()
        }
        Scope::Space => true,
    };
    let ranges = hardware.ranges.iter().flat_map(|unit| unit.tlb.entries());
    if let Some(held) = ranges.filter(|entry| entry.asid == asid).find(is_named) {
        return Some(format!(
            "the range TLB of processor {processor} still translates {} to {} after a shootdown",
            held.range.start(),
            held.first
        ));
    }
    hardware.units.iter().find_map(|unit| {
        let is_own = |(entry, _): &(TlbEntry, u32)| entry.global || entry.asid == asid;
        let entries = match named {
            Scope::Nothing => Vec::new(),
            // Most shootdowns name one page, and the second level of TLBs has thousands of entries.
            Scope::Pages { range, .. } => unit.tlb.entries_for(range, asid),
            Scope::Space => unit.tlb.entries().filter(is_own).collect(),
        };
        let of_pages = entries.into_iter().filter(|(_, label)| *label != TABLES);
        let mut held = of_pages.flat_map(|(entry, _)| entry.pages(unit.tlb.is_paired()));
        held.find_map(|(page, frame, rights)| {
            if !named.covers(page) {
                return None;
            }
            let at = page.start();
            let said = stack.query(flush.space(), at);
            let said = said.map(|said| (said.apply(at), said.rights));
            if said.is_some_and(|(phys, allowed)| phys == frame && allowed.contains(rights)) {
                return None;
            }
            let said =
                said.map_or("nothing".to_owned(), |(phys, allowed)| format!("{phys} ({allowed})"));
            Some(format!(
                "tlb.{} of processor {processor} still translates {at} to {frame} ({rights}) \
                 after a shootdown, but the page table says {said}",
                unit.name
            ))
        })
    })
}
