//! The contents of a trace: everything that can be counted without a machine.
//!
//! ```text
//!   Source --batches--> Census   page -> 64 lines by kind, accesses by kind, region
//!          --events---> Regions  which page is whose, now
//! ```

mod census;
mod resident;

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use serde::Serialize;

use crate::{
    Batch, Error, Event, Header, KERNEL, Location, MappedFile, Meta, Process, Regions, Seen,
    Source, adjoin, joined_bytes, name_in_space,
};
use census::Census;
use resident::Resident;
pub use resident::{BySize, SnapshotInfo};

/// A count for each kind of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ByKind {
    /// The count for fetches.
    pub fetch: u64,
    /// The count for loads.
    pub load: u64,
    /// The count for stores.
    pub store: u64,
}

/// How many different pages or lines each kind of access touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Distinct {
    /// The number touched by fetches.
    pub fetch: u64,
    /// The number touched by loads.
    pub load: u64,
    /// The number touched by stores.
    pub store: u64,
    /// The number touched by any access.
    pub total: u64,
}

impl Distinct {
    fn add(&mut self, other: Distinct) {
        self.fetch += other.fetch;
        self.load += other.load;
        self.store += other.store;
        self.total += other.total;
    }
}

/// Data about a region at the end of the trace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RegionInfo {
    /// The name of the region.
    pub name: String,
    /// The lowest address of the region.
    pub start: u64,
    /// The number of bytes from the region's lowest to its highest address.
    pub bytes: u64,
    /// The rights that the region had last, in the form `rw-`.
    pub rights: String,
    /// Whether the region was inferred from accesses, because no event reported it.
    pub inferred: bool,
    /// Accesses that began in the region.
    pub accesses: ByKind,
    /// Pages of 4 KiB that accesses touched while the pages belonged to the region.
    pub pages: u64,
    /// The number of the region's address space.
    pub space: u32,
    /// In a trace with snapshots: the resident bytes by page size, in the snapshot in which most of the
    /// region was resident.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<BySize>,
    /// The calls that led to the allocation for which the region was mapped, innermost first. Empty
    /// if the region was not mapped for a single allocation.
    #[serde(skip)]
    pub site: Vec<SiteCall>,
}

/// A call that led to an allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SiteCall {
    /// The file that contains the call; `None` for code that is in no file.
    pub file: Option<MappedFile>,
    /// The return address: the offset in the file, or the address.
    pub offset: u64,
}

/// The counts of an address space.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SpaceInfo {
    /// The number of the space; [`crate::KERNEL`] is the kernel's.
    pub space: u32,
    /// `kernel`, or the last program of the process that has the space.
    pub name: String,
    /// Accesses to addresses of the space.
    pub accesses: ByKind,
    /// Instructions that were fetched from the space.
    pub instructions: u64,
    /// Pages of 4 KiB that were touched.
    pub pages: u64,
}

/// Accesses that the program made but that are missing from the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Missing {
    /// Accesses that were skipped, filtered or lost.
    pub accesses: u64,
    /// The instructions that made these accesses.
    pub instructions: u64,
}

/// Everything that can be counted in a trace.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Info {
    /// The header of the trace.
    pub header: Header,
    /// The processes of a recording; processes with most accesses come first.
    pub processes: Vec<Process>,
    /// Accesses.
    pub accesses: ByKind,
    /// The number of instructions, including those after the last access.
    pub instructions: u64,
    /// The number of threads that made an access.
    pub threads: u64,
    /// Pages of 4 KiB; the pages of different address spaces are counted separately.
    pub pages: Distinct,
    /// Lines of 64 bytes; the lines of different address spaces are counted separately.
    pub lines: Distinct,
    /// The regions of the address spaces, including unmapped ones, in order of appearance.
    pub regions: Vec<RegionInfo>,
    /// The snapshots of the kernel's pages, by space and then in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<SnapshotInfo>,
    /// The address spaces that made accesses, if there are several; spaces with most accesses come
    /// first.
    pub spaces: Vec<SpaceInfo>,
    /// The number of events by type.
    pub events: BTreeMap<&'static str, u64>,
    /// The accesses that the trace's gaps declare missing.
    pub missing: Missing,
    /// Warnings that occurred while the trace was read.
    pub warnings: Vec<String>,
    /// The length of the file in bytes, if the trace is stored in our format.
    pub bytes_on_disk: Option<u64>,
    /// Length of the file divided by the number of accesses, in bytes per access, if the trace is stored in
    /// one of our files.
    pub bytes_per_access: Option<f64>,
    /// The number of chunks of the file.
    pub chunks: Option<u64>,
    /// The digest of the contents.
    pub digest: Option<String>,
}

/// Reads all of `source` and counts. Memory is proportional to the number of distinct pages.
/// `progress` is called after each batch with the number of accesses so far; returning false stops
/// the count.
pub fn info(source: &mut dyn Source, progress: &mut dyn FnMut(u64) -> bool) -> Result<Info, Error> {
    let mut counting = Counting::default();
    let mut batch = Batch::default();
    let mut more = true;
    while more {
        more = source.next(&mut batch)?;
        counting.batch(&batch);
        if !progress(batch.first + batch.len() as u64) {
            return Err(Error::Interrupted);
        }
    }
    Ok(counting.finish(source))
}

/// The counts of one address space.
#[derive(Default)]
struct Space {
    census: Census,
    regions: Regions,
    resident: Resident,
    instructions: u64,
}

#[derive(Default)]
struct Counting {
    spaces: BTreeMap<u32, Space>,
    /// The state of the current space; it is not in the map while it is current.
    space: Space,
    number: u32,
    threads: FxHashSet<u32>,
    events: BTreeMap<&'static str, u64>,
    instructions: u64,
    missing: Missing,
    /// The number of accesses so far.
    accesses: u64,
}

impl Counting {
    fn batch(&mut self, batch: &Batch) {
        let mut from = 0;
        for placed in &batch.events {
            let to = placed.at as usize;
            self.rows(&batch.addr[from..to], &batch.meta[from..to]);
            from = to;
            self.event(&placed.event);
        }
        self.rows(&batch.addr[from..], &batch.meta[from..]);
        self.threads.extend(batch.segments.iter().map(|segment| segment.thread));
    }

    fn rows(&mut self, addr: &[u64], meta: &[Meta]) {
        self.accesses += addr.len() as u64;
        let instructions = meta.iter().map(|meta| u64::from(meta.instructions())).sum::<u64>();
        self.instructions += instructions;
        self.space.instructions += instructions;
        for (&addr, &meta) in addr.iter().zip(meta) {
            self.space.census.count(addr, meta, &mut self.space.regions);
        }
    }

    fn event(&mut self, event: &Event) {
        *self.events.entry(event.name()).or_default() += 1;
        self.instructions += event.uncounted_instructions();
        if let Event::Gap { accesses: accesses @ 1.., instructions } = *event {
            self.missing.accesses += accesses;
            self.missing.instructions += instructions;
        }
        if let Event::Run { space, .. } = *event
            && space != self.number
        {
            self.enter(space);
        }
        let (number, access) = (self.number, self.accesses);
        let Space { regions, resident, .. } = &mut self.space;
        if let Event::Snapshot { when, sizes } = *event {
            resident.begin(number, access, when, sizes);
        }
        if let Event::Translation(found) = event
            && found.seen == Seen::Snapshot
        {
            resident.add(found, regions);
        }
        self.space.regions.apply(event);
        if event.changes_mappings() {
            self.space.census.regions_changed();
        }
    }

    /// Makes `space` the space of the following rows and events.
    fn enter(&mut self, space: u32) {
        let next = self.spaces.remove(&space).unwrap_or_default();
        let before = std::mem::replace(&mut self.space, next);
        self.spaces.insert(std::mem::replace(&mut self.number, space), before);
    }

    fn finish(mut self, source: &dyn Source) -> Info {
        self.spaces.insert(self.number, std::mem::take(&mut self.space));
        let told = self.spaces.values().filter(|space| !space.regions.all().is_empty());
        let several = told.count() > 1;
        let (mut regions, mut pages, mut lines) =
            (Vec::new(), Distinct::default(), Distinct::default());
        let mut snapshots = Vec::new();
        let mut spaces = Vec::new();
        for (&space, Space { census, regions: known, resident, instructions }) in &mut self.spaces {
            snapshots.extend(resident.finish());
            let counts = census.by_region();
            let here = known.all().iter().map(|region| {
                let counts = counts.get(region.id.0 as usize).copied().unwrap_or_default();
                RegionInfo {
                    name: match several {
                        true => name_in_space(&region.name, space, source.processes()),
                        false => region.name.clone(),
                    },
                    start: region.start,
                    bytes: region.bytes,
                    rights: region.rights.to_string(),
                    inferred: region.inferred,
                    accesses: counts.accesses,
                    pages: counts.pages,
                    space,
                    resident_bytes: resident.of(region.id),
                    site: region.site.map_or_else(Vec::new, |site| calls(known, site)),
                }
            });
            let here: Vec<RegionInfo> = here.collect();
            let accesses = of_all(&here);
            if accesses != ByKind::default() {
                let name = space_name(space, source.processes());
                let (instructions, pages) = (*instructions, census.pages().total);
                spaces.push(SpaceInfo { space, name, accesses, instructions, pages });
            }
            regions.extend(clustered(here));
            pages.add(census.pages());
            lines.add(census.lines());
        }
        let mut processes = source.processes().to_vec();
        processes.sort_by_key(|process| std::cmp::Reverse(process.accesses));
        let accesses = of_all(&regions);
        let total = accesses.fetch + accesses.load + accesses.store;
        let all = |of: &ByKind| of.fetch + of.load + of.store;
        spaces.sort_by_key(|space| std::cmp::Reverse(all(&space.accesses)));
        if spaces.len() < 2 {
            spaces.clear();
        }
        let stored = source.stored();
        Info {
            header: source.header().clone(),
            processes,
            accesses,
            instructions: self.instructions,
            threads: self.threads.len() as u64,
            pages,
            lines,
            regions,
            snapshots,
            spaces,
            events: self.events,
            missing: self.missing,
            warnings: source.warnings().to_vec(),
            bytes_on_disk: stored.map(|stored| stored.bytes),
            bytes_per_access: stored
                .filter(|_| total > 0)
                .map(|stored| stored.bytes as f64 / total as f64),
            chunks: stored.map(|stored| stored.chunks),
            digest: source.digest(),
        }
    }
}

/// The sum of the accesses of `regions`.
fn of_all(regions: &[RegionInfo]) -> ByKind {
    let sum = |kind: fn(&ByKind) -> u64| regions.iter().map(|one| kind(&one.accesses)).sum();
    ByKind {
        fetch: sum(|kinds| kinds.fetch),
        load: sum(|kinds| kinds.load),
        store: sum(|kinds| kinds.store),
    }
}

/// The name of a space: the name of its process.
fn space_name(space: u32, processes: &[Process]) -> String {
    match processes.iter().find(|process| process.number == space) {
        _ if space == KERNEL => "kernel".to_owned(),
        Some(process) => process.name().to_owned(),
        None => format!("space {space}"),
    }
}

/// The calls that led to the allocations of a site.
fn calls(regions: &Regions, site: u32) -> Vec<SiteCall> {
    let frames = regions.allocations().sites()[site as usize].frames.iter();
    let call = |frame: &Location| SiteCall {
        file: frame.file.map(|number| regions.file(number).clone()),
        offset: frame.offset,
    };
    frames.map(call).collect()
}

/// The regions that events reported, in their order; then the inferred regions, merged into
/// clusters by address.
fn clustered(regions: Vec<RegionInfo>) -> Vec<RegionInfo> {
    let (mut inferred, mut told): (Vec<_>, Vec<_>) =
        regions.into_iter().partition(|region| region.inferred);
    inferred.sort_by_key(|region| region.start);
    inferred.dedup_by(|next, region| {
        let joins = adjoin(region.start, region.bytes, next.start);
        if joins {
            region.bytes = joined_bytes(region.start, region.bytes, next.start, next.bytes);
            region.accesses.fetch += next.accesses.fetch;
            region.accesses.load += next.accesses.load;
            region.accesses.store += next.accesses.store;
            region.pages += next.pages;
        }
        joins
    });
    told.append(&mut inferred);
    told
}
