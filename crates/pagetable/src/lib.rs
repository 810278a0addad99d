//! Page tables as bit-exact entries in physical memory, one file per organisation, all behind
//! one contract.
//!
//! ```text
//!                     PageTable                 map, unmap, protect, walk, usage, footprint
//!        ________________|______________________________
//!       |                      |                        |
//!     Tree                   Pages                    Cached<T>       software TLB, TSB, PowerPC:
//!       |  \               /    |     \                                in front of any other
//!     Radix  Guarded ------    Hashed  ElasticCuckoo
//!       |                        hashed, clustered, inverted
//!     Format: X86_64, X86_32, Riscv (Sv39, Sv48, Sv57), Aarch64, Arm, SparcReference, Mpt, Irix,
//!             Split (any split, flattened, linear)
//! ```
//!
//! [`Mounted`] is a table in its memory, object-safe, for who chooses the table when the program
//! runs.
//!
//! A *tree* lets a walk start below the root. *Pages* is what tables have in common that
//! reach any page directly: each finds, inserts and removes single pages, and ranges, errors
//! and tokens are the same for all.
//!
//! A table keeps its entries in a [`Memory`] and takes the frames for them from a [`Frames`];
//! both are passed to each operation, so that many tables, the VM and a walker share them. A
//! walk yields its memory accesses as [`Reference`]s in order and never knows what they cost.
//! Nothing here does IO, prints, or asks whether it is simulated.
//!
//! ```
//! use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
//! use pagetable::{PageTable, SparseMemory, Translation, X86_64};
//! use physmem::Physmem;
//!
//! let mut memory = SparseMemory::new(64 << 20);
//! let mut frames = Physmem::buddy(PhysAddr::new(0), 64 << 20, PageSize::SIZE_4K)?;
//! let mut table = X86_64::<4>::new();
//!
//! let space = table.create(&mut memory, &mut frames)?;
//! let page = VirtAddr::new(0x1000).page(PageSize::SIZE_4K);
//! let frame = PhysAddr::new(0x2000000);
//! let first = Translation::new(page, frame, Rights::ALL);
//! let flush = table.map(space, first, 1, &mut memory, &mut frames)?;
//! assert!(flush.is_empty());
//! flush.done(&mut frames);
//!
//! let mut references = Vec::new();
//! let each = &mut |reference| references.push(reference);
//! let found = table.walk(space, VirtAddr::new(0x1234), Kind::Store, &mut memory, each)?;
//! assert_eq!(found.apply(VirtAddr::new(0x1234)), PhysAddr::new(0x2000234));
//! // Four entries read, and in each the accessed bit set for the first time.
//! assert_eq!(references.len(), 8);
//!
//! let range = VirtRange::of_page(page);
//! let flush = table.unmap(space, range, &mut memory, &mut |gone| assert!(gone.usage.dirty))?;
//! // Here the TLBs and MMU caches forget what `flush` names; then the tables' frames are free.
//! flush.done(&mut frames);
//! table.destroy(space, &mut memory)?.done(&mut frames);
//! assert_eq!(frames.used_bytes(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod aarch64;
mod arm;
mod cached;
mod contract;
mod cuckoo;
mod error;
mod flush;
mod format;
mod guarded;
mod hashed;
mod irix;
mod linear;
mod mounted;
mod mpt;
mod pages;
mod pool;
mod pte;
mod radix;
mod resize;
mod riscv;
mod spaces;
mod sparc;
mod sparse;
mod split;
mod subtree;
mod walk;
mod x86_32;
mod x86_64;

pub use addr::{Frames, Memory, OutOfFrames};

pub use aarch64::{Aarch64, Aarch64Entries};
pub use arm::{Arm, ArmEntries};
pub use cached::{CacheShape, Cached};
pub use contract::{Footprint, Lent, Loan, Mapping, PageTable, Space, Tree, TreeShape, Usage};
pub use cuckoo::ElasticCuckoo;
pub use error::{Error, Geometry, Unfit};
pub use flush::{Flush, Scope};
pub use format::{Entry, Format};
pub use guarded::Guarded;
pub use hashed::{Hashed, HashedShape, WalkedBy};
pub use irix::{Irix, IrixEntries};
pub use linear::LinearArray;
pub use mounted::{Mount, Mounted};
pub use mpt::{Mpt, MptEntries};
pub use radix::Radix;
pub use resize::{Resized, resized};
pub use riscv::{Riscv, RiscvEntries, Sv39, Sv48, Sv57};
pub use sparc::{SparcEntries, SparcReference};
pub use sparse::SparseMemory;
pub use split::{Split, SplitEntries};
pub use subtree::{Intent, SubtreeEdit, SubtreeTable, Subtrees};
pub use walk::{Fault, Leads, Node, Reference, Translation};
pub use x86_32::{X86_32, X86Entries32};
pub use x86_64::{X86_64, X86Entries};
