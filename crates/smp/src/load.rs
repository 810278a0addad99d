//! What processors do: the loads of K94 table 1, and threads of one space.
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
//! What `fault` and `unmap` of the last need is there before they begin. A thread that has used all its
//! pages, as on a host, makes that anew.
//!
//! Loads call the memory manager ([`crate::kernel`]), or drive the HAT layer alone
//! ([`crate::layer`]). K94 prints what the benchmarks do, and no numbers of pages or of work: sizes
//! beyond those named in its section 5.3 are assumptions, the bursts of `tpcb` chosen so that one lock
//! around the layer is busy about as often as the paper says.

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

/// The base page.
pub(crate) const SIZE: PageSize = PageSize::SIZE_4K;
/// Where a process has its text and data.
pub(crate) const DATA: u64 = 0x1000_0000;
/// Where the kernel's windows begin; each processor has one.
pub(crate) const WINDOWS: u64 = 0x8000_0000;
/// The pages of a file cache that all processes share.
pub(crate) const CACHE_PAGES: u64 = 256;
/// Pages of text that all processes share.
pub(crate) const TEXT_PAGES: u64 = 12;
/// K94 section 5.3: 0 bytes, 10 KB, 1 MB.
pub(crate) const SIZES: [u64; 3] = [0, 3, 256];
/// Pages that a fork's child stores to before it exits.
pub(crate) const STORED: u64 = 2;
/// Pages of a heap that grows and shrinks, and of a region that is faulted in.
pub(crate) const REGION: u64 = 64;
/// Cycles of work between two of a transaction's records.
pub(crate) const RECORD_BURST: u64 = 130_000;
/// Cycles that a record takes to copy.
pub(crate) const RECORD: u64 = 400;
/// Cycles until a device has been told of a record.
pub(crate) const TELL: u64 = 100;
/// Cycles of work between two faults of a program that computes: 20 ms at 50 MHz.
pub(crate) const SPEC_BURST: u64 = 1_000_000;

/// A load by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// See the module.
    Fork,
    /// See the module.
    Exec,
    /// See the module.
    Fault,
    /// See the module.
    Brk,
    /// See the module.
    Tpcb,
    /// See the module.
    Dma,
    /// See the module.
    Spec,
    /// Threads of one space, each in its own part.
    MtLow,
    /// Threads of one space, all in one part.
    MtHigh,
    /// A part of that alone, on pages that only this thread uses.
    Mt(Call, Lie),
    /// Commands of [`crate::KENBUS`], one after the other.
    Kenbus,
    /// A skeleton that is given.
    Skeleton,
}

impl Load {
    /// All, with their names.
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

    /// Operations of each processor for one round.
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

    /// Whether it can drive the HAT layer alone: it asks for something of it, which this crate knows.
    pub fn has_layer_alone(self) -> bool {
        !matches!(self, Load::Kenbus | Load::Skeleton | Load::Mt(Call::Map, _))
    }
}

/// What threads of one space do that measure one thing alone, as CortenMM's benchmarks (SOSP 2025) do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// A region is mapped, and not used.
    Map,
    /// A region is mapped, and its pages stored to.
    MapFault,
    /// Pages are stored to for the first time, of a region that is there.
    Fault,
    /// A region is unmapped whose pages were used.
    Unmap,
}

/// Where the pages of threads lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// Those of each thread side by side, under page tables of their own: low contention.
    Apart,
    /// Each between those of all others: high contention.
    Mixed,
}

/// Pages of such an operation.
pub(crate) const PART: u64 = 4;
/// Operations of a thread that are on different pages: more than it has in virtual time.
pub(crate) const PARTS: u64 = 256;

impl Lie {
    /// The first page, from the first of all, of what the operation `count` of one of `threads` is on.
    pub(crate) fn first(self, count: u64, number: u64, threads: u64) -> u64 {
        let part = count % PARTS;
        PART * match self {
            Lie::Apart => number * PARTS + part,
            Lie::Mixed => part * threads + number,
        }
    }
}

/// A load with the skeletons that it plays, if it plays any.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) load: Load,
    pub(crate) skeletons: Arc<[Skeleton]>,
    /// Of which each runs it.
    pub(crate) threads: u64,
}

impl Asked {
    /// The load `name`, or the skeleton that `text` has, for so many processors.
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

/// A processor as a load sees it.
pub(crate) trait Processor: hat::Platform + vm::Platform {
    /// It runs `space` from here on, in the context that the layer gives it.
    fn enter<S: Scheme<Table = dyn Mounted>>(
        &mut self,
        hat: &Hat<dyn Mounted, S>,
        space: HatSpace,
    ) -> Result<(), String>;
}

/// A processor under a load.
pub(crate) trait Work {
    /// One operation.
    fn operation(&mut self, load: Load) -> Result<(), String>;
}

/// From half to one and a half times the work.
pub(crate) fn burst(random: &mut Xoshiro256PlusPlus, cycles: u64) {
    spend(cycles / 2 + random.random_range(0..cycles));
}

/// The frame `number` frames after `first`.
pub(crate) fn frame(first: PhysAddr, number: u64) -> PhysAddr {
    PhysAddr::new(first.get() + number * SIZE.bytes())
}

/// So many pages, at least one.
pub(crate) fn range(at: u64, pages: u64) -> VirtRange {
    let first = VirtRange::of_page(VirtAddr::new(at).page(SIZE));
    let last = at + (pages.max(1) - 1) * SIZE.bytes();
    first.hull(VirtRange::of_page(VirtAddr::new(last).page(SIZE)))
}

pub(crate) fn text(error: impl ToString) -> String {
    error.to_string()
}
