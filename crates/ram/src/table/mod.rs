//! The page tables that a machine can have: which names there are, and what each is built of.
//!
//! A machine chooses its table when it is built, so each is [`Mounted`](pagetable::Mounted) in the
//! memory that it lies in; only misses, faults and events come this way.

mod build;
mod flat;
mod formats;
pub mod path;
pub mod small;

use pagetable::SparseMemory;

pub use build::new;
pub use formats::{Relocation, Walked};

/// What is known of a machine's page-table format before it is built.
pub type Format = formats::Format<SparseMemory>;

/// What machine files call the organisations of page tables that there are.
pub fn page_table_formats() -> impl Iterator<Item = &'static str> {
    Format::ALL.into_iter().map(|format| format.name)
}
