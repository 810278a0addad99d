//! Tables of one space, seen through the root of another: what [small spaces](crate::small) are made of.
//!
//! ```text
//!   root of the space that runs                      root of a small space
//!   | its own entries | area: . . c . | ... |        | e . . . . . . . . . |
//!                                 |                    |       |
//!                                 +-----> table <------+       +--> (c): where e is copied to
//! ```
//!
//! The layer remembers where each entry was copied to. Before a table goes that an entry leads to, and
//! before a page changes that *is* an entry, its copies are emptied: whatever is done to the lender, no
//! copy outlives what it is a copy of. Bits that walks have set in the copy of a page come back with it.

use addr::{VirtAddr, VirtRange};
use pagetable::{Error, Flush, Lent, Loan, Mounted, Space};

use crate::{
    hat::{Hat, LoadError},
    loans::Copied,
    locking::{Held, Scheme, Site},
    space::{AddressSpace, HatSpace, Mmu},
};

impl<T: Mounted + ?Sized> Mmu<T> {
    /// Empties the copies of pages that are entries of `space`'s root: what is done to a page next, or
    /// asked of it, is done to the one entry that it has.
    pub(crate) fn settle(&mut self, space: HatSpace) {
        if !self.loans.is_empty() {
            self.empty(|lender, copy| lender == space.0 && copy.is_page);
        }
    }

    /// Empties the copies of entries of `space`: tables that they lead to are about to go.
    pub(crate) fn settle_tables(&mut self, space: HatSpace) {
        if !self.loans.is_empty() {
            self.empty(|lender, _| lender == space.0);
        }
    }

    /// Empties the copies in the root of `borrower`, which is about to go.
    pub(crate) fn end_borrower(&mut self, borrower: Space) {
        if !self.loans.is_empty() {
            self.empty(|_, copy| copy.borrower == borrower);
        }
    }

    /// Empties copies; how many.
    fn empty(&mut self, goes: impl Fn(u32, &Copied) -> bool) -> u64 {
        let gone = self.loans.take(goes);
        let Some(table) = &mut self.table else { return 0 };
        for &(addr, copy) in &gone {
            let Ok(range) = VirtRange::new(copy.at, 1) else { continue };
            let mut used = None;
            // Neither may be there any more: then there is nothing to empty, or to mark.
            let _ = table.take_back(copy.borrower, range, &mut |_, usage| used = usage);
            if let Some(usage) = used {
                let _ = table.set_usage(copy.lender, addr, usage);
            }
        }
        gone.len() as u64
    }
}

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// Copies the root entry of `from` that covers `addr` into the root of `to`, where that address is
    /// seen at `at`. Both must be in one page table, whose format has an area for that.
    ///
    /// Nothing but walks goes through the copy. It is there until it is [taken back](Hat::take_back), or
    /// what it is a copy of goes; what processors remember of it is the caller's to flush.
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

    /// Empties the copied entries of `to` that are seen in `range`; how many there were.
    ///
    /// The caller has the processors forget `range`.
    pub fn take_back(&self, to: HatSpace, range: VirtRange) -> u64 {
        self.scheme.enter(Site::Unload, |held| {
            let entry = held.space(to.0, AddressSpace::processor, |entry, _| entry);
            let Some(entry) = entry else { return 0 };
            let goes =
                |_: u32, copy: &Copied| copy.borrower == entry.inner && range.contains(copy.at);
            held.mmu(entry.table, |mmu, _| mmu.empty(goes))
        })
    }

    /// Empties the copies of `space`'s entries, wherever they are: what they lead to is about to go, as
    /// who edits the table without this layer knows.
    pub fn recall(&self, space: HatSpace) {
        self.empty_of(space, |_| true);
    }

    /// Empties those of entries that are pages, whose bits come back: for the same.
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

    /// Empties the copies that lead to tables which `flushes` say are gone, before processors forget
    /// them and the tables are free.
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
