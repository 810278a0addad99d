//! Anonymous pages with reference counts: copy on write without chains of shadow objects.
//!
//! ```text
//!   parent   page 5 --+                  child stores to page 5:
//!                     +--> anon 9, 2     parent   page 5 ----> anon 9, 1
//!   child    page 5 --+                  child    page 5 ----> anon 12, 1   a copy
//! ```
//!
//! A page that a space has stored to is an *anon*: the page together with the number of spaces that
//! use it (Cranor and Parulkar 1999, UVM; earlier in SunOS). A fork increments the count of each of
//! the parent's anons. A store to an anon with one user changes the page; with several users, the
//! store first makes a copy, which is a new anon. A fault therefore never searches more than one
//! place for a page, however many forks there were.
//!
//! Anons are in maps with one lock each. A space's lock guarantees that the space remains a user of
//! its anons: if the holder of that lock finds a count of one, the count stays one.

use alloc::{boxed::Box, collections::TryReserveError, vec::Vec};

use hat::locking::{Class, Locks, Mutex, Site};
use physmem::{FrameId, NO_FRAME};

use crate::object::PageLocation;

/// The number of anonymous maps. The lowest bits of an anon's number select its map.
const MAPS: usize = 64;

/// The number of an anon.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct AnonId(pub(crate) u32);

/// A page and its users.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anon {
    /// The number of pages of spaces that refer to the anon; 0 in an unused entry.
    pub(crate) refs: u32,
    pub(crate) place: PageLocation,
    /// Whether no fork has shared the anon since it last became exclusive to its only user.
    pub(crate) exclusive: bool,
}

const UNUSED: Anon =
    Anon { refs: 0, place: PageLocation::Resident(FrameId(NO_FRAME)), exclusive: true };

/// All anons, in maps with one lock each, and a lock for the free numbers.
pub(crate) struct Anons<L: Locks> {
    maps: Box<[L::Mutex<Vec<Anon>>]>,
    numbers: L::Mutex<Numbers>,
}

/// The free numbers of anons.
#[derive(Default)]
struct Numbers {
    unused: Vec<u32>,
    /// The lowest number that was never used.
    fresh: u32,
}

impl Numbers {
    fn take(&mut self) -> Result<u32, TryReserveError> {
        if let Some(number) = self.unused.pop() {
            return Ok(number);
        }
        // There is room for all numbers in use, so that no number is lost when an anon ends.
        let all = self.fresh as usize + 1;
        self.unused.try_reserve(all - self.unused.len())?;
        self.fresh += 1;
        Ok(self.fresh - 1)
    }
}

impl<L: Locks> Anons<L> {
    pub(crate) fn new() -> Anons<L> {
        Anons {
            maps: (0..MAPS).map(|_| L::Mutex::new(Class::VmAnon, Vec::new())).collect(),
            numbers: L::Mutex::new(Class::VmFree(1), Numbers::default()),
        }
    }

    /// Creates an anon with one user. After an error nothing has changed.
    pub(crate) fn add(&self, site: Site, place: PageLocation) -> Result<AnonId, TryReserveError> {
        let number = self.numbers.with(site, Numbers::take)?;
        let index = number as usize / MAPS;
        let added = self.maps[number as usize % MAPS].with(site, |map| {
            if index >= map.len() {
                map.try_reserve(index + 1 - map.len())?;
                map.resize(index + 1, UNUSED);
            }
            map[index] = Anon { refs: 1, place, exclusive: true };
            Ok(AnonId(number))
        });
        if added.is_err() {
            self.numbers.with(site, |numbers| numbers.unused.push(number));
        }
        added
    }

    /// Runs `f` on an anon while its map is locked.
    #[inline]
    pub(crate) fn with<R>(&self, site: Site, id: AnonId, f: impl FnOnce(&mut Anon) -> R) -> R {
        let number = id.0 as usize;
        self.maps[number % MAPS].with(site, |map| f(&mut map[number / MAPS]))
    }

    /// A copy of an anon. The copied place remains valid if the page is in memory and the caller
    /// prevents pages from being moved or evicted. A count of one remains one if the caller is the
    /// only user.
    #[inline]
    pub(crate) fn get(&self, site: Site, id: AnonId) -> Anon {
        self.with(site, id, |anon| *anon)
    }

    pub(crate) fn set_place(&self, site: Site, id: AnonId, place: PageLocation) {
        self.with(site, id, |anon| anon.place = place);
    }

    /// Adds a user.
    pub(crate) fn share(&self, site: Site, id: AnonId) {
        self.with(site, id, |anon| {
            anon.refs += 1;
            anon.exclusive = false;
        });
    }

    /// Removes a user. If it was the last user, returns the place of the page.
    pub(crate) fn release(&self, site: Site, id: AnonId) -> Option<PageLocation> {
        let place = self.with(site, id, |anon| {
            anon.refs -= 1;
            (anon.refs == 0).then_some(anon.place)
        })?;
        self.numbers.with(site, |numbers| numbers.unused.push(id.0));
        Some(place)
    }

    /// Calls `each` for every anon in use.
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
