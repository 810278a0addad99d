//! The page tables of the Rust registry: `x86_64`'s `OffsetPageTable`, and that of
//! `page_table_multiarch`. Both work in an [`Arena`] of their own, as ours do.
//!
//! Both change entries by plain loads and stores, which is wrong where walkers run. With `WALKERS`
//! a thin wrapper gives them the exchange that a kernel needs: rights by a compare-and-exchange
//! that keeps the accessed and dirty bits, removal by a swap whose result has them.

mod entries;
mod multiarch;
mod offset;

pub(crate) use entries::{A64, Coded, Entry, Rv64};
pub(crate) use multiarch::{Exchanged, Multiarch};
pub(crate) use offset::Offset;

/// The accessed and the dirty bit of x86-64: what walkers set.
pub(crate) const MARKS: u64 = 1 << 5 | 1 << 6;
