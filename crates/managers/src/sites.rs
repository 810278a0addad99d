//! Allocation sites: places in a program that allocate memory. Rules identify them by a source file
//! and a line.
//!
//! ```text
//!   Site 7: return addresses --Names--> functions, files, lines --> the rule for one of these
//!   Allocate: bytes at site 7 --------------------------------------> the wish for these bytes
//! ```
//!
//! Names are found when the trace reports a site, by a function that is passed to the machine,
//! because this crate does not read programs and their symbols.

use std::collections::BTreeMap;

use addr::{VirtAddr, VirtRange};
use os::names::Names;
use results::{CodePlace, FrameName, count::labels::Layout};
use trace::Event;

use super::wish::Wish;

/// The sites of a trace to which a rule applies, and their allocations.
#[derive(Clone, Debug, Default)]
pub(super) struct Sites {
    names: Option<Names>,
    /// By space and the trace's number of the site: the index of the rule, and its request.
    wished: BTreeMap<(u32, u32), (usize, Wish)>,
    /// By space and first byte of a block: its end, and its request.
    blocks: BTreeMap<(u32, u64), (u64, Wish)>,
}

impl Sites {
    pub(super) fn find_by(&mut self, names: Names) {
        self.names = Some(names);
    }

    /// Updates the sites for `event` in the space `number`. If `event` is an allocation at a site,
    /// and `rule` returns a rule for one of the site's stack frames, returns the allocated range,
    /// the index of the rule, and its request.
    pub(super) fn hear(
        &mut self,
        number: u32,
        event: &Event,
        layout: &Layout,
        rule: impl Fn(&FrameName) -> Option<(usize, Wish)>,
    ) -> Option<(VirtRange, usize, Wish)> {
        match event {
            Event::Site { number: site, stack } => {
                let names = self.names.as_ref()?;
                let frames =
                    stack.iter().flat_map(|addr| names.of_call(&place(layout, number, *addr)));
                match frames.filter_map(|frame| rule(&frame)).next() {
                    Some(found) => self.wished.insert((number, *site), found),
                    None => self.wished.remove(&(number, *site)),
                };
                None
            }
            Event::Execve { result: 0, .. } => {
                self.wished.retain(|(space, _), _| *space != number);
                None
            }
            Event::Allocate { addr, bytes, site } => {
                let (rule, wish) = *self.wished.get(&(number, *site))?;
                Some((VirtRange::new(VirtAddr::new(*addr), *bytes).ok()?, rule, wish))
            }
            Event::Marker { .. }
            | Event::Image { .. }
            | Event::Free { .. }
            | Event::Call(_)
            | trace::events!(memory)
            | trace::events!(lives)
            | trace::events!(stream)
            | trace::events!(translation) => None,
        }
    }

    /// Records the request for `range`.
    pub(super) fn keep(&mut self, number: u32, range: VirtRange, wish: Wish) {
        self.forget(number, range.start().get(), range.bytes());
        self.blocks
            .insert((number, range.start().get()), (range.last().get().saturating_add(1), wish));
    }

    /// Removes the allocations in these bytes.
    pub(super) fn forget(&mut self, number: u32, start: u64, bytes: u64) {
        let end = start.saturating_add(bytes);
        while let Some((&key, &(last, wish))) = self.blocks.range(..(number, end)).next_back() {
            if key.0 != number || last <= start {
                return;
            }
            self.blocks.remove(&key);
            if last > end {
                self.blocks.insert((number, end), (last, wish));
            }
            if key.1 < start {
                self.blocks.insert(key, (start, wish));
            }
        }
    }

    /// Removes the allocations of a space.
    pub(super) fn forget_space(&mut self, number: u32) {
        self.blocks.retain(|(space, _), _| *space != number);
    }

    /// The parts of `range` that were allocated at sites with a request.
    pub(super) fn within(&self, number: u32, range: VirtRange) -> Vec<(VirtRange, Wish)> {
        let (start, end) = (range.start().get(), range.last().get().saturating_add(1));
        let blocks = self.blocks.range((number, 0)..(number, end)).rev();
        let near = blocks.take_while(|(_, (last, _))| *last > start);
        let part = |(&(_, first), &(last, wish)): (&(u32, u64), &(u64, Wish))| {
            let (from, to) = (first.max(start), last.min(end));
            Some((VirtRange::new(VirtAddr::new(from), to - from).ok()?, wish))
        };
        near.filter_map(part).collect()
    }
}

/// The place to which a call returns.
fn place(layout: &Layout, number: u32, addr: u64) -> CodePlace {
    let location = layout.locate(number, addr);
    let file = location.file.and_then(|file| Some(layout.regions(number)?.file(file)));
    CodePlace {
        object: file.map(|file| file.path.clone()),
        identity: file.and_then(|file| file.identity.clone()),
        offset: location.offset,
        ..CodePlace::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_cut_and_found_byte_by_byte() {
        let wish = |shift| Wish::of(addr::PageSize::from_shift(shift).unwrap());
        let range = |start, bytes| VirtRange::new(VirtAddr::new(start), bytes).unwrap();
        for seed in 1..=40u64 {
            let mut random = seed;
            let mut below = |bound: u64| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 33) % bound
            };
            let (mut sites, mut model) = (Sites::default(), [None; 64]);
            for _ in 0..200 {
                let start = below(60);
                let bytes = 1 + below(64 - start);
                let own = start as usize..(start + bytes) as usize;
                if below(3) == 0 {
                    sites.forget(1, start, bytes);
                    model[own].fill(None);
                } else {
                    let shift = 12 + 2 * below(3) as u8;
                    sites.keep(1, range(start, bytes), wish(shift));
                    model[own].fill(Some(wish(shift)));
                }
                sites.keep(0, range(start, 1), wish(12));
                let (from, count) = (below(60), 1 + below(4));
                let mut found = [None; 64];
                for (part, wish) in sites.within(1, range(from, count)) {
                    let first = part.start().get() as usize;
                    found[first..first + part.bytes() as usize].fill(Some(wish));
                }
                let asked = from as usize..(from + count) as usize;
                assert_eq!(found[asked.clone()], model[asked], "seed {seed}");
            }
        }
    }
}
