use alloc::vec::Vec;

use addr::PhysAddr;

use crate::{Error, Space};

/// The spaces of a page table: which exist, and what the table keeps for each, a `T`.
///
/// Numbers of ended spaces are given out again, the lowest first.
#[derive(Debug)]
pub(crate) struct Spaces<T> {
    slots: Vec<Option<State<T>>>,
}

#[derive(Debug)]
struct State<T> {
    root: PhysAddr,
    /// Whether a global page was ever mapped in it.
    global: bool,
    own: T,
}

impl<T> Spaces<T> {
    /// No spaces.
    pub(crate) const fn new() -> Spaces<T> {
        Spaces { slots: Vec::new() }
    }

    /// A new space whose table starts at `root`, and for which `own` is kept.
    pub(crate) fn create(&mut self, root: PhysAddr, own: T) -> Space {
        let free = self.slots.iter().position(Option::is_none);
        let id = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[id] = Some(State { root, global: false, own });
        Space::new(id as u32, root)
    }

    /// Ends `space`. Says whether it may have held global pages, and gives back what was kept.
    pub(crate) fn destroy(&mut self, space: Space) -> Result<(bool, T), Error> {
        self.check(space)?;
        let state = self.slots[space.id() as usize].take();
        state.map(|state| (state.global, state.own)).ok_or(Error::NoSpace(space))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.slots.iter().flatten().count() as u64
    }

    /// That `space` exists.
    #[inline]
    pub(crate) fn check(&self, space: Space) -> Result<(), Error> {
        self.own(space).map(|_| ()).ok_or(Error::NoSpace(space))
    }

    /// Notes that `space`, which exists, holds a global page.
    pub(crate) fn set_global(&mut self, space: Space) {
        self.state(space).global = true;
    }

    /// What is kept for `space`, if it exists.
    #[inline]
    pub(crate) fn own(&self, space: Space) -> Option<&T> {
        let state = self.slots.get(space.id() as usize)?.as_ref()?;
        (state.root == space.root()).then_some(&state.own)
    }

    /// What is kept for `space`, which exists.
    pub(crate) fn own_mut(&mut self, space: Space) -> &mut T {
        &mut self.state(space).own
    }

    /// What is kept for each.
    pub(crate) fn owns(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|state| &state.own)
    }

    fn state(&mut self, space: Space) -> &mut State<T> {
        let state = self.slots.get_mut(space.id() as usize).and_then(Option::as_mut);
        state.expect("operations on a space check that it exists")
    }
}
