//! Regions that grow downwards, for stacks.
//!
//! ```text
//!   lowest ...... gap ......... bottom        top
//!     |   | other region |         |   stack   |
//!                        '--- gap --'             the gap stays free, as a guard
//!
//!   access below the bottom --> at or above lowest, and the gap is free: the region grows to that page
//!                           --> otherwise refused: no region has this address
//! ```
//!
//! In the gap below a stack there are no mappings that allow accesses. A program that overruns its
//! stack therefore faults instead of storing to another region (Linux: `stack_guard_gap`). A region
//! without any rights may lie in the gap, since accesses to it fault too.

use addr::{Rights, VirtAddr, VirtRange};
use hat::{HatSpace, locking::Site};

use crate::{
    error::Error,
    host::Host,
    kernel::Kernel,
    settings::Source,
    stacks::{Growth, Stack},
    vm::Within,
};

impl<H: Host> Kernel<'_, H> {
    /// Maps a new region of anonymous memory that grows downwards: an access below the region, but not
    /// below [`Growth::lowest`], extends it to the page of that access. Otherwise like [`Kernel::map`].
    ///
    /// If the lower end of the region is unmapped later, the rest still grows. If a part in the middle is
    /// unmapped, only the part below it grows. The child of a fork has stacks that grow in the same way.
    pub fn map_stack(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        rights: Rights,
        growth: Growth,
        label: u32,
    ) -> Result<(), Error> {
        let pages = self.vm.pages_of(range);
        let lowest = self.vm.page_of(growth.lowest);
        let gap = growth.gap_bytes.div_ceil(self.vm.base.bytes());
        self.within(space, |_, at| Ok(at.known.stacks.try_reserve(1)?))?;
        self.map(space, range, rights, Source::Anonymous, label)?;
        self.site = Site::Call;
        self.within(space, |_, at| {
            // Another thread of the process may have added a stack in the meantime.
            at.known.stacks.try_reserve(1)?;
            at.known.stacks.push(Stack { pages: [pages.start, pages.end], lowest, gap });
            Ok(())
        })
    }

    /// Sets how far down the stack that contains `addr` may grow, as when a process changes the limit
    /// of its stack.
    ///
    /// # Errors
    ///
    /// Fails if no stack contains `addr`.
    pub fn set_growth(
        &mut self,
        space: HatSpace,
        addr: VirtAddr,
        growth: Growth,
    ) -> Result<(), Error> {
        self.site = Site::Call;
        let (page, lowest) = (self.vm.page_of(addr), self.vm.page_of(growth.lowest));
        let gap = growth.gap_bytes.div_ceil(self.vm.base.bytes());
        self.within(space, |_, at| {
            let contains = |stack: &&mut Stack| (stack.pages[0]..stack.pages[1]).contains(&page);
            let stack = at.known.stacks.iter_mut().find(contains).ok_or(Error::NoRegion(addr))?;
            (stack.lowest, stack.gap) = (lowest, gap);
            Ok(())
        })
    }

    /// Extends a stack down to `page`, which no region contains. Refused if no stack may grow there.
    #[cold]
    pub(crate) fn grow_stack(&mut self, at: &mut Within<'_>, page: u64) -> Result<(), Error> {
        let known = &mut *at.known;
        let refused = Error::NoRegion(self.vm.addr_of(page));
        let may_have = |stack: &&mut Stack| stack.lowest <= page && page < stack.pages[0];
        let above = known.regions.from(page).map(|region| region.pages.start);
        let stack = known.stacks.iter_mut().filter(may_have);
        let mut stack = stack.filter(|stack| Some(stack.pages[0]) == above);
        let stack = stack.next().ok_or(refused)?;
        let free = page.saturating_sub(stack.gap)..page;
        let blocks = |rights: Rights| rights != Rights::NONE;
        if known.regions.within(&free).any(|region| blocks(region.rights)) {
            return Err(refused);
        }
        known.regions.grow_down(stack.pages[0], page)?;
        stack.pages[0] = page;
        Ok(())
    }
}
