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

use physmem::FrameId;

use crate::swap::Slot;

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
pub(crate) enum Place {
    Resident(FrameId),
    Swapped(Slot),
}

/// An object.
#[derive(Debug)]
pub(crate) struct Object {
    /// Whose contents it has; none: memory.
    pub(crate) file: Option<FileKey>,
    /// Pages that are in memory, or in swap. Others are in the file, or zeros.
    pub(crate) pages: BTreeMap<u64, Place>,
    /// Pages of all regions that map it.
    pub(crate) mapped_pages: u64,
    /// How far page 0 lies behind a boundary where it was mapped first, for reservations; and the
    /// page behind the last one that was mapped or read.
    pub(crate) phase: Option<u64>,
    pub(crate) end: u64,
}

/// All objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    slab: Vec<Option<Object>>,
    unused: Vec<u32>,
    files: BTreeMap<FileKey, ObjectId>,
}

impl Objects {
    /// The object of a file.
    pub(crate) fn of_file(&mut self, key: FileKey) -> ObjectId {
        match self.files.get(&key) {
            Some(&id) => id,
            None => {
                let id = self.add(Some(key));
                self.files.insert(key, id);
                id
            }
        }
    }

    /// A new object that is memory.
    pub(crate) fn of_memory(&mut self) -> ObjectId {
        self.add(None)
    }

    fn add(&mut self, file: Option<FileKey>) -> ObjectId {
        let object = Object { file, pages: BTreeMap::new(), mapped_pages: 0, phase: None, end: 0 };
        let number = self.unused.pop().unwrap_or_else(|| {
            self.slab.push(None);
            (self.slab.len() - 1) as u32
        });
        self.slab[number as usize] = Some(object);
        ObjectId(number)
    }

    /// One that exists, as do those that regions and frames name.
    pub(crate) fn get(&self, id: ObjectId) -> &Object {
        self.slab[id.0 as usize].as_ref().expect("an object that is named exists")
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, id: ObjectId) -> &mut Object {
        self.slab[id.0 as usize].as_mut().expect("an object that is named exists")
    }

    /// Ends an object that nobody maps, if it is memory or a file without pages. Gives its pages.
    pub(crate) fn end_if_unused(&mut self, id: ObjectId) -> Option<Object> {
        let object = self.get(id);
        if object.mapped_pages > 0 || (object.file.is_some() && !object.pages.is_empty()) {
            return None;
        }
        if let Some(key) = object.file {
            self.files.remove(&key);
        }
        self.unused.push(id.0);
        self.slab[id.0 as usize].take()
    }

    /// All that exist.
    pub(crate) fn all(&self) -> impl Iterator<Item = (ObjectId, &Object)> {
        let each = self.slab.iter().enumerate();
        each.filter_map(|(number, object)| Some((ObjectId(number as u32), object.as_ref()?)))
    }
}
