//! Where entries of roots were copied to ([`crate::Hat::lend`]).

use alloc::{collections::BTreeMap, vec::Vec};

use addr::VirtAddr;
use pagetable::Space;

/// Where entries of the roots in a page table are copied to.
#[derive(Debug, Default)]
pub(crate) struct Loans {
    /// By the lender and an address that the entry covers there.
    pub(crate) copies: BTreeMap<(u32, u64), Vec<Copied>>,
}

/// A copy of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Copied {
    pub(crate) lender: Space,
    pub(crate) borrower: Space,
    /// Where the borrower sees the address.
    pub(crate) at: VirtAddr,
    pub(crate) is_page: bool,
}

impl Loans {
    pub(crate) fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Strikes out the copies that `goes` wants gone, and gives them with their lenders' addresses.
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
