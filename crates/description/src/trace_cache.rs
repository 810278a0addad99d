//! The cache of decoded instructions.

use serde::{Deserialize, Serialize};

/// A virtually tagged trace cache, which comes before the TLB of fetches (U02 section 2.1).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TraceCache {
    /// Micro-ops that it has room for.
    pub uops: u32,
    /// Micro-ops of a line.
    pub line_uops: u32,
    /// Lines of a set.
    pub ways: u32,
    /// Micro-ops of an instruction.
    pub uops_per_instruction: f64,
    /// Cycles that a line takes to be built, beyond what fetching its bytes takes.
    pub build_cycles: u32,
    /// Where the numbers come from.
    #[serde(default)]
    pub source: String,
}
