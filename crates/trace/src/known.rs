//! The pages of one address space, as translations describe them.
//!
//! ```text
//!   add 0..2M at 40M         [0 ........................ 2M)
//!   add 8K..12K at 5M        [0 .. 8K) [8K 12K) [12K ... 2M)     the rest keeps its frames
//! ```

use std::collections::BTreeMap;

use addr::PageSize;

use crate::Translation;

/// Adjacent pages of one size that end at an address.
#[derive(Clone, Copy, Debug)]
struct Pages {
    last: u64,
    size: PageSize,
    paddr: Option<u64>,
}

/// Disjoint pages of one space, by first address.
#[derive(Clone, Default, Debug)]
pub struct KnownPages(BTreeMap<u64, Pages>);

impl KnownPages {
    /// Adds pages, which replace known pages of the range.
    pub fn add(&mut self, found: &Translation) {
        let Some(size) = PageSize::from_bytes(found.page_bytes) else { return };
        let Some(last) = found.bytes().and_then(|bytes| found.addr.checked_add(bytes - 1)) else {
            return;
        };
        self.forget(found.addr, last);
        self.0.insert(found.addr, Pages { last, size, paddr: found.paddr });
    }

    /// Removes the known pages of a range of addresses.
    pub fn forget(&mut self, first: u64, last: u64) {
        let before = self.0.range(..first).next_back().filter(|(_, pages)| pages.last >= first);
        let start = before.map_or(first, |(&start, _)| start);
        let gone: Vec<(u64, Pages)> =
            self.0.range(start..=last).map(|(&start, &pages)| (start, pages)).collect();
        for (start, pages) in gone {
            self.0.remove(&start);
            if start < first {
                self.0.insert(start, Pages { last: first - 1, ..pages });
            }
            if pages.last > last {
                let paddr = pages.paddr.map(|paddr| paddr + (last + 1 - start));
                self.0.insert(last + 1, Pages { paddr, ..pages });
            }
        }
    }

    /// The size of the page at `addr`, and the physical address of `addr` if it is known.
    pub fn at(&self, addr: u64) -> Option<(PageSize, Option<u64>)> {
        let (&start, pages) = self.0.range(..=addr).next_back()?;
        let paddr = pages.paddr.map(|paddr| paddr + (addr - start));
        (addr <= pages.last).then_some((pages.size, paddr))
    }
}
