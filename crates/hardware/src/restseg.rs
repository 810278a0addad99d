//! Lookup of pages in restrictive segments, before the page table is walked (Kanellopoulos and others 2023,
//! "Utopia").
//!
//! ```text
//!   missed everywhere --> set = page modulo sets
//!        filter: is a place of the set taken?      a byte, out of the filter's cache or memory
//!          | no: not here                | yes
//!          |                             v
//!          |                 tags: is one this page's?   a line, out of the tags' cache or memory
//!          v  no                         | yes
//!        the next segment, then a walk   v
//!                                      frame = place of the tag: no walk
//! ```
//!
//! The segment for larger pages is searched first. The lookups in the segments and the walk follow
//! each other, so their times add up. When the operating system writes an array, its lines stay in
//! these caches, since the caches are coherent.

use addr::{PageSize, PhysAddr, VirtAddr};
use description::{Description, Refusal};
use mmu::{CacheParams, GeometryError, Hierarchy, HierarchyParams, Policy, Requester, Served};
use pagetable::{Leads, Reference, Translation};
use physmem::Segment;
use ram::hashed::{self, Kept, TAG_BYTES};
use results::RestSegCounts;

/// The bytes of a line in the caches of the arrays.
const LINE: u64 = 64;

/// A cache for recently used lines of an array; if `lines` is 0, a hierarchy without caches.
fn lines(lines: u32, ways: u32) -> Result<Hierarchy, GeometryError> {
    let cache = CacheParams {
        size_bytes: u64::from(lines) * LINE,
        line_bytes: LINE as u32,
        ways,
        replacement: Policy::Lru,
        seed: 0,
    };
    let l1d = (lines > 0).then_some(cache);
    Hierarchy::new(&HierarchyParams { l1d, ..HierarchyParams::default() })
        .map_err(|(_, wrong)| wrong)
}

/// The restrictive-segment lookups of a processor.
pub struct RestSegUnit {
    kept: Kept,
    base: PageSize,
    filters: Hierarchy,
    tags: Hierarchy,
    counts: RestSegCounts,
}

impl RestSegUnit {
    /// The unit in `description`, if there is one. The error has the key that is wrong.
    pub fn of(description: &Description) -> Result<Option<RestSegUnit>, Refusal> {
        hashed::check(description)?;
        let Some(described) = &description.restseg else { return Ok(None) };
        let Some(kept) = hashed::kept(description)? else { return Ok(None) };
        let lines = |key: &str, count: u32| {
            lines(count, described.ways)
                .map_err(|wrong| Refusal::new(format!("restseg.{key}"), wrong.to_string()))
        };
        Ok(Some(RestSegUnit {
            kept,
            base: description.os.frame(),
            filters: lines("filter_lines", described.filter_lines)?,
            tags: lines("tag_lines", described.tag_lines)?,
            counts: RestSegCounts {
                filter_lines: described.filter_lines.into(),
                tag_lines: described.tag_lines.into(),
                ways: described.ways.into(),
                ..RestSegCounts::default()
            },
        }))
    }

    /// Looks for the page of `va`; `there` is its translation, if it is mapped. `is_taken` returns whether a
    /// frame of a set is in use. The lookup's memory references are appended to `references`. Returns
    /// whether the page was found.
    pub fn lookup(
        &mut self,
        va: VirtAddr,
        there: Option<Translation>,
        is_taken: impl Fn(Segment, u32) -> bool,
        references: &mut Vec<Reference>,
    ) -> bool {
        self.counts.lookups += 1;
        let all = self.kept.segments.iter().zip(self.kept.arrays).rev();
        for (segment, (filters, tags)) in all.filter_map(|(of, at)| Some(((*of)?, at))) {
            let shift = self.base.shift() + segment.order;
            let page = va.get() >> shift;
            let set = segment.set_of(page);
            let filter = PhysAddr::new(filters.get() + u64::from(set));
            if is_missed(&mut self.filters, filter) {
                self.counts.filter_reads += 1;
                references.push(read(filter, 1));
            }
            if !is_taken(segment, set) {
                self.counts.filtered += 1;
                continue;
            }
            let bytes = u64::from(segment.ways) * TAG_BYTES;
            let tag = tags.get() + u64::from(set) * bytes;
            for line in tag / LINE..=(tag + bytes - 1) / LINE {
                let from = PhysAddr::new(tag.max(line * LINE));
                if is_missed(&mut self.tags, from) {
                    self.counts.tag_reads += 1;
                    let to = (tag + bytes).min((line + 1) * LINE);
                    references.push(read(from, (to - from.get()) as u8));
                }
            }
            let is_here = there.is_some_and(|there| {
                let frame = there.frame.get() >> self.base.shift();
                there.page.size().shift() == shift
                    && segment.places(set).any(|place| u64::from(place.0) == frame)
            });
            if is_here {
                self.counts.hits += 1;
                return true;
            }
        }
        self.counts.misses += 1;
        false
    }

    pub fn counts(&self) -> RestSegCounts {
        self.counts.clone()
    }

    pub fn forget_counts(&mut self) {
        // Lookups of the caches of filters and tags are counted here, not by these caches.
        let RestSegUnit { kept: _, base: _, filters: _, tags: _, counts } = self;
        let RestSegCounts { filter_lines, tag_lines, ways, .. } = *counts;
        *counts = RestSegCounts { filter_lines, tag_lines, ways, ..RestSegCounts::default() };
    }
}

/// Accesses the line of `addr`. Returns whether it missed.
fn is_missed(lines: &mut Hierarchy, addr: PhysAddr) -> bool {
    lines.access(addr, 1, false, Requester::Walker) == Served::Memory
}

/// A reference to an array. It has level 0, like every reference to a cache of translations that is
/// searched before the page table.
fn read(addr: PhysAddr, bytes: u8) -> Reference {
    Reference { addr, bytes, write: false, level: 0, leads: Leads::Nowhere }
}
