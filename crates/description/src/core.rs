//! The processor cores: the `[core]` table of a machine file.

use std::num::NonZero;

use serde::{Deserialize, Serialize};

use super::{is_false, is_true};

/// The most bits that an [`Asid`] holds.
pub const BITS_MAX: u8 = 16;

/// How the operating system assigns contexts (address-space identifiers) to spaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContextPolicy {
    /// A space's context is its number modulo the number of contexts. Each processor keeps its own
    /// contexts.
    #[default]
    Modulo,
    /// A space without a context takes the context of the space that was entered longest ago.
    Lru,
    /// Each space gets the next unused context. When all are used, the TLBs are flushed and all
    /// contexts are assigned anew.
    Generation,
    /// As `lru`, with contexts of its own for each processor.
    PerProcessor,
}

/// The processor cores, as far as translation depends on them.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Core {
    /// The number of processors. Each has its own TLBs, MMU cache and data caches, except that all
    /// share `cache.l3`.
    #[serde(skip_serializing_if = "is_one")]
    pub count: u32,
    /// Whether fetches are simulated; a study of data accesses leaves them out.
    pub fetches: bool,
    /// The number of bits of an address-space identifier in TLB entries; 0: a switch between spaces
    /// flushes all entries that are not global.
    pub asid_bits: u8,
    /// Whether the kernel's pages are global: their TLB entries survive the flush at a switch.
    #[serde(skip_serializing_if = "is_true")]
    pub global_pages: bool,
    /// Whether data caches are looked up by virtual address: a switch that flushes the TLBs flushes
    /// these caches too.
    #[serde(skip_serializing_if = "is_false")]
    pub virtual_caches: bool,
    /// How the operating system assigns address-space identifiers to spaces.
    #[serde(skip_serializing_if = "is_modulo")]
    pub contexts: ContextPolicy,
    /// Cycles per instruction if memory and translation cost nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles_per_instruction: Option<f64>,
    /// The most data-cache misses that can be outstanding at once, so that their latencies overlap;
    /// 1: the core waits for each miss. Absent: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses_in_flight: Option<NonZero<u32>>,
    /// Where the numbers of this table come from.
    pub source: String,
}

impl Default for Core {
    fn default() -> Core {
        Core {
            count: 1,
            fetches: true,
            asid_bits: 0,
            global_pages: true,
            virtual_caches: false,
            contexts: ContextPolicy::default(),
            cycles_per_instruction: None,
            misses_in_flight: None,
            source: String::new(),
        }
    }
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

/// Whether the value is the default, which is not written, so that machines from before the choice
/// existed keep their digest.
fn is_modulo(policy: &ContextPolicy) -> bool {
    *policy == ContextPolicy::Modulo
}
