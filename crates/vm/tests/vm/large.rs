//! Tests of pages of several sizes: the streams of the model test with modules, upgrades and the
//! coalescing daemon, and the figures of G98 as exact scenarios.

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace};
use pagetable::{Irix, Mount, Mounted, SparseMemory, Usage};
use physmem::{Coalesced, FrameId, Request, State};
use vm::{
    Decision, FileKey, Kernel, Marks, Module, POLICIES, Parts, Physical, Placement, Settings,
    Source, Vm, Why,
};

use crate::{
    board::{Board, original},
    tables::{TABLES, Table},
    world::{AnyAllocator, BASE, Large, SIZES, World, memory},
};

const RW: Rights = Rights::from_bits(3);
const K16: PageSize = SIZES[1];
const K64: PageSize = SIZES[2];

fn irix() -> &'static Table {
    TABLES.iter().find(|table| table.name == "irix").unwrap()
}

#[test]
fn streams_with_pages_of_every_size() {
    let (mut got, mut work) = ([0; SIZES.len()], [0; 4]);
    for seed in 0..3 {
        for (policy, _) in POLICIES {
            for frames in [256, 1 << 12] {
                println!("{policy}, seed {seed}, {frames} frames");
                let mut world = World::with(irix(), policy, frames, seed, Large::Asked);
                world.run(250);
                for (decision, count) in world.vm.decisions() {
                    let place = SIZES.iter().position(|size| *size == decision.got).unwrap();
                    got[place] += count;
                    assert!(decision.got <= decision.wanted, "{decision:?}");
                    assert_eq!(
                        decision.why == Why::Obtained,
                        decision.got == decision.wanted && decision.got > BASE,
                        "{decision:?}"
                    );
                }
                let done = world.vm.work();
                let counts = [done.downgrades, done.upgrades, done.migrations, done.large_out];
                work.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
            }
        }
    }
    assert!(got[..3].iter().all(|&pages| pages > 50) && got[3] > 0, "{got:?} pages by size");
    assert!(work.iter().all(|&count| count > 20), "downgrades and so on: {work:?}");
}

#[test]
fn streams_over_three_nodes() {
    let mut work = [0; 2];
    for seed in 0..4 {
        for frames in [256, 1 << 12] {
            println!("seed {seed}, {frames} frames");
            let mut world = World::with(irix(), "clock", frames, seed, Large::OnNodes);
            world.run(250);
            work[0] += world.moved;
            work[1] += world.vm.work().migrations;
        }
    }
    assert!(work[0] > 50 && work[1] > work[0], "pages moved to nodes, and migrations: {work:?}");
}

#[test]
fn every_allocation_fails_once() {
    let run = |number: u64| {
        let mut world = World::with(irix(), "clock", 200, 9, Large::Asked);
        world.memory.get_mut().allocator_mut().0.refuse(number);
        world.run(120);
        world.memory.get_mut().allocator().has_refused()
    };
    let refused = (1..).take_while(|&number| run(number)).count();
    assert!(refused > 30, "{refused} allocations were made to fail");
}

#[test]
#[ignore = "takes minutes: a million operations, with all identities and the pair rule checked"]
fn a_million_operations() {
    let first = std::env::var("PAGEWALK_SEED").map_or(0, |seed| seed.parse().unwrap());
    for seed in first..100 {
        println!("seed {seed}");
        let large = if seed % 4 == 3 { Large::OnNodes } else { Large::Asked };
        World::with(irix(), "clock", 400, seed, large).run(10_000);
    }
}

/// A kernel over memory of `pages` base pages.
struct Small {
    vm: Vm,
    hat: Hat,
    memory: Physical<AnyAllocator>,
    board: Board,
}

impl Small {
    fn new(pages: u64, sizing: &'static str) -> Small {
        Small::with(pages, sizing, (1, 1))
    }

    /// Memory of `pages` base pages on `nodes` NUMA nodes, with eight cache colours.
    fn on_nodes(pages: u64, nodes: u8) -> Small {
        Small::with(pages, "modules", (nodes, 8))
    }

    fn with(pages: u64, sizing: &'static str, (nodes, colors): (u8, u32)) -> Small {
        let memory = memory(pages, nodes, &SIZES);
        let settings = Settings {
            sizes: &SIZES,
            sizing,
            paired: true,
            reference: vm::Reference::ValidBit,
            swap_pages: 1000,
            nodes,
            colors,
            ..Settings::default()
        };
        let table = Mount::tree(Irix::new(BASE).unwrap(), SparseMemory::new(1 << 34));
        Small {
            vm: Vm::new(settings, pages).unwrap(),
            hat: Hat::new(Box::new(table)),
            memory: Physical::new(memory),
            board: Board::default(),
        }
    }

    fn kernel(&mut self) -> Kernel<'_, Parts<dyn Mounted, AnyAllocator, Board>> {
        let Small { vm, hat, memory, board } = self;
        Kernel::new(vm, hat, memory, board)
    }

    /// Maps anonymous memory, for which pages of `size` are requested.
    fn map(&mut self, space: HatSpace, start: u64, bytes: u64, size: PageSize) {
        let range = range(start, bytes);
        self.kernel().map(space, range, RW, Source::Anonymous, 0).unwrap();
        let module = Module { page_size: Some(size), ..Module::default() };
        self.kernel().attach(space, range, module).unwrap();
    }

    fn touch(&mut self, space: HatSpace, addr: u64) {
        self.kernel().fault(space, VirtAddr::new(addr), Kind::Store).unwrap();
        self.kernel().check().unwrap();
    }

    /// Evicts `pages` base pages, as far as possible. Returns the number of evicted pages.
    fn leave(&mut self, pages: u64) -> u64 {
        let free = self.free();
        let marks = Marks { min: 0, low: free + 1, high: free + pages };
        self.kernel().set_marks(marks).unwrap();
        let gone = self.kernel().tick();
        self.kernel().set_marks(Marks::default()).unwrap();
        self.kernel().check().unwrap();
        gone
    }

    /// The number of free base pages.
    fn free(&mut self) -> u64 {
        self.memory.get_mut().free_bytes() >> BASE.shift()
    }

    /// The first address and the size of each page that is mapped in hardware.
    fn pages(&self, space: HatSpace) -> Vec<(u64, PageSize)> {
        let mut pages = Vec::new();
        self.hat.visit(space, VirtRange::ALL, &mut |mapping| {
            let page = mapping.translation.page;
            pages.push((page.start().get(), page.size()));
        });
        pages
    }

    fn frame(&self, space: HatSpace, addr: u64) -> PhysAddr {
        let addr = VirtAddr::new(addr);
        self.hat.query(space, addr).unwrap().translation.apply(addr)
    }

    fn why(&self) -> Vec<(PageSize, PageSize, Why)> {
        let known = self.vm.decisions().into_keys();
        known.map(|Decision { wanted, got, why, .. }| (wanted, got, why)).collect()
    }
}

fn range(start: u64, bytes: u64) -> VirtRange {
    VirtRange::new(VirtAddr::new(start), bytes).unwrap()
}

/// Tests figure 3 of G98. Chunk A has three free frames and the frame A4, which is in use. The page
/// in A4 is moved to B1 of another chunk, with identity, contents and mappings. Afterwards A is a
/// free page of 16K.
#[test]
fn figure_3() {
    let mut small = Small::new(1 << 10, "modules");
    let [one, two] = [0; 2].map(|_| small.kernel().create().unwrap());
    let key = FileKey { device: 1, inode: 1 };
    let file = Source::File { key, first: 7, shared: true };
    for space in [one, two] {
        small.kernel().map(space, range(0x1000, 0x2000), RW, file, 0).unwrap();
        // The page tables are allocated first.
        small.touch(space, 0x2000);
    }
    while small.memory.get_mut().allocate_page(BASE, State::Kernel).is_ok() {}
    let (a, b) = (FrameId(512), FrameId(768));
    let a4 = FrameId(a.0 + 3);
    small.memory.get_mut().try_free(a4, 0).unwrap();
    small.touch(one, 0x1000);
    small.touch(two, 0x1000);
    assert_eq!(small.frame(one, 0x1000), small.memory.get_mut().table().address(a4));
    for frame in [a, FrameId(a.0 + 1), FrameId(a.0 + 2), b] {
        small.memory.get_mut().try_free(frame, 0).unwrap();
    }
    let mut daemon = Coalesced::new(small.memory.get_mut().table().frames(), &[(2, 1)], 9);
    // The pass after a weak one is mild.
    daemon.passed(physmem::Level::Weak, 0, 1);
    small.vm.set_daemon(daemon);

    let (shot, before) = (small.vm.work().shootdowns, small.vm.work().migrations);
    let used = Usage { referenced: true, dirty: true, marked: false };
    small.hat.set_usage(one, VirtAddr::new(0x1000), used).unwrap();
    small.hat.set_usage(two, VirtAddr::new(0x1000), Usage { dirty: false, ..used }).unwrap();
    assert_eq!(small.kernel().coalesce(1), 1, "a mild pass moves one page");
    let usage = |space| small.hat.query(space, VirtAddr::new(0x1000)).unwrap().usage;
    assert_eq!(usage(one), used, "what was done to the page is known of it where it is now");
    assert_eq!(usage(two), Usage { dirty: false, ..used });
    small.kernel().check().unwrap();
    assert_eq!(small.vm.work().migrations, before + 1);
    assert_eq!(small.vm.work().shootdowns, shot + 1, "one flush");
    let b1 = small.memory.get_mut().table().address(b);
    assert_eq!(small.frame(one, 0x1000), b1, "the mappings lead to B1");
    assert_eq!(small.frame(two, 0x1000), b1, "the mappings lead to B1");
    assert_eq!(small.board.contents[&b1], original(key, 7), "contents");
    small.kernel().unmap(one, range(0x1000, 0x1000)).unwrap();
    small.kernel().map(one, range(0x1000, 0x1000), RW, file, 0).unwrap();
    small.touch(one, 0x1000);
    assert_eq!(small.frame(one, 0x1000), b1, "the page cache has B1 in place of A4");
    assert_eq!(small.memory.get_mut().free_frames(K16), 1);
    assert!(small.memory.get_mut().take(a, 2, State::Kernel), "all of A is free");
}

/// Tests a split as in figure 4 of G98: the last 4K of a page of 64K are unmapped. Two pages of 16K
/// and seven pages of 4K are left.
#[test]
fn figure_4() {
    let mut small = Small::new(1 << 10, "modules");
    let space = small.kernel().create().unwrap();
    let start = 0x10_0000;
    small.map(space, start, 0x1_0000, K64);
    small.touch(space, start + 0x5000);
    assert_eq!(small.pages(space), [(start, K64)]);
    let before = small.frame(space, start);
    small.kernel().unmap(space, range(start + 0xf000, 0x1000)).unwrap();
    small.kernel().check().unwrap();
    let mut expected = vec![(start, K16), (start + 0x4000, K16)];
    expected.extend((8..15).map(|page| (start + page * 0x1000, BASE)));
    assert_eq!(small.pages(space), expected);
    assert_eq!(small.frame(space, start + 0xe000).get(), before.get() + 0xe000, "frames stay");
    assert_eq!(small.vm.work().downgrades, 1);
}

/// Tests the purpose of figure 2 of G98: two spaces map the same frames with two page sizes, and
/// changes by one space do not affect the pages of the other.
#[test]
fn two_spaces_have_the_same_frames_at_two_sizes() {
    let mut small = Small::new(1 << 10, "modules");
    let [one, two] = [0; 2].map(|_| small.kernel().create().unwrap());
    let key = FileKey { device: 1, inode: 4 };
    let file = Source::File { key, first: 0, shared: true };
    for (space, bytes, size) in [(one, 0x1_0000, K64), (two, 0xc000, K16)] {
        let range = range(0x20_0000, bytes);
        small.kernel().map(space, range, RW, file, 0).unwrap();
        let module = Module { page_size: Some(size), ..Module::default() };
        small.kernel().attach(space, range, module).unwrap();
        (0..bytes).step_by(0x4000).for_each(|into| small.touch(space, 0x20_0000 + into));
    }
    let at = |page: u64| 0x20_0000 + page * 0x4000;
    let of_two = [(at(0), K16), (at(1), K16), (at(2), K16)];
    assert_eq!((small.pages(one), small.pages(two)), (vec![(at(0), K64)], of_two.to_vec()));
    assert_eq!(small.frame(one, at(2)), small.frame(two, at(2)));
    small.kernel().unmap(one, range(at(3), 0x4000)).unwrap();
    small.kernel().check().unwrap();
    assert_eq!(small.pages(two), of_two);
    assert_eq!(small.pages(one).len(), 2 + 4);
}

/// Each step of a fault that refuses a size has its own reason.
#[test]
fn every_refusal_has_its_reason() {
    let start = 0x10_0000;
    let check = |prepare: &dyn Fn(&mut Small, HatSpace), expected: (PageSize, PageSize, Why)| {
        let mut small = Small::new(1 << 9, "modules");
        let space = small.kernel().create().unwrap();
        small.map(space, start, 0x4_0000, K64);
        prepare(&mut small, space);
        small.touch(space, start + 0x1000);
        assert!(small.why().contains(&expected), "{expected:?} is not in {:?}", small.why());
    };
    check(&|_, _| {}, (K64, K64, Why::Obtained));
    check(
        &|small, space| {
            small.kernel().unmap(space, range(start + 0x4000, 0x4_0000)).unwrap();
        },
        (K64, K16, Why::RegionTooSmall),
    );
    check(
        &|small, space| {
            small.kernel().protect(space, range(start + 0x8000, 0x1000), Rights::READ).unwrap();
        },
        (K64, K16, Why::MixedRights),
    );
    check(
        &|small, space| {
            small.map(space, start, 0x1_0000, BASE);
            small.touch(space, start + 0x2000);
            let module = Module { page_size: Some(K64), ..Module::default() };
            small.kernel().attach(space, range(start, 0x4_0000), module).unwrap();
        },
        (K64, BASE, Why::OtherSizePresent),
    );
    check(
        &|small, space| {
            let other = range(start + 0x1_0000, 0x1_0000);
            small.kernel().attach(space, other, Module::default()).unwrap();
            small.touch(space, start + 0x1_2000);
            let module = Module { page_size: Some(K64), ..Module::default() };
            small.kernel().attach(space, range(start, 0x4_0000), module).unwrap();
        },
        (K64, K16, Why::PairRule),
    );
    check(
        &|small, space| {
            small.touch(space, start + 0x3_0000);
            let large = small.memory.get_mut().allocate(&Request::new(4, State::Kernel)).unwrap();
            while small.memory.get_mut().allocate_page(BASE, State::Kernel).is_ok() {}
            small.memory.get_mut().try_free(large, 3).unwrap();
        },
        (K64, K16, Why::Scarce),
    );
    check(
        &|small, space| {
            small.touch(space, start + 0x3_0000);
            let halves = [0; 2]
                .map(|_| small.memory.get_mut().allocate(&Request::new(4, State::Kernel)).unwrap());
            while small.memory.get_mut().allocate_page(BASE, State::Kernel).is_ok() {}
            for large in halves {
                small.memory.get_mut().try_free(large, 3).unwrap();
            }
        },
        (K64, K16, Why::NoFrame),
    );
    check(
        &|small, space| {
            small.touch(space, start);
            small.leave(16);
        },
        (K64, BASE, Why::InSwap),
    );
}

/// When memory is scarce by the marks, a fault uses base pages even if large pages are requested,
/// and a page is read from swap without its neighbours.
#[test]
fn large_pages_give_way_where_memory_is_scarce() {
    let start = 0x10_0000;
    let mut small = Small::new(1 << 9, "modules");
    let space = small.kernel().create().unwrap();
    small.map(space, start, 0x10_0000, K64);
    (0..4).for_each(|page| small.touch(space, start + page * 0x1_0000));
    assert_eq!(small.leave(20), 32, "pages leave whole, and no more of them than must");
    assert_eq!(small.vm.work().large_out, 2);
    let reads = small.vm.work().reads;
    (0..4).for_each(|page| small.touch(space, start + page * 0x1_0000));
    assert_eq!(small.vm.work().reads - reads, 2, "only the page that was asked for is read");
    let free = small.free();
    small.kernel().set_marks(Marks { min: 0, low: 0, high: free - 15 }).unwrap();
    small.touch(space, start + 0x8_0000);
    assert!(small.why().contains(&(K64, K16, Why::Scarce)), "{:?}", small.why());
    small.kernel().set_marks(Marks { min: 0, low: 0, high: free - 4 - 16 }).unwrap();
    small.touch(space, start + 0xa_0000);
    assert!(small.pages(space).contains(&(start + 0xa_0000, K64)));
}

/// Text is in the page cache as base pages. A later run of the program gets no large pages for it,
/// but an upgrade makes them.
#[test]
fn text_in_the_page_cache_is_upgraded() {
    let mut small = Small::new(1 << 10, "modules");
    let [first, second] = [0; 2].map(|_| small.kernel().create().unwrap());
    let key = FileKey { device: 1, inode: 2 };
    let text = Source::File { key, first: 0, shared: false };
    let (all, read) = (range(0x40_0000, 0x2_0000), Rights::from_bits(5));
    let fetch = |small: &mut Small, space, page: u64| {
        let addr = VirtAddr::new(0x40_0000 + page * 0x1000);
        small.kernel().fault(space, addr, Kind::Fetch).unwrap();
        small.kernel().check().unwrap();
    };
    small.kernel().map(first, all, read, text, 0).unwrap();
    // The pages are touched in an order in which their frames are not adjacent.
    (0..32).map(|page| page * 7 % 32).for_each(|page| fetch(&mut small, first, page));
    small.kernel().map(second, all, read, text, 0).unwrap();
    let module = Module { page_size: Some(K64), ..Module::default() };
    small.kernel().attach(second, all, module).unwrap();
    fetch(&mut small, second, 3);
    assert!(small.why().contains(&(K64, BASE, Why::InPageCache)), "{:?}", small.why());
    assert_eq!(small.kernel().upgrade(second, all, K64), Ok(2));
    small.kernel().check().unwrap();
    assert_eq!(small.pages(second), [(0x40_0000, K64), (0x41_0000, K64)]);
    assert_eq!(small.vm.work().migrations, 32);
    for page in 0..32 {
        fetch(&mut small, first, page);
        let frame = small.frame(first, 0x40_0000 + page * 0x1000);
        assert_eq!(small.board.contents[&frame], original(key, page));
    }
    assert_eq!(small.vm.resident().file, 32, "it is in memory once");
}

/// A page is moved to another node with its size. Another space that maps it has base pages
/// afterwards.
#[test]
fn a_page_moves_to_the_node_that_refers_to_it() {
    let mut small = Small::on_nodes(1 << 12, 2);
    let [one, two] = [0; 2].map(|_| small.kernel().create().unwrap());
    let key = FileKey { device: 1, inode: 3 };
    let file = Source::File { key, first: 0, shared: true };
    let all = range(0x10_0000, 0x1_0000);
    for space in [one, two] {
        small.kernel().map(space, all, RW, file, 0).unwrap();
        let module = Module { page_size: Some(K64), ..Module::default() };
        small.kernel().attach(space, all, module).unwrap();
        small.touch(space, 0x10_3000);
    }
    let node = |small: &mut Small, space| {
        let frame = small.frame(space, 0x10_3000);
        let table = small.memory.get_mut().table();
        table.get(table.frame_at(frame).unwrap()).node()
    };
    assert_eq!(node(&mut small, one), 0, "the first toucher's");
    let at = VirtAddr::new(0x10_3000);
    assert_eq!(small.kernel().move_to_node(one, at, 1), Ok(Ok(16)));
    small.kernel().check().unwrap();
    assert_eq!((node(&mut small, one), node(&mut small, two)), (1, 1));
    assert_eq!(small.pages(one), [(0x10_0000, K64)]);
    assert_eq!(small.pages(two).len(), 16);
    let frame = small.frame(one, 0x10_3000);
    assert_eq!(small.board.contents[&frame], original(key, 3), "contents go with it");
    assert_eq!(small.kernel().move_to_node(one, at, 1), Ok(Ok(0)), "it is there already");
    small.kernel().lock(two, range(0x10_5000, 0x1000)).unwrap();
    assert_eq!(small.kernel().move_to_node(one, at, 0), Ok(Err(Why::Wired)));
}

/// If the home node has no large page, a region that may borrow gets one from the next node, and a
/// region that may not gets smaller pages of the home node. A base page is always borrowed if
/// necessary.
#[test]
fn large_pages_are_borrowed_or_not() {
    for (stays, placement, expected) in [
        (false, Placement::Local, (K64, 0)),
        (true, Placement::Local, (BASE, 1)),
        (true, Placement::Node(0), (K64, 0)),
        (true, Placement::InTurn, (K64, 0)),
    ] {
        let mut small = Small::on_nodes(1 << 10, 2);
        let space = small.kernel().create().unwrap();
        // The page tables are allocated first. After this, only every second frame of node 1 is
        // free.
        small.kernel().map(space, range(0x20_0000, 0x1000), RW, Source::Anonymous, 0).unwrap();
        small.touch(space, 0x20_0000);
        for frame in (512..1024).step_by(2) {
            small.memory.get_mut().take(FrameId(frame), 0, State::Kernel);
        }
        let all = range(0x12_0000, 0x1_0000);
        small.kernel().map(space, all, RW, Source::Anonymous, 0).unwrap();
        let module = Module { page_size: Some(K64), placement, stays, ..Module::default() };
        small.kernel().attach(space, all, module).unwrap();
        let kernel = small.kernel().on_node(1);
        { kernel }.fault(space, VirtAddr::new(0x12_0000), Kind::Store).unwrap();
        let table = small.memory.get_mut().table();
        let frame = small.hat.query(space, all.start()).unwrap().translation.frame;
        let node = table.get(table.frame_at(frame).unwrap()).node();
        assert_eq!((small.pages(space)[0].1, node), expected, "{stays}, {placement:?}");
    }
}

/// Pages of one colour use the same sets of a cache; the colour of a page is that of its address.
#[test]
fn base_pages_have_the_colour_of_their_address() {
    let mut small = Small::on_nodes(1 << 10, 2);
    let space = small.kernel().create().unwrap();
    small.kernel().map(space, range(0x10_0000, 0x20_0000), RW, Source::Anonymous, 0).unwrap();
    for page in (0..0x100).map(|page| page * 37 % 0x100) {
        let addr = 0x10_0000 + page * 0x1000;
        small.touch(space, addr);
        assert_eq!((small.frame(space, addr).get() >> 12) % 8, page % 8);
    }
}

/// A page of a file is mapped in both halves of a pair. Moving it into a large page of one half
/// would make the pages of the other half smaller, so the halves would break the pair rule.
#[test]
fn an_upgrade_that_makes_the_other_of_its_pair_smaller_is_none() {
    let mut small = Small::new(1 << 10, "modules");
    let space = small.kernel().create().unwrap();
    let key = FileKey { device: 1, inode: 2 };
    let [even, odd] = [0x10_0000, 0x10_4000].map(|start| range(start, 0x4000));
    for (range, first) in [(even, 1), (odd, 4)] {
        let file = Source::File { key, first, shared: true };
        small.kernel().map(space, range, RW, file, 0).unwrap();
    }
    small.kernel().upgrade(space, odd, K16).unwrap();
    assert_eq!(small.pages(space), [(0x10_4000, K16)]);
    assert_eq!(small.kernel().upgrade(space, even, K16), Ok(0));
    small.kernel().check().unwrap();
    let pages: Vec<_> = (4..8).map(|page| (0x10_0000 + page * 0x1000, BASE)).collect();
    assert_eq!(small.pages(space), pages);
    assert!(small.vm.upgrades().keys().any(|decision| decision.why == Why::PairRule));
}

/// Without modules the kernel does exactly the work that it does with base pages only, whatever
/// sizes are possible.
#[test]
fn without_hints_the_same_work_is_done_as_with_base_pages() {
    let work = |sizing| {
        let mut small = Small::new(1 << 9, sizing);
        let space = small.kernel().create().unwrap();
        let all = range(0x10_0000, 0x30_0000);
        small.kernel().map(space, all, RW, Source::Anonymous, 0).unwrap();
        for page in (0..0x300).map(|page| page * 5 % 0x300) {
            small.touch(space, 0x10_0000 + page * 0x1000);
        }
        (small.vm.work(), small.vm.faults())
    };
    assert_eq!(work("modules"), work("base"));
}
