//! What a machine file may say. One struct a table of the file; every table that holds numbers
//! has a `source` for them.
//!
//! ```text
//! [core]        what runs: which accesses count, cycles an instruction takes
//! [tlb.NAME]    l1 | l1i l1d l1s, then l2 | l2i l2d: arrays, ways, policies
//! [page_table]  the format and its levels; absent: translation costs nothing, TLBs only
//! [walker]      who refills a TLB, and the cache at which its references enter
//! [mmu_cache]   what the walker remembers of earlier walks
//! [nested]      a virtual machine: the host's page table, nested TLB, MMU cache
//! [cache.NAME]  l1i, l1d, l2, l3: size, ways, line, latency
//! [memory]      size and latency of what lies behind the caches
//! [os]          the page size it maps
//! ```

use addr::{Kind, PageSize as AddrPageSize};
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, PageSize, Ways};

/// A machine file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// One line: what machine this is.
    pub title: String,
    /// Where it is described.
    pub source: String,
    /// What runs on it.
    #[serde(default)]
    pub core: Core,
    /// The TLBs by name.
    pub tlb: Tlbs,
    /// The page table; absent on a machine of TLBs alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_table: Option<PageTable>,
    /// Who walks it.
    #[serde(default)]
    pub walker: Walker,
    /// What the walker remembers; absent: every walk starts at the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mmu_cache: Option<MmuCache>,
    /// The host, if all this runs in a virtual machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nested: Option<Nested>,
    /// The data caches by name.
    #[serde(default)]
    pub cache: Caches,
    /// Physical memory.
    #[serde(default)]
    pub memory: Memory,
    /// The operating system.
    #[serde(default)]
    pub os: Os,
}

impl Description {
    /// The smallest page that a TLB is given: in a virtual machine that of guest or host,
    /// whichever is smaller.
    pub fn tlb_page_size(&self) -> AddrPageSize {
        let guest = self.os.page_size.0;
        self.nested.as_ref().map_or(guest, |host| guest.min(host.page_size.0))
    }
}

/// The processor core, as far as translation sees it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Core {
    /// Whether fetches count; a study of data accesses leaves them out.
    pub fetches: bool,
    /// Bits of an address-space identifier in the TLB; 0: a switch flushes what is not global.
    pub asid_bits: u8,
    /// Cycles an instruction takes when memory and translation cost nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles_per_instruction: Option<f64>,
    /// Where the numbers come from.
    pub source: String,
}

impl Default for Core {
    fn default() -> Core {
        Core { fetches: true, asid_bits: 0, cycles_per_instruction: None, source: String::new() }
    }
}

/// The TLBs: one unified first level (`l1`), or one for fetches and one for data, which may be
/// split once more into loads (`l1d`) and stores (`l1s`); then a second level in the same way.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tlbs {
    /// First level, every kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1: Option<Tlb>,
    /// First level, fetches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1i: Option<Tlb>,
    /// First level, loads, and stores unless `l1s` is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1d: Option<Tlb>,
    /// First level, stores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1s: Option<Tlb>,
    /// Second level, every kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2: Option<Tlb>,
    /// Second level, fetches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2i: Option<Tlb>,
    /// Second level, loads and stores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2d: Option<Tlb>,
}

impl Tlbs {
    /// The TLBs that there are: name, level and description, first level first.
    pub fn present(&self) -> impl Iterator<Item = (&'static str, u8, &Tlb)> {
        [
            ("l1", 1, &self.l1),
            ("l1i", 1, &self.l1i),
            ("l1d", 1, &self.l1d),
            ("l1s", 1, &self.l1s),
            ("l2", 2, &self.l2),
            ("l2i", 2, &self.l2i),
            ("l2d", 2, &self.l2d),
        ]
        .into_iter()
        .filter_map(|(name, level, tlb)| Some((name, level, tlb.as_ref()?)))
    }

    /// The TLB of `level` that an access of `kind` looks up: the most special one wins.
    pub fn serving(&self, level: u8, kind: Kind) -> Option<&'static str> {
        let names: &[(&'static str, &Option<Tlb>)] = match (level, kind) {
            (1, Kind::Fetch) => &[("l1i", &self.l1i), ("l1", &self.l1)],
            (1, Kind::Load) => &[("l1d", &self.l1d), ("l1", &self.l1)],
            (1, Kind::Store) => &[("l1s", &self.l1s), ("l1d", &self.l1d), ("l1", &self.l1)],
            (_, Kind::Fetch) => &[("l2i", &self.l2i), ("l2", &self.l2)],
            (_, _) => &[("l2d", &self.l2d), ("l2", &self.l2)],
        };
        names.iter().find(|(_, tlb)| tlb.is_some()).map(|(name, _)| *name)
    }
}

/// A TLB: one array, given here, or several under `array` that are looked up together.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// Entries of the only array; a pair counts as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u32>,
    /// Its ways.
    #[serde(default)]
    pub ways: Ways,
    /// Its replacement policy.
    #[serde(default = "lru")]
    pub replacement: String,
    /// The page sizes it holds; all that the machine has if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_sizes: Option<Vec<PageSize>>,
    /// Several arrays in place of one, as where each page size has its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub array: Vec<Array>,
    /// Whether an entry maps two adjacent pages under one tag.
    #[serde(default)]
    pub paired: bool,
    /// Cycles that a hit here adds to an access.
    #[serde(default)]
    pub latency_cycles: u32,
    /// Start of the random sequence, for the policies that use one.
    #[serde(default = "one")]
    pub seed: u64,
    /// Where the numbers come from.
    #[serde(default)]
    pub source: String,
}

impl Tlb {
    /// Its arrays, whichever way they were given.
    pub fn arrays(&self) -> Vec<Array> {
        match self.entries {
            Some(entries) => vec![Array {
                entries,
                ways: self.ways,
                replacement: Some(self.replacement.clone()),
                page_sizes: self.page_sizes.clone(),
            }],
            None => self.array.clone(),
        }
    }
}

/// One array of a TLB.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Array {
    /// Entries; a pair counts as one.
    pub entries: u32,
    /// Ways.
    #[serde(default)]
    pub ways: Ways,
    /// Replacement policy; the TLB's if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<String>,
    /// The page sizes it holds; all that the machine has if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_sizes: Option<Vec<PageSize>>,
}

/// The page table.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PageTable {
    /// The organisation; `table::FORMATS` has the names.
    pub format: String,
    /// Levels of an `x86-64` tree; 4 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<u8>,
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
    /// Bytes of a software TLB in front of the table; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub software_tlb: Option<Bytes>,
    /// Where the numbers come from.
    #[serde(default)]
    pub source: String,
}

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
    /// Cycles of a handler's miss on the page table itself, where that is `linear`; 400 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nested_cycles: Option<u32>,
    /// Where the numbers come from.
    pub source: String,
}

/// The MMU cache: one array, or one a level in the split designs.
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
    /// Bytes of the host's frames; those of the guest are `memory.size`.
    pub memory: Bytes,
    /// Where the numbers come from.
    pub source: String,
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
            memory: Bytes(1 << 40),
            source: String::new(),
        }
    }
}

/// The data caches: fetches go through l1i, l2, l3; data through l1d, l2, l3.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Caches {
    /// First level, fetches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1i: Option<Cache>,
    /// First level, loads and stores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l1d: Option<Cache>,
    /// Second level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2: Option<Cache>,
    /// Third level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l3: Option<Cache>,
}

impl Caches {
    /// The caches that there are, nearest first.
    pub fn present(&self) -> impl Iterator<Item = (&'static str, &Cache)> {
        [("l1i", &self.l1i), ("l1d", &self.l1d), ("l2", &self.l2), ("l3", &self.l3)]
            .into_iter()
            .filter_map(|(name, cache)| Some((name, cache.as_ref()?)))
    }
}

/// One data cache.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Bytes of data it holds.
    pub size: Bytes,
    /// Bytes of a line.
    pub line: Bytes,
    /// Ways.
    pub ways: Ways,
    /// Replacement policy: `lru` or `tree-plru`.
    #[serde(default = "lru")]
    pub replacement: String,
    /// Cycles from the request to the data when it hits here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_cycles: Option<u32>,
    /// Where the numbers come from.
    #[serde(default)]
    pub source: String,
}

/// Physical memory.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Bytes of frames.
    pub size: Bytes,
    /// Cycles from the request to the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_cycles: Option<u32>,
    /// Where the numbers come from.
    pub source: String,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { size: Bytes(1 << 40), latency_cycles: None, source: String::new() }
    }
}

/// The operating system.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Os {
    /// The page size of every mapping.
    pub page_size: PageSize,
    /// Whether each page is mapped before it is first touched, so that no walk faults, as in a
    /// program that has touched them all long ago.
    #[serde(skip_serializing_if = "is_false")]
    pub populated: bool,
    /// Why.
    pub source: String,
}

impl Default for Os {
    fn default() -> Os {
        let page_size = PageSize(AddrPageSize::SIZE_4K);
        Os { page_size, populated: false, source: String::new() }
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

fn lru() -> String {
    "lru".to_owned()
}

fn one() -> u64 {
    1
}
