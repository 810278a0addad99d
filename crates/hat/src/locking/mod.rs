//! Mutual exclusion behind one interface: only these files contain it (K94 section 4.4).
//!
//! ```text
//!   operation      load, unload, ...: written once, for all schemes
//!      | enter
//!   Scheme         which lock guards which descriptor         global  early  monitor  hashed  embedded  covering
//!      | Held: space, mmu, frame, lists
//!   Locks          what a lock is                             single  spin  std  virtual time
//! ```
//!
//! A *scheme* answers K94's question: is there one lock for the layer, or one per descriptor, and
//! where is each lock stored? A *platform* of locks belongs to a kernel or a simulator. Operations
//! depend on neither the scheme nor the platform. They ask a [`Held`] for one descriptor at a time,
//! which they have exclusively while a closure runs.
//!
//! # Order
//!
//! ```text
//!   space (reader, or writer)  <  MMU descriptor  <  its tables, from the root down (`covering`)
//!                              <  page-frame descriptor, lists of resources
//! ```
//!
//! An operation holds at most one lock of each kind at a time. The exception is several page-frame
//! descriptors, which are locked together if all of them are free: a thread that finds one of them
//! busy releases the others before it waits. While a page-frame descriptor is held, no other lock
//! is taken, and no thread waits for a descriptor to change while it holds any lock. The memory
//! manager above has locks of its own, which are taken before these, and a lock for the frames of
//! page tables, which is taken after these ([`Class::rank`]).
//!
//! # How a frame is unloaded
//!
//! The list of a frame names every page through which a processor may still reach it. A page is
//! inserted into the list *before* it is inserted into a page table (while the MMU descriptor is
//! held), and removed *after* the processors have flushed it. An empty list therefore proves that
//! the frame can have a new owner. A page that is in the list but in no page table is being
//! unloaded by an operation that will remove it from the list.
//!
//! ```text
//!   1  mark the frame as being unloaded (loads of it wait), copy its pages out        frame
//!   2  for each: walk again, and if the page still maps the frame, clear its entry    space, MMU
//!   3  one shootdown for all                                                          none, or all
//!   4  strike them out; what others are unloading is theirs to strike out: wait       frame
//!   5  from 2 on, until the list is empty; then take the mark away, wake the loads    frame
//! ```
//!
//! A load of several frames may find that one of them is marked as being unloaded. It then removes
//! its pages from the lists of the other frames before it waits. Otherwise an unload of those
//! frames would have to wait for this load.

use alloc::boxed::Box;

use array::{many, try_many};

mod array;
mod covering;
mod early;
mod embedded;
mod fine;
mod global;
mod hashed;
mod held;
mod monitor;
mod single;
mod spin;

pub(crate) use self::held::wrong_without_waiting;
pub use self::{
    array::{Array, Arrays, Part, SubtreePlace},
    covering::{Covering, CoveringArray},
    early::{Early, EarlyBelow, EarlyHeld},
    embedded::{Embedded, EmbeddedArray, EmbeddedMmus},
    fine::{Fine, ListLocks, Locked},
    global::Global,
    hashed::{Hashed, HashedArray},
    held::{Below, Held, Scheme},
    monitor::{Monitor, MonitorArray},
    single::{Single, SingleMutex},
    spin::Spin,
};

/// The class of a lock, by the data that it guards. Locks of a class are counted together. A lock
/// may be taken only while all locks that are held have a lower rank.
///
/// Classes of the memory manager above are included: the manager's locks are held while it calls
/// this layer, and this layer requests free frames from the manager, so the locks of both must have
/// one order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// The memory manager's space: its regions and the anon of each page.
    VmSpace,
    /// Whether pages may be evicted or moved: a reader/writer lock.
    VmPaging,
    /// The table of files and their objects.
    VmFiles,
    /// An object with its pages.
    VmObject,
    /// An anonymous map: anons with their users.
    VmAnon,
    /// The lists that determine the order in which pages are evicted.
    VmPages,
    /// The whole layer, as in Solaris 2.1.
    Hat,
    /// The whole layer, in the scheme that releases this lock during shootdowns. This lock is taken
    /// after the locks of the lists of MMU descriptors.
    HatEarly,
    /// The list of MMU descriptors of a space, a reader/writer lock.
    Space,
    /// An MMU descriptor with its page table.
    Mmu,
    /// A table of a page table, at this depth below the root.
    Table(u8),
    /// The flags of all MMU descriptors: K94's `mmu_mutex`.
    MmuFlags,
    /// A page-frame descriptor with its list.
    Frame,
    /// The flags of all page-frame descriptors: K94's `page_mutex`.
    FrameFlags,
    /// Lists of free resources: K94's `hat_resource_mutex`. The number distinguishes several of
    /// them.
    Resource(u8),
    /// Free frames and the descriptors of all frames.
    VmFrames,
    /// Other free lists and counters of the memory manager. The number distinguishes several of
    /// them.
    VmFree(u8),
}

impl Class {
    /// The rank: when a lock of this class is taken, all locks that are held must have a lower
    /// rank.
    pub const fn rank(self) -> u8 {
        match self {
            Class::VmSpace => 0,
            Class::VmPaging => 1,
            Class::VmFiles => 2,
            Class::VmObject => 3,
            Class::VmAnon => 4,
            Class::VmPages => 5,
            Class::Hat => 6,
            Class::Space => 7,
            Class::Mmu | Class::HatEarly => 8,
            Class::Table(depth) => 8 + depth,
            Class::Frame => 30,
            // These locks are held for a few instructions, during which no other lock is taken.
            Class::MmuFlags | Class::FrameFlags | Class::Resource(_) => 31,
            Class::VmFrames | Class::VmFree(_) => 32,
        }
    }

    /// The name of the class in results.
    pub const fn name(self) -> &'static str {
        match self {
            Class::VmSpace => "vm_space",
            Class::VmPaging => "vm_paging",
            Class::VmFiles => "vm_files",
            Class::VmObject => "vm_object",
            Class::VmAnon => "vm_anon",
            Class::VmPages => "vm_pages",
            Class::Hat | Class::HatEarly => "hat",
            Class::Space => "space",
            Class::Mmu => "mmu",
            Class::Table(_) => "table",
            Class::MmuFlags => "mmu_mutex",
            Class::Frame => "page",
            Class::FrameFlags => "page_mutex",
            Class::Resource(0) => "hat_resource_mutex",
            Class::Resource(1) => "tables",
            Class::Resource(2) => "numbers",
            Class::Resource(_) => "contexts",
            Class::VmFrames => "vm_frames",
            Class::VmFree(0) => "vm_swap",
            Class::VmFree(1) => "vm_anon_numbers",
            Class::VmFree(2) => "vm_daemon",
            Class::VmFree(_) => "vm_counts",
        }
    }
}

/// The operation that takes a lock, to count locks by operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Site {
    /// The HAT operations `create` and `attach`.
    Create,
    /// The HAT operations `destroy` and `detach`.
    Destroy,
    /// The HAT operation `load`.
    Load,
    /// The HAT operation `unload`.
    Unload,
    /// The HAT operation `unload_frames`.
    UnloadFrames,
    /// The HAT operation `protect`.
    Protect,
    /// The HAT operation `usage`.
    Usage,
    /// The HAT operation `resize`.
    Resize,
    /// The HAT operation `duplicate`.
    Duplicate,
    /// Page tables taken from another space.
    Steal,
    /// `enter`: a processor switches to a space.
    Enter,
    /// Operations that only read the layer's state.
    Look,
    /// A page fault.
    Fault,
    /// A system call that concerns regions or files.
    Call,
    /// Evicting or moving pages.
    Page,
}

/// A platform of locks. Each lock contains the data that it guards, so that the data is accessible
/// only under the lock.
pub trait Locks: 'static {
    /// Mutual exclusion.
    type Mutex<T: Send>: Mutex<T, Wait = Self::Wait>;
    /// Mutual exclusion for each of several adjacent values.
    type Row<T: Send>: Row<T, Wait = Self::Wait>;
    /// A reader/writer lock.
    type Rw<T>: Rw<T>;
    /// Where threads sleep until the data under a mutex has changed.
    type Wait: Wait;
    /// A value that is created when it is first requested.
    type Once<T>: Once<T>;

    /// Called when a logical lock, which consists of flags under a mutex, was taken; `was_busy`
    /// says whether the thread had to wait for it.
    fn acquired(_of: Class, _site: Site, _was_busy: bool) {}

    /// Called when a further logical lock was taken while the mutex was still held. The further
    /// lock was free.
    fn acquired_too(_of: Class, _site: Site) {}

    /// Called under the mutex when the flags of `count` descriptors are read and written.
    fn flags(_count: usize) {}

    /// Called when a logical lock was released.
    fn released(_of: Class) {}
}

/// Mutual exclusion.
pub trait Mutex<T> {
    /// See [`Locks::Wait`].
    type Wait: Wait;

    /// Creates a lock that is free.
    fn new(class: Class, value: T) -> Self;

    /// Runs `f` while no other thread holds the lock.
    fn with<R>(&self, site: Site, f: impl FnOnce(&mut T) -> R) -> R;

    /// Runs `f` under the lock until it returns a value. Between attempts the lock is free and the
    /// caller sleeps until `wait` is woken.
    fn until<R>(&self, site: Site, wait: &Self::Wait, f: impl FnMut(&mut T) -> Option<R>) -> R;

    /// The guarded value. A caller with exclusive access to the lock itself need not take it.
    fn get_mut(&mut self) -> &mut T;
}

/// Adjacent mutexes, such as those of descriptors. A thread that holds one mutex of a row takes no
/// other mutex of this row.
///
/// A platform creates a whole row at once, so a platform can make locking cheap while only one
/// processor uses the row. On other platforms a row is a slice of mutexes.
pub trait Row<T> {
    /// See [`Locks::Wait`].
    type Wait: Wait;

    /// Creates `count` locks, all free.
    fn new(class: Class, count: usize, make: impl Fn() -> T) -> Self;

    /// Like [`Row::new`], but returns `None` if no memory is left. The default implementation calls
    /// [`Row::new`], which panics in this case.
    fn try_new(class: Class, count: usize, make: impl Fn() -> T) -> Option<Self>
    where
        Self: Sized,
    {
        Some(Self::new(class, count, make))
    }

    /// Calls [`Mutex::until`] of the lock at this place.
    fn until<R>(
        &self,
        place: usize,
        site: Site,
        wait: &Self::Wait,
        f: impl FnMut(&mut T) -> Option<R>,
    ) -> R;
}

impl<T, M: Mutex<T>> Row<T> for Box<[M]> {
    type Wait = M::Wait;

    fn new(class: Class, count: usize, make: impl Fn() -> T) -> Box<[M]> {
        many(count, || M::new(class, make()))
    }

    fn try_new(class: Class, count: usize, make: impl Fn() -> T) -> Option<Box<[M]>> {
        try_many(count, || M::new(class, make()))
    }

    #[inline]
    fn until<R>(
        &self,
        place: usize,
        site: Site,
        wait: &M::Wait,
        f: impl FnMut(&mut T) -> Option<R>,
    ) -> R {
        self[place].until(site, wait, f)
    }
}

/// A reader/writer lock.
pub trait Rw<T> {
    /// Creates a lock that is free.
    fn new(class: Class, value: T) -> Self;

    /// Runs `f` while no other thread writes.
    fn read<R>(&self, site: Site, f: impl FnOnce(&T) -> R) -> R;

    /// Runs `f` while no other thread reads or writes.
    fn write<R>(&self, site: Site, f: impl FnOnce(&mut T) -> R) -> R;
}

/// Where threads sleep until a value has changed.
pub trait Wait {
    /// Creates a place where no thread sleeps.
    fn new(class: Class) -> Self;

    /// Wakes all threads that sleep in this queue; each of them checks its condition again.
    fn wake_all(&self);
}

/// A value that is created when it is first requested.
pub trait Once<T> {
    /// Creates the place for a value that does not exist yet.
    fn new() -> Self;

    /// The value, which `make` creates if it does not exist yet.
    fn get(&self, make: impl FnOnce() -> T) -> &T;

    /// The value, if it exists.
    fn made(&self) -> Option<&T>;

    /// Returns the value. If the value does not exist yet, creates it with `make`, which returns
    /// `None` if no memory is left. If several threads create the value at the same time, one of
    /// their values is kept and the others are dropped.
    #[inline]
    fn try_get(&self, make: impl FnOnce() -> Option<T>) -> Option<&T> {
        match self.made() {
            Some(made) => Some(made),
            None => {
                let made = make()?;
                Some(self.get(|| made))
            }
        }
    }
}
