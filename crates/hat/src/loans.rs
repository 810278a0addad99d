//! The copies of root entries in other roots ([`crate::Hat::lend`]).

use alloc::{collections::BTreeMap, vec::Vec};

use addr::VirtAddr;
use pagetable::Space;

/// All copies of root entries in one page table.
#[derive(Debug, Default)]
pub(crate) struct Loans {
    /// The copies of each lent entry, by the lender and an address of the lender that the entry
    /// covers.
    pub(crate) copies: BTreeMap<(u32, u64), Vec<Copied>>,
}

/// The copy of an entry in a borrower's root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Copied {
    pub(crate) lender: Space,
    pub(crate) borrower: Space,
    /// The address at which the borrower sees the lender's address.
    pub(crate) at: VirtAddr,
    pub(crate) is_page: bool,
}

impl Loans {
    pub(crate) fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Removes the copies for which `goes` is true, and returns each with the lender's address.
    pub(crate) fn take(&mut self, goes: impl Fn(u32, &Copied) -> bool) -> Vec<(VirtAddr, Copied)> {
        let mut gone = Vec::new();
        self.copies.retain(|&(lender, addr), copies| {
            copies.retain(|copy| {
                let goes = goes(lender, copy);
                if goes {
                    gone.push((VirtAddr::new(addr), *copy));
                }
                !goes
            });
            !copies.is_empty()
        });
        gone
    }
}
