//! Large pages as Linux has them: `[os.linux]`, under the names that the kernel has for its knobs in
//! `/sys/kernel/mm/transparent_hugepage`.

use serde::{Deserialize, Serialize};

use super::units::Bytes;

/// The knobs. What is not written is as the kernel has it when it boots.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Linux {
    /// Pages of 2M at faults and by `khugepaged`, for sizes that inherit it.
    pub enabled: Enabled,
    /// Blocks of 16K, by translations of base pages, and so on; absent: never.
    #[serde(rename = "hugepages-16kB", skip_serializing_if = "Option::is_none")]
    pub of_16k: Option<OfSize>,
    #[expect(missing_docs, reason = "as the one above")]
    #[serde(rename = "hugepages-32kB", skip_serializing_if = "Option::is_none")]
    pub of_32k: Option<OfSize>,
    #[expect(missing_docs, reason = "as the one above")]
    #[serde(rename = "hugepages-64kB", skip_serializing_if = "Option::is_none")]
    pub of_64k: Option<OfSize>,
    #[expect(missing_docs, reason = "as the one above")]
    #[serde(rename = "hugepages-128kB", skip_serializing_if = "Option::is_none")]
    pub of_128k: Option<OfSize>,
    #[expect(missing_docs, reason = "as the one above")]
    #[serde(rename = "hugepages-256kB", skip_serializing_if = "Option::is_none")]
    pub of_256k: Option<OfSize>,
    #[expect(missing_docs, reason = "as the one above")]
    #[serde(rename = "hugepages-512kB", skip_serializing_if = "Option::is_none")]
    pub of_512k: Option<OfSize>,
    #[expect(missing_docs, reason = "as the one above")]
    #[serde(rename = "hugepages-1024kB", skip_serializing_if = "Option::is_none")]
    pub of_1024k: Option<OfSize>,
    /// Pages of 2M; absent: they inherit `enabled`.
    #[serde(rename = "hugepages-2048kB", skip_serializing_if = "Option::is_none")]
    pub of_2048k: Option<OfSize>,
    /// Pages of 1G, at faults and by `khugepaged`; absent: never. No kernel has this knob but Trident's.
    #[serde(rename = "hugepages-1048576kB", skip_serializing_if = "Option::is_none")]
    pub of_1048576k: Option<OfSize>,
    /// What a fault does where no block is free.
    #[serde(skip_serializing_if = "is_default")]
    pub defrag: Defrag,
    /// 1: a load of untouched memory maps a large page of zeros where a large page may be.
    #[serde(skip_serializing_if = "is_one")]
    pub use_zero_page: u8,
    /// Bytes around a fault on a file's page that are loaded with it where memory has them.
    #[serde(skip_serializing_if = "is_64k")]
    pub fault_around_bytes: u64,
    /// How much is compacted before anybody asks, from 0 to 100.
    #[serde(skip_serializing_if = "is_20")]
    pub compaction_proactiveness: u32,
    /// The index of fragmentation, of 1000, above which compaction is worth while.
    #[serde(skip_serializing_if = "is_500")]
    pub extfrag_threshold: u32,
    /// Memory that is kept free; absent: as the kernel sets it where large pages are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_kbytes: Option<u64>,
    /// How far the marks lie apart, in 1 / 10000 of memory.
    #[serde(skip_serializing_if = "is_10")]
    pub watermark_scale_factor: u64,
    /// By how much of the high mark, in 1 / 10000, a claim of a part of a page block raises it.
    #[serde(skip_serializing_if = "is_15000")]
    pub watermark_boost_factor: u64,
    /// The daemon that makes pages of 2M of what is there.
    pub khugepaged: Khugepaged,
    /// Cycles of the operating system's clock in a millisecond of the kernel's: those of a processor
    /// of 4 GHz, an assumption, unless said otherwise.
    pub cycles_per_ms: u64,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Linux {
    /// Whether pages of 1G may come.
    pub fn allows_1g(&self) -> bool {
        self.of_1048576k.as_ref().is_some_and(|of| of.enabled != OrderEnabled::Never)
    }

    /// The knob of each order of base pages that has one, smallest first.
    pub fn by_order(&self) -> impl Iterator<Item = (u32, OrderEnabled)> {
        let smaller = [
            &self.of_16k,
            &self.of_32k,
            &self.of_64k,
            &self.of_128k,
            &self.of_256k,
            &self.of_512k,
            &self.of_1024k,
        ];
        let smaller = smaller.map(|of| of.as_ref().map_or(OrderEnabled::Never, |of| of.enabled));
        let large = self.of_2048k.as_ref().map_or(OrderEnabled::Inherit, |of| of.enabled);
        let largest = self.of_1048576k.as_ref().map_or(OrderEnabled::Never, |of| of.enabled);
        (2..).zip(smaller.into_iter().chain([large])).chain([(18, largest)])
    }
}

impl Default for Linux {
    fn default() -> Linux {
        Linux {
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
            fault_around_bytes: 64 << 10,
            compaction_proactiveness: 20,
            extfrag_threshold: 500,
            min_free_kbytes: None,
            watermark_scale_factor: 10,
            watermark_boost_factor: 15_000,
            khugepaged: Khugepaged::default(),
            cycles_per_ms: 4_000_000,
            source: String::new(),
        }
    }
}

/// Where large pages come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Enabled {
    /// Wherever they fit.
    Always,
    /// Where `madvise(MADV_HUGEPAGE)` asks for them.
    Madvise,
    /// Nowhere.
    Never,
}

/// Where large pages of one size are used.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OfSize {
    /// Where they come.
    pub enabled: OrderEnabled,
}

/// Where large pages of one size are used: as `enabled` of all sizes says, or by a policy of this size's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderEnabled {
    /// Wherever they fit.
    Always,
    /// As `enabled` says.
    Inherit,
    /// Where they are asked for.
    Madvise,
    /// Nowhere.
    Never,
}

/// The daemon's knobs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Khugepaged {
    /// Base pages that it looks at before it sleeps.
    pub pages_to_scan: u64,
    /// How long it sleeps then ...
    pub scan_sleep_millisecs: u64,
    /// ... and where no page of 2M was free.
    pub alloc_sleep_millisecs: u64,
    /// Of the 512 base pages of a block the most that may be missing ...
    pub max_ptes_none: u64,
    /// ... that may be in swap ...
    pub max_ptes_swap: u64,
    /// ... and that others may share.
    pub max_ptes_shared: u64,
    /// 1: it compacts memory where no page of 2M is free.
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

/// What a fault does where no block is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
pub enum Defrag {
    /// It has pages leave and compacts memory.
    #[serde(rename = "always")]
    Always,
    /// It wakes the daemons.
    #[serde(rename = "defer")]
    Defer,
    /// As `always` where the program asks for large pages, else as `defer`.
    #[serde(rename = "defer+madvise")]
    DeferMadvise,
    /// As `always` where the program asks for large pages, else nothing.
    #[default]
    #[serde(rename = "madvise")]
    Madvise,
    /// Nothing.
    #[serde(rename = "never")]
    Never,
}

/// The manager `ingens`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ingens {
    /// The share of a block, in per cent, that must be there before it becomes a large page.
    pub util_threshold: u32,
    /// How long the daemon sleeps that looks at all blocks, and at what is used where it is sampled.
    pub scan_sleep_millisecs: u64,
    /// 1: use is not sampled; 2: it is, and what is hot becomes large first.
    #[serde(skip_serializing_if = "is_one")]
    pub deferred_mode: u8,
    /// The share of hot base pages that a scan looks at, each in its turn.
    #[serde(skip_serializing_if = "is_fifth")]
    pub hot_share: f64,
    /// Where a smaller share of free memory lies in less than 2M, any block becomes large as soon as a page of
    /// it is there.
    #[serde(skip_serializing_if = "is_default")]
    pub aggressive_below: f64,
    /// Where the numbers come from.
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

/// The manager `hawkeye`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct HawkEye {
    /// Whether faults give large pages, as with `linux`; else only the daemon makes them.
    pub faults: bool,
    /// Of which processes blocks are taken first.
    #[serde(skip_serializing_if = "is_default")]
    pub metric: Metric,
    /// How long bits of use are collected ...
    pub sample_millisecs: u64,
    /// ... and from one such time to the next.
    pub sleep_millisecs: u64,
    /// Free blocks that are filled with zeros ahead each time; 0: none.
    pub prezero_blocks: u64,
    /// From one such time to the next.
    pub prezero_millisecs: u64,
    /// From one search for base pages of zeros to the next.
    pub recover_millisecs: u64,
    /// They are given back where a smaller share of memory is free ...
    pub recover_below: f64,
    /// ... until this share is.
    pub recover_until: f64,
    /// The share of a large page's base pages that hold zeros: traces have no contents.
    pub zero_share: f64,
    /// Where the numbers come from.
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

/// How HawkEye chooses between processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// All are alike, and have one block each in turn.
    #[default]
    RoundRobin,
    /// By the share of its time that a process spends in walks.
    MmuOverhead,
}

/// Contiguity-aware placement, of the manager `ca`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ca {
    /// The most offsets that a region has.
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

/// The daemon that moves pages side by side, of the manager `translation-ranger`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ranger {
    /// Smaller regions are left alone.
    pub region_bytes_min: Bytes,
    /// From one pass to the next: an assumption, as its source is called by a program.
    pub period_millisecs: u64,
    /// Base pages that a pass moves at most.
    pub moves: u64,
    /// Where the numbers come from.
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

/// What is said by saying nothing, so that machines of before there was a choice keep their digest.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
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
