//! The `[core]` of a machine.

use std::num::NonZero;

use serde::{Deserialize, Serialize};

use super::{is_false, is_true};

/// The most bits of a context that an [`Asid`] has room for.
pub const BITS_MAX: u8 = 16;

/// How contexts are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContextPolicy {
    /// A space's context is the remainder of its number, on each processor by itself.
    #[default]
    Modulo,
    /// The context that was entered longest ago is taken over.
    Lru,
    /// Each space gets the next one; when all are given, everything is flushed and they are given
    /// out anew.
    Generation,
    /// Least recently used, on each processor by itself.
    PerProcessor,
}

/// The processor core, as far as translation sees it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Core {
    /// How many processors there are. Each has its own TLBs, MMU cache and data caches but for
    /// `cache.l3`, which they share.
    #[serde(skip_serializing_if = "is_one")]
    pub count: u32,
    /// Whether fetches count; a study of data accesses leaves them out.
    pub fetches: bool,
    /// Bits of an address-space identifier in the TLB; 0: a switch flushes what is not global.
    pub asid_bits: u8,
    /// Whether entries for pages of the kernel stay where a switch flushes.
    #[serde(skip_serializing_if = "is_true")]
    pub global_pages: bool,
    /// Whether caches are looked up by the addresses that TLBs are asked for, and hold lines by them: a
    /// switch that empties TLBs empties these.
    #[serde(skip_serializing_if = "is_false")]
    pub virtual_caches: bool,
    /// How the operating system hands them out.
    #[serde(skip_serializing_if = "is_modulo")]
    pub contexts: ContextPolicy,
    /// Cycles an instruction takes when memory and translation cost nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles_per_instruction: Option<f64>,
    /// How many misses of the data caches can be under way at once, so that their waits overlap;
    /// 1: the core waits for each of them. Absent: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses_in_flight: Option<NonZero<u32>>,
    /// Where the numbers come from.
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

/// What is said by saying nothing, so that machines of before there was a choice keep their digest.
fn is_modulo(policy: &ContextPolicy) -> bool {
    *policy == ContextPolicy::Modulo
}
