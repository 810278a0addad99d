//! The kernel's half of the addresses, which all spaces share.
//!
//! ```text
//!   the kernel's root            | (lower half: unused) | k | k | k |
//!                                                         |   |   |
//!                                                         v   v   v      the kernel's tables, once in memory
//!                                                         ^   ^   ^
//!   root of each space           | its own entries      | k | k | k |    copied when the space is created
//! ```
//!
//! A format with one half (`HALVES` is 1) leaves the other half of each root to the kernel. A new
//! space gets copies of the kernel's root entries. Pages that the kernel later maps or unmaps
//! *below* these entries change in all spaces immediately. An entry of the kernel's root itself
//! must never change after the first space was created, because the copies would not change with
//! it. [`Radix::anchor`] makes permanent entries for this purpose.

use addr::{Frames, Memory, PhysAddr, Rights, VirtAddr, VirtRange};

use super::{Part, Radix};
use crate::{Entry, Error, Format, PageTable, Space, Translation};

impl<F: Format> Radix<F> {
    /// Makes new spaces share a part of the root at `root`: each space that is created from now on
    /// gets copies of that root's entries for all addresses that this format does not map itself.
    /// The root belongs to another table, whose format has equal entries and maps these addresses.
    /// It must be in the memory that is passed to [`PageTable::create`].
    ///
    /// In the example two programs share the kernel's half. A page that the kernel maps later is visible in
    /// both.
    ///
    /// ```
    /// use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
    /// use pagetable::{PageTable, SparseMemory, Translation, X86_64};
    /// use physmem::Physmem;
    ///
    /// let mut memory = SparseMemory::new(64 << 20);
    /// let mut frames = Physmem::buddy(PhysAddr::new(0), 64 << 20, PageSize::SIZE_4K)?;
    ///
    /// // The kernel's table maps both halves, and the kernel uses the upper one: two entries of the root.
    /// let mut kernel = X86_64::<4>::new();
    /// let root = kernel.create(&mut memory, &mut frames)?;
    /// let half = VirtRange::new(VirtAddr::new(0xffff_c000_0000_0000), 1 << 40)?;
    /// kernel.anchor(root, half, &mut memory, &mut frames)?;
    ///
    /// // The tables of programs map the lower half.
    /// let mut programs = X86_64::<4, true, 1>::new().sharing(root.root());
    /// let one = programs.create(&mut memory, &mut frames)?;
    /// let two = programs.create(&mut memory, &mut frames)?;
    ///
    /// let page = VirtAddr::new(0xffff_c000_1234_5000).page(PageSize::SIZE_4K);
    /// let mut first = Translation::new(page, PhysAddr::new(0x20_0000), Rights::READ | Rights::WRITE);
    /// first.global = true;
    /// kernel.map(root, first, 1, &mut memory, &mut frames)?.done(&mut frames);
    /// for space in [one, two] {
    ///     let found = programs.walk(space, page.start(), Kind::Store, &mut memory, &mut |_| {})?;
    ///     assert_eq!(found.frame, PhysAddr::new(0x20_0000));
    /// }
    ///
    /// // A program cannot map anything there, and its end leaves the kernel's tables alone.
    /// assert!(programs.map(one, first, 1, &mut memory, &mut frames).is_err());
    /// programs.destroy(one, &mut memory)?.done(&mut frames);
    /// assert!(programs.walk(two, page.start(), Kind::Load, &mut memory, &mut |_| {}).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sharing(self, root: PhysAddr) -> Radix<F> {
        Radix { shared: Some(root), ..self }
    }

    /// Makes every entry of the root of `space` that covers a part of `range` lead to a table
    /// permanently, so that other roots can have copies of these entries.
    ///
    /// An entry leads to a table as long as the table is not empty. Therefore, under each empty
    /// entry, a page without rights is mapped at the last addresses. The page is as large as the
    /// format allows below the root. The kernel must not unmap these pages, and cannot use their
    /// addresses. Each of these pages costs one table. An entry that is already in use is not
    /// changed; the kernel must keep a page mapped under it.
    ///
    /// # Errors
    ///
    /// Fails if there is no frame for a table. Earlier entries have their tables by then, and
    /// another call continues with the remaining entries.
    pub fn anchor(
        &mut self,
        space: Space,
        range: VirtRange,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(), Error> {
        let shift = self.format.entry_shift(self.format.levels());
        for span in 0..self.format.spans().len() {
            let Some(part) = self.format.spans()[span].intersection(range) else { continue };
            for number in part.start().get() >> shift..=part.last().get() >> shift {
                let start = VirtAddr::new(number << shift);
                if self.is_unused(space, start, memory) {
                    let anchor = self.anchor_at(start);
                    self.map(space, anchor, 1, memory, frames)?.done(frames);
                }
            }
        }
        Ok(())
    }

    /// Whether the entry of the root for `addr` is empty.
    fn is_unused(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> bool {
        let level = self.format.levels();
        let at = self.entry_at(level, space.root(), addr);
        self.format.decode(self.format.read(level, at, memory), level) == Entry::Empty
    }

    /// The page that anchors the entry of the root whose first address is `start`.
    fn anchor_at(&self, start: VirtAddr) -> Translation {
        let shift = self.format.entry_shift(self.format.levels());
        let sizes = self.format.page_sizes();
        let below = sizes.iter().rev().find(|size| size.shift() < shift);
        let size = below.copied().unwrap_or(sizes[0]);
        let last = start.wrapping_add((1 << shift) - size.bytes());
        Translation::new(last.page(size), PhysAddr::new(0), Rights::NONE)
    }

    /// Copies entries of the shared root into the empty root of a new space: those for the
    /// addresses that this format does not map.
    pub(super) fn copy_shared(&self, to: PhysAddr, memory: &mut impl Memory) {
        let Some(from) = self.shared else { return };
        let level = self.format.levels();
        let step = u64::from(self.format.entry_bytes(level));
        for offset in (0..self.format.table_size(level).bytes()).step_by(step as usize) {
            let is_own = self.format.spans().iter().any(|span| {
                let part = Part { start: span.start(), last: span.last() };
                self.offsets(level, part).contains(&offset)
            });
            if !is_own {
                let entry = self.format.read(level, from.wrapping_add(offset), memory);
                self.format.write(level, to.wrapping_add(offset), entry, memory);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use addr::{Kind, PageSize};

    use super::*;
    use crate::{Flush, SparseMemory, Sv39, X86_64};

    /// Gives adjacent frames, one at a time, until `left` are given.
    struct InTurn {
        next: u64,
        left: u64,
    }

    impl Frames for InTurn {
        fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, addr::OutOfFrames> {
            if self.left == 0 {
                return Err(addr::OutOfFrames { size, free_bytes: 0 });
            }
            self.left -= 1;
            self.next += size.bytes();
            Ok(PhysAddr::new(self.next))
        }

        fn free(&mut self, _: PhysAddr, _: PageSize) {}
    }

    /// Maps and unmaps pages in the kernel's half. All spaces must see each change, even if the
    /// unmapped page is the last one of its table.
    fn check<F: Format, G: Format>(
        mut kernel: Radix<F>,
        programs: Radix<G>,
        start: u64,
        entry: u64,
    ) {
        let mut memory = SparseMemory::new(1 << 30);
        let mut frames = InTurn { next: 0x1000, left: 1000 };
        let done = |flush: Flush, frames: &mut InTurn| flush.done(frames);
        let root = kernel.create(&mut memory, &mut frames).unwrap();
        let half = VirtRange::new(VirtAddr::new(start), 4 * entry).unwrap();
        frames.left = 2;
        assert!(kernel.anchor(root, half, &mut memory, &mut frames).is_err());
        frames.left = 1000;
        kernel.anchor(root, half, &mut memory, &mut frames).unwrap();
        let mut programs = programs.sharing(root.root());
        let spaces = [(); 3].map(|()| programs.create(&mut memory, &mut frames).unwrap());
        for into in [0, entry, 3 * entry + 0x5000] {
            let page = VirtAddr::new(start + into).page(PageSize::SIZE_4K);
            let rights = Rights::READ | Rights::WRITE;
            let first = Translation::new(page, PhysAddr::new(0x7000), rights);
            let walk = |memory: &mut SparseMemory| {
                spaces.map(|space| {
                    programs.walk(space, page.start(), Kind::Load, memory, &mut |_| {})
                })
            };
            assert!(walk(&mut memory).iter().all(Result::is_err));
            let flush = kernel.map(root, first, 1, &mut memory, &mut frames).unwrap();
            done(flush, &mut frames);
            for found in walk(&mut memory) {
                assert_eq!(found.map(|found| found.frame), Ok(PhysAddr::new(0x7000)));
            }
            let range = VirtRange::of_page(page);
            let flush = kernel.unmap(root, range, &mut memory, &mut |_| ()).unwrap();
            done(flush, &mut frames);
            assert!(walk(&mut memory).iter().all(Result::is_err));
        }
        for space in spaces {
            done(programs.destroy(space, &mut memory).unwrap(), &mut frames);
        }
    }

    #[test]
    fn all_spaces_see_the_kernels_half() {
        check(X86_64::<4>::new(), X86_64::<4, true, 1>::new(), 0xffff_c000_0000_0000, 1 << 39);
        check(Sv39::<true>::new(), Sv39::<true, 1>::new(), 0xffff_ffc0_0000_0000, 1 << 30);
    }
}
