//! Spaces begin, are copied, are shared, and end.
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
use hat::{HatSpace, LoadError};
use pagetable::Mounted;
use physmem::Allocator;

use crate::{
    error::Error,
    fault::ATTEMPTS_MAX,
    own::OwnPages,
    platform::Platform,
    reclaim::BATCH,
    region::{Backing, Region, Regions},
    reserve::Own,
    vm::{AddressSpace, Kernel, Vm},
};

impl Vm {
    /// Takes over a space that the HAT layer has and in which nothing is loaded.
    pub fn adopt(&mut self, space: HatSpace) {
        let empty = AddressSpace {
            regions: Regions::default(),
            anons: OwnPages::default(),
            wired: BTreeMap::new(),
            wires_all: false,
            has_large: false,
            users: 1,
        };
        self.spaces.insert(space, empty);
    }
}

impl<T: Mounted + ?Sized, A: Allocator, P: Platform> Kernel<'_, T, A, P> {
    /// A new, empty space.
    pub fn create(&mut self) -> Result<HatSpace, Error> {
        for _ in 0..ATTEMPTS_MAX {
            let (hat, mut below) = self.hat();
            match hat.create(&mut below) {
                Ok(space) => {
                    self.vm.adopt(space);
                    return Ok(space);
                }
                Err(LoadError::NoTableMemory) => {
                    if self.reclaim(BATCH) == 0 && self.free_pages() == 0 {
                        break;
                    }
                }
                Err(LoadError::Table(error)) => return Err(Error::Table(error)),
                Err(LoadError::NoSpace(space)) => return Err(Error::NoSpace(space)),
            }
        }
        Err(self.out_of_memory())
    }

    /// `child`, which is empty, has what `parent` has, each its own from here on.
    pub fn fork(&mut self, parent: HatSpace, child: HatSpace) -> Result<(), Error> {
        self.vm.work.calls += 1;
        let known = self.vm.space(parent)?;
        let regions: Vec<Region> = known.regions.all().cloned().collect();
        let anons = known.anons.clone();
        for region in &regions {
            self.insert(child, Region { wired: false, ..region.clone() })?;
        }
        anons.each().for_each(|(_, anon)| self.vm.anons.share(anon));
        let has_large = self.vm.space(parent)?.has_large;
        let known = self.vm.space_mut(child)?;
        (known.anons, known.has_large) = (anons, has_large);
        self.renew_owns(parent)?;
        self.renew_owns(child)?;
        let own = |region: &&Region| !matches!(region.backing, Backing::Shared { .. });
        for region in regions.iter().filter(own) {
            let Some(range) = self.loaded_range(parent, &region.pages) else { continue };
            let (hat, mut below) = self.hat();
            match hat.duplicate(parent, child, range, &mut below) {
                // The child faults for what it did not get.
                Ok(()) | Err(LoadError::NoTableMemory) => {}
                Err(LoadError::Table(error)) => return Err(Error::Table(error)),
                Err(LoadError::NoSpace(space)) => return Err(Error::NoSpace(space)),
            }
        }
        Ok(())
    }

    /// What a space stores to from here on are pages of other objects than before.
    fn renew_owns(&mut self, space: HatSpace) -> Result<(), Error> {
        if self.vm.reserving.is_none() {
            return Ok(());
        }
        let mut renewed = BTreeMap::new();
        let known = self.vm.spaces.get_mut(&space).ok_or(Error::NoSpace(space))?;
        let owns = &mut self.vm.owns;
        known.regions.renew_owns(|own| {
            let number = *renewed.entry(own.number).or_insert_with(|| {
                *owns += 1;
                *owns
            });
            Own { number, ..own }
        });
        Ok(())
    }

    /// One process more uses `space`, until it exits or has a space of its own.
    pub fn share(&mut self, space: HatSpace) -> Result<(), Error> {
        self.vm.work.calls += 1;
        self.vm.space_mut(space)?.users += 1;
        Ok(())
    }

    /// The space is empty from here on: a program begins in it.
    pub fn exec(&mut self, space: HatSpace) -> Result<(), Error> {
        self.vm.work.calls += 1;
        let known = self.vm.space_mut(space)?;
        known.wires_all = false;
        known.has_large = false;
        match known.regions.hull() {
            Some(pages) => self.remove(space, pages),
            None => Ok(()),
        }
    }

    /// A process that used the space has ended. Says whether the space has, too.
    pub fn exit(&mut self, space: HatSpace) -> Result<bool, Error> {
        self.vm.work.calls += 1;
        let known = self.vm.space_mut(space)?;
        known.users -= 1;
        if known.users > 0 {
            return Ok(false);
        }
        let (hat, mut below) = self.hat();
        hat.destroy(space, &mut below);
        let Some(gone) = self.vm.spaces.remove(&space) else { return Ok(true) };
        gone.wired.into_values().for_each(|frame| self.unwire(frame));
        self.release(&gone.anons);
        let regions: Vec<Region> = gone.regions.all().cloned().collect();
        self.forget_regions(&regions);
        Ok(true)
    }

    /// Drops pages of files that nobody maps, all of them: as when the disk is unmounted. Dirty
    /// ones are written.
    pub fn drop_caches(&mut self) {
        loop {
            if self.reclaim(u64::MAX) == 0 {
                return;
            }
        }
    }

    /// How many pages of `range` the space has loaded.
    pub fn loaded(&self, space: HatSpace, range: VirtRange) -> u64 {
        let mut pages = 0;
        self.hat.visit(space, range, &mut |_| pages += 1);
        pages
    }
}
