//! A table of offsets by instruction: it predicts the physical address that an instruction accesses from the
//! offset between virtual and physical addresses of its earlier accesses (Alverti and others 2020, "SpOT").
//!
//! ```text
//!   TLB miss of va by instruction i
//!      |              i | offset | counter           0, 1: nothing is said     2, 3: va + offset
//!      +--> table     . | ...    | 0 .. 3
//!      |                                                      |
//!      +--> walk ---------------------------------> found:    the same place?  +1, else -1
//! ```
//!
//! If the operating system gives a region adjacent frames, many pages have the same offset. A program has few
//! instructions that miss often in the TLB, and each of them mostly accesses one region. The table
//! can therefore be small, and its index does not use address bits. As with a
//! [`SpecTlb`](crate::SpecTlb), the walk checks each prediction.
//!
//! An entry is inserted, with a counter of 1, if the page that a walk finds is in a long enough run
//! of adjacent pages in adjacent frames. The new entry is stored in an empty way, or replaces the
//! least recently used entry whose counter is 0. If all counters of the set are higher, the new
//! entry is not inserted, and the counter of the least recently used entry is decremented, so that
//! entries of instructions that no longer miss are eventually replaced. When the counter of an
//! entry is 0 and its instruction accesses another page in a long enough run, the entry gets the
//! offset of this page.

use addr::{Asid, PhysAddr, VirtAddr};

use crate::{GeometryError, SetArray, Speculation, Spot};

/// The smallest value of the counter at which an entry makes a prediction.
const SURE: u8 = 2;
/// The highest value of a counter.
const COUNTER_MAX: u8 = 3;

/// The parameters of a table of offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetsParams {
    /// The number of entries, one per instruction.
    pub entries: u32,
    /// The number of entries per set.
    pub ways: u32,
    /// The smallest length of a run, in base pages ([`Spot::run`]), whose pages make entries.
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
    /// The number to add to a virtual address to get the physical address.
    to_phys: u64,
    counter: u8,
    used: u64,
}

impl Offsets {
    /// An empty table.
    pub fn new(params: OffsetsParams) -> Result<Offsets, GeometryError> {
        let sets = SetArray::new(params.entries.into(), params.ways)?;
        let slots = vec![None; sets.entries()].into_boxed_slice();
        Ok(Offsets { slots, sets, params, now: 0 })
    }

    /// The parameters.
    pub const fn params(&self) -> &OffsetsParams {
        &self.params
    }

    /// The physical address that the table predicts for `va`, accessed by this instruction, if it
    /// makes a prediction.
    pub fn predicts(&self, va: VirtAddr, instruction: u64, asid: Asid) -> Option<PhysAddr> {
        let held = self.slots[self.slot_of(instruction, asid)?]?;
        (held.counter >= SURE).then(|| PhysAddr::new(va.get().wrapping_add(held.to_phys)))
    }

    /// Updates the table after a walk of `va` for this instruction that ended at `found`, or with a
    /// fault. Returns how the prediction before the walk compares with the result.
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

    /// Removes all entries.
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
