//! Files that are read and written by system calls: their pages are brought into the page cache.
//!
//! ```text
//!   read    [..####|######|##....]   each page that is touched is read, if it is not in memory
//!   write   [..####|######|##....]   the same for pages that are covered in part; all are dirty
//! ```
//!
//! These calls map no page; a page that no region maps is also evicted when the policy chooses it.

use addr::PhysAddr;
use hat::locking::Site;
use physmem::FrameId;

use crate::{
    error::{Error, Stop},
    frames::{DIRTY, FILE, Owner, REFERENCED},
    host::Host,
    kernel::Kernel,
    object::{FileKey, ObjectId, PageLocation},
    work::How,
};

impl<H: Host> Kernel<'_, H> {
    /// Reads or writes `bytes` bytes of a file from `offset` on. `each` is called for every page of
    /// the transfer, with the page's frame and its number in the file, while the page is in memory,
    /// so that data can be copied from or to it. `each` must not call the manager, since no page
    /// may be evicted during the transfer.
    pub fn transfer_file(
        &mut self,
        key: FileKey,
        offset: u64,
        bytes: u64,
        write: bool,
        each: &mut dyn FnMut(&mut H::Platform, PhysAddr, u64),
    ) -> Result<(), Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        let Some(last) = bytes.checked_sub(1).and_then(|more| offset.checked_add(more)) else {
            return Ok(());
        };
        // An object that no region maps ends when its last page is evicted, so it is held during
        // the transfer.
        let object = self.vm.objects.hold(self.site, Some(key), 1, |_| ())?;
        let base = self.vm.base;
        let mut done = Ok(());
        for index in offset >> base.shift()..=last >> base.shift() {
            let start = index << base.shift();
            let covered = write && offset <= start && last - start >= base.mask();
            done = self.transfer_page(object, index, covered, write, each);
            if done.is_err() {
                break;
            }
        }
        self.pages_stay(|kernel| kernel.unmap_object(object, 1));
        done
    }

    /// Reads or writes one page of a file. If `overwritten` is true, the whole page will be
    /// overwritten, so its old contents need not be read.
    fn transfer_page(
        &mut self,
        object: ObjectId,
        index: u64,
        overwritten: bool,
        write: bool,
        each: &mut dyn FnMut(&mut H::Platform, PhysAddr, u64),
    ) -> Result<(), Error> {
        self.with_room(|kernel| {
            let mark = REFERENCED | if write { DIRTY } else { 0 };
            let frame = kernel.cached_page(object, index, overwritten, mark)?;
            let at = kernel.address(frame);
            each(kernel.platform, at, index);
            Ok(())
        })
    }

    /// The frame of a page of a file, which is read if it is not in memory.
    fn cached_page(
        &mut self,
        id: ObjectId,
        index: u64,
        overwritten: bool,
        mark: u8,
    ) -> Result<FrameId, Stop> {
        let (vm, site) = (self.vm, self.site);
        let taken = vm.objects.with(site, id, |object| -> Result<_, Stop> {
            object.end = object.end.max(index + 1);
            if !overwritten || object.pages.get(&index).is_some() {
                return Ok(None);
            }
            object.pages.reserve([&index; 2], 1)?;
            let place = self.object_place(id, object, index);
            let frame = self.take_frame(place)?;
            object.pages.insert(index, PageLocation::Resident(frame))?;
            self.give_to(frame, Owner::Object(id, index), mark | FILE);
            Ok(Some(frame))
        })?;
        match taken {
            Some(frame) => Ok(frame),
            None => Ok(self.object_page(id, index, mark, &mut None, &mut How::Minor)?.0),
        }
    }
}
