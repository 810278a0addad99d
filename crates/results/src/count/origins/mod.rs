//! The origins of misses: which code of which thread missed on which data.
//!
//! ```text
//!   a miss of every level
//!     index in the batch --> thread; last fetch before it --> block, instruction --> code
//!     address           --> region, allocation site                                |
//!     page              --> size                                                   v
//!                                             counts[code, region, site, thread, size] += 1
//! ```
//!
//! Hits are not attributed to origins, so this module takes no time for a hit. The code that caused
//! a miss is known if the trace has all fetches. An instruction is identified by the file that is
//! mapped at its address and by its offset in this file; its name is determined after the run
//! ([`naming`]).
//!
//! The use of memory is bounded: after [`KEYS_MAX`] different origins, further origins are counted
//! without their code and thread.

use addr::PageSize;
use rustc_hash::FxHashMap;
use trace::{Batch, Block, Filter, Header, Location};

use super::labels::Layout;
use crate::{CodePlace, MissOrigins, SiteCounts};

/// Stands for an unknown number.
const NONE: u32 = u32::MAX;
/// The largest number of origins that are counted separately.
const KEYS_MAX: usize = 1 << 17;
/// A site without misses is reported if it had at least this many bytes at one time.
const SITE_BYTES_MIN: u64 = 1 << 16;

/// The page of a miss.
pub struct Missed {
    /// The label of the region.
    pub region: u32,
    /// The allocation site, by its index in the space.
    pub site: Option<u32>,
    /// The size of the page.
    pub page: PageSize,
    /// Whether the access was the first touch of the page.
    pub cold: bool,
}

/// Misses by their origin.
pub struct Origins {
    /// Whether the trace has all fetches, which show the code that makes an access.
    has_code: bool,
    /// The number (index in `codes`) of the code at an address, by space, address of the block, and
    /// instruction. Emptied when mappings change.
    here: FxHashMap<(u32, u64, u32), u32>,
    numbers: FxHashMap<Code, u32>,
    codes: Vec<Code>,
    /// By thread: the block and the instruction that it had reached at the end of the previous
    /// batch.
    left_in: FxHashMap<u32, (u64, u32)>,
    /// The last access of this batch whose block was looked up: its index, its thread and its
    /// block. Later searches begin at this access, because one `rep` instruction may make all
    /// accesses of a batch.
    found: Option<(usize, u32, Block)>,
    counts: FxHashMap<Key, Counts>,
    /// The origin that was counted last, and its misses that are not in `counts` yet. The origin
    /// itself is in `counts`.
    last: Option<(Key, Counts)>,
}

/// An instruction in a space: the beginning of its block, and the number of the instruction in the
/// block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Code {
    space: u32,
    block: Location,
    instruction: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Key {
    code: u32,
    region: u32,
    site: u32,
    thread: u32,
    page: PageSize,
}

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    misses: u64,
    cold_misses: u64,
}

impl Counts {
    /// Counts a miss.
    #[inline]
    fn add(&mut self, cold: bool) {
        self.misses += 1;
        self.cold_misses += u64::from(cold);
    }
}

impl Origins {
    /// The origins of a trace with this header, before any miss.
    pub fn new(header: &Header) -> Origins {
        Origins {
            has_code: header.fetches && header.filter == Filter::None,
            here: FxHashMap::default(),
            numbers: FxHashMap::default(),
            codes: Vec::new(),
            left_in: FxHashMap::default(),
            found: None,
            counts: FxHashMap::default(),
            last: None,
        }
    }

    /// Counts a miss of the access at `index` of `batch`, in the space of the number `space`.
    pub fn miss(
        &mut self,
        batch: &Batch,
        index: usize,
        space: u32,
        layout: &Layout,
        missed: Missed,
    ) {
        let Missed { region, site, page, cold } = missed;
        let thread = batch.thread_of(index);
        let code = self.code(batch, index, thread, space, layout).unwrap_or(NONE);
        let site = site.unwrap_or(NONE);
        let mut key = Key { code, region, site, thread, page };
        if let Some((last, counts)) = &mut self.last
            && *last == key
        {
            counts.add(cold);
            return;
        }
        self.settle();
        if self.counts.len() >= KEYS_MAX && !self.counts.contains_key(&key) {
            key = Key { code: NONE, thread: NONE, ..key };
        }
        self.counts.entry(key).or_default().add(cold);
        self.last = Some((key, Counts::default()));
    }

    /// Adds the misses that are not in `counts` yet.
    fn settle(&mut self) {
        if let Some((key, new)) = self.last.take()
            && new.misses > 0
        {
            let counts = self.counts.entry(key).or_default();
            counts.misses += new.misses;
            counts.cold_misses += new.cold_misses;
        }
    }

    /// Called after the accesses of `batch` have run.
    pub fn batch_ends(&mut self, batch: &Batch) {
        self.settle();
        if !self.has_code {
            return;
        }
        let mut ends = batch.len();
        let mut seen: Vec<u32> = Vec::new();
        for segment in batch.segments.iter().rev() {
            let last = ends.checked_sub(1).filter(|last| *last >= segment.start as usize);
            ends = segment.start as usize;
            let Some(last) = last.filter(|_| !seen.contains(&segment.thread)) else { continue };
            seen.push(segment.thread);
            match self.block(batch, last, segment.thread) {
                Some(place) => self.left_in.insert(segment.thread, place),
                None => self.left_in.remove(&segment.thread),
            };
        }
        self.found = None;
    }

    /// Called when mappings have changed, so that other files may be mapped at the known addresses.
    pub fn mappings_changed(&mut self) {
        self.here.clear();
    }

    /// Resets the counts to zero.
    pub fn forget_counts(&mut self) {
        let Origins {
            has_code: _,
            here: _,
            numbers: _,
            codes: _,
            left_in: _,
            found: _,
            counts,
            last,
        } = self;
        *last = None;
        counts.clear();
    }

    /// The block and the instruction of the access at `index`, which `thread` made.
    fn block(&mut self, batch: &Batch, index: usize, thread: u32) -> Option<(u64, u32)> {
        let is_before = |&(at, by, _): &(usize, u32, Block)| at <= index && by == thread;
        let known = self.found.filter(is_before).map(|(at, _, block)| (at, block));
        let block = batch.block_after(index, known);
        self.found = Some((index, thread, block));
        match block {
            Block::At { address, instruction } => Some((address, instruction)),
            Block::Before { instructions } => {
                let (address, instruction) = self.left_in.get(&thread)?;
                Some((*address, instruction.saturating_add(instructions)))
            }
            Block::Unknown => None,
        }
    }

    fn code(
        &mut self,
        batch: &Batch,
        index: usize,
        thread: u32,
        space: u32,
        layout: &Layout,
    ) -> Option<u32> {
        if !self.has_code {
            return None;
        }
        let (address, instruction) = self.block(batch, index, thread)?;
        let Origins { here, numbers, codes, .. } = self;
        if codes.len() >= KEYS_MAX {
            return here.get(&(space, address, instruction)).copied();
        }
        let find = || {
            let block = layout.locate(space, address);
            let code = Code { space, block, instruction };
            *numbers.entry(code).or_insert_with(|| {
                codes.push(code);
                codes.len() as u32 - 1
            })
        };
        Some(*here.entry((space, address, instruction)).or_insert_with(find))
    }

    /// The counts of the batches so far, without names. `places` has, for each label, the index of its region in the
    /// results.
    pub fn finish(&self, layout: &Layout, places: &[u32]) -> MissOrigins {
        let spaces: Vec<u32> = layout.labeled().map(|(space, _)| space).collect();
        let mut sites = SitesTold::new(self, layout, &spaces);
        let mut misses: Vec<_> = self
            .counts
            .iter()
            .map(|(key, counts)| {
                let place = places[key.region as usize];
                let site = (key.site != NONE)
                    .then(|| sites.numbers.get(&(spaces[key.region as usize], key.site)).copied());
                let code = Some(key.code).filter(|&code| code != NONE);
                let thread = Some(key.thread).filter(|&thread| thread != NONE);
                let Counts { misses, cold_misses } = *counts;
                (code, place, site.flatten(), thread, key.page.bytes(), misses, cold_misses)
            })
            .collect();
        for &(_, _, site, .., misses, cold_misses) in &misses {
            if let Some(site) = site {
                sites.told[site as usize].misses += misses;
                sites.told[site as usize].cold_misses += cold_misses;
            }
        }
        misses.sort_unstable_by_key(|row| (std::cmp::Reverse(row.5), row.0, row.1, row.2, row.3));
        let code = self.codes.iter();
        let code = code.map(|code| place(layout, code.space, code.block, code.instruction));
        MissOrigins { code: code.collect(), sites: sites.told, misses, notes: Vec::new() }
    }
}

/// The allocation sites that the results contain.
struct SitesTold {
    /// The number of each site in the results, by its space and its index in this space.
    numbers: FxHashMap<(u32, u32), u32>,
    told: Vec<SiteCounts>,
}

impl SitesTold {
    /// The sites with misses, the sites after which regions are named, and large sites.
    fn new(origins: &Origins, layout: &Layout, spaces: &[u32]) -> SitesTold {
        let missed = origins.counts.keys().map(|key| (spaces[key.region as usize], key.site));
        let regions = layout.labeled().map(|(space, it)| (space, it.site.unwrap_or(NONE)));
        let mut wanted: Vec<(u32, u32)> = missed.chain(regions).collect();
        for (space, regions) in layout.spaces() {
            let sites = (0..).zip(regions.allocations().sites());
            let large = sites.filter(|(_, site)| site.peak_bytes >= SITE_BYTES_MIN);
            wanted.extend(large.map(|(index, _)| (space, index)));
        }
        wanted.retain(|(_, site)| *site != NONE);
        wanted.sort_unstable();
        wanted.dedup();
        let mut told = SitesTold { numbers: FxHashMap::default(), told: Vec::new() };
        for (space, index) in wanted {
            let known = layout.regions(space).map(|regions| regions.allocations().sites());
            let Some(site) = known.and_then(|sites| sites.get(index as usize)) else { continue };
            told.numbers.insert((space, index), told.told.len() as u32);
            let stack = site.frames.iter().map(|&frame| place(layout, space, frame, 0));
            told.told.push(SiteCounts {
                name: String::new(),
                stack: stack.collect(),
                own: None,
                allocations: site.allocations,
                bytes: site.bytes,
                peak_bytes: site.peak_bytes,
                misses: 0,
                cold_misses: 0,
            });
        }
        told
    }
}

/// The allocation site of each region, by the index of the region in the results.
pub fn sites_of_regions(origins: &Origins, layout: &Layout, places: &[u32]) -> Vec<Option<u32>> {
    let spaces: Vec<u32> = layout.labeled().map(|(space, _)| space).collect();
    let numbers = SitesTold::new(origins, layout, &spaces).numbers;
    let mut sites = vec![None; places.iter().map(|place| *place as usize + 1).max().unwrap_or(0)];
    for ((space, region), place) in layout.labeled().zip(places) {
        let site = region.site.and_then(|site| numbers.get(&(space, site)).copied());
        sites[*place as usize] = site;
    }
    sites
}

fn place(layout: &Layout, space: u32, at: Location, instruction: u32) -> CodePlace {
    let file = at.file.and_then(|number| Some(layout.regions(space)?.file(number)));
    CodePlace {
        object: file.map(|file| file.path.clone()),
        identity: file.and_then(|file| file.identity.clone()),
        offset: at.offset,
        instruction,
        function: None,
        inlined: Vec::new(),
        file: None,
        line: None,
    }
}

#[cfg(test)]
mod tests;
