//! The SpecTLB. Its entries are for large pages that are reserved but still mapped by base pages;
//! from them it predicts the frames of these base pages (B10 section 6.2).
//!
//! ```text
//!   TLB miss of (0b9, 00c, 0ae, 0c3 | 001)
//!      |              tag           | large frame
//!      +--> SpecTLB   0b9 00c 0ae   | 0ac          --> predicted: {0ac, 0c3 | 001}
//!      |                                                      |
//!      +--> walk ---------------------------------> found:    {0ac, 0c3 | 001}    right
//! ```
//!
//! An operating system that reserves a block of frames for a large page places each base page at
//! its position in the block. From the frame of one of these pages, the frames of all other pages
//! of the block follow, if they are mapped. The walk always checks a prediction; the processor need
//! not wait for the walk if the prediction is right. An entry may therefore be stale, and entries
//! need not be flushed.
//!
//! An entry is inserted when a walk finds a base page that appears to be in a reservation. A page
//! in a reservation is detected in one of two ways: the bits of its virtual and its physical
//! address below the large page size are equal (section 6.2.2), or its page-table entry has a mark
//! that the operating system has set (section 6.2.1). An entry is removed when it has led to a
//! wrong prediction, or is replaced by another. With [`SpecTlbParams::keeps_absent`] an entry also
//! stays if the walk found no page, so that the page which the fault then maps is predicted.

use addr::{Asid, PageSize, PhysAddr, VirtAddr};

use crate::{AnyReplacement, GeometryError, Policy, SetArray};

/// The parameters of a SpecTLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecTlbParams {
    /// The number of entries, one per large page.
    pub entries: u32,
    /// The number of entries per set.
    pub ways: u32,
    /// The policy that chooses the entry to replace.
    pub replacement: Policy,
    /// The seed of a random replacement policy.
    pub seed: u64,
    /// The large page size.
    pub page_size: PageSize,
    /// Which pages make an entry.
    pub fill: SpecFill,
    /// Whether an entry stays if it made a prediction but the walk faulted.
    pub keeps_absent: bool,
}

/// How a SpecTLB detects that a base page is in a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpecFill {
    /// The bits of the page's virtual and physical addresses below the large page size are equal.
    /// This happens by chance for one page in 512.
    Heuristic,
    /// The operating system has marked the page's page-table entry.
    Marks,
}

impl SpecFill {
    /// All ways of detection.
    pub const ALL: [SpecFill; 2] = [SpecFill::Heuristic, SpecFill::Marks];

    /// The name in machine files.
    pub const fn name(self) -> &'static str {
        match self {
            SpecFill::Heuristic => "heuristic",
            SpecFill::Marks => "marks",
        }
    }
}

/// The page at which a walk of an address ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The physical address.
    pub phys: PhysAddr,
    /// The size of the page.
    pub size: PageSize,
    /// Whether the operating system placed the page in a reservation of at least the large page's size, which
    /// may have been broken since. This flag classifies wrong predictions; hardware does not know
    /// it.
    pub reserved: bool,
    /// Whether the mark in the page-table entry is set.
    pub marked: bool,
    /// The number of base pages around the address that are adjacent and in adjacent frames, up to
    /// [`Spot::RUN_MAX`].
    pub run: u32,
}

impl Spot {
    /// The largest length of a run that is distinguished; longer runs have this length too.
    pub const RUN_MAX: u32 = 64;
}

/// How a SpecTLB's prediction for a walk compares with the walk's result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Speculation {
    /// There was no prediction: no reservation is known for the address.
    None,
    /// The prediction was right.
    Right,
    /// There was a prediction, but the walk faulted: no page is mapped there, or the page does not
    /// allow the access.
    WrongAbsent,
    /// The predicted frame was in a reservation, but the page has another frame, because the page
    /// was placed after the reservation was broken.
    WrongBroken,
    /// The predicted frame was in a block that was never reserved: the addresses of one page agreed
    /// by chance.
    WrongChance,
}

impl Speculation {
    /// All results of a comparison, in the order of their numbers.
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

/// A large page that is reserved but not mapped as a large page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Remembered {
    number: u64,
    asid: Asid,
    /// The address of the large page's frame.
    frame: PhysAddr,
    /// Whether the page for which this entry was made was in a reservation.
    reserved: bool,
}

impl SpecTlb {
    /// An empty SpecTLB.
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

    /// The parameters.
    pub const fn params(&self) -> &SpecTlbParams {
        &self.params
    }

    /// The physical address that the SpecTLB would predict for `va`; nothing is counted or changed.
    pub fn predicts(&self, va: VirtAddr, asid: Asid) -> Option<PhysAddr> {
        let held = self.slots[self.slot_of(va, asid)?]?;
        Some(PhysAddr::new(held.frame.get() + self.offset(va)))
    }

    /// Updates the SpecTLB after a walk of `va` that ended at `found`, or with a fault. Returns how
    /// the prediction before the walk compares with the result.
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

    /// Removes all entries.
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

    /// Whether a page appears to be in a reservation. The result is false for a page that itself
    /// has the large size.
    fn is_reserved(&self, va: VirtAddr, spot: &Spot) -> bool {
        let below = self.params.page_size.bytes() - 1;
        let agrees = (va.get() ^ spot.phys.get()) & below == 0;
        let is_smaller = spot.size.bytes() < self.params.page_size.bytes();
        is_smaller
            && match self.params.fill {
                SpecFill::Heuristic => agrees,
                // A mark on a page at another position would be an error of the operating system.
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
    /// How a prediction by this entry, for an address at `offset` in the large page, compares with
    /// the result of the walk.
    fn judge(&self, offset: u64, found: Option<Spot>) -> Speculation {
        match found {
            None => Speculation::WrongAbsent,
            Some(spot) if spot.phys.get() == self.frame.get() + offset => Speculation::Right,
            Some(_) if self.reserved => Speculation::WrongBroken,
            Some(_) => Speculation::WrongChance,
        }
    }
}
