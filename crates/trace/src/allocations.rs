//! The blocks that a process has allocated, and the places in its program that allocated them.
//!
//! ```text
//!   blocks   |-- a: site 0 --|   |- b: site 1 -|  |- c: site 0, freed -|      by address
//!   sites    0: main, table.c:12    1: grow, list.c:40                        all sites, by number
//! ```
//!
//! A site is a place in the program that allocates, together with the calls that led there. A freed
//! block keeps its site until something else is allocated or mapped at its addresses: later
//! accesses by the allocator or by a `realloc` still belong to this block.

use std::collections::{BTreeMap, HashMap};

use crate::Location;

/// A place that allocates, and counts of its allocations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The return addresses of the calls that led to the site; the address in the site's caller
    /// comes first.
    pub frames: Vec<Location>,
    /// The number of allocations.
    pub allocations: u64,
    /// The total number of bytes allocated.
    pub bytes: u64,
    /// The number of bytes that are currently allocated.
    pub live_bytes: u64,
    /// The largest value that `live_bytes` has had.
    pub peak_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    last: u64,
    site: u32,
    is_freed: bool,
}

/// The blocks allocated in an address space, and their sites.
#[derive(Clone, Debug, Default)]
pub struct Allocations {
    /// The blocks by their first byte; blocks do not overlap.
    blocks: BTreeMap<u64, Block>,
    sites: Vec<Site>,
    /// The index of a site by the number that the trace uses for it.
    numbers: HashMap<u32, u32>,
}

impl Allocations {
    /// All sites seen so far. The index of a site never changes.
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// The site of the block that contains `addr`, as an index into [`Allocations::sites`].
    pub fn site_of(&self, addr: u64) -> Option<u32> {
        let (_, block) = self.blocks.range(..=addr).next_back()?;
        (addr <= block.last).then_some(block.site)
    }

    /// Defines a site, which the trace calls `number` from now on.
    pub(crate) fn site(&mut self, number: u32, frames: Vec<Location>) {
        self.numbers.insert(number, self.sites.len() as u32);
        let (allocations, bytes, live_bytes, peak_bytes) = (0, 0, 0, 0);
        self.sites.push(Site { frames, allocations, bytes, live_bytes, peak_bytes });
    }

    /// Records that `bytes` bytes from `addr` are allocated at the site that the trace calls
    /// `number`. Returns the site's index, if the site is known.
    pub(crate) fn allocate(&mut self, addr: u64, bytes: u64, number: u32) -> Option<u32> {
        let site = *self.numbers.get(&number)?;
        // An allocation of 0 bytes also has an address of its own.
        let last = addr.checked_add(bytes.max(1) - 1)?;
        self.gone(addr, last);
        self.blocks.insert(addr, Block { last, site, is_freed: false });
        let counts = &mut self.sites[site as usize];
        counts.allocations += 1;
        counts.bytes = counts.bytes.saturating_add(bytes);
        counts.live_bytes = counts.live_bytes.saturating_add(last - addr + 1);
        counts.peak_bytes = counts.peak_bytes.max(counts.live_bytes);
        Some(site)
    }

    /// Records that the block that begins at `addr` is freed.
    pub(crate) fn free(&mut self, addr: u64) {
        if let Some(block) = self.blocks.get_mut(&addr).filter(|block| !block.is_freed) {
            block.is_freed = true;
            let counts = &mut self.sites[block.site as usize];
            counts.live_bytes = counts.live_bytes.saturating_sub(block.last - addr + 1);
        }
    }

    /// Removes all blocks in `first..=last`. A block that lies only partly in the range is
    /// shortened.
    pub(crate) fn gone(&mut self, first: u64, last: u64) {
        while let Some((&start, &block)) = self.blocks.range(..=last).next_back() {
            if block.last < first {
                break;
            }
            self.blocks.remove(&start);
            if !block.is_freed {
                let counts = &mut self.sites[block.site as usize];
                let gone = block.last.min(last) - start.max(first) + 1;
                counts.live_bytes = counts.live_bytes.saturating_sub(gone);
            }
            if block.last > last {
                self.blocks.insert(last + 1, block);
            }
            if start < first {
                self.blocks.insert(start, Block { last: first - 1, ..block });
            }
        }
    }

    /// Records that another program begins in an empty space.
    pub(crate) fn replaced(&mut self) {
        self.blocks.clear();
        self.numbers.clear();
        self.sites.iter_mut().for_each(|site| site.live_bytes = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::numbers;

    /// The bytes of a small memory; the model knows the block of each byte.
    const BYTES: u64 = 64;

    #[test]
    fn blocks_agree_with_a_model_byte_by_byte() {
        for seed in 1..=60u64 {
            let mut random = numbers(seed);
            let mut allocations = Allocations::default();
            (0..4).for_each(|number| allocations.site(number, Vec::new()));
            // Of each byte its site, and whether it is live.
            let mut model = [None::<(u32, bool)>; BYTES as usize];
            let mut starts = [false; BYTES as usize];
            for step in 0..400 {
                let first = random(BYTES);
                let last = first + random(BYTES - first);
                let range = first as usize..=last as usize;
                match random(3) {
                    0 => {
                        let site = random(4) as u32;
                        allocations.allocate(first, last - first + 1, site);
                        model[range.clone()].fill(Some((site, true)));
                        starts[range].fill(false);
                        // The rest of an earlier block begins behind the new one.
                        if let Some(next) = model.get(last as usize + 1) {
                            starts[last as usize + 1] |= next.is_some();
                        }
                        starts[first as usize] = true;
                    }
                    1 => {
                        allocations.gone(first, last);
                        model[range.clone()].fill(None);
                        starts[range].fill(false);
                        if let Some(next) = model.get(last as usize + 1) {
                            starts[last as usize + 1] |= next.is_some();
                        }
                    }
                    _ => {
                        allocations.free(first);
                        if starts[first as usize] {
                            let rest = first as usize + 1..BYTES as usize;
                            let end = rest.clone().find(|&at| starts[at] || model[at].is_none());
                            for byte in &mut model[first as usize..end.unwrap_or(BYTES as usize)] {
                                *byte = byte.map(|(site, _)| (site, false));
                            }
                        }
                    }
                }
                for (at, byte) in model.iter().enumerate() {
                    let found = allocations.site_of(at as u64);
                    assert_eq!(found, byte.map(|(site, _)| site), "seed {seed} step {step} {at}");
                }
                for (number, site) in (0..).zip(allocations.sites()) {
                    let live = model.iter().filter(|byte| **byte == Some((number, true))).count();
                    assert_eq!(site.live_bytes, live as u64, "seed {seed} step {step}");
                }
            }
        }
    }
}
