//! Room that is kept for large pages, and pages of devices.

use std::collections::BTreeMap;

use serde::Serialize;

/// What has become of reservations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReservationCounts {
    /// By size, the largest first.
    pub sizes: Vec<ReservationsOfSize>,
    /// Marked frames whose marks were cleared when their reservation was broken
    /// (`os.reservations.marks`).
    pub marks_cleared: u64,
}

/// Frames that devices had (`os.devices`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceCounts {
    /// How many they have at the end.
    pub pages: u64,
    /// How many they were lent.
    pub lent: u64,
    /// How many came back.
    pub returned: u64,
    /// How often no frame was free, or no block of 2M where they have blocks of their own.
    pub refused: u64,
    /// Blocks of 2M that are theirs alone.
    pub blocks: u64,
    /// Marked frames beside those that they were lent, whose marks were cleared for that.
    pub marks_cleared: u64,
}

/// Reservations of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReservationsOfSize {
    /// Their size.
    pub size: String,
    /// How many were made.
    pub made: u64,
    /// How often one became full.
    pub filled: u64,
    /// How many were given back whole, since their last page was freed.
    pub emptied: u64,
    /// How many were broken, by reason: `frame`, a base frame was wanted; `block`, several in a row;
    /// `wanted`, just these.
    pub broken: BTreeMap<String, u64>,
    /// Bytes that this made free.
    pub broken_bytes: u64,
    /// Base pages that were placed in one.
    pub placed: u64,
    /// Base pages that were not, by reason: `start`, `end`, it would begin before its object or
    /// reach beyond its end; `neighbor`, another page or reservation of the object is there; `taken`,
    /// its own frame is; `no-block`, there was no free block of the size.
    pub unplaced: BTreeMap<String, u64>,
}

/// Reservations of all sizes, from the beginning to one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReservationSample {
    /// How many were made.
    pub made: u64,
    /// How often one became full.
    pub filled: u64,
    /// How many were given back whole.
    pub emptied: u64,
    /// How many were broken, by reason.
    pub broken: BTreeMap<String, u64>,
}
