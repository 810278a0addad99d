//! The page-table formats that a machine file can name: one row each, with all data and functions
//! that depend on the format.
//!
//! ```text
//!   name        keys                     walked  handler              build
//!   "mpt"       software_tlb, ...        Down    5 a node, 4 a page   |build| build.radix(...)
//! ```
//!
//! Every row has all parts, so that a new format cannot omit a part. No other code in this crate
//! tests the name of a format.

use addr::Memory;
use description::{BITS_MAX, PageTable, Refusal};
use pagetable::{ElasticCuckoo, Guarded, HashedShape, Irix, Mount, Mpt, SparcReference, Split};

use super::{
    build::{Build, Mounting, mounted, refused},
    path::{Path, SAVE},
};

/// The number of context bits in the root register CR3 (Intel SDM volume 3 §4.10.1).
const PCID_BITS: u8 = 12;

/// The number of ASID bits in satp on RV64 (Privileged Architecture, "Supervisor Address
/// Translation and Protection Register").
const SATP_ASID_BITS: u8 = 16;

/// The number of ASID bits in a TTBR (DDI 0487, TTBR0_EL1; with TCR_EL1.AS = 1).
const TTBR_ASID_BITS: u8 = 16;

/// The number of context bits of the SuperSPARC, which has 65,536 contexts (K94 §6.2).
const SPARC_CONTEXT_BITS: u8 = 16;

/// How the entry of a page is accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walked {
    /// By physical addresses only.
    Physically,
    /// By a virtual address, which the TLB must translate first.
    ThroughTlb,
}

/// How the addresses of small spaces are relocated before they reach the TLB, and the addresses to
/// which they are relocated (U02 sections 2.2 and 6).
#[derive(Clone, Copy, Debug)]
pub struct Relocation {
    /// The bytes of memory that an entry of a root covers; the next field has the bytes of the
    /// entry.
    pub covers: u64,
    pub entry_bytes: u64,
    /// The address after the last slot.
    pub end: u64,
    /// The default size of all slots together in bytes; the next field has the default size of one
    /// slot.
    pub area: u64,
    pub slot: u64,
    /// Whether the size of slots is fixed by the hardware.
    pub is_fixed: bool,
    /// The largest number of slots that can be distinguished.
    pub slots_max: u64,
    /// Whether TLB entries of small spaces can stay when a root is loaded.
    pub has_global: bool,
}

/// Relocation by segments, which can have any base and limit. The slots end where the kernel's
/// addresses begin.
const SEGMENTS: Relocation = Relocation {
    covers: 4 << 20,
    entry_bytes: 4,
    end: 0xe000_0000,
    area: 2 << 30,
    slot: 256 << 20,
    is_fixed: false,
    slots_max: u64::MAX,
    has_global: true,
};

/// Relocation by the PID register, which replaces the upper seven bits of addresses below 32M
/// (SA-1110 Developer's Manual section 6.2). The first of these bits is 0. One of the 16 domains
/// belongs to the kernel, and spaces without a domain cannot be kept out of each other's slots
/// (Wiggins and Heiser 2000). PIDs are assigned from the highest downwards.
const PID_AND_DOMAINS: Relocation = Relocation {
    covers: 1 << 20,
    entry_bytes: 4,
    end: 2 << 30,
    area: 15 * (32 << 20),
    slot: 32 << 20,
    is_fixed: true,
    slots_max: 15,
    has_global: false,
};

/// A format.
#[derive(Clone)]
pub struct Format<M> {
    /// The name in machine files.
    pub name: &'static str,
    /// The keys of `[page_table]` that the format accepts besides `format` and `source`.
    pub(super) keys: &'static [&'static str],
    pub walked: Walked,
    /// The largest number of context bits of hardware with this format, as far as the format
    /// determines it.
    pub context_bits: u8,
    /// Whether a page's entry has a bit that hardware ignores, for marks of the system.
    pub has_marks: bool,
    /// How processors with this format relocate the addresses of small spaces, if they support
    /// relocation.
    pub relocation: Option<Relocation>,
    /// The settings that select a table of the same family for longer addresses: the number of bits
    /// of a sign-extended address, and the setting, ascending.
    pub wider: &'static [(u32, &'static str)],
    /// The instructions of a software refill handler for a table of the format.
    pub handler: fn(&PageTable) -> Path,
    pub(super) build: fn(Build<'_, M>) -> Mounting,
}

impl<M: Memory + Send + Sync + 'static> Format<M> {
    /// All formats.
    pub const ALL: [Format<M>; 21] = [
        Format {
            name: "x86-64",
            keys: &["software_tlb", "levels", "remembers_leaf"],
            walked: Walked::Physically,
            context_bits: PCID_BITS,
            has_marks: true,
            relocation: None,
            wider: &[(57, "page_table.levels=5")],
            handler: |_| RADIX,
            build: |build| match build.table.levels.unwrap_or(4) {
                4 => build.x86_64::<4>(),
                5 => build.x86_64::<5>(),
                levels => {
                    let what = format!("x86-64 has 4 or 5 levels, not {levels}");
                    Err(Refusal::new("page_table.levels", what))
                }
            },
        },
        Format {
            name: "x86-32",
            keys: &["software_tlb", "remembers_leaf"],
            walked: Walked::Physically,
            // No processor has contexts in this mode. This value allows experiments with contexts
            // that such a processor might have.
            context_bits: PCID_BITS,
            has_marks: true,
            relocation: Some(SEGMENTS),
            wider: &[],
            handler: |_| RADIX,
            build: |build| build.x86_32::<false>(),
        },
        Format {
            name: "x86-pae",
            keys: &["software_tlb", "remembers_leaf"],
            walked: Walked::Physically,
            context_bits: PCID_BITS,
            has_marks: true,
            relocation: Some(Relocation { covers: 1 << 30, entry_bytes: 8, ..SEGMENTS }),
            wider: &[],
            handler: |_| RADIX,
            build: |build| build.x86_32::<true>(),
        },
        Format {
            name: "arm",
            keys: &["software_tlb", "remembers_leaf"],
            walked: Walked::Physically,
            // Processors got contexts only with ARMv6, which came later. This value allows
            // experiments with contexts that earlier processors might have had.
            context_bits: 8,
            has_marks: true,
            relocation: Some(PID_AND_DOMAINS),
            wider: &[],
            handler: |_| RADIX,
            build: |build| build.arm(),
        },
        Format {
            name: "sparc-reference",
            keys: &["software_tlb", "remembers_leaf"],
            walked: Walked::Physically,
            context_bits: SPARC_CONTEXT_BITS,
            has_marks: false,
            relocation: None,
            wider: &[],
            handler: |_| RADIX,
            build: |build| {
                if build.marks {
                    build.radix(SparcReference::<true>::new())
                } else {
                    build.radix(SparcReference::<false>::new())
                }
            },
        },
        Format {
            name: "sv39",
            keys: &["software_tlb", "remembers_leaf"],
            walked: Walked::Physically,
            context_bits: SATP_ASID_BITS,
            has_marks: true,
            relocation: None,
            wider: &[(48, "page_table.format=sv48"), (57, "page_table.format=sv57")],
            handler: |_| RADIX,
            build: |build| build.riscv::<3>(),
        },
        Format {
            name: "sv48",
            keys: &["software_tlb", "remembers_leaf"],
            walked: Walked::Physically,
            context_bits: SATP_ASID_BITS,
            has_marks: true,
            relocation: None,
            wider: &[(57, "page_table.format=sv57")],
            handler: |_| RADIX,
            build: |build| build.riscv::<4>(),
        },
        Format {
            name: "sv57",
            keys: &["software_tlb", "remembers_leaf"],
            walked: Walked::Physically,
            context_bits: SATP_ASID_BITS,
            has_marks: true,
            relocation: None,
            wider: &[],
            handler: |_| RADIX,
            build: |build| build.riscv::<5>(),
        },
        Format {
            name: "aarch64",
            keys: &["software_tlb", "remembers_leaf", "address_bits"],
            walked: Walked::Physically,
            context_bits: TTBR_ASID_BITS,
            has_marks: true,
            relocation: None,
            // Each of the two tables maps addresses of 52 bits; the upper table maps those whose
            // upper bits are ones.
            wider: &[(53, "page_table.address_bits=52")],
            handler: |_| RADIX,
            build: |build| {
                let bits = build.table.address_bits.unwrap_or(48);
                match (build.base.shift(), bits) {
                    (12, 48) => build.aarch64::<12, 48>(),
                    (12, 52) => build.aarch64::<12, 52>(),
                    (14, 48) => build.aarch64::<14, 48>(),
                    (14, 52) => build.aarch64::<14, 52>(),
                    (16, 48) => build.aarch64::<16, 48>(),
                    (16, 52) => build.aarch64::<16, 52>(),
                    (12 | 14 | 16, bits) => {
                        let what = format!("addresses of aarch64 have 48 or 52 bits, not {bits}");
                        Err(Refusal::new("page_table.address_bits", what))
                    }
                    (_, _) => {
                        let what = format!(
                            "aarch64 has granules of 4K, 16K and 64K, not base pages of {}",
                            build.base
                        );
                        Err(Refusal::new("os.base_page", what))
                    }
                }
            },
        },
        Format {
            name: "flattened",
            keys: &["software_tlb", "remembers_leaf"],
            walked: Walked::Physically,
            context_bits: PCID_BITS,
            has_marks: false,
            relocation: None,
            wider: &[],
            handler: |_| RADIX,
            build: |build| {
                let split = Split::flattened().map_err(refused("format"))?;
                let split = if build.marks { split.with_usage() } else { split };
                build.radix(split)
            },
        },
        Format {
            name: "mpt",
            keys: &["software_tlb", "remembers_leaf"],
            walked: Walked::Physically,
            context_bits: BITS_MAX,
            has_marks: false,
            relocation: None,
            wider: &[],
            handler: |_| MPT,
            build: |build| {
                let mpt = if build.marks { Mpt::with_usage() } else { Mpt::new() };
                build.radix(mpt)
            },
        },
        Format {
            name: "irix",
            keys: &["remembers_leaf"],
            walked: Walked::Physically,
            context_bits: BITS_MAX,
            has_marks: false,
            relocation: None,
            wider: &[],
            // The instructions of an `mpt`, except two: a pointer contains no number of entries that
            // must be masked, and the leaf is not tested.
            handler: |_| Path { search: SAVE, node: 5, entry: 4, narrow: 4, ..Path::NONE },
            build: |build| {
                let irix = Irix::new(build.base)
                    .map_err(|error| Refusal::new("os.base_page", error.to_string()))?;
                let irix = if build.marks { irix.with_usage() } else { irix };
                build.radix(irix)
            },
        },
        Format {
            name: "linear",
            keys: &[],
            walked: Walked::ThroughTlb,
            context_bits: BITS_MAX,
            has_marks: false,
            relocation: None,
            wider: &[],
            // The address of the entry is in a register when the trap comes: load.
            handler: |_| Path { entry: 1, narrow: 1, ..Path::NONE },
            build: |build| {
                let table = Split::linear().map_err(refused("format"))?;
                mounted(Mount::tree(table, build.memory))
            },
        },
        Format {
            name: "guarded",
            keys: &["software_tlb", "nodes"],
            walked: Walked::Physically,
            context_bits: BITS_MAX,
            has_marks: false,
            relocation: None,
            wider: &[],
            handler: |_| GUARDED,
            build: |build| {
                let nodes = build.table.nodes.unwrap_or(16);
                let guarded = Guarded::new(nodes).map_err(refused("nodes"))?;
                let guarded = if build.marks { guarded.with_usage() } else { guarded };
                build.tree(guarded)
            },
        },
        Format {
            name: "guarded-adaptive",
            keys: &["software_tlb"],
            walked: Walked::Physically,
            context_bits: BITS_MAX,
            has_marks: false,
            relocation: None,
            wider: &[],
            handler: |_| ADAPTIVE,
            build: |build| {
                let guarded = Guarded::adaptive();
                let guarded = if build.marks { guarded.with_usage() } else { guarded };
                build.tree(guarded)
            },
        },
        Format {
            name: "hashed",
            keys: &["software_tlb", "table", "entry_pages", "replicated", "packed"],
            walked: Walked::Physically,
            context_bits: BITS_MAX,
            has_marks: false,
            relocation: None,
            wider: &[],
            handler: |table| chains(table, HASHED),
            build: |build| build.hashed(HashedShape::H128K),
        },
        Format {
            name: "clustered",
            keys: &[
                "software_tlb",
                "table",
                "entry_pages",
                "partial_subblocks",
                "replicated",
                "packed",
            ],
            walked: Walked::Physically,
            context_bits: BITS_MAX,
            has_marks: false,
            relocation: None,
            wider: &[],
            handler: |table| chains(table, CLUSTERED),
            build: |build| build.hashed(HashedShape::C128K),
        },
        Format {
            name: "inverted",
            keys: &["software_tlb", "entry_pages", "replicated", "packed"],
            walked: Walked::Physically,
            context_bits: BITS_MAX,
            has_marks: false,
            relocation: None,
            wider: &[],
            // To find the bucket: multiply the page number twice (4), fold (2) and mask (1) the
            // result. A tag and its pointer are read together: two loads, two branches.
            handler: |_| Path { search: 7 + SAVE, entry: 4, narrow: 4, ..Path::NONE },
            build: |build| {
                let pages = build.table.entry_pages.unwrap_or(1);
                let shape = HashedShape::inverted(build.memory_bytes, pages);
                build.hashed(shape)
            },
        },
        Format {
            name: "tsb",
            keys: &["table"],
            walked: Walked::Physically,
            context_bits: BITS_MAX,
            has_marks: false,
            relocation: None,
            wider: &[],
            // After a miss of the TSB, the handler searches clustered chains.
            handler: |table| chains(table, CLUSTERED),
            build: |build| build.tsb(),
        },
        Format {
            name: "powerpc",
            keys: &[],
            walked: Walked::Physically,
            context_bits: BITS_MAX,
            has_marks: false,
            relocation: None,
            wider: &[],
            // After a miss of the hashed table, the handler walks a tree with the format of
            // `x86-64`.
            handler: |_| RADIX,
            build: |build| build.powerpc(),
        },
        Format {
            name: "elastic-cuckoo",
            keys: &["software_tlb"],
            walked: Walked::Physically,
            context_bits: BITS_MAX,
            has_marks: false,
            relocation: None,
            wider: &[],
            // For each way: compute a hash (6), load the eight words of a line (8), assemble the
            // tag from its eight parts (16), branch (1), compute the position of the page (2).
            handler: |_| Path { search: SAVE, entry: 33, narrow: 33, ..Path::NONE },
            build: |build| {
                let cuckoo = ElasticCuckoo::new(3, 16 << 10).map_err(refused("format"))?;
                let cuckoo = if build.marks { cuckoo.with_usage() } else { cuckoo };
                build.any(cuckoo)
            },
        },
    ];

    /// The format that is called `name`.
    pub fn named(name: &str) -> Option<Format<M>> {
        Format::ALL.into_iter().find(|format| format.name == name)
    }
}

/// At each node: branch if the entry is empty (1), shift the index into an offset (1), mask the
/// number of entries in the lower bits of the pointer (1), mask the index (1), add it (1), load (1).
/// At the root, the branch and the first mask are not needed. Instead the address of the root and
/// the mask are loaded (2).
const MPT: Path = Path { search: SAVE, node: 6, entry: 6, narrow: 6, ..Path::NONE };

/// The instructions of an `mpt`, and a test whether the entry is a superpage (1).
const RADIX: Path = Path { node: 7, ..MPT };

/// At each node: compare address and guard (1), extract the shift from the guard (2), shift (1),
/// test whether the valid bits of the guard differ (2), mask the index (1), add it (1), load guard
/// and pointer (2), leave the loop at an external node (2). At an external node, the position of the
/// pair is known, and only its guard is compared (3). The 9 other instructions of `entry` are those of
/// each search: save and restore two registers (4), load the root and its guard and test them (5).
const GUARDED: Path = Path { node: 12, entry: 12, narrow: 1, ..Path::NONE };

/// The instructions of a `guarded` table. In addition, the number of index bits is extracted from the
/// guard at each node (3), and another register is saved and restored (2).
const ADAPTIVE: Path = Path { node: 15, entry: 14, ..GUARDED };

/// To find the bucket: shift (1), fold twice (4), load the address of the table and add it (2); the
/// mask is counted by `chains`. The expected tag is computed (3), and a register is saved and
/// restored (2). For a tag: load, branch, and the instruction in the delay slot of the branch. For a
/// pointer: as many. To move an entry to the front of its chain, another register is saved and
/// restored (2).
const HASHED: Path =
    Path { search: 12, node: 0, entry: 3, narrow: 1, chained: 0, change: 1, moved: 2 };

/// The instructions of a `hashed` table. In addition, the position of the page in its cluster must be
/// computed (3). Behind the first entry, the handler reads the address register once more (1).
const CLUSTERED: Path = Path { narrow: 4, chained: 1, ..HASHED };

/// The largest size of a table in bytes for which one instruction masks the position of a bucket: its
/// constant has 16 bits.
const MASKED_AT_ONCE: u64 = 64 << 10;

/// The path of chains in this table, with the mask of the position of a bucket: one instruction, or two
/// if the mask is loaded.
fn chains(table: &PageTable, path: Path) -> Path {
    let is_loaded = table.table.is_none_or(|bytes| bytes.0 > MASKED_AT_ONCE);
    Path { search: path.search + if is_loaded { 2 } else { 1 }, ..path }
}
