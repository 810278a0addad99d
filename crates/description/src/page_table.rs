//! The page table of a machine.

use serde::{Deserialize, Serialize};

use super::units::Bytes;

/// The page table.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PageTable {
    /// The organisation; `table/formats.rs` has the names.
    pub format: String,
    /// Levels of an `x86-64` tree; 4 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<u8>,
    /// Bits of the addresses of an `aarch64` tree, 48 or 52; 48 if absent. Its granule is the size of the
    /// smallest pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_bits: Option<u8>,
    /// Entries of a node of a `guarded` table; 16 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u64>,
    /// Bytes of a `hashed` or `clustered` table, 128K if absent, or of a `tsb`, 1M if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<Bytes>,
    /// Pages in an entry of a `hashed` (2 if absent), `clustered` (8) or `inverted` table (1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry_pages: Option<u64>,
    /// Whether a `clustered` table has partial-subblock entries; not if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial_subblocks: Option<bool>,
    /// Whether a `hashed`, `clustered` or `inverted` table enters a page of 2M or 1G once for each
    /// of its base pages; not if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicated: Option<bool>,
    /// Whether the entries of a `hashed`, `clustered` or `inverted` table follow each other without
    /// padding to a power of two; not if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packed: Option<bool>,
    /// Bytes of a software TLB in front of the table; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub software_tlb: Option<Bytes>,
    /// Whether the OS starts an operation on a page at the table of level 2 that it used last, where
    /// that has the page, in place of the root: `x86-64`, `mpt` and `flattened`. It does if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remembers_leaf: Option<bool>,
    /// Where the numbers come from.
    #[serde(default)]
    pub source: String,
}
