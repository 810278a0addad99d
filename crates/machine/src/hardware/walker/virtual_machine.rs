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
//! no page back, so neither of the two is ever flushed.

use addr::{Asid, Kind, PhysAddr};
use mmu::{Entry, Tlb};
use pagetable::Reference;

use super::{Dimension, Port};
use crate::hardware::behind::HostWalk;

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

    fn hits(&mut self, host: &HostWalk, port: &mut Port) -> bool {
        let Some(tlb) = &mut self.tlb else { return false };
        port.under_way.cycles += self.lookup_cycles;
        tlb.lookup(host.walk.va, Asid(0), Kind::Load).is_some()
    }

    fn walk(&mut self, host: &HostWalk, references: &[Reference], port: &mut Port) {
        self.walks += 1;
        // What the MMU cache says is on the way, as nothing on it ever goes.
        let skipped = self.dimension.start(&host.walk, references).unwrap_or(0);
        for reference in &references[skipped..] {
            if self.dimension.needs(&host.walk, reference).unwrap_or(true) {
                port.fetch(reference, &mut self.dimension);
            }
        }
        self.dimension.finish(&host.walk);
        if let Some(tlb) = &mut self.tlb {
            let page = host.page;
            let entry = Entry::single(page.page, page.frame, Asid(0), false, page.rights);
            tlb.fill(&entry, 0, &mut |_| {});
        }
    }
}
