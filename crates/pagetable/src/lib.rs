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
//! [`Mounted`] is a table together with its memory. It is object-safe, for programs that choose the
//! table at run time.
//!
//! A *tree* lets a walk start below the root. *Pages* is the common part of tables that reach any
//! page directly: each such table finds, inserts and removes single pages, and all of them share
//! the code for ranges, errors and tokens.
//!
//! A table keeps its entries in a [`Memory`] and allocates frames for them from a [`Frames`]. Both
//! are passed to each operation, so that many tables, the VM layer and a walker share them. A walk
//! returns its memory accesses as [`Reference`]s in order, without their cost. This crate does no
//! IO, prints nothing, and works both in a simulator and in a kernel.
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
//! // The walk reads four entries, and sets the accessed bit in each for the first time.
//! assert_eq!(references.len(), 8);
//!
//! let range = VirtRange::of_page(page);
//! let flush = table.unmap(space, range, &mut memory, &mut |gone| assert!(gone.usage.dirty))?;
//! // Here the TLBs and MMU caches flush what `flush` names; then the frames of tables can be freed.
//! flush.done(&mut frames);
//! table.destroy(space, &mut memory)?.done(&mut frames);
//! assert_eq!(frames.used_bytes(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A framebuffer
//!
//! Memory that is not ordinary, such as a framebuffer, is mapped with
//! [`Attributes`](addr::Attributes): a memory type and, on x86-64, a protection key. First the
//! kernel loads, on each processor, the register that defines the memory types: IA32_PAT on x86-64
//! ([`X86Entries::PAT`]), MAIR_EL1 on AArch64 ([`Aarch64Entries::MAIR`]). RISC-V has no such
//! register; firmware switches Svpbmt on. [`X86_64`], [`Aarch64`] and [`Riscv`] return the values
//! that the processor's registers must have for their entries. A format that cannot express the
//! type refuses the page with [`Unfit::Memory`].
//!
//! ```
//! use addr::{Attributes, MemoryType, PageSize, PhysAddr, Rights, VirtAddr};
//! use pagetable::{PageTable, SparseMemory, Translation, X86_64, X86Entries};
//! use physmem::Physmem;
//!
//! // wrmsr(IA32_PAT, ...) on each processor.
//! assert_eq!(X86Entries::<4, true>::PAT.to_le_bytes()[MemoryType::WriteCombining as usize], 0x01);
//!
//! let mut memory = SparseMemory::new(64 << 20);
//! let mut frames = Physmem::buddy(PhysAddr::new(0), 64 << 20, PageSize::SIZE_4K)?;
//! let mut table = X86_64::<4>::new();
//! let space = table.create(&mut memory, &mut frames)?;
//!
//! // 8 MiB of a graphics card: a frame that is mapped need not be from `frames`.
//! let start = VirtAddr::new(0xffff_c000_0000_0000);
//! let page = start.page(PageSize::SIZE_2M);
//! let write_combining = Attributes::of(MemoryType::WriteCombining);
//! let first = Translation::new(page, PhysAddr::new(0xe000_0000), Rights::READ | Rights::WRITE)
//!     .with(write_combining);
//! table.map(space, first, 4, &mut memory, &mut frames)?.done(&mut frames);
//!
//! let pixel = VirtAddr::new(0xffff_c000_0060_0010);
//! let found = table.query(space, pixel, &memory).expect("it is mapped").translation;
//! assert_eq!(found.apply(pixel), PhysAddr::new(0xe060_0010));
//! assert_eq!(found.attributes, write_combining);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A page is split while processors use it
//!
//! Hardware sets accessed and dirty bits at any time, so the memory's exchanges must be atomic.
//! [`PageTable::resize`] exchanges the entries, then calls the shootdown, in which each processor flushes
//! what a token names, and then copies the bits that hardware has set in the old entries to the new
//! ones. In this example a thread acts as the other processor.
//!
//! ```
//! use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
//! use std::{sync::Arc, thread};
//!
//! use addr::{Kind, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
//! use pagetable::{Flush, PageTable, Translation, X86_64};
//! use physmem::Physmem;
//!
//! /// Physical memory that several processors share.
//! #[derive(Clone)]
//! struct Direct(Arc<[AtomicU64]>);
//!
//! impl Direct {
//!     fn word(&self, addr: PhysAddr) -> &AtomicU64 {
//!         &self.0[(addr.get() / 8) as usize]
//!     }
//! }
//!
//! impl Memory for Direct {
//!     fn read_u64(&self, addr: PhysAddr) -> u64 {
//!         self.word(addr).load(SeqCst)
//!     }
//!     fn write_u64(&mut self, addr: PhysAddr, value: u64) {
//!         self.word(addr).store(value, SeqCst);
//!     }
//!     fn swap_u64(&mut self, addr: PhysAddr, new: u64) -> u64 {
//!         self.word(addr).swap(new, SeqCst)
//!     }
//!     fn invert_u64(&mut self, addr: PhysAddr, bits: u64) -> u64 {
//!         self.word(addr).fetch_xor(bits, SeqCst)
//!     }
//!     fn compare_exchange_u64(&mut self, addr: PhysAddr, old: u64, new: u64) -> Result<(), u64> {
//!         self.word(addr).compare_exchange(old, new, SeqCst, SeqCst).map(|_| ())
//!     }
//!     // x86-64 changes half of an entry when it counts the entries of a table.
//!     fn write_upper_u64(&mut self, addr: PhysAddr, value: u64) {
//!         let upper = |word: u64| Some(word & 0xffff_ffff | value >> 32 << 32);
//!         self.word(addr).fetch_update(SeqCst, SeqCst, upper).unwrap();
//!     }
//!     // x86-64 has no entries of four bytes or of one byte.
//!     fn read_u32(&self, _: PhysAddr) -> u32 { unimplemented!() }
//!     fn write_u32(&mut self, _: PhysAddr, _: u32) { unimplemented!() }
//!     fn swap_u32(&mut self, _: PhysAddr, _: u32) -> u32 { unimplemented!() }
//!     fn invert_u32(&mut self, _: PhysAddr, _: u32) -> u32 { unimplemented!() }
//!     fn compare_exchange_u32(&mut self, _: PhysAddr, _: u32, _: u32) -> Result<(), u32> {
//!         unimplemented!()
//!     }
//!     fn read_u8(&self, _: PhysAddr) -> u8 { unimplemented!() }
//!     fn write_u8(&mut self, _: PhysAddr, _: u8) { unimplemented!() }
//! }
//!
//! let mut memory = Direct((0..1 << 17).map(|_| AtomicU64::new(0)).collect());
//! let mut frames = Physmem::buddy(PhysAddr::new(0), 1 << 20, PageSize::SIZE_4K)?;
//! let mut table = X86_64::<4>::new();
//! let space = table.create(&mut memory, &mut frames)?;
//! let page = VirtAddr::new(0x4000_0000).page(PageSize::SIZE_2M);
//! let large = Translation::new(page, PhysAddr::new(0x8000_0000), Rights::ALL);
//! table.map(space, large, 1, &mut memory, &mut frames)?.done(&mut frames);
//!
//! // Another processor stores to the page all the time. It has no TLB; one with a TLB would flush it in
//! // `shootdown` below.
//! let (hardware, mut its_memory) = (X86_64::<4>::new(), memory.clone());
//! let (ready, over) = (AtomicBool::new(false), AtomicBool::new(false));
//! thread::scope(|scope| {
//!     scope.spawn(|| {
//!         while !over.load(SeqCst) {
//!             let addr = VirtAddr::new(0x4000_5678);
//!             let found = hardware.walk(space, addr, Kind::Store, &mut its_memory, &mut |_| {});
//!             // It finds the page at every moment, with one size or the other.
//!             assert_eq!(found.map(|found| found.apply(addr)), Ok(PhysAddr::new(0x8000_5678)));
//!             ready.store(true, SeqCst);
//!         }
//!     });
//!     while !ready.load(SeqCst) {
//!         thread::yield_now();
//!     }
//!     let range = VirtRange::of_page(page);
//!     let shootdown = &mut |flush: &Flush, _: &mut Direct| {
//!         // Every processor flushes what `flush` names.
//!         assert!(flush.scope().covers(page));
//!     };
//!     let (to, memory) = (PageSize::SIZE_4K, &mut memory);
//!     let split = table.resize(space, range, to, memory, &mut frames, shootdown);
//!     // After an error nothing has changed: the page still has 2 MiB.
//!     assert_eq!(split.expect("there is room for a table").len(), 512);
//!     over.store(true, SeqCst);
//! });
//! let part = table.query(space, VirtAddr::new(0x4000_5000), &memory).expect("it is mapped");
//! assert_eq!(part.translation.page.size(), PageSize::SIZE_4K);
//! assert!(part.usage.dirty, "no store is lost");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A format of your own
//!
//! A radix tree with other entries is a [`Format`], which defines the entries and the tables' sizes.
//! [`Radix::with_format`] makes a page table of it, with all operations; nothing in this crate has to change.
//! The example is a tree of two levels for 32-bit addresses, with pages of 4K and 4M:
//!
//! ```text
//!    31                                12      7      6        5      4 .. 1     0
//!   +------------------------------------+---+------+-------+----------+--------+--------+
//!   | bits 31 to 12 of the frame or table| 0 | page | dirty | accessed | rights | in use |
//!   +------------------------------------+---+------+-------+----------+--------+--------+
//! ```
//!
//! ```
//! use addr::{Kind, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
//! use pagetable::{Entry, Format, PageTable, Radix, SparseMemory, Translation, Usage};
//! use physmem::Physmem;
//!
//! const SIZES: [PageSize; 2] = [PageSize::SIZE_4K, PageSize::from_shift(22).unwrap()];
//! const IN_USE: u64 = 1;
//! const RIGHTS: u64 = 0x1e;
//! const PAGE: u64 = 0x80;
//! const FRAME: u64 = 0xffff_f000;
//!
//! struct TwoLevels {
//!     spans: [VirtRange; 1],
//! }
//!
//! fn rights(rights: Rights) -> u64 {
//!     u64::from(rights.bits()) << 1
//! }
//!
//! impl Format for TwoLevels {
//!     const LEVELS_MAX: u8 = 2;
//!     const HAS_GLOBAL: bool = false;
//!     // An entry does not count the entries in use of the table that it points to.
//!     const COUNTS: bool = false;
//!
//!     // The geometry.
//!     fn levels(&self) -> u8 { 2 }
//!     fn page_sizes(&self) -> &[PageSize] { &SIZES }
//!     fn page_size(&self, level: u8) -> PageSize { SIZES[usize::from(level) - 1] }
//!     fn spans(&self) -> &[VirtRange] { &self.spans }
//!     fn holds(&self, addr: VirtAddr) -> bool { addr.get() >> 32 == 0 }
//!     fn entry_shift(&self, level: u8) -> u32 { if level == 1 { 12 } else { 22 } }
//!     fn entry_bytes(&self, _: u8) -> u8 { 4 }
//!     fn table_size(&self, _: u8) -> PageSize { PageSize::SIZE_4K }
//!     fn entry_offset(&self, level: u8, addr: VirtAddr) -> u64 {
//!         (addr.get() >> self.entry_shift(level) & 0x3ff) * 4
//!     }
//!     fn holds_frame(&self, start: PhysAddr, bytes: u64) -> bool {
//!         start.get().checked_add(bytes).is_some_and(|end| end <= 1 << 32)
//!     }
//!     fn tables_end(&self) -> PhysAddr { PhysAddr::new(1 << 32) }
//!
//!     // The meaning of an entry.
//!     fn decode(&self, entry: u64, level: u8) -> Entry {
//!         match entry & IN_USE != 0 {
//!             false => Entry::Empty,
//!             true if level == 1 || entry & PAGE != 0 => Entry::Page,
//!             true => Entry::Table(PhysAddr::new(entry & FRAME)),
//!         }
//!     }
//!     fn present(&self, entry: u64) -> bool { entry & IN_USE != 0 }
//!     fn translation(&self, entry: u64, level: u8, addr: VirtAddr) -> Translation {
//!         let allowed = Rights::from_bits(((entry & RIGHTS) >> 1) as u8);
//!         Translation::new(addr.page(self.page_size(level)), PhysAddr::new(entry & FRAME), allowed)
//!     }
//!     fn usage(&self, entry: u64) -> Usage {
//!         Usage { referenced: entry & 0x20 != 0, dirty: entry & 0x40 != 0, marked: false }
//!     }
//!
//!     // Making an entry, and the bits of it that are changed later.
//!     fn table(&self, table: PhysAddr, _: u64) -> u64 { table.get() | IN_USE }
//!     fn page(&self, level: u8, page: &Translation, frame: PhysAddr) -> u64 {
//!         let large = if level == 2 { PAGE } else { 0 };
//!         frame.get() | rights(page.rights) | large | IN_USE
//!     }
//!     fn other_rights(&self, entry: u64, new: Rights) -> u64 { (entry ^ rights(new)) & RIGHTS }
//!     fn usage_bits(&self, usage: Usage) -> u64 {
//!         u64::from(usage.referenced) << 5 | u64::from(usage.dirty) << 6
//!     }
//!     fn walk_sets_usage(&self) -> bool { true }
//!
//!     // These are not called if entries do not count.
//!     fn population(&self, _: u64) -> u64 { 0 }
//!     fn recounted(&self, _: u64, _: i64) -> Option<u64> { None }
//! }
//!
//! let spans = [VirtRange::new(VirtAddr::new(0), 1 << 32)?];
//! let mut table = Radix::with_format(TwoLevels { spans });
//! let mut memory = SparseMemory::new(64 << 20);
//! let mut frames = Physmem::buddy(PhysAddr::new(0), 64 << 20, PageSize::SIZE_4K)?;
//! let space = table.create(&mut memory, &mut frames)?;
//!
//! let page = VirtAddr::new(0x40_0000).page(SIZES[1]);
//! let large = Translation::new(page, PhysAddr::new(0x80_0000), Rights::READ | Rights::WRITE);
//! table.map(space, large, 1, &mut memory, &mut frames)?.done(&mut frames);
//! let addr = VirtAddr::new(0x40_5678);
//! let mut references = Vec::new();
//! let found = table.walk(space, addr, Kind::Store, &mut memory, &mut |at| references.push(at))?;
//! assert_eq!(found.apply(addr), PhysAddr::new(0x80_5678));
//! // The level-2 entry: the walk reads it, and then writes it with the accessed and dirty bits set.
//! assert_eq!(memory.read_u32(references[0].addr), 0x80_0000 | 0b1110_0111);
//!
//! // Splits, merges, errors and footprints are as in all radix trees.
//! let range = VirtRange::of_page(page);
//! let parts = table.resize(space, range, SIZES[0], &mut memory, &mut frames, &mut |_, _| {})?;
//! assert_eq!(parts.len(), 1024);
//! assert!(parts.iter().all(|part| part.usage.dirty));
//! assert_eq!(table.footprint().frame_bytes, 8192);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A format that hardware walks defines two more things: which bits a walk sets in entries that lead to
//! tables ([`Format::table_usage_bit`]), and whether changing a page's size needs break-before-make
//! ([`Format::breaks`]).
//!
//! # If the heap has no memory left
//!
//! A table that keeps data outside its frames allocates this data before it changes an entry. If no
//! memory is left, the operation returns [`Error::NoMemory`] and has changed nothing. Unmapping one
//! page needs no memory; unmapping a range or destroying a space may need a list. A caller that
//! must continue without memory unmaps the pages one by one, and then destroys the empty space.
//! Unmapping one page may need memory only in trees of more than five levels (such as [`Mpt`]) and
//! in replicated hashed tables.
//!
//! The following still panics if no memory is left: constructors of tables that have data of their
//! own (such as `Guarded::new` and `Hashed::new`); `Tree::shape`; the walks of [`Mounted`], which
//! collect references in a list; [`Flush::merge`], in contrast to [`Flush::try_merge`]; and
//! [`SparseMemory`], which models physical memory.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod aarch64;
mod arm;
mod cached;
mod contract;
mod cuckoo;
mod error;
mod few;
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
pub use resize::resized;
pub use riscv::{Riscv, RiscvEntries, Sv39, Sv48, Sv57};
pub use sparc::{SparcEntries, SparcReference};
pub use sparse::SparseMemory;
pub use split::{Split, SplitEntries};
pub use subtree::{Intent, SubtreeEdit, SubtreeTable, Subtrees};
pub use walk::{Fault, Leads, Node, Reference, Translation};
pub use x86_32::{X86_32, X86Entries32};
pub use x86_64::{X86_64, X86Entries};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
