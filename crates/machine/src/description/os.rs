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
    /// What the kernel's work costs; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// Why.
    pub source: String,
}

impl Default for Os {
    fn default() -> Os {
        let page_size = PageSize(AddrPageSize::SIZE_4K);
        Os { page_size, populated: false, costs: None, source: String::new() }
    }
}
