//! Reservations of large pages, and frames lent to devices.

use std::collections::BTreeMap;

use serde::Serialize;

/// Reservations of large pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReservationCounts {
    /// Counts by size, largest first.
    pub sizes: Vec<ReservationsOfSize>,
    /// Marked frames whose marks were cleared when their reservation was broken
    /// (`os.reservations.marks`).
    pub marks_cleared: u64,
}

/// Frames lent to devices (`os.devices`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceCounts {
    /// Frames lent at the end.
    pub pages: u64,
    /// Frames lent in total.
    pub lent: u64,
    /// Frames returned.
    pub returned: u64,
    /// Requests for which no frame was free (with `apart`: no block of 2M).
    pub refused: u64,
    /// Blocks of 2M that only devices use.
    pub blocks: u64,
    /// Marked frames whose marks were cleared because a device got a frame in their block.
    pub marks_cleared: u64,
}

/// Reservations of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReservationsOfSize {
    /// Size of these reservations.
    pub size: String,
    /// Reservations made.
    pub made: u64,
    /// Times that a reservation became full.
    pub filled: u64,
    /// Reservations freed as a whole, because their last page was freed.
    pub emptied: u64,
    /// Reservations broken, by the request that broke them: `frame` (a base frame), `block`
    /// (several adjacent frames), `wanted` (frames of this reservation).
    pub broken: BTreeMap<String, u64>,
    /// Bytes freed by breaking reservations.
    pub broken_bytes: u64,
    /// Base pages placed in a reservation.
    pub placed: u64,
    /// Base pages not placed in a reservation, by reason: `start` and `end` (the reservation would
    /// begin before or extend beyond its object), `neighbor` (the reservation would overlap another
    /// page or reservation of the object), `taken` (the page's own frame is in use), `no-block` (no
    /// block of this size is free).
    pub unplaced: BTreeMap<String, u64>,
}

/// Reservations of all sizes, from the beginning up to one point of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReservationSample {
    /// Reservations made.
    pub made: u64,
    /// Times that a reservation became full.
    pub filled: u64,
    /// Reservations freed as a whole.
    pub emptied: u64,
    /// Reservations broken, by reason.
    pub broken: BTreeMap<String, u64>,
}
