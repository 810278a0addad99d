//! Large pages as Linux has them: `[os.linux]`, under the names that the kernel has for its knobs in
//! `/sys/kernel/mm/transparent_hugepage`.

use serde::{Deserialize, Serialize};

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
    /// The knob of each order of base pages that has one, smallest first.
    pub(crate) fn by_order(&self) -> impl Iterator<Item = (u32, OrderEnabled)> {
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
        let largest = self.of_2048k.as_ref().map_or(OrderEnabled::Inherit, |of| of.enabled);
        (2..).zip(smaller.into_iter().chain([largest]))
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

/// The same for blocks of one size.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OfSize {
    /// Where they come.
    pub enabled: OrderEnabled,
}

/// The same, or what `enabled` says.
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
        }
    }
}
