//! Memory objects: what several regions can map, and the page cache.
//!
//! ```text
//!   region of space 1 --+                    pages in memory, by offset
//!   region of space 2 --+--> object 3, file (8:1, 4711)   0 -> frame 19    4 -> frame 7
//!   nobody ----------------> object 4, file (8:1, 12)     0 -> frame 23
//!   region of space 1 -----> object 5, memory             1 -> frame 40    2 -> swap slot 3
//! ```
//!
//! A file has one object whoever maps it, so that its pages are in memory once. They stay when
//! nobody maps them any more, until the frames are wanted: that is the page cache. An object that
//! is only memory (a shared anonymous mapping) ends with its last region.

use alloc::{collections::BTreeMap, vec::Vec};

use hat::locking::{Class, Locks, Mutex, Site};
use physmem::FrameId;

use crate::{numbered::Numbered, swap::Slot};

/// Which file: numbers that a host gives, the same for the same file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileKey {
    /// Of its file system.
    pub device: u64,
    /// Of the file there.
    pub inode: u64,
}

/// The number of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId(pub(crate) u32);

/// Where a page is that is somewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageLocation {
    Resident(FrameId),
    Swapped(Slot),
}

/// An object.
#[derive(Debug)]
pub(crate) struct Object {
    /// Whose contents it has; none: memory.
    pub(crate) file: Option<FileKey>,
    /// Pages that are in memory, or in swap. Others are in the file, or zeros.
    pub(crate) pages: BTreeMap<u64, PageLocation>,
    /// Pages of all regions that map it.
    pub(crate) mapped_pages: u64,
    /// How far page 0 lies behind a boundary where it was mapped first, for reservations; and the
    /// page behind the last one that was mapped or read.
    pub(crate) phase: Option<u64>,
    pub(crate) end: u64,
}

/// All objects, with a lock each, and one for which file has which.
pub(crate) struct Objects<L: Locks> {
    directory: L::Mutex<Directory>,
    objects: Numbered<L::Mutex<Option<Object>>, L>,
}

/// Which object a file has, and which numbers of objects are free.
#[derive(Default)]
struct Directory {
    files: BTreeMap<FileKey, ObjectId>,
    unused: Vec<u32>,
    /// Those from here on were never used.
    fresh: u32,
}

impl Directory {
    fn number(&mut self) -> ObjectId {
        ObjectId(self.unused.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        }))
    }
}

impl<L: Locks> Objects<L> {
    pub(crate) fn new() -> Objects<L> {
        Objects {
            directory: L::Mutex::new(Class::VmFiles, Directory::default()),
            objects: Numbered::new(),
        }
    }

    /// The object of a file, or a new one that is memory. `pages` pages more map it, so that it does
    /// not end; `change` gets it.
    pub(crate) fn hold(
        &self,
        site: Site,
        file: Option<FileKey>,
        pages: u64,
        change: impl FnOnce(&mut Object),
    ) -> ObjectId {
        self.directory.with(site, |directory| {
            let known = file.and_then(|key| directory.files.get(&key).copied());
            let id = known.unwrap_or_else(|| directory.number());
            if let Some(key) = file {
                directory.files.insert(key, id);
            }
            let slot = self.objects.get(id.0, || L::Mutex::new(Class::VmObject, None));
            slot.with(site, |slot| {
                let object = slot.get_or_insert_with(|| Object {
                    file,
                    pages: BTreeMap::new(),
                    mapped_pages: 0,
                    phase: None,
                    end: 0,
                });
                object.mapped_pages += pages;
                change(object);
            });
            id
        })
    }

    /// Does something with an object that exists, as do those that regions and frames name, while
    /// nobody else has it.
    #[inline]
    pub(crate) fn with<R>(&self, site: Site, id: ObjectId, f: impl FnOnce(&mut Object) -> R) -> R {
        let slot = self.objects.made(id.0).expect(EXISTS);
        slot.with(site, |slot| f(slot.as_mut().expect(EXISTS)))
    }

    /// Ends an object that nobody maps, if it is memory or a file without pages, and gives it. The
    /// pages that it still has are the caller's to free.
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

    /// Gives `each` all that exist.
    pub(crate) fn each(&self, mut each: impl FnMut(ObjectId, &Object)) {
        for (number, slot) in self.objects.all() {
            slot.with(Site::Look, |slot| {
                slot.iter().for_each(|object| each(ObjectId(number), object));
            });
        }
    }
}

const EXISTS: &str = "an object that is named exists";
