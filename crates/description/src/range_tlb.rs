//! TLBs for ranges of any length.

use serde::{Deserialize, Serialize};

use super::{lru, one};

/// The range TLB (Karakostas and others 2015; with `from = "line"` the fully associative part of CoLT,
/// Pham and others 2012). The range TLB is looked up together with the second-level TLB.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RangeTlb {
    /// The number of ranges that the range TLB holds.
    pub entries: u32,
    /// The replacement policy.
    pub replacement: String,
    /// The source of the range TLB's entries: `table`, ranges of the operating system's range
    /// table; `line`, the contiguous pages that a walk finds in its cache line of page-table
    /// entries.
    #[serde(skip_serializing_if = "is_table")]
    pub from: String,
    /// The least number of base pages in a range that gets an entry.
    pub pages_min: u32,
    /// The seed of the random sequence, for policies that use one.
    pub seed: u64,
    /// Where the numbers of this table come from.
    pub source: String,
}

impl Default for RangeTlb {
    fn default() -> RangeTlb {
        RangeTlb {
            entries: 32,
            replacement: lru(),
            from: TABLE.to_owned(),
            pages_min: 2,
            seed: one(),
            source: String::new(),
        }
    }
}

const TABLE: &str = "table";

/// Whether the value is the default, which is not written, so that machines from before the choice
/// existed keep their digest.
fn is_table(from: &str) -> bool {
    from == TABLE
}
