//! Settings that can change while memory is managed.
//!
//! ```text
//!   marks        the next fault and the next tick go by the new ones
//!   policy       old lists --victim by victim, nobody asked for its bit--> new lists
//!   swap         more places, or fewer where the rest is not in use
//! ```

use alloc::boxed::Box;
use core::sync::atomic::Ordering;

use hat::locking::Mutex;
use physmem::{FrameId, FrameTable};

use crate::{
    host::Host,
    kernel::Kernel,
    replacement::{Pages, Replacement, policy},
    settings::{Marks, SettingsError},
};

impl<H: Host> Kernel<'_, H> {
    /// Sets the marks at which pages are evicted.
    pub fn set_marks(&mut self, marks: Marks) -> Result<(), SettingsError> {
        marks.check(self.pages())?;
        self.vm.marks.set(marks);
        Ok(())
    }

    /// Replaces the policy that chooses pages to evict by the one called `name`. Pages enter the
    /// new policy in the order in which the old policy would have evicted them; other data of
    /// the old policy about their use is lost.
    pub fn set_replacement(&mut self, name: &str) -> Result<(), SettingsError> {
        let pages = self.pages();
        let make = || policy(name, pages).ok_or(SettingsError::Replacement);
        let new = make()?;
        self.work.descriptors += self.lists(|lists, memory| {
            let (_, table) = memory.allocator_mut();
            let mut moved = 0;
            let mut replace = |of: &mut Box<dyn Replacement>, new| {
                let mut old = core::mem::replace(of, new);
                while let Some(frame) = old.victim(&mut Unasked(table)) {
                    of.enter(table, frame);
                    moved += 1;
                }
            };
            replace(&mut lists.policy, new);
            for of in lists.groups.iter_mut().flat_map(|groups| groups.each_policy()) {
                if let Ok(new) = make() {
                    replace(of, new);
                }
            }
            moved
        });
        Ok(())
    }

    /// Sets the number of pages that swap has room for.
    pub fn set_swap(&mut self, pages: u32) -> Result<(), SettingsError> {
        self.vm.swap.with(self.site, |swap| {
            if swap.used() > u64::from(pages) {
                return Err(SettingsError::SwapInUse { used: swap.used() });
            }
            swap.set_slots(pages);
            // Pages that had no room in swap may have room now.
            self.vm.in_vain.store(usize::MAX, Ordering::Relaxed);
            Ok(())
        })
    }

    /// The size of memory in pages.
    fn pages(&self) -> u64 {
        self.frames(|memory| memory.bytes()) >> self.vm.base.shift()
    }
}

/// The view of pages that a policy gets while all of its pages are removed: no page counts as
/// referenced.
struct Unasked<'a>(&'a mut FrameTable);

impl Pages for Unasked<'_> {
    fn with_table(&mut self, f: &mut dyn FnMut(&mut FrameTable)) {
        f(self.0);
    }

    fn referenced(&mut self, _: FrameId) -> bool {
        false
    }
}
