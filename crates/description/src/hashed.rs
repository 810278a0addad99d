//! Placement of pages by hashes of their addresses, and hardware that finds pages so: `[os.mosaic]`,
//! `[os.utopia]`, `[restseg]`.

use serde::{Deserialize, Serialize};

use super::units::Bytes;

/// Mosaic's placement (Gosakan and others 2023): memory is an iceberg hash table of base pages.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mosaic {
    /// Frames in the front yard of a bucket: for the pages whose hash selects the bucket.
    pub front_yard: u32,
    /// Frames in the back yard of a bucket: for pages whose front yard is full.
    pub back_yard: u32,
    /// The number of buckets in whose back yards a page may have a frame.
    pub choices: u32,
    /// Where the numbers of this table come from.
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
    /// The size of the segment for base pages; absent: a sixteenth of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// Frames in a set of the segment for base pages.
    pub ways: u32,
    /// The size of the segment for pages of 2 MiB, for managers that use such pages; 0: there is
    /// none.
    pub large_size: Bytes,
    /// Pages in a set of the segment for pages of 2 MiB.
    pub large_ways: u32,
    /// Where the numbers of this table come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Default for Utopia {
    fn default() -> Utopia {
        Utopia { size: None, ways: 8, large_size: Bytes(0), large_ways: 8, source: String::new() }
    }
}

/// Hardware that looks for pages in restrictive segments before the page table is walked.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RestSeg {
    /// Lines of the set filter that the hardware caches; 0: no cache.
    pub filter_lines: u32,
    /// Lines of the tag array that the hardware caches; 0: no cache.
    pub tag_lines: u32,
    /// The number of ways of a set of both caches.
    pub ways: u32,
    /// Where the numbers of this table come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Default for RestSeg {
    fn default() -> RestSeg {
        RestSeg { filter_lines: 8, tag_lines: 8, ways: 4, source: String::new() }
    }
}
