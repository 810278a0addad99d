//! The contents of a machine file: a struct for each table. Each table that has numbers also has a
//! key `source`, which states the source of these numbers.
//!
//! ```text
//! [core]        what runs: processors, which accesses count, cycles an instruction takes
//! [tlb.NAME]    l1 | l1i l1d l1s, then l2 | l2i l2d: arrays, ways, policies
//! [trace_cache] decoded instructions, which come before the TLB of fetches
//! [page_table]  the format and its levels; absent: translation costs nothing, TLBs only
//! [walker]      who refills a TLB, and the cache at which its references enter
//! [mmu_cache]   what the walker remembers of earlier walks
//! [spec_tlb]    what predicts where base pages lie in reservations
//! [range_tlb]   what translates ranges of any length
//! [restseg]     what finds pages in restrictive segments
//! [nested]      a virtual machine: the host's page table, nested TLB, MMU cache
//! [cache.NAME]  l1i, l1d, l2, l3: size, ways, line, latency
//! [memory]      size and latency of what lies behind the caches
//! [memory.numa] nodes of memory, and how far they are from each other
//! [os]          the page sizes it maps
//! [os.small]    small address spaces, side by side in one
//! [os.flush]    how TLBs are flushed when a page table has changed
//! [os.costs]    cycles of what the kernel does
//! [[os.at]]     settings that change while the machine runs
//! [swap]        where pages go that memory has no room for
//! [calibrated]  what timing saw of the machine beyond what a run reads
//! ```
#![forbid(unsafe_code)]

pub mod builtin;
mod cache;
mod calibrated;
mod core;
mod costs;
pub mod digest;
mod error;
mod flush;
mod hashed;
mod linux;
pub mod managers;
mod nested;
mod numa;
mod os;
mod page_table;
mod range_tlb;
mod refusal;
pub mod settings;
mod small;
mod spec_tlb;
mod suggest;
mod tlb;
mod trace_cache;
pub mod units;
mod walker;

use addr::PageSize as AddrPageSize;
use serde::{Deserialize, Serialize};

use self::managers::{linux, reservations};
pub use self::{
    cache::{Aged, Cache, Caches, Memory},
    calibrated::Calibrated,
    core::{ContextPolicy, Core},
    costs::{Costs, WorkCosts},
    error::Error,
    flush::{FlushBy, Flushes},
    hashed::{Mosaic, RestSeg, Utopia},
    linux::{
        Ca, Defrag, Enabled, Group, HawkEye, HugePool, Hugetlb, Ingens, Khugepaged, Layout, Linux,
        Malloc, Metric, OfSize, OrderEnabled, OrderShmem, Ranger, ShmemEnabled, Version,
    },
    nested::{Former, Hole, Nested, NestedReservations, Shared},
    numa::{NodeFallback, Numa, NumaPolicy, Placement, Rather},
    os::{
        At, Clock, Coalesced, Devices, Inject, Level, Marks, MarksOfBroken, Os, Promotion,
        Reservations, Swap,
    },
    page_table::PageTable,
    range_tlb::RangeTlb,
    refusal::Refusal,
    small::{Revoke, Schedule, Small},
    spec_tlb::SpecTlb,
    tlb::{Array, Blocks, Tlb, Tlbs},
    trace_cache::TraceCache,
    walker::{MmuCache, PageMask, Walker, WalkerKind},
};

pub use self::{core::BITS_MAX, tlb::DEFAULT_SIZES};

/// A machine file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The machine's title, in one line.
    pub title: String,
    /// The source of the machine's description.
    pub source: String,
    /// The processor cores.
    #[serde(default)]
    pub core: Core,
    /// The TLBs by name.
    pub tlb: Tlbs,
    /// The cache of decoded instructions; absent: every fetch is looked up in a TLB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_cache: Option<TraceCache>,
    /// The page table; absent on a machine with TLBs only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_table: Option<PageTable>,
    /// The walker, which refills the TLBs.
    #[serde(default)]
    pub walker: Walker,
    /// The cache of earlier walks; absent: every walk starts at the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mmu_cache: Option<MmuCache>,
    /// The predictor of physical addresses of base pages; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_tlb: Option<SpecTlb>,
    /// The TLB for ranges of any length; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range_tlb: Option<RangeTlb>,
    /// The hardware that finds pages in restrictive segments; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restseg: Option<RestSeg>,
    /// The host, if the machine is a virtual machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nested: Option<Nested>,
    /// The data caches by name.
    #[serde(default)]
    pub cache: Caches,
    /// Physical memory.
    #[serde(default)]
    pub memory: Memory,
    /// The swap space, for pages that do not fit into memory; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
    /// The operating system.
    #[serde(default)]
    pub os: Os,
    /// Measurements of a calibration that runs do not need; absent in a file that is not from a
    /// calibration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibrated: Option<Calibrated>,
}

impl Description {
    /// The description of the machine called `name_or_path`, a built-in one or a TOML file, changed by
    /// `settings` such as `tlb.l1d.entries=128`. Does not check whether the machine can be built.
    pub fn load(name_or_path: &str, settings: &[String]) -> Result<Description, Error> {
        let (_, text, origin) = builtin::find(name_or_path)?;
        Ok(settings::apply(&text, &origin, settings)?.description)
    }

    /// The size of the smallest pages that TLBs are filled with, and of the larger ones if there
    /// are any. In a virtual machine, an entry has the smaller of the guest's and the host's page
    /// size.
    pub fn tlb_page_sizes(&self) -> (AddrPageSize, Option<AddrPageSize>) {
        let host = self.nested.as_ref().map(|host| host.page_size.0);
        let placed = |guest: AddrPageSize| host.map_or(guest, |host| guest.min(host));
        let small = placed(self.os.base());
        (small, self.os.large().map(placed).filter(|large| *large > small))
    }

    /// The page sizes for which TLBs keep shortcuts, which are the results of recent lookups: the
    /// sizes of [`Description::tlb_page_sizes`]. If TLBs are filled with pages of one size only,
    /// the second size is the largest that reservations or Linux's large pages can have.
    pub fn granules(&self) -> (AddrPageSize, Option<AddrPageSize>) {
        let (small, large) = self.tlb_page_sizes();
        let reserved = reservations(&self.os).and_then(|asked| asked.sizes.into_iter().max());
        let host = self.nested.as_ref().map(|host| host.page_size.0);
        let reserved = reserved.map(|size| host.map_or(size.0, |host| size.0.min(host)));
        let huge = linux(&self.os).map(|_| AddrPageSize::SIZE_2M);
        let huge = huge.map(|size| host.map_or(size, |host| size.min(host)));
        (small, large.or(reserved.or(huge).filter(|size| *size > small)))
    }

    /// Whether the operating system marks the page-table entries of pages in reservations.
    pub fn marks_reservations(&self) -> bool {
        reservations(&self.os).is_some_and(|asked| asked.marks.is_some())
    }
}
fn is_false(value: &bool) -> bool {
    !value
}

fn is_true(value: &bool) -> bool {
    *value
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

fn lru() -> String {
    "lru".to_owned()
}

fn one() -> u64 {
    1
}
