use addr::Rights;

use crate::Event;

/// A region's number: given in order of appearance, never used again for another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct RegionId(pub u32);

/// A named part of the address space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its number.
    pub id: RegionId,
    /// `libc.so.6 (r-x)`, `heap`, `stack`, `anonymous 1`.
    pub name: String,
    /// Its lowest address so far.
    pub start: u64,
    /// From the lowest address to the end of the highest page so far.
    pub bytes: u64,
    /// What may be done in it, as last asked.
    pub rights: Rights,
    /// Whether it was made up around accesses that no event explains.
    pub inferred: bool,
    /// Whether any page of it is mapped now.
    pub mapped: bool,
}

/// The address space of a process by region, kept by applying its events.
#[derive(Clone, Debug, Default)]
pub struct Regions {}

impl Regions {
    /// An address space in which nothing is known.
    pub fn new() -> Regions {
        Regions::default()
    }

    /// Changes the map as `event` of `thread` changed it.
    pub fn apply(&mut self, _thread: u32, _event: &Event) {
        unimplemented!()
    }

    /// The region that `addr` lies in now; one is inferred where none is known.
    pub fn region_of(&mut self, _addr: u64) -> RegionId {
        unimplemented!()
    }

    /// The region of that number.
    pub fn get(&self, _id: RegionId) -> &Region {
        unimplemented!()
    }

    /// All regions that ever were, by number.
    pub fn all(&self) -> &[Region] {
        unimplemented!()
    }
}
