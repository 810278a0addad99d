//! Runs accesses if many of them miss the first-level TLB one after the other.
//!
//! ```text
//!   access --> first level -- hit ------------------------------> data caches, the next
//!                  | miss
//!                  v
//!              second level -- hit --> fill the first ----------> data caches, the next
//!                  | miss
//!                  v
//!                walk -- page of the usual size --> fill both --> data caches, the next
//!                  | fault
//!                  +--> back to the run, which has the operating system answer it
//! ```
//!
//! All properties that depend only on the kinds of TLBs are determined once, when the parts of the
//! TLBs are borrowed. The counts, and the contents of the TLBs, are the same as if the accesses ran
//! one by one. A rare case, such as an access to two pages or an access that an entry forbids, is
//! returned to the run before any work for it is done. A lookup that has missed every level is
//! returned with the known facts about the miss ([`AllMissed`]).
//!
//! If a walk of the machine does more than read the page table, the run makes all walks. Each
//! feature that must be called at every miss in order reports this need
//! ([`Hook::allows_dense`](super::hooks::Hook)).

use addr::{Asid, Kind, PageSize, PhysAddr, VirtAddr, VirtRange};
use hardware::{
    behind::{Behind, Refill},
    processor::Processor,
    tlbs::{FIRST_LEVEL_MAX, NONE, Unit},
};
use mmu::{DenseTlb, Evicted, Miss, TlbEntry};
use os::host::Stack;
use pagetable::{Fault, Node, Reference, Space, Translation};
use ram::walk::Walk;
use results::count::census::{Census, SHARED, TlbCensus};
use trace::{Batch, Meta};

use super::{
    Run,
    access::{UNCACHED, VIRTUAL, shared_hit},
    counts::MissCounts,
    dirty::without_dirt,
    miss::AllMissed,
    pace::APART_MAX,
    seen::Seen,
};

/// A TLB and its counts.
struct Part<'a> {
    tlb: DenseTlb<'a>,
    counts: &'a mut TlbCensus,
}

impl Part<'_> {
    /// Counts a lookup that misses, for a page of `size`. The entry of the page evicts another
    /// entry, which is counted too.
    #[inline(always)]
    fn missed(&mut self, kind: Kind, size: PageSize) {
        self.counts.evictions += 1;
        self.counts.missed(kind, size, false);
    }

    /// Counts a lookup that missed, and fills the TLB with the page that a walk has found.
    #[inline(always)]
    fn fill(
        &mut self,
        census: &mut Census,
        is_first: bool,
        kind: Kind,
        entry: &TlbEntry,
        label: u32,
    ) {
        self.missed(kind, entry.page.size());
        let Part { tlb, counts } = self;
        tlb.fill(entry, label, &mut |gone: Evicted| census.collect(counts, is_first, &gone));
    }
}

/// The number of fills of the first-level TLB that save as much time as borrowing the parts takes.
const BORROWED_FOR: usize = 2;
/// The largest amount of saved time that is carried over from earlier accesses, in fills.
const SAVED_MAX: usize = 16;
/// After an attempt that saved no time, the number of accesses that run one by one before the next
/// attempt.
const PAUSE: u64 = 256;

/// Whether running accesses by [`Run::dense`] saves time. It saves no time if it completes few of
/// the accesses that miss the first level.
#[derive(Default)]
pub(super) struct Worth {
    saved: usize,
    /// The number of the access at which [`Run::dense`] is tried again.
    pub(super) until: u64,
}

impl Worth {
    /// Records that [`Run::dense`] has inserted `filled` entries into the first level, before
    /// access `now`.
    #[inline]
    fn pays(&mut self, filled: usize, now: u64) {
        match (self.saved + filled).checked_sub(BORROWED_FOR) {
            Some(saved) => self.saved = saved.min(SAVED_MAX),
            None => self.until = now + PAUSE,
        }
    }
}

impl Run {
    /// Whether a walk only reads the page table, fills TLBs and is counted, and no other part of
    /// the run has to be called for it.
    fn walks_alone(&self) -> bool {
        self.hooks.allow_dense() && self.around.is_nothing()
    }

    /// Runs accesses of `batch` until too many in a row hit the first level. The first access is at
    /// index `from` of the batch, and `number` is its number among the accesses that are not left
    /// out. Returns the number of accesses that ran. If the next access has missed every level and
    /// the misses were counted, also returns the other known facts about the miss.
    #[inline(never)]
    pub(super) fn dense<const CACHES: u8>(
        &mut self,
        batch: &Batch,
        (addrs, metas): (&[u64], &[Meta]),
        (from, number): (usize, u64),
        behind: &mut impl Behind,
    ) -> (usize, Option<AllMissed>) {
        let walks_alone = self.walks_alone();
        let (sized, root) = (self.sets_size(), self.stack.guest.root(self.view.root));
        let tracks_dirty = self.constants.tracks_dirty;
        let Run { processors, seen, layout, stack, view, who, hooks, .. } = self;
        let Seen { census, history, passed, .. } = seen;
        let (references, ahead) = (&mut self.walking.references, &mut self.tempo.ahead);
        let Processor { hardware, asid, .. } = &mut processors.here;
        let (first, second) = (hardware.first, hardware.second);
        let behind_all = second[Kind::Load as usize];
        let mut nears: [Option<Part<'_>>; FIRST_LEVEL_MAX] = [const { None }; _];
        let mut far = None;
        for (index, Unit { level, tlb, counts, .. }) in hardware.units.iter_mut().enumerate() {
            let part = tlb.dense(*asid).map(|tlb| Part { tlb, counts });
            if *level == 1 {
                nears[index] = part;
            } else if index == behind_all {
                far = part;
            }
        }
        if behind_all != NONE && far.is_none() {
            self.tempo.worth.pays(0, number);
            return (0, None);
        }
        let near_of = Kind::ALL.map(|kind| {
            let (near, far) = (first[kind as usize], far.as_ref());
            let size = nears.get(near).and_then(|near| Some(near.as_ref()?.tlb.page_size()));
            let is_behind = second[kind as usize] == behind_all
                && far.is_none_or(|far| Some(far.tlb.page_size()) == size);
            if is_behind { near } else { NONE }
        });
        let mut hits = self.tempo.pace.hits();
        let (mut ran, mut filled, mut missed) = (0, 0, None);
        for (&addr, &meta) in addrs.iter().zip(metas) {
            let (linear, kind, bytes) = (VirtAddr::new(addr), meta.kind(), meta.size());
            let Some(Some(near)) = nears.get_mut(near_of[kind as usize]) else { break };
            let size = near.tlb.page_size();
            if hits >= APART_MAX || linear.offset_in(size) + u64::from(bytes) > size.bytes() {
                break;
            }
            // Even if the page of a line hits the TLB, the simulated cache set of the line may not
            // be in the host's caches.
            if hits == 0 || ahead.caches_are_far() {
                ahead.soon::<CACHES>((addrs, ran), (*who, *view), stack, behind);
            }
            let own = VirtAddr::new(addr.wrapping_sub(view.base));
            let phys = match near.tlb.find(linear, kind) {
                Ok(held) => {
                    hits += 1;
                    let (phys, label) = near.tlb.hit(held, linear, kind);
                    if label == SHARED {
                        shared_hit(layout, census, *who, own, kind);
                    }
                    phys
                }
                Err(Miss::Absent) => {
                    let held = match far.as_ref().map(|far| (far, far.tlb.find(linear, kind))) {
                        Some((far, Ok(held))) if near.tlb.is_replaced(linear, &far.tlb, held) => {
                            Some(held)
                        }
                        None | Some((_, Err(Miss::Absent))) => None,
                        Some((_, Ok(_) | Err(Miss::Denied | Miss::Invalid))) => break,
                    };
                    hits = 0;
                    near.tlb.missed(kind);
                    let region = layout.label_of(who.number, own);
                    census.region(region).l1_misses[kind as usize] += 1;
                    let when = number + ran as u64 + passed.before(batch, from + ran);
                    let phys = if let (Some(held), Some(far)) = (held, &mut far) {
                        near.missed(kind, size);
                        let Part { tlb, counts } = near;
                        let (phys, _) = far.tlb.hit(held, linear, kind);
                        tlb.refill(linear, &far.tlb, held, &mut |gone: Evicted| {
                            census.collect(counts, true, &gone);
                        });
                        history.l1_miss(when);
                        phys
                    } else {
                        if let Some(far) = &mut far {
                            far.tlb.missed(kind);
                        }
                        let walked = walks_alone.then(|| {
                            read(
                                stack,
                                (view.root, root),
                                (linear, *asid, kind),
                                references,
                                behind,
                            )
                        });
                        let found = walked.and_then(Result::ok).map(|found| {
                            let Translation { page, frame, mut rights, global, .. } = found;
                            if tracks_dirty && kind != Kind::Store {
                                rights = without_dirt(&stack.guest, *who, own, rights);
                            }
                            let global = global || view.is_global;
                            let entry = TlbEntry::single(page, frame, *asid, global, rights);
                            (entry, found.apply(linear))
                        });
                        let is_taken = |(entry, _): &(TlbEntry, PhysAddr)| {
                            near.tlb.is_replaced_by(entry)
                                && far.as_ref().is_none_or(|far| far.tlb.is_replaced_by(entry))
                        };
                        let Some((entry, phys)) = found.filter(is_taken) else {
                            near.tlb.leave_absent(linear);
                            if let Some(far) = &mut far {
                                far.tlb.leave_absent(linear);
                            }
                            missed = Some(AllMissed { why: Miss::Absent, region, walked });
                            break;
                        };
                        let data = kind != Kind::Fetch;
                        behind.refilled(Refill { region, data, sized, ..Refill::default() });
                        let pages = VirtRange::of_page(own.page(size));
                        let label = layout.label_of_entry(who.number, pages, region);
                        if let Some(far) = &mut far {
                            far.fill(census, false, kind, &entry, label);
                        }
                        near.fill(census, true, kind, &entry, label);
                        let counts = MissCounts { census, history, hooks, layout, who: *who };
                        counts.count(batch, from + ran, when, own, (region, size, false));
                        phys
                    };
                    filled += 1;
                    phys
                }
                Err(Miss::Denied | Miss::Invalid) => break,
            };
            if CACHES != UNCACHED {
                let at = if CACHES == VIRTUAL { PhysAddr::new(addr | view.tag) } else { phys };
                behind.data(at, bytes, kind);
            }
            ran += 1;
        }
        self.tempo.pace.end_dense(hits);
        self.tempo.worth.pays(filled, number);
        (ran, missed)
    }
}

/// Reads the page table of `space`, whose root is `root`, for an access, and reports the walk to `behind`.
#[inline(always)]
fn read(
    stack: &mut Stack,
    (space, root): (Space, Node),
    (va, asid, kind): (VirtAddr, Asid, Kind),
    references: &mut Vec<Reference>,
    behind: &mut impl Behind,
) -> Result<Translation, Fault> {
    references.clear();
    let found = stack.guest.walk(space, va, kind, references);
    let size = found.map_or(PageSize::SIZE_4K, |found| found.page.size());
    let walk = Walk { va, asid, root, found: found.is_ok(), size, nested_misses: 0 };
    let Err(stale) = behind.walk(&walk, stack.way(references)) else { return found };
    // The walk starts at a stale entry, as hardware does when a flush was left out.
    references.clear();
    let found = stack.guest.walk_from(stale, va, kind, references);
    behind.walk_from_stale(&Walk { found: found.is_ok(), ..walk }, stack.way(references));
    found
}
