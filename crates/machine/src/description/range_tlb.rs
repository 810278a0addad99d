//! What translates ranges of any length.

use serde::{Deserialize, Serialize};

use super::{lru, one};

/// The range TLB (Karakostas and others 2015), asked together with the TLB of the second level.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RangeTlb {
    /// Ranges that it holds.
    pub entries: u32,
    /// Replacement policy.
    pub replacement: String,
    /// A range of fewer base pages gets no entry.
    pub pages_min: u32,
    /// Start of the random sequence, for the policies that use one.
    pub seed: u64,
    /// Where the numbers come from.
    pub source: String,
}

impl Default for RangeTlb {
    fn default() -> RangeTlb {
        RangeTlb {
            entries: 32,
            replacement: lru(),
            pages_min: 2,
            seed: one(),
            source: String::new(),
        }
    }
}
