//! How large a page a fault should load: policies, and the modules that a range has for them.
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
//! A policy only wishes. Whether a page of that size can be loaded is found out afterwards, step by
//! step (G98 section 6.6), and each step that says no has a reason ([`crate::Why`]).

use alloc::boxed::Box;

use addr::{Kind, PageSize};
use hat::HatSpace;

use crate::{
    module::{Fallback, Module},
    region::Region,
};

/// What is known when a size must be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Whose fault it is.
    pub space: HatSpace,
    /// The base page that is needed.
    pub page: u64,
    /// The access.
    pub kind: Kind,
    /// What is there, with its module.
    pub region: &'a Region,
    /// The sizes that may be loaded, ascending from the base page.
    pub sizes: &'a [PageSize],
}

/// What a policy wishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The size of the page.
    pub size: PageSize,
    /// What to do where none is free.
    pub fallback: Fallback,
}

/// Chooses a size at each fault.
pub trait FaultPolicy: Send + Sync {
    /// The wish for one fault. Several processors ask at once.
    fn choose(&self, ask: &Ask<'_>) -> Choice;
}

/// Base pages, whatever is asked for.
struct BasePages;

/// What the region's module says.
struct Modules;

impl FaultPolicy for BasePages {
    fn choose(&self, ask: &Ask<'_>) -> Choice {
        Choice { size: ask.sizes[0], fallback: Fallback::Smaller }
    }
}

impl FaultPolicy for Modules {
    fn choose(&self, ask: &Ask<'_>) -> Choice {
        let Module { page_size, fallback, .. } = ask.region.module;
        // A size that the machine has not: the next smaller one.
        let fits = |size: &&PageSize| page_size.is_some_and(|wished| **size <= wished);
        let size = ask.sizes.iter().rev().find(fits).unwrap_or(&ask.sizes[0]);
        Choice { size: *size, fallback }
    }
}

/// Makes a policy.
type Make = fn() -> Box<dyn FaultPolicy>;

/// All policies by name.
pub const FAULT_POLICIES: [(&str, Make); 2] =
    [("base", || Box::new(BasePages)), ("modules", || Box::new(Modules))];
