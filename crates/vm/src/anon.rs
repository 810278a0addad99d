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
//!
//! Anons lie in maps with a lock each. A space's lock says that its own users of an anon stay: who
//! has it and finds one user knows that there will be one.

use alloc::{boxed::Box, vec::Vec};

use hat::locking::{Class, Locks, Mutex, Site};
use physmem::{FrameId, NO_FRAME};

use crate::object::PageLocation;

/// Anonymous maps: an anon is in the one that the last bits of its number say.
const MAPS: usize = 64;

/// The number of an anon.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct AnonId(pub(crate) u32);

/// A page and its users.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anon {
    /// Pages of spaces that it is: 0 in an entry that is not in use.
    pub(crate) refs: u32,
    pub(crate) place: PageLocation,
    /// Whether no fork has shared it since it was its only user's last.
    pub(crate) exclusive: bool,
}

const UNUSED: Anon =
    Anon { refs: 0, place: PageLocation::Resident(FrameId(NO_FRAME)), exclusive: true };

/// All anons: maps with a lock each, and one for the numbers that are free.
pub(crate) struct Anons<L: Locks> {
    maps: Box<[L::Mutex<Vec<Anon>>]>,
    numbers: L::Mutex<Numbers>,
}

/// Numbers of anons.
#[derive(Default)]
struct Numbers {
    unused: Vec<u32>,
    /// Those from here on were never used.
    fresh: u32,
}

impl<L: Locks> Anons<L> {
    pub(crate) fn new() -> Anons<L> {
        Anons {
            maps: (0..MAPS).map(|_| L::Mutex::new(Class::VmAnon, Vec::new())).collect(),
            numbers: L::Mutex::new(Class::VmFree(1), Numbers::default()),
        }
    }

    /// A new one with one user.
    pub(crate) fn add(&self, site: Site, place: PageLocation) -> AnonId {
        let number = self.numbers.with(site, |numbers| {
            numbers.unused.pop().unwrap_or_else(|| {
                numbers.fresh += 1;
                numbers.fresh - 1
            })
        });
        let index = number as usize / MAPS;
        self.maps[number as usize % MAPS].with(site, |map| {
            if index >= map.len() {
                map.resize(index + 1, UNUSED);
            }
            map[index] = Anon { refs: 1, place, exclusive: true };
        });
        AnonId(number)
    }

    /// Does something with an anon while nobody else has its map.
    #[inline]
    pub(crate) fn with<R>(&self, site: Site, id: AnonId, f: impl FnOnce(&mut Anon) -> R) -> R {
        let number = id.0 as usize;
        self.maps[number % MAPS].with(site, |map| f(&mut map[number / MAPS]))
    }

    /// An anon as it is. Its place stays if it is in memory and pages stay; its users stay one if
    /// that one is the caller's.
    #[inline]
    pub(crate) fn get(&self, site: Site, id: AnonId) -> Anon {
        self.with(site, id, |anon| *anon)
    }

    pub(crate) fn set_place(&self, site: Site, id: AnonId, place: PageLocation) {
        self.with(site, id, |anon| anon.place = place);
    }

    /// One user more.
    pub(crate) fn share(&self, site: Site, id: AnonId) {
        self.with(site, id, |anon| {
            anon.refs += 1;
            anon.exclusive = false;
        });
    }

    /// One user less. Gives where the page was, if that was the last.
    pub(crate) fn release(&self, site: Site, id: AnonId) -> Option<PageLocation> {
        let place = self.with(site, id, |anon| {
            anon.refs -= 1;
            (anon.refs == 0).then_some(anon.place)
        })?;
        self.numbers.with(site, |numbers| numbers.unused.push(id.0));
        Some(place)
    }

    /// Gives `each` those in use.
    pub(crate) fn each(&self, mut each: impl FnMut(AnonId, Anon)) {
        for (number, map) in (0..).zip(&self.maps) {
            map.with(Site::Look, |map| {
                let numbers = (number..).step_by(MAPS);
                let all = numbers.zip(map.iter()).filter(|(_, anon)| anon.refs > 0);
                all.for_each(|(number, anon)| each(AnonId(number), *anon));
            });
        }
    }
}
