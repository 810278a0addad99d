//! Abstract trees of tables, which are not those of a particular format, and walks of these trees.

use addr::{Asid, PhysAddr, Rights};
use mmu::{Design, WalkArray};
use pagetable::{Leads, Node, Reference, TreeShape};

use super::Rng;

pub(crate) fn x86(levels: u8) -> TreeShape {
    TreeShape {
        levels,
        address_bits: 12 + 9 * levels,
        entry_shift: 3,
        table_shift: 12,
        spans: Some((1..levels).map(|level| 12 + 9 * level).collect()),
    }
}

/// A tree whose levels can cover any number of address bits, like a guarded table.
pub(crate) fn guarded() -> TreeShape {
    TreeShape { levels: 6, address_bits: 64, entry_shift: 4, table_shift: 5, spans: None }
}

pub(crate) fn arrays(design: Design, tree: &TreeShape, entries: u32, ways: u32) -> Vec<WalkArray> {
    let levels = if design.is_split() { 2..=tree.levels } else { 0..=0 };
    levels.map(|level| WalkArray { level, entries, ways }).collect()
}

pub(crate) fn root(tree: &TreeShape) -> Node {
    Node { table: PhysAddr::new(1 << 40), level: tree.levels, shift: 64, rights: Rights::ALL }
}

/// The address of a table. It is a hash of the address bits above `shift`, the space, and the
/// generation of the tables.
fn table_of(va: u64, shift: u8, asid: Asid, generation: u64) -> PhysAddr {
    let word = (va >> shift).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ u64::from(shift).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        ^ u64::from(asid.0).wrapping_mul(0x94d0_49bb_1331_11eb)
        ^ generation.wrapping_mul(0xd6e8_feb8_6659_fd93);
    PhysAddr::new(word >> 24 << 12)
}

/// The references of a walk from the root to a leaf in a table of level `leaf`.
pub(crate) fn walk(
    tree: &TreeShape,
    va: u64,
    asid: Asid,
    leaf: u8,
    generation: u64,
) -> Vec<Reference> {
    let mut references = Vec::new();
    let own_root = PhysAddr::new(root(tree).table.get() | u64::from(asid.0) << 20);
    let (mut table, mut level, mut shift) = (own_root, tree.levels, 64);
    loop {
        // If levels can cover any number of bits, some levels are skipped and some cover fewer
        // bits.
        let next = match &tree.spans {
            Some(spans) => (level > leaf).then(|| (level - 1, spans[usize::from(level) - 2])),
            None => {
                let skip = 1 + (va >> 50 & 1) as u8;
                let next = level.saturating_sub(skip).max(leaf);
                let less = (va >> 55 & 1) as u8;
                let span = (13 + 6 * (next + 1)).saturating_sub(less).min(shift - 1);
                (level > leaf).then_some((next, span))
            }
        };
        let covered = next.map_or(12, |(_, shift)| shift);
        let at = table.get() + ((va >> covered & 0x1ff) << tree.entry_shift);
        let node = next.map(|(level, shift)| Node {
            table: table_of(va, shift, asid, generation),
            level,
            shift,
            rights: Rights::ALL,
        });
        references.push(Reference {
            addr: PhysAddr::new(at),
            bytes: 8,
            write: false,
            level,
            leads: node.map_or(Leads::Nowhere, Leads::To),
        });
        let Some(node) = node else { return references };
        (table, level, shift) = (node.table, node.level, node.shift);
    }
}

/// A random address; such addresses share some of their upper bits.
pub(crate) fn random_address(rng: &mut Rng, bits: u32) -> u64 {
    let shift = rng.pick(&[12, 21, 30, 39, 48]);
    let upper = rng.below(3) << 50 | rng.below(2) << 55 | rng.below(4) << 40;
    let va = upper | rng.below(40) << shift | rng.below(4) << 21 | rng.below(4) << 13;
    if bits < 64 { va & ((1 << bits) - 1) } else { va }
}
