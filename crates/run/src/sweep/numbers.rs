//! Small numbers for the page-table nodes on the paths of walks.
//!
//! ```text
//!   ASID, prefix, shift --> number          the tag by which a translation cache would know it
//! ```
//!
//! Numbers of nodes that the operating system flushes are reused, so there are never more
//! numbers than the page table has tables.

use addr::{Asid, VirtAddr};
use hardware::behind::Forget;
use pagetable::Node;
use rustc_hash::FxHashMap;

/// The addresses for which a node is valid: ASID, prefix of the address, and the number of lower
/// bits that are left out.
type Tag = (u16, u64, u8);

/// The number of each node.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    of: FxHashMap<Tag, u32>,
    /// The nodes by number.
    nodes: Vec<Node>,
    free: Vec<u32>,
}

/// The number of a node, and the number of a stale node for the same addresses, if there is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    pub(super) node: u32,
    /// The number of a stale node, if there is one: a node that was valid for these addresses
    /// before and was not flushed.
    pub(super) stale: Option<u32>,
}

impl Numbers {
    /// The number of `node`, on the walk path to `va` in `asid`.
    #[inline]
    pub(super) fn number(&mut self, va: VirtAddr, asid: Asid, node: Node) -> Number {
        let tag = (asid.0, node.prefix(va), node.shift);
        match self.of.get(&tag) {
            Some(&known) if self.nodes[known as usize] == node => {
                Number { node: known, stale: None }
            }
            known => {
                let stale = known.copied();
                Number { node: self.add(tag, node), stale }
            }
        }
    }

    #[cold]
    fn add(&mut self, tag: Tag, node: Node) -> u32 {
        let number = self.free.pop().unwrap_or(self.nodes.len() as u32);
        if let Some(place) = self.nodes.get_mut(number as usize) {
            *place = node;
        } else {
            self.nodes.push(node);
        }
        self.of.insert(tag, number);
        number
    }

    /// Frees the numbers of the nodes that are flushed, and returns them.
    pub(super) fn forget(&mut self, forget: Forget) -> Vec<u32> {
        let gone = self.of.extract_if(|&(asid, prefix, shift), _| match forget {
            Forget::Range(range, of) => {
                // After a shift by 64 bits the prefix is empty: the node is valid for every
                // address.
                let part = |addr: VirtAddr| addr.get().checked_shr(shift.into()).unwrap_or(0);
                of.0 == asid && (part(range.start())..=part(range.last())).contains(&prefix)
            }
            // Nodes are tables, so a flush of pages concerns none of them.
            Forget::Pages(..) => false,
            Forget::Space(of) => of.0 == asid,
            Forget::All => true,
        });
        let gone: Vec<u32> = gone.map(|(_, number)| number).collect();
        self.free.extend(&gone);
        gone
    }
}
