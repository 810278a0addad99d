//! One lock for the whole layer, which an operation releases while the processors flush. In this
//! time other operations can load and unload pages, and can use the memory of tables that were
//! freed.
//!
//! ```text
//!   lock -- change tables -- unlock   shoot, wait for answers   lock -- strike out, free -- unlock
//! ```
//!
//! This scheme separates two effects that K94 measures together (section 5.3, figure 8). Under
//! [`Global`](super::Global), an unload keeps both its memory and the lock until its shootdown is
//! over. Under this scheme the memory is available as early as with one lock per descriptor, but
//! there is still only one lock. In all schemes a frame is free only when all processors have
//! answered.

use alloc::vec::Vec;

use pagetable::Mounted;

use super::{Below, Class, Held, Locks, Mutex, Rw, Scheme, Site, Wait, array::Shared};
use crate::{
    contexts::Contexts,
    frame::Frame,
    pool::Pool,
    space::{AddressSpace, Mmu, Numbers},
    sparse::Sparse,
};

/// The scheme with one lock, of the platform `L`, for everything except the lists of MMU
/// descriptors.
pub struct Early<T: Mounted + ?Sized, L: Locks> {
    spaces: Shared<L::Rw<Option<AddressSpace>>, L>,
    state: L::Mutex<State<T>>,
    /// Where threads wait for a frame's descriptor to change.
    wait: L::Wait,
}

/// The data that the lock guards.
struct State<T: Mounted + ?Sized> {
    mmus: Vec<Mmu<T>>,
    rest: EarlyBelow,
}

/// Page-frame descriptors and free resources, for the thread that holds the lock.
pub struct EarlyBelow {
    frames: Sparse<Frame>,
    pool: Pool,
    numbers: Numbers,
    contexts: Contexts,
    /// Whether a thread sleeps until a descriptor changes.
    is_wanted: bool,
}

impl<T: Mounted + ?Sized, L: Locks> Early<T, L> {
    /// A scheme without spaces; tables get their memory from `pool`.
    pub fn new(pool: Pool) -> Early<T, L> {
        let (frames, numbers) = (Sparse::new(), Numbers::default());
        let contexts = Contexts::default();
        let rest = EarlyBelow { frames, pool, numbers, contexts, is_wanted: false };
        Early {
            spaces: Shared::new(),
            state: L::Mutex::new(Class::HatEarly, State { mmus: Vec::new(), rest }),
            wait: L::Wait::new(Class::HatEarly),
        }
    }

    fn space(&self, space: u32) -> Option<&L::Rw<Option<AddressSpace>>> {
        self.spaces.get(space.into(), || Some(L::Rw::new(Class::Space, None)))
    }

    /// Runs `f` under the lock, and wakes the threads that wait for a change.
    fn with<R>(&self, site: Site, f: impl FnOnce(&mut State<T>) -> R) -> R {
        let (result, is_wanted) = self.state.with(site, |state| {
            let result = f(state);
            (result, core::mem::take(&mut state.rest.is_wanted))
        });
        if is_wanted {
            self.wait.wake_all();
        }
        result
    }
}

impl<T: Mounted + ?Sized, L: Locks> Scheme for Early<T, L> {
    type Table = T;
    type Held<'a>
        = EarlyHeld<'a, T, L>
    where
        Self: 'a;

    #[inline]
    fn enter<R>(&self, site: Site, f: impl FnOnce(&mut EarlyHeld<'_, T, L>) -> R) -> R {
        f(&mut EarlyHeld { early: self, site })
    }
}

/// An operation in progress.
pub struct EarlyHeld<'a, T: Mounted + ?Sized, L: Locks> {
    early: &'a Early<T, L>,
    site: Site,
}

impl<T: Mounted + ?Sized, L: Locks> Held for EarlyHeld<'_, T, L> {
    type Table = T;
    type Below = EarlyBelow;

    fn space<K, R>(
        &mut self,
        space: u32,
        of: impl FnOnce(&AddressSpace) -> Option<K>,
        f: impl FnOnce(Option<K>, &mut Self) -> R,
    ) -> R {
        let Some(place) = self.early.space(space) else { return f(None, self) };
        place.read(self.site, |known| f(known.as_ref().and_then(of), self))
    }

    fn place_of_space<R>(
        &mut self,
        space: u32,
        f: impl FnOnce(Option<&mut Option<AddressSpace>>) -> R,
    ) -> R {
        let Some(place) = self.early.space(space) else { return f(None) };
        place.write(self.site, |known| f(Some(known)))
    }

    fn try_mmu<R>(
        &mut self,
        mmu: u32,
        f: impl FnOnce(&mut Mmu<T>, &mut EarlyBelow) -> R,
    ) -> Option<R> {
        self.early.with(self.site, |state| {
            let mmu = mmu as usize;
            if mmu >= state.mmus.len() {
                state.mmus.try_reserve(mmu + 1 - state.mmus.len()).ok()?;
                state.mmus.resize_with(mmu + 1, Mmu::default);
            }
            Some(f(&mut state.mmus[mmu], &mut state.rest))
        })
    }

    fn each_frame(&mut self, f: &mut dyn FnMut(u64, &Frame)) {
        self.early.state.with(self.site, |state| state.rest.frames.each(f));
    }
}

impl<T: Mounted + ?Sized, L: Locks> Below for EarlyHeld<'_, T, L> {
    fn frame<R>(&mut self, frame: u64, mut f: impl FnMut(&mut Frame) -> Option<R>) -> Option<R> {
        let early = self.early;
        let (result, is_wanted) = early.state.until(self.site, &early.wait, |state| {
            let Some(descriptor) = state.rest.frames.get_mut(frame) else { return Some(None) };
            match f(descriptor) {
                Some(result) => Some(Some((result, core::mem::take(&mut state.rest.is_wanted)))),
                None => {
                    state.rest.is_wanted = true;
                    None
                }
            }
        })?;
        if is_wanted {
            early.wait.wake_all();
        }
        Some(result)
    }

    fn frames(
        &mut self,
        count: usize,
        number: impl Fn(usize) -> u64,
        f: impl FnMut(usize, Option<&mut Frame>) -> bool,
    ) {
        if count > 0 {
            self.early.with(self.site, |state| state.rest.frames(count, number, f));
        }
    }

    fn pool<R>(&mut self, f: impl FnOnce(&mut Pool) -> R) -> R {
        self.early.state.with(self.site, |state| f(&mut state.rest.pool))
    }

    fn numbers<R>(&mut self, f: impl FnOnce(&mut Numbers) -> R) -> R {
        self.early.state.with(self.site, |state| f(&mut state.rest.numbers))
    }

    fn contexts<R>(&mut self, f: impl FnOnce(&mut Contexts) -> R) -> R {
        self.early.state.with(self.site, |state| f(&mut state.rest.contexts))
    }
}

/// Never waits, because the thread already holds the lock.
impl Below for EarlyBelow {
    #[inline]
    fn frame<R>(&mut self, frame: u64, mut f: impl FnMut(&mut Frame) -> Option<R>) -> Option<R> {
        Some(f(self.frames.get_mut(frame)?).unwrap_or_else(super::wrong_without_waiting))
    }

    fn pool<R>(&mut self, f: impl FnOnce(&mut Pool) -> R) -> R {
        f(&mut self.pool)
    }

    fn numbers<R>(&mut self, f: impl FnOnce(&mut Numbers) -> R) -> R {
        f(&mut self.numbers)
    }

    fn contexts<R>(&mut self, f: impl FnOnce(&mut Contexts) -> R) -> R {
        f(&mut self.contexts)
    }
}
