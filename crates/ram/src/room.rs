//! The memory of a host: reservations for large pages of a guest, holes for devices, and memory
//! that former guests still use (B10 section 6.5.2).
//!
//! ```text
//!   guest-physical   0    640K 1M                    1G                    2G
//!                    | ....|..| ......................| ...............      |
//!                          hole: not backed
//!   the host's       | a reservation of 1G, each page at its own place       | another one
//! ```

use std::collections::BTreeMap;

use addr::{Frames, PageSize};
use description::{Former, Hole};
use physmem::{FrameId, Neighbor, ObjectPage, Request, State};

use crate::{Failure, FrameStore};

/// The pages of a guest's memory that have a frame of the host.
#[derive(Default)]
pub(crate) struct Guest {
    /// The number of pages of the guest: one more than the number of its last page.
    end: u64,
    frames: BTreeMap<u64, FrameId>,
}

impl Guest {
    /// A guest with `bytes` bytes of memory, whose pages have no frames yet.
    pub(crate) fn new(bytes: u64, base: PageSize) -> Guest {
        Guest { end: bytes >> base.shift(), frames: BTreeMap::new() }
    }

    /// Allocates a frame for the guest's page number `index`: the frame at the page's position in
    /// a reservation, if a reservation is possible.
    pub(crate) fn place(
        &mut self,
        index: u64,
        memory: &mut FrameStore,
    ) -> Result<FrameId, Failure> {
        let neighbor = |(&index, &frame): (&u64, &FrameId)| Neighbor { index, frame };
        let place = ObjectPage {
            object: 0,
            index,
            first: 0,
            end: self.end,
            grows: false,
            before: self.frames.range(..index).next_back().map(neighbor),
            after: self.frames.range(index + 1..).next().map(neighbor),
        };
        let request = Request { place: Some(place), ..Request::new(0, State::Movable) };
        let frame = memory.allocate(&request).map_err(|_| Failure::OutOfFrames)?;
        self.frames.insert(index, frame);
        Ok(frame)
    }
}

/// Removes the frames of `holes` from `memory`. Returns their number.
pub(crate) fn leave_out(memory: &mut FrameStore, holes: &[Hole]) -> Result<u64, String> {
    let mut absent = 0;
    let (base, end) = (memory.base().bytes(), memory.bytes());
    for hole in holes {
        if !hole.first.is_multiple_of(base) || !hole.end.is_multiple_of(base) {
            return Err(format!(
                "the hole {hole} does not begin and end at multiples of the page size, {base} bytes: \
                 write such multiples"
            ));
        }
        let frames = hole.first.min(end) / base..hole.end.min(end) / base;
        for frame in frames {
            if !memory.take(FrameId(frame as u32), 0, State::Offline) {
                return Err(format!(
                    "the hole {hole} overlaps another hole: write holes that do not overlap"
                ));
            }
            absent += 1;
        }
    }
    Ok(absent)
}

/// Simulates former guests, which allocate their memory at the same time, block by block; then some
/// of them end. Returns the number of frames of the former guests that remain.
pub(crate) fn have_had(memory: &mut FrameStore, former: &Former) -> Result<u64, String> {
    let Former { guests, left, memory: each, granule, seed, .. } = former;
    if left > guests {
        return Err(format!(
            "{left} of {guests} former guests cannot remain: write left={guests} or less"
        ));
    }
    let granule = granule.0;
    if granule < memory.base() || each.0 == 0 || !each.0.is_multiple_of(granule.bytes()) {
        return Err(format!(
            "the memory of a former guest, {each}, must be a multiple of the granule, {granule}, \
             which must be a base page or more"
        ));
    }
    let order = memory.table().order(granule);
    let blocks = each.0 / granule.bytes();
    let mut waiting: Vec<(u32, u64)> = (0..*guests).map(|guest| (guest, blocks)).collect();
    let mut going = Vec::new();
    let mut state = seed | 1;
    let mut staying = 0;
    while !waiting.is_empty() {
        // Marsaglia's xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let next = (state % waiting.len() as u64) as usize;
        let Ok(block) = memory.allocate(&Request::new(order, State::Kernel)) else {
            let all = u64::from(*guests) * each.0;
            return Err(format!(
                "{guests} guests with {each} each do not fit, as they need {all} bytes: write fewer \
                 guests, or less memory for each"
            ));
        };
        if waiting[next].0 < *left {
            staying += 1 << order;
        } else {
            going.push(block);
        }
        waiting[next].1 -= 1;
        if waiting[next].1 == 0 {
            waiting.swap_remove(next);
        }
    }
    for block in going {
        memory.free(memory.table().address(block), granule);
    }
    Ok(staying)
}
