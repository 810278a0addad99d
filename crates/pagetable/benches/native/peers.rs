//! The page tables of other crates: `OffsetPageTable` of `x86_64`, and the table of
//! `page_table_multiarch`. Each uses its own [`Arena`], as our tables do.
//!
//! Both change entries by plain loads and stores, which is wrong if walkers run. With `WALKERS`, a
//! thin wrapper gives them the exchange that a kernel needs: rights are changed by a
//! compare-and-exchange that keeps the accessed and dirty bits, and entries are removed by a swap
//! that returns them.

mod entries;
mod multiarch;
mod offset;

pub(crate) use entries::{A64, Coded, Entry, Rv64};
pub(crate) use multiarch::{Exchanged, Multiarch};
pub(crate) use offset::Offset;

/// The accessed and dirty bits of x86-64, which walkers set.
pub(crate) const MARKS: u64 = 1 << 5 | 1 << 6;
