//! The page sizes that the recorded system used for a space, as its snapshots show.
//!
//! ```text
//!   snapshot     4K 4K 2M ...   --> bytes by page size, of the whole space
//!                                   bytes by page size, of each region at its largest
//! ```

use std::collections::BTreeMap;

use addr::PageSize;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::{KnownSizes, RegionId, Regions, Translation, When};

/// Bytes by the name of the page size, such as `2M`.
pub type BySize = BTreeMap<String, u64>;

/// A snapshot of the pages of an address space.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SnapshotInfo {
    /// The number of the address space.
    pub space: u32,
    /// The number of accesses of the trace before the snapshot.
    pub access: u64,
    /// Why the snapshot was taken.
    pub when: When,
    /// Which page sizes the snapshot distinguishes.
    pub sizes: KnownSizes,
    /// The resident bytes by page size.
    pub resident_bytes: BySize,
}

type Bytes = BTreeMap<PageSize, u64>;

/// The snapshots of one space.
#[derive(Default)]
pub(super) struct Resident {
    done: Vec<SnapshotInfo>,
    open: Option<(SnapshotInfo, Bytes)>,
    /// The bytes of each region in the open snapshot. The next field has, for each region, its
    /// bytes in the snapshot in which most of the region was resident.
    regions: FxHashMap<RegionId, Bytes>,
    largest: FxHashMap<RegionId, Bytes>,
}

impl Resident {
    /// Begins a snapshot.
    pub(super) fn begin(&mut self, space: u32, access: u64, when: When, sizes: KnownSizes) {
        self.close();
        let resident_bytes = BySize::new();
        let info = SnapshotInfo { space, access, when, sizes, resident_bytes };
        self.open = Some((info, Bytes::new()));
    }

    /// Adds pages to the open snapshot.
    pub(super) fn add(&mut self, found: &Translation, regions: &Regions) {
        let Some((_, all)) = &mut self.open else { return };
        let Some(size) = PageSize::from_bytes(found.page_bytes) else { return };
        let Some(last) = found.bytes().and_then(|bytes| found.addr.checked_add(bytes - 1)) else {
            return;
        };
        *all.entry(size).or_default() += last - found.addr + 1;
        let mut at = Some(found.addr);
        while let Some(first) = at.and_then(|at| regions.first_within(at, last))
            && let (Some((_, end)), Some(region)) =
                (regions.extent_of(first), regions.region_at(first))
        {
            let bytes = self.regions.entry(region.id).or_default();
            *bytes.entry(size).or_default() += end.min(last) - first + 1;
            at = end.checked_add(1).filter(|&next| next <= last);
        }
    }

    fn close(&mut self) {
        let Some((mut info, all)) = self.open.take() else { return };
        info.resident_bytes = named(&all);
        self.done.push(info);
        for (region, bytes) in self.regions.drain() {
            let sum = |bytes: &Bytes| bytes.values().sum::<u64>();
            let largest = self.largest.entry(region).or_default();
            if sum(&bytes) >= sum(largest) {
                *largest = bytes;
            }
        }
    }

    /// The snapshots in their order.
    pub(super) fn finish(&mut self) -> Vec<SnapshotInfo> {
        self.close();
        std::mem::take(&mut self.done)
    }

    /// The bytes of a region in the snapshot in which most of the region was resident; `None` if no
    /// snapshot has the region.
    pub(super) fn of(&self, region: RegionId) -> Option<BySize> {
        self.largest.get(&region).map(named)
    }
}

/// The bytes with the names of the page sizes.
fn named(bytes: &Bytes) -> BySize {
    bytes.iter().map(|(size, &bytes)| (size.to_string(), bytes)).collect()
}
