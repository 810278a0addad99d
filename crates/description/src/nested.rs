//! The host of a virtual machine.

use std::fmt;

use addr::PageSize as AddrPageSize;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    MmuCache, PageTable, SpecTlb, Tlb, one,
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
    /// Room that the host keeps for large pages of the guest's memory; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<NestedReservations>,
    /// What predicts where guest-physical addresses lie; nothing if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_tlb: Option<SpecTlb>,
    /// Where devices are in the guest's memory: the host maps nothing there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holes: Vec<Hole>,
    /// Guests that the host had before; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub former: Option<Former>,
    /// What the host shares with its guest.
    #[serde(skip_serializing_if = "Shared::is_none")]
    pub shared: Shared,
    /// Bytes of the host's frames; those of the guest are `memory.size`.
    pub memory: Bytes,
    /// Where the numbers come from.
    pub source: String,
}

/// Room for large pages of a guest's memory (B10 section 6.5.2).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NestedReservations {
    /// How large; of several the largest for which there is room.
    pub sizes: Vec<PageSize>,
}

/// Guest-physical addresses that are no memory: `"640K..1M"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hole {
    /// The first byte.
    pub first: u64,
    /// The byte behind the last one.
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

/// Guests that the host had before: they came at the same time, and most have gone.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Former {
    /// How many there were.
    pub guests: u32,
    /// How many of them are still there.
    pub left: u32,
    /// The memory of each.
    pub memory: Bytes,
    /// The blocks in which they took it, one guest's after another's at random.
    pub granule: PageSize,
    /// Where the random numbers begin.
    #[serde(default = "one")]
    pub seed: u64,
    /// Where the numbers come from.
    #[serde(default)]
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
