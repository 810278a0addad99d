//! Settings that change while memory is managed.
//!
//! ```text
//!   marks        the next fault and the next tick go by the new ones
//!   policy       old lists --victim by victim, nobody asked for its bit--> new lists
//!   swap         more places, or fewer where the rest is not in use
//! ```

use core::sync::atomic::Ordering;

use hat::locking::{Locks, Mutex, Scheme};
use pagetable::Mounted;
use physmem::{Allocator, FrameId, FrameTable};

use crate::{
    kernel::Kernel,
    platform::Platform,
    replacement::{Pages, policy},
    settings::{Marks, SettingsError},
};

impl<T, A, P, L, S> Kernel<'_, T, A, P, L, S>
where
    T: Mounted + ?Sized,
    A: Allocator + Send,
    P: Platform,
    L: Locks,
    S: Scheme<Table = T>,
{
    /// Pages leave memory by these marks from here on.
    pub fn set_marks(&mut self, marks: Marks) -> Result<(), SettingsError> {
        marks.check(self.pages())?;
        self.vm.marks.set(marks);
        Ok(())
    }

    /// The policy called `name` chooses the pages that leave from here on. Those that the old one
    /// would have let go first come first, and what it knew of their uses is forgotten.
    pub fn set_replacement(&mut self, name: &str) -> Result<(), SettingsError> {
        let new = policy(name, self.pages()).ok_or(SettingsError::Replacement)?;
        self.work.descriptors += self.lists(|lists, memory| {
            let mut old = core::mem::replace(&mut lists.policy, new);
            let (_, table) = memory.allocator_mut();
            let mut moved = 0;
            while let Some(frame) = old.victim(&mut Unasked(table)) {
                lists.policy.enter(table, frame);
                moved += 1;
            }
            moved
        });
        Ok(())
    }

    /// Swap has room for so many pages from here on.
    pub fn set_swap(&mut self, pages: u32) -> Result<(), SettingsError> {
        self.vm.swap.with(self.site, |swap| {
            if swap.used() > u64::from(pages) {
                return Err(SettingsError::SwapInUse { used: swap.used() });
            }
            swap.set_slots(pages);
            // Pages may have room now that had none.
            self.vm.in_vain.store(usize::MAX, Ordering::Relaxed);
            Ok(())
        })
    }

    /// All memory in pages.
    fn pages(&self) -> u64 {
        self.frames(|memory| memory.bytes()) >> self.vm.base.shift()
    }
}

/// Pages that are not asked whether they were used.
struct Unasked<'a>(&'a mut FrameTable);

impl Pages for Unasked<'_> {
    fn with_table(&mut self, f: &mut dyn FnMut(&mut FrameTable)) {
        f(self.0);
    }

    fn referenced(&mut self, _: FrameId) -> bool {
        false
    }
}
