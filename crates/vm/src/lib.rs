//! Virtual memory: what each address *should* hold, and which of it is in memory (OS.md of this
//! project's design calls it the truth; page tables are a cache of it).
//!
//! ```text
//!   faults, calls of processes                      ticks of a clock
//!        |                                               |
//!        v                                               v
//!   Kernel   fault  map  protect  move_pages  fork  exit    reclaim      one per processor
//!        |
//!        +-- Vm        spaces -> regions -> objects, anons -> frames, swap slots
//!        |             lists of pages by how lately they were used; counts of work
//!        +-- Hat       which translations hardware has            (crate hat)
//!        +-- Physical  whose a frame is, which are free           (crate physmem)
//!        +-- Platform  copies, zeros, disk, other processors: the processor's own
//! ```
//!
//! [`Vm`] is the state of the memory manager. It works on a HAT layer, physical memory and a
//! platform that are not its own. A [`Kernel`] is one processor at work on these: they take `&self`,
//! so that there can be as many kernels as processors, and a kernel may keep each part where it
//! likes.
//!
//! Frames, owners and swap are counted in base pages. A page larger than that is adjacent, aligned base
//! frames with one translation (G98 sections 6.1 and 6.2): policies wish for it ([`FaultPolicy`]), the
//! fault's layer for large pages loads it or says why not ([`Why`]), and every operation that concerns
//! a part of it makes it smaller first.
//!
//! # Locks
//!
//! Locks are those of [`hat::locking`]: a platform says what a lock is, and without one there is a
//! single thread and a lock is a flag. What a lock guards lies in it. An operation takes those that it
//! needs in this order, at most one of a rank at a time:
//!
//! ```text
//!    0  space           regions, which anon each page is, wired pages   one per space
//!    1  paging          pages stay where they are (reader), or leave    one
//!                       memory or move (writer)
//!    2  files           which object a file has, numbers of objects     one
//!    3  object          pages of an object, by offset                   one per object
//!    4  anonymous map   anons: users, and where the page is             64, by the anon's number
//!    5  pages           lists by which pages leave, counts of pages     one
//!   6-10  the HAT layer's
//!   11  free lists      frames with their descriptors; places of swap;  one each
//!                       numbers of anons; counts of work
//! ```
//!
//! *An operation on a space has its lock from the beginning to the end.* Two operations on one space
//! exclude each other; on two spaces they run at once, and meet at the objects and anons that both
//! have. A page that both can want is read from a disk, or filled with zeros, under the lock of its object
//! or anonymous map, so that the second finds it there. Fork locks parent and child one after the
//! other: the child is empty, and nothing runs there yet.
//!
//! *While an operation relies on where pages are, it is a reader of paging.* A frame that an object or
//! an anon of the space names is then its page's until the operation has loaded it. Whoever has pages
//! leave memory or move (replacement, the coalescing daemon, upgrades) is the writer: all others wait
//! for it. An operation that finds no frame ends its attempt, gives the reader's lock back and becomes
//! the writer; it keeps its space, as no writer needs one. So one processor replaces pages at a time,
//! as one daemon does; kernels mark single pages as busy instead, and wait for these.
//!
//! *An anon's last user is alone with it.* Users are added by forks, which need the lock of a space
//! that has the anon already. So a space that finds one user, itself, may let hardware store. A space
//! that has copied an anon's page counts itself down only when hardware does not have the old page
//! there any more, else it could see what the last user stores from then on.
//!
//! `locks::Ranked` asserts the order; `smp`'s tests run the model test's streams under it, and two
//! threads of the host at once.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod anon;
mod change;
mod check;
mod eager;
mod error;
mod fault;
mod file;
mod frames;
mod hashed;
mod kernel;
mod large;
mod linux;
mod lock;
mod map;
mod migrate;
mod nodes;
mod numbered;
mod object;
mod own;
mod pages;
mod physical;
mod platform;
mod policy;
mod process;
mod reclaim;
mod region;
mod replacement;
mod reserve;
mod settings;
mod swap;
mod vm;
mod work;

pub use crate::{
    error::Error,
    hashed::Hashed,
    kernel::Kernel,
    linux::{
        Collapsed, CompactResult, Compacted, Compacting, Defrag, Ingens, Khugepaged, Placing,
        Promoted, Promoter, Ranged, Ranger, Refused, ScanResult, Scanned, Thp,
    },
    object::FileKey,
    physical::Physical,
    platform::{Decided, Io, Platform, Step, Store},
    policy::{Ask, Choice, FAULT_POLICIES, Fallback, FaultPolicy, Module, Placement},
    region::{Backing, Region, Wired},
    replacement::{POLICIES, Replacement},
    reserve::Reserving,
    settings::{Marks, Reference, Resident, Settings, SettingsError, Source},
    swap::Slot,
    vm::Vm,
    work::{Decision, How, Why, Work},
};
