use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use core::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
};

use addr::{PageSize, Rights, VirtAddr, VirtRange};
use hat::{
    HatSpace,
    locking::{Class, Locks, Mutex, Rw, Single, Site},
};
use physmem::{Coalesced, FrameId};

use crate::{
    anon::Anons,
    groups::Groups,
    hashed::Hashed,
    numbered::Numbered,
    object::Objects,
    own::OwnPages,
    pages::PageLists,
    policy::{FAULT_POLICIES, FaultPolicy},
    region::{Region, Regions, Wired},
    replacement::policy,
    settings::{MarksNow, Reference, Reserving, Resident, Settings, SettingsError},
    stacks::Stack,
    swap::Swap,
    thp::{Kept, Thp},
    work::{Counts, Decision, How, Work},
};

/// The state of the memory manager, with locks of the platform `L`.
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
///
/// Without `L`, the manager is for one thread. Which lock guards which data, and the order of locks,
/// is described in [the crate's documentation](crate#locks).
pub struct Vm<L: Locks = Single> {
    pub(crate) base: PageSize,
    pub(crate) spaces: Numbered<L::Mutex<Option<AddressSpace>>, L>,
    /// The paging lock: a writer may evict or move pages.
    pub(crate) paging: L::Rw<()>,
    pub(crate) objects: Objects<L>,
    pub(crate) anons: Anons<L>,
    pub(crate) pages: L::Mutex<PageLists>,
    pub(crate) swap: L::Mutex<Swap>,
    pub(crate) daemon: L::Mutex<Option<Coalesced>>,
    counts: L::Mutex<Counts>,
    pub(crate) reference: Reference,
    pub(crate) marks: MarksNow,
    /// The number of free pages at the time when the replacement daemon found no page that could be
    /// evicted; `usize::MAX` if its last attempt found a page.
    pub(crate) in_vain: AtomicUsize,
    pub(crate) sizing: Box<dyn FaultPolicy>,
    /// The page sizes that faults may load, ascending from the base page.
    pub(crate) sizes: Vec<PageSize>,
    pub(crate) reserving: Option<Reserving>,
    /// The number of NUMA nodes; the next field has the number of cache colours of base pages.
    pub(crate) nodes: u8,
    pub(crate) colors: u32,
    pub(crate) thp: Option<Thp>,
    pub(crate) has_groups: bool,
    pub(crate) hashed: Option<Hashed>,
    /// The number of objects assigned so far to regions' own pages.
    pub(crate) owns: AtomicU32,
    /// Whether both pages of a TLB pair must have the same size.
    pub(crate) paired: bool,
    /// Whether shared memory has ever had a large page.
    pub(crate) has_large_objects: AtomicBool,
}

/// A space: its regions and the places of its pages.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    pub(crate) regions: Regions,
    /// The space's own pages.
    pub(crate) anons: OwnPages,
    /// The frames that the space wires, by page.
    pub(crate) wired: BTreeMap<u64, FrameId>,
    /// The offsets between pages and their frames. Each entry applies from its page up to the page
    /// of the next entry. Empty if placement does not use offsets.
    pub(crate) offsets: BTreeMap<u64, i64>,
    /// The group of processes that is charged for the pages that the space brings in.
    pub(crate) group: u8,
    /// Whether pages of new regions are locked in memory.
    pub(crate) wires_new: Wired,
    /// Whether a page larger than the base page was ever loaded.
    pub(crate) has_large: bool,
    /// Whether frames were ever given to a region.
    pub(crate) has_given: bool,
    /// Whether pages were ever pinned for a device.
    pub(crate) has_pins: bool,
    /// The regions that grow downwards.
    pub(crate) stacks: Vec<Stack>,
    /// The page tables in place of large pages, if large pages are made automatically.
    pub(crate) tables: Kept,
    /// The number of processes that use the space: a child of vfork shares the space of its parent.
    pub(crate) users: u32,
}

impl AddressSpace {
    /// Whether the frame at `page` was given to its region.
    pub(crate) fn is_given(&self, page: u64) -> bool {
        self.regions.at(page).is_some_and(|region| region.backing.is_given())
    }
}

/// A space that the operation in progress has locked.
pub(crate) struct Within<'s> {
    pub(crate) space: HatSpace,
    pub(crate) known: &'s mut AddressSpace,
}

impl Vm {
    /// A manager for one thread, without spaces, for a memory of `pages` pages.
    pub fn new(settings: Settings<'_>, pages: u64) -> Result<Vm, SettingsError> {
        Vm::with_locks(settings, pages)
    }
}

impl<L: Locks> Vm<L> {
    /// A manager without spaces for a memory of `pages` pages, with locks of the platform `L`.
    pub fn with_locks(settings: Settings<'_>, pages: u64) -> Result<Vm<L>, SettingsError> {
        let Settings {
            sizes,
            replacement,
            sizing,
            paired,
            reference,
            swap_pages,
            marks,
            reserving,
            nodes,
            colors,
            thp,
            groups,
            hashed,
        } = settings;
        let ascend = sizes.is_sorted_by(|a, b| a < b);
        let Some(&base) = sizes.first().filter(|_| ascend) else {
            return Err(SettingsError::Sizes);
        };
        let lists = policy(replacement, pages).ok_or(SettingsError::Replacement)?;
        let mut lists = PageLists::new(lists);
        let of_group = || policy(replacement, pages).expect("there is one of that name");
        let has_groups = !groups.is_empty();
        lists.groups = has_groups.then(|| Box::new(Groups::new(groups, pages as usize, of_group)));
        let known = FAULT_POLICIES.iter().find(|(name, _)| *name == sizing);
        let (_, sizing) = known.ok_or(SettingsError::Sizing)?;
        marks.check(pages)?;
        Ok(Vm {
            base,
            spaces: Numbered::new(),
            paging: L::Rw::new(Class::VmPaging, ()),
            objects: Objects::new(),
            anons: Anons::new(),
            pages: L::Mutex::new(Class::VmPages, lists),
            swap: L::Mutex::new(Class::VmFree(0), Swap::new(swap_pages)),
            daemon: L::Mutex::new(Class::VmFree(2), None),
            counts: L::Mutex::new(Class::VmFree(3), Counts::default()),
            reference,
            marks: MarksNow::new(marks),
            in_vain: AtomicUsize::new(usize::MAX),
            sizing: sizing(),
            sizes: sizes.to_vec(),
            reserving,
            nodes,
            colors,
            thp,
            has_groups,
            hashed,
            owns: AtomicU32::new(0),
            paired,
            has_large_objects: AtomicBool::new(false),
        })
    }

    /// Whether the manager has this space.
    pub fn has(&self, space: HatSpace) -> bool {
        self.look_at(space, |_| ()).is_some()
    }

    /// The work done so far by all [`Kernel`](crate::Kernel)s that have been dropped.
    pub fn work(&self) -> Work {
        self.counts.with(Site::Look, |counts| counts.work)
    }

    /// Resets the counts of faults and of pages by size.
    pub fn forget_counts(&self) {
        self.counts.with(Site::Look, |counts| *counts = Counts::default());
    }

    /// Adds counts.
    pub(crate) fn add_counts(&self, counted: impl FnOnce(&mut Counts)) {
        self.counts.with(Site::Look, counted);
    }

    pub(crate) fn look_at_counts<R>(&self, f: impl FnOnce(&Counts) -> R) -> R {
        self.counts.with(Site::Look, |counts| f(counts))
    }

    /// Faults by how they were handled, in the order of [`How::ALL`].
    pub fn faults(&self) -> [u64; How::ALL.len()] {
        self.look_at_counts(|counts| counts.faults)
    }

    /// Pages loaded at faults, by the decision about their size.
    pub fn decisions(&self) -> BTreeMap<Decision, u64> {
        self.look_at_counts(|counts| counts.decisions())
    }

    /// Large pages requested by upgrades, by outcome.
    pub fn upgrades(&self) -> BTreeMap<Decision, u64> {
        self.look_at_counts(|counts| counts.upgrades.clone())
    }

    /// Whether a page larger than the base page was ever loaded in `space`.
    pub fn has_large(&self, space: HatSpace) -> bool {
        self.look_at(space, |known| known.has_large) == Some(true)
    }

    /// Counts of pages in memory by kind.
    pub fn resident(&self) -> Resident {
        self.pages.with(Site::Look, |lists| lists.resident)
    }

    /// The number of pages in swap.
    pub fn swapped(&self) -> u64 {
        self.swap.with(Site::Look, |swap| swap.used())
    }

    /// The base page size.
    pub fn base(&self) -> PageSize {
        self.base
    }

    /// The regions of a space, by address.
    pub fn regions(&self, space: HatSpace) -> Vec<Region> {
        let all = |known: &AddressSpace| known.regions.all().cloned().collect();
        self.look_at(space, all).unwrap_or_default()
    }

    /// The rights at an address, if a region contains it.
    pub fn rights(&self, space: HatSpace, addr: VirtAddr) -> Option<Rights> {
        let rights = |known: &AddressSpace| Some(known.regions.at(self.page_of(addr))?.rights);
        self.look_at(space, rights)?
    }

    /// The beginning of `range` up to the first address without a region; `None` if `range` begins with such
    /// an address.
    pub fn before_hole(&self, space: HatSpace, range: VirtRange) -> Option<VirtRange> {
        self.beginning(space, range, |regions, pages| regions.until(pages, false, |_| true))
    }

    /// The beginning of `range` up to the first wired region; `None` if `range` begins in one.
    pub fn before_wired(&self, space: HatSpace, range: VirtRange) -> Option<VirtRange> {
        self.beginning(space, range, |regions, pages| {
            regions.until(pages, true, |region| !region.wired.stays())
        })
    }

    /// The part of `range` around `addr` that no region contains; `None` if a region contains
    /// `addr`.
    pub fn hole_around(
        &self,
        space: HatSpace,
        addr: VirtAddr,
        range: VirtRange,
    ) -> Option<VirtRange> {
        let (page, pages) = (self.page_of(addr), self.pages_of(range));
        let hole = self.look_at(space, |known| known.regions.hole_around(page, pages))??;
        Some(self.range_of(&hole))
    }

    /// Whether `holds` is true for a region that overlaps `range`.
    pub fn any_region(
        &self,
        space: HatSpace,
        range: VirtRange,
        holds: impl FnMut(&Region) -> bool,
    ) -> bool {
        let pages = self.pages_of(range);
        self.look_at(space, |known| known.regions.within(&pages).any(holds)).unwrap_or(false)
    }

    fn beginning(
        &self,
        space: HatSpace,
        range: VirtRange,
        of: impl FnOnce(&Regions, &Range<u64>) -> Range<u64>,
    ) -> Option<VirtRange> {
        let pages = self.pages_of(range);
        let found = self.look_at(space, |known| of(&known.regions, &pages))?;
        (!found.is_empty()).then(|| self.range_of(&found))
    }

    pub(crate) fn look_at<R>(
        &self,
        space: HatSpace,
        f: impl FnOnce(&AddressSpace) -> R,
    ) -> Option<R> {
        self.spaces.made(space.0)?.with(Site::Look, |known| known.as_ref().map(f))
    }

    pub(crate) fn page_of(&self, addr: VirtAddr) -> u64 {
        addr.page(self.base).number()
    }

    pub(crate) fn addr_of(&self, page: u64) -> VirtAddr {
        VirtAddr::new(page << self.base.shift())
    }

    /// The numbers of the pages that overlap `range`.
    pub(crate) fn pages_of(&self, range: VirtRange) -> Range<u64> {
        self.page_of(range.start())..self.page_of(range.last()) + 1
    }

    /// The address range of `pages`, which must not be empty.
    pub(crate) fn range_of(&self, pages: &Range<u64>) -> VirtRange {
        let last = VirtRange::of_page(self.addr_of(pages.end - 1).page(self.base));
        VirtRange::of_page(self.addr_of(pages.start).page(self.base)).hull(last)
    }

    /// A new number for an object of a region's own pages.
    pub(crate) fn own_number(&self) -> u32 {
        self.owns.fetch_add(1, Ordering::Relaxed) + 1
    }
}
