//! What the trace has said of each address space, and under which region an address is reported.
//!
//! It observes and decides nothing: a system reads it ([`Layout::regions`]), the counts of a run
//! are kept by its labels.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use addr::{PageSize, VirtAddr, VirtRange};
use trace::{Event, Location, Region, RegionId, Regions};

use crate::count::census::SHARED;

/// A region that has no label yet.
const UNLABELED: u32 = u32::MAX;

/// Places for parts of regions that were asked for: enough for misses that take turns between some.
const RECENT: usize = 64;
/// Parts are told apart by the addresses' bits from here on.
const RECENT_SHIFT: u32 = 21;

/// A part of a region, until some mapping changes.
#[derive(Clone, Copy)]
struct Recent {
    first: u64,
    last: u64,
    space: u32,
    label: u32,
}

impl Recent {
    /// Holds no address.
    const NONE: Recent = Recent { first: 1, last: 0, space: 0, label: 0 };
}

/// The regions of all spaces, by the trace's numbers.
pub struct Layout {
    /// In the order in which they became known.
    spaces: Vec<SpaceLabels>,
    /// By the trace's number: the place in `spaces`.
    places: BTreeMap<u32, usize>,
    /// The number of the space that was asked for last, and its place.
    last: Option<(u32, usize)>,
    /// Whose region a label is: the space's number and the region's.
    labels: Vec<(u32, RegionId)>,
    /// By address: what was found there last.
    recent: [Recent; RECENT],
    /// What was found out before the run.
    foreseen: Told,
}

/// Of which spaces events say what is mapped, as far as the beginning of a trace shows.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The spaces that have come.
    spaces: BTreeSet<u32>,
    /// The spaces among `spaces` for which an event says what is mapped.
    told: BTreeSet<u32>,
}

impl Told {
    /// Adds the space `number`. No event has said yet what is mapped in it.
    pub fn come(&mut self, number: u32) {
        self.spaces.insert(number);
    }

    /// An event says what is mapped in the space `number`, which has come.
    pub fn tell(&mut self, number: u32) {
        self.told.insert(number);
    }

    /// Whether all spaces that have come are told of.
    pub fn are_all(&self) -> bool {
        self.told.len() == self.spaces.len()
    }

    /// Whether the space `number` is told of. One that has not come yet will be as those are that have: a trace
    /// has the events of all its processes, or of none.
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

/// What is known of a space.
#[derive(Default)]
struct SpaceLabels {
    regions: Regions,
    /// The label of each region, by its number.
    labels: Vec<u32>,
    /// Whether events say what is mapped, once that counts.
    is_told: OnceCell<bool>,
}

impl Layout {
    /// From here on the space `number` is known.
    pub fn enter(&mut self, number: u32) {
        self.known(number);
    }

    /// Of these spaces events will say what is mapped.
    pub fn foresee(&mut self, told: Told) {
        self.foreseen = told;
    }

    /// Whether events say what is mapped in the space `number`: whether that was foreseen, or one had come when
    /// this was asked first. It stays so, whatever comes later, so that addresses are treated alike that no event
    /// explains.
    pub fn is_told(&self, number: u32) -> bool {
        self.places.get(&number).is_some_and(|&place| {
            let known = &self.spaces[place];
            *known.is_told.get_or_init(|| self.foreseen.has(number) || known.regions.is_told())
        })
    }

    /// Takes over what `event` changed in the space `number`.
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

    /// The label of the region that `addr` lies in: unique over all spaces, from 0.
    #[inline]
    pub fn label_of(&mut self, number: u32, addr: VirtAddr) -> u32 {
        let Recent { first, last, space, label } = self.recent[recent_index(addr)];
        if first <= addr.get() && addr.get() <= last && space == number {
            return label;
        }
        self.find_label(number, addr)
    }

    /// The label of the region that `range` begins in, or that is the first in it.
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
        // An inferred region grows with what is asked for, so that it is asked each time.
        if let Some((first, last)) = self.spaces[place].regions.extent_of(addr.get()) {
            self.recent[recent_index(addr)] = Recent { first, last, space: number, label };
        }
        label
    }

    /// The place of the space `number`, which is known from here on.
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

    /// Gives a region of the space `number` its label.
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

    /// The allocation site of what is at `addr`, by its index among those of the space.
    pub fn site_of(&self, number: u32, addr: VirtAddr) -> Option<u32> {
        let regions = match self.last {
            Some((last, place)) if last == number => &self.spaces[place].regions,
            _ => self.regions(number)?,
        };
        regions.allocations().site_of(addr.get())
    }

    /// Where `addr` lies in the file that is mapped there now.
    pub fn locate(&self, number: u32, addr: u64) -> Location {
        let unknown = Location { file: None, offset: addr };
        self.regions(number).map_or(unknown, |regions| regions.locate(addr))
    }

    /// The spaces that are known, by their numbers.
    pub fn spaces(&self) -> impl Iterator<Item = (u32, &Regions)> {
        self.places.iter().map(|(number, place)| (*number, &self.spaces[*place].regions))
    }

    /// The label of a TLB's entry for `range`, of which an address in `region` was accessed: that region's, or
    /// [`SHARED`] if others have bytes there too.
    pub fn label_of_entry(&self, number: u32, range: VirtRange, region: u32) -> u32 {
        // Regions begin and end on boundaries of the base page.
        let is_single = range.bytes() <= PageSize::SIZE_4K.bytes()
            || self
                .regions(number)
                .is_some_and(|known| known.is_single(range.start().get(), range.last().get()));
        if is_single { region } else { SHARED }
    }

    /// The labeled regions by label: each with the number of its space.
    pub fn labeled(&self) -> impl Iterator<Item = (u32, &Region)> {
        self.labels
            .iter()
            .map(|(space, region)| (*space, self.spaces[self.places[space]].regions.get(*region)))
    }
}

/// The place of what was found at `addr` last.
#[inline]
fn recent_index(addr: VirtAddr) -> usize {
    (addr.get() >> RECENT_SHIFT) as usize % RECENT
}
