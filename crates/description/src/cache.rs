//! The data caches, and the memory behind them.

use addr::Kind;
use serde::{Deserialize, Serialize};

use super::{
    Numa, is_false, lru,
    units::{Bytes, Ways},
};

/// The data caches: fetches go through l1i, l2 and l3; loads and stores through l1d, l2 and l3.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Caches {
    /// The first-level cache for fetches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1i: Option<Cache>,
    /// The first-level cache for loads and stores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1d: Option<Cache>,
    /// The second-level cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2: Option<Cache>,
    /// The third-level cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l3: Option<Cache>,
}

impl Caches {
    /// The caches that the machine has, nearest to the core first.
    pub fn present(&self) -> impl Iterator<Item = (&'static str, &Cache)> {
        [("l1i", &self.l1i), ("l1d", &self.l1d), ("l2", &self.l2), ("l3", &self.l3)]
            .into_iter()
            .filter_map(|(name, cache)| Some((name, cache.as_ref()?)))
    }

    /// The latency in cycles of the first cache that the program's accesses of `kind` look up. These
    /// cycles are part of the instruction's own cycles. 0 if the file does not state them.
    pub fn hit_cycles(&self, kind: Kind) -> u64 {
        let own = if kind == Kind::Fetch { &self.l1i } else { &self.l1d };
        let nearest = [own, &self.l2, &self.l3].into_iter().flatten().next();
        nearest.and_then(|cache| cache.latency_cycles).map_or(0, u64::from)
    }
}

/// A data cache.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Bytes of data that the cache holds.
    pub size: Bytes,
    /// The size of a line in bytes.
    pub line: Bytes,
    /// The number of ways of a set.
    pub ways: Ways,
    /// The replacement policy: `lru`, `tree-plru` or any other policy of a TLB.
    #[serde(default = "lru")]
    pub replacement: String,
    /// The latency of a hit in cycles, from the request to the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_cycles: Option<u32>,
    /// Where the numbers of this table come from.
    #[serde(default)]
    pub source: String,
}

/// Physical memory.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// The size of physical memory in bytes.
    pub size: Bytes,
    /// The latency in cycles, from the request to the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_cycles: Option<u32>,
    /// The seed of the random order in which base frames are allocated; absent: the lowest free
    /// frame first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<u64>,
    /// How free frames are kept: `buddy`, or `size-lists` for one list per page size; absent: as the
    /// manager does by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocator: Option<String>,
    /// Whether movable and unmovable pages are allocated from separate chunks, as far as possible.
    #[serde(skip_serializing_if = "is_false")]
    pub ordered: bool,
    /// The state of memory after a long time of use, in which the run begins; absent: all frames
    /// are free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aged: Option<Aged>,
    /// Memory nodes with processors; absent: there is one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<Numa>,
    /// Where the numbers of this table come from.
    pub source: String,
}

/// Memory that was used before the run, as shares of all frames.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Aged {
    /// The share of frames that are free.
    pub free: f64,
    /// The share of frames that are used for the whole run and cannot be moved. All frames that are
    /// neither free nor wired are used and movable.
    pub wired: f64,
    /// The seed of the random choices.
    pub seed: u64,
}

impl Default for Memory {
    fn default() -> Memory {
        let size = Bytes(1 << 40);
        Memory {
            size,
            latency_cycles: None,
            placement: None,
            allocator: None,
            ordered: false,
            aged: None,
            numa: None,
            source: String::new(),
        }
    }
}
