use alloc::vec::Vec;

use addr::PhysAddr;

use crate::{Error, Footprint, Space};

/// The spaces of a page table: which exist, and what each takes.
///
/// Numbers of ended spaces are given out again, the lowest first.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    slots: Vec<Option<State>>,
    total: Footprint,
}

#[derive(Debug)]
struct State {
    root: PhysAddr,
    footprint: Footprint,
    /// Whether a global page was ever mapped in it.
    global: bool,
}

impl Spaces {
    /// A new space whose table starts at `root`.
    pub(crate) fn create(&mut self, root: PhysAddr) -> Space {
        let free = self.slots.iter().position(Option::is_none);
        let id = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[id] = Some(State { root, footprint: Footprint::default(), global: false });
        Space::new(id as u32, root)
    }

    /// Ends `space` and says whether it may have held global pages.
    pub(crate) fn destroy(&mut self, space: Space) -> Result<bool, Error> {
        let state = self.state(space)?;
        let (global, footprint) = (state.global, state.footprint);
        self.total -= footprint;
        self.slots[space.id() as usize] = None;
        Ok(global)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.slots.iter().flatten().count() as u64
    }

    /// That `space` exists.
    #[inline]
    pub(crate) fn check(&self, space: Space) -> Result<(), Error> {
        self.get(space).map(|_| ()).ok_or(Error::NoSpace(space))
    }

    /// Notes that `space` holds a global page.
    pub(crate) fn set_global(&mut self, space: Space) {
        if let Ok(state) = self.state(space) {
            state.global = true;
        }
    }

    /// Counts a table of `space` in.
    pub(crate) fn add(&mut self, space: Space, table: Footprint) {
        if let Ok(state) = self.state(space) {
            state.footprint += table;
            self.total += table;
        }
    }

    /// Counts a table of `space` out.
    pub(crate) fn remove(&mut self, space: Space, table: Footprint) {
        if let Ok(state) = self.state(space) {
            state.footprint -= table;
            self.total -= table;
        }
    }

    /// What all spaces take.
    pub(crate) fn footprint(&self) -> Footprint {
        self.total
    }

    /// What `space` takes.
    pub(crate) fn footprint_of(&self, space: Space) -> Footprint {
        self.get(space).map(|state| state.footprint).unwrap_or_default()
    }

    #[inline]
    fn get(&self, space: Space) -> Option<&State> {
        let state = self.slots.get(space.id() as usize)?.as_ref()?;
        (state.root == space.root()).then_some(state)
    }

    fn state(&mut self, space: Space) -> Result<&mut State, Error> {
        let state = self.slots.get_mut(space.id() as usize).and_then(Option::as_mut);
        state.filter(|state| state.root == space.root()).ok_or(Error::NoSpace(space))
    }
}
