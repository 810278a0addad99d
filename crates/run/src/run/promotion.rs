//! On-line promotion: pages are replaced by a larger page once the misses that the larger page would
//! have avoided have cost as much as the promotion (Romer, Ohlrich, Karlin and Bershad 1995).
//!
//! ```text
//!   miss of a page --> each larger page that it could be a part of, its candidates:
//!                        does a TLB hold another part of it? then a larger page would have hit:
//!                            one miss more is charged to the candidate
//!                        charged misses x miss_cycles >= its base pages x page_cycles?
//!                            the operating system promotes it, the largest first
//! ```
//!
//! The cost of a promotion is therefore at most about the cost of the earlier misses, whatever
//! accesses follow: this is the bound of a competitive algorithm. The policy is `approx-online` of
//! the paper, which does not count TLB entries that a larger page would have evicted.
//!
//! A first touch is not charged to any candidate. If a promotion fails, the candidate's charge is
//! reset. Charges of pages that are unmapped or replaced are dropped.

use std::collections::BTreeMap;

use addr::{Kind, PageSize, VirtAddr, VirtRange};
use description::{Description, Error, Refusal};
use hardware::{behind::Behind, processor::Processor, tlbs::NONE};
use os::{System, events::Gone};
use results::{PromotionCounts, PromotionsOfSize};

use super::{
    Run,
    access::Lookup,
    hooks::{Hook, Hooks},
};

/// The cycles of a miss, if the machine does not state them.
const MISS_CYCLES: u32 = 40;
/// Cycles of counting one miss: an assumption for a handler that reads and writes a counter per
/// page size.
const COUNT_CYCLES: u32 = 30;

/// The charges of candidates, and the charge at which each size is promoted.
pub struct Promotion {
    /// The larger page sizes, ascending, each with the charge at which a page of this size is
    /// promoted.
    sizes: Vec<(PageSize, u64)>,
    /// Whether both pages of a TLB's pair are promoted together.
    paired: bool,
    base: PageSize,
    page_cycles: u64,
    pub count_cycles: u64,
    /// Whether the operating system has its own price for promotions.
    is_priced: bool,
    /// The charges by space, first address and size of the candidate.
    charges: BTreeMap<(u32, u64, PageSize), Charge>,
    counts: Counts,
}

/// The charge of a candidate.
#[derive(Clone, Copy, Default)]
struct Charge {
    misses: u64,
    /// The address of a page of the candidate that a TLB held at the last check.
    seen: u64,
}

#[derive(Clone, Default)]
struct Counts {
    misses: u64,
    charged: u64,
    /// By size: the number of large pages made, and the number of attempts that failed.
    made: BTreeMap<PageSize, (u64, u64)>,
    pages: u64,
}

impl Promotion {
    /// `Some` if `description` requests promotion. The error has the key that is wrong.
    pub fn of(
        description: &Description,
        system: &dyn System,
    ) -> Result<Option<Promotion>, Refusal> {
        let os = &description.os;
        let Some(asked) = &os.promotion else { return Ok(None) };
        let refuse =
            |key: &str, what: String| Err(Refusal::new(format!("os.promotion{key}"), what));
        let all = system.promotes_to();
        if all.is_empty() {
            let what = format!(
                "the manager `{}` has no larger pages that this machine's TLBs hold: use os.manager \
                 = \"irix\", \"base\", \"linux\", \"freebsd\" or \"first-touch\", and list the \
                 larger pages in the page_sizes of the TLBs",
                os.manager
            );
            return refuse("", what);
        }
        for size in asked.sizes.iter().map(|size| size.0) {
            if !all.contains(&size) {
                let names: Vec<String> = all.iter().map(PageSize::to_string).collect();
                let what = format!(
                    "pages cannot be promoted to {size} on this machine: choose from {}",
                    names.join(", ")
                );
                return refuse(".sizes", what);
            }
        }
        let chosen = all
            .iter()
            .filter(|all| asked.sizes.is_empty() || asked.sizes.iter().any(|one| one.0 == **all));
        let base = os.base();
        let costs = os.costs.as_ref();
        let miss_cycles = asked.miss_cycles.or(costs.map(|costs| costs.walk_cycles));
        let miss_cycles = u64::from(miss_cycles.unwrap_or(MISS_CYCLES));
        let copied = costs.and_then(|costs| Some(costs.work.as_ref()?.copied));
        let page_cycles = asked.page_cycles.or(copied).map_or(base.bytes() / 2, u64::from);
        for (key, cycles) in [(".miss_cycles", miss_cycles), (".page_cycles", page_cycles)] {
            if cycles == 0 {
                return refuse(key, "0 cycles are not possible: write 1 or more".into());
            }
        }
        let paired = system.promotes_pairs();
        let threshold = |size: PageSize| {
            let pages = size.count_of(base) << u32::from(paired);
            (pages * page_cycles).div_ceil(miss_cycles)
        };
        Ok(Some(Promotion {
            sizes: chosen.map(|size| (*size, threshold(*size))).collect(),
            paired,
            base,
            page_cycles,
            count_cycles: asked.count_cycles.unwrap_or(COUNT_CYCLES).into(),
            is_priced: system.prices_its_work(),
            charges: BTreeMap::new(),
            counts: Counts::default(),
        }))
    }

    /// The range that is promoted together with the page at `addr`, if this page is promoted to the
    /// size `size`.
    fn candidate(&self, addr: VirtAddr, size: PageSize) -> Option<VirtRange> {
        let bytes = size.bytes() << u32::from(self.paired);
        VirtRange::new(VirtAddr::new(addr.get() & !(bytes - 1)), bytes).ok()
    }

    /// Drops all charges in the `bytes` from `start` on.
    fn forget(&mut self, space: u32, (start, bytes): (u64, u64)) {
        let Some((largest, _)) = self.sizes.last() else { return };
        let end = start.saturating_add(bytes);
        let from = start & !((largest.bytes() << u32::from(self.paired)) - 1);
        let keys: Vec<_> = self
            .charges
            .range((space, from, PageSize::SIZE_4K)..(space, end, PageSize::SIZE_4K))
            .map(|(key, _)| *key)
            .filter(|(_, first, size)| first + (size.bytes() << u32::from(self.paired)) > start)
            .collect();
        for key in keys {
            self.charges.remove(&key);
        }
    }

    /// Cycles of counting misses, and of promotions if the operating system has no price for
    /// promotions.
    pub fn cycles(&self) -> (u64, u64) {
        let moving = if self.is_priced { 0 } else { self.counts.pages * self.page_cycles };
        (self.counts.misses * self.count_cycles, moving)
    }

    /// The counts for the results.
    pub fn counts(&self) -> PromotionCounts {
        let of_size = |(size, threshold): &(PageSize, u64)| {
            let (promoted, refused) = self.counts.made.get(size).copied().unwrap_or_default();
            PromotionsOfSize {
                size: size.to_string(),
                threshold_misses: *threshold,
                promoted,
                refused,
            }
        };
        PromotionCounts {
            misses: self.counts.misses,
            charged: self.counts.charged,
            counting_cycles: self.cycles().0,
            sizes: self.sizes.iter().map(of_size).collect(),
        }
    }
}

impl Hook for Promotion {
    /// Resets the counts to zero, but keeps the charges.
    fn forget_counts(&mut self) {
        let Promotion {
            sizes: _,
            paired: _,
            base: _,
            page_cycles: _,
            count_cycles: _,
            is_priced: _,
            charges: _,
            counts,
        } = self;
        *counts = Counts::default();
    }

    fn on_gone(&mut self, space: u32, gone: &Gone) {
        match *gone {
            Gone::Bytes(start, bytes) => self.forget(space, (start, bytes)),
            Gone::All => self.charges.retain(|(of, ..), _| *of != space),
        }
    }
}

impl Run {
    /// Charges a miss of every TLB to its candidates, and requests the promotion of candidates
    /// whose charge is high enough.
    #[cold]
    pub(super) fn charge(
        &mut self,
        place: Lookup<'_>,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        let Lookup { addr, kind, access, .. } = place;
        let Some(mapping) = self.stack.guest.mapping(self.who.space, addr) else { return Ok(()) };
        let size = mapping.translation.page.size();
        let number = self.who.number;
        let Run { hooks: Hooks { promotion: Some(promotion), .. }, processors, .. } = self else {
            return Ok(());
        };
        if promotion.sizes.last().is_none_or(|(largest, _)| *largest <= size) {
            return Ok(());
        }
        promotion.counts.misses += 1;
        let processor = &mut processors.here;
        processor.counts.work_cycles += promotion.count_cycles;
        let (mut due, mut is_charged) = (None, false);
        for place in (0..promotion.sizes.len()).rev() {
            let (larger, threshold) = promotion.sizes[place];
            if larger <= size {
                break;
            }
            let Some(block) = promotion.candidate(addr, larger) else { continue };
            let key = (number, block.start().get(), larger);
            let known = promotion.charges.get(&key).copied().unwrap_or_default();
            let Some(seen) = holds_part(processor, block, kind, known.seen) else {
                // If no TLB holds another part of this candidate, none holds a part of a smaller
                // candidate.
                break;
            };
            let misses = known.misses + 1;
            promotion.charges.insert(key, Charge { misses, seen });
            is_charged = true;
            if misses >= threshold && due.is_none() {
                due = Some((block, larger));
            }
        }
        promotion.counts.charged += u64::from(is_charged);
        let Some((block, larger)) = due else { return Ok(()) };
        let who = self.who;
        let made = self
            .ask(access, behind, |system, platform| system.promote(who, block, larger, platform))?;
        let Some(promotion) = &mut self.hooks.promotion else { return Ok(()) };
        let counted = promotion.counts.made.entry(larger).or_default();
        if made == 0 {
            counted.1 += 1;
            promotion.charges.remove(&(number, block.start().get(), larger));
            return Ok(());
        }
        counted.0 += made;
        let pages = made * larger.count_of(promotion.base);
        promotion.counts.pages += pages;
        if !promotion.is_priced {
            self.processors.here.counts.work_cycles += pages * promotion.page_cycles;
        }
        let within = |&(space, first, size): &(u32, u64, PageSize)| {
            space == number && size <= larger && block.contains(VirtAddr::new(first))
        };
        let keys =
            (number, block.start().get(), PageSize::SIZE_4K)..=(number, block.last().get(), larger);
        let gone: Vec<_> =
            promotion.charges.range(keys).map(|(key, _)| *key).filter(within).collect();
        for key in gone {
            promotion.charges.remove(&key);
        }
        self.timing.has_new_deadline = self.system.deadline().is_some();
        Ok(())
    }
}

/// An address in `block` that a TLB for `kind` translates. The address `seen`, which was returned
/// before, is tried first.
fn holds_part(processor: &Processor, block: VirtRange, kind: Kind, seen: u64) -> Option<u64> {
    let Processor { hardware, asid, .. } = processor;
    let units = || {
        let serving = [hardware.first[kind as usize], hardware.second[kind as usize]];
        serving.into_iter().filter(|unit| *unit != NONE).map(|unit| &hardware.units[unit])
    };
    let seen = VirtAddr::new(seen);
    if block.contains(seen) && units().any(|unit| unit.tlb.peek(seen, *asid).is_some()) {
        return Some(seen.get());
    }
    units().find_map(|unit| {
        let entries = unit.tlb.entries().map(|(entry, _)| entry);
        let own = entries.filter(|entry| entry.global || entry.asid == *asid);
        let paired = unit.params.paired;
        let mut starts = own.flat_map(|entry| entry.pages(paired)).map(|(page, ..)| page.start());
        starts.find(|start| block.contains(*start)).map(VirtAddr::get)
    })
}
