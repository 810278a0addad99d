//! The operating system of a machine.

use std::{collections::BTreeMap, fmt};

use addr::PageSize as AddrPageSize;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    Ca, Costs, HawkEye, Ingens, Linux, Mosaic, NumaPolicy, Ranger, Small, Utopia, is_false,
    units::{Bytes, PageSize},
};

/// The operating system.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Os {
    /// What decides which page is mapped, where, and how large.
    #[serde(skip_serializing_if = "is_first_touch")]
    pub manager: String,
    /// The smallest page, which frames and swap are counted in; absent: 4K.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_page: Option<PageSize>,
    /// The page size of mappings: where it is larger than the base page, that of each page that
    /// its region allows to be so large.
    pub page_size: PageSize,
    /// Whether every page has that size, whatever regions allow, as no operating system could map
    /// them.
    #[serde(skip_serializing_if = "is_false")]
    pub uniform: bool,
    /// Whether each page is mapped before it is first touched, so that no walk faults, as in a
    /// program that has touched them all long ago.
    #[serde(skip_serializing_if = "is_false")]
    pub populated: bool,
    /// Which page leaves memory where that is scarce: `clock`, `lru` or `2q`, for a manager that
    /// has pages leave.
    #[serde(skip_serializing_if = "is_clock")]
    pub replacement: String,
    /// When they leave; absent: as Linux does, by the size of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marks: Option<Marks>,
    /// Page sizes that are wished for parts of a program: place rules, for a manager that has pages of
    /// several sizes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// Base pages that a process can have moved in a microsecond that it waits for a large page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moves_per_us: Option<f64>,
    /// The daemon that makes large pages of free memory; absent: none runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coalesced: Option<Coalesced>,
    /// Larger pages for what misses often; absent: misses are not counted for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promotion: Option<Promotion>,
    /// Room that is kept for large pages, for a manager that has reservations; absent: of 2M.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<Reservations>,
    /// Frames that the kernel lends to devices, for a manager that has a page cache; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Devices>,
    /// Large pages of anonymous memory, for the manager `linux` and those made of it; absent: as the kernel
    /// boots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linux: Option<Linux>,
    /// From which node of memory frames come; absent: from that of the processor that touches them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NumaPolicy>,
    /// Cache colours of base pages: one has a frame of the colour of its address, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub colors: Option<u32>,
    /// Spaces that lie side by side in one; absent: each has all addresses for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub small: Option<Small>,
    /// Whether a region gets its frames when it is mapped, in as few runs as there can be.
    #[serde(skip_serializing_if = "is_false")]
    pub eager_paging: bool,
    /// The manager `ingens`; absent: as its source has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingens: Option<Ingens>,
    /// The manager `hawkeye`; absent: as its source has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hawkeye: Option<HawkEye>,
    /// The manager `ca`; absent: as its source has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<Ca>,
    /// A daemon that moves pages side by side; absent: only `translation-ranger` has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranger: Option<Ranger>,
    /// Frames by hash, which few bits tell apart; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mosaic: Option<Mosaic>,
    /// Segments of memory in which addresses say where pages may lie; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utopia: Option<Utopia>,
    /// What its time is made of.
    #[serde(skip_serializing_if = "is_full")]
    pub clock: Clock,
    /// What the kernel's work costs; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// What is made to go wrong, to see what follows; nothing if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inject: Option<Inject>,
    /// Settings that change while the machine runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<At>,
    /// Why.
    pub source: String,
}

impl Os {
    /// The size that Linux's madvise can give on x86-64.
    pub const ADVISED: AddrPageSize = AddrPageSize::SIZE_2M;

    /// The size of the smallest pages that it maps.
    pub fn base(&self) -> AddrPageSize {
        let page_size = self.page_size.0;
        if self.uniform {
            return page_size;
        }
        let base = self.base_page.map_or(AddrPageSize::SIZE_4K, |base| base.0);
        page_size.min(base)
    }

    /// The size of frames: the base page's.
    pub fn frame(&self) -> AddrPageSize {
        let base = self.base_page.map_or(AddrPageSize::SIZE_4K, |base| base.0);
        self.base().min(base)
    }

    /// Whether anything may happen by the clock: `first-touch` has no daemons.
    pub fn has_clock(&self) -> bool {
        !self.at.is_empty() || self.manager != FIRST_TOUCH
    }

    /// The size of the larger pages that it maps where it can or where they are wished, if there are any.
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
            costs: None,
            inject: None,
            at: Vec::new(),
            source: String::new(),
        }
    }
}

const FIRST_TOUCH: &str = "first-touch";
const CLOCK: &str = "clock";

/// A setting that changes while the machine runs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct At {
    /// When, in cycles of the operating system's clock from the beginning of the run.
    pub time: u64,
    /// The key, by its dotted path: one of those that can change.
    pub key: String,
    /// Its new value.
    pub value: toml::Value,
}

/// Free memory at which pages leave it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Marks {
    /// So much is kept for page tables: for less, a page has to wait until others have left.
    pub min: Bytes,
    /// Below this, pages leave ...
    pub low: Bytes,
    /// ... until so much is free.
    pub high: Bytes,
}

/// The daemon that makes large pages of free memory (G98 section 6.4.3).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Coalesced {
    /// Cycles of the operating system's clock from the end of one pass to the next.
    pub period_cycles: u64,
    /// By page size: as many bytes in free pages of it are made, and no more.
    #[serde(default)]
    pub watermarks: BTreeMap<PageSize, Bytes>,
    /// The share of a chunk that a mild pass moves at most.
    pub mild_share: f64,
    /// Passes without success, after which one moves all that can be moved.
    pub strong_after: u32,
    /// The most that it does by itself: `weak`, `mild` or `strong`.
    #[serde(default)]
    pub level: Level,
    /// Base pages that a pass moves at most.
    pub moves: u64,
    /// Where the numbers come from.
    #[serde(default)]
    pub source: String,
}

/// On-line promotion: misses are counted for the larger pages that would have avoided them (Romer and
/// others 1995).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Promotion {
    /// The sizes of pages that are promoted to; none: all that there are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<PageSize>,
    /// Cycles that a miss counts for; absent: `os.costs.walk_cycles`, or 40.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miss_cycles: Option<u32>,
    /// Cycles per base page that a promotion has to be paid with; absent: `os.costs.work.copied`, or
    /// one cycle for two bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cycles: Option<u32>,
    /// Cycles that counting a miss takes; absent: 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_cycles: Option<u32>,
    /// Where the numbers come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// Room that is kept for large pages while base pages fill it (B10 section 6.1.1).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reservations {
    /// How large; of several the largest for which there is room.
    pub sizes: Vec<PageSize>,
    /// Whether they may reach beyond what is mapped, so that even small files have one.
    #[serde(skip_serializing_if = "is_false")]
    pub eager: bool,
    /// Whether pages in them are marked in their page-table entries, and what becomes of the marks
    /// where one is broken; absent: nothing is marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marks: Option<MarksOfBroken>,
    /// Why.
    pub source: String,
}

/// Frames that devices read and write, as those of a network's packets (B10 section 6.2.3).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Devices {
    /// How many they have at most. Then the one that they have had for longest goes back for each
    /// that they get.
    pub pages: u32,
    /// Page faults from one that they get to the next.
    pub faults: u32,
    /// Whether they come out of blocks of 2M that nothing else is in (B10 section 6.2.3).
    #[serde(default, skip_serializing_if = "is_false")]
    pub apart: bool,
    /// Where the numbers come from.
    #[serde(default)]
    pub source: String,
}

/// What becomes of the marks of pages whose reservation is broken (B10 section 6.5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarksOfBroken {
    /// They stay: such pages are where they were.
    Keep,
    /// All are cleared.
    Clear,
    /// They stay until a device gets a frame in the same block: then those of all pages in the block
    /// are cleared.
    ClearDevices,
}

impl Default for Reservations {
    fn default() -> Reservations {
        let sizes = vec![PageSize(AddrPageSize::SIZE_2M)];
        Reservations { sizes, eager: false, marks: None, source: String::new() }
    }
}

/// How far the daemon goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It moves no page.
    Weak,
    /// Few pages for each large one.
    Mild,
    /// Whatever can be moved.
    #[default]
    Strong,
}

/// Where pages without a file are while they are not in memory.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Swap {
    /// How much there is room for; absent: none, so that pages without a file stay in memory.
    #[serde(default = "no_bytes", skip_serializing_if = "is_nothing")]
    pub size: Bytes,
    /// Cycles that a request to it takes, of a page or of several side by side; files lie on the same
    /// disk. 0: waiting for disks is not modelled.
    #[serde(default)]
    pub io_cycles: u32,
    /// Cycles that each page of a request takes beyond that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub page_cycles: u32,
    /// Where the numbers come from.
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

/// What is said by saying nothing, so that machines of before there was a choice keep their digest.
fn is_clock(replacement: &str) -> bool {
    replacement == CLOCK
}

/// What is said by saying nothing, so that machines of before there was a choice keep their digest.
fn is_first_touch(manager: &str) -> bool {
    manager == FIRST_TOUCH
}

/// What is made to go wrong, once. Both count from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inject {
    /// The n-th shootdown that has something to forget reaches no processor.
    SkipShootdown(u64),
    /// The n-th allocation of a frame, for a page or a table, finds none.
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
                "\"{text}\" is not a fault that can be injected: write \"skip-shootdown:N\" or \
                 \"fail-allocation:N\", with N from 1"
            ))
        })
    }
}

/// What the operating system's time is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// Instructions, lookups of second-level TLBs, walks at a nominal price, the kernel's work.
    #[default]
    Full,
    /// Instructions alone: the same whatever TLBs the machine has.
    Instructions,
}

/// What is said by saying nothing, so that machines of before there was a choice keep their digest.
fn is_full(clock: &Clock) -> bool {
    *clock == Clock::Full
}
