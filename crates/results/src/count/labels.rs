//! The regions of each address space, from the events of the trace, and the region to which an address belongs.
//!
//! A layout only observes events. Operating systems read it ([`Layout::regions`]), and the counts
//! of a run are kept by its labels.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use addr::{PageSize, VirtAddr, VirtRange};
use trace::{Event, Location, Region, RegionId, Regions};

use crate::count::census::SHARED;

/// Stands for the label of a region that has no label yet.
const UNLABELED: u32 = u32::MAX;

/// The number of slots for parts of regions that were looked up: enough for misses that alternate
/// between a few regions.
const RECENT: usize = 64;
/// The number of the lowest address bit that is used to choose the slot of a part.
const RECENT_SHIFT: u32 = 21;

/// A part of a region that was looked up. It is valid until any mapping changes.
#[derive(Clone, Copy)]
struct Recent {
    first: u64,
    last: u64,
    space: u32,
    label: u32,
}

impl Recent {
    /// A slot without any address.
    const NONE: Recent = Recent { first: 1, last: 0, space: 0, label: 0 };
}

/// The regions of all address spaces, by the trace's numbers of spaces.
pub struct Layout {
    /// The spaces, in the order in which they became known.
    spaces: Vec<SpaceLabels>,
    /// The index in `spaces`, by the trace's number of the space.
    places: BTreeMap<u32, usize>,
    /// The number of the space that was looked up last, and its index.
    last: Option<(u32, usize)>,
    /// For each label the numbers of its space and region.
    labels: Vec<(u32, RegionId)>,
    /// For each slot, the part of a region that was found last.
    recent: [Recent; RECENT],
    /// For which spaces events describe mappings, as determined before the run.
    foreseen: Told,
}

/// The spaces whose mappings are described by events, as far as the beginning of the trace shows
/// this.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The spaces seen so far.
    spaces: BTreeSet<u32>,
    /// The spaces in `spaces` for which an event describes a mapping.
    told: BTreeSet<u32>,
}

impl Told {
    /// Adds the space `number`, for which no event has described a mapping yet.
    pub fn come(&mut self, number: u32) {
        self.spaces.insert(number);
    }

    /// Records that an event describes a mapping of the space `number`, which has been seen.
    pub fn tell(&mut self, number: u32) {
        self.told.insert(number);
    }

    /// Whether events describe the mappings of all spaces seen so far.
    pub fn are_all(&self) -> bool {
        self.told.len() == self.spaces.len()
    }

    /// Whether events describe the mappings of the space `number`. A space that has not been seen
    /// yet is assumed to be like the others, because a trace has the events of all its processes or
    /// of none.
    fn has(&self, number: u32) -> bool {
        let told =
            if self.spaces.contains(&number) { self.told.get(&number) } else { self.told.first() };
        told.is_some()
    }
}

impl Default for Layout {
    fn default() -> Layout {
        Layout {
            spaces: Vec::new(),
            places: BTreeMap::new(),
            last: None,
            labels: Vec::new(),
            recent: [Recent::NONE; RECENT],
            foreseen: Told::default(),
        }
    }
}

/// The regions of one address space, and their labels.
#[derive(Default)]
struct SpaceLabels {
    regions: Regions,
    /// The label of each region, by its number.
    labels: Vec<u32>,
    /// Whether events describe the mappings; empty until this was decided.
    is_told: OnceCell<bool>,
}

impl Layout {
    /// Adds the space `number`.
    pub fn enter(&mut self, number: u32) {
        self.known(number);
    }

    /// Sets for which spaces events describe the mappings.
    pub fn foresee(&mut self, told: Told) {
        self.foreseen = told;
    }

    /// Whether events describe the mappings of the space `number`. If this was not determined
    /// before the run, the answer is whether such an event came before the first call. The answer
    /// never changes, so that all addresses outside known mappings are treated in the same way.
    pub fn is_told(&self, number: u32) -> bool {
        self.places.get(&number).is_some_and(|&place| {
            let known = &self.spaces[place];
            *known.is_told.get_or_init(|| self.foreseen.has(number) || known.regions.is_told())
        })
    }

    /// Applies `event` to the space `number`.
    pub fn apply(&mut self, number: u32, event: &Event) {
        let place = self.known(number);
        self.spaces[place].regions.apply(event);
        if event.changes_mappings() {
            self.recent = [Recent::NONE; RECENT];
        }
    }

    /// The regions of the space `number`, if it is known.
    pub fn regions(&self, number: u32) -> Option<&Regions> {
        Some(&self.spaces[*self.places.get(&number)?].regions)
    }

    /// The label of the region that contains `addr`: unique over all spaces, from 0.
    #[inline]
    pub fn label_of(&mut self, number: u32, addr: VirtAddr) -> u32 {
        let Recent { first, last, space, label } = self.recent[recent_index(addr)];
        if first <= addr.get() && addr.get() <= last && space == number {
            return label;
        }
        self.find_label(number, addr)
    }

    /// The label of the region in which `range` begins or, if it begins in none, of the first
    /// region in `range`.
    pub fn label_within(&mut self, number: u32, range: VirtRange) -> u32 {
        let (first, last) = (range.start().get(), range.last().get());
        if first == last {
            return self.label_of(number, range.start());
        }
        let told = self.regions(number).and_then(|regions| regions.first_within(first, last));
        self.label_of(number, told.map_or(range.start(), VirtAddr::new))
    }

    #[inline(never)]
    fn find_label(&mut self, number: u32, addr: VirtAddr) -> u32 {
        let place = match self.last {
            Some((last, place)) if last == number => place,
            _ => self.known(number),
        };
        let known = &mut self.spaces[place];
        let region = known.regions.region_of(addr.get());
        let label = match known.labels.get(region.0 as usize) {
            Some(&label) if label != UNLABELED => label,
            _ => self.label(number, place, region),
        };
        // Inferred regions have no fixed extent: they grow with each lookup, so they are not kept
        // in a slot.
        if let Some((first, last)) = self.spaces[place].regions.extent_of(addr.get()) {
            self.recent[recent_index(addr)] = Recent { first, last, space: number, label };
        }
        label
    }

    /// The index of the space `number`, which is added if it is new.
    #[cold]
    fn known(&mut self, number: u32) -> usize {
        let next = self.spaces.len();
        let place = *self.places.entry(number).or_insert(next);
        if place == next {
            self.spaces.push(SpaceLabels::default());
        }
        self.last = Some((number, place));
        place
    }

    /// Assigns a label to a region of the space `number`.
    #[cold]
    fn label(&mut self, number: u32, place: usize, region: RegionId) -> u32 {
        let (labels, index) = (&mut self.spaces[place].labels, region.0 as usize);
        let label = self.labels.len() as u32;
        self.labels.push((number, region));
        if labels.len() <= index {
            labels.resize(index + 1, UNLABELED);
        }
        labels[index] = label;
        label
    }

    /// The allocation site of the memory at `addr`, by its index among the sites of the space.
    pub fn site_of(&self, number: u32, addr: VirtAddr) -> Option<u32> {
        let regions = match self.last {
            Some((last, place)) if last == number => &self.spaces[place].regions,
            _ => self.regions(number)?,
        };
        regions.allocations().site_of(addr.get())
    }

    /// The offset of `addr` in the file that is mapped there now.
    pub fn locate(&self, number: u32, addr: u64) -> Location {
        let unknown = Location { file: None, offset: addr };
        self.regions(number).map_or(unknown, |regions| regions.locate(addr))
    }

    /// The numbers of the known spaces.
    pub fn spaces(&self) -> impl Iterator<Item = (u32, &Regions)> {
        self.places.iter().map(|(number, place)| (*number, &self.spaces[*place].regions))
    }

    /// The label of a TLB entry for `range` after an access in `region`: the label of that region, or
    /// [`SHARED`] if other regions have bytes in `range` too.
    pub fn label_of_entry(&self, number: u32, range: VirtRange, region: u32) -> u32 {
        // Regions begin and end at boundaries of base pages.
        let is_single = range.bytes() <= PageSize::SIZE_4K.bytes()
            || self
                .regions(number)
                .is_some_and(|known| known.is_single(range.start().get(), range.last().get()));
        if is_single { region } else { SHARED }
    }

    /// The regions that have labels, in the order of their labels, each with the number of its
    /// space.
    pub fn labeled(&self) -> impl Iterator<Item = (u32, &Region)> {
        self.labels
            .iter()
            .map(|(space, region)| (*space, self.spaces[self.places[space]].regions.get(*region)))
    }
}

/// The slot of the part that contains `addr`.
#[inline]
fn recent_index(addr: VirtAddr) -> usize {
    (addr.get() >> RECENT_SHIFT) as usize % RECENT
}
