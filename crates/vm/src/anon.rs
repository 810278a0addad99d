//! Anonymous pages, counted: copy on write without chains of shadow objects.
//!
//! ```text
//!   parent   page 5 --+                  child stores to page 5:
//!                     +--> anon 9, 2     parent   page 5 ----> anon 9, 1
//!   child    page 5 --+                  child    page 5 ----> anon 12, 1   a copy
//! ```
//!
//! A page that a space has stored to is an *anon*: the page and how many spaces use it (Cranor and
//! Parulkar 1999, UVM; SunOS before it). A fork counts all anons of the parent up. A
//! store to an anon with one user changes it; with more it makes another. No fault searches more
//! than one place, however many forks there were.

use alloc::vec::Vec;

use crate::object::Place;

/// The number of an anon.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct AnonId(pub(crate) u32);

/// A page and its users.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anon {
    /// Pages of spaces that it is: 0 in an entry that is not in use.
    pub(crate) refs: u32,
    pub(crate) place: Place,
}

/// All anons.
#[derive(Debug, Default)]
pub(crate) struct Anons {
    slab: Vec<Anon>,
    unused: Vec<u32>,
}

impl Anons {
    /// A new one with one user.
    pub(crate) fn add(&mut self, place: Place) -> AnonId {
        let anon = Anon { refs: 1, place };
        match self.unused.pop() {
            Some(number) => {
                self.slab[number as usize] = anon;
                AnonId(number)
            }
            None => {
                self.slab.push(anon);
                AnonId((self.slab.len() - 1) as u32)
            }
        }
    }

    pub(crate) fn get(&self, id: AnonId) -> Anon {
        self.slab[id.0 as usize]
    }

    pub(crate) fn set_place(&mut self, id: AnonId, place: Place) {
        self.slab[id.0 as usize].place = place;
    }

    /// One user more.
    pub(crate) fn share(&mut self, id: AnonId) {
        self.slab[id.0 as usize].refs += 1;
    }

    /// One user less. Gives where the page was, if that was the last.
    pub(crate) fn release(&mut self, id: AnonId) -> Option<Place> {
        let anon = &mut self.slab[id.0 as usize];
        anon.refs -= 1;
        let last = anon.refs == 0;
        if last {
            self.unused.push(id.0);
        }
        last.then_some(self.slab[id.0 as usize].place)
    }

    /// Those in use.
    pub(crate) fn all(&self) -> impl Iterator<Item = (AnonId, Anon)> {
        let each = self.slab.iter().enumerate();
        each.map(|(number, anon)| (AnonId(number as u32), *anon)).filter(|(_, anon)| anon.refs > 0)
    }
}
