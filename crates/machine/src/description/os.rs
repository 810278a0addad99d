//! The operating system of a machine.

use addr::PageSize as AddrPageSize;
use serde::{Deserialize, Serialize};

use super::{Costs, is_false, units::PageSize};

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
    /// What its time is made of.
    #[serde(skip_serializing_if = "is_full")]
    pub clock: Clock,
    /// What the kernel's work costs; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// Why.
    pub source: String,
}

impl Default for Os {
    fn default() -> Os {
        let page_size = PageSize(AddrPageSize::SIZE_4K);
        Os { page_size, populated: false, clock: Clock::Full, costs: None, source: String::new() }
    }
}

/// What the operating system's time is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// Instructions, lookups of second-level TLBs, walks at a nominal price, the kernel's work.
    #[default]
    Full,
    /// Instructions alone: the same whatever TLBs the machine has.
    Instructions,
}

/// What is said by saying nothing, so that machines of before there was a choice keep their digest.
fn is_full(clock: &Clock) -> bool {
    *clock == Clock::Full
}
