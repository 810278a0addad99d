//! What results say of reservations.

use std::collections::BTreeMap;

use physmem::{Allocator, Broken, Unplaced};

use super::Base;
use crate::{
    count::results::{ReservationCounts, ReservationSample, ReservationsOfSize},
    ram::{FrameStore, Ram},
};

impl Base {
    /// Hears of the reservations that were broken.
    pub(super) fn breaks(&mut self, memory: &mut FrameStore) {
        if let Some(reserver) = memory.allocator_mut().0.reserver_mut() {
            reserver.take_broken();
        }
    }

    /// Reservations of all sizes, till now.
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

    /// The same in the end, by size.
    pub(super) fn reservation_counts(&self, ram: &Ram) -> Option<ReservationCounts> {
        let frame = ram.page_sizes()[0].bytes();
        let counts = ram.reservations();
        let sizes: Vec<ReservationsOfSize> = counts
            .iter()
            .map(|(size, counts)| {
                let broken = Broken::ALL.map(|why| (why.name(), counts.broken[why as usize]));
                let unplaced = Unplaced::ALL.map(|why| (why.name(), counts.unplaced[why as usize]));
                let named = |rows: &[(&str, u64)]| {
                    rows.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
                };
                ReservationsOfSize {
                    size: size.to_string(),
                    made: counts.made,
                    filled: counts.filled,
                    emptied: counts.emptied,
                    broken: named(&broken),
                    broken_bytes: counts.broken_frames * frame,
                    placed: counts.placed,
                    unplaced: named(&unplaced),
                }
            })
            .collect();
        (!sizes.is_empty()).then_some(ReservationCounts { sizes })
    }
}
