use addr::{Kind, Memory, Rights, VirtAddr};

use super::{
    Guarded, PTE,
    entry::{ALL_SHIFT, ENTRY_BYTES, Entry, Table},
};
use crate::pages::{Found, conclude};
use crate::{Fault, Leads, Node, Reference, Space, Translation, Tree, TreeShape};

/// The root entry is treated as a table of the highest level. External nodes have the lowest level;
/// no walk can start at them.
impl Tree for Guarded {
    fn shape(&self) -> TreeShape {
        TreeShape {
            levels: self.level(ALL_SHIFT),
            address_bits: ALL_SHIFT as u8,
            entry_shift: ENTRY_BYTES.trailing_zeros() as u8,
            // The smallest node has two entries.
            table_shift: ENTRY_BYTES.trailing_zeros() as u8 + 1,
            spans: None,
        }
    }

    fn levels(&self) -> u8 {
        self.level(ALL_SHIFT)
    }

    #[inline]
    fn root(&self, space: Space) -> Node {
        let level = self.level(ALL_SHIFT);
        Node { table: space.root(), level, shift: ALL_SHIFT as u8, rights: Rights::ALL }
    }

    #[inline]
    fn walk_from(
        &self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault> {
        let low = self.low(start.level);
        let mut table = Table { start: start.table, shift: u32::from(start.shift), low };
        loop {
            let at = table.entry_at(addr);
            let level = self.level(table.low);
            let bytes = ENTRY_BYTES as u8;
            let mut read =
                Reference { addr: at, bytes, write: false, level, leads: Leads::Nowhere };
            let Some(entry) = Entry::read(at, memory) else {
                each(read);
                return Err(Fault::NotMapped { level });
            };
            let next = entry.table();
            let node = next.map(|next| Node {
                table: next.start,
                level: self.level(next.low),
                shift: next.shift as u8,
                rights: Rights::ALL,
            });
            if entry.mismatch(addr).is_some() {
                read.leads = node.map_or(Leads::Nowhere, Leads::Elsewhere);
                each(read);
                return Err(Fault::NotMapped { level });
            }
            let (Some(next), Some(node)) = (next, node) else {
                each(read);
                return finish(entry, addr, kind, self.walk_sets_usage, memory, each);
            };
            read.leads = Leads::To(node);
            each(read);
            table = next;
        }
    }
}

/// The end of a walk, at an external node.
#[inline]
fn finish(
    entry: Entry,
    addr: VirtAddr,
    kind: Kind,
    sets_usage: bool,
    memory: &mut impl Memory,
    each: &mut impl FnMut(Reference),
) -> Result<Translation, Fault> {
    let (page, at) = entry.page(addr);
    let pte = PTE.read(at, memory);
    each(Reference { addr: at, bytes: PTE.bytes(), write: false, level: 1, leads: Leads::Nowhere });
    if !pte.is_mapped() {
        return Err(Fault::NotMapped { level: 1 });
    }
    conclude(PTE, Found::new(page, at, pte), kind, sets_usage, memory, each)
}
