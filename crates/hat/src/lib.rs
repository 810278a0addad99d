//! The hardware-address-translation (HAT) layer: it maps frames in spaces, keeps the list of all
//! mappings of each frame, and has hardware flush translations that change (K94).
//!
//! ```text
//!   memory manager     load  unload  unload_frames  protect  usage  resize  duplicate
//!        |                                  |
//!        v                                  v
//!   Hat    spaces -> page table (Mounted)   Mappings: frame -> every page that maps it
//!        |                  |
//!        |                  +-- Flush tokens, gathered --> Platform::shoot --> then frames free
//!        v
//!   Platform           TLBs and MMU caches of all processors, frames for tables, counted work
//! ```
//!
//! The memory manager has the complete data about an address space; this layer is only a *cache* of
//! its translations (K94 section 3.2). Any translation may be dropped at any time and is restored
//! by a minor fault. [`Hat::load`] may therefore fail for lack of table memory without losing
//! anything.
//!
//! A space may map its pages to other spaces: [`Hat::map_from`], [`Hat::grant`] and [`Hat::revoke`]
//! are L4's map, grant and unmap, over the same lists (E99 section 3.2).
//!
//! Many small spaces can be visible through the root of whichever space runs ([`small`]), so that a
//! switch between them flushes nothing: [`Hat::lend`] copies root entries, and every operation empties
//! the copies of the entries that it changes.
//!
//! Every operation has the same three steps: change the page table and collect the [`Flush`]
//! tokens; have the processors flush; then free the table frames that the tokens hold. Operations
//! take `&self`; the [scheme](locking) determines which lock they hold in which step. One call for
//! many frames or a long range causes one shootdown (G98 section 6.4.2).
//!
//! To use the layer, provide a page table in its memory, and a [`Platform`], which has the processors flush
//! and provides frames for tables.
//!
//! ```
//! use addr::{Frames, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
//! use hat::{Hat, HatSpace, Platform};
//! use pagetable::{Flush, Mount, SparseMemory, Translation, X86_64};
//! use physmem::{Buddy, Physmem};
//!
//! struct Cpus {
//!     frames: Physmem<Buddy>,
//!     shootdowns: u32,
//! }
//!
//! impl Platform for Cpus {
//!     fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
//!         // Here every processor that may hold what `flushes` name executes INVLPG, or reloads CR3.
//!         self.shootdowns += 1;
//!     }
//!
//!     fn frames(&mut self) -> &mut dyn Frames {
//!         &mut self.frames
//!     }
//! }
//!
//! // The page table is in the first 64 MiB of memory, as are the frames for its tables.
//! let frames = Physmem::buddy(PhysAddr::new(0), 64 << 20, PageSize::SIZE_4K)?;
//! let mut cpus = Cpus { frames, shootdowns: 0 };
//! let memory = SparseMemory::new(64 << 20);
//! let hat = Hat::new(Box::new(Mount::tree(X86_64::<4>::new(), memory)));
//!
//! // Two spaces share a frame of 2 MiB at different addresses.
//! let (one, two) = (hat.create(&mut cpus)?, hat.create(&mut cpus)?);
//! let (size, frame) = (PageSize::SIZE_2M, PhysAddr::new(0x800_0000));
//! for (space, at) in [(one, 0x4000_0000), (two, 0x6000_0000)] {
//!     let page = VirtAddr::new(at).page(size);
//!     hat.load(space, Translation::new(page, frame, Rights::ALL), 1, &mut cpus)?;
//! }
//!
//! // In one of them the page is split: the processors flush the old translation.
//! let range = VirtRange::of_page(VirtAddr::new(0x4000_0000).page(size));
//! hat.resize(one, range, PageSize::SIZE_4K, &mut cpus)?;
//! assert_eq!((hat.mappings(), cpus.shootdowns), (512 + 1, 1));
//!
//! // A base frame in the middle gets another owner: the layer finds and removes all of its mappings, in one shootdown.
//! let mut gone = Vec::new();
//! let middle = PhysAddr::new(0x800_5000);
//! let each = &mut |space, mapping: pagetable::Mapping| gone.push((space, mapping.translation.page));
//! hat.unload_frames(&[(middle, PageSize::SIZE_4K)], each, &mut cpus);
//! gone.sort();
//! let [small, large] = [(0x4000_5000, PageSize::SIZE_4K), (0x6000_0000, size)];
//! assert_eq!(gone, [(one, VirtAddr::new(small.0).page(small.1)), (two, VirtAddr::new(large.0).page(large.1))]);
//! assert_eq!(cpus.shootdowns, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Flush`]: pagetable::Flush
//!
//! # If the heap has no memory left
//!
//! Operations that create translations reserve memory before they change anything. If no memory is
//! left, they return [`LoadError::NoMemory`] and have changed nothing, except [`Hat::duplicate`]
//! and [`Hat::map_from`], which may have copied some of the pages. Operations that only remove
//! translations or read usage bits ([`Hat::unload`], [`Hat::unload_frames`], [`Hat::revoke`],
//! [`Hat::destroy`], [`Hat::usage`]) do not fail: without memory, they handle a few pages at a time
//! and need more shootdowns. They require a page table that can unmap one page without memory.
//!
//! The following still panics if no memory is left: [`Hat::with`], the constructors of locking
//! schemes, a [`MakeTable`] function, [`Hat::mapped`], [`Hat::check`], the list that orders limited
//! contexts by use, and everything that copies root entries ([`Hat::lend`] and [`small`]).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod change;
mod contexts;
mod enter;
mod frame;
mod give;
mod hat;
mod lend;
mod load;
mod loans;
pub mod locking;
mod look;
mod mmus;
mod part;
mod platform;
mod pool;
mod room;
pub mod small;
mod space;
mod sparse;
mod table_frames;
mod unload;

pub use crate::{
    contexts::{ContextCounts, ContextLimit, Contexts, Entered, NoContext},
    frame::{Frame, Mapped},
    hat::{Hat, LoadError, MakeTable, Tables},
    platform::{Platform, Step},
    pool::{Pool, PoolCounts},
    space::{AddressSpace, HatSpace, MMUS_MAX, Mmu, MmuPlace, Numbers},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
