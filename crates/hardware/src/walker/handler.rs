//! The software refill handler: the number of instructions of each path through it.
//!
//! ```text
//!   trap -> which address? -> software TLB: this tag? --- yes -------> both entries -> TLB, return
//!                                    | no                                  ^
//!                                    +--> search of the page table --------+
//! ```
//!
//! The path is that of the walk over the simulated page table: each reference stands for one load
//! or store, together with the instructions that the handler needs for it. The counts are those of
//! a MIPS III handler in registers, with one instruction per cycle, for the formats that E99 built
//! and, by the same rules, for the others. The handlers of E99's formats exist: the folder `refill/`
//! runs them on a MIPS processor, and each path has the number of instructions that is counted here.
//!
//! E99 publishes one count (text at figure 5): a refill from the software TLB takes nine cycles if
//! nothing misses. The handler here takes 14. Two of the five additional instructions save a
//! register; they may be the two instructions that E99 leaves out (section 3.1). All spaces share
//! the software TLB here. Therefore the handler mixes a number of the space into the index (2), and
//! loads the mask of the index (1).
//!
//! The cost of the trap and of the return from it is `walker.refill_cycles`, since E99 leaves both
//! out of its figures.

use description::{self, Description};
use pagetable::Reference;
use ram::table::{
    Format,
    path::{CHANGE, Path},
};

/// Once per refill: read the faulting address from its register (1); load the second entry of a
/// pair, which is adjacent to the first, so that no further reference is counted (1); move both
/// entries to the registers from which the TLB is written (2).
const ALWAYS: u64 = 4;

/// For a tag of the software TLB: mix the number of the space into the address (2), mask the result
/// to get the position (2), load the tag (1), get the expected tag from its register (1), branch
/// (1), save and restore a register (2).
const CACHE_TAG: u64 = 9;
/// For the entry beside the tag: load.
const CACHE_ENTRY: u64 = 1;
/// For each part of a new entry of the software TLB: compute the address (1), load the value (1),
/// store (1).
const CACHE_FILL: u64 = 3;
/// For the page size: extract its field from the entry (2), move it to the register from which the
/// TLB is written (1). G98 section 6.3 says that this handler is more expensive, but not by how
/// many instructions; the number is an assumption.
const PAGE_MASK: u64 = 3;
/// The cycles of a nested miss of a linear table, without the cycles of its reference. E99 §5.5
/// gives 400 to 500 cycles, citing Uhlig et al. 1995; this is the lower value.
const NESTED_CYCLES: u64 = 400;

/// The handler of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Handler {
    path: Path,
    nested: u64,
}

impl Handler {
    /// The handler, if the machine refills by software.
    pub fn new(description: &Description) -> Option<Handler> {
        let table = description.page_table.as_ref()?;
        let format = Format::named(&table.format)?;
        if description.walker.kind != description::WalkerKind::Software {
            return None;
        }
        let nested = description.walker.nested_cycles.map_or(NESTED_CYCLES, u64::from);
        Some(Handler { path: (format.handler)(table), nested })
    }

    /// The number of instructions of the path with these references.
    pub fn instructions(&self, references: &[Reference]) -> u64 {
        let steps: u64 = references.iter().map(|reference| self.step(reference)).sum();
        if references.iter().all(|reference| reference.level == 0) {
            return steps;
        }
        let is_wide = |one: &&Reference| one.level > 0 && one.bytes >= 8 && one.next().is_none();
        let wide = |write| references.iter().filter(is_wide).filter(move |one| one.write == write);
        let chained = if wide(false).nth(1).is_some() { self.path.chained } else { 0 };
        let moved = if wide(true).next().is_some() { self.path.moved } else { 0 };
        steps + self.path.search + chained + moved
    }

    fn step(&self, reference: &Reference) -> u64 {
        match (reference.level, reference.write, reference.bytes) {
            (0, true, _) => CACHE_FILL,
            (0, false, 8..) => CACHE_TAG,
            (0, false, _) => CACHE_ENTRY,
            (_, true, 8..) => self.path.change,
            (_, true, _) => CHANGE,
            _ if reference.next().is_some() => self.path.node,
            (_, false, 8..) => self.path.entry,
            (_, false, _) => self.path.narrow,
        }
    }

    /// The number of instructions that every refill executes, whatever its path. `sized` is true if
    /// the handler also writes the register with the page size.
    pub fn always(&self, sized: bool) -> u64 {
        ALWAYS + if sized { PAGE_MASK } else { 0 }
    }

    /// The cycles of a miss on the page table itself, without the cycles of its reference.
    pub fn nested_cycles(&self) -> u64 {
        self.nested
    }
}

#[cfg(test)]
mod tests {
    use addr::{PhysAddr, Rights};
    use pagetable::{Leads, Node};

    use super::*;

    fn handler(format: &str) -> Handler {
        let described = Description::load("r4700", &[format!("page_table.format={format}")]);
        Handler::new(&described.unwrap()).unwrap()
    }

    fn path(references: &[(u8, u8, bool)]) -> Vec<Reference> {
        let addr = PhysAddr::new(0);
        let leads = |level| Leads::To(Node { table: addr, level, shift: 64, rights: Rights::ALL });
        let reference = |&(level, bytes, leads_on): &(u8, u8, bool)| Reference {
            addr,
            bytes,
            write: false,
            level,
            leads: if leads_on { leads(level - 1) } else { Leads::Nowhere },
        };
        references.iter().map(reference).collect()
    }

    #[test]
    fn a_hit_in_the_software_tlb_takes_as_much_in_front_of_every_table() {
        for format in ["guarded", "mpt", "hashed"] {
            let handler = handler(format);
            let hit = path(&[(0, 8, false), (0, 4, false)]);
            assert_eq!(handler.always(false) + handler.instructions(&hit), 14);
        }
    }

    /// Tests paths of trees of six levels and of three nodes, and of chains of one entry.
    #[test]
    fn each_format_takes_what_its_path_does() {
        let took = |format, references: &[_]| {
            let handler = handler(format);
            handler.always(false) + handler.instructions(&path(references))
        };
        let inner = [6, 5, 4, 3, 2].map(|level| (level, 4, true));
        let mpt = took("mpt", &[&inner[..], &[(1, 4, false)]].concat());
        let guarded =
            took("guarded", &[(15, 16, true), (3, 16, true), (2, 16, false), (1, 4, false)]);
        let hashed = took("hashed", &[(1, 8, false), (1, 4, false)]);
        let clustered = took("clustered", &[(1, 8, false), (1, 4, false)]);
        assert_eq!((mpt, guarded, hashed, clustered), (44, 41, 22, 25));
    }
}
