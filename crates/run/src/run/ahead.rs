//! What the host fetches before a miss needs it.
//!
//! ```text
//!   accesses    now . . . 4 . . . 8 . .
//!                         |       +--> the entry of the page table that a walk for it will read last, and what a large
//!                         |            cache knows of the entry's line
//!                         +----------> where that entry says it lies: what a large cache knows of that line
//! ```
//!
//! Where misses follow each other, much of the time goes into waiting for the host's own memory: a walk waits for the
//! page table, then the last cache of the simulated machine for what it knows of the entry's line, and of the line that is
//! accessed. Addresses of a batch are known, so all of that is fetched while the accesses before are run. It
//! changes nothing that is counted.

use addr::{PageSize, PhysAddr, VirtAddr};
use hardware::behind::Behind;
use os::{Who, host::Stack};
use ram::Ram;

use super::{
    View,
    access::{UNCACHED, VIRTUAL},
};

/// So many accesses before a walk for it, the entry of a page is fetched, ...
const ENTRY_AHEAD: usize = 8;
/// ... and so many before an access, what a cache knows of its line.
const LINE_AHEAD: usize = 4;
/// What page tables may take that the nearest caches of hosts have whole, or nearly.
const NEAR_BYTES_MAX: u64 = 4 << 20;
/// So many pages, and lines, are remembered as fetched.
const RECENT: usize = 64;
/// The pages and lines that are told apart. A machine's may be larger or smaller: then something is fetched twice, or not.
const PAGE: PageSize = PageSize::SIZE_4K;
const LINE_SHIFT: u32 = 6;

/// What is far from the host's processor, and what of it was fetched last, by the last bits of its number.
pub(super) struct Ahead {
    tables_are_far: bool,
    caches_are_far: bool,
    /// Pages whose entries were fetched.
    entries: [u64; RECENT],
    /// Lines of which a cache knows.
    lines: [u64; RECENT],
    /// Where pages lay when that was asked last, in whichever space that was: it need not be true any more.
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

/// Whether `number` is not among those that are remembered. From now on it is.
#[inline(always)]
fn is_new(recent: &mut [u64; RECENT], number: u64) -> bool {
    let place = &mut recent[number as usize % RECENT];
    std::mem::replace(place, number) != number
}

impl Ahead {
    /// Asks what is far by now.
    pub(super) fn look(&mut self, ram: &Ram, behind: &impl Behind) {
        self.tables_are_far = ram.footprint().frame_bytes > NEAR_BYTES_MAX;
        self.caches_are_far = behind.is_far();
    }

    /// Whether what the machine's last cache knows is far.
    pub(super) fn caches_are_far(&self) -> bool {
        self.caches_are_far
    }

    /// The access at `next` is about to be run, by `who` and through `view`, and many miss.
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

    /// Where `addr` probably lies.
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
