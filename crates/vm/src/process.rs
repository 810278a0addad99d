//! Spaces are created, copied, shared and ended.
//!
//! ```text
//!   fork    the child's regions and anons are the parent's, counted up; no frame is taken.
//!           Both lose the right to store: the first store of either makes a copy.
//!   vfork   the child uses the parent's space until it has one of its own.
//!   exec    the space is empty.
//!   exit    when its last user goes, so does the space.
//! ```

use alloc::{
    collections::{BTreeMap, TryReserveError},
    vec::Vec,
};
use core::slice;

use addr::VirtRange;
use hat::{
    HatSpace, LoadError,
    locking::{Class, Locks, Mutex, Site},
};

use crate::{
    anon::AnonId,
    error::Error,
    fault::ATTEMPTS_MAX,
    host::Host,
    kernel::Kernel,
    map::note_used,
    own::OwnPages,
    reclaim::BATCH,
    region::Own,
    region::{Backing, Region, Regions, Wired},
    stacks::Stack,
    thp::Kept,
    vm::{AddressSpace, Vm, Within},
};

impl<L: Locks> Vm<L> {
    /// Takes over a space of the HAT layer in which nothing is loaded.
    ///
    /// If no memory is left for the manager's data about the space, this fails. The space then
    /// still exists in the HAT layer, and the caller must destroy it there.
    pub fn adopt(&self, space: HatSpace) -> Result<(), Error> {
        let empty = AddressSpace {
            regions: Regions::default(),
            anons: OwnPages::default(),
            wired: BTreeMap::new(),
            offsets: BTreeMap::new(),
            group: 0,
            wires_new: Wired::No,
            has_large: false,
            has_given: false,
            has_pins: false,
            stacks: Vec::new(),
            tables: Kept::default(),
            users: 1,
        };
        let slot = self.spaces.get(space.0, || L::Mutex::new(Class::VmSpace, None));
        slot.ok_or(Error::NoMemory)?.with(Site::Create, |known| *known = Some(empty));
        Ok(())
    }
}

/// The data of the child of a fork.
struct Forked {
    regions: Regions,
    anons: OwnPages,
    has_large: bool,
    has_given: bool,
    stacks: Vec<Stack>,
    tables: Kept,
    group: u8,
}

impl Forked {
    /// Copies the regions and pages of `parent`; the child is not yet counted as a user of them.
    fn of(parent: &AddressSpace, has_tables: bool) -> Result<Forked, TryReserveError> {
        let regions = parent.regions.forked()?;
        let mut stacks = Vec::new();
        stacks.try_reserve_exact(parent.stacks.len())?;
        stacks.extend_from_slice(&parent.stacks);
        let tables = match has_tables {
            true => {
                let copied = regions.all().filter(|region| needs_copy(region, true));
                parent.tables.of_regions(&copied.cloned().collect::<Vec<_>>())
            }
            false => Kept::default(),
        };
        Ok(Forked {
            regions,
            anons: parent.anons.try_clone()?,
            has_large: parent.has_large,
            has_given: parent.has_given,
            stacks,
            tables,
            group: parent.group,
        })
    }
}

/// Whether a fork copies the translations of a region. If `has_tables` is true, page tables are
/// treated as in Linux: a region in which nothing was stored is not copied, because faults find its
/// pages again (`vma_needs_copy`).
fn needs_copy(region: &Region, has_tables: bool) -> bool {
    !has_tables || region.has_own
}

impl<H: Host> Kernel<'_, H> {
    /// Creates an empty space.
    pub fn create(&mut self) -> Result<HatSpace, Error> {
        self.site = Site::Create;
        for _ in 0..ATTEMPTS_MAX {
            let vm = self.vm;
            let (hat, mut below) = self.hat();
            match hat.create(&mut below) {
                Ok(space) => {
                    if let Err(error) = vm.adopt(space) {
                        hat.destroy(space, &mut below);
                        return Err(error);
                    }
                    return Ok(space);
                }
                Err(LoadError::NoTableMemory) if self.lacks_table_memory() => {}
                Err(LoadError::NoTableMemory) => {
                    let gone = self.pages_move(|kernel| kernel.reclaim(BATCH));
                    if gone == 0 && self.free_pages() == 0 {
                        break;
                    }
                }
                Err(LoadError::Table(error)) => return Err(Error::Table(error)),
                Err(LoadError::NoSpace(space)) => return Err(Error::NoSpace(space)),
                Err(LoadError::NoMemory) => return Err(Error::NoMemory),
            }
        }
        Err(self.out_of_memory())
    }

    /// Gives `child`, which is empty and in which nothing runs yet, a copy of all regions and pages
    /// of `parent`.
    pub fn fork(&mut self, parent: HatSpace, child: HatSpace) -> Result<(), Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        if !self.vm.has(child) {
            return Err(Error::NoSpace(child));
        }
        let (copied, done) = self.within(parent, |kernel, at| {
            // If there is no memory for the rest of the fork, these copies are freed again.
            let copies = kernel.copy_pinned(at)?;
            kernel.pages_stay(|kernel| match Forked::of(at.known, kernel.vm.thp.is_some()) {
                Ok(forked) => Ok(kernel.forked(at, child, forked, copies)),
                Err(error) => {
                    kernel.release(copies.into_iter());
                    Err(error.into())
                }
            })
        })?;
        // Two spaces are never locked at the same time. The translations of the child that hardware
        // already has are correct.
        self.within(child, |kernel, at| {
            let Forked { regions, anons, has_large, has_given, stacks, tables, group } = copied;
            *at.known = AddressSpace {
                regions,
                anons,
                stacks,
                has_large,
                has_given,
                has_pins: false,
                tables,
                group,
                wired: BTreeMap::new(),
                offsets: BTreeMap::new(),
                wires_new: at.known.wires_new,
                users: at.known.users,
            };
            kernel.renew_owns(at.known);
            if has_given {
                kernel.load_all_given(at);
            }
            Ok(())
        })?;
        done
    }

    /// Counts the child as a user of all regions and pages of the parent, and gives it the parent's
    /// translations. `copies` are the child's copies of pinned pages, which it does not share.
    fn forked(
        &mut self,
        at: &mut Within<'_>,
        child: HatSpace,
        mut forked: Forked,
        copies: Vec<(u64, AnonId)>,
    ) -> (Forked, Result<(), Error>) {
        let Forked { regions, anons, .. } = &mut forked;
        regions.all().for_each(|region| self.map_object(region));
        for (page, anon) in at.known.anons.each() {
            if copies.is_empty() || copies.binary_search_by_key(&page, |(page, _)| *page).is_err() {
                self.vm.anons.share(self.site, anon);
            }
        }
        copies.iter().for_each(|&(page, anon)| anons.insert(page, anon));
        self.renew_owns(at.known);
        let mut done = self.duplicate(at, child, regions);
        for (page, _) in copies {
            let range = self.vm.range_of(&(page..page + 1));
            let (hat, mut below) = self.hat();
            let unloaded = hat.unload(child, range, &mut |_| (), &mut below);
            done = done.and(unloaded.map_err(Error::of_table));
        }
        (forked, done)
    }

    /// Gives the child the translations of these regions, except those of shared regions; neither
    /// space may then store to these pages.
    fn duplicate(
        &mut self,
        at: &mut Within<'_>,
        child: HatSpace,
        regions: &Regions,
    ) -> Result<(), Error> {
        let is_own = |region: &Region| match region.backing {
            Backing::Anonymous | Backing::Private { .. } => true,
            Backing::Shared { .. } | Backing::Frames { .. } => false,
        };
        let has_tables = self.vm.thp.is_some();
        let copied = regions.all().filter(|region| needs_copy(region, has_tables));
        for region in copied.filter(|region| is_own(region)) {
            let Some(range) = self.loaded_range(at.space, &region.pages) else { continue };
            let (hat, mut below) = self.hat();
            match hat.duplicate(at.space, child, range, &mut below) {
                // Faults load the pages that the child did not get.
                Ok(()) | Err(LoadError::NoTableMemory) => {}
                // No page of either space may stay writable, so the parent's pages are unloaded.
                // Faults load the pages of both spaces again.
                Err(LoadError::NoMemory) => {
                    let (memory, site, base) = (self.memory, self.site, self.vm.base);
                    let (hat, mut below) = self.hat();
                    let each = &mut |gone| note_used(memory, site, base, &gone);
                    hat.unload(at.space, range, each, &mut below).map_err(Error::of_table)?;
                }
                Err(LoadError::Table(error)) => return Err(Error::Table(error)),
                Err(LoadError::NoSpace(space)) => return Err(Error::NoSpace(space)),
            }
        }
        Ok(())
    }

    /// Gives a space's regions new objects for their own pages: pages that the space stores to from
    /// now on are numbered in the new objects.
    fn renew_owns(&mut self, known: &mut AddressSpace) {
        if self.vm.reserving.is_none() {
            return;
        }
        let mut renewed = BTreeMap::new();
        known.regions.renew_owns(|own| {
            let number = *renewed.entry(own.number).or_insert_with(|| self.vm.own_number());
            Own { number, ..own }
        });
    }

    /// Adds a process that uses `space`, until it exits or gets a space of its own.
    pub fn share(&mut self, space: HatSpace) -> Result<(), Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        self.within(space, |_, at| {
            at.known.users += 1;
            Ok(())
        })
    }

    /// Empties the space, because a program begins in it.
    pub fn exec(&mut self, space: HatSpace) -> Result<(), Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        self.staying_within(space, |kernel, at| {
            at.known.wires_new = Wired::No;
            at.known.has_large = false;
            match at.known.regions.hull() {
                Some(pages) => kernel.remove(at, pages),
                None => Ok(()),
            }
        })
    }

    /// Ends a process's use of the space. Returns whether the space has ended too.
    pub fn exit(&mut self, space: HatSpace) -> Result<bool, Error> {
        self.site = Site::Destroy;
        self.work.calls += 1;
        let slot = self.vm.spaces.made(space.0).ok_or(Error::NoSpace(space))?;
        let gone = slot.with(self.site, |slot| {
            let known = slot.as_mut().ok_or(Error::NoSpace(space))?;
            known.users -= 1;
            // From here on, no operation finds the space.
            Ok::<_, Error>(slot.take_if(|known| known.users == 0))
        })?;
        let Some(gone) = gone else { return Ok(false) };
        self.pages_stay(|kernel| {
            let (hat, mut below) = kernel.hat();
            hat.destroy(space, &mut below);
            gone.wired.into_values().for_each(|frame| kernel.unwire(frame));
            kernel.release(gone.anons.each());
            let regions = || gone.regions.all().map(slice::from_ref);
            regions().for_each(|region| kernel.unpromise(space, region));
            regions().for_each(|region| kernel.forget_regions(region));
        });
        Ok(true)
    }

    /// Drops all pages of files that no region maps, as when a disk is unmounted. Dirty pages are
    /// written.
    pub fn drop_caches(&mut self) {
        self.site = Site::Page;
        while self.pages_move(|kernel| kernel.reclaim(u64::MAX)) > 0 {}
    }

    /// The number of pages of `range` that the space has loaded.
    pub fn loaded(&self, space: HatSpace, range: VirtRange) -> u64 {
        let mut pages = 0;
        self.hat.visit(space, range, &mut |_| pages += 1);
        pages
    }
}
