//! The page table of a machine.

use serde::{Deserialize, Serialize};

use super::units::Bytes;

/// The page table.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PageTable {
    /// The format of the page table by its name, such as `x86-64`.
    pub format: String,
    /// The number of levels of an `x86-64` tree; absent: 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<u8>,
    /// The size of virtual addresses of an `aarch64` tree in bits, 48 or 52; absent: 48. The granule of the
    /// tree is the size of the smallest pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_bits: Option<u8>,
    /// The number of entries in a node of a `guarded` table; absent: 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u64>,
    /// The size in bytes of a `hashed` or `clustered` table (absent: 128K), or of a `tsb` (absent:
    /// 1M).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<Bytes>,
    /// The number of pages in an entry of a `hashed` (absent: 2), `clustered` (8) or `inverted`
    /// table (1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry_pages: Option<u64>,
    /// Whether a `clustered` table has partial-subblock entries; absent: no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial_subblocks: Option<bool>,
    /// Whether a `hashed`, `clustered` or `inverted` table enters a page of 2 MiB or 1 GiB once for
    /// each of its base pages; absent: no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicated: Option<bool>,
    /// Whether the entries of a `hashed`, `clustered` or `inverted` table are stored without
    /// padding to a power of two; absent: no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packed: Option<bool>,
    /// The size in bytes of a software TLB in front of the table; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub software_tlb: Option<Bytes>,
    /// Whether the operating system starts an operation on a page at the level-2 table that it used last, if that
    /// table covers the page, instead of at the root: for `x86-64`, `mpt` and `flattened`. Absent: yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remembers_leaf: Option<bool>,
    /// Where the numbers of this table come from.
    #[serde(default)]
    pub source: String,
}
