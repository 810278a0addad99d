//! Spaces are created, copied, shared and ended.
//!
//! ```text
//!   fork    the child's regions and anons are the parent's, counted up; no frame is taken.
//!           Both lose the right to store: the first store of either makes a copy.
//!   vfork   the child uses the parent's space until it has one of its own.
//!   exec    the space is empty.
//!   exit    when its last user goes, so does the space.
//! ```

use alloc::{collections::BTreeMap, vec::Vec};

use addr::VirtRange;
use hat::{
    HatSpace, LoadError,
    locking::{Class, Locks, Mutex, Site},
};

use crate::{
    error::Error,
    fault::ATTEMPTS_MAX,
    host::Host,
    kernel::Kernel,
    own::OwnPages,
    reclaim::BATCH,
    region::Own,
    region::{Backing, Region, Regions, Wired},
    thp::Kept,
    vm::{AddressSpace, Vm, Within},
};

impl<L: Locks> Vm<L> {
    /// Takes over a space of the HAT layer in which nothing is loaded.
    pub fn adopt(&self, space: HatSpace) {
        let empty = AddressSpace {
            regions: Regions::default(),
            anons: OwnPages::default(),
            wired: BTreeMap::new(),
            offsets: BTreeMap::new(),
            group: 0,
            wires_new: Wired::No,
            has_large: false,
            tables: Kept::default(),
            users: 1,
        };
        let slot = self.spaces.get(space.0, || L::Mutex::new(Class::VmSpace, None));
        slot.with(Site::Create, |known| *known = Some(empty));
    }
}

impl<H: Host> Kernel<'_, H> {
    /// Creates an empty space.
    pub fn create(&mut self) -> Result<HatSpace, Error> {
        self.site = Site::Create;
        for _ in 0..ATTEMPTS_MAX {
            let (hat, mut below) = self.hat();
            match hat.create(&mut below) {
                Ok(space) => {
                    self.vm.adopt(space);
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
        let (copied, done) = self.staying_within(parent, |kernel, at| {
            let regions: Vec<Region> = at.known.regions.all().cloned().collect();
            regions.iter().for_each(|region| kernel.map_object(region));
            let anons = at.known.anons.clone();
            anons.each().for_each(|(_, anon)| kernel.vm.anons.share(kernel.site, anon));
            kernel.renew_owns(at.known);
            // A fault will find the pages of a region in which nothing was stored (`vma_needs_copy`).
            let needs_copy = |region: &&Region| kernel.vm.thp.is_none() || region.has_own;
            let copied: Vec<Region> = regions.iter().filter(needs_copy).cloned().collect();
            let tables = at.known.tables.of_regions(&copied);
            let done = kernel.duplicate(at, child, &copied);
            Ok(((regions, anons, at.known.has_large, tables, at.known.group), done))
        })?;
        // Two spaces are not locked at once. The translations of the child that hardware already
        // has are correct.
        self.within(child, |kernel, at| {
            let (regions, anons, has_large, tables, group) = copied;
            at.known.group = group;
            for region in regions {
                at.known.regions.insert_apart(Region { wired: Wired::No, ..region });
            }
            (at.known.anons, at.known.has_large) = (anons, has_large);
            at.known.tables = tables;
            kernel.renew_owns(at.known);
            Ok(())
        })?;
        done
    }

    /// Gives the child the translations of these regions, except those of shared regions; neither
    /// space may then store to these pages.
    fn duplicate(
        &mut self,
        at: &mut Within<'_>,
        child: HatSpace,
        regions: &[Region],
    ) -> Result<(), Error> {
        let own = |region: &&Region| !matches!(region.backing, Backing::Shared { .. });
        for region in regions.iter().filter(own) {
            let Some(range) = self.loaded_range(at.space, &region.pages) else { continue };
            let (hat, mut below) = self.hat();
            match hat.duplicate(at.space, child, range, &mut below) {
                // Faults load the pages that the child did not get.
                Ok(()) | Err(LoadError::NoTableMemory) => {}
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
            // Nobody finds the space from here on.
            Ok(slot.take_if(|known| known.users == 0))
        })?;
        let Some(gone) = gone else { return Ok(false) };
        self.pages_stay(|kernel| {
            let (hat, mut below) = kernel.hat();
            hat.destroy(space, &mut below);
            gone.wired.into_values().for_each(|frame| kernel.unwire(frame));
            kernel.release(&gone.anons);
            let regions: Vec<Region> = gone.regions.all().cloned().collect();
            kernel.unpromise(space, &regions);
            kernel.forget_regions(&regions);
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
