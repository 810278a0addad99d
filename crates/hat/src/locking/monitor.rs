//! Logical locks: a busy and a wanted flag in each descriptor, and one mutex for the flags of all
//! descriptors (K94 section 4.4). This saves the memory of a mutex per descriptor.
//!
//! ```text
//!   mutex { busy? wanted = 1, sleep, look again : busy = 1 }     take
//!   work on the descriptor, without the mutex
//!   mutex { busy = 0; wanted? wanted = 0, wake all }             put back
//! ```
//!
//! A busy descriptor is absent from the array, because its holder has taken it out. An operation on
//! a range takes as many free descriptors as possible while it holds the mutex once.

use super::{Array, Arrays, Class, Locks, Mutex, Site, Wait, array::many};
use crate::sparse::Sparse;
use alloc::boxed::Box;
use core::ops::Range;

/// The number of condition variables of an array. K94 has one per descriptor.
const WAITS: usize = 64;

/// The largest number of descriptors that are taken during one hold of the mutex. It limits the
/// time that other threads wait for the mutex.
const AT_ONCE: usize = 32;

/// K94's scheme, with the mutexes `page_mutex` and `mmu_mutex`.
#[derive(Clone, Copy, Debug)]
pub struct Monitor;

impl<L: Locks> Arrays<L> for Monitor {
    type Of<D: Default + Send> = MonitorArray<D, L>;
    type Mmus<D: Default + Send> = MonitorArray<D, L>;

    fn array<D: Default + Send>(&self, of: Class, flags: Class) -> MonitorArray<D, L> {
        MonitorArray {
            of,
            mutex: L::Mutex::new(flags, Sparse::new()),
            waits: many(WAITS, || L::Wait::new(of)),
        }
    }

    fn mmus<D: Default + Send>(&self) -> MonitorArray<D, L> {
        Arrays::<L>::array(self, Class::Mmu, Class::MmuFlags)
    }
}

/// Descriptors with one mutex for all flags.
pub struct MonitorArray<D: Send, L: Locks> {
    of: Class,
    mutex: L::Mutex<Sparse<Flagged<D>>>,
    waits: Box<[L::Wait]>,
}

/// A descriptor and its flags.
struct Flagged<D> {
    /// `None` while the descriptor is busy.
    descriptor: Option<D>,
    is_wanted: bool,
}

impl<D: Default> Default for Flagged<D> {
    fn default() -> Flagged<D> {
        Flagged { descriptor: Some(D::default()), is_wanted: false }
    }
}

impl<D: Default + Send, L: Locks> Array<D> for MonitorArray<D, L> {
    fn until<R>(
        &self,
        site: Site,
        number: u64,
        mut f: impl FnMut(&mut D) -> Option<R>,
    ) -> Option<R> {
        let wait = &self.waits[number as usize % WAITS];
        // A descriptor that `f` left unchanged; it is put back before the caller sleeps.
        let mut back = None;
        loop {
            let mut was_busy = false;
            let mut descriptor = self.mutex.until(site, wait, |all| {
                let Some(slot) = all.get_mut(number) else { return Some(None) };
                if let Some(unchanged) = back.take() {
                    slot.descriptor = Some(unchanged);
                    L::released(self.of);
                    // A thread that found the descriptor busy may take it now. The caller waits
                    // until another thread changes it.
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
                descriptor.map(Some)
            })?;
            L::acquired(self.of, site, was_busy);
            match f(&mut descriptor) {
                Some(result) => {
                    let is_wanted = self.mutex.with(site, |all| {
                        let slot = all.get_mut(number).expect(TAKEN);
                        slot.descriptor = Some(descriptor);
                        L::released(self.of);
                        core::mem::take(&mut slot.is_wanted)
                    });
                    if is_wanted {
                        wait.wake_all();
                    }
                    return Some(result);
                }
                None => back = Some(descriptor),
            }
        }
    }

    fn several(
        &self,
        site: Site,
        count: usize,
        number: impl Fn(usize) -> u64,
        mut f: impl FnMut(usize, Option<&mut D>) -> bool,
    ) {
        let (mut first, mut goes_on) = (0, true);
        while goes_on && first < count {
            if count - first == 1 {
                let last = |descriptor: &mut D| Some(f(first, Some(descriptor)));
                if self.until(site, number(first), last).is_none() {
                    f(first, None);
                }
                return;
            }
            let end = count.min(first + AT_ONCE);
            let mut taken = [const { None }; AT_ONCE];
            let after = first + self.take(site, first..end, &number, &mut taken);
            if after == first {
                // No memory is left for the descriptor at this place.
                goes_on = f(first, None);
                first += 1;
                continue;
            }
            for (place, descriptor) in (first..after).zip(taken.iter_mut().flatten()) {
                goes_on = goes_on && f(place, Some(descriptor));
            }
            let taken = taken.into_iter().flatten();
            self.put_back(site, (first..after).map(&number).zip(taken));
            first = after;
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

impl<D: Default + Send, L: Locks> MonitorArray<D, L> {
    /// Takes the descriptors of these places out of the array, up to the first that another thread
    /// has taken. Waits until the first descriptor is free. Returns the number of descriptors
    /// taken, which is 0 if no memory is left for the first descriptor.
    fn take(
        &self,
        site: Site,
        places: Range<usize>,
        number: impl Fn(usize) -> u64,
        taken: &mut [Option<D>; AT_ONCE],
    ) -> usize {
        let first = number(places.start);
        let wait = &self.waits[first as usize % WAITS];
        let mut was_busy = false;
        let count = self.mutex.until(site, wait, |all| {
            let mut count = 0;
            for (place, taken) in places.clone().zip(&mut *taken) {
                let Some(slot) = all.get_mut(number(place)) else {
                    return Some(count);
                };
                let Some(descriptor) = slot.descriptor.take() else { break };
                *taken = Some(descriptor);
                count += 1;
            }
            L::flags(count.max(1));
            if count == 0 {
                all.get_mut(first).expect(TAKEN).is_wanted = true;
                was_busy = true;
                return None;
            }
            Some(count)
        });
        if count > 0 {
            L::acquired(self.of, site, was_busy);
            (1..count).for_each(|_| L::acquired_too(self.of, site));
        }
        count
    }

    /// Puts descriptors back into the array, and wakes the threads that wait for one of them.
    fn put_back(&self, site: Site, taken: impl Iterator<Item = (u64, D)>) {
        let mut wanted = 0_u64;
        self.mutex.with(site, |all| {
            let mut count = 0;
            for (number, descriptor) in taken {
                let slot = all.get_mut(number).expect(TAKEN);
                slot.descriptor = Some(descriptor);
                L::released(self.of);
                count += 1;
                if core::mem::take(&mut slot.is_wanted) {
                    wanted |= 1 << (number as usize % WAITS);
                }
            }
            L::flags(count);
        });
        let places = (0..WAITS).filter(|place| wanted >> place & 1 != 0);
        places.for_each(|place| self.waits[place].wake_all());
    }
}

const TAKEN: &str = "a descriptor that was taken has a place";
const _: () = assert!(WAITS <= u64::BITS as usize, "a place to wait at has a bit");
