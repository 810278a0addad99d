//! Accesses of which many miss the first level, one after the other, as long as they hit that or the second.
//!
//! ```text
//!   access --> first level -- hit ------------------------------> data caches, the next
//!                  | miss
//!                  v
//!              second level -- hit --> fill the first ----------> data caches, the next
//!                  | miss
//!                  +--> back to the run, which walks
//! ```
//!
//! What cannot be as long as no TLB changes its kind is asked once, when their parts are borrowed. Counts and
//! contents are those of a run without this. Whatever is rare, as an access to two pages or one that an entry
//! forbids, goes back to the run before anything was done for it.

use addr::{Kind, PhysAddr, VirtAddr};
use mmu::{DenseTlb, Evicted, Miss};
use trace::{Batch, Meta};

use super::{
    Run,
    access::{AHEAD, UNCACHED, VIRTUAL, shared_hit},
    pace::APART_MAX,
};
use crate::{
    count::census::{SHARED, TlbCensus},
    hardware::{
        behind::Behind,
        processor::Processor,
        tlbs::{FIRST_LEVEL_MAX, NONE, Unit},
    },
};

/// A TLB and what is counted of it.
struct Part<'a> {
    tlb: DenseTlb<'a>,
    counts: &'a mut TlbCensus,
}

/// To borrow the parts costs as much as so many entries save that the second level hands to the first.
const BORROWED_FOR: usize = 2;
/// The most that earlier ones can have saved, in entries.
const SAVED_MAX: usize = 16;
/// Where it did not pay, so many accesses are run by themselves before it is tried again.
const PAUSE: u64 = 256;

/// Whether it pays to run such accesses at once: where few of those that miss the first level hit the second, it does
/// not.
#[derive(Default)]
pub(super) struct Worth {
    saved: usize,
    /// The first access for which it is tried again.
    pub(super) until: u64,
}

impl Worth {
    /// So many entries were handed over in accesses that were run at once, before access `now`.
    #[inline]
    fn pays(&mut self, handed: usize, now: u64) {
        match (self.saved + handed).checked_sub(BORROWED_FOR) {
            Some(saved) => self.saved = saved.min(SAVED_MAX),
            None => self.until = now + PAUSE,
        }
    }
}

impl Run {
    /// Runs accesses of `batch` as long as they hit some level and not too many in a row hit the first. The first of
    /// them is that at `from` there, and has that `number` among those that are not left out. Gives how many ran; and, if the one that follows has missed every
    /// level, as all of them have counted, the label of its region.
    #[inline(never)]
    pub(super) fn dense<const CACHES: u8>(
        &mut self,
        batch: &Batch,
        (addrs, metas): (&[u64], &[Meta]),
        (from, number): (usize, u64),
        behind: &mut impl Behind,
    ) -> (usize, Option<u32>) {
        let Run { processors, census, history, layout, passed, ram, view, who, .. } = self;
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
            self.dense.pays(0, number);
            return (0, None);
        }
        let near_of = Kind::ALL.map(|kind| {
            let (near, far) = (first[kind as usize], far.as_ref());
            let size = nears.get(near).and_then(|near| Some(near.as_ref()?.tlb.page_size()));
            let is_behind = second[kind as usize] == behind_all
                && far.is_none_or(|far| Some(far.tlb.page_size()) == size);
            if is_behind { near } else { NONE }
        });
        let mut hits = self.pace.hits();
        let (mut ran, mut handed, mut missed) = (0, 0, None);
        for (&addr, &meta) in addrs.iter().zip(metas) {
            let (linear, kind, bytes) = (VirtAddr::new(addr), meta.kind(), meta.size());
            let Some(Some(Part { tlb: near, counts })) = nears.get_mut(near_of[kind as usize])
            else {
                break;
            };
            let size = near.page_size();
            if hits >= APART_MAX || linear.offset_in(size) + u64::from(bytes) > size.bytes() {
                break;
            }
            if self.tables_are_far
                && hits == 0
                && let Some(&addr) = addrs.get(ran + AHEAD)
            {
                ram.soon(who.space, VirtAddr::new(addr.wrapping_sub(view.base)));
            }
            let own = VirtAddr::new(addr.wrapping_sub(view.base));
            let phys = match near.find(linear, kind) {
                Ok(held) => {
                    hits += 1;
                    let (phys, label) = near.hit(held, linear, kind);
                    if label == SHARED {
                        shared_hit(layout, census, *who, own, kind);
                    }
                    phys
                }
                Err(Miss::Absent) => {
                    let held = match far.as_ref().map(|far| (far, far.tlb.find(linear, kind))) {
                        Some((far, Ok(held))) if near.is_replaced(linear, &far.tlb, held) => {
                            Some(held)
                        }
                        None | Some((_, Err(Miss::Absent))) => None,
                        Some((_, Ok(_) | Err(Miss::Denied | Miss::Invalid))) => break,
                    };
                    hits = 0;
                    near.missed(kind);
                    let region = layout.label_of(who.number, own);
                    census.region(region).l1_misses[kind as usize] += 1;
                    let (Some(held), Some(far)) = (held, far.as_mut()) else {
                        near.leave_absent(linear);
                        if let Some(far) = &mut far {
                            far.tlb.missed(kind);
                            far.tlb.leave_absent(linear);
                        }
                        missed = Some(region);
                        break;
                    };
                    let (phys, _) = far.tlb.hit(held, linear, kind);
                    near.refill(linear, &far.tlb, held, &mut |gone: Evicted| {
                        census.collect(counts, true, &gone);
                    });
                    handed += 1;
                    counts.evictions += 1;
                    counts.missed(kind, size, false);
                    history.l1_miss(number + ran as u64 + passed.before(batch, from + ran));
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
        self.pace.end_dense(hits);
        self.dense.pays(handed, number);
        (ran, missed)
    }
}
