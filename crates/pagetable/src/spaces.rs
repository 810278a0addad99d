use alloc::{collections::TryReserveError, vec::Vec};

use addr::PhysAddr;

use crate::{Error, Space};

/// The existing spaces of a page table, with the table's data (`T`) for each.
///
/// The numbers of ended spaces are reused, the lowest first.
#[derive(Debug)]
pub(crate) struct Spaces<T> {
    slots: Vec<Option<State<T>>>,
}

#[derive(Debug)]
struct State<T> {
    root: PhysAddr,
    /// Whether a global page has ever been mapped in the space.
    global: bool,
    own: T,
}

impl<T> Spaces<T> {
    /// No spaces.
    pub(crate) const fn new() -> Spaces<T> {
        Spaces { slots: Vec::new() }
    }

    /// Reserves memory for one more space, so that the next [`Spaces::create`] cannot fail.
    pub(crate) fn prepare(&mut self) -> Result<(), TryReserveError> {
        self.slots.try_reserve(1)
    }

    /// Creates a space whose table starts at `root` and whose data is `own`. The memory has been
    /// reserved by [`Spaces::prepare`].
    pub(crate) fn create(&mut self, root: PhysAddr, own: T) -> Space {
        let free = self.slots.iter().position(Option::is_none);
        let id = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[id] = Some(State { root, global: false, own });
        Space::new(id as u32, root)
    }

    /// Ends `space`. Returns whether it may have held global pages, and its data.
    pub(crate) fn destroy(&mut self, space: Space) -> Result<(bool, T), Error> {
        self.check(space)?;
        let state = self.slots[space.id() as usize].take();
        state.map(|state| (state.global, state.own)).ok_or(Error::NoSpace(space))
    }

    /// The number of existing spaces.
    pub(crate) fn count(&self) -> u64 {
        self.slots.iter().flatten().count() as u64
    }

    /// Checks that `space` exists.
    #[inline]
    pub(crate) fn check(&self, space: Space) -> Result<(), Error> {
        self.own(space).map(|_| ()).ok_or(Error::NoSpace(space))
    }

    /// Records that `space`, which exists, holds a global page.
    pub(crate) fn set_global(&mut self, space: Space) {
        self.state(space).global = true;
    }

    /// The data of `space`, if it exists.
    #[inline]
    pub(crate) fn own(&self, space: Space) -> Option<&T> {
        let state = self.slots.get(space.id() as usize)?.as_ref()?;
        (state.root == space.root()).then_some(&state.own)
    }

    /// Mutable access to the data of `space`, which exists.
    pub(crate) fn own_mut(&mut self, space: Space) -> &mut T {
        &mut self.state(space).own
    }

    /// The data of every space.
    pub(crate) fn owns(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|state| &state.own)
    }

    fn state(&mut self, space: Space) -> &mut State<T> {
        let state = self.slots.get_mut(space.id() as usize).and_then(Option::as_mut);
        state.expect("operations on a space check that it exists")
    }
}
