//! The host of a virtual machine.

use addr::PageSize as AddrPageSize;
use serde::{Deserialize, Serialize};

use super::{
    MmuCache, PageTable, Tlb,
    units::{Bytes, PageSize},
};

/// The host of a virtual machine: what translates guest-physical addresses.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nested {
    /// The page size of every mapping of the host.
    pub page_size: PageSize,
    /// The organisation of the host's page table.
    pub format: String,
    /// Its levels, for `x86-64`; 4 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<u8>,
    /// What holds the host's translations of guest-physical addresses; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb: Option<Tlb>,
    /// What a walk of the host's page table remembers; nothing if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mmu_cache: Option<MmuCache>,
    /// What the host shares with its guest.
    #[serde(skip_serializing_if = "Shared::is_none")]
    pub shared: Shared,
    /// Bytes of the host's frames; those of the guest are `memory.size`.
    pub memory: Bytes,
    /// Where the numbers come from.
    pub source: String,
}

/// What guest and host share of `[mmu_cache]` (B10 section 7.1). Each holds what the one before it
/// does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shared {
    /// Nothing: each has caches of its own.
    #[default]
    None,
    /// It holds the host's entries that lead to tables too.
    MmuCache,
    /// It holds the host's pages too, in place of a nested TLB.
    NestedTlb,
    /// It holds the guest's pages too: it is the last level of the TLB.
    Tlb,
}

impl Shared {
    /// Whether nothing is shared.
    pub fn is_none(&self) -> bool {
        *self == Shared::None
    }
}

impl Nested {
    /// The host's page table, as one that a machine file describes.
    pub fn page_table(&self) -> PageTable {
        PageTable {
            format: self.format.clone(),
            levels: self.levels,
            nodes: None,
            table: None,
            entry_pages: None,
            partial_subblocks: None,
            replicated: None,
            software_tlb: None,
            remembers_leaf: None,
            source: self.source.clone(),
        }
    }
}

impl Default for Nested {
    fn default() -> Nested {
        Nested {
            page_size: PageSize(AddrPageSize::SIZE_4K),
            format: "x86-64".to_owned(),
            levels: None,
            tlb: None,
            mmu_cache: None,
            shared: Shared::None,
            memory: Bytes(1 << 40),
            source: String::new(),
        }
    }
}
