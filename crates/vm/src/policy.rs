//! Policies that choose the page size at a fault, by the modules of the address range or without
//! them.
//!
//! ```text
//!   pm_create   --> Module: page size, wait or not, node      attach --> region
//!                                                                          |
//!   fault at an address --> FaultPolicy::choose(region, ...) <-------------+
//!                                  |
//!                                  v
//!                           Choice: size, what if none can be had
//! ```
//!
//! A policy only makes a request. Whether a page of that size can be loaded is determined
//! afterwards, step by step (G98 section 6.6); each step that fails gives a reason
//! ([`crate::Why`]).

use alloc::boxed::Box;

use addr::{Kind, PageSize};
use hat::HatSpace;

use crate::{
    module::{Fallback, Module},
    region::Region,
};

/// The information with which a policy chooses a size.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The space of the fault.
    pub space: HatSpace,
    /// The base page that is needed.
    pub page: u64,
    /// The kind of access.
    pub kind: Kind,
    /// The region of the page, with its module.
    pub region: &'a Region,
    /// The sizes that may be loaded, ascending from the base page.
    pub sizes: &'a [PageSize],
}

/// The request of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The size of the page.
    pub size: PageSize,
    /// The action if no page of this size is free.
    pub fallback: Fallback,
}

/// Chooses a size at each fault.
pub trait FaultPolicy: Send + Sync {
    /// The request for one fault. Several processors may call this function at the same time.
    fn choose(&self, ask: &Ask<'_>) -> Choice;
}

/// Always requests base pages.
struct BasePages;

/// Requests the page size of the region's module.
struct Modules;

impl FaultPolicy for BasePages {
    fn choose(&self, ask: &Ask<'_>) -> Choice {
        Choice { size: ask.sizes[0], fallback: Fallback::Smaller }
    }
}

impl FaultPolicy for Modules {
    fn choose(&self, ask: &Ask<'_>) -> Choice {
        let Module { page_size, fallback, .. } = ask.region.module;
        // If the machine does not support the size, the next smaller size is requested.
        let fits = |size: &&PageSize| page_size.is_some_and(|wished| **size <= wished);
        let size = ask.sizes.iter().rev().find(fits).unwrap_or(&ask.sizes[0]);
        Choice { size: *size, fallback }
    }
}

/// Creates a policy.
type Make = fn() -> Box<dyn FaultPolicy>;

/// All policies by name.
pub const FAULT_POLICIES: [(&str, Make); 2] =
    [("base", || Box::new(BasePages)), ("modules", || Box::new(Modules))];
