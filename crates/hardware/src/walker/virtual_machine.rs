//! The host's dimension of a walk in a virtual machine.
//!
//! ```text
//!   guest-physical address --> nested TLB -- hit ----------------------> place
//!                                 | miss                                   ^
//!                                 v                                        |
//!                              host walk: MMU cache, data caches --> fill --
//! ```
//!
//! If guest and host share an MMU cache ([`Shared`]), the cache belongs to the guest's dimension
//! and is moved to the host's dimension during each walk of the host. The shared cache can also
//! hold the host's pages, in place of the nested TLB.
//!
//! A hit in the nested TLB replaces a whole walk of the host's table (B10 §4.7). The host never
//! unmaps a page, so the nested TLB is never flushed. The host's MMU cache is flushed only for
//! tables that move when a page is mapped.

use addr::{Asid, Kind, PageSize, PhysAddr, Rights};
use description::Shared;
use mmu::{Spot, Tlb, TlbEntry};
use pagetable::{Node, Reference};
use ram::walk::HostWalk;

use super::{Dimension, Port, Speculator};
use crate::behind::Forget;

/// The translation of guest-physical addresses.
pub struct HostSide {
    pub tlb: Option<Tlb>,
    pub(super) lookup_cycles: u64,
    pub dimension: Dimension,
    /// Which part of the guest's MMU cache the host shares.
    pub shared: Shared,
    /// The predictor of the page at which a walk of the host ends.
    pub speculator: Option<Speculator>,
    /// References of walks in both dimensions that no correct prediction hides; counted here if the
    /// guest has no predictor.
    pub critical: u64,
    /// The number of walks of the host's table.
    pub walks: u64,
}

impl HostSide {
    /// Translates a guest-physical address to a physical address. `references` are the references
    /// of its walk in the host's table, from the root down.
    #[inline]
    pub(super) fn place(
        &mut self,
        host: &HostWalk,
        references: &[Reference],
        port: &mut Port,
        guest: &mut Dimension,
    ) -> PhysAddr {
        self.moved(host, guest);
        let gpa = host.walk.va;
        if !host.known && !self.hits(host, port) {
            self.lend(guest);
            self.walk(host, references, port);
            self.lend(guest);
        }
        host.page.apply(gpa)
    }

    /// Swaps the MMU caches of the guest's and the host's dimension, if both share one.
    #[inline]
    fn lend(&mut self, guest: &mut Dimension) {
        if self.shared > Shared::None {
            guest.lend(&mut self.dimension);
        }
    }

    /// Resets the counts to zero.
    pub(super) fn forget_counts(&mut self) {
        let HostSide { tlb, lookup_cycles: _, dimension, shared: _, speculator, critical, walks } =
            self;
        (*walks, *critical) = (0, 0);
        speculator.iter_mut().for_each(Speculator::forget_counts);
        dimension.forget_counts();
        if let Some(tlb) = tlb {
            tlb.forget_counts();
        }
    }

    /// Flushes the tables that moved before this walk from all caches that could let a walk skip
    /// them.
    #[inline]
    pub(super) fn moved(&mut self, host: &HostWalk, guest: &mut Dimension) {
        if let Some(range) = host.moved {
            self.lend(guest);
            self.dimension.forget(Forget::Range(range, host.walk.asid));
            self.lend(guest);
        }
    }

    fn holds_pages(&self) -> bool {
        self.shared >= Shared::NestedTlb
    }

    fn hits(&mut self, host: &HostWalk, port: &mut Port) -> bool {
        let Some(tlb) = &mut self.tlb else { return false };
        port.under_way.cycles += self.lookup_cycles;
        tlb.lookup(host.walk.va, Asid(0), Kind::Load).is_ok()
    }

    fn walk(&mut self, host: &HostWalk, references: &[Reference], port: &mut Port) {
        let skipped = self.dimension.start(&host.walk, references);
        debug_assert!(
            skipped.is_ok(),
            "moved tables of the host were flushed from the cache: \
                                        {skipped:?}"
        );
        let is_held = self.holds_pages() && skipped == Ok(references.len());
        if is_held {
            return;
        }
        self.walks += 1;
        let before = port.made.unwrap_or_default();
        for reference in &references[skipped.unwrap_or(0)..] {
            let needed = self.dimension.needs(&host.walk, reference);
            debug_assert!(
                needed.is_ok(),
                "moved tables of the host were flushed from the cache: \
                                           {needed:?}"
            );
            if needed.unwrap_or(true) {
                port.fetch(reference, &mut self.dimension);
            }
        }
        self.dimension.finish(&host.walk);
        if let (Some(speculator), Some(made)) = (&mut self.speculator, &mut port.made) {
            let spot = Spot {
                phys: host.page.apply(host.walk.va),
                size: host.page.page.size(),
                reserved: host.reserved,
                marked: false,
                run: 0,
            };
            let own = made.since(&before);
            speculator.walked((host.walk.va, None, Asid(0)), Some(spot), false, &own, None);
            if speculator.is_right() {
                made.spared += own.served.iter().sum::<u64>();
            }
        }
        if self.holds_pages() {
            self.dimension.page(&host.walk, page_node(host.page.frame, host.page.page.size()));
        }
        if let Some(tlb) = &mut self.tlb {
            let page = host.page;
            let entry = TlbEntry::single(page.page, page.frame, Asid(0), false, page.rights);
            tlb.fill(&entry, 0, Kind::Load, &mut |_| {});
        }
    }
}

/// A page as a node for an MMU cache.
pub(super) fn page_node(frame: PhysAddr, size: PageSize) -> Node {
    Node { table: frame, level: 0, shift: size.shift() as u8, rights: Rights::ALL }
}
