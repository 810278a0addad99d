//! Memory objects, which several regions can map, and the page cache.
//!
//! ```text
//!   region of space 1 --+                    pages in memory, by offset
//!   region of space 2 --+--> object 3, file (8:1, 4711)   0 -> frame 19    4 -> frame 7
//!   nobody ----------------> object 4, file (8:1, 12)     0 -> frame 23
//!   region of space 1 -----> object 5, memory             1 -> frame 40    2 -> swap slot 3
//! ```
//!
//! A file has one object, whichever regions map it, so that each of its pages is in memory once.
//! The pages stay in memory when no region maps them any more, until their frames are needed: this
//! is the page cache. An object without a file (a shared anonymous mapping) ends with its last
//! region.

use alloc::{collections::TryReserveError, vec::Vec};

use hat::locking::{Class, Locks, Mutex, Site};
use physmem::FrameId;

use crate::{
    numbered::Numbered,
    sorted::{NoMemory, SortedMap},
    swap::Slot,
};

/// The identity of a file, by numbers that the host chooses; a file keeps its numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileKey {
    /// The number of the file system that has the file.
    pub device: u64,
    /// The number of the file in the file system.
    pub inode: u64,
}

/// The number of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId(pub(crate) u32);

/// The place of a page: a frame in memory, or a place in swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageLocation {
    Resident(FrameId),
    Swapped(Slot),
}

/// An object.
#[derive(Debug)]
pub(crate) struct Object {
    /// The file that the object represents; `None` for shared memory.
    pub(crate) file: Option<FileKey>,
    /// The pages that are in memory or in swap. Other pages are in the file, or are zeros.
    pub(crate) pages: SortedMap<u64, PageLocation>,
    /// The number of pages in all regions that map the object.
    pub(crate) mapped_pages: u64,
    /// `phase` is the page number of the address at which page 0 was first mapped: reservations
    /// need its offset from an alignment boundary. `end` is the page after the last page that was
    /// mapped or read.
    pub(crate) phase: Option<u64>,
    pub(crate) end: u64,
}

impl Object {
    /// Sets the place of a page that the object has in memory or in swap.
    pub(crate) fn set_place(&mut self, index: u64, place: PageLocation) {
        if let Some(known) = self.pages.get_mut(&index) {
            *known = place;
        }
    }
}

/// All objects with one lock each, and the table of files and their objects.
pub(crate) struct Objects<L: Locks> {
    directory: L::Mutex<Directory>,
    objects: Numbered<L::Mutex<Option<Object>>, L>,
}

/// The object of each file, and the free numbers of objects.
#[derive(Default)]
struct Directory {
    files: SortedMap<FileKey, ObjectId>,
    unused: Vec<u32>,
    /// The lowest number that was never used.
    fresh: u32,
}

impl Directory {
    /// The number that the next new object will get.
    fn next(&self) -> ObjectId {
        ObjectId(self.unused.last().copied().unwrap_or(self.fresh))
    }

    /// The object of a file, or a number for a new object. After an error nothing has changed.
    fn object(&mut self, file: Option<FileKey>) -> Result<ObjectId, TryReserveError> {
        if let Some(known) = file.and_then(|key| self.files.get(&key)) {
            return Ok(*known);
        }
        // There is room for all numbers in use, so that no number is lost when an object ends.
        let all = self.fresh as usize + 1;
        self.unused.try_reserve(all.saturating_sub(self.unused.len()))?;
        let id = self.next();
        if let Some(key) = file {
            self.files.insert(key, id)?;
        }
        if self.unused.pop().is_none() {
            self.fresh += 1;
        }
        Ok(id)
    }
}

impl<L: Locks> Objects<L> {
    pub(crate) fn new() -> Objects<L> {
        Objects {
            directory: L::Mutex::new(Class::VmFiles, Directory::default()),
            objects: Numbered::new(),
        }
    }

    /// The object of a file, or a new object for shared memory. The count of pages that map the
    /// object is increased by `pages`, so that the object does not end. `change` is called with
    /// the object.
    pub(crate) fn hold(
        &self,
        site: Site,
        file: Option<FileKey>,
        pages: u64,
        change: impl FnOnce(&mut Object),
    ) -> Result<ObjectId, NoMemory> {
        self.directory.with(site, |directory| {
            let new = directory.next();
            let make = || L::Mutex::new(Class::VmObject, None);
            // A known object already has a slot. The slot of a new object is created before its
            // number is recorded anywhere.
            let id = match file.and_then(|key| directory.files.get(&key)) {
                Some(known) => *known,
                None => {
                    self.objects.get(new.0, make).ok_or(NoMemory)?;
                    directory.object(file)?
                }
            };
            let slot = self.objects.made(id.0).expect(EXISTS);
            slot.with(site, |slot| {
                let object = slot.get_or_insert_with(|| Object {
                    file,
                    pages: SortedMap::new(),
                    mapped_pages: 0,
                    phase: None,
                    end: 0,
                });
                object.mapped_pages += pages;
                change(object);
            });
            Ok(id)
        })
    }

    /// The object of a file, if it has one. The object is held as by [`Objects::hold`], for one
    /// page.
    pub(crate) fn hold_known(&self, site: Site, file: FileKey) -> Option<ObjectId> {
        self.directory.with(site, |directory| {
            let id = *directory.files.get(&file)?;
            self.with(site, id, |object| object.mapped_pages += 1);
            Some(id)
        })
    }

    /// Runs `f` on an object while it is locked. The object must exist; this is guaranteed for
    /// objects that regions and frames name.
    #[inline]
    pub(crate) fn with<R>(&self, site: Site, id: ObjectId, f: impl FnOnce(&mut Object) -> R) -> R {
        let slot = self.objects.made(id.0).expect(EXISTS);
        slot.with(site, |slot| f(slot.as_mut().expect(EXISTS)))
    }

    /// Ends an object that no region maps, if it is shared memory or a file without pages in
    /// memory, and returns it. The caller must free the pages that the object still has.
    pub(crate) fn end_if_unused(&self, site: Site, id: ObjectId) -> Option<Object> {
        let slot = self.objects.made(id.0)?;
        let is_used = |object: &Object| {
            object.mapped_pages > 0 || (object.file.is_some() && !object.pages.is_empty())
        };
        self.directory.with(site, |directory| {
            let ended = slot.with(site, |slot| slot.take_if(|object| !is_used(object)))?;
            if let Some(key) = ended.file {
                directory.files.remove(&key);
            }
            directory.unused.push(id.0);
            Some(ended)
        })
    }

    /// Calls `each` for every existing object.
    pub(crate) fn each(&self, mut each: impl FnMut(ObjectId, &Object)) {
        for (number, slot) in self.objects.all() {
            slot.with(Site::Look, |slot| {
                slot.iter().for_each(|object| each(ObjectId(number), object));
            });
        }
    }
}

const EXISTS: &str = "an object that is named exists";
