//! The cache of decoded instructions.

use serde::{Deserialize, Serialize};

/// A virtually tagged trace cache, which is looked up before the TLB for fetches (U02 section 2.1).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TraceCache {
    /// The number of micro-ops that the trace cache holds.
    pub uops: u32,
    /// The number of micro-ops in a line.
    pub line_uops: u32,
    /// The number of ways of a set.
    pub ways: u32,
    /// The mean number of micro-ops per instruction.
    pub uops_per_instruction: f64,
    /// Cycles of building a line, in addition to fetching its bytes.
    pub build_cycles: u32,
    /// Where the numbers of this table come from.
    #[serde(default)]
    pub source: String,
}
