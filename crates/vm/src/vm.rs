use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use core::ops::Range;

use addr::{PageSize, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace};
use pagetable::Mounted;
use physmem::{Coalesced, FrameId, Physmem};

use crate::{
    anon::Anons,
    error::Error,
    object::Objects,
    own::OwnPages,
    policy::{FAULT_POLICIES, FaultPolicy},
    region::Regions,
    replacement::{Replacement, policy},
    reserve::Reserving,
    settings::{Marks, Reference, Resident, Settings, SettingsError},
    swap::Swap,
    work::{Decision, How, Work},
};

/// The state of the memory manager.
///
/// ```text
///   space --> regions: what should be there        --> object --> pages by offset --+
///         --> anons: what it has stored, by page   --> anon, with its users --------+
///                                                                                   |
///   frame <-------------------------------- in memory --- or in swap <--------------+
///     | descriptor: identity (anon, or object and page), dirty, referenced, list
///     v
///   back again to the page that it holds
/// ```
pub struct Vm {
    pub(crate) base: PageSize,
    pub(crate) spaces: BTreeMap<HatSpace, AddressSpace>,
    pub(crate) objects: Objects,
    pub(crate) anons: Anons,
    pub(crate) swap: Swap,
    pub(crate) policy: Box<dyn Replacement>,
    pub(crate) reference: Reference,
    pub(crate) marks: Marks,
    pub(crate) resident: Resident,
    pub(crate) work: Work,
    pub(crate) faults: [u64; How::ALL.len()],
    pub(crate) decisions: BTreeMap<Decision, u64>,
    /// What upgrades came to.
    pub(crate) upgrades: BTreeMap<Decision, u64>,
    pub(crate) daemon: Option<Coalesced>,
    pub(crate) sizing: Box<dyn FaultPolicy>,
    /// The sizes that faults may load, ascending from the base page.
    pub(crate) sizes: Vec<PageSize>,
    pub(crate) reserving: Option<Reserving>,
    /// Objects that regions were given for their own pages.
    pub(crate) owns: u32,
    /// Whether both pages of a TLB's pair must have one size.
    pub(crate) paired: bool,
    /// Large pages that were unloaded to see whether they are used: their first frame, and log2 of
    /// their base frames.
    pub(crate) idle: BTreeMap<u32, u32>,
}

/// What a space should hold.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    pub(crate) regions: Regions,
    /// The pages that it has stored to where they are its own.
    pub(crate) anons: OwnPages,
    /// Frames that it wires, by page.
    pub(crate) wired: BTreeMap<u64, FrameId>,
    /// Whether new regions are wired.
    pub(crate) wires_all: bool,
    /// Whether a page larger than the base page was ever loaded.
    pub(crate) has_large: bool,
    /// Processes that use it: a child of vfork shares its parent's.
    pub(crate) users: u32,
}

/// The memory manager with all that it works on, for as long as an operation lasts.
pub struct Kernel<'a, T: Mounted + ?Sized, A, P> {
    /// Its state.
    pub vm: &'a mut Vm,
    /// What hardware has of it.
    pub hat: &'a Hat<T>,
    /// Whose each frame is.
    pub memory: &'a mut Physmem<A>,
    /// The rest.
    pub platform: &'a mut P,
}

impl Vm {
    /// A manager without spaces for a memory of `pages` pages.
    pub fn new(settings: Settings<'_>, pages: u64) -> Result<Vm, SettingsError> {
        let Settings {
            sizes,
            replacement,
            sizing,
            paired,
            reference,
            swap_pages,
            marks,
            reserving,
        } = settings;
        let ascend = sizes.is_sorted_by(|a, b| a < b);
        let Some(&base) = sizes.first().filter(|_| ascend) else {
            return Err(SettingsError::Sizes);
        };
        let policy = policy(replacement, pages)?;
        let known = FAULT_POLICIES.iter().find(|(name, _)| *name == sizing);
        let (_, sizing) = known.ok_or(SettingsError::Sizing)?;
        marks.check(pages)?;
        Ok(Vm {
            base,
            spaces: BTreeMap::new(),
            objects: Objects::default(),
            anons: Anons::default(),
            swap: Swap::new(swap_pages),
            policy,
            reference,
            marks,
            resident: Resident::default(),
            work: Work::default(),
            faults: [0; How::ALL.len()],
            decisions: BTreeMap::new(),
            upgrades: BTreeMap::new(),
            daemon: None,
            sizing: sizing(),
            sizes: sizes.to_vec(),
            reserving,
            owns: 0,
            paired,
            idle: BTreeMap::new(),
        })
    }

    /// Whether it manages this space.
    pub fn has(&self, space: HatSpace) -> bool {
        self.spaces.contains_key(&space)
    }

    /// What was done so far.
    pub fn work(&self) -> Work {
        self.work
    }

    /// Begins to count faults and pages by size anew.
    pub fn forget_counts(&mut self) {
        self.work = Work::default();
        self.faults = [0; How::ALL.len()];
        self.decisions.clear();
        self.upgrades.clear();
    }

    /// Faults by how they were answered, in the order of [`How::ALL`].
    pub fn faults(&self) -> [u64; How::ALL.len()] {
        self.faults
    }

    /// Pages loaded at faults, by what was decided about their size.
    pub fn decisions(&self) -> &BTreeMap<Decision, u64> {
        &self.decisions
    }

    /// Large pages that were asked for by upgrades, by what became of them.
    pub fn upgrades(&self) -> &BTreeMap<Decision, u64> {
        &self.upgrades
    }

    /// Whether a page larger than the base page was ever loaded in `space`.
    pub fn has_large(&self, space: HatSpace) -> bool {
        self.spaces.get(&space).is_some_and(|space| space.has_large)
    }

    /// Pages in memory by what they are.
    pub fn resident(&self) -> Resident {
        self.resident
    }

    /// Pages in swap.
    pub fn swapped(&self) -> u64 {
        self.swap.used()
    }

    /// The size of the smallest pages.
    pub fn base(&self) -> PageSize {
        self.base
    }

    /// What may be done at an address, if a region has it.
    pub fn rights(&self, space: HatSpace, addr: VirtAddr) -> Option<Rights> {
        let region = self.spaces.get(&space)?.regions.at(self.page_of(addr))?;
        Some(region.rights)
    }

    pub(crate) fn page_of(&self, addr: VirtAddr) -> u64 {
        addr.page(self.base).number()
    }

    pub(crate) fn addr_of(&self, page: u64) -> VirtAddr {
        VirtAddr::new(page << self.base.shift())
    }

    /// The numbers of the pages that `range` touches.
    pub(crate) fn pages_of(&self, range: VirtRange) -> Range<u64> {
        self.page_of(range.start())..self.page_of(range.last()) + 1
    }

    /// The addresses of pages; at least one.
    pub(crate) fn range_of(&self, pages: &Range<u64>) -> VirtRange {
        let last = VirtRange::of_page(self.addr_of(pages.end - 1).page(self.base));
        VirtRange::of_page(self.addr_of(pages.start).page(self.base)).hull(last)
    }

    pub(crate) fn space(&self, space: HatSpace) -> Result<&AddressSpace, Error> {
        self.spaces.get(&space).ok_or(Error::NoSpace(space))
    }

    pub(crate) fn space_mut(&mut self, space: HatSpace) -> Result<&mut AddressSpace, Error> {
        self.spaces.get_mut(&space).ok_or(Error::NoSpace(space))
    }
}
