//! Offsets by instruction: where an instruction's next page lies is told by where its last ones lay (Alverti and
//! others 2020, "SpOT").
//!
//! ```text
//!   TLB miss of va by instruction i
//!      |              i | offset | counter           0, 1: nothing is said     2, 3: va + offset
//!      +--> table     . | ...    | 0 .. 3
//!      |                                                      |
//!      +--> walk ---------------------------------> found:    the same place?  +1, else -1
//! ```
//!
//! An operating system that gives a region adjacent frames makes one offset of many pages. A program has
//! few instructions that miss often, and each of them mostly stays in one region. So the table is small and asks
//! for no bit of the address. A prediction is checked by the walk, as a [`SpecTlb`](crate::SpecTlb)'s is.
//!
//! An entry comes in where the page that a walk finds lies in a long enough run of adjacent pages in adjacent
//! frames, with a counter of 1: in an empty way, or in place of the least recently used one with a counter
//! of 0. Where all others count more it stays out, and the least recently used of them counts 1 less, so
//! that instructions which miss no more make room in the end. One whose counter has come down to 0 takes the
//! offset of the next such page.

use addr::{Asid, PhysAddr, VirtAddr};

use crate::{GeometryError, SetArray, Speculation, Spot};

/// Says something from this counter on.
const SURE: u8 = 2;
/// The highest counter.
const COUNTER_MAX: u8 = 3;

/// What a table of offsets is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetsParams {
    /// Instructions that it remembers.
    pub entries: u32,
    /// How many of them are in a set.
    pub ways: u32,
    /// A page in a shorter run makes no entry: in base pages, [`Spot::run`].
    pub pages_min: u32,
}

/// A table of offsets.
#[derive(Clone, Debug)]
pub struct Offsets {
    params: OffsetsParams,
    sets: SetArray,
    slots: Box<[Option<Remembered>]>,
    now: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Remembered {
    instruction: u64,
    asid: Asid,
    /// What makes a virtual address a physical one.
    to_phys: u64,
    counter: u8,
    used: u64,
}

impl Offsets {
    /// An empty one.
    pub fn new(params: OffsetsParams) -> Result<Offsets, GeometryError> {
        let sets = SetArray::new(params.entries.into(), params.ways)?;
        let slots = vec![None; sets.entries()].into_boxed_slice();
        Ok(Offsets { slots, sets, params, now: 0 })
    }

    /// What it is like.
    pub const fn params(&self) -> &OffsetsParams {
        &self.params
    }

    /// The place that it names for `va`, an address of this instruction, if it is sure of one.
    pub fn predicts(&self, va: VirtAddr, instruction: u64, asid: Asid) -> Option<PhysAddr> {
        let held = self.slots[self.slot_of(instruction, asid)?]?;
        (held.counter >= SURE).then(|| PhysAddr::new(va.get().wrapping_add(held.to_phys)))
    }

    /// Hears of a walk of `va` for this instruction, and where it has ended, if it has found a page. Says
    /// what it would have said before.
    pub fn walked(
        &mut self,
        va: VirtAddr,
        instruction: u64,
        asid: Asid,
        found: Option<Spot>,
    ) -> Speculation {
        self.now += 1;
        let predicted = self.predicts(va, instruction, asid);
        let Some(spot) = found else {
            return predicted.map_or(Speculation::None, |_| Speculation::WrongAbsent);
        };
        let said = match predicted {
            None => Speculation::None,
            Some(place) if place == spot.phys => Speculation::Right,
            Some(_) => Speculation::WrongChance,
        };
        let to_phys = spot.phys.get().wrapping_sub(va.get());
        let in_run = spot.run >= self.params.pages_min;
        let new = Remembered { instruction, asid, to_phys, counter: 1, used: self.now };
        let held = self.slot_of(instruction, asid);
        match held.and_then(|slot| self.slots[slot].as_mut()) {
            Some(held) => {
                held.used = self.now;
                if held.to_phys == to_phys {
                    held.counter = (held.counter + 1).min(COUNTER_MAX);
                } else if held.counter > 0 {
                    held.counter -= 1;
                } else if in_run {
                    *held = new;
                }
            }
            None if in_run => self.insert(new),
            None => {}
        }
        said
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.slots.fill(None);
        self.sets.clear();
    }

    fn slot_of(&self, instruction: u64, asid: Asid) -> Option<usize> {
        self.sets.find(self.sets.set_of(instruction), instruction, |slot| {
            self.slots[slot]
                .is_some_and(|held| (held.instruction, held.asid) == (instruction, asid))
        })
    }

    fn insert(&mut self, new: Remembered) {
        let set = self.sets.set_of(new.instruction);
        let unsure = |slot: &usize| self.slots[*slot].is_some_and(|held| held.counter == 0);
        let used = |slot: &usize| self.slots[*slot].map_or(0, |held| held.used);
        let slots = self.sets.slots(set);
        let Some(slot) =
            self.sets.empty_slot(set).or(slots.clone().filter(unsure).min_by_key(used))
        else {
            let oldest = slots.min_by_key(used).and_then(|slot| self.slots[slot].as_mut());
            oldest.into_iter().for_each(|held| held.counter -= 1);
            return;
        };
        if self.slots[slot].is_some() {
            self.sets.vacate(slot);
        }
        self.slots[slot] = Some(new);
        self.sets.occupy(set, slot, new.instruction);
    }
}
