//! What translates ranges of any length.

use serde::{Deserialize, Serialize};

use super::{lru, one};

/// The range TLB (Karakostas and others 2015; with `from = "line"` CoLT's fully associative part, Pham and
/// others 2012), asked together with the TLB of the second level.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RangeTlb {
    /// Ranges that it holds.
    pub entries: u32,
    /// Replacement policy.
    pub replacement: String,
    /// What an entry is made of: `table`, the operating system's range; `line`, the run that a walk finds in
    /// its line of page-table entries.
    #[serde(skip_serializing_if = "is_table")]
    pub from: String,
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
            from: TABLE.to_owned(),
            pages_min: 2,
            seed: one(),
            source: String::new(),
        }
    }
}

const TABLE: &str = "table";

/// What is said by saying nothing, so that machines of before there was a choice keep their digest.
fn is_table(from: &str) -> bool {
    from == TABLE
}
