//! Virtual memory: what each address *should* hold, and which of it is in memory. Page tables are a cache of it: any
//! translation may be dropped, and comes back by a fault.
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
//! A first call takes a [`Vm`] with its [`Settings`], and the three that it works on. Here a process stores to a page,
//! forks, and the child stores to the page too.
//!
//! ```
//! use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
//! use hat::{Hat, HatSpace};
//! use pagetable::{Flush, Mount, SparseMemory, X86_64};
//! use physmem::Physmem;
//! use vm::{Io, Kernel, Physical, Platform, Settings, Source, Vm};
//!
//! /// What the processor and the disks do for this kernel; here, it counts the pages copied.
//! #[derive(Default)]
//! struct Board {
//!     copies: u32,
//! }
//!
//! impl Platform for Board {
//!     // Here every processor that may hold what `flushes` name executes INVLPG, or loads CR3.
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
//! // Both have the page, and neither may store to it before it has a copy.
//! kernel.fault(child, stack.start(), Kind::Store)?;
//! assert_eq!(kernel.platform().copies, 1);
//! let frame = |space| hat.query(space, stack.start()).map(|found| found.translation.frame);
//! assert_ne!(frame(parent), frame(child));
//!
//! kernel.exit(child)?;
//! // An access that no region allows is an error: the process gets a signal.
//! assert!(kernel.fault(parent, VirtAddr::new(0x1000), Kind::Load).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
mod berth;
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
mod module;
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
mod thp;
mod vm;
mod wanted;
mod work;

pub use crate::{
    error::Error,
    hashed::Hashed,
    kernel::Kernel,
    module::{Fallback, Module, Placement},
    object::FileKey,
    physical::Physical,
    platform::{Decided, Io, Platform, Step, Store},
    policy::{Ask, Choice, FAULT_POLICIES, FaultPolicy},
    region::{Backing, Region, Wired},
    replacement::{POLICIES, Replacement},
    settings::{Marks, Reference, Reserving, Resident, Settings, SettingsError, Source},
    swap::Slot,
    thp::{
        Collapsed, CompactResult, Compacted, Compacting, Defrag, Ingens, Khugepaged, Placing,
        Promoted, Promoter, Ranged, Ranger, Refused, ScanResult, Scanned, Thp,
    },
    vm::Vm,
    work::{Decision, How, Why, Work},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
