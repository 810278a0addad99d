//! The SpecTLB: large pages that are not mapped as such yet, remembered to predict where their base
//! pages lie (B10 section 6.2).
//!
//! ```text
//!   TLB miss of (0b9, 00c, 0ae, 0c3 | 001)
//!      |              tag           | large frame
//!      +--> SpecTLB   0b9 00c 0ae   | 0ac          --> predicted: {0ac, 0c3 | 001}
//!      |                                                      |
//!      +--> walk ---------------------------------> found:    {0ac, 0c3 | 001}    right
//! ```
//!
//! An operating system that keeps room for a large page places each base page where it would lie in
//! it. Whoever knows one of them knows where the others are, if they are there. A prediction is
//! always checked by the walk, which the processor need not wait for where it is right; so an entry
//! may be stale, and nothing need be flushed.
//!
//! An entry comes in when a walk finds a base page that looks as if it lay in a reservation: by its
//! address, which agrees with the virtual one below the large page (section 6.2.2), or by a mark
//! that the operating system has set in its page-table entry (section 6.2.1). It leaves when it has
//! led to a wrong prediction, or makes room for another. Where it is to stay although no page was
//! there ([`SpecTlbParams::keeps_absent`]), the page that the fault then brings is predicted.

use addr::{Asid, PageSize, PhysAddr, VirtAddr};

use crate::{AnyReplacement, GeometryError, Policy, SetArray};

/// What a SpecTLB is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecTlbParams {
    /// How many large pages it remembers.
    pub entries: u32,
    /// How many of them are in a set.
    pub ways: u32,
    /// Which entry makes room.
    pub replacement: Policy,
    /// Where the random numbers of the replacement begin.
    pub seed: u64,
    /// The large page.
    pub page_size: PageSize,
    /// Which pages make an entry.
    pub fill: SpecFill,
    /// Whether an entry stays where it predicts a page and the walk faults.
    pub keeps_absent: bool,
}

/// By what a SpecTLB tells that a base page lies in a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpecFill {
    /// Its virtual and physical addresses agree below the large page. One page of 512 does by
    /// chance.
    Heuristic,
    /// The operating system has marked its page-table entry.
    Marks,
}

impl SpecFill {
    /// Each of them.
    pub const ALL: [SpecFill; 2] = [SpecFill::Heuristic, SpecFill::Marks];

    /// The name as machine files write it.
    pub const fn name(self) -> &'static str {
        match self {
            SpecFill::Heuristic => "heuristic",
            SpecFill::Marks => "marks",
        }
    }
}

/// Where a walk has found an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The physical address.
    pub phys: PhysAddr,
    /// The size of the page.
    pub size: PageSize,
    /// Whether the operating system has placed the page in a reservation of at least the large
    /// page's size, which may be broken by now. It tells the causes of wrong predictions apart; no hardware sees it.
    pub reserved: bool,
    /// Whether the mark in its page-table entry says so.
    pub marked: bool,
    /// Base pages around it side by side in adjacent frames, as far as anybody asks: [`Spot::RUN_MAX`] at most.
    pub run: u32,
}

impl Spot {
    /// Longer runs are not told apart.
    pub const RUN_MAX: u32 = 64;
}

/// What a SpecTLB has said of a walk, in the light of what the walk has found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Speculation {
    /// Nothing: it knows no reservation there.
    None,
    /// Where the page is.
    Right,
    /// Where a page would be, but the walk faults: none is there, or none that allows the access.
    WrongAbsent,
    /// A place in a reservation, but the page is elsewhere: it was placed after the reservation was broken.
    WrongBroken,
    /// A place in what was no reservation: one page's addresses agreed by chance.
    WrongChance,
}

impl Speculation {
    /// Each of them, in the order of their numbers.
    pub const ALL: [Speculation; 5] = [
        Speculation::None,
        Speculation::Right,
        Speculation::WrongAbsent,
        Speculation::WrongBroken,
        Speculation::WrongChance,
    ];
}

/// A SpecTLB.
#[derive(Clone, Debug)]
pub struct SpecTlb {
    params: SpecTlbParams,
    sets: SetArray,
    slots: Box<[Option<Remembered>]>,
    policy: AnyReplacement,
}

/// A large page that is not mapped as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Remembered {
    number: u64,
    asid: Asid,
    /// Its first byte.
    frame: PhysAddr,
    /// Whether the page that made this entry was in a reservation.
    reserved: bool,
}

impl SpecTlb {
    /// An empty one.
    pub fn new(params: SpecTlbParams) -> Result<SpecTlb, GeometryError> {
        let sets = SetArray::new(params.entries.into(), params.ways)?;
        let ways_of_sets = core::iter::repeat_n(sets.ways(), sets.sets());
        Ok(SpecTlb {
            slots: vec![None; sets.entries()].into_boxed_slice(),
            policy: AnyReplacement::new(params.replacement, ways_of_sets, params.seed),
            sets,
            params,
        })
    }

    /// What it is like.
    pub const fn params(&self) -> &SpecTlbParams {
        &self.params
    }

    /// The place that it would name for `va`, without counting or touching anything.
    pub fn predicts(&self, va: VirtAddr, asid: Asid) -> Option<PhysAddr> {
        let held = self.slots[self.slot_of(va, asid)?]?;
        Some(PhysAddr::new(held.frame.get() + self.offset(va)))
    }

    /// Hears of a walk of `va` and where it has ended, if it has found a page. Says what it would have
    /// said before.
    pub fn walked(&mut self, va: VirtAddr, asid: Asid, found: Option<Spot>) -> Speculation {
        let number = va.get() >> self.params.page_size.shift();
        let set = self.sets.set_of(number);
        let slot = self.slot_of(va, asid);
        let said = match slot.and_then(|slot| Some((slot, self.slots[slot]?))) {
            None => Speculation::None,
            Some((slot, held)) => {
                self.policy.touched(slot);
                let said = held.judge(self.offset(va), found);
                let stays = match said {
                    Speculation::None | Speculation::Right => true,
                    Speculation::WrongAbsent => self.params.keeps_absent,
                    Speculation::WrongBroken | Speculation::WrongChance => false,
                };
                if !stays {
                    self.remove(slot);
                }
                said
            }
        };
        if said != Speculation::Right
            && let Some(spot) = found.filter(|spot| self.is_reserved(va, spot))
        {
            self.insert(
                set,
                Remembered {
                    number,
                    asid,
                    frame: PhysAddr::new(spot.phys.get() - self.offset(va)),
                    reserved: spot.reserved,
                },
            );
        }
        said
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some() {
                self.remove(slot);
            }
        }
    }

    fn slot_of(&self, va: VirtAddr, asid: Asid) -> Option<usize> {
        let number = va.get() >> self.params.page_size.shift();
        self.sets.find(self.sets.set_of(number), number, |slot| {
            self.slots[slot].is_some_and(|held| (held.number, held.asid) == (number, asid))
        })
    }

    /// Whether a page looks as if it lay in a reservation. It would not come from one if it were as
    /// large as that.
    fn is_reserved(&self, va: VirtAddr, spot: &Spot) -> bool {
        let below = self.params.page_size.bytes() - 1;
        let agrees = (va.get() ^ spot.phys.get()) & below == 0;
        let is_smaller = spot.size.bytes() < self.params.page_size.bytes();
        is_smaller
            && match self.params.fill {
                SpecFill::Heuristic => agrees,
                // A mark on a page that lies elsewhere is the operating system's mistake.
                SpecFill::Marks => agrees && spot.marked,
            }
    }

    fn offset(&self, va: VirtAddr) -> u64 {
        va.get() & (self.params.page_size.bytes() - 1)
    }

    fn insert(&mut self, set: usize, new: Remembered) {
        let slot = match self.sets.empty_slot(set) {
            Some(slot) => slot,
            None => self.policy.victim(self.sets.slots(set)),
        };
        self.slots[slot] = Some(new);
        self.sets.occupy(set, slot, new.number);
        self.policy.inserted(slot);
    }

    fn remove(&mut self, slot: usize) {
        self.slots[slot] = None;
        self.sets.vacate(slot);
        self.policy.removed(slot);
    }
}

impl Remembered {
    /// What is to be said of this entry, used for an address at `offset` in the large page.
    fn judge(&self, offset: u64, found: Option<Spot>) -> Speculation {
        match found {
            None => Speculation::WrongAbsent,
            Some(spot) if spot.phys.get() == self.frame.get() + offset => Speculation::Right,
            Some(_) if self.reserved => Speculation::WrongBroken,
            Some(_) => Speculation::WrongChance,
        }
    }
}
