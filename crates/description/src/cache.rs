//! The data caches, and the memory behind them.

use addr::Kind;
use serde::{Deserialize, Serialize};

use super::{
    Numa, is_false, lru,
    units::{Bytes, Ways},
};

/// The data caches: fetches go through l1i, l2, l3; data through l1d, l2, l3.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Caches {
    /// First level, fetches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1i: Option<Cache>,
    /// First level, loads and stores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1d: Option<Cache>,
    /// Second level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2: Option<Cache>,
    /// Third level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l3: Option<Cache>,
}

impl Caches {
    /// The caches that there are, nearest first.
    pub fn present(&self) -> impl Iterator<Item = (&'static str, &Cache)> {
        [("l1i", &self.l1i), ("l1d", &self.l1d), ("l2", &self.l2), ("l3", &self.l3)]
            .into_iter()
            .filter_map(|(name, cache)| Some((name, cache.as_ref()?)))
    }

    /// Cycles of a hit where the program's accesses of `kind` come in: the nearest cache of their own
    /// kind. They are part of the instruction's own cycles. 0 where nothing says.
    pub fn hit_cycles(&self, kind: Kind) -> u64 {
        let own = if kind == Kind::Fetch { &self.l1i } else { &self.l1d };
        let nearest = [own, &self.l2, &self.l3].into_iter().flatten().next();
        nearest.and_then(|cache| cache.latency_cycles).map_or(0, u64::from)
    }
}

/// One data cache.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Bytes of data it holds.
    pub size: Bytes,
    /// Bytes of a line.
    pub line: Bytes,
    /// Ways.
    pub ways: Ways,
    /// Replacement policy: `lru` or `tree-plru`.
    #[serde(default = "lru")]
    pub replacement: String,
    /// Cycles from the request to the data when it hits here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_cycles: Option<u32>,
    /// Where the numbers come from.
    #[serde(default)]
    pub source: String,
}

/// Physical memory.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Bytes of frames.
    pub size: Bytes,
    /// Cycles from the request to the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_cycles: Option<u32>,
    /// The seed of the order in which base frames are given out; lowest first if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<u64>,
    /// How free frames are kept: `buddy`, or `size-lists`, a list per page size; the manager's own if
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocator: Option<String>,
    /// Whether movable pages and others come from chunks of their own, as far as that can be.
    #[serde(skip_serializing_if = "is_false")]
    pub ordered: bool,
    /// What a long time of use has left in it before the run begins; absent: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aged: Option<Aged>,
    /// Nodes of memory with processors; absent: it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<Numa>,
    /// Where the numbers come from.
    pub source: String,
}

/// Memory that was used before, as shares of all frames.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Aged {
    /// Frames that are free.
    pub free: f64,
    /// Frames that are in use for good, where they are. What is neither is in use and could be moved.
    pub wired: f64,
    /// Where the random choices begin.
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
