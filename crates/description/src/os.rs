//! The operating system of a machine.

use std::{collections::BTreeMap, fmt};

use addr::PageSize as AddrPageSize;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    Ca, Costs, Flushes, HawkEye, Ingens, Linux, Mosaic, NumaPolicy, Ranger, Small, Utopia,
    is_false,
    units::{Bytes, PageSize},
};

/// The operating system.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Os {
    /// The memory manager, which decides which pages are mapped, to which frames, and of what size.
    #[serde(skip_serializing_if = "is_first_touch")]
    pub manager: String,
    /// The base page size, in which frames and swap are counted; absent: 4 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_page: Option<PageSize>,
    /// The page size of mappings. If it is larger than the base page, a page has this size if all
    /// of it lies within one region.
    pub page_size: PageSize,
    /// Whether every page has the size `page_size`, regardless of the bounds of regions. No real
    /// operating system could do this.
    #[serde(skip_serializing_if = "is_false")]
    pub uniform: bool,
    /// Whether each page is mapped before its first touch, so that no walk faults, as in a program
    /// that has touched all its pages long ago.
    #[serde(skip_serializing_if = "is_false")]
    pub populated: bool,
    /// The page-replacement policy: `clock`, `lru` or `2q`, for a manager that pages out.
    #[serde(skip_serializing_if = "is_clock")]
    pub replacement: String,
    /// The amounts of free memory at which pages are paged out; absent: as in Linux, by the size of
    /// memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marks: Option<Marks>,
    /// The page sizes requested for parts of a program: place rules, for a manager that supports
    /// several page sizes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The number of base pages that can be moved for a process in each microsecond in which the
    /// process waits for a large page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moves_per_us: Option<f64>,
    /// The daemon that makes free large pages by moving used pages; absent: none runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coalesced: Option<Coalesced>,
    /// On-line promotion of pages that miss often to larger pages; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promotion: Option<Promotion>,
    /// Reservations for large pages, for a manager that uses reservations; absent: reservations of
    /// 2 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<Reservations>,
    /// Frames that the kernel lends to devices, for a manager with a page cache; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Devices>,
    /// Large pages of anonymous memory, for the manager `linux` and managers derived from it;
    /// absent: the kernel's defaults at boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linux: Option<Linux>,
    /// The memory node from which frames are allocated; absent: the node of the processor that
    /// touches the page first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NumaPolicy>,
    /// The number of cache colours of base pages: a page gets a frame of the colour of its address,
    /// if one is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub colors: Option<u32>,
    /// Small address spaces, which share one linear address space; absent: each space uses all
    /// addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub small: Option<Small>,
    /// Whether a region gets its frames when it is mapped, in as few contiguous runs as possible.
    #[serde(skip_serializing_if = "is_false")]
    pub eager_paging: bool,
    /// The settings of the manager `ingens`; absent: the values in the source code of `ingens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingens: Option<Ingens>,
    /// The settings of the manager `hawkeye`; absent: the values in the source code of `hawkeye`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hawkeye: Option<HawkEye>,
    /// The settings of the manager `ca`; absent: the values in the source code of `ca`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<Ca>,
    /// A daemon that moves pages to make them contiguous; absent: only `translation-ranger` has
    /// one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranger: Option<Ranger>,
    /// Placement of each page in one of a few frames, which hashes of its address determine
    /// (Mosaic); absent: a page can be in any frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mosaic: Option<Mosaic>,
    /// Restrictive segments of memory, in which a page's address determines the frames that it may
    /// have; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utopia: Option<Utopia>,
    /// The events that advance the operating system's clock.
    #[serde(skip_serializing_if = "is_full")]
    pub clock: Clock,
    /// How TLBs are flushed after a page table has changed; absent: each processor that may hold a changed
    /// page is interrupted and flushes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush: Option<Flushes>,
    /// The costs of the kernel's work; absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// An error that is injected to test the checks; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inject: Option<Inject>,
    /// Settings that change during the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<At>,
    /// The reason for the settings of this table.
    pub source: String,
}

impl Os {
    /// The page size that Linux's madvise can request on x86-64.
    pub const ADVISED: AddrPageSize = AddrPageSize::SIZE_2M;

    /// The size of the smallest pages that the operating system maps.
    pub fn base(&self) -> AddrPageSize {
        let page_size = self.page_size.0;
        if self.uniform {
            return page_size;
        }
        let base = self.base_page.map_or(AddrPageSize::SIZE_4K, |base| base.0);
        page_size.min(base)
    }

    /// The size of a frame: that of the base page.
    pub fn frame(&self) -> AddrPageSize {
        let base = self.base_page.map_or(AddrPageSize::SIZE_4K, |base| base.0);
        self.base().min(base)
    }

    /// Whether some work depends on the clock. The manager `first-touch` has no daemons, so with it
    /// only a change of settings depends on the clock.
    pub fn has_clock(&self) -> bool {
        !self.at.is_empty() || self.manager != FIRST_TOUCH
    }

    /// The size of the larger pages that the operating system maps where possible or where requested, if any.
    pub fn large(&self) -> Option<AddrPageSize> {
        let everywhere = Some(self.page_size.0).filter(|size| *size > self.base());
        let is_placed = self.manager == FIRST_TOUCH && !self.place.is_empty();
        let is_promoted = self.manager == FIRST_TOUCH && self.promotion.is_some();
        let is_wanted = is_placed || is_promoted;
        everywhere.or(Some(Os::ADVISED).filter(|size| is_wanted && *size > self.base()))
    }
}

impl Default for Os {
    fn default() -> Os {
        let page_size = PageSize(AddrPageSize::SIZE_4K);
        Os {
            manager: FIRST_TOUCH.to_owned(),
            base_page: None,
            page_size,
            uniform: false,
            populated: false,
            replacement: CLOCK.to_owned(),
            marks: None,
            place: String::new(),
            moves_per_us: None,
            coalesced: None,
            promotion: None,
            reservations: None,
            devices: None,
            linux: None,
            numa: None,
            colors: None,
            small: None,
            eager_paging: false,
            ingens: None,
            hawkeye: None,
            ca: None,
            ranger: None,
            mosaic: None,
            utopia: None,
            clock: Clock::Full,
            flush: None,
            costs: None,
            inject: None,
            at: Vec::new(),
            source: String::new(),
        }
    }
}

const FIRST_TOUCH: &str = "first-touch";
const CLOCK: &str = "clock";

/// A setting that changes during the run.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct At {
    /// The time of the change, in cycles of the operating system's clock since the beginning of the
    /// run.
    pub time: u64,
    /// The dotted path of the key, which must be one of those that can change.
    pub key: String,
    /// The new value.
    pub value: toml::Value,
}

/// The amounts of free memory that control paging out.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Marks {
    /// Memory that is reserved for page tables: if less than `min` is free, an allocation of a page
    /// waits until other pages are paged out.
    pub min: Bytes,
    /// Paging out begins when less memory than `low` is free.
    pub low: Bytes,
    /// Paging out ends when `high` bytes of memory are free.
    pub high: Bytes,
}

/// The daemon that makes free large pages by moving used pages (G98 section 6.4.3).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Coalesced {
    /// Cycles of the operating system's clock from the end of one pass to the beginning of the
    /// next.
    pub period_cycles: u64,
    /// By page size: the bytes of free pages of this size that the daemon maintains.
    #[serde(default)]
    pub watermarks: BTreeMap<PageSize, Bytes>,
    /// The largest share of a chunk that a mild pass moves.
    pub mild_share: f64,
    /// The number of passes without success after which a pass moves everything that can be moved.
    pub strong_after: u32,
    /// The strongest kind of pass that the daemon makes on its own: `weak`, `mild` or `strong`.
    #[serde(default)]
    pub level: Level,
    /// The largest number of base pages that a pass moves.
    pub moves: u64,
    /// Where the numbers of this table come from.
    #[serde(default)]
    pub source: String,
}

/// On-line promotion: misses are charged to the larger pages that would have avoided them (Romer and
/// others 1995).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Promotion {
    /// The page sizes to which pages are promoted; absent: all that the machine has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<PageSize>,
    /// Cycles charged for a miss; absent: `os.costs.walk_cycles`, or 40 if that is absent too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miss_cycles: Option<u32>,
    /// Cycles per base page that must be charged before a promotion; absent: `os.costs.work.copied`,
    /// or one cycle for two bytes if that is absent too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cycles: Option<u32>,
    /// Cycles of counting a miss; absent: 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_cycles: Option<u32>,
    /// Where the numbers of this table come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// Frames reserved for a large page while base pages fill them (B10 section 6.1.1).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reservations {
    /// The sizes of reservations; if there are several sizes, the largest size for which there is
    /// room is used.
    pub sizes: Vec<PageSize>,
    /// Whether a reservation may extend beyond the mapped pages, so that even small files have a
    /// reservation.
    #[serde(skip_serializing_if = "is_false")]
    pub eager: bool,
    /// Whether the page-table entries of pages in reservations are marked, and what happens to the
    /// marks when a reservation is broken; absent: nothing is marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marks: Option<MarksOfBroken>,
    /// The reason for the settings of this table.
    pub source: String,
}

/// Frames that devices read and write, such as buffers for network packets (B10 section 6.2.3).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Devices {
    /// The largest number of frames that devices can have. If devices have this number of frames,
    /// the frame that was lent longest ago is returned when a new one is lent.
    pub pages: u32,
    /// The number of page faults from the lending of one frame to the lending of the next.
    pub faults: u32,
    /// Whether frames of devices are in blocks of 2 MiB that contain no other frames in use (B10
    /// section 6.2.3).
    #[serde(default, skip_serializing_if = "is_false")]
    pub apart: bool,
    /// Where the numbers of this table come from.
    #[serde(default)]
    pub source: String,
}

/// What happens to the marks of a reservation's pages when the reservation is broken (B10 section
/// 6.5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarksOfBroken {
    /// The marks stay, as the pages have not moved.
    Keep,
    /// All marks are cleared.
    Clear,
    /// The marks stay until a device is lent a frame of the same block: then the marks of all pages
    /// in the block are cleared.
    ClearDevices,
}

impl Default for Reservations {
    fn default() -> Reservations {
        let sizes = vec![PageSize(AddrPageSize::SIZE_2M)];
        Reservations { sizes, eager: false, marks: None, source: String::new() }
    }
}

/// The kinds of pass of the daemon, by which pages a pass may move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The pass moves no page.
    Weak,
    /// The pass moves few pages for each large one.
    Mild,
    /// The pass moves everything that can be moved.
    #[default]
    Strong,
}

/// The swap space: it holds pages without a file that are paged out.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Swap {
    /// The size of the swap space; absent: none, so that pages without a file stay in memory.
    #[serde(default = "no_bytes", skip_serializing_if = "is_nothing")]
    pub size: Bytes,
    /// Cycles of a disk request for one page or several adjacent pages; files are on this disk too.
    /// 0: waiting for disks is not modelled.
    #[serde(default)]
    pub io_cycles: u32,
    /// Additional cycles for each page of a request.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub page_cycles: u32,
    /// Where the numbers of this table come from.
    #[serde(default)]
    pub source: String,
}

fn no_bytes() -> Bytes {
    Bytes(0)
}

fn is_zero(cycles: &u32) -> bool {
    *cycles == 0
}

fn is_nothing(bytes: &Bytes) -> bool {
    bytes.0 == 0
}

/// Whether the value is the default. A default is not written, so that a machine file that is older
/// than this key keeps its digest.
fn is_clock(replacement: &str) -> bool {
    replacement == CLOCK
}

/// Whether the value is the default. A default is not written, so that a machine file that is older
/// than this key keeps its digest.
fn is_first_touch(manager: &str) -> bool {
    manager == FIRST_TOUCH
}

/// An error that is injected once. Numbers count from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inject {
    /// The n-th shootdown of a mapped page reaches no processor.
    SkipShootdown(u64),
    /// The n-th allocation of a frame, for a page or a table, fails.
    FailAllocation(u64),
}

impl fmt::Display for Inject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inject::SkipShootdown(number) => write!(f, "skip-shootdown:{number}"),
            Inject::FailAllocation(number) => write!(f, "fail-allocation:{number}"),
        }
    }
}

impl Serialize for Inject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Inject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parsed = text.split_once(':').and_then(|(what, number)| {
            let number = number.parse().ok().filter(|&number| number > 0)?;
            match what {
                "skip-shootdown" => Some(Inject::SkipShootdown(number)),
                "fail-allocation" => Some(Inject::FailAllocation(number)),
                _ => None,
            }
        });
        parsed.ok_or_else(|| {
            de::Error::custom(format!(
                "\"{text}\" is not an error that can be injected: write \"skip-shootdown:N\" or \
                 \"fail-allocation:N\", with N from 1"
            ))
        })
    }
}

/// The events that advance the operating system's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// Instructions, lookups of second-level TLBs, walks at a nominal price, and the kernel's work.
    #[default]
    Full,
    /// Instructions only: the time is the same for all TLBs.
    Instructions,
}

/// Whether the value is the default. A default is not written, so that a machine file that is older
/// than this key keeps its digest.
fn is_full(clock: &Clock) -> bool {
    *clock == Clock::Full
}
