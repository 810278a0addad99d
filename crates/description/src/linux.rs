//! Large pages as in Linux: `[os.linux]`, with the names of the kernel's settings in
//! `/sys/kernel/mm/transparent_hugepage`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::units::{Bytes, PageSize};

/// The kernel's settings. A setting that is absent has the kernel's default at boot.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Linux {
    /// The kernel's version, such as `6.18`: rules and settings of later versions do not exist. If
    /// the version is set, the results include the kernel's own counters for each page size.
    /// Absent: 6.18.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Version>,
    /// Where mappings are placed if the system chose their address: as in the recording, or where the
    /// kernel would place them.
    #[serde(skip_serializing_if = "is_default")]
    pub layout: Layout,
    /// The seed of the random parts of the addresses that the kernel chooses; absent: addresses are
    /// not random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout_seed: Option<u64>,
    /// Where faults and `khugepaged` use pages of 2 MiB, and blocks of all other sizes that are set to
    /// `inherit`.
    pub enabled: Enabled,
    /// Whether faults use blocks of 16 KiB, which are mapped by base pages; absent: never.
    #[serde(rename = "hugepages-16kB", skip_serializing_if = "Option::is_none")]
    pub of_16k: Option<OfSize>,
    /// Whether faults use blocks of 32 KiB, which are mapped by base pages; absent: never.
    #[serde(rename = "hugepages-32kB", skip_serializing_if = "Option::is_none")]
    pub of_32k: Option<OfSize>,
    /// Whether faults use blocks of 64 KiB, which are mapped by base pages; absent: never.
    #[serde(rename = "hugepages-64kB", skip_serializing_if = "Option::is_none")]
    pub of_64k: Option<OfSize>,
    /// Whether faults use blocks of 128 KiB, which are mapped by base pages; absent: never.
    #[serde(rename = "hugepages-128kB", skip_serializing_if = "Option::is_none")]
    pub of_128k: Option<OfSize>,
    /// Whether faults use blocks of 256 KiB, which are mapped by base pages; absent: never.
    #[serde(rename = "hugepages-256kB", skip_serializing_if = "Option::is_none")]
    pub of_256k: Option<OfSize>,
    /// Whether faults use blocks of 512 KiB, which are mapped by base pages; absent: never.
    #[serde(rename = "hugepages-512kB", skip_serializing_if = "Option::is_none")]
    pub of_512k: Option<OfSize>,
    /// Whether faults use blocks of 1 MiB, which are mapped by base pages; absent: never.
    #[serde(rename = "hugepages-1024kB", skip_serializing_if = "Option::is_none")]
    pub of_1024k: Option<OfSize>,
    /// Whether pages of 2 MiB are used; absent: they inherit `enabled`.
    #[serde(rename = "hugepages-2048kB", skip_serializing_if = "Option::is_none")]
    pub of_2048k: Option<OfSize>,
    /// Whether faults and `khugepaged` use pages of 1 GiB; absent: never. Only Trident's kernel has this
    /// setting.
    #[serde(rename = "hugepages-1048576kB", skip_serializing_if = "Option::is_none")]
    pub of_1048576k: Option<OfSize>,
    /// How a fault tries to get a large block if none is free.
    #[serde(skip_serializing_if = "is_default")]
    pub defrag: Defrag,
    /// 1: a load of untouched memory maps a large zero page where a large page is allowed.
    #[serde(skip_serializing_if = "is_one")]
    pub use_zero_page: u8,
    /// Where faults use pages of 2 MiB, and blocks of all other sizes that are set to `inherit`, for
    /// anonymous shared memory.
    #[serde(skip_serializing_if = "is_default")]
    pub shmem_enabled: ShmemEnabled,
    /// The size, in bytes, of the range around a fault on a file's page: the fault also maps the
    /// pages of this range that are in memory.
    #[serde(skip_serializing_if = "is_64k")]
    pub fault_around_bytes: u64,
    /// How actively memory is compacted in advance, from 0 to 100.
    #[serde(skip_serializing_if = "is_20")]
    pub compaction_proactiveness: u32,
    /// The fragmentation index, out of 1000, above which compaction is attempted.
    #[serde(skip_serializing_if = "is_500")]
    pub extfrag_threshold: u32,
    /// The memory that is kept free, in KiB; absent: the value that the kernel chooses if large
    /// pages are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_kbytes: Option<u64>,
    /// The distance between the watermarks of free memory, in 1 / 10000 of memory.
    #[serde(skip_serializing_if = "is_10")]
    pub watermark_scale_factor: u64,
    /// How much the watermarks rise each time that an allocation takes a part of a page block of
    /// another type (movable, unmovable), in 1 / 10000 of the high watermark.
    #[serde(skip_serializing_if = "is_15000")]
    pub watermark_boost_factor: u64,
    /// 1: if memory is scarce, a large page is split if more than `khugepaged.max_ptes_none` of its base
    /// pages hold zeros.
    #[serde(skip_serializing_if = "is_one")]
    pub shrink_underused: u8,
    /// The share of a large page's base pages that hold zeros: an assumption, as traces have no contents.
    #[serde(skip_serializing_if = "is_default")]
    pub zero_share: f64,
    /// Groups of processes with limits of memory and swap (memory cgroups).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<Group>,
    /// Settings of the C library's allocator that replace those of the recording; absent: as
    /// recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub malloc: Option<Malloc>,
    /// Pools of reserved large pages, for mappings with `MAP_HUGETLB` and segments with `SHM_HUGETLB`;
    /// absent: such mappings have ordinary pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugetlb: Option<Hugetlb>,
    /// The daemon that collapses mapped pages into pages of 2 MiB.
    pub khugepaged: Khugepaged,
    /// Cycles of the operating system's clock per millisecond of the kernel's time; absent:
    /// 4000000, as of a processor at 4 GHz (an assumption).
    pub cycles_per_ms: u64,
    /// The reason for the settings of this table.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Linux {
    /// Whether there are pages of 1 GiB, by faults or in a pool.
    pub fn has_1g(&self) -> bool {
        self.allows_1g() || self.hugetlb.as_ref().is_some_and(|pools| pools.of_1048576k.is_some())
    }

    /// Whether faults and `khugepaged` use pages of 1 GiB.
    pub fn allows_1g(&self) -> bool {
        self.of_1048576k
            .as_ref()
            .and_then(|of| of.enabled)
            .is_some_and(|enabled| enabled != OrderEnabled::Never)
    }

    /// The setting of each order that has one, smallest first. The order is log2 of the number of
    /// base pages.
    pub fn by_order(&self) -> impl Iterator<Item = (u32, OrderEnabled)> {
        let enabled = |of: Option<&OfSize>| of.and_then(|of| of.enabled);
        let smaller = self.below_2m().map(|of| enabled(of).unwrap_or(OrderEnabled::Never));
        let large = enabled(self.of_2048k.as_ref()).unwrap_or(OrderEnabled::Inherit);
        let largest = enabled(self.of_1048576k.as_ref()).unwrap_or(OrderEnabled::Never);
        (2..).zip(smaller.into_iter().chain([large])).chain([(18, largest)])
    }

    /// The setting for shared memory of each order that has one, smallest first.
    pub fn shmem_by_order(&self) -> impl Iterator<Item = (u32, OrderShmem)> {
        let enabled = |of: Option<&OfSize>| of.and_then(|of| of.shmem_enabled);
        let smaller = self.below_2m().map(|of| enabled(of).unwrap_or(OrderShmem::Never));
        let large = enabled(self.of_2048k.as_ref()).unwrap_or(OrderShmem::Inherit);
        (2..).zip(smaller.into_iter().chain([large]))
    }

    /// The settings of the sizes from 16 KiB to 1 MiB.
    fn below_2m(&self) -> [Option<&OfSize>; 7] {
        [
            &self.of_16k,
            &self.of_32k,
            &self.of_64k,
            &self.of_128k,
            &self.of_256k,
            &self.of_512k,
            &self.of_1024k,
        ]
        .map(Option::as_ref)
    }
}

impl Default for Linux {
    fn default() -> Linux {
        Linux {
            version: None,
            layout: Layout::Recorded,
            layout_seed: None,
            enabled: Enabled::Always,
            of_16k: None,
            of_32k: None,
            of_64k: None,
            of_128k: None,
            of_256k: None,
            of_512k: None,
            of_1024k: None,
            of_2048k: None,
            of_1048576k: None,
            defrag: Defrag::Madvise,
            use_zero_page: 1,
            shmem_enabled: ShmemEnabled::Never,
            fault_around_bytes: 64 << 10,
            compaction_proactiveness: 20,
            extfrag_threshold: 500,
            min_free_kbytes: None,
            watermark_scale_factor: 10,
            watermark_boost_factor: 15_000,
            shrink_underused: 1,
            zero_share: 0.0,
            group: Vec::new(),
            malloc: None,
            hugetlb: None,
            khugepaged: Khugepaged::default(),
            cycles_per_ms: 4_000_000,
            source: String::new(),
        }
    }
}

/// A version of Linux: its first two numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u32, pub u32);

impl Version {
    /// The version whose rules apply if the file names no version.
    pub const MODELLED: Version = Version(6, 18);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Version, D::Error> {
        // 6.10 without quotes would be the number 6.1.
        let text = String::deserialize(deserializer)?;
        let numbers = text.strip_prefix('v').unwrap_or(&text);
        let parsed = numbers.split_once('.').and_then(|(major, rest)| {
            let minor = rest.split(['.', '-']).next()?;
            Some(Version(major.parse().ok()?, minor.parse().ok()?))
        });
        parsed.ok_or_else(|| {
            de::Error::custom(format!(
                "\"{text}\" is no version of Linux: write \"6.18\" in quotes, or v6.18"
            ))
        })
    }
}

/// A group of processes, which is charged for the pages that its members bring into memory.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Group {
    /// The name of the group in results; absent: the number of the group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The members: names of programs, numbers of address spaces, or `*` for all processes that are in no
    /// other group. A forked child is in the group of its parent, unless another group names it.
    pub members: Vec<String>,
    /// The largest amount of memory that the members may have (`memory.max`); absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<Bytes>,
    /// The memory above which each fault evicts pages of the group (`memory.high`); absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_high: Option<Bytes>,
    /// The largest amount of swap space that the members may use (`memory.swap.max`); absent: no
    /// limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_max: Option<Bytes>,
}

/// Settings of glibc's allocator. They determine in which steps a heap grows, and whether the
/// allocator requests large pages.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Malloc {
    /// The tunable `glibc.malloc.hugetlb`: 0: large pages are not requested; 1: `madvise(MADV_HUGEPAGE)` is
    /// called for memory of 2 MiB and more; 2: memory comes from the pool of large pages.
    pub hugetlb: u8,
    /// The number of bytes by which the heap grows each time, in addition to the bytes that are
    /// needed (`M_TOP_PAD`, `glibc.malloc.top_pad`). In the recording, the heap has already grown
    /// by the recorded program's own `top_pad`, 128 KiB by default; the value of this key is added
    /// to that value.
    #[serde(skip_serializing_if = "is_nothing")]
    pub top_pad: Bytes,
}

impl Default for Malloc {
    fn default() -> Malloc {
        Malloc { hugetlb: 0, top_pad: Bytes(0) }
    }
}

/// Pools of reserved large pages, with the names that the kernel has for them in
/// `/sys/kernel/mm/hugepages`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hugetlb {
    /// The page size of mappings that request large pages without stating a size
    /// (`default_hugepagesz`).
    pub default: PageSize,
    /// The pool of pages of 2 MiB; absent: it is empty.
    #[serde(rename = "hugepages-2048kB", skip_serializing_if = "Option::is_none")]
    pub of_2048k: Option<HugePool>,
    /// The pool of pages of 1 GiB; absent: there is none, and mappings that request pages of 1 GiB have
    /// ordinary pages.
    #[serde(rename = "hugepages-1048576kB", skip_serializing_if = "Option::is_none")]
    pub of_1048576k: Option<HugePool>,
    /// The reason for the settings of this table.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Hugetlb {
    /// The pools that exist, by page size.
    pub fn pools(&self) -> impl Iterator<Item = (addr::PageSize, HugePool)> {
        let of_2m = (addr::PageSize::SIZE_2M, self.of_2048k.unwrap_or_default());
        let of_1g = self.of_1048576k.map(|pool| (addr::PageSize::SIZE_1G, pool));
        [of_2m].into_iter().chain(of_1g)
    }
}

impl Default for Hugetlb {
    fn default() -> Hugetlb {
        Hugetlb {
            default: PageSize(addr::PageSize::SIZE_2M),
            of_2048k: None,
            of_1048576k: None,
            source: String::new(),
        }
    }
}

/// A pool of reserved large pages.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct HugePool {
    /// The number of pages that the pool has from the beginning of the run. The pool has fewer
    /// pages if free memory does not have this number of blocks of the size.
    pub nr_hugepages: u64,
    /// The largest number of additional pages that the pool allocates from free memory when it is
    /// empty.
    pub nr_overcommit_hugepages: u64,
}

/// Where mappings are placed if the system chose their address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Mappings stay at their addresses in the recording.
    #[default]
    Recorded,
    /// Mappings are placed where the kernel would place them.
    Kernel,
}

/// Where large pages are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Enabled {
    /// Wherever large pages fit.
    Always,
    /// Where `madvise(MADV_HUGEPAGE)` requests large pages.
    Madvise,
    /// Nowhere.
    Never,
}

/// Where large pages of one size are used.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OfSize {
    /// Where large pages of this size are used; absent: as `enabled` says for pages of 2 MiB,
    /// nowhere for other sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<OrderEnabled>,
    /// Where large pages of this size are used for anonymous shared memory; absent: as `shmem_enabled` says
    /// for pages of 2 MiB, nowhere for other sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shmem_enabled: Option<OrderShmem>,
}

/// Where large pages are used for anonymous shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShmemEnabled {
    /// Wherever large pages fit.
    Always,
    /// Where the whole large page lies within the memory, or where `madvise(MADV_HUGEPAGE)`
    /// requests large pages.
    WithinSize,
    /// Where `madvise(MADV_HUGEPAGE)` requests large pages.
    Advise,
    /// Nowhere.
    #[default]
    Never,
    /// Nowhere, whatever is set for single sizes.
    Deny,
    /// Wherever large pages fit, but only for sizes that inherit this setting.
    Force,
}

/// Where large pages of one size are used for anonymous shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderShmem {
    /// Wherever large pages fit.
    Always,
    /// As `shmem_enabled` says for all sizes.
    Inherit,
    /// Where the whole large page lies within the memory.
    WithinSize,
    /// Where `madvise(MADV_HUGEPAGE)` requests large pages.
    Advise,
    /// Nowhere.
    Never,
}

/// Where large pages of one size are used: as `enabled` says for all sizes, or differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderEnabled {
    /// Wherever large pages fit.
    Always,
    /// As `enabled` says for all sizes.
    Inherit,
    /// Where `madvise(MADV_HUGEPAGE)` requests large pages.
    Madvise,
    /// Nowhere.
    Never,
}

/// The settings of the daemon `khugepaged`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Khugepaged {
    /// The number of base pages that the daemon scans each time before it sleeps.
    pub pages_to_scan: u64,
    /// How long the daemon sleeps between scans, in milliseconds.
    pub scan_sleep_millisecs: u64,
    /// How long the daemon sleeps after it found no free page of 2 MiB, in milliseconds.
    pub alloc_sleep_millisecs: u64,
    /// The largest number of base pages, of the 512 in a block, that may be missing if the block is
    /// to be collapsed.
    pub max_ptes_none: u64,
    /// The largest number of base pages in a block that may be in swap if the block is to be
    /// collapsed.
    pub max_ptes_swap: u64,
    /// The largest number of base pages in a block that may be shared if the block is to be
    /// collapsed.
    pub max_ptes_shared: u64,
    /// 1: the daemon compacts memory if no page of 2 MiB is free.
    #[serde(skip_serializing_if = "is_one")]
    pub defrag: u8,
}

impl Default for Khugepaged {
    fn default() -> Khugepaged {
        Khugepaged {
            pages_to_scan: 4096,
            scan_sleep_millisecs: 10_000,
            alloc_sleep_millisecs: 60_000,
            max_ptes_none: 511,
            max_ptes_swap: 64,
            max_ptes_shared: 256,
            defrag: 1,
        }
    }
}

/// How a fault tries to get a large block if none is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
pub enum Defrag {
    /// The fault reclaims pages and compacts memory itself.
    #[serde(rename = "always")]
    Always,
    /// The fault wakes the daemons that reclaim and compact.
    #[serde(rename = "defer")]
    Defer,
    /// As `always` where `madvise` requests large pages, otherwise as `defer`.
    #[serde(rename = "defer+madvise")]
    DeferMadvise,
    /// As `always` where `madvise` requests large pages, otherwise the fault does nothing.
    #[default]
    #[serde(rename = "madvise")]
    Madvise,
    /// The fault does nothing.
    #[serde(rename = "never")]
    Never,
}

/// The settings of the manager `ingens`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ingens {
    /// The share of a block's base pages, in per cent, that must be mapped before the block becomes
    /// a large page.
    pub util_threshold: u32,
    /// The period of the daemon, in milliseconds. In each period the daemon scans all blocks and,
    /// if use is sampled, the accessed bits.
    pub scan_sleep_millisecs: u64,
    /// 1: use is not sampled. 2: use is sampled, and hot blocks become large pages first.
    #[serde(skip_serializing_if = "is_one")]
    pub deferred_mode: u8,
    /// The share of all hot base pages that one scan examines; the next scan examines the next
    /// part.
    #[serde(skip_serializing_if = "is_fifth")]
    pub hot_share: f64,
    /// If less than this share of free memory is in blocks smaller than 2 MiB, a block becomes a large page
    /// as soon as one of its pages is mapped.
    #[serde(skip_serializing_if = "is_default")]
    pub aggressive_below: f64,
    /// Where the numbers of this table come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Default for Ingens {
    fn default() -> Ingens {
        Ingens {
            util_threshold: 90,
            scan_sleep_millisecs: 4000,
            deferred_mode: 1,
            hot_share: 0.2,
            aggressive_below: 0.0,
            source: String::new(),
        }
    }
}

/// The settings of the manager `hawkeye`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct HawkEye {
    /// Whether faults map large pages, as with the manager `linux`; if not, only the daemon creates
    /// large pages.
    pub faults: bool,
    /// How the daemon chooses the process whose block becomes the next large page.
    #[serde(skip_serializing_if = "is_default")]
    pub metric: Metric,
    /// How long accessed bits are collected for a sample, in milliseconds.
    pub sample_millisecs: u64,
    /// The time between the starts of two samples of accessed bits, in milliseconds.
    pub sleep_millisecs: u64,
    /// The number of free blocks that are filled with zeros in advance in each period; 0: none.
    pub prezero_blocks: u64,
    /// The period in which free blocks are filled with zeros in advance (`prezero_blocks`), in
    /// milliseconds.
    pub prezero_millisecs: u64,
    /// The time between two searches for base pages that hold only zeros, in milliseconds.
    pub recover_millisecs: u64,
    /// Base pages that hold only zeros are freed when less than this share of memory is free.
    pub recover_below: f64,
    /// Base pages that hold only zeros are freed until this share of memory is free.
    pub recover_until: f64,
    /// The share of a large page's base pages that hold only zeros: an assumption, as traces have
    /// no contents.
    pub zero_share: f64,
    /// Where the numbers of this table come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Default for HawkEye {
    fn default() -> HawkEye {
        HawkEye {
            faults: true,
            metric: Metric::RoundRobin,
            sample_millisecs: 1000,
            sleep_millisecs: 5000,
            prezero_blocks: 10,
            prezero_millisecs: 1000,
            recover_millisecs: 120_000,
            recover_below: 0.15,
            recover_until: 0.3,
            zero_share: 0.0,
            source: String::new(),
        }
    }
}

/// How HawkEye chooses among processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Processes take turns, with one block each.
    #[default]
    RoundRobin,
    /// Processes are ordered by the share of their time that they spend in page-table walks.
    MmuOverhead,
}

/// The settings of the manager `ca`, which places pages so that they become contiguous.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ca {
    /// The largest number of offsets between virtual and physical addresses that a region can have.
    pub offsets_max: usize,
    /// Where the number comes from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Default for Ca {
    fn default() -> Ca {
        Ca { offsets_max: 64, source: String::new() }
    }
}

/// The daemon of the manager `translation-ranger`, which moves pages to make them contiguous.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ranger {
    /// Regions with fewer bytes are not changed.
    pub region_bytes_min: Bytes,
    /// The period of the daemon in milliseconds. It is an assumption: in the original system a
    /// program starts each pass.
    pub period_millisecs: u64,
    /// The largest number of base pages that a pass moves.
    pub moves: u64,
    /// Where the numbers of this table come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Default for Ranger {
    fn default() -> Ranger {
        Ranger {
            region_bytes_min: Bytes(1 << 30),
            period_millisecs: 5000,
            moves: 1 << 18,
            source: String::new(),
        }
    }
}

/// Whether the value is the default. A default is not written, so that a machine file that is older
/// than this key keeps its digest.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_nothing(bytes: &Bytes) -> bool {
    bytes.0 == 0
}

fn is_one(value: &u8) -> bool {
    *value == 1
}

fn is_fifth(value: &f64) -> bool {
    (*value - 0.2).abs() < f64::EPSILON
}

fn is_10(value: &u64) -> bool {
    *value == 10
}

fn is_20(value: &u32) -> bool {
    *value == 20
}

fn is_500(value: &u32) -> bool {
    *value == 500
}

fn is_15000(value: &u64) -> bool {
    *value == 15_000
}

fn is_64k(value: &u64) -> bool {
    *value == 64 << 10
}
