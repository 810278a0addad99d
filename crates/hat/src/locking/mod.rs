//! Exclusion behind one seam: the only files that know of it (K94 section 4.4).
//!
//! ```text
//!   operation      load, unload, ...: written once, for all schemes
//!      | enter
//!   Scheme         which lock guards which descriptor         global  early  monitor  hashed  embedded  covering
//!      | Held: space, mmu, frame, lists
//!   Locks          what a lock is                             single  spin  std  virtual time
//! ```
//!
//! A *scheme* is K94's question: one lock around the layer, or one per descriptor, and then where it
//! lies. A *platform* of locks is a kernel's or a simulator's own. Operations see neither. They ask a
//! [`Held`] for one descriptor at a time and get it exclusively while a closure runs.
//!
//! # Order
//!
//! ```text
//!   space (reader, or writer)  <  MMU descriptor  <  its tables, from the root down (`covering`)
//!                              <  page-frame descriptor, lists of resources
//! ```
//!
//! Of each kind one is held at a time, but for page-frame descriptors that are taken together where all
//! are free: who finds one busy gives back the others before it waits. Whoever has a page-frame
//! descriptor takes nothing else, and nobody waits for one to change while holding anything. A memory manager above has locks of its own
//! around these, and one for the frames that page tables are made of below ([`Class::rank`]).
//!
//! # How a frame is unloaded
//!
//! The list of a frame names every page through which a processor may still reach it: a page is
//! entered in the list *before* it is in a page table (under the same hold of the MMU descriptor),
//! and struck out *after* the processors have forgotten it. A list that is empty proves that the
//! frame can have a new owner. A page that is in the list and in no page table is being unloaded
//! by someone, who will strike it out.
//!
//! ```text
//!   1  mark the frame as being unloaded (loads of it wait), copy its pages out        frame
//!   2  for each: walk again, and if the page still maps the frame, clear its entry    space, MMU
//!   3  one shootdown for all                                                          none, or all
//!   4  strike them out; what others are unloading is theirs to strike out: wait       frame
//!   5  from 2 on, until the list is empty; then take the mark away, wake the loads    frame
//! ```
//!
//! A load that meets the mark takes back what it has entered in other lists before it waits, so
//! that an unloading of those does not wait for it in turn.

use alloc::boxed::Box;

use array::many;

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

/// What a lock guards. Locks of a class are counted together; a lock is taken only while those
/// that are held have a lower rank.
///
/// Classes of the memory manager above are here too: one order holds for both, as its locks are
/// held while it calls this layer, and its free frames are asked for from here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// The memory manager's space: its regions and which anon it has at each page.
    VmSpace,
    /// Whether pages may leave memory or move, a reader/writer lock.
    VmPaging,
    /// Which object a file has.
    VmFiles,
    /// An object with its pages.
    VmObject,
    /// Anons with their users: an anonymous map.
    VmAnon,
    /// The lists that a page leaves memory by.
    VmPages,
    /// All of the layer: Solaris 2.1's.
    Hat,
    /// All of the layer, in the scheme that releases this lock during shootdowns; it comes after the lists of
    /// MMU descriptors.
    HatEarly,
    /// The list of MMU descriptors of a space, a reader/writer lock.
    Space,
    /// An MMU descriptor with its page table.
    Mmu,
    /// A table of a page table, so many below the root.
    Table(u8),
    /// The flags of all MMU descriptors: K94's `mmu_mutex`.
    MmuFlags,
    /// A page-frame descriptor with its list.
    Frame,
    /// The flags of all page-frame descriptors: K94's `page_mutex`.
    FrameFlags,
    /// Lists of free resources: K94's `hat_resource_mutex`. The number tells several apart.
    Resource(u8),
    /// Free frames and the descriptors of all frames.
    VmFrames,
    /// Other free lists and counts of the memory manager. The number tells several apart.
    VmFree(u8),
}

impl Class {
    /// What must be lower for all locks that are held when one of this class is taken.
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
            // Held for a few instructions, in which nothing else is taken.
            Class::MmuFlags | Class::FrameFlags | Class::Resource(_) => 31,
            Class::VmFrames | Class::VmFree(_) => 32,
        }
    }

    /// Its name in results.
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

/// The operation that takes a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Site {
    /// `create`, `attach`.
    Create,
    /// `destroy`, `detach`.
    Destroy,
    /// `load`.
    Load,
    /// `unload`.
    Unload,
    /// `unload_frames`.
    UnloadFrames,
    /// `protect`.
    Protect,
    /// `usage`.
    Usage,
    /// `resize`.
    Resize,
    /// `duplicate`.
    Duplicate,
    /// Tables taken from another space.
    Steal,
    /// `enter`: a processor runs another space.
    Enter,
    /// Whatever looks and changes nothing.
    Look,
    /// A fault.
    Fault,
    /// A call of a process for its regions, or for a file.
    Call,
    /// Pages leave memory, or move in it.
    Page,
}

/// A platform of locks. Its types keep what they guard inside, so that nothing is reached without
/// the lock.
pub trait Locks: 'static {
    /// Mutual exclusion.
    type Mutex<T: Send>: Mutex<T, Wait = Self::Wait>;
    /// Mutual exclusion for each of several values that lie side by side.
    type Row<T: Send>: Row<T, Wait = Self::Wait>;
    /// Many readers or one writer.
    type Rw<T>: Rw<T>;
    /// Where to sleep until what a mutex guards has changed.
    type Wait: Wait;
    /// Something that is made when it is first asked for.
    type Once<T>: Once<T>;

    /// Hears that a logical lock, made of flags under a mutex, was taken; and whether it was found
    /// busy.
    fn acquired(_of: Class, _site: Site, _was_busy: bool) {}

    /// Hears that one more was taken with the one before: it was free, and nobody waited for it.
    fn acquired_too(_of: Class, _site: Site) {}

    /// Hears, under the mutex, that the flags of so many descriptors are read and written.
    fn flags(_count: usize) {}

    /// Hears that a logical lock was given back.
    fn released(_of: Class) {}
}

/// Mutual exclusion.
pub trait Mutex<T> {
    /// See [`Locks::Wait`].
    type Wait: Wait;

    /// A lock that is free.
    fn new(class: Class, value: T) -> Self;

    /// Runs `f` while nobody else has the lock.
    fn with<R>(&self, site: Site, f: impl FnOnce(&mut T) -> R) -> R;

    /// Runs `f` under the lock until it gives something. In between the lock is free and the caller
    /// sleeps until `wait` is woken.
    fn until<R>(&self, site: Site, wait: &Self::Wait, f: impl FnMut(&mut T) -> Option<R>) -> R;

    /// What it guards: who has the lock itself exclusively needs not take it.
    fn get_mut(&mut self) -> &mut T;
}

/// Mutexes side by side, as those of descriptors. Who has one takes no other of its row.
///
/// A platform is asked for all of a row at once, so that it can make the whole row cheap for the only processor
/// that uses it. One that cannot has a slice of mutexes.
pub trait Row<T> {
    /// See [`Locks::Wait`].
    type Wait: Wait;

    /// As many locks, all free.
    fn new(class: Class, count: usize, make: impl Fn() -> T) -> Self;

    /// [`Mutex::until`] of the lock in this place.
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

/// Many readers or one writer.
pub trait Rw<T> {
    /// A lock that is free.
    fn new(class: Class, value: T) -> Self;

    /// Runs `f` while nobody writes.
    fn read<R>(&self, site: Site, f: impl FnOnce(&T) -> R) -> R;

    /// Runs `f` while nobody else reads or writes.
    fn write<R>(&self, site: Site, f: impl FnOnce(&mut T) -> R) -> R;
}

/// Where threads sleep until something has changed.
pub trait Wait {
    /// Nobody sleeps there yet.
    fn new(class: Class) -> Self;

    /// Wakes all who sleep there; each looks again.
    fn wake_all(&self);
}

/// Something that is made when it is first asked for.
pub trait Once<T> {
    /// Not made yet.
    fn new() -> Self;

    /// What `make` made, now or before.
    fn get(&self, make: impl FnOnce() -> T) -> &T;

    /// What was made, if it was.
    fn made(&self) -> Option<&T>;
}
