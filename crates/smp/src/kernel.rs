//! Loads on the memory manager: each operation is a system call of a process, or a fault. The
//! memory manager calls the HAT layer as needed.
//!
//! ```text
//!   load --> vm::Kernel: space, object, anonymous map, free lists     locks of classes `vm_...`
//!                |
//!                v
//!            hat::Hat: the scheme's locks        the same platform of locks for both
//! ```

use std::sync::Arc;

use addr::{Kind, Rights, VirtAddr};
use hat::{Hat, HatSpace, LoadError, locking::Locks, locking::Scheme};
use pagetable::{Mounted, Translation};
use physmem::Buddy;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vm::{Error, FileKey, Host, Kernel, Parts, Source};

use locks::{baton::spend, costs::Costs};

use crate::{
    load::{
        Asked, CACHE_PAGES, Call, DATA, Lie, Load, PART, PARTS, Processor, RECORD, RECORD_BURST,
        REGION, SIZE, SIZES, SPEC_BURST, STORED, TELL, TEXT_PAGES, WINDOWS, Work, burst, range,
        text,
    },
    replay::play,
    skeleton::Skeleton,
    spaces::{Above, Shared, Spaces},
};

/// The file that processes read, and map to take minor faults.
const CACHE: FileKey = FileKey { device: 1, inode: 1 };
/// The file of the program that all processes run.
const TEXT: FileKey = FileKey { device: 1, inode: 2 };
/// The address of the text of a process.
const TEXT_AT: u64 = 0x0800_0000;
/// The address at which a process maps the file.
const FILE_AT: u64 = 0x2000_0000;
/// The address at which the heap of a process begins.
const HEAP: u64 = 0x3000_0000;
/// The address of the stack of a program.
const STACK: u64 = 0x4000_0000;

const RW: Rights = Rights::from_bits(Rights::READ.bits() | Rights::WRITE.bits());
const RX: Rights = Rights::from_bits(Rights::READ.bits() | Rights::EXECUTE.bits());

/// A processor that runs a load on the memory manager.
pub(crate) struct Process<'a, H: Host<Table = dyn Mounted>> {
    hat: &'a Hat<dyn Mounted, H::Scheme>,
    pub(crate) kernel: Kernel<'a, H>,
    pub(crate) costs: Costs,
    number: u64,
    random: Xoshiro256PlusPlus,
    spaces: Spaces,
    skeletons: Arc<[Skeleton]>,
    threads: u64,
    count: u64,
}

impl<'a, S, P, L> Process<'a, Parts<dyn Mounted, Buddy, P, L, S>>
where
    S: Scheme<Table = dyn Mounted>,
    P: Processor,
    L: Locks,
{
    /// The processor `number`, which uses these spaces.
    pub(crate) fn new(
        hat: &'a Hat<dyn Mounted, S>,
        above: &'a Above<L>,
        cpu: &'a mut P,
        (number, spaces): (u64, Spaces),
        (seed, costs): (u64, Costs),
        asked: &Asked,
    ) -> Result<Self, String> {
        cpu.enter(hat, spaces.shared)?;
        cpu.enter(hat, spaces.own)?;
        let kernel = Kernel::new(&above.vm, hat, &above.memory, cpu);
        let random = Xoshiro256PlusPlus::seed_from_u64(seed ^ number << 32);
        let (skeletons, threads) = (Arc::clone(&asked.skeletons), asked.threads);
        Ok(Process { hat, kernel, costs, number, random, spaces, skeletons, threads, count: 0 })
    }
}

impl<H> Process<'_, H>
where
    H: Host<Table = dyn Mounted>,
    H::Platform: Processor,
{
    fn fork(&mut self) -> Result<(), String> {
        let (parent, pages) = self.parent();
        spend(self.costs.trap);
        if self.count.is_multiple_of(2) {
            // vfork: the child uses the parent's space until it ends.
            self.kernel.share(parent).map_err(text)?;
            spend(self.costs.trap);
            return self.kernel.exit(parent).map(|_| ()).map_err(text);
        }
        let child = self.kernel.create().map_err(text)?;
        self.kernel.fork(parent, child).map_err(text)?;
        self.kernel.platform().enter(self.hat, child)?;
        for page in 0..STORED.min(pages) {
            self.touch(child, at(DATA, page), Kind::Store)?;
        }
        spend(self.costs.trap);
        self.kernel.exit(child).map_err(text)?;
        self.kernel.platform().enter(self.hat, parent)?;
        for page in 0..STORED.min(pages) {
            self.touch(parent, at(DATA, page), Kind::Store)?;
        }
        Ok(())
    }

    fn exec(&mut self) -> Result<(), String> {
        let (parent, pages) = self.parent();
        spend(self.costs.trap);
        let child = self.kernel.create().map_err(text)?;
        if !self.count.is_multiple_of(2) {
            self.kernel.fork(parent, child).map_err(text)?;
        }
        self.kernel.platform().enter(self.hat, child)?;
        spend(self.costs.trap);
        self.kernel.exec(child).map_err(text)?;
        self.begin(child, pages)?;
        spend(self.costs.trap);
        self.kernel.exit(child).map_err(text)?;
        self.kernel.platform().enter(self.hat, self.spaces.own)?;
        Ok(())
    }

    /// Runs an empty program in an empty space. The program only uses its text and its stack.
    fn begin(&mut self, space: HatSpace, data: u64) -> Result<(), String> {
        let program = Source::File { key: TEXT, first: 0, shared: false };
        let parts = [
            (TEXT_AT, TEXT_PAGES, RX, program),
            (DATA, data, RW, Source::Anonymous),
            (STACK, STORED, RW, Source::Anonymous),
        ];
        for (at, pages, rights, source) in parts.into_iter().filter(|part| part.1 > 0) {
            self.kernel.map(space, range(at, pages), rights, source, 0).map_err(text)?;
        }
        for page in 0..TEXT_PAGES {
            self.touch(space, at(TEXT_AT, page), Kind::Fetch)?;
        }
        (0..STORED).try_for_each(|page| self.touch(space, at(STACK, page), Kind::Store))
    }

    fn fault(&mut self) -> Result<(), String> {
        let page = self.count % REGION;
        self.minor(page)?;
        if self.count.is_multiple_of(2) {
            return Ok(());
        }
        self.touch(self.spaces.own, at(FILE_AT, page), Kind::Store)
    }

    /// Takes a minor fault on a page of a file in memory. Before page 0, maps the file again, in
    /// place of the earlier mapping.
    fn minor(&mut self, page: u64) -> Result<(), String> {
        let own = self.spaces.own;
        if page == 0 {
            spend(self.costs.trap);
            let first = REGION * (self.count / REGION % (CACHE_PAGES / REGION));
            let source = Source::File { key: CACHE, first, shared: false };
            self.kernel.map(own, range(FILE_AT, REGION), RW, source, 0).map_err(text)?;
        }
        self.touch(own, at(FILE_AT, page), Kind::Load)
    }

    fn brk(&mut self) -> Result<(), String> {
        let own = self.spaces.own;
        let page = self.count % REGION;
        let heap = |pages| VirtAddr::new(at(HEAP, pages));
        if page == 0 {
            spend(self.costs.trap);
            self.kernel.set_break(own, heap(REGION), heap(0), 0).map_err(text)?;
        }
        spend(self.costs.trap);
        self.kernel.set_break(own, heap(page), heap(page + 1), 0).map_err(text)?;
        self.touch(own, at(HEAP, page), Kind::Store)
    }

    fn record(&mut self) -> Result<(), String> {
        burst(&mut self.random, RECORD_BURST);
        spend(self.costs.trap);
        let window = VirtAddr::new(at(WINDOWS, self.number)).page(SIZE);
        let (hat, Spaces { shared, device, .. }) = (self.hat, self.spaces);
        let offset = self.random.random_range(0..CACHE_PAGES) << SIZE.shift();
        let mut done = Ok(());
        let each = &mut |cpu: &mut H::Platform, frame, _| {
            let first = Translation::new(window, frame, RW);
            let load = |cpu: &mut H::Platform| -> Result<(), LoadError> {
                hat.load(shared, first, 1, cpu)?;
                let Some(device) = device else {
                    spend(RECORD);
                    return Ok(());
                };
                hat.load_in(shared, device, first, 1, cpu)?;
                spend(TELL);
                Ok(())
            };
            done = load(cpu).map_err(text);
            if done.is_ok() {
                let range = addr::VirtRange::of_page(window);
                done = hat.unload(shared, range, &mut |_| (), cpu).map_err(text);
            }
        };
        let read = self.kernel.transfer_file(CACHE, offset, SIZE.bytes(), false, each);
        read.map_err(text)?;
        done?;
        if self.count.is_multiple_of(4) {
            self.minor(self.count / 4 % REGION)?;
        }
        Ok(())
    }

    /// One operation of a thread in a space that all threads share: maps, touches and unmaps four
    /// pages.
    fn thread(&mut self, first: u64) -> Result<(), String> {
        const PAGES: u64 = 4;
        let shared = self.spaces.shared;
        let first = at(DATA, first + PAGES * self.random.random_range(0..8u64));
        let all = range(first, PAGES);
        spend(self.costs.trap);
        self.kernel.map(shared, all, RW, Source::Anonymous, 0).map_err(text)?;
        for page in 0..PAGES {
            self.touch(shared, at(first, page), Kind::Store)?;
        }
        spend(self.costs.trap);
        self.kernel.unmap(shared, all).map_err(text)
    }

    /// One of the steps of [`Process::thread`] alone, on the thread's next pages.
    fn part(&mut self, call: Call, lie: Lie) -> Result<(), String> {
        let shared = self.spaces.shared;
        if self.count > 0 && self.count.is_multiple_of(PARTS) {
            for count in 0..PARTS {
                self.anew(call, at(DATA, lie.first(count, self.number, self.threads)))?;
            }
        }
        let first = at(DATA, lie.first(self.count, self.number, self.threads));
        let all = range(first, PART);
        if matches!(call, Call::Map | Call::MapFault) {
            spend(self.costs.trap);
            self.kernel.map(shared, all, RW, Source::Anonymous, 0).map_err(text)?;
        }
        if matches!(call, Call::MapFault | Call::Fault) {
            (0..PART).try_for_each(|page| self.touch(shared, at(first, page), Kind::Store))?;
        }
        if call == Call::Unmap {
            spend(self.costs.trap);
            self.kernel.unmap(shared, all).map_err(text)?;
        }
        Ok(())
    }

    /// Restores the state that the pages had before their first use.
    fn anew(&mut self, call: Call, first: u64) -> Result<(), String> {
        let (shared, all) = (self.spaces.shared, range(first, PART));
        match call {
            Call::Map | Call::MapFault => self.kernel.unmap(shared, all).map_err(text),
            Call::Fault => self.kernel.discard(shared, all).map_err(text),
            Call::Unmap => {
                self.kernel.map(shared, all, RW, Source::Anonymous, 0).map_err(text)?;
                (0..PART).try_for_each(|page| self.touch(shared, at(first, page), Kind::Store))
            }
        }
    }

    /// Runs the user's next command. Each user runs all commands in turn, and different users
    /// begin with different commands.
    fn command(&mut self) -> Result<(), String> {
        let skeletons = Arc::clone(&self.skeletons);
        let next = (5 * self.number + self.count) as usize % skeletons.len().max(1);
        let skeleton = skeletons.get(next).ok_or("the load has no skeleton to replay")?;
        play(&mut self.kernel, self.hat, &self.costs, skeleton)?;
        self.kernel.platform().enter(self.hat, self.spaces.own)?;
        Ok(())
    }

    /// The process that this operation forks, and its number of data pages.
    fn parent(&self) -> (HatSpace, u64) {
        let place = self.count as usize % SIZES.len();
        (self.spaces.parents[place], SIZES[place])
    }

    fn touch(&mut self, space: HatSpace, at: u64, kind: Kind) -> Result<(), String> {
        spend(self.costs.trap);
        match self.kernel.fault(space, VirtAddr::new(at), kind) {
            // In the second case, another thread of the space has unmapped the region.
            Ok(_) | Err(Error::NoRegion(_)) => Ok(()),
            Err(error) => Err(text(error)),
        }
    }
}

/// Makes the space that all processors share, with the mappings that threads need.
pub(crate) fn shared<S, P, L>(
    hat: &Hat<dyn Mounted, S>,
    above: &Above<L>,
    cpu: &mut P,
    asked: &Asked,
) -> Result<HatSpace, String>
where
    S: Scheme<Table = dyn Mounted>,
    P: Processor,
    L: Locks,
{
    let kernel = &mut Kernel::new(&above.vm, hat, &above.memory, cpu);
    let space = kernel.create().map_err(text)?;
    let Load::Mt(call @ (Call::Fault | Call::Unmap), _) = asked.load else { return Ok(space) };
    let pages = asked.threads * PARTS * PART;
    kernel.map(space, range(DATA, pages), RW, Source::Anonymous, 0).map_err(text)?;
    for page in (0..pages).filter(|_| call == Call::Unmap) {
        kernel.fault(space, VirtAddr::new(at(DATA, page)), Kind::Store).map_err(text)?;
    }
    Ok(space)
}

/// Reads the files into memory, and makes the spaces of a processor.
pub(crate) fn spaces<S, P, L>(
    hat: &Hat<dyn Mounted, S>,
    above: &Above<L>,
    cpu: &mut P,
    (shared, device): Shared,
    asked: &Asked,
) -> Result<Spaces, String>
where
    S: Scheme<Table = dyn Mounted>,
    P: Processor,
    L: Locks,
{
    let kernel = &mut Kernel::new(&above.vm, hat, &above.memory, cpu);
    for (file, pages) in [(CACHE, CACHE_PAGES), (TEXT, TEXT_PAGES)] {
        let bytes = pages << SIZE.shift();
        kernel.transfer_file(file, 0, bytes, false, &mut |_, _, _| ()).map_err(text)?;
    }
    let own = kernel.create().map_err(text)?;
    for skeleton in asked.skeletons.iter() {
        play(kernel, hat, &Costs::FREE, skeleton)?;
    }
    let mut parents = [own; SIZES.len()];
    let with_parents = matches!(asked.load, Load::Fork | Load::Exec);
    for (parent, pages) in parents.iter_mut().zip(SIZES).filter(|_| with_parents) {
        *parent = kernel.create().map_err(text)?;
        let data = range(DATA, pages);
        kernel.map(*parent, data, RW, Source::Anonymous, 0).map_err(text)?;
        for page in 0..pages {
            let addr = VirtAddr::new(at(DATA, page));
            kernel.fault(*parent, addr, Kind::Store).map_err(text)?;
        }
    }
    Ok(Spaces { own, shared, device, parents })
}

impl<H> Work for Process<'_, H>
where
    H: Host<Table = dyn Mounted>,
    H::Platform: Processor,
{
    fn operation(&mut self, load: Load) -> Result<(), String> {
        let number = self.count;
        let done = match load {
            Load::Fork => self.fork(),
            Load::Exec => self.exec(),
            Load::Fault => self.fault(),
            Load::Brk => self.brk(),
            Load::Tpcb | Load::Dma => self.record(),
            Load::Spec => {
                burst(&mut self.random, SPEC_BURST);
                self.minor(number % REGION)
            }
            Load::MtLow => self.thread(self.number * 512),
            Load::MtHigh => self.thread(0),
            Load::Mt(call, lie) => self.part(call, lie),
            Load::Kenbus | Load::Skeleton => self.command(),
        };
        self.count += 1;
        done
    }
}

/// The address `pages` pages after `start`.
const fn at(start: u64, pages: u64) -> u64 {
    start + (pages << SIZE.shift())
}
