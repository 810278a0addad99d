//! How TLBs are refilled, and the cache of earlier walks.

use serde::{Deserialize, Serialize};

use super::{is_false, lru, one, units::Ways};

/// How TLBs are refilled.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Walker {
    /// The cache that the walker's references look up first; absent: the first data cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enters: Option<String>,
    /// What refills the TLBs: hardware, or a software handler.
    pub kind: WalkerKind,
    /// Cycles of a refill in addition to its references and to a handler's instructions: for a trap
    /// and the return from it.
    pub refill_cycles: u32,
    /// Cycles of a refill after a load or a store, counted as for `refill_cycles`; absent: the same as
    /// after a fetch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_refill_cycles: Option<u32>,
    /// Cycles of a handler's miss on the page table itself, if the page table is `linear`; absent:
    /// 400.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nested_cycles: Option<u32>,
    /// Whether a clean page is entered into the TLB without the right to store, so that its first
    /// store is detected: hardware then sets the dirty bit, or the store traps to a software
    /// handler.
    #[serde(skip_serializing_if = "is_false")]
    pub tracks_dirty: bool,
    /// Cycles of a TLB exception that is not a refill, without references and instructions. For a
    /// handler: the trap for a page whose entry is invalid or forbids the access; absent:
    /// `refill_cycles`. For hardware: the assist that sets a dirty bit; absent: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_cycles: Option<u32>,
    /// For which processes the software handler sets the register with the page size of the new
    /// entry.
    #[serde(skip_serializing_if = "is_per_process")]
    pub page_mask: PageMask,
    /// Whether a walk reads only its last entry, as if all entries above it were known: the model
    /// of B10, section 6.3.3.
    #[serde(skip_serializing_if = "is_false")]
    pub lowest_only: bool,
    /// Where the numbers of this table come from.
    pub source: String,
}

/// For which processes a software handler sets the size of a page (G98 section 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageMask {
    /// For processes that request pages of several sizes: each process has its own handler.
    #[default]
    PerProcess,
    /// For all processes.
    Always,
}

/// Whether the value is the default, which is not written, so that machines from before the choice
/// existed keep their digest.
fn is_per_process(page_mask: &PageMask) -> bool {
    *page_mask == PageMask::PerProcess
}

/// The MMU cache: one array, or one array per level in the split designs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MmuCache {
    /// The design: `uptc`, `sptc`, `utc`, `stc`, `tpc`, or `none`.
    pub design: String,
    /// Whether a machine whose page table has no upper levels is built without the MMU cache. Otherwise such
    /// a machine is refused.
    #[serde(skip_serializing_if = "is_false")]
    pub optional: bool,
    /// The number of entries: of the array, or of each level's array in a split design; for a path
    /// cache, the number of paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u32>,
    /// The number of entries for level 2, which point to the lowest tables, in place of `entries`.
    /// 0: a split design has no array for level 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2_entries: Option<u32>,
    /// The number of entries for level 3, in place of `entries`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l3_entries: Option<u32>,
    /// The number of entries for level 4, in place of `entries`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l4_entries: Option<u32>,
    /// The number of entries for level 5, in place of `entries`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l5_entries: Option<u32>,
    /// The number of ways of a set in each array.
    pub ways: Ways,
    /// The replacement policy.
    pub replacement: String,
    /// Cycles of one lookup; lookups for one level after another add up.
    pub latency_cycles: u32,
    /// The size of physical addresses in bits, from which the sizes of tags and data are computed.
    pub physical_bits: u32,
    /// The seed of the random sequence, for policies that use one.
    pub seed: u64,
    /// Where the numbers of this table come from.
    pub source: String,
}

impl Default for MmuCache {
    fn default() -> MmuCache {
        MmuCache {
            design: "utc".to_owned(),
            optional: false,
            entries: None,
            l2_entries: None,
            l3_entries: None,
            l4_entries: None,
            l5_entries: None,
            ways: Ways::Full,
            replacement: lru(),
            latency_cycles: 0,
            // The most that x86-64 entries have room for.
            physical_bits: 52,
            seed: one(),
            source: String::new(),
        }
    }
}

impl MmuCache {
    /// The numbers of entries that are given for single levels: the level, the key and the number.
    pub fn by_level(&self) -> impl Iterator<Item = (u8, &'static str, u32)> {
        [
            (2, "l2_entries", self.l2_entries),
            (3, "l3_entries", self.l3_entries),
            (4, "l4_entries", self.l4_entries),
            (5, "l5_entries", self.l5_entries),
        ]
        .into_iter()
        .filter_map(|(level, key, entries)| Some((level, key, entries?)))
    }
}

/// The kind of walker: hardware or software.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WalkerKind {
    /// Hardware walks the page table. Its walks set accessed and dirty bits if the format has them.
    #[default]
    Hardware,
    /// A software refill handler, whose instructions are counted. Accessed and dirty bits are set
    /// by the kernel, not by walks.
    Software,
}
