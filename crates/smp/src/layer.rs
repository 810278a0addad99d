//! Loads on the HAT layer alone: the calls that the memory manager would make, without the memory
//! manager's locks.

use addr::{PhysAddr, Rights, VirtAddr};
use hat::{Hat, HatSpace, LoadError, MmuPlace, locking::Scheme};
use pagetable::{Mounted, Translation};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use locks::{baton::spend, costs::Costs};

use crate::{
    load::{
        Asked, CACHE_PAGES, Call, DATA, Lie, Load, PART, PARTS, Processor, RECORD, RECORD_BURST,
        SIZE, SIZES, SPEC_BURST, STORED, TELL, TEXT_PAGES, WINDOWS, Work, burst, frame, range,
        text,
    },
    spaces::Spaces,
};

/// The address of the pages of the file cache.
const CACHE: PhysAddr = PhysAddr::new(0x400_0000);
/// The physical address of the pages with the programs' text.
const TEXT: PhysAddr = PhysAddr::new(0x200_0000);
/// The address of the pages that threads of one space use.
const PARTS_FRAMES: PhysAddr = PhysAddr::new(0x1_0000_0000);

/// A processor that runs a load on the HAT layer alone.
pub(crate) struct Layer<'a, S, P> {
    hat: &'a Hat<dyn Mounted, S>,
    cpu: &'a mut P,
    costs: Costs,
    number: u64,
    random: Xoshiro256PlusPlus,
    /// The space of the processor's process.
    own: HatSpace,
    /// The space of the kernel, or the space of all threads.
    shared: HatSpace,
    /// The kernel's I/O MMU.
    device: Option<MmuPlace>,
    threads: u64,
    count: u64,
}

impl<'a, S: Scheme<Table = dyn Mounted>, P: Processor> Layer<'a, S, P> {
    /// The processor `number`, which uses these spaces.
    pub(crate) fn new(
        hat: &'a Hat<dyn Mounted, S>,
        cpu: &'a mut P,
        (number, Spaces { own, shared, device, .. }): (u64, Spaces),
        (seed, costs): (u64, Costs),
        asked: &Asked,
    ) -> Result<Layer<'a, S, P>, String> {
        cpu.enter(hat, shared)?;
        cpu.enter(hat, own)?;
        let random = Xoshiro256PlusPlus::seed_from_u64(seed ^ number << 32);
        let threads = asked.threads;
        Ok(Layer { hat, cpu, costs, number, random, own, shared, device, threads, count: 0 })
    }

    fn fork(&mut self) -> Result<(), String> {
        let pages = SIZES[self.count as usize % SIZES.len()];
        spend(self.costs.trap);
        self.have(pages)?;
        if self.count.is_multiple_of(2) {
            // vfork: the child uses the parent's space.
            return Ok(());
        }
        let child = self.hat.create(self.cpu).map_err(text)?;
        self.cpu.enter(self.hat, child)?;
        if pages > 0 {
            self.hat.duplicate(self.own, child, range(DATA, pages), self.cpu).map_err(text)?;
        }
        for page in 0..STORED.min(pages) {
            self.copy_on_write(child, page)?;
        }
        spend(self.costs.trap);
        self.hat.destroy(child, self.cpu);
        self.cpu.enter(self.hat, self.own)
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
        burst(&mut self.random, RECORD_BURST);
        spend(self.costs.trap);
        let window = WINDOWS + self.number * SIZE.bytes();
        let cached = frame(CACHE, self.random.random_range(0..CACHE_PAGES));
        let rights = Rights::READ | Rights::WRITE;
        self.load(self.shared, window, cached, 1, rights)?;
        if let Some(device) = self.device {
            let page = VirtAddr::new(window).page(SIZE);
            let first = Translation::new(page, cached, rights);
            self.hat.load_in(self.shared, device, first, 1, self.cpu).map_err(text)?;
            spend(TELL);
        } else {
            spend(RECORD);
        }
        self.unload(self.shared, window, 1)?;
        if self.count.is_multiple_of(4) {
            self.minor(self.own, self.count % 64)?;
        }
        Ok(())
    }

    /// One operation of a thread in a space that all threads share: maps, touches and unmaps four
    /// pages.
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

    /// One of the steps of [`Layer::thread`] alone, on the thread's next pages.
    fn part(&mut self, call: Call, lie: Lie) -> Result<(), String> {
        // Operations are counted from 1.
        let count = self.count - 1;
        if count > 0 && count.is_multiple_of(PARTS) {
            for count in 0..PARTS {
                let first = lie.first(count, self.number, self.threads);
                if call == Call::Unmap {
                    self.load_part(first)?;
                } else {
                    self.unload(self.shared, DATA + first * SIZE.bytes(), PART)?;
                }
            }
        }
        let first = lie.first(count, self.number, self.threads);
        if matches!(call, Call::Map | Call::MapFault | Call::Unmap) {
            spend(self.costs.trap);
        }
        match call {
            Call::Map => Ok(()),
            Call::MapFault | Call::Fault => {
                spend(PART * (self.costs.trap + self.costs.zero));
                self.load_part(first)
            }
            Call::Unmap => self.unload(self.shared, DATA + first * SIZE.bytes(), PART),
        }
    }

    fn load_part(&mut self, first: u64) -> Result<(), String> {
        (first..first + PART).try_for_each(|page| {
            let at = DATA + page * SIZE.bytes();
            self.load(self.shared, at, frame(PARTS_FRAMES, page), 1, Rights::ALL)
        })
    }

    /// Takes a minor fault on a page of the file cache.
    fn minor(&mut self, space: HatSpace, page: u64) -> Result<(), String> {
        spend(self.costs.trap);
        let at = DATA + page * SIZE.bytes();
        self.unload(space, at, 1)?;
        let cached = frame(CACHE, self.random.random_range(0..CACHE_PAGES));
        self.load(space, at, cached, 1, Rights::READ | Rights::EXECUTE)
    }

    /// Stores to a page that other processes map too, which copies it.
    fn copy_on_write(&mut self, space: HatSpace, page: u64) -> Result<(), String> {
        spend(self.costs.trap + self.costs.copy);
        let at = DATA + page * SIZE.bytes();
        self.unload(space, at, 1)?;
        self.load(space, at, self.own_frame(512 + page), 1, Rights::ALL)
    }

    /// Gives the process exactly `pages` pages of its own.
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
        let first = Translation::new(page, frame, rights | Rights::USER);
        match self.hat.load(space, first, count, self.cpu) {
            // In the first case, another thread has mapped the page before.
            Err(LoadError::Table(pagetable::Error::AlreadyMapped { .. })) | Ok(()) => Ok(()),
            Err(error) => Err(text(error)),
        }
    }

    fn unload(&mut self, space: HatSpace, at: u64, pages: u64) -> Result<(), String> {
        let each = &mut |_| ();
        self.hat.unload(space, range(at, pages), each, self.cpu).map_err(text)
    }

    fn own_frame(&self, page: u64) -> PhysAddr {
        frame(PhysAddr::new(0x1000_0000), self.number * 1024 + page)
    }
}

impl<S: Scheme<Table = dyn Mounted>, P: Processor> Work for Layer<'_, S, P> {
    fn operation(&mut self, load: Load) -> Result<(), String> {
        self.count += 1;
        match load {
            Load::Fork => self.fork(),
            Load::Exec => self.exec(),
            Load::Fault => self.fault(),
            Load::Brk => self.brk(),
            Load::Tpcb | Load::Dma => self.record(),
            Load::Spec => {
                burst(&mut self.random, SPEC_BURST);
                self.minor(self.own, 0)
            }
            Load::MtLow => self.thread(self.number * 512),
            Load::MtHigh => self.thread(0),
            Load::Mt(call, lie) => self.part(call, lie),
            Load::Kenbus | Load::Skeleton => Err("it calls the memory manager".to_owned()),
        }
    }
}

/// Makes the space that all processors share, with the mappings that threads need.
pub(crate) fn shared<S: Scheme<Table = dyn Mounted>>(
    hat: &Hat<dyn Mounted, S>,
    cpu: &mut impl Processor,
    asked: &Asked,
) -> Result<HatSpace, String> {
    let space = hat.create(cpu).map_err(text)?;
    if !matches!(asked.load, Load::Mt(Call::Unmap, _)) {
        return Ok(space);
    }
    for page in 0..asked.threads * PARTS * PART {
        let at = VirtAddr::new(DATA + page * SIZE.bytes()).page(SIZE);
        let frame = frame(PARTS_FRAMES, page);
        let first = Translation::new(at, frame, Rights::ALL);
        hat.load(space, first, 1, cpu).map_err(text)?;
    }
    Ok(space)
}
