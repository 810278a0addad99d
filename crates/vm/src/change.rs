//! Settings that change while memory is managed.
//!
//! ```text
//!   marks        the next fault and the next tick go by the new ones
//!   policy       old lists --victim by victim, nobody asked for its bit--> new lists
//!   swap         more places, or fewer where the rest is not in use
//! ```

use pagetable::Mounted;
use physmem::{Allocator, FrameId, FrameTable};

use crate::{
    platform::Platform,
    replacement::{Pages, policy},
    settings::{Marks, SettingsError},
    vm::Kernel,
};

impl<T: Mounted + ?Sized, A: Allocator, P: Platform> Kernel<'_, T, A, P> {
    /// Pages leave memory by these marks from here on.
    pub fn set_marks(&mut self, marks: Marks) -> Result<(), SettingsError> {
        marks.check(self.pages())?;
        self.vm.marks = marks;
        Ok(())
    }

    /// The policy called `name` chooses the pages that leave from here on. Those that the old one
    /// would have let go first come first, and what it knew of their uses is forgotten.
    pub fn set_replacement(&mut self, name: &str) -> Result<(), SettingsError> {
        let new = policy(name, self.pages())?;
        let mut old = core::mem::replace(&mut self.vm.policy, new);
        let (_, table) = self.memory.allocator_mut();
        while let Some(frame) = old.victim(&mut Unasked(table)) {
            self.vm.policy.enter(table, frame);
            self.vm.work.descriptors += 1;
        }
        Ok(())
    }

    /// Swap has room for so many pages from here on.
    pub fn set_swap(&mut self, pages: u32) -> Result<(), SettingsError> {
        if self.vm.swap.used() > u64::from(pages) {
            return Err(SettingsError::SwapInUse { used: self.vm.swap.used() });
        }
        self.vm.swap.set_slots(pages);
        Ok(())
    }

    /// All memory in pages.
    fn pages(&self) -> u64 {
        self.memory.bytes() >> self.vm.base.shift()
    }
}

/// Pages that are not asked whether they were used.
struct Unasked<'a>(&'a mut FrameTable);

impl Pages for Unasked<'_> {
    fn table(&mut self) -> &mut FrameTable {
        self.0
    }

    fn referenced(&mut self, _: FrameId) -> bool {
        false
    }
}
