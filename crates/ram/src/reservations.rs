//! Counts of reservations in the form of results.

use addr::PageSize;
use physmem::{Broken, Unplaced};
use results::{ReservationCounts, ReservationsOfSize};

/// Counts of reservations by size, with base frames of `base`.
pub fn by_size(
    counts: &[(PageSize, physmem::ReservationCounts)],
    base: PageSize,
) -> ReservationCounts {
    let named = |rows: &[(&str, u64)]| {
        rows.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    };
    let of = |(size, counts): &(PageSize, physmem::ReservationCounts)| {
        let broken = Broken::ALL.map(|why| (why.name(), counts.broken[why as usize]));
        let unplaced = Unplaced::ALL.map(|why| (why.name(), counts.unplaced[why as usize]));
        ReservationsOfSize {
            size: size.to_string(),
            made: counts.made,
            filled: counts.filled,
            emptied: counts.emptied,
            broken: named(&broken),
            broken_bytes: counts.broken_frames * base.bytes(),
            placed: counts.placed,
            unplaced: named(&unplaced),
        }
    };
    ReservationCounts { sizes: counts.iter().map(of).collect(), marks_cleared: 0 }
}
