//! Prefetches on the host of data that the simulation of later accesses needs.
//!
//! ```text
//!   accesses    now . . . 4 . . . 8 . .
//!                         |       +--> the page-table entry that its walk will read last,
//!                         |            and a large cache's tags for the entry's line
//!                         +----------> a large cache's tags for the accessed line; the entry
//!                                      gives its address
//! ```
//!
//! Here the host is the computer that runs Pagewalk. If misses follow each other closely, much of
//! its time is spent waiting for its own memory: a walk reads the simulated page table, then the
//! tags of the last simulated cache for the line of the entry and for the line that is accessed.
//! The addresses in a batch are known, so all this data is prefetched while earlier accesses are
//! simulated. Prefetching changes no count.

use addr::{PageSize, PhysAddr, VirtAddr};
use hardware::behind::Behind;
use os::{Who, host::Stack};
use ram::Ram;

use super::{
    View,
    access::{UNCACHED, VIRTUAL},
};

/// The page-table entry for an access is prefetched when it is this many accesses ahead.
const ENTRY_AHEAD: usize = 8;
/// The cache tags for an access are prefetched when it is this many accesses ahead.
const LINE_AHEAD: usize = 4;
/// The size of page tables, in bytes, up to which the host's nearest caches hold all or most of
/// them. Entries are prefetched only from larger page tables.
const NEAR_BYTES_MAX: u64 = 4 << 20;
/// The number of recently prefetched pages, and of lines, that are remembered to avoid repetition.
const RECENT: usize = 64;
/// The page size that is assumed for remembering pages. If the machine's pages are larger or smaller, some
/// data is prefetched twice or not at all.
const PAGE: PageSize = PageSize::SIZE_4K;
const LINE_SHIFT: u32 = 6;

/// Which data is too large for the host's nearest caches, and which pages and lines were prefetched
/// recently, indexed by the last bits of their numbers.
pub(super) struct Ahead {
    tables_are_far: bool,
    caches_are_far: bool,
    /// Pages whose page-table entries were prefetched.
    entries: [u64; RECENT],
    /// Lines whose cache tags were prefetched.
    lines: [u64; RECENT],
    /// For recent pages of any space: the physical address that was found last. This address may be
    /// out of date, since it is used only for prefetching.
    places: [(u64, Option<PhysAddr>); RECENT],
}

impl Default for Ahead {
    fn default() -> Ahead {
        let none = [u64::MAX; RECENT];
        Ahead {
            tables_are_far: false,
            caches_are_far: false,
            entries: none,
            lines: none,
            places: none.map(|page| (page, None)),
        }
    }
}

/// Records `number` in `recent`. Returns whether it was not recorded before.
#[inline(always)]
fn is_new(recent: &mut [u64; RECENT], number: u64) -> bool {
    let place = &mut recent[number as usize % RECENT];
    std::mem::replace(place, number) != number
}

impl Ahead {
    /// Determines which data is at present too large for the host's nearest caches.
    pub(super) fn look(&mut self, ram: &Ram, behind: &impl Behind) {
        self.tables_are_far = ram.footprint().frame_bytes > NEAR_BYTES_MAX;
        self.caches_are_far = behind.is_far();
    }

    /// Whether the tags of the machine's last cache are too large for the host's nearest caches.
    pub(super) fn caches_are_far(&self) -> bool {
        self.caches_are_far
    }

    /// Prefetches data for accesses soon after the access at `next`. The space `who` is about to
    /// run these accesses; `view` relocates their addresses. Called while many accesses miss.
    #[inline(always)]
    pub(super) fn soon<const CACHES: u8>(
        &mut self,
        (addrs, next): (&[u64], usize),
        (who, view): (Who, View),
        stack: &mut Stack,
        behind: &impl Behind,
    ) {
        let caches_are_far = CACHES != UNCACHED && self.caches_are_far;
        if !(self.tables_are_far || caches_are_far) {
            return;
        }
        if let Some(&addr) = addrs.get(next + ENTRY_AHEAD)
            && is_new(&mut self.entries, addr >> PAGE.shift())
        {
            let entry = stack.guest.soon(who.space, VirtAddr::new(addr.wrapping_sub(view.base)));
            if let (Some(entry), true) = (entry, caches_are_far && CACHES != VIRTUAL) {
                behind.soon(entry);
            }
        }
        if caches_are_far
            && let Some(&addr) = addrs.get(next + LINE_AHEAD)
            && is_new(&mut self.lines, addr >> LINE_SHIFT)
        {
            let phys = match CACHES {
                VIRTUAL => Some(PhysAddr::new(addr | view.tag)),
                _ => self.place(addr, (who, view), stack),
            };
            if let Some(phys) = phys {
                behind.soon(phys);
            }
        }
    }

    /// The probable physical address of `addr`.
    #[inline(always)]
    fn place(&mut self, addr: u64, (who, view): (Who, View), stack: &Stack) -> Option<PhysAddr> {
        let linear = VirtAddr::new(addr);
        let page = addr >> PAGE.shift();
        let (known, frame) = &mut self.places[page as usize % RECENT];
        if *known != page {
            let start = linear.align_down(PAGE).wrapping_add(view.base.wrapping_neg());
            let found = stack.query(who.space, start);
            (*known, *frame) = (page, found.map(|found| found.apply(start)));
        }
        Some(frame.as_ref()?.wrapping_add(linear.offset_in(PAGE)))
    }
}
