//! Files that are read and written by calls: their pages come into the page cache.
//!
//! ```text
//!   read    [..####|######|##....]   each page that is touched is read, if it is not in memory
//!   write   [..####|######|##....]   the same for pages that are covered in part; all are dirty
//! ```
//!
//! Nothing is mapped: a page that no region has either leaves memory when the policy says so.

use addr::PhysAddr;
use pagetable::Mounted;
use physmem::{Allocator, FrameId};

use crate::{
    error::{Error, Stop},
    fault::ATTEMPTS_MAX,
    frames::{DIRTY, Owner, REFERENCED},
    object::{FileKey, ObjectId, Place},
    platform::Platform,
    reclaim::BATCH,
    reserve::Wanted,
    vm::Kernel,
    work::How,
};

impl<T: Mounted + ?Sized, A: Allocator, P: Platform> Kernel<'_, T, A, P> {
    /// `bytes` bytes of a file from `offset` on are read, or written. `each` gets every page of
    /// them, by its frame and its number in the file, while it is in memory: to copy from or to.
    pub fn transfer_file(
        &mut self,
        key: FileKey,
        offset: u64,
        bytes: u64,
        write: bool,
        each: &mut dyn FnMut(&mut P, PhysAddr, u64),
    ) -> Result<(), Error> {
        self.vm.work.calls += 1;
        let Some(last) = bytes.checked_sub(1).and_then(|more| offset.checked_add(more)) else {
            return Ok(());
        };
        let object = self.vm.objects.of_file(key);
        // An object without pages ends when its last page leaves, so that it is held meanwhile.
        self.vm.objects.get_mut(object).mapped_pages += 1;
        let base = self.vm.base;
        let mut done = Ok(());
        for index in offset >> base.shift()..=last >> base.shift() {
            let start = index << base.shift();
            let known = self.vm.objects.get_mut(object);
            known.end = known.end.max(index + 1);
            let covered = write && offset <= start && last - start >= base.mask();
            done = self.cached_page(object, index, covered).map(|frame| {
                let pfdat = self.memory.pfdat_mut(frame);
                pfdat.flags |= REFERENCED | if write { DIRTY } else { 0 };
                each(self.platform, self.memory.table().address(frame), index);
            });
            if done.is_err() {
                break;
            }
        }
        self.vm.objects.get_mut(object).mapped_pages -= 1;
        self.end_if_unused(object);
        done
    }

    /// The frame of a page of a file; what it has matters not if all of it is `overwritten`.
    fn cached_page(
        &mut self,
        object: ObjectId,
        index: u64,
        overwritten: bool,
    ) -> Result<FrameId, Error> {
        for _ in 0..ATTEMPTS_MAX {
            let known = self.vm.objects.get(object).pages.contains_key(&index);
            let found = match overwritten && !known {
                true => self.take_frame(Wanted::Of(object, index)).inspect(|&frame| {
                    let place = Place::Resident(frame);
                    self.vm.objects.get_mut(object).pages.insert(index, place);
                    self.give_to(frame, Owner::Object(object, index));
                }),
                false => self.object_page(object, index, &mut None, &mut How::Minor),
            };
            match found {
                Ok(frame) => return Ok(frame),
                Err(Stop::Refused(error)) => return Err(error),
                Err(Stop::Full) => {
                    if self.reclaim(BATCH) == 0 && self.free_pages() <= self.vm.marks.min {
                        break;
                    }
                }
            }
        }
        Err(self.out_of_memory())
    }
}
