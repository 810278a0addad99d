//! The host of a virtual machine.

use std::fmt;

use addr::PageSize as AddrPageSize;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    MmuCache, PageTable, SpecTlb, Tlb, one,
    units::{Bytes, PageSize},
};

/// The host of a virtual machine, which translates guest-physical addresses.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nested {
    /// The page size of all mappings of the host.
    pub page_size: PageSize,
    /// The format of the host's page table.
    pub format: String,
    /// The number of levels, for `x86-64`; absent: 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<u8>,
    /// The nested TLB, which holds the host's translations of guest-physical addresses; absent:
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb: Option<Tlb>,
    /// The MMU cache for walks of the host's page table; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mmu_cache: Option<MmuCache>,
    /// Reservations of the host for large pages of the guest's memory; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<NestedReservations>,
    /// The predictor of the host's translations of guest-physical addresses; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_tlb: Option<SpecTlb>,
    /// The ranges of guest-physical addresses that belong to devices: the host maps nothing there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holes: Vec<Hole>,
    /// Guests that the host ran before this one, whose memory has fragmented the host's memory;
    /// absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former: Option<Former>,
    /// Which caches the host's translation shares with the guest's.
    #[serde(skip_serializing_if = "Shared::is_none")]
    pub shared: Shared,
    /// The host's memory in bytes; the guest's memory is `memory.size`.
    pub memory: Bytes,
    /// Where the numbers of this table come from.
    pub source: String,
}

/// The host's reservations for large pages of a guest's memory (B10 section 6.5.2).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NestedReservations {
    /// The sizes of reservations; if there are several sizes, the largest size for which there is
    /// room is used.
    pub sizes: Vec<PageSize>,
}

/// A range of guest-physical addresses without memory: `"640K..1M"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hole {
    /// The first byte of the range.
    pub first: u64,
    /// The byte after the last one of the range.
    pub end: u64,
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", Bytes(self.first), Bytes(self.end))
    }
}

impl Serialize for Hole {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parsed = text.split_once("..").and_then(|(first, end)| {
            let (Bytes(first), Bytes(end)) = (Bytes::parse(first)?, Bytes::parse(end)?);
            (first < end).then_some(Hole { first, end })
        });
        parsed.ok_or_else(|| {
            de::Error::custom(format!(
                "\"{text}\" is not a range of addresses: write its first byte and the byte after \
                 its last one, as in \"640K..1M\""
            ))
        })
    }
}

/// Guests that the host had before this one. They ran at the same time, and most of them have
/// ended.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Former {
    /// The number of guests that the host had before.
    pub guests: u32,
    /// The number of former guests that are still running.
    pub left: u32,
    /// The memory of each former guest.
    pub memory: Bytes,
    /// The size of the blocks in which the former guests allocated their memory. For each block,
    /// the guest was chosen at random.
    pub granule: PageSize,
    /// The seed of the random numbers.
    #[serde(default = "one")]
    pub seed: u64,
    /// Where the numbers of this table come from.
    #[serde(default)]
    pub source: String,
}

/// Which caches of `[mmu_cache]` guest and host share (B10 section 7.1). Each value also shares all
/// caches that the value before it shares.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shared {
    /// Nothing is shared: guest and host have separate caches.
    #[default]
    None,
    /// The MMU cache also holds the host's entries that point to tables.
    MmuCache,
    /// The MMU cache also holds the host's translations, in place of a nested TLB.
    NestedTlb,
    /// The MMU cache also holds the guest's translations: it is the last level of the TLB.
    Tlb,
}

impl Shared {
    /// Whether nothing is shared.
    pub fn is_none(&self) -> bool {
        *self == Shared::None
    }
}

impl Nested {
    /// The host's page table, in the form of a machine's page table.
    pub fn page_table(&self) -> PageTable {
        PageTable {
            format: self.format.clone(),
            levels: self.levels,
            address_bits: None,
            nodes: None,
            table: None,
            entry_pages: None,
            partial_subblocks: None,
            replicated: None,
            packed: None,
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
            reservations: None,
            spec_tlb: None,
            holes: Vec::new(),
            former: None,
            shared: Shared::None,
            memory: Bytes(1 << 40),
            source: String::new(),
        }
    }
}
