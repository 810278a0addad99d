//! The loads of K94 table 1, and loads with threads of one space.
//!
//! ```text
//!   fork    a child with copies of 0, 3 or 256 pages (0, 10 KB, 1 MB), two of them stored to; it exits.
//!           Every other time a vfork
//!   exec    a null program begins in a process of as many pages: in a fork's child, or in a vfork's
//!   fault   a minor fault on a page of a file in memory; every other time a copy on write
//!   brk     the heap grows by a page, which is touched; at 64 it is given back
//!   tpcb    a burst of work, then a record of a file in memory, which is read through a window of the
//!           kernel (loaded, copied from, unloaded in all processors); now and then a minor fault
//!   dma     the same burst, then a device has a page of a file: it is loaded for the processors and in the
//!           kernel's I/O MMU, of another format and for the kernel's windows alone, and unloaded from both
//!   spec    bursts of work, with a fault every 20 ms
//!   kenbus  18 commands of a shell script and a compile, as skeletons of recordings
//!   mt-*    threads of one space map, touch and unmap: each its own part (`low`), or all one part
//!   mt-mmap-*, mt-mmap-fault-*, mt-fault-*, mt-unmap-*
//!           one of these alone, on four pages that no other thread uses: pages of a thread lie side by
//!           side (`low`), or between those of all others (`high`), so that threads share page tables
//! ```
//!
//! The pages that the loads `mt-fault-*` and `mt-unmap-*` need are prepared before the measurement.
//! On a host, a thread that has used all its pages prepares them again.
//!
//! Loads call the memory manager ([`crate::kernel`]), or the HAT layer alone ([`crate::layer`]).
//! K94 describes the benchmarks, but not their numbers of pages or amounts of work: sizes beyond
//! those in its section 5.3 are assumptions. The bursts of `tpcb` are chosen so that a single lock
//! around the layer is busy about as often as in the paper.

use std::sync::Arc;

use addr::{PageSize, PhysAddr, VirtAddr, VirtRange};
use hat::{Hat, HatSpace, locking::Scheme};
use pagetable::Mounted;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use locks::baton::spend;

use crate::{
    kenbus::KENBUS,
    names::named,
    skeleton::{Skeleton, parse},
};

/// The base page size.
pub(crate) const SIZE: PageSize = PageSize::SIZE_4K;
/// The address of the text and data of a process.
pub(crate) const DATA: u64 = 0x1000_0000;
/// The address of the kernel's windows, one for each processor.
pub(crate) const WINDOWS: u64 = 0x8000_0000;
/// The number of pages in the file cache that all processes share.
pub(crate) const CACHE_PAGES: u64 = 256;
/// The number of text pages that all processes share.
pub(crate) const TEXT_PAGES: u64 = 12;
/// The sizes of processes in pages, of K94 section 5.3: 0 bytes, 10 KB, 1 MB.
pub(crate) const SIZES: [u64; 3] = [0, 3, 256];
/// The number of pages that the child of a fork stores to before it exits.
pub(crate) const STORED: u64 = 2;
/// The number of pages of a heap that grows and shrinks, and of a region that is faulted in.
pub(crate) const REGION: u64 = 64;
/// Cycles of work between reading one record of a transaction and reading the next.
pub(crate) const RECORD_BURST: u64 = 130_000;
/// Cycles of copying a record.
pub(crate) const RECORD: u64 = 400;
/// Cycles of notifying a device of a record.
pub(crate) const TELL: u64 = 100;
/// Cycles of work between two faults of a computing program: 20 ms at 50 MHz.
pub(crate) const SPEC_BURST: u64 = 1_000_000;

/// A load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// `fork`: a process forks a child, which stores to some pages and exits.
    Fork,
    /// `exec`: an empty program begins in a child.
    Exec,
    /// `fault`: minor faults and copy on write in turn.
    Fault,
    /// `brk`: a heap grows and shrinks.
    Brk,
    /// `tpcb`: transactions that read records of a file.
    Tpcb,
    /// `dma`: transfers of pages of a file by a device.
    Dma,
    /// `spec`: computation with few faults.
    Spec,
    /// Threads of one space, each in its own part of the space.
    MtLow,
    /// Threads of one space, all in the same part.
    MtHigh,
    /// A single step of a thread's operation, on pages that only this thread uses.
    Mt(Call, Lie),
    /// The commands of [`crate::KENBUS`], one after the other.
    Kenbus,
    /// A skeleton that the user supplies.
    Skeleton,
}

impl Load {
    /// All loads, with their names.
    pub const ALL: [(&str, Load); 18] = [
        ("fork", Load::Fork),
        ("exec", Load::Exec),
        ("fault", Load::Fault),
        ("brk", Load::Brk),
        ("tpcb", Load::Tpcb),
        ("dma", Load::Dma),
        ("spec", Load::Spec),
        ("mt-low", Load::MtLow),
        ("mt-high", Load::MtHigh),
        ("mt-mmap-low", Load::Mt(Call::Map, Lie::Apart)),
        ("mt-mmap-high", Load::Mt(Call::Map, Lie::Mixed)),
        ("mt-mmap-fault-low", Load::Mt(Call::MapFault, Lie::Apart)),
        ("mt-mmap-fault-high", Load::Mt(Call::MapFault, Lie::Mixed)),
        ("mt-fault-low", Load::Mt(Call::Fault, Lie::Apart)),
        ("mt-fault-high", Load::Mt(Call::Fault, Lie::Mixed)),
        ("mt-unmap-low", Load::Mt(Call::Unmap, Lie::Apart)),
        ("mt-unmap-high", Load::Mt(Call::Unmap, Lie::Mixed)),
        ("kenbus", Load::Kenbus),
    ];

    /// The number of operations of each processor for one round.
    pub(crate) fn operations(self) -> u64 {
        match self {
            Load::Fork | Load::Exec => 12,
            Load::Fault | Load::Brk | Load::MtLow | Load::MtHigh | Load::Mt(..) => 192,
            Load::Tpcb | Load::Dma => 192,
            Load::Spec => 24,
            Load::Kenbus => KENBUS.len() as u64,
            Load::Skeleton => 4,
        }
    }

    /// Whether the load can run on the HAT layer alone: this crate knows which of the layer's
    /// functions it calls.
    pub fn has_layer_alone(self) -> bool {
        !matches!(self, Load::Kenbus | Load::Skeleton | Load::Mt(Call::Map, _))
    }
}

/// An operation with which threads of one space measure a single kind of call, as CortenMM's
/// benchmarks (SOSP 2025) do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Maps a region, without touching it.
    Map,
    /// Maps a region and stores to its pages.
    MapFault,
    /// Stores for the first time to pages of a mapped region.
    Fault,
    /// Unmaps a region whose pages were used.
    Unmap,
}

/// How the pages of threads are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// The pages of each thread are contiguous and have page tables of their own: low contention.
    Apart,
    /// The pages of all threads alternate: high contention.
    Mixed,
}

/// The number of pages of one operation.
pub(crate) const PART: u64 = 4;
/// The number of operations for which a thread has different pages. This is more than the number of
/// operations of a thread in virtual time.
pub(crate) const PARTS: u64 = 256;

impl Lie {
    /// The first page of operation `count` of thread `number` of `threads`, relative to the first
    /// page of all threads.
    pub(crate) fn first(self, count: u64, number: u64, threads: u64) -> u64 {
        let part = count % PARTS;
        PART * match self {
            Lie::Apart => number * PARTS + part,
            Lie::Mixed => part * threads + number,
        }
    }
}

/// A load that is to be run, with the skeletons that it plays, if any.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) load: Load,
    pub(crate) skeletons: Arc<[Skeleton]>,
    /// The number of processors that each run the load.
    pub(crate) threads: u64,
}

impl Asked {
    /// The load `name`, or the skeleton in `text`, for this number of threads.
    pub(crate) fn new(
        name: &str,
        text: Option<&str>,
        hat_only: bool,
        threads: usize,
    ) -> Result<Asked, String> {
        let load = match text {
            Some(_) => Load::Skeleton,
            None => named("load", name, &Load::ALL)
                .map_err(|error| format!("{error}, or give the file of a skeleton"))?,
        };
        if hat_only && !load.has_layer_alone() {
            return Err(format!("`{name}` calls the memory manager: run it without --hat-only"));
        }
        let skeletons = match (load, text) {
            (Load::Kenbus, _) => KENBUS.iter().map(|(_, text)| parse(text)).collect(),
            (_, Some(text)) => parse(text).map(|skeleton| Arc::from([skeleton])),
            _ => Ok(Arc::from([])),
        };
        let skeletons = skeletons.map_err(|error| format!("{name}: {error}"))?;
        Ok(Asked { load, skeletons, threads: threads as u64 })
    }
}

/// The operations of a processor that loads use.
pub(crate) trait Processor: hat::Platform + vm::Platform {
    /// Switches the processor to `space`, in the context that the layer gives the space.
    fn enter<S: Scheme<Table = dyn Mounted>>(
        &mut self,
        hat: &Hat<dyn Mounted, S>,
        space: HatSpace,
    ) -> Result<(), String>;
}

/// A processor that runs a load.
pub(crate) trait Work {
    /// Runs one operation.
    fn operation(&mut self, load: Load) -> Result<(), String>;
}

/// Works for a random time, from half of `cycles` to one and a half times `cycles`.
pub(crate) fn burst(random: &mut Xoshiro256PlusPlus, cycles: u64) {
    spend(cycles / 2 + random.random_range(0..cycles));
}

/// The frame `number` frames after `first`.
pub(crate) fn frame(first: PhysAddr, number: u64) -> PhysAddr {
    PhysAddr::new(first.get() + number * SIZE.bytes())
}

/// The range of `pages` pages at `at`; if `pages` is 0, the range of one page.
pub(crate) fn range(at: u64, pages: u64) -> VirtRange {
    let first = VirtRange::of_page(VirtAddr::new(at).page(SIZE));
    let last = at + (pages.max(1) - 1) * SIZE.bytes();
    first.hull(VirtRange::of_page(VirtAddr::new(last).page(SIZE)))
}

pub(crate) fn text(error: impl ToString) -> String {
    error.to_string()
}
