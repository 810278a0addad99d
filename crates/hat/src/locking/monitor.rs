//! Logical locks: a busy and a wanted flag in each descriptor, and one mutex for the flags of all
//! (K94 section 4.4). It saves the memory of a mutex per descriptor.
//!
//! ```text
//!   mutex { busy? wanted = 1, sleep, look again : busy = 1 }     take
//!   work on the descriptor, without the mutex
//!   mutex { busy = 0; wanted? wanted = 0, wake all }             put back
//! ```
//!
//! A busy descriptor is one that is not there: its holder has taken it out.

use super::{Array, Arrays, Class, Locks, Mutex, Site, Wait, array::many};
use crate::sparse::Sparse;
use alloc::boxed::Box;

/// Condition variables of an array. K94 has one per descriptor.
const WAITS: usize = 64;

/// K94's scheme: `page_mutex` and `mmu_mutex`.
#[derive(Clone, Copy, Debug)]
pub struct Monitor;

impl<L: Locks> Arrays<L> for Monitor {
    type Of<D: Default + Send> = MonitorArray<D, L>;

    fn array<D: Default + Send>(&self, of: Class, flags: Class) -> MonitorArray<D, L> {
        MonitorArray {
            of,
            mutex: L::Mutex::new(flags, Sparse::new()),
            waits: many(WAITS, || L::Wait::new(of)),
        }
    }
}

/// Descriptors under one mutex.
pub struct MonitorArray<D: Send, L: Locks> {
    of: Class,
    mutex: L::Mutex<Sparse<Flagged<D>>>,
    waits: Box<[L::Wait]>,
}

/// A descriptor and its flags.
struct Flagged<D> {
    /// `None` while it is busy.
    descriptor: Option<D>,
    is_wanted: bool,
}

impl<D: Default> Default for Flagged<D> {
    fn default() -> Flagged<D> {
        Flagged { descriptor: Some(D::default()), is_wanted: false }
    }
}

impl<D: Default + Send, L: Locks> Array<D> for MonitorArray<D, L> {
    fn until<R>(&self, site: Site, number: u64, mut f: impl FnMut(&mut D) -> Option<R>) -> R {
        let wait = &self.waits[number as usize % WAITS];
        // What is to be put back before the caller sleeps.
        let mut back = None;
        loop {
            let mut was_busy = false;
            let mut descriptor = self.mutex.until(site, wait, |all| {
                let slot = all.get_mut(number);
                if let Some(unchanged) = back.take() {
                    slot.descriptor = Some(unchanged);
                    L::released(self.of);
                    // Who has found it busy may have it now. The caller waits for another's change.
                    if slot.is_wanted {
                        wait.wake_all();
                    }
                    slot.is_wanted = true;
                    return None;
                }
                let descriptor = slot.descriptor.take();
                if descriptor.is_none() {
                    slot.is_wanted = true;
                    was_busy = true;
                }
                descriptor
            });
            L::acquired(self.of, site, was_busy);
            match f(&mut descriptor) {
                Some(result) => {
                    let is_wanted = self.mutex.with(site, |all| {
                        let slot = all.get_mut(number);
                        slot.descriptor = Some(descriptor);
                        L::released(self.of);
                        core::mem::take(&mut slot.is_wanted)
                    });
                    if is_wanted {
                        wait.wake_all();
                    }
                    return result;
                }
                None => back = Some(descriptor),
            }
        }
    }

    fn each(&self, f: &mut dyn FnMut(u64, &D)) {
        self.mutex.with(Site::Look, |all| {
            all.each(&mut |number, slot| {
                if let Some(descriptor) = &slot.descriptor {
                    f(number, descriptor);
                }
            });
        });
    }
}
