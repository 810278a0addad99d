//! Elastic cuckoo page tables (Skarlatos, Kokolis, Xu, Torrellas 2020).
//!
//! ```text
//!               +--> way 0 [ line ]
//!   cluster ----+--> way 1 [ line ]     read at once; one of them has its pages
//!               +--> way 2 [ line ]
//!
//!      63 59 58         52 51                12 11  8 7         1  0
//!     +-----+-------------+--------------------+-----+-----------+---+
//!     |  0  | tag, 7 bits |  frame             |  0  | D A G UXWR| P |   x 8: one line of 64 bytes
//!     +-----+-------------+--------------------+-----+-----------+---+
//! ```
//!
//! A line has the entries of eight adjacent pages (a cluster). Their upper bits together hold the
//! number of the cluster, with its lowest bits in the first entry. Each line has one possible place
//! in each way. If all possible places of a line are in use, the line in one of them moves to
//! another of its own places. A space has a table of its own for each page size that it uses. A
//! table grows gradually, and even during growth, a walk reads only one line of each way.
//!
//! A walk reads all ways of the tables of all page sizes in use. The paper's cuckoo walk tables,
//! which avoid most of the probes of a walk, are not modelled.
//!
//! Processors may not walk the table while it is changed ([`crate::PageTable::walks_beside_changes`]). A line
//! is eight words, which [`Memory`] writes one after the other, and a line that moves is in no
//! place until it is written to its new place.

mod elastic;
mod line;
mod ways;

use alloc::vec::Vec;

use addr::{Frames, Kind, Memory, Page, PageSize, PhysAddr, VirtAddr, VirtRange};

use crate::pages::{Found, Pages, Run, conclude, exchange, read_of};
use crate::pte::{Pte, Width};
use crate::spaces::Spaces;
use crate::{Error, Fault, Flush, Footprint, Geometry, Reference, Space, Translation};

use elastic::Elastic;
use line::{LINE_BYTES, emptied};

const PTE: Width = Width::Wide;
const SIZES: [PageSize; 3] = [PageSize::SIZE_4K, PageSize::SIZE_2M, PageSize::SIZE_1G];
const WAYS_MAX: u64 = 8;

/// An elastic cuckoo page table, with all of its spaces.
#[derive(Debug)]
pub struct ElasticCuckoo {
    ways: usize,
    /// Lines in each way of a new table.
    places: u64,
    walk_sets_usage: bool,
    spaces: Spaces<Tables>,
}

/// The tables of a space, one per page size; that of base pages comes first and always exists.
type Tables = Vec<Elastic>;

impl ElasticCuckoo {
    /// Tables of `ways` ways, 2 to 8 (3 in the paper), each of `way_bytes` bytes initially.
    pub fn new(ways: u64, way_bytes: u64) -> Result<ElasticCuckoo, Geometry> {
        Geometry::in_range("ways", ways, 2, WAYS_MAX)?;
        let min = PageSize::SIZE_4K.bytes();
        Geometry::power_of_two("bytes of a way", way_bytes, min, 1 << 40)?;
        Ok(ElasticCuckoo {
            ways: ways as usize,
            places: way_bytes / LINE_BYTES,
            walk_sets_usage: false,
            spaces: Spaces::new(),
        })
    }

    /// This table, with walks that set the usage bits.
    pub fn with_usage(self) -> ElasticCuckoo {
        ElasticCuckoo { walk_sets_usage: true, ..self }
    }

    fn tables(&self, space: Space) -> &[Elastic] {
        self.spaces.own(space).map(Vec::as_slice).unwrap_or_default()
    }

    fn tables_mut(&mut self, space: Space) -> &mut Tables {
        self.spaces.own_mut(space)
    }
}

impl Pages for ElasticCuckoo {
    type Own = Tables;

    fn sizes(&self) -> &[PageSize] {
        &SIZES
    }

    fn width(&self) -> Width {
        PTE
    }

    fn spaces(&self) -> &Spaces<Tables> {
        &self.spaces
    }

    fn spaces_mut(&mut self) -> &mut Spaces<Tables> {
        &mut self.spaces
    }

    fn open(
        &mut self,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(PhysAddr, Tables), Error> {
        let mut tables = Tables::new();
        tables.try_reserve_exact(SIZES.len())?;
        let table = Elastic::new(SIZES[0], self.ways, self.places, memory, frames)?;
        let root = table.root();
        tables.push(table);
        Ok((root, tables))
    }

    fn close(&mut self, _space: Space, own: Tables, _memory: &mut impl Memory, flush: &mut Flush) {
        for table in own {
            table.put_all(flush);
        }
    }

    fn find(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Found> {
        self.tables(space).iter().find_map(|table| {
            let at = table.entry(addr, memory)?;
            let pte = PTE.read(at, memory);
            pte.is_mapped().then(|| Found::new(addr.page(table.size()), at, pte))
        })
    }

    fn gather(
        &self,
        space: Space,
        range: VirtRange,
        memory: &impl Memory,
        each: &mut impl FnMut(Found),
    ) {
        for table in self.tables(space) {
            table.gather(range, memory, &mut |addr, at, pte| {
                each(Found::new(addr.page(table.size()), at, pte));
            });
        }
    }

    fn frees_max(&self, _space: Space, _pages: usize) -> usize {
        // `remove` itself reserves room for the frames of a table, and keeps the table if no memory
        // is left.
        0
    }

    fn frames_of(&self, space: Space, _memory: &impl Memory) -> usize {
        self.tables(space).iter().map(Elastic::frames).sum()
    }

    fn insert(
        &mut self,
        space: Space,
        run: &Run<'_>,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) -> Result<(), Error> {
        let (ways, places) = (self.ways, self.places);
        let tables = self.tables_mut(space);
        if let Some(table) = tables.iter_mut().find(|table| table.size() == run.size()) {
            return table.insert(run, memory, frames, flush);
        }
        let mut table = Elastic::new(run.size(), ways, places, memory, frames)?;
        if let Err(error) = table.insert(run, memory, frames, flush) {
            table.free(frames);
            return Err(error);
        }
        tables.push(table);
        Ok(())
    }

    fn remove(
        &mut self,
        space: Space,
        page: Page,
        memory: &mut impl Memory,
        flush: &mut Flush,
    ) -> Pte {
        let tables = self.tables_mut(space);
        let index = tables.iter().position(|table| table.size() == page.size());
        let index = index.expect("the page's size has a table");
        let table = &mut tables[index];
        let at = table.entry(page.start(), memory).expect("the page has an entry");
        let found = Found::new(page, at, PTE.read(at, memory));
        let last = exchange(PTE, found, memory, |pte| Some(emptied(pte))).unwrap_or(found.pte);
        table.release(at, memory);
        let frames = table.frames();
        // If no memory is left for the token, the empty table is kept. The next page of this size
        // is entered in it.
        if table.is_empty() && page.size() != SIZES[0] && flush.try_reserve(frames).is_ok() {
            tables.remove(index).put_all(flush);
        }
        last
    }

    #[inline]
    fn look_up(
        &self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault> {
        let mut found = None;
        for table in self.tables(space) {
            for place in table.places(addr) {
                each(read_of(place, LINE_BYTES as u8));
                if let Some(at) = table.entry_in(place, addr, memory) {
                    let pte = PTE.read(at, memory);
                    let page = addr.page(table.size());
                    found = pte.is_mapped().then_some(Found::new(page, at, pte)).or(found);
                }
            }
        }
        let found = found.ok_or(Fault::NotMapped { level: 1 })?;
        conclude(PTE, found, kind, self.walk_sets_usage, memory, each)
    }

    fn taken_by(&self, own: &Tables) -> Footprint {
        let bytes = own.iter().map(Elastic::bytes).sum();
        Footprint { table_bytes: bytes, frame_bytes: bytes }
    }
}
