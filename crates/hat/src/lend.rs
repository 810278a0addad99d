//! Tables of one space, visible through the root of another: the mechanism of [small
//! spaces](crate::small).
//!
//! ```text
//!   root of the space that runs                      root of a small space
//!   | its own entries | area: . . c . | ... |        | e . . . . . . . . . |
//!                                 |                    |       |
//!                                 +-----> table <------+       +--> (c): where e is copied to
//! ```
//!
//! The layer records where each entry was copied to. The layer empties these copies before it
//! removes a table to which the entry leads, and before it changes the page if the entry maps a
//! page. A copy therefore never outlives its original, whatever operation changes the lender. When
//! the copy of a page's entry is emptied, the usage bits that walks have set in it are transferred
//! to the original.

use addr::{VirtAddr, VirtRange};
use pagetable::{Error, Flush, Lent, Loan, Mounted, Space};

use crate::{
    hat::{Hat, LoadError},
    loans::Copied,
    locking::{Held, Scheme, Site},
    space::{AddressSpace, HatSpace, Mmu},
};

impl<T: Mounted + ?Sized> Mmu<T> {
    /// Empties the copies of those root entries of `space` that map pages. The next operation on
    /// one of these pages, or the next query, then needs only the original entry.
    pub(crate) fn settle(&mut self, space: HatSpace) {
        if !self.loans.is_empty() {
            self.empty(|lender, copy| lender == space.0 && copy.is_page);
        }
    }

    /// Empties all copies of root entries of `space`, because tables that they lead to are about to
    /// be removed.
    pub(crate) fn settle_tables(&mut self, space: HatSpace) {
        if !self.loans.is_empty() {
            self.empty(|lender, _| lender == space.0);
        }
    }

    /// Empties all copies in the root of `borrower`, which is about to be removed.
    pub(crate) fn end_borrower(&mut self, borrower: Space) {
        if !self.loans.is_empty() {
            self.empty(|_, copy| copy.borrower == borrower);
        }
    }

    /// Empties the copies for which `goes` is true, and returns their number.
    fn empty(&mut self, goes: impl Fn(u32, &Copied) -> bool) -> u64 {
        let gone = self.loans.take(goes);
        let Some(table) = &mut self.table else { return 0 };
        for &(addr, copy) in &gone {
            let Ok(range) = VirtRange::new(copy.at, 1) else { continue };
            let mut used = None;
            // Either space may have ended in the meantime. Then there is no entry to empty or to
            // mark.
            let _ = table.take_back(copy.borrower, range, &mut |_, usage| used = usage);
            if let Some(usage) = used {
                let _ = table.set_usage(copy.lender, addr, usage);
            }
        }
        gone.len() as u64
    }
}

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// Copies the root entry of `from` that covers `addr` into the root of `to`, so that `addr` is
    /// visible there at `at`. Both spaces must be in one page table, whose format has an area for
    /// copies.
    ///
    /// Only walks use the copy. The copy exists until it is [taken back](Hat::take_back) or its
    /// original is removed. The caller must flush translations that processors have cached through
    /// the copy.
    pub fn lend(
        &self,
        from: HatSpace,
        addr: VirtAddr,
        to: HatSpace,
        at: VirtAddr,
    ) -> Result<Lent, LoadError> {
        self.scheme.enter(Site::Load, |held| {
            let entry_of = |held: &mut S::Held<'_>, space: HatSpace| {
                let entry = held.space(space.0, AddressSpace::processor, |entry, _| entry);
                entry.ok_or(LoadError::NoSpace(space))
            };
            let (lender, borrower) = (entry_of(held, from)?, entry_of(held, to)?);
            if lender.table != borrower.table {
                return Err(LoadError::Table(Error::NoSpace(borrower.inner)));
            }
            held.mmu(lender.table, |mmu, _| {
                let table = mmu.table.as_mut().ok_or(LoadError::NoSpace(to))?;
                let (lender, borrower) = (lender.inner, borrower.inner);
                let lent = table.lend(Loan { from: lender, addr, to: borrower, at });
                if let Ok(Lent::Copied { is_page }) = lent {
                    let copies = mmu.loans.copies.entry((from.0, addr.get())).or_default();
                    copies.push(Copied { lender, borrower, at, is_page });
                }
                lent.map_err(LoadError::Table)
            })
        })
    }

    /// Empties the entries that `to` has borrowed and that lie in `range`. Returns their number.
    ///
    /// The caller must have the processors flush `range`.
    pub fn take_back(&self, to: HatSpace, range: VirtRange) -> u64 {
        self.scheme.enter(Site::Unload, |held| {
            let entry = held.space(to.0, AddressSpace::processor, |entry, _| entry);
            let Some(entry) = entry else { return 0 };
            let goes =
                |_: u32, copy: &Copied| copy.borrower == entry.inner && range.contains(copy.at);
            held.mmu(entry.table, |mmu, _| mmu.empty(goes))
        })
    }

    /// Empties the copies of `space`'s entries in all roots. For callers that edit the table without
    /// this layer: call it before tables that the entries lead to are removed.
    pub fn recall(&self, space: HatSpace) {
        self.empty_of(space, |_| true);
    }

    /// Empties those copies of `space`'s entries that are pages, and transfers their usage bits to
    /// the originals. For callers that edit the table without this layer.
    pub fn settle(&self, space: HatSpace) {
        self.empty_of(space, |copy| copy.is_page);
    }

    fn empty_of(&self, space: HatSpace, goes: impl Fn(&Copied) -> bool) {
        if self.is_each() {
            return;
        }
        self.scheme.enter(Site::Unload, |held| {
            held.mmu(0, |mmu, _| {
                if !mmu.loans.is_empty() {
                    mmu.empty(|lender, copy| lender == space.0 && goes(copy));
                }
            });
        });
    }

    /// Empties the copies that lead to tables which `flushes` name as removed, before processors
    /// flush them and the tables are freed.
    pub(crate) fn take_back_stale(&self, held: &mut S::Held<'_>, flushes: &[(HatSpace, Flush)]) {
        if self.is_each() {
            return;
        }
        for (space, _) in flushes.iter().filter(|(_, flush)| flush.tables().is_some()) {
            held.mmu(0, |mmu, _| {
                if !mmu.loans.is_empty() {
                    mmu.empty(|lender, _| lender == space.0);
                }
            });
        }
    }
}
