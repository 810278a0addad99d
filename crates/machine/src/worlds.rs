//! Figures 2 to 4 of G98 as small worlds of a few pages, whose frames and entries are counted one by
//! one (Ganapathy, Schimmel 1998). The kernel is that of simulation runs: crates `vm`, `hat`,
//! `physmem` and a page table of format `irix`, over base pages of 4K.
//!
//! ```text
//!   figure 2   PTE PTE PTE PTE        a page of 16K: four entries with one size in each
//!   figure 3   A [. . . A4] -> B1     A4 moves, and chunk A is a free page of 16K
//!   figure 4   [ 64K ] - last 4K  ->  [16K][16K][4K x 7]
//! ```

use std::collections::BTreeMap;

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace};
use pagetable::{
    Flush, Irix, Memory, Mount, Mounted, PageTable, Reference, SparseMemory, Translation,
};
use physmem::{Allocator, Coalesced, FrameId, Level, Physmem, SizeLists, State};
use vm::{FileKey, Io, Kernel, Module, Parts, Physical, Platform, Settings, Source, Vm};

/// The results of a world: names and numbers.
pub type Numbers = Vec<(&'static str, u64)>;

/// Creates a world and returns its results.
pub type Make = fn() -> Numbers;

/// The functions that make these worlds, by name.
pub const WORLDS: [(&str, Make); 3] = [("fig2", figure_2), ("fig3", figure_3), ("fig4", figure_4)];

const BASE: PageSize = PageSize::SIZE_4K;
const K16: PageSize = size(14);
const K64: PageSize = size(16);
const SIZES: [PageSize; 3] = [BASE, K16, K64];
const RW: Rights = Rights::from_bits(3);
const FILE: FileKey = FileKey { device: 1, inode: 1 };
/// The message of a panic. It never occurs, because no operation fails in a world of fixed
/// operations.
const WRONG: &str = "a world of fixed operations has the memory and the regions that it needs";

const fn size(shift: u8) -> PageSize {
    match PageSize::from_shift(shift) {
        Some(size) => size,
        None => BASE,
    }
}

/// The contents of frames, each represented by a number. No translation is cached.
#[derive(Default)]
struct Contents(BTreeMap<PhysAddr, u64>);

impl Platform for Contents {
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}

    fn zero(&mut self, frame: PhysAddr, _: u64) {
        self.0.insert(frame, 0);
    }

    fn copy(&mut self, from: PhysAddr, to: PhysAddr, _: u64) {
        self.0.insert(to, self.0[&from]);
    }

    fn transfer(&mut self, io: Io) {
        if let vm::Store::File(_, page) = io.store {
            self.0.insert(io.frame, 1000 + page);
        }
    }
}

/// A kernel with four megabytes of memory.
struct World {
    vm: Vm,
    hat: Hat,
    memory: Physical<Box<dyn Allocator + Send>>,
    contents: Contents,
}

impl World {
    fn new() -> World {
        let pages = 1 << 10;
        let memory = Physmem::new(PhysAddr::new(0), pages * BASE.bytes(), BASE, |frames| {
            let lists = SizeLists::new(frames, BASE, &SIZES).expect(WRONG);
            Box::new(lists) as Box<dyn Allocator + Send>
        });
        let settings = Settings {
            sizes: &SIZES,
            sizing: "modules",
            paired: true,
            reference: vm::Reference::ValidBit,
            ..Settings::default()
        };
        let table = Mount::tree(Irix::new(BASE).expect(WRONG), SparseMemory::new(1 << 34));
        World {
            vm: Vm::new(settings, pages).expect(WRONG),
            hat: Hat::new(Box::new(table)),
            memory: Physical::new(memory.expect(WRONG)),
            contents: Contents::default(),
        }
    }

    fn kernel(&mut self) -> Kernel<'_, Parts<dyn Mounted, Box<dyn Allocator + Send>, Contents>> {
        let World { vm, hat, memory, contents } = self;
        Kernel::new(vm, hat, memory, contents)
    }

    fn space(&mut self) -> HatSpace {
        self.kernel().create().expect(WRONG)
    }

    /// Maps `bytes` bytes from `start`, with a request for pages of `size`, and touches each base page.
    fn map(&mut self, space: HatSpace, start: u64, bytes: u64, from: Source, size: PageSize) {
        let range = range(start, bytes);
        self.kernel().map(space, range, RW, from, 0).expect(WRONG);
        let module = Module { page_size: Some(size), ..Module::default() };
        self.kernel().attach(space, range, module).expect(WRONG);
        (0..bytes).step_by(BASE.bytes() as usize).for_each(|into| self.touch(space, start + into));
    }

    fn touch(&mut self, space: HatSpace, addr: u64) {
        self.kernel().fault(space, VirtAddr::new(addr), Kind::Load).expect(WRONG);
    }

    fn unmap(&mut self, space: HatSpace, start: u64, bytes: u64) {
        self.kernel().unmap(space, range(start, bytes)).expect(WRONG);
    }

    /// First byte, size and frame of all pages in the page table.
    fn pages(&self, space: HatSpace) -> Vec<(u64, PageSize, u64)> {
        let mut pages = Vec::new();
        self.hat.visit(space, VirtRange::ALL, &mut |mapping| {
            let translation = mapping.translation;
            let start = translation.page.start();
            pages.push((start.get(), translation.page.size(), translation.apply(start).get()));
        });
        pages
    }

    /// The frame of the page at `addr`.
    fn frame(&self, space: HatSpace, addr: u64) -> u64 {
        let addr = VirtAddr::new(addr);
        self.hat.query(space, addr).map_or(u64::MAX, |found| found.translation.apply(addr).get())
    }
}

fn range(start: u64, bytes: u64) -> VirtRange {
    VirtRange::new(VirtAddr::new(start), bytes).expect(WRONG)
}

fn file(first: u64) -> Source {
    Source::File { key: FILE, first, shared: true }
}

fn of_size(pages: &[(u64, PageSize, u64)], size: PageSize) -> u64 {
    pages.iter().filter(|(_, of, _)| *of == size).count() as u64
}

/// A page of 16K has four entries, and two spaces map the same frames with different page sizes.
fn figure_2() -> Numbers {
    let mut table = Irix::new(BASE).expect(WRONG);
    let mut memory = SparseMemory::new(1 << 24);
    let mut frames = Physmem::buddy(PhysAddr::new(0), 1 << 24, BASE).expect(WRONG);
    let space = table.create(&mut memory, &mut frames).expect(WRONG);
    let (start, frame) = (0x4000, 0x8000);
    let page = VirtAddr::new(start).page(K16);
    let first = Translation::new(page, PhysAddr::new(frame), RW);
    table.map(space, first, 1, &mut memory, &mut frames).expect(WRONG).done(&mut frames);
    let entries: Vec<u64> = (0..4)
        .map(|number| {
            let mut last = None;
            let addr = VirtAddr::new(start + number * BASE.bytes());
            let each = &mut |reference: Reference| last = Some(reference.addr);
            table.walk(space, addr, Kind::Load, &mut memory, each).expect(WRONG);
            memory.read_u64(last.expect(WRONG))
        })
        .collect();
    let numbers = entries.iter().map(|entry| entry >> 12);
    let adjacent = numbers.zip(frame >> 12..).filter(|(number, next)| number == next).count();
    let attributes = 0xfff;
    let equal = entries.iter().filter(|entry| (*entry ^ entries[0]) & attributes == 0).count();

    let mut world = World::new();
    let [one, two] = [world.space(), world.space()];
    let start = 0x20_0000;
    world.map(one, start, K64.bytes(), file(0), K64);
    world.map(two, start, 3 * K16.bytes(), file(0), K16);
    let [of_one, of_two] = [one, two].map(|space| world.pages(space));
    let same = (0..3).filter(|at| {
        let addr = start + at * K16.bytes();
        world.frame(one, addr) == world.frame(two, addr)
    });
    let same = same.count() as u64;
    world.unmap(one, start + 3 * K16.bytes(), K16.bytes());
    vec![
        ("entries of a page of 16K", entries.len() as u64),
        ("of them with the next frame's number", adjacent as u64),
        ("of them with the first one's attributes and size", equal as u64),
        ("pages of 64K in the first process", of_size(&of_one, K64)),
        ("pages of 16K in the second process", of_size(&of_two, K16)),
        ("of them in the first one's frames", same),
        ("of them after the first one's page was downgraded", of_size(&world.pages(two), K16)),
    ]
}

/// Page A4 of a chunk whose other three pages are free is moved to B1 of another chunk.
fn figure_3() -> Numbers {
    let mut world = World::new();
    let spaces = [world.space(), world.space()];
    for space in spaces {
        world.kernel().map(space, range(0x1000, 0x2000), RW, file(7), 0).expect(WRONG);
        // The first touch allocates the page tables, so that they lie in front of the frames below.
        world.touch(space, 0x2000);
    }
    while world.memory.get_mut().allocate_page(BASE, State::Kernel).is_ok() {}
    let (a, b) = (FrameId(512), FrameId(768));
    let a4 = FrameId(a.0 + 3);
    let free = |world: &mut World, frame| world.memory.get_mut().try_free(frame, 0).expect(WRONG);
    free(&mut world, a4);
    spaces.iter().for_each(|&space| world.touch(space, 0x1000));
    let [a4, b1] = [a4, b].map(|frame| world.memory.get_mut().table().address(frame).get());
    let before = spaces.iter().filter(|&&space| world.frame(space, 0x1000) == a4).count();
    [a, FrameId(a.0 + 1), FrameId(a.0 + 2), b].into_iter().for_each(|at| free(&mut world, at));
    let mut daemon = Coalesced::new(world.memory.get_mut().table().frames(), &[(2, 1)], 9);
    // The pass after a weak one is mild.
    daemon.passed(Level::Weak, 0, 1);
    world.vm.set_daemon(daemon);
    let (moved, shot) = (world.vm.work().migrations, world.vm.work().shootdowns);
    world.kernel().coalesce(1);
    let (moved, shot) = (world.vm.work().migrations - moved, world.vm.work().shootdowns - shot);
    let after = spaces.iter().filter(|&&space| world.frame(space, 0x1000) == b1).count();
    let kept = world.contents.0.get(&PhysAddr::new(b1)) == Some(&(1000 + 7));
    let chunks = world.memory.get_mut().free_frames(K16);
    world.unmap(spaces[0], 0x1000, 0x1000);
    world.kernel().map(spaces[0], range(0x1000, 0x1000), RW, file(7), 0).expect(WRONG);
    world.touch(spaces[0], 0x1000);
    vec![
        ("mappings of A4 before", before as u64),
        ("pages moved", moved),
        ("flushes of the TLBs", shot),
        ("mappings of B1 after", after as u64),
        ("B1 has the contents of A4", u64::from(kept)),
        ("the page cache has B1", u64::from(world.frame(spaces[0], 0x1000) == b1)),
        ("free pages of 16K", chunks),
    ]
}

/// The last 4K of a page of 64K are unmapped.
fn figure_4() -> Numbers {
    let mut world = World::new();
    let space = world.space();
    let start = 0x10_0000;
    world.map(space, start, K64.bytes(), Source::Anonymous, K64);
    let before = world.pages(space);
    world.unmap(space, start + K64.bytes() - BASE.bytes(), BASE.bytes());
    let pages = world.pages(space);
    let first_small = pages.iter().find(|(_, size, _)| *size == BASE);
    let moved = pages.iter().filter(|(addr, _, frame)| frame - before[0].2 != addr - start).count();
    // Pages whose pair contains a page of another size; there should be none.
    let unequal = pages.iter().filter(|(addr, size, _)| {
        let pair = addr & !(2 * size.bytes() - 1);
        let in_pair = |at: u64| (pair..pair + 2 * size.bytes()).contains(&at);
        pages.iter().any(|(other, of, _)| in_pair(*other) && of != size)
    });
    vec![
        ("pages of 64K before", of_size(&before, K64)),
        ("pages of 16K", of_size(&pages, K16)),
        ("pages of 4K", of_size(&pages, BASE)),
        ("where those of 4K begin, in K", first_small.map_or(0, |page| (page.0 - start) >> 10)),
        ("pages whose pair has two sizes", unequal.count() as u64),
        ("pages in other frames than before", moved as u64),
        ("downgrades", world.vm.work().downgrades),
    ]
}
