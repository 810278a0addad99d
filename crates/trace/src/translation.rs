//! The recorded system's translations of addresses: results of page walks, and contents of its page
//! tables.
//!
//! ```text
//!   walk       by hardware, for the access that follows     one page, its entries
//!   snapshot   by software, of a whole space                runs of adjacent pages in adjacent frames
//! ```

use serde::{Deserialize, Serialize};

/// Adjacent pages of one size that are translated to adjacent frames.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Translation {
    /// Who read the page table.
    pub seen: Seen,
    /// The address of the first page, a multiple of the page size.
    pub addr: u64,
    /// The size of each page in bytes, a power of two.
    #[serde(rename = "page_bytes")]
    pub page_bytes: u64,
    /// The number of pages.
    #[serde(default = "one")]
    pub pages: u64,
    /// The physical address of the first page, a multiple of the page size; `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paddr: Option<u64>,
    /// The rights of each page, if they are known: a sum of the constants `Translation::READ` to
    /// `Translation::GLOBAL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rights: Option<u8>,
    /// The physical addresses of the page-table entries that the walk read, beginning with the
    /// root's entry; empty if they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<u64>,
}

/// Who read a page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seen {
    /// The processor, in a page walk for the access that follows.
    Walk,
    /// The kernel, for [`crate::Event::Snapshot`].
    Snapshot,
}

/// Why a snapshot was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// Some time had passed since the last snapshot.
    Interval,
    /// Resident memory had grown since the last snapshot.
    Growth,
    /// The program, or the recording of it, is about to end.
    End,
}

/// Which page sizes a snapshot distinguishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KnownSizes {
    /// Only pages that an entry above the lowest level of the page table maps are distinguished
    /// from base pages. Larger units that consist of base pages (64K of adjacent entries, for
    /// example) are recorded as base pages.
    Large,
    /// All sizes in which the kernel allocates.
    All,
}

const fn one() -> u64 {
    1
}

impl Translation {
    /// The right to read. This constant and the following ones are bits of [`Translation::rights`].
    pub const READ: u8 = 1;
    /// The right to write.
    pub const WRITE: u8 = 2;
    /// The right to execute.
    pub const EXECUTE: u8 = 4;
    /// The pages may be used by programs and not only by the kernel.
    pub const USER: u8 = 8;
    /// The pages have been accessed.
    pub const ACCESSED: u8 = 16;
    /// The pages have been stored to.
    pub const DIRTY: u8 = 32;
    /// The pages are global: they are mapped in all spaces.
    pub const GLOBAL: u8 = 64;

    /// The largest number of entries: a nested walk with five levels in the guest and five in the
    /// host reads `(5 + 1) * (5 + 1) - 1`.
    pub const ENTRIES_MAX: usize = 35;
    /// log2 of the smallest and of the largest page size.
    pub(crate) const SHIFTS: std::ops::RangeInclusive<u32> = 12..=51;

    /// A page of 4 KiB whose frame and rights are not known.
    pub fn base(seen: Seen, addr: u64) -> Translation {
        let (paddr, rights, entries) = (None, None, Vec::new());
        Translation { seen, addr, page_bytes: 4096, pages: 1, paddr, rights, entries }
    }

    /// The number of bytes of all pages together; `None` if the number does not fit into 64 bits.
    pub fn bytes(&self) -> Option<u64> {
        self.pages.checked_mul(self.page_bytes)
    }

    /// Refuses values that no page table can have. The error describes the wrong value.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if !self.page_bytes.is_power_of_two()
            || !Translation::SHIFTS.contains(&self.page_bytes.trailing_zeros())
        {
            return Err("a page size that is no power of two from 4 KiB to 2 PiB");
        }
        let Some(last) = self.bytes().and_then(|bytes| bytes.checked_sub(1)) else {
            return Err("no page, or more pages than there are addresses");
        };
        let starts = [Some(self.addr), self.paddr];
        for start in starts.into_iter().flatten() {
            if start & (self.page_bytes - 1) != 0 {
                return Err("an address that is not a multiple of its page size");
            }
            if start.checked_add(last).is_none() {
                return Err("pages beyond the last address");
            }
        }
        if self.rights.is_some_and(|rights| rights > 0x7f) {
            return Err("rights that do not exist");
        }
        if self.entries.len() > Translation::ENTRIES_MAX {
            return Err("more page-table entries than a walk can read");
        }
        Ok(())
    }
}
