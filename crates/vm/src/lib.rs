//! Virtual memory: it records which data belongs at each address, and which part of this data is in
//! memory. Page tables are a cache of this state: any translation may be dropped, and a fault
//! restores it.
//!
//! ```text
//!   faults, calls of processes                      ticks of a clock
//!        |                                               |
//!        v                                               v
//!   Kernel   fault  map  protect  fork  exit  pin  sync     reclaim      one per processor
//!        |
//!        +-- Vm        spaces -> regions -> objects, anons -> frames, swap slots
//!        |             lists of pages by how lately they were used; counts of work
//!        +-- Hat       which translations hardware has            (crate hat)
//!        +-- Physical  whose a frame is, which are free           (crate physmem)
//!        +-- Platform  copies, zeros, disk, other processors: the processor's own
//! ```
//!
//! [`Vm`] is the state of the memory manager. It works on a HAT layer, physical memory and a
//! platform, which it does not own. A [`Kernel`] is one processor that works on all of these. Their
//! operations take `&self`, so that there can be one `Kernel` per processor, and a kernel may store
//! each of them in any place.
//!
//! To use the crate, create a [`Vm`] with its [`Settings`], and the three parts that it works on. In this
//! example a process stores to a page and forks, and the child stores to the page as well.
//!
//! ```
//! use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
//! use hat::{Hat, HatSpace};
//! use pagetable::{Flush, Mount, SparseMemory, X86_64};
//! use physmem::Physmem;
//! use vm::{Io, Kernel, Physical, Platform, Settings, Source, Vm};
//!
//! /// The operations of the processor and the disks; here, it counts the copied pages.
//! #[derive(Default)]
//! struct Board {
//!     copies: u32,
//! }
//!
//! impl Platform for Board {
//!     // Here every processor that may hold what `flushes` name executes INVLPG, or reloads CR3.
//!     fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {}
//!     fn zero(&mut self, frame: PhysAddr, bytes: u64) {}
//!     fn copy(&mut self, from: PhysAddr, to: PhysAddr, bytes: u64) {
//!         self.copies += 1;
//!     }
//!     fn transfer(&mut self, io: Io) {}
//! }
//!
//! const MEMORY: u64 = 64 << 20;
//! let base = PageSize::SIZE_4K;
//! let vm = Vm::new(Settings::default(), MEMORY / base.bytes())?;
//! let hat = Hat::new(Box::new(Mount::tree(X86_64::<4>::new(), SparseMemory::new(MEMORY))));
//! let memory = Physical::new(Physmem::buddy(PhysAddr::new(0), MEMORY, base)?);
//! let mut board = Board::default();
//! let mut kernel = Kernel::new(&vm, &hat, &memory, &mut board);
//!
//! let parent = kernel.create()?;
//! let stack = VirtRange::new(VirtAddr::new(0x7fff_0000_0000), 16 << 10)?;
//! let rights = Rights::READ | Rights::WRITE | Rights::USER;
//! kernel.map(parent, stack, rights, Source::Anonymous, 0)?;
//! // The page-fault handler: the first access to each page.
//! kernel.fault(parent, stack.start(), Kind::Store)?;
//!
//! let child = kernel.create()?;
//! kernel.fork(parent, child)?;
//! // Both map the same frame, and a store by either makes a copy.
//! kernel.fault(child, stack.start(), Kind::Store)?;
//! assert_eq!(kernel.platform().copies, 1);
//! let frame = |space| hat.query(space, stack.start()).map(|found| found.translation.frame);
//! assert_ne!(frame(parent), frame(child));
//!
//! kernel.exit(child)?;
//! // An access that no region allows is an error: a kernel would send the process a signal.
//! assert!(kernel.fault(parent, VirtAddr::new(0x1000), Kind::Load).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Devices, framebuffers and other frames that the kernel gives to a region are a [`Source`] too.
//! [`Kernel::pin`] keeps pages in their frames for input and output, and [`Kernel::access`] reaches the pages of
//! another space. The README of this crate has an example of them.
//!
//! Frames, owners and swap are counted in base pages. A larger page consists of adjacent, aligned
//! base frames with one translation (G98 sections 6.1 and 6.2). Policies request larger pages
//! ([`FaultPolicy`]); the fault layer for large pages loads them or records why not ([`Why`]); and
//! every operation that concerns only a part of a larger page splits it first.
//!
//! # Locks
//!
//! Locks are those of [`hat::locking`]: a platform defines what a lock is; without a platform,
//! there is a single thread and a lock is a flag. A lock contains the data that it guards. An
//! operation takes the locks that it needs in this order, at most one of each rank at a time:
//!
//! ```text
//!    0  space           regions, which anon each page is, wired pages   one per space
//!    1  paging          pages stay where they are (reader), or leave    one
//!                       memory or move (writer)
//!    2  files           which object a file has, numbers of objects     one
//!    3  object          pages of an object, by offset                   one per object
//!    4  anonymous map   anons: users, and where the page is             64, by the anon's number
//!    5  pages           lists by which pages leave, counts of pages,    one
//!                       frames given to regions, pins
//!   6-31  the HAT layer's ([`hat::locking::Class::rank`])
//!   32    free lists    frames with their descriptors; places of swap;  one each
//!                       numbers of anons; counts of work
//! ```
//!
//! *An operation on a space holds the space's lock from beginning to end.* Two operations on the same
//! space exclude each other. Operations on different spaces run at the same time, and contend only for
//! objects and anons that both spaces use. A page that two processors may need is read from disk, or
//! filled with zeros, under the lock of its object or anonymous map, so that the second processor finds
//! it. Fork locks parent and child one after the other: the child is empty, and no processor runs
//! it yet.
//!
//! *An operation that relies on where pages are holds the paging lock as a reader.* A frame that an
//! object or anon of the space names then keeps its page until the operation has loaded it.
//! Operations that evict or move pages (replacement, the coalescing daemon, upgrades) hold the
//! paging lock as the writer, and all other operations wait. An operation that finds no free frame
//! ends its attempt, releases the reader's lock and becomes the writer. It keeps the lock of its
//! space, since a writer needs no space's lock. Therefore only one processor evicts pages at a
//! time, like a single daemon. Kernels mark single pages as busy instead, and wait only for busy
//! pages. Only pages that are written back on request are handled like busy pages: they are pinned
//! while the disk writes them, and no lock is held.
//!
//! *The last user of an anon is guaranteed to be its only user.* Only a fork adds users, and a fork
//! needs the lock of a space that uses the anon already. A space that finds that it is the only
//! user may therefore let hardware store to the page. A space that has copied an anon's page
//! decrements the count only when hardware no longer has a translation to the old page in this
//! space: otherwise the space could read later stores of the last user.
//!
//! `locks::Ranked` asserts the order; the tests of `smp` run the streams of the model test under
//! it, and with two threads of the host.
//!
//! # If the kernel's allocator has no memory left
//!
//! Faults, calls on regions, [`Kernel::create`] and [`Kernel::fork`] return [`Error::NoMemory`].
//! Regions and translations are then unchanged. A page that a fault has read may stay in memory,
//! where the next fault finds it. After a failed fork, the caller must end the child. Operations
//! that free memory need none themselves: eviction handles a few pages at a time, and
//! [`Kernel::exit`] and the unmapping of whole regions need no memory.
//!
//! The following still panics if no memory is left:
//!
//! * [`Vm::new`];
//! * everything that only shows or checks the state ([`Kernel::check`], [`Vm::regions`],
//!   [`Vm::decisions`], views of a [`Pin`]);
//! * locking of pages ([`Kernel::lock`] and faults in locked regions, which list wired pages);
//! * moves of pages ([`Kernel::coalesce`], upgrades, NUMA migration);
//! * faults that load a large page where pages of several sizes are mapped;
//! * reservations for the new objects of a fork;
//! * write-back;
//! * eager population;
//! * the whole model of Linux ([`Settings::thp`]).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod access;
mod anon;
mod below;
mod berth;
mod change;
mod check;
mod eager;
mod error;
mod fault;
mod file;
mod frames;
mod given;
mod groups;
mod hashed;
mod host;
mod kernel;
mod large;
mod limits;
mod linux;
mod lock;
mod map;
mod migrate;
mod module;
mod nodes;
mod numbered;
mod object;
mod oom;
mod own;
mod pages;
mod physical;
mod pin;
mod pins;
mod platform;
mod policy;
mod process;
#[cfg(test)]
mod random;
mod reclaim;
mod region;
mod replacement;
mod reserve;
mod runs;
mod settings;
mod sorted;
mod stack;
mod stacks;
mod swap;
mod sync;
mod thp;
mod vm;
mod wanted;
mod work;

pub use crate::{
    access::Access,
    error::Error,
    groups::{GroupCounts, Limits},
    hashed::Hashed,
    host::{Host, Parts},
    kernel::Kernel,
    module::{Fallback, Module, Placement},
    object::FileKey,
    oom::{Largest, OomPolicy, SpaceUsage},
    physical::Physical,
    pin::Pin,
    platform::{Decided, Io, IoError, Platform, Step, Store},
    policy::{Ask, Choice, FAULT_POLICIES, FaultPolicy},
    region::{Backing, Region, Wired},
    replacement::{POLICIES, Replacement},
    settings::{Marks, Reference, Reserving, Resident, Settings, SettingsError, Source},
    stacks::Growth,
    swap::Slot,
    thp::{
        Collapsed, CompactResult, Compacted, Compacting, Defrag, Ingens, Khugepaged, Placing,
        PoolCounts, Promoted, Promoter, Ranged, Ranger, Refused, ScanResult, Scanned, Shmem,
        ShmemHuge, SizeStats, Thp,
    },
    vm::Vm,
    work::{Decision, How, Why, Work},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
