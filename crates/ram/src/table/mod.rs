//! The page tables that a machine can have: their names, and how each is built.
//!
//! A machine's table is chosen when the machine is built, so each table is used through the trait
//! [`Mounted`](pagetable::Mounted): a table in the memory that holds it. Only misses, faults and
//! events call it, so the indirect calls cost little.

mod build;
mod flat;
mod formats;
pub mod path;
pub mod small;

use pagetable::SparseMemory;

pub use build::new;
pub use formats::{Relocation, Walked};

/// Data about a page-table format that are needed before the table is built.
pub type Format = formats::Format<SparseMemory>;

/// The names of page-table organisations in machine files.
pub fn page_table_formats() -> impl Iterator<Item = &'static str> {
    Format::ALL.into_iter().map(|format| format.name)
}
