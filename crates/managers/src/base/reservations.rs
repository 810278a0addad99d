//! Reservations: marks of their pages, and counts for results.

use std::collections::BTreeMap;

use addr::{PhysAddr, VirtAddr};
use description::{Description, MarksOfBroken, Refusal, managers::reservations};
use hat::{Hat, HatSpace};
use pagetable::{Flush, Space, Usage};
use physmem::{Allocator, Broken, FrameId};
use ram::{Failure, FrameStore, Ram, reservations::by_size, table::Format};
use results::{ReservationCounts, ReservationSample};

use super::{Base, Larger};

/// The usage bit that marks a page whose frame is in a reservation.
const MARK: Usage = Usage { referenced: false, dirty: false, marked: true };

/// What happens to marks when their reservation is broken; `None` if pages are not marked. The
/// error has the key that is wrong.
pub(super) fn marks(description: &Description) -> Result<Option<MarksOfBroken>, Refusal> {
    let marks = reservations(&description.os).and_then(|asked| asked.marks);
    let format = description.page_table.as_ref().map(|table| table.format.as_str());
    let known = format.and_then(Format::named);
    if marks.is_some() && known.is_some_and(|format| !format.has_marks) {
        let what = format!(
            "marks need a bit that hardware ignores, and entries of format {} have none: choose \
             page_table.format=x86-64, or leave marks out",
            format.unwrap_or_default()
        );
        return Err(Refusal::new("os.reservations.marks", what));
    }
    Ok(marks)
}

impl Base {
    /// Handles broken reservations. If marks must not outlive their reservation, the marks of all
    /// pages in the reservation are cleared. The pages are found by the mapping lists of their
    /// frames.
    pub(super) fn breaks(&mut self, ram: &mut Ram) {
        let marks = self.marks;
        let (hat, memory) = ram.parts_mut();
        while let Some(reserver) = memory.allocator_mut().0.reserver_mut()
            && let Some((first, order)) = reserver.next_broken()
        {
            match marks {
                None | Some(MarksOfBroken::Keep | MarksOfBroken::ClearDevices) => {}
                Some(MarksOfBroken::Clear) => {
                    self.marks_cleared += clear_marks(hat, memory, first, order);
                }
            }
        }
    }

    /// Marks the page at `addr`, which a fault has just mapped, if its frame is in a reservation.
    /// Marks record the placement even if no hardware uses them.
    pub(super) fn mark(&self, space: Space, addr: VirtAddr, ram: &mut Ram) -> Result<(), Failure> {
        if self.sizes.larger != Larger::Reserved {
            return Ok(());
        }
        let Some(mapping) = ram.mapping(space, addr) else { return Ok(()) };
        let phys = mapping.translation.apply(addr);
        let has_place = ram.reservation_around(phys).is_some_and(|(first, bytes)| {
            // Another process may have mapped a file at an address with another position in its
            // large page.
            phys.get() - first.get() == addr.get() & (bytes - 1)
        });
        if has_place && !mapping.usage.marked { ram.set_usage(space, addr, MARK) } else { Ok(()) }
    }

    /// The counts of reservations of all sizes so far.
    pub(super) fn reservation_sample(&self, ram: &Ram) -> Option<ReservationSample> {
        let counts = ram.reservations();
        if counts.is_empty() {
            return None;
        }
        let sum = |count: fn(&physmem::ReservationCounts) -> u64| {
            counts.iter().map(|(_, counts)| count(counts)).sum()
        };
        let mut broken = BTreeMap::new();
        for why in Broken::ALL {
            let count = counts.iter().map(|(_, counts)| counts.broken[why as usize]).sum();
            broken.insert(why.name().to_owned(), count);
        }
        Some(ReservationSample {
            made: sum(|counts| counts.made),
            filled: sum(|counts| counts.filled),
            emptied: sum(|counts| counts.emptied),
            broken,
        })
    }

    /// The counts of reservations at the end of the run, by size; `None` if there are no
    /// reservations.
    pub(super) fn reservation_counts(&self, ram: &Ram) -> Option<ReservationCounts> {
        let counts = ram.reservations();
        let by_size = by_size(&counts, ram.page_sizes()[0]);
        let marks_cleared = self.marks_cleared;
        (!counts.is_empty()).then_some(ReservationCounts { marks_cleared, ..by_size })
    }
}

/// Clears the marks of all pages in the `2^order` frames from `first`, in every space that maps
/// them. The pages are found by the frames' mapping lists. Returns the number of frames with marked
/// pages.
pub(super) fn clear_marks(hat: &Hat, memory: &mut FrameStore, first: FrameId, order: u32) -> u64 {
    let (start, base) = (memory.table().address(first).get(), memory.base());
    let frames = (0..1u64 << order).map(|at| PhysAddr::new(start + at * base.bytes()));
    let marked = frames.filter(|frame| hat.usage(*frame, base, MARK, &mut Quiet(memory)).marked);
    marked.count() as u64
}

/// A platform for changes that need no flush of hardware.
struct Quiet<'a>(&'a mut FrameStore);

impl hat::Platform for Quiet<'_> {
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}

    fn frames(&mut self) -> &mut dyn addr::Frames {
        self.0
    }
}
