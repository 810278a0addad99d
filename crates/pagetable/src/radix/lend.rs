//! Entries of one space's root, copied into the root of another (U02 section 2.2).
//!
//! ```text
//!   root of the space that runs                      root of a small space
//!   | its own entries | area: . . c . | ... |        | e . . . . . . . . . |
//!                                 |                    |
//!                                 +-----> table <------+        c is a copy of e
//! ```
//!
//! A walk for an address in the area goes through the copy into tables that belong to the other
//! space. In the borrowing space, only walks and queries read entries in the area; no other
//! operation does. A caller that makes a copy must take the copy back before the table to which it
//! leads is freed.

use addr::{Memory, PageSize, VirtAddr, VirtRange};

use super::Radix;
use crate::{Entry, Error, Format, Lent, Loan, Unfit, Usage};

impl<F: Format> Radix<F> {
    pub(super) fn lend_entry(&self, loan: Loan, memory: &mut impl Memory) -> Result<Lent, Error> {
        let Loan { from, addr, to, at } = loan;
        self.spaces.check(from)?;
        self.spaces.check(to)?;
        if !self.format.area().is_some_and(|area| area.contains(at)) {
            return Err(Unfit::Virtual(at).into());
        }
        if !self.format.spans().iter().any(|span| span.contains(addr)) {
            return Err(Unfit::Virtual(addr).into());
        }
        let level = self.format.levels();
        let size = PageSize::from_shift(self.format.entry_shift(level) as u8);
        let size = size.expect("an entry covers a power of two");
        if (addr.get() ^ at.get()) & size.mask() != 0 {
            return Err(Error::Misaligned { addr: at.get() & !addr.get(), size });
        }
        let source = self.entry_at(level, from.root(), addr);
        let copy = self.entry_at(level, to.root(), at);
        let entry = self.format.read(level, source, memory);
        let is_page = match self.format.decode(entry, level) {
            Entry::Empty => return Ok(Lent::Absent),
            Entry::Table(_) => false,
            Entry::Page => true,
        };
        let before = self.format.read(level, copy, memory);
        if self.format.decode(before, level) != Entry::Empty {
            return Ok(Lent::There);
        }
        self.format.write(level, copy, entry, memory);
        Ok(Lent::Copied { is_page })
    }

    pub(super) fn take_back_entries(
        &self,
        of: crate::Space,
        range: VirtRange,
        memory: &mut impl Memory,
        each: &mut impl FnMut(VirtAddr, Option<Usage>),
    ) -> Result<(), Error> {
        self.spaces.check(of)?;
        let Some(part) = self.format.area().and_then(|area| area.intersection(range)) else {
            return Ok(());
        };
        let level = self.format.levels();
        let mut start = part.start();
        loop {
            let slot = self.part(level, start, part.last());
            let at = self.entry_at(level, of.root(), start);
            if self.format.decode(self.format.read(level, at, memory), level) != Entry::Empty {
                let entry = self.format.swap(level, at, 0, memory);
                let is_page = self.format.decode(entry, level) == Entry::Page;
                each(start, is_page.then(|| self.format.usage(entry)));
            }
            if slot.last == part.last() {
                return Ok(());
            }
            start = slot.last.wrapping_add(1);
        }
    }
}
