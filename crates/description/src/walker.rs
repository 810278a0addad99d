//! Who refills a TLB, and what it remembers.

use serde::{Deserialize, Serialize};

use super::{is_false, lru, one, units::Ways};

/// Who refills a TLB.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Walker {
    /// The cache at which its references enter; the first data cache if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enters: Option<String>,
    /// Hardware, or a handler in software.
    pub kind: WalkerKind,
    /// Cycles of one refill besides its references and a handler's instructions: a trap and
    /// the return from it.
    pub refill_cycles: u32,
    /// Cycles of one refill after a load or a store has missed, as `refill_cycles` counts them; absent: as
    /// many as after a fetch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_refill_cycles: Option<u32>,
    /// Cycles of a handler's miss on the page table itself, where that is `linear`; 400 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nested_cycles: Option<u32>,
    /// Whether a clean page is filled into the TLB without the right to store, so that its first
    /// store is seen: hardware sets the dirty bit then, and a handler in software is trapped to.
    #[serde(skip_serializing_if = "is_false")]
    pub tracks_dirty: bool,
    /// Cycles of a TLB exception that is no refill, besides references and instructions: of a
    /// handler's trap to a page whose entry is invalid or forbids the access, `refill_cycles` if
    /// absent; of the assist with which hardware sets a dirty bit, 0 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception_cycles: Option<u32>,
    /// For which processes the handler sets the register with the size of the page to be entered.
    #[serde(skip_serializing_if = "is_per_process")]
    pub page_mask: PageMask,
    /// Whether a walk reads the last of its entries alone, as if all above it were known: B10's
    /// model of section 6.3.3.
    #[serde(skip_serializing_if = "is_false")]
    pub lowest_only: bool,
    /// Where the numbers come from.
    pub source: String,
}

/// For which processes a handler in software sets the size of a page (G98 section 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageMask {
    /// For those that ask for pages of several sizes: each process has a handler of its own.
    #[default]
    PerProcess,
    /// For all.
    Always,
}

/// What is said by saying nothing, so that machines of before there was a choice keep their digest.
fn is_per_process(page_mask: &PageMask) -> bool {
    *page_mask == PageMask::PerProcess
}

/// The MMU cache: one array, or one per level in the split designs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct MmuCache {
    /// `uptc`, `sptc`, `utc`, `stc`, `tpc`, or `none`.
    pub design: String,
    /// Entries; of a split design, of each level; of a path cache, paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u32>,
    /// Entries of level 2 alone, which lead to the lowest tables; 0 if a split design has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2_entries: Option<u32>,
    /// Of level 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l3_entries: Option<u32>,
    /// Of level 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l4_entries: Option<u32>,
    /// Of level 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l5_entries: Option<u32>,
    /// Ways of each array.
    pub ways: Ways,
    /// Replacement policy.
    pub replacement: String,
    /// Cycles of one search; searches for one level after the other add up.
    pub latency_cycles: u32,
    /// Bits of a physical address, for the sizes of tags and data.
    pub physical_bits: u32,
    /// Start of the random sequence, for the policies that use one.
    pub seed: u64,
    /// Where the numbers come from.
    pub source: String,
}

impl Default for MmuCache {
    fn default() -> MmuCache {
        MmuCache {
            design: "utc".to_owned(),
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
    /// Entries given for a level of their own: the level, the key and the number.
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

/// What a walker is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WalkerKind {
    /// Hardware, whose walks set usage bits where the format has them.
    #[default]
    Hardware,
    /// A refill handler, whose instructions count; the kernel sets usage bits elsewhere.
    Software,
}
