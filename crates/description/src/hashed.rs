//! Frames that addresses allow, and what finds pages in them: `[os.mosaic]`, `[os.utopia]`, `[restseg]`.

use serde::{Deserialize, Serialize};

use super::units::Bytes;

/// Mosaic's placement (Gosakan and others 2023): memory is an iceberg hash table of base pages.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mosaic {
    /// Frames of a bucket that pages of one hash may have ...
    pub front_yard: u32,
    /// ... and those for pages whose front yard is full.
    pub back_yard: u32,
    /// Buckets of whose back yards a page may have a frame.
    pub choices: u32,
    /// Where the numbers come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Default for Mosaic {
    fn default() -> Mosaic {
        Mosaic { front_yard: 56, back_yard: 8, choices: 6, source: String::new() }
    }
}

/// Utopia's restrictive segments (Kanellopoulos and others 2023), at the end of memory.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Utopia {
    /// The segment for base pages; absent: a sixteenth of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// Frames of a set.
    pub ways: u32,
    /// The segment for pages of 2M, for managers that have them; 0: none.
    pub large_size: Bytes,
    /// Pages of a set of it.
    pub large_ways: u32,
    /// Where the numbers come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Default for Utopia {
    fn default() -> Utopia {
        Utopia { size: None, ways: 8, large_size: Bytes(0), large_ways: 8, source: String::new() }
    }
}

/// What looks for pages in restrictive segments before the page table is walked.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RestSeg {
    /// Lines of the set filter that it keeps; 0: none.
    pub filter_lines: u32,
    /// Lines of the tag array that it keeps; 0: none.
    pub tag_lines: u32,
    /// Ways of both.
    pub ways: u32,
    /// Where the numbers come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Default for RestSeg {
    fn default() -> RestSeg {
        RestSeg { filter_lines: 8, tag_lines: 8, ways: 4, source: String::new() }
    }
}
