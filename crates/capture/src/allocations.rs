//! The allocation sites of a process, distinguished by the calls that led to them, and its
//! allocated blocks.

use std::collections::{BTreeMap, HashMap};

use trace::Event;

/// The allocations of a process. A fork's child begins with those of its parent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allocations {
    /// The number of each allocation site, by the return addresses of the calls that led to it.
    sites: HashMap<Vec<u64>, u32>,
    /// The size in bytes and the site of each block that was not freed, by the block's address.
    blocks: BTreeMap<u64, (u64, u32)>,
}

impl Allocations {
    /// Adds a block that was allocated by the calls that return to `stack`. Returns the event for the
    /// site, if it is a new one, and the event for the block.
    pub(crate) fn allocate(
        &mut self,
        addr: u64,
        bytes: u64,
        stack: &[u64],
    ) -> (Option<Event>, Event) {
        let count = self.sites.len() as u32;
        let known = self.sites.get(stack).copied();
        let new = known.is_none().then(|| Event::Site { number: count, stack: stack.to_vec() });
        let site = known.unwrap_or_else(|| {
            self.sites.insert(stack.to_vec(), count);
            count
        });
        self.blocks.insert(addr, (bytes, site));
        (new, Event::Allocate { addr, bytes, site })
    }

    /// Frees the block at `addr`.
    pub(crate) fn free(&mut self, addr: u64) {
        self.blocks.remove(&addr);
    }

    /// Drops the blocks in `bytes` bytes from `addr` on, because this memory was unmapped.
    pub(crate) fn unmapped(&mut self, addr: u64, bytes: u64) {
        let last = addr.saturating_add(bytes.saturating_sub(1));
        let gone: Vec<u64> = self.blocks.range(addr..=last).map(|(&start, _)| start).collect();
        for start in gone {
            self.blocks.remove(&start);
        }
    }

    /// The events for all sites and blocks.
    pub(crate) fn all(&self) -> Vec<Event> {
        let mut sites: Vec<_> = self.sites.iter().collect();
        sites.sort_by_key(|(_, number)| **number);
        let sites = sites.into_iter();
        let sites = sites.map(|(stack, &number)| Event::Site { number, stack: stack.clone() });
        let blocks = self.blocks.iter();
        let blocks = blocks.map(|(&addr, &(bytes, site))| Event::Allocate { addr, bytes, site });
        sites.chain(blocks).collect()
    }
}
