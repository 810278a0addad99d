//! What processors do to the HAT layer: the loads of K94 table 1, the layer alone.
//!
//! ```text
//!   fork    a child with copies of 0, 3 or 256 pages (0, 10 KB, 1 MB), two of them stored to; it exits
//!   exec    a process of as many pages is emptied, and a null program's pages come
//!   fault   a minor fault on a page that others map too; every other time a copy on write
//!   brk     pages of zeros, given back 64 at a time
//!   tpcb    a burst of work, then a record through a window of the kernel, as a file's pages are
//!           read: loaded, copied from, unloaded in all processors; now and then a minor fault
//!   spec    bursts of work, with a fault every 20 ms
//!   mt-*    threads of one space map, fault and unmap: each its own part (`low`), or all one part
//! ```
//!
//! K94 prints what the benchmarks do, and no numbers of pages or of work: sizes beyond those named in
//! its section 5.3 are assumptions, the bursts of `tpcb` chosen so that one lock around the layer is
//! busy about as often as the paper says.

use addr::{PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace, LoadError, Platform, locking::Scheme};
use pagetable::{Mounted, Translation};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{baton::spend, costs::Costs};

const SIZE: PageSize = PageSize::SIZE_4K;
/// Where a process has its text and data.
const DATA: u64 = 0x1000_0000;
/// Where the kernel's windows begin; each processor has one.
const WINDOWS: u64 = 0x8000_0000;
/// The pages of a file cache that all processes share.
const CACHE: PhysAddr = PhysAddr::new(0x400_0000);
const CACHE_PAGES: u64 = 256;
/// Text that all processes share.
const TEXT: PhysAddr = PhysAddr::new(0x200_0000);
const TEXT_PAGES: u64 = 12;
/// K94 section 5.3: 0 bytes, 10 KB, 1 MB.
const SIZES: [u64; 3] = [0, 3, 256];
/// Pages that a fork's child stores to before it exits.
const STORED: u64 = 2;
/// Cycles of work between two of a transaction's records.
const RECORD_BURST: u64 = 40_000;
/// Cycles that a record takes to copy.
const RECORD: u64 = 400;
/// Cycles of work between two faults of a program that computes: 20 ms at 50 MHz.
const SPEC_BURST: u64 = 1_000_000;

/// A load by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// See the module.
    Fork,
    /// See the module.
    Exec,
    /// See the module.
    Fault,
    /// See the module.
    Brk,
    /// See the module.
    Tpcb,
    /// See the module.
    Spec,
    /// Threads of one space, each in its own part.
    MtLow,
    /// Threads of one space, all in one part.
    MtHigh,
}

impl Load {
    /// All, with their names.
    pub const ALL: [(&str, Load); 8] = [
        ("fork", Load::Fork),
        ("exec", Load::Exec),
        ("fault", Load::Fault),
        ("brk", Load::Brk),
        ("tpcb", Load::Tpcb),
        ("spec", Load::Spec),
        ("mt-low", Load::MtLow),
        ("mt-high", Load::MtHigh),
    ];

    /// Operations of each processor for one round.
    pub(crate) fn operations(self) -> u64 {
        match self {
            Load::Fork | Load::Exec => 12,
            Load::Fault | Load::Brk | Load::MtLow | Load::MtHigh => 192,
            Load::Tpcb => 192,
            Load::Spec => 24,
        }
    }
}

/// A processor as a load sees it.
pub(crate) trait Processor: Platform {
    /// It runs `space` from here on.
    fn enter(&mut self, space: HatSpace);
}

/// A processor under a load.
pub(crate) struct Runner<'a, S, P> {
    hat: &'a Hat<dyn Mounted, S>,
    cpu: P,
    costs: Costs,
    number: u64,
    random: Xoshiro256PlusPlus,
    /// Its process.
    own: HatSpace,
    /// The kernel, or the space of all threads.
    shared: HatSpace,
    count: u64,
}

impl<'a, S: Scheme<Table = dyn Mounted>, P: Processor> Runner<'a, S, P> {
    /// The processor `number` with a process of its own. `shared` is the space that all have.
    pub(crate) fn new(
        hat: &'a Hat<dyn Mounted, S>,
        mut cpu: P,
        number: u64,
        (own, shared): (HatSpace, HatSpace),
        seed: u64,
        costs: Costs,
    ) -> Runner<'a, S, P> {
        cpu.enter(shared);
        cpu.enter(own);
        let random = Xoshiro256PlusPlus::seed_from_u64(seed ^ number << 32);
        Runner { hat, cpu, costs, number, random, own, shared, count: 0 }
    }

    /// One operation of the load.
    pub(crate) fn operation(&mut self, load: Load) -> Result<(), String> {
        self.count += 1;
        match load {
            Load::Fork => self.fork(),
            Load::Exec => self.exec(),
            Load::Fault => self.fault(),
            Load::Brk => self.brk(),
            Load::Tpcb => self.record(),
            Load::Spec => {
                self.burst(SPEC_BURST);
                self.minor(self.own, 0)
            }
            Load::MtLow => self.thread(self.number * 512),
            Load::MtHigh => self.thread(0),
        }
    }

    fn fork(&mut self) -> Result<(), String> {
        let pages = SIZES[self.count as usize % SIZES.len()];
        spend(self.costs.trap);
        self.have(pages)?;
        if self.count.is_multiple_of(2) {
            // vfork: the child uses the parent's space.
            return Ok(());
        }
        let child = self.hat.create(&mut self.cpu).map_err(text)?;
        self.cpu.enter(child);
        if pages > 0 {
            self.hat.duplicate(self.own, child, range(DATA, pages), &mut self.cpu).map_err(text)?;
        }
        for page in 0..STORED.min(pages) {
            self.copy_on_write(child, page)?;
        }
        spend(self.costs.trap);
        self.hat.destroy(child, &mut self.cpu);
        self.cpu.enter(self.own);
        Ok(())
    }

    fn exec(&mut self) -> Result<(), String> {
        let pages = SIZES[self.count as usize % SIZES.len()];
        self.have(pages)?;
        spend(self.costs.trap);
        self.unload(self.own, DATA, 512)?;
        for page in 0..TEXT_PAGES {
            spend(self.costs.trap);
            let at = DATA + (256 + page) * SIZE.bytes();
            self.load(self.own, at, frame(TEXT, page), 1, Rights::READ | Rights::EXECUTE)?;
        }
        self.unload(self.own, DATA + 256 * SIZE.bytes(), TEXT_PAGES)
    }

    fn fault(&mut self) -> Result<(), String> {
        if self.count.is_multiple_of(2) {
            return self.minor(self.own, self.count % 64);
        }
        let page = self.count % 64;
        self.minor(self.own, page)?;
        self.copy_on_write(self.own, page)
    }

    fn brk(&mut self) -> Result<(), String> {
        let page = self.count % 64;
        if page == 0 {
            spend(self.costs.trap);
            self.unload(self.own, DATA, 64)?;
        }
        spend(self.costs.trap + self.costs.zero);
        self.load(self.own, DATA + page * SIZE.bytes(), self.own_frame(page), 1, Rights::ALL)
    }

    fn record(&mut self) -> Result<(), String> {
        self.burst(RECORD_BURST);
        spend(self.costs.trap);
        let window = WINDOWS + self.number * SIZE.bytes();
        let cached = frame(CACHE, self.random.random_range(0..CACHE_PAGES));
        let rights = Rights::READ | Rights::WRITE;
        self.load(self.shared, window, cached, 1, rights)?;
        spend(RECORD);
        self.unload(self.shared, window, 1)?;
        if self.count.is_multiple_of(4) {
            self.minor(self.own, self.count % 64)?;
        }
        Ok(())
    }

    /// A thread of a space that all share: maps, touches and unmaps four pages.
    fn thread(&mut self, first: u64) -> Result<(), String> {
        let at = DATA + (first + 4 * self.random.random_range(0..8u64)) * SIZE.bytes();
        for page in 0..4 {
            spend(self.costs.trap + self.costs.zero);
            let at = at + page * SIZE.bytes();
            self.load(self.shared, at, self.own_frame(page), 1, Rights::ALL)?;
        }
        spend(self.costs.trap);
        self.unload(self.shared, at, 4)
    }

    /// A fault on a page of the file cache.
    fn minor(&mut self, space: HatSpace, page: u64) -> Result<(), String> {
        spend(self.costs.trap);
        let at = DATA + page * SIZE.bytes();
        self.unload(space, at, 1)?;
        let cached = frame(CACHE, self.random.random_range(0..CACHE_PAGES));
        self.load(space, at, cached, 1, Rights::READ | Rights::EXECUTE)
    }

    /// A store to a page that others use too.
    fn copy_on_write(&mut self, space: HatSpace, page: u64) -> Result<(), String> {
        spend(self.costs.trap + self.costs.copy);
        let at = DATA + page * SIZE.bytes();
        self.unload(space, at, 1)?;
        self.load(space, at, self.own_frame(512 + page), 1, Rights::ALL)
    }

    /// The process has exactly so many pages of its own.
    fn have(&mut self, pages: u64) -> Result<(), String> {
        self.unload(self.own, DATA, 512)?;
        for page in 0..pages {
            let at = DATA + page * SIZE.bytes();
            self.load(self.own, at, self.own_frame(page), 1, Rights::ALL)?;
        }
        Ok(())
    }

    fn load(
        &mut self,
        space: HatSpace,
        at: u64,
        frame: PhysAddr,
        count: u64,
        rights: Rights,
    ) -> Result<(), String> {
        let page = VirtAddr::new(at).page(SIZE);
        let first = Translation { page, frame, rights: rights | Rights::USER, global: false };
        match self.hat.load(space, first, count, &mut self.cpu) {
            // Another thread was first.
            Err(LoadError::Table(pagetable::Error::AlreadyMapped { .. })) | Ok(()) => Ok(()),
            Err(error) => Err(text(error)),
        }
    }

    fn unload(&mut self, space: HatSpace, at: u64, pages: u64) -> Result<(), String> {
        let each = &mut |_| ();
        self.hat.unload(space, range(at, pages), each, &mut self.cpu).map_err(text)
    }

    /// From half to one and a half times the work.
    fn burst(&mut self, cycles: u64) {
        spend(cycles / 2 + self.random.random_range(0..cycles));
    }

    fn own_frame(&self, page: u64) -> PhysAddr {
        frame(PhysAddr::new(0x1000_0000), self.number * 1024 + page)
    }
}

fn frame(first: PhysAddr, number: u64) -> PhysAddr {
    PhysAddr::new(first.get() + number * SIZE.bytes())
}

fn range(at: u64, pages: u64) -> VirtRange {
    let first = VirtRange::of_page(VirtAddr::new(at).page(SIZE));
    let last = at + (pages.max(1) - 1) * SIZE.bytes();
    first.hull(VirtRange::of_page(VirtAddr::new(last).page(SIZE)))
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
