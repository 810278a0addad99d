//! The sites at which a process allocates, by the calls that led to them, and its blocks.

use std::collections::{BTreeMap, HashMap};

use trace::Event;

/// What a process has allocated. A fork's child begins with its parent's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allocations {
    /// The number of a site by the return addresses that led to it.
    sites: HashMap<Vec<u64>, u32>,
    /// Bytes and site of each block that is not given back, by its address.
    blocks: BTreeMap<u64, (u64, u32)>,
}

impl Allocations {
    /// A block was allocated by the calls that return to `stack`: what tells the site, if it is a new
    /// one, and what tells the block.
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

    /// The block at `addr` is given back.
    pub(crate) fn free(&mut self, addr: u64) {
        self.blocks.remove(&addr);
    }

    /// What is in `bytes` from `addr` is unmapped.
    pub(crate) fn unmapped(&mut self, addr: u64, bytes: u64) {
        let last = addr.saturating_add(bytes.saturating_sub(1));
        let gone: Vec<u64> = self.blocks.range(addr..=last).map(|(&start, _)| start).collect();
        for start in gone {
            self.blocks.remove(&start);
        }
    }

    /// What tells of all of its sites and blocks.
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
