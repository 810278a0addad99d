//! Additional MMUs of a space, besides the MMU of the processors: for example the MMU of an I/O
//! bridge or of a graphics card (K94 sections 3.2, 4.2). Each has its own page table, which may
//! have another format.
//!
//! ```text
//!   space --> [ processors: x86-64 ] [ I/O bridge: linear ]
//!                     load                   load_in           one of them
//!                     unload, protect, unload_frames           all of them
//! ```

use alloc::boxed::Box;

use addr::{VirtAddr, VirtRange};
use pagetable::{Error, Mapping, Mounted, Unfit};

use crate::{
    hat::{Change, Hat, LoadError},
    locking::{Below, Held, Scheme, Site},
    platform::Platform,
    space::{HatSpace, MMUS_MAX, Mmu, MmuEntry, MmuPlace, in_place},
    table_frames::PoolFrames,
};

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// Adds an MMU with the empty `table` to `space`. The MMU translates only the addresses in
    /// `limit`, or all addresses if `limit` is absent. `None` if the space has [`MMUS_MAX`] MMUs
    /// already.
    ///
    /// The table may support only page sizes that the processors' tables support too.
    pub fn attach(
        &self,
        space: HatSpace,
        table: Box<T>,
        limit: Option<VirtRange>,
        platform: &mut impl Platform,
    ) -> Result<Option<MmuPlace>, LoadError> {
        if let Some(&size) = table.page_sizes().iter().find(|size| !self.sizes.contains(size)) {
            return Err(LoadError::Table(Error::Unfit(Unfit::PageSize(size))));
        }
        self.scheme.enter(Site::Create, |held| {
            let number = held.numbers(|numbers| numbers.mmus.take())?;
            let inner = held.try_mmu(number, |mmu, below| {
                let table = mmu.begin(table, self.sizes.len()).map_err(|_| Error::NoMemory)?;
                table.create(&mut PoolFrames { below, platform: platform.frames() })
            });
            let Some(inner) = inner else {
                held.numbers(|numbers| numbers.mmus.put(number));
                return Err(LoadError::NoMemory);
            };
            let attached = inner.map_err(LoadError::from).and_then(|inner| {
                let entry = MmuEntry { table: number, inner, limit };
                held.space_mut(space.0, |known| {
                    let known = known.as_mut().ok_or(LoadError::NoSpace(space))?;
                    let free = (0..MMUS_MAX).find(|&place| known.mmus[place].is_none());
                    if let Some(place) = free {
                        known.mmus[place] = Some(entry);
                    }
                    Ok(free.map(|place| MmuPlace(place as u8)))
                })
            });
            if !matches!(attached, Ok(Some(_))) {
                self.end_mmu(held, space, number, inner.ok().map(|inner| (0, inner)), platform);
            }
            attached
        })
    }

    /// Removes an MMU from a space, with all its translations. The processors' MMU cannot be
    /// removed.
    pub fn detach(&self, space: HatSpace, place: MmuPlace, platform: &mut impl Platform) {
        self.scheme.enter(Site::Destroy, |held| {
            let entry = held.space_mut(space.0, |known| {
                let mmus = &mut known.as_mut()?.mmus;
                (place != MmuPlace::PROCESSOR).then(|| mmus[usize::from(place.0)].take())?
            });
            let Some(entry) = entry else { return };
            self.end_mmu(held, space, entry.table, Some((place.0, entry.inner)), platform);
        });
    }

    /// The page of another MMU that holds `addr`. Its usage bits are not changed.
    pub fn query_in(&self, space: HatSpace, place: MmuPlace, addr: VirtAddr) -> Option<Mapping> {
        self.scheme.enter(Site::Look, |held| {
            held.space(space.0, in_place(place.0), |entry, held| {
                let entry = entry?;
                held.mmu(entry.table, |mmu, _| mmu.table.as_ref()?.query(entry.inner, addr))
            })
        })
    }

    /// Ends an MMU descriptor that is no longer in any space's list, and ends the space in its
    /// table, if there is one.
    fn end_mmu(
        &self,
        held: &mut S::Held<'_>,
        space: HatSpace,
        number: u32,
        inner: Option<(u8, pagetable::Space)>,
        platform: &mut impl Platform,
    ) {
        let mut change = Change::default();
        if let Some((place, inner)) = inner {
            let entry = MmuEntry { table: number, inner, limit: None };
            while !self.end_space(held, (space, place, entry), &mut change) {
                self.finish(held, &mut change, platform);
            }
        }
        held.mmu(number, |mmu, _| *mmu = Mmu::default());
        self.finish(held, &mut change, platform);
        held.numbers(|numbers| numbers.mmus.put(number));
    }
}
