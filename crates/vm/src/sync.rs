//! Pages of files that are written back on request, and dropped (`fsync`, `msync`, `truncate`).
//!
//! ```text
//!   dirty --> clean, read-only, pinned --> written --> unpinned
//!     ^                  |                    |
//!     |        a store makes it dirty again   | the disk fails
//!     +------------------+--------------------+
//! ```
//!
//! A page becomes clean *before* it is written, and all its translations are unloaded: a store
//! during the transfer faults and makes the page dirty again, so that no store is lost. The page is
//! pinned during the transfer and thus cannot be evicted, although it looks clean. No lock is held
//! during the transfer, so other processors can handle faults and evict other pages.
//!
//! If a second request finds a page that is being written, it writes the page too: when the request
//! returns, everything that was stored before it began is on the disk.

use alloc::vec::Vec;
use core::ops::Range;

use addr::VirtRange;
use hat::{
    HatSpace,
    locking::{Mutex, Site},
};
use physmem::FrameId;

use crate::{
    error::Error,
    fault::ATTEMPTS_MAX,
    frames::DIRTY,
    host::Host,
    kernel::Kernel,
    map::note_used,
    object::{FileKey, ObjectId, PageLocation},
    platform::Store,
    region::{Backing, Region},
    vm::Within,
};

/// The number of pages per batch. All other operations wait while a batch is prepared; then its
/// pages are written.
const BATCH: usize = 64;

/// Pages of a file, and their frames.
type Pages = Vec<(u64, FrameId)>;

impl<H: Host> Kernel<'_, H> {
    /// Writes the dirty pages of a file to the disk (`fsync`). `pages` are pages of the file; `0..u64::MAX`
    /// is the whole file. Returns the number of pages written.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the disk could not write a page, which is then still dirty: a later call tries
    /// it again. The other pages have been written nevertheless.
    pub fn sync_file(&mut self, key: FileKey, pages: Range<u64>) -> Result<u64, Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        self.holding(key, |kernel, object| kernel.sync_object(object, key, pages))
    }

    /// Writes the dirty pages of files that the space shares in `range` to the disk (`msync`). Returns the
    /// number of pages written.
    ///
    /// # Errors
    ///
    /// Fails like [`Kernel::sync_file`]. Also fails with [`Error::NoRegion`] if a page of `range`
    /// is in no region; the other pages have been written nevertheless.
    pub fn sync(&mut self, space: HatSpace, range: VirtRange) -> Result<u64, Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        let pages = self.vm.pages_of(range);
        let (parts, hole) = self.within(space, |kernel, at| {
            let mut parts: Vec<(FileKey, Range<u64>)> = Vec::new();
            let mut hole = Some(pages.start).filter(|page| at.known.regions.at(*page).is_none());
            let mut next = pages.start;
            while let Some(region) = at.known.regions.from(next)
                && region.pages.start < pages.end
            {
                hole = hole.or(Some(next).filter(|next| *next < region.pages.start));
                let inside = region.pages.start.max(next)..region.pages.end.min(pages.end);
                next = inside.end;
                if let Some(part) = kernel.shared_file(region, &inside) {
                    parts.try_reserve(1)?;
                    parts.push(part);
                }
                if next == pages.end {
                    break;
                }
            }
            Ok((parts, hole.or(Some(next).filter(|next| *next < pages.end))))
        })?;
        let mut written = 0;
        let mut failed = Ok(());
        for (key, part) in parts {
            match self.holding(key, |kernel, object| kernel.sync_object(object, key, part)) {
                Ok(more) => written += more,
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed?;
        hole.map_or(Ok(written), |page| Err(Error::NoRegion(self.vm.addr_of(page))))
    }

    /// The file that `region` shares, and its pages that are mapped at `pages`.
    fn shared_file(&self, region: &Region, pages: &Range<u64>) -> Option<(FileKey, Range<u64>)> {
        let Backing::Shared { object, first } = region.backing else { return None };
        let key = self.vm.objects.with(self.site, object, |object| object.file)?;
        let first = first + (pages.start - region.pages.start);
        Some((key, first..first + (pages.end - pages.start)))
    }

    /// Removes the cached pages of a file from page `pages` on, without writing them, because the
    /// file has become shorter (`truncate`). Copies that spaces have of these pages are removed
    /// too, as in Linux. Returns the number of frames that the page cache no longer has.
    ///
    /// The host changes the file's length *before* the call, so that the disk refuses to read pages
    /// beyond the end. [`Error::Io`] then means that the access must get `SIGBUS`. If the file now
    /// ends inside a page, the host fills the rest of this page with zeros
    /// ([`Kernel::transfer_file`]). Pinned frames stay with their pins.
    pub fn truncate(&mut self, key: FileKey, pages: u64) -> Result<u64, Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        let pages = pages..u64::MAX;
        self.holding(key, |kernel, object| {
            let mut dropped = 0;
            for _ in 0..ATTEMPTS_MAX {
                kernel.end_mappings(object, &pages)?;
                let (more, left) = kernel.drop_pages(object, &pages, Drops::All)?;
                dropped += more;
                // Another processor may have locked a page in memory in the meantime.
                if left == 0 {
                    break;
                }
            }
            Ok(dropped)
        })
    }

    /// Drops the cached pages of a file, so that their next use reads them from the disk again.
    /// This is for a file that was changed on the disk without the page cache. Dirty pages are
    /// written first. Returns the number of pages that stay, because they are locked in memory,
    /// pinned or dirty again.
    ///
    /// # Errors
    ///
    /// Fails like [`Kernel::sync_file`]; in that case no page has been dropped.
    pub fn invalidate(&mut self, key: FileKey, pages: Range<u64>) -> Result<u64, Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        self.holding(key, |kernel, object| {
            kernel.sync_object(object, key, pages.clone())?;
            let (_, left) = kernel.drop_pages(object, &pages, Drops::Clean)?;
            Ok(left)
        })
    }

    /// Runs `f` with the object of a file. The object is held, so that it does not end before `f`
    /// returns. Returns 0 if the file has no object, and thus no page in memory.
    fn holding(
        &mut self,
        key: FileKey,
        f: impl FnOnce(&mut Self, ObjectId) -> Result<u64, Error>,
    ) -> Result<u64, Error> {
        let Some(object) = self.vm.objects.hold_known(self.site, key) else { return Ok(0) };
        let done = f(self, object);
        self.pages_stay(|kernel| kernel.unmap_object(object, 1));
        done
    }

    /// Writes those of an object's `pages` that are dirty. Returns the number of written pages.
    fn sync_object(
        &mut self,
        object: ObjectId,
        key: FileKey,
        pages: Range<u64>,
    ) -> Result<u64, Error> {
        let mut batch: Pages = Vec::new();
        batch.try_reserve_exact(BATCH)?;
        let (mut next, mut written, mut failed) = (pages.start, 0, Ok(()));
        loop {
            let found =
                self.pages_move(|kernel| kernel.begin_writing(object, next..pages.end, &mut batch));
            let Some(behind) = found? else { return failed.map(|()| written) };
            next = behind;
            for (index, frame) in batch.drain(..) {
                let done = self.write(self.address(frame), Store::File(key, index));
                self.remove_pin(frame, done.is_err());
                match done {
                    Ok(()) => written += 1,
                    Err(error) => failed = failed.and(Err(error)),
                }
            }
        }
    }

    /// Makes the first dirty pages of `pages` clean and pins them. Returns the page after the last
    /// of them, or `None` if no page is dirty. After an error nothing has changed.
    fn begin_writing(
        &mut self,
        object: ObjectId,
        pages: Range<u64>,
        batch: &mut Pages,
    ) -> Result<Option<u64>, Error> {
        self.vm.objects.with(self.site, object, |object| {
            for (index, place) in object.pages.range(pages) {
                if let PageLocation::Resident(frame) = *place
                    && self.is_unwritten(frame)
                {
                    batch.push((index, frame));
                }
                if batch.len() == BATCH {
                    break;
                }
            }
        });
        let Some(&(last, _)) = batch.last() else { return Ok(None) };
        for place in 0..batch.len() {
            if let Err(error) = self.add_pin(batch[place].1) {
                batch[..place].iter().for_each(|(_, frame)| self.remove_pin(*frame, false));
                batch.clear();
                return Err(error);
            }
        }
        self.unload_noting(batch);
        for (_, frame) in batch.iter() {
            self.frames(|memory| memory.pfdat_mut(*frame).flags &= !DIRTY);
        }
        Ok(Some(last + 1))
    }

    /// Whether the page in `frame` is dirty, or may currently be written to the disk.
    fn is_unwritten(&self, frame: FrameId) -> bool {
        self.lists(|lists, memory| {
            memory.table().get(frame).flags & DIRTY != 0 || lists.pins.has(frame)
        })
    }

    /// Unloads all translations of these pages, and records whether they were used.
    fn unload_noting(&mut self, pages: &Pages) {
        let (memory, site, base) = (self.memory, self.site, self.vm.base);
        for (_, frame) in pages {
            self.not_idle(*frame);
            self.make_base(*frame);
        }
        let frames: Vec<_> = pages.iter().map(|(_, frame)| (self.address(*frame), base)).collect();
        let (hat, mut below) = self.hat();
        let each = &mut |_, mapping| note_used(memory, site, base, &mapping);
        hat.unload_frames(&frames, each, &mut below);
    }

    /// Removes the translations, locks in memory and own copies that spaces have of an object's
    /// `pages`.
    fn end_mappings(&mut self, object: ObjectId, pages: &Range<u64>) -> Result<(), Error> {
        let (vm, site) = (self.vm, self.site);
        for (number, slot) in vm.spaces.all() {
            slot.with(site, |known| {
                let Some(known) = known.as_mut() else { return Ok(()) };
                let at = &mut Within { space: HatSpace(number), known };
                self.pages_stay(|kernel| kernel.end_mappings_in(at, object, pages))
            })?;
        }
        Ok(())
    }

    fn end_mappings_in(
        &mut self,
        at: &mut Within<'_>,
        object: ObjectId,
        pages: &Range<u64>,
    ) -> Result<(), Error> {
        let mut next = 0;
        while let Some(region) = at.known.regions.from(next) {
            let (mapped, backing) = (region.pages.clone(), region.backing);
            next = mapped.end;
            let (of, first) = match backing {
                Backing::Anonymous | Backing::Frames { .. } => continue,
                Backing::Private { object, first } | Backing::Shared { object, first } => {
                    (object, first)
                }
            };
            let into = pages.start.saturating_sub(first);
            let part = mapped.start.saturating_add(into)..mapped.end;
            if of != object || part.is_empty() {
                continue;
            }
            self.cut_large(at, &part)?;
            self.unload(at, &part)?;
            self.keep_tables(at, &part);
            self.unwire_pages(at, part.clone());
            self.drop_anons(at, part);
        }
        Ok(())
    }

    /// Drops all of an object's `pages` that may be dropped. Returns the number of frames that the
    /// page cache no longer has, and the number of pages that stay.
    fn drop_pages(
        &mut self,
        object: ObjectId,
        pages: &Range<u64>,
        drops: Drops,
    ) -> Result<(u64, u64), Error> {
        let mut batch: Pages = Vec::new();
        batch.try_reserve_exact(BATCH)?;
        let (mut next, mut dropped, mut left) = (pages.start, 0, 0);
        loop {
            let behind = self.pages_move(|kernel| {
                let behind =
                    kernel.droppable(object, next..pages.end, drops, &mut batch, &mut left);
                kernel.unload_noting(&batch);
                let (vm, site) = (kernel.vm, kernel.site);
                for (index, frame) in batch.drain(..) {
                    vm.objects.with(site, object, |object| object.pages.remove(&index));
                    kernel.free_page(frame);
                    dropped += 1;
                }
                behind
            });
            match behind {
                Some(behind) => next = behind,
                None => return Ok((dropped, left)),
            }
        }
    }

    /// Collects the first of an object's `pages` that may be dropped. Returns the page after the
    /// last examined page, or `None` if all pages were examined.
    fn droppable(
        &mut self,
        object: ObjectId,
        pages: Range<u64>,
        drops: Drops,
        batch: &mut Pages,
        left: &mut u64,
    ) -> Option<u64> {
        self.vm.objects.with(self.site, object, |object| {
            for (index, place) in object.pages.range(pages) {
                if batch.len() == BATCH {
                    return Some(index);
                }
                let PageLocation::Resident(frame) = *place else { continue };
                match self.may_drop(frame, drops) {
                    true => batch.push((index, frame)),
                    false => *left += 1,
                }
            }
            None
        })
    }

    fn may_drop(&self, frame: FrameId, drops: Drops) -> bool {
        self.lists(|lists, memory| {
            let pfdat = memory.table().get(frame);
            match drops {
                Drops::Clean => pfdat.wired == 0 && pfdat.flags & DIRTY == 0,
                Drops::All => pfdat.wired == lists.pins.of(frame),
            }
        })
    }
}

/// Which pages are dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drops {
    /// Clean pages that may leave their frames.
    Clean,
    /// All pages that no space has locked in memory. Pinned frames stay with their pins.
    All,
}
