//! The host's dimension of a walk in a virtual machine.
//!
//! ```text
//!   guest-physical address --> nested TLB -- hit ----------------------> place
//!                                 | miss                                   ^
//!                                 v                                        |
//!                              host walk: MMU cache, data caches --> fill --
//! ```
//!
//! A hit in the nested TLB stands for a whole walk of the host's table (B10 §4.7). The host takes
//! no page back, so the nested TLB is never flushed; its MMU cache forgets only tables that move
//! when a page is mapped.

use addr::{Asid, Kind, PhysAddr};
use mmu::{Tlb, TlbEntry};
use pagetable::Reference;

use super::{Dimension, Port};
use crate::hardware::behind::{Forget, HostWalk};

/// What translates guest-physical addresses.
pub(crate) struct HostSide {
    pub(crate) tlb: Option<Tlb>,
    pub(super) lookup_cycles: u64,
    pub(crate) dimension: Dimension,
    /// Walks of the host's table.
    pub(crate) walks: u64,
}

impl HostSide {
    /// The place of a guest-physical address. `references` are those of its walk from the root.
    #[inline]
    pub(super) fn place(
        &mut self,
        host: &HostWalk,
        references: &[Reference],
        port: &mut Port,
    ) -> PhysAddr {
        self.moved(host);
        let gpa = host.walk.va;
        if !host.known && !self.hits(host, port) {
            self.walk(host, references, port);
        }
        host.page.apply(gpa)
    }

    /// Begins to count anew.
    pub(super) fn forget_counts(&mut self) {
        self.walks = 0;
        self.dimension.forget_counts();
        if let Some(tlb) = &mut self.tlb {
            tlb.forget_counts();
        }
    }

    /// Forgets the tables that moved before this walk, which another cache may let skip.
    #[inline]
    pub(super) fn moved(&mut self, host: &HostWalk) {
        if let Some(range) = host.moved {
            self.dimension.forget(Forget::Range(range, host.walk.asid));
        }
    }

    fn hits(&mut self, host: &HostWalk, port: &mut Port) -> bool {
        let Some(tlb) = &mut self.tlb else { return false };
        port.under_way.cycles += self.lookup_cycles;
        tlb.lookup(host.walk.va, Asid(0), Kind::Load).is_ok()
    }

    fn walk(&mut self, host: &HostWalk, references: &[Reference], port: &mut Port) {
        self.walks += 1;
        let skipped = self.dimension.start(&host.walk, references);
        debug_assert!(skipped.is_ok(), "what moves in the host is forgotten: {skipped:?}");
        for reference in &references[skipped.unwrap_or(0)..] {
            let needed = self.dimension.needs(&host.walk, reference);
            debug_assert!(needed.is_ok(), "what moves in the host is forgotten: {needed:?}");
            if needed.unwrap_or(true) {
                port.fetch(reference, &mut self.dimension);
            }
        }
        self.dimension.finish(&host.walk);
        if let Some(tlb) = &mut self.tlb {
            let page = host.page;
            let entry = TlbEntry::single(page.page, page.frame, Asid(0), false, page.rights);
            tlb.fill(&entry, 0, Kind::Load, &mut |_| {});
        }
    }
}
