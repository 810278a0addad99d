//! The walk of a linear page table, which looks up the page table's own pages in the TLB (E99
//! §2.1).
//!
//! ```text
//!   miss at va --> entry of va, in a page of the array --- TLB has that page: load the entry
//!                     | nested miss
//!                     v
//!                  entry of that page, in a page further on --- TLB has that one: load it, and
//!                     | ... five times at most                    fill the TLB on the way back
//!                     v
//!                  root, in unmapped memory
//! ```
//!
//! A page of the page-table array is a translation in the TLB like any other and can evict others.
//! Its entry has the label [`TABLES`], so that the walker's hits on this entry are counted
//! separately from hits of the program.

use addr::{Kind, PhysAddr, VirtAddr};
use description::Error;
use hardware::{
    behind::Behind,
    processor::Processor,
    tlbs::{NONE, TlbUnits},
};
use mmu::TlbEntry;
use pagetable::{Fault, LinearArray, Node, Reference, Translation};
use ram::{Ram, walk::Walk};
use results::count::census::TABLES;

use super::{Run, access::Lookup, fill::Incoming, hooks::Hook};

/// A page table that is an array in virtual memory, with pages that the TLB can hold.
pub(super) struct Array;

impl Array {
    /// `Some` if the page table of `ram` is an array in virtual memory.
    pub(super) fn of(ram: &Ram) -> Option<Array> {
        ram.is_linear().then_some(Array)
    }
}

impl Hook for Array {
    fn forget_counts(&mut self) {}
}

impl Run {
    /// Walks the array of page-table entries, and adds the walk's references to `references`.
    pub(super) fn walk_array(
        &mut self,
        place: Lookup<'_>,
        references: &mut Vec<Reference>,
        behind: &mut impl Behind,
    ) -> Result<Result<Translation, Fault>, Error> {
        let Lookup { addr, kind, access, .. } = place;
        let (start, nested_misses) = self.nearest_table(addr);
        let found = self.stack.guest.walk_from(start, addr, kind, references);
        self.trap_if_clean(place, found.is_ok(), references)?;
        let known = self.stack.query(self.who.space, addr);
        if self.constants.check && found.ok() != known.filter(|page| page.rights.allows(kind)) {
            return Err(Error::Check(format!(
                "access {access}: the TLB has an entry for a table of level {} for {addr} at {}, \
                 but the page table has no table there: a flush is missing",
                start.level, start.table
            )));
        }
        let (asid, found_page) = (self.processors.here.asid, found.is_ok());
        let walk = Walk {
            va: addr,
            asid,
            root: start,
            found: found_page,
            size: addr::PageSize::SIZE_4K,
            nested_misses,
        };
        let walked = behind.walk(&walk, self.stack.way(references));
        debug_assert!(walked.is_ok(), "a linear page table has no MMU cache in front of it");
        for table in references.iter().filter_map(|reference| reference.next()) {
            self.fill_table(addr, table);
        }
        Ok(found)
    }

    /// The table nearest to the entry of `addr`, among the tables whose pages are in the TLB; the
    /// root if there is none. Also returns the number of pages of the array whose lookup missed.
    fn nearest_table(&mut self, addr: VirtAddr) -> (Node, u8) {
        let region = self.layout.label_of(self.who.number, addr);
        for level in 1..=LinearArray::LEVELS {
            if let Some(frame) = self.table_frame(LinearArray.entry(addr, level), region) {
                return (LinearArray.node(level, frame), level - 1);
            }
        }
        (self.stack.guest.root(self.who.space), LinearArray::LEVELS)
    }

    /// The frame of the array's page that holds `entry`, if a TLB holds this page. The lookups are
    /// counted for `region`.
    fn table_frame(&mut self, entry: VirtAddr, region: u32) -> Option<PhysAddr> {
        let kind = Kind::Load;
        let Processor { hardware: TlbUnits { units, first, second, .. }, asid, .. } =
            &mut self.processors.here;
        let [first, second] = [first, second].map(|of| of[kind as usize]);
        let counts = self.seen.census.region(region);
        counts.table_cycles += units[first].latency_cycles;
        if let Some(hit) = units[first].lookup_table(entry, *asid) {
            return Some(hit.frame());
        }
        if second == NONE {
            return None;
        }
        counts.table_cycles += units[second].latency_cycles;
        let hit = units[second].lookup_table(entry, *asid)?;
        let incoming = Incoming::alone(hit.entry(entry, *asid));
        self.fill(first, kind, &incoming, TABLES);
        Some(hit.frame())
    }

    /// Fills the TLBs with the page of the array that is the table `table` on the walk path to
    /// `addr`. TLBs that hold pairs also get the other page of the pair.
    fn fill_table(&mut self, addr: VirtAddr, table: Node) {
        let neighbour = VirtAddr::new(addr.get() ^ 1 << table.shift);
        let mut references: Vec<Reference> = Vec::new();
        if self.around.has_pairs {
            // The neighbour's entry in the array is read together with the entry itself, at no
            // cost.
            let _ = self.stack.guest.walk(self.who.space, neighbour, Kind::Load, &mut references);
        }
        let mut nodes = references.iter().filter_map(|reference| reference.next());
        let other = nodes.find(|node| node.level == table.level);
        let Translation { page, frame, rights, global, .. } =
            LinearArray.translation_of(addr, table);
        let other = other.map(|node| (node.table, rights));
        let entry = TlbEntry::single(page, frame, self.processors.here.asid, global, rights);
        let incoming = Incoming { entry, other, has_block: false };
        let TlbUnits { first, second, .. } = &self.processors.here.hardware;
        for unit in [*second, *first].map(|of| of[Kind::Load as usize]) {
            if unit != NONE {
                self.fill(unit, Kind::Load, &incoming, TABLES);
            }
        }
    }
}
