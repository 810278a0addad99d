//! Tests of base pages from reservations: the streams of the model test with reservations, and
//! exact scenarios of promotion, demotion and scarce memory.

use alloc::{boxed::Box, vec::Vec};

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace};
use pagetable::{Mount, Mounted, SparseMemory, X86_64};
use physmem::{Buddy, Physmem, Reservations};
use vm::{FileKey, Kernel, POLICIES, Parts, Physical, Reserving, Settings, Source, Vm, Why};

use crate::{
    board::Board,
    tables::TABLES,
    world::{AnyAllocator, BASE, Large, World},
};

const RW: Rights = Rights::from_bits(3);
const LARGE: PageSize = PageSize::SIZE_2M;
const HEAP: u64 = 0x4000_0000;
const MIB: u64 = 1 << 20;

#[test]
fn streams_with_reservations() {
    let mut all = [0; 4];
    for eager in [false, true] {
        let large = Large::Reserved(Reserving { eager });
        let irix = TABLES.iter().find(|table| table.name == "irix").unwrap();
        for (policy, _) in POLICIES {
            for (seed, frames) in [(0, 200), (1, 200), (2, 1 << 12)] {
                println!("{policy}, seed {seed}, {frames} frames, eager {eager}");
                let mut world = World::with(irix, policy, frames, seed, large);
                world.run(400);
                let (work, counts) = (world.vm.work(), world.memory.get_mut().allocator());
                let counts = physmem::Allocator::reserver(counts).unwrap().counts();
                let sum = |count: fn(&physmem::ReservationCounts) -> u64| {
                    counts.iter().map(|(_, counts)| count(counts)).sum::<u64>()
                };
                let made = sum(|counts| counts.made);
                let broken = sum(|counts| counts.broken.iter().sum());
                assert_eq!(made, sum(|counts| counts.emptied) + broken, "all frames are free");
                let these = [made, broken, work.upgrades, work.downgrades];
                all.iter_mut().zip(these).for_each(|(all, count)| *all += count);
            }
        }
    }
    assert!(all.iter().all(|&count| count > 9), "made, broken, promoted, demoted: {all:?}");
}

#[test]
fn every_allocation_fails_once() {
    let irix = TABLES.iter().find(|table| table.name == "irix").unwrap();
    let run = |number: u64| {
        let large = Large::Reserved(Reserving { eager: true });
        let mut world = World::with(irix, "clock", 200, 9, large);
        world.memory.get_mut().allocator_mut().0.refuse(number);
        world.run(100);
        world.memory.get_mut().allocator().has_refused()
    };
    let refused = (1..).take_while(|&number| run(number)).count();
    assert!(refused > 30, "{refused} allocations were made to fail");
}

/// A kernel over x86-64 with reservations of 2 MiB.
struct Small {
    vm: Vm,
    hat: Hat,
    memory: Physical<AnyAllocator>,
    board: Board,
}

impl Small {
    fn new(mib: u64, orders: &[u32], eager: bool) -> Small {
        let memory = Physmem::new(PhysAddr::new(0), mib * MIB, BASE, |frames| {
            let buddy = Buddy::new(frames.clone());
            Box::new(Reservations::new(buddy, frames, orders)) as AnyAllocator
        });
        let settings = Settings {
            sizes: &[BASE, LARGE],
            swap_pages: 1 << 14,
            reserving: Some(Reserving { eager }),
            ..Settings::default()
        };
        let table = Mount::tree(X86_64::<4>::new(), SparseMemory::new(1 << 34));
        Small {
            vm: Vm::new(settings, mib * MIB / BASE.bytes()).unwrap(),
            hat: Hat::new(Box::new(table)),
            memory: Physical::new(memory.unwrap()),
            board: Board::default(),
        }
    }

    fn kernel(&mut self) -> Kernel<'_, Parts<dyn Mounted, AnyAllocator, Board>> {
        let Small { vm, hat, memory, board } = self;
        Kernel::new(vm, hat, memory, board)
    }

    fn map(&mut self, space: HatSpace, start: u64, bytes: u64, source: Source) {
        self.kernel().map(space, range(start, bytes), RW, source, 0).unwrap();
    }

    /// Simulates an access: a walk, which sets usage bits, and a fault if the walk finds no page.
    fn touch(&mut self, space: HatSpace, addr: u64, kind: Kind) {
        let addr = VirtAddr::new(addr);
        for _ in 0..3 {
            let inner = self.hat.space(space).unwrap();
            if self.hat.table_mut().walk(inner, addr, kind, &mut Vec::new()).is_ok() {
                return;
            }
            self.kernel().fault(space, addr, kind).unwrap();
        }
        panic!("{addr} faults again and again");
    }

    fn touch_all(&mut self, space: HatSpace, start: u64, bytes: u64, kind: Kind) {
        (start..start + bytes).step_by(4096).for_each(|addr| self.touch(space, addr, kind));
        self.kernel().check().unwrap();
    }

    fn frame(&self, space: HatSpace, addr: u64) -> u64 {
        let addr = VirtAddr::new(addr);
        self.hat.query(space, addr).unwrap().translation.apply(addr).get()
    }

    /// The number of pages of each size that hardware has.
    fn pages(&self, space: HatSpace) -> (usize, usize) {
        let mut sizes = Vec::new();
        self.hat.visit(space, VirtRange::ALL, &mut |mapping| {
            sizes.push(mapping.translation.page.size());
        });
        let large = sizes.iter().filter(|size| **size == LARGE).count();
        (sizes.len() - large, large)
    }

    fn counts(&mut self) -> physmem::ReservationCounts {
        physmem::Allocator::reserver(self.memory.get_mut().allocator()).unwrap().counts()[0].1
    }
}

fn range(start: u64, bytes: u64) -> VirtRange {
    VirtRange::new(VirtAddr::new(start), bytes).unwrap()
}

#[test]
fn full_and_equal_gives_one_large_page() {
    let mut small = Small::new(16, &[9], false);
    let space = small.kernel().create().unwrap();
    small.map(space, HEAP, 2 * MIB, Source::Anonymous);
    // Whatever the order of the accesses, each page gets its own place.
    for page in (0..512u64).map(|page| page * 75 % 512) {
        small.touch(space, HEAP + page * 4096, Kind::Store);
        assert_eq!(small.frame(space, HEAP + page * 4096) % (2 * MIB), page * 4096);
    }
    assert_eq!(small.pages(space), (0, 1));
    assert_eq!((small.counts().made, small.counts().filled), (1, 1));
    assert_eq!(small.vm.work().upgrades, 1);
    // Demotion: a part is unmapped, the rest stays in its frames, and later all of it is a large
    // page again.
    small.kernel().unmap(space, range(HEAP + 4096, 4096)).unwrap();
    assert_eq!(small.pages(space), (511, 0));
    small.map(space, HEAP + 4096, 4096, Source::Anonymous);
    small.touch(space, HEAP + 4096, Kind::Store);
    assert_eq!(small.pages(space), (0, 1));
    small.kernel().check().unwrap();
}

/// A region that was moved up is extended down below the address from which it was moved. Without
/// the large first number, its first pages would have negative numbers, which are very large
/// unsigned numbers.
#[test]
fn a_moved_region_grows_below_where_it_came_from() {
    for eager in [false, true] {
        let mut small = Small::new(16, &[9], eager);
        let space = small.kernel().create().unwrap();
        small.map(space, HEAP, 2 * MIB, Source::Anonymous);
        small.touch(space, HEAP, Kind::Store);
        let from = range(HEAP, 2 * MIB);
        small.kernel().move_pages(space, from, VirtAddr::new(3 * HEAP), 2 * MIB).unwrap();
        small.map(space, HEAP, 2 * HEAP, Source::Anonymous);
        // Below the address 2 * HEAP, numbers would be negative.
        small.touch_all(space, 2 * HEAP - 2 * MIB, 4 * MIB, Kind::Store);
        assert_eq!(small.counts().made, 3, "eager {eager}");
        assert_eq!(small.pages(space), (1, 2), "eager {eager}");
    }
}

#[test]
fn unequal_rights_give_none() {
    let mut small = Small::new(16, &[9], false);
    let space = small.kernel().create().unwrap();
    small.map(space, HEAP, 2 * MIB, Source::Anonymous);
    small.touch(space, HEAP, Kind::Store);
    small.kernel().protect(space, range(HEAP, 4096), Rights::READ).unwrap();
    small.touch_all(space, HEAP + 4096, 2 * MIB - 4096, Kind::Store);
    assert_eq!(small.pages(space), (512, 0));
    assert_eq!(small.counts().filled, 1);
    let whys: Vec<Why> = small.vm.upgrades().keys().map(|decision| decision.why).collect();
    assert_eq!(whys, [Why::MixedRights]);
}

/// A large page has a single dirty bit, so clean pages are not promoted together with dirty pages
/// until they are stored to.
#[test]
fn clean_and_dirty_pages_do_not_mix() {
    let mut small = Small::new(16, &[9], false);
    let space = small.kernel().create().unwrap();
    small.map(space, HEAP, 2 * MIB, Source::Anonymous);
    small.touch_all(space, HEAP, 2 * MIB - 4096, Kind::Store);
    small.touch(space, HEAP + 2 * MIB - 4096, Kind::Load);
    assert_eq!(small.pages(space), (512, 0));
    small.touch(space, HEAP + 2 * MIB - 4096, Kind::Store);
    assert_eq!(small.pages(space), (0, 1));
    // All pages are clean: they become one large page without the right to store, which is split at
    // the first store.
    let other = small.kernel().create().unwrap();
    small.map(other, HEAP, 2 * MIB, Source::Anonymous);
    small.touch_all(other, HEAP, 2 * MIB, Kind::Load);
    assert_eq!(small.pages(other), (0, 1));
    small.touch(other, HEAP, Kind::Store);
    assert_eq!(small.pages(other), (512, 0));
    small.touch_all(other, HEAP, 2 * MIB, Kind::Store);
    assert_eq!(small.pages(other), (0, 1));
}

#[test]
fn a_file_that_was_read_is_mapped_large_at_one_fault() {
    let mut small = Small::new(16, &[9], false);
    let file = |shared| Source::File { key: FileKey { device: 1, inode: 2 }, first: 0, shared };
    let first = small.kernel().create().unwrap();
    small.map(first, HEAP, 2 * MIB, file(false));
    small.touch_all(first, HEAP, 2 * MIB, Kind::Load);
    assert_eq!(small.pages(first), (0, 1));
    let second = small.kernel().create().unwrap();
    small.map(second, HEAP, 2 * MIB, file(false));
    small.touch(second, HEAP + 4096 * 7, Kind::Load);
    assert_eq!(small.pages(second), (0, 1));
    small.kernel().check().unwrap();
    // A copy of a base page splits the large page, and has another frame.
    small.touch(second, HEAP + 4096 * 7, Kind::Store);
    assert_eq!(small.pages(second), (512, 0));
    assert_ne!(small.frame(second, HEAP + 4096 * 7), small.frame(first, HEAP + 4096 * 7));
    small.kernel().check().unwrap();
}

#[test]
fn a_small_file_has_a_reservation_only_where_that_is_asked_for() {
    for (eager, made) in [(false, 0), (true, 1)] {
        let mut small = Small::new(16, &[9], eager);
        let space = small.kernel().create().unwrap();
        let key = FileKey { device: 1, inode: 2 };
        // The file is mapped in the middle of a large page, so an eager reservation begins before
        // the file does.
        small.map(space, HEAP + MIB, 64 << 10, Source::File { key, first: 0, shared: true });
        small.touch_all(space, HEAP + MIB, 64 << 10, Kind::Load);
        assert_eq!(small.counts().made, made);
        let frame = small.frame(space, HEAP + MIB + 4096 * 3);
        assert_eq!((frame % (2 * MIB) == MIB + 4096 * 3), eager, "{frame:#x}");
    }
}

#[test]
fn two_sizes_of_reservations() {
    let mut small = Small::new(16, &[9, 4], false);
    let space = small.kernel().create().unwrap();
    let key = FileKey { device: 1, inode: 2 };
    small.map(space, HEAP, 128 << 10, Source::File { key, first: 0, shared: true });
    small.touch_all(space, HEAP, 128 << 10, Kind::Load);
    let counts = physmem::Allocator::reserver(small.memory.get_mut().allocator()).unwrap().counts();
    assert_eq!(counts.iter().map(|(_, counts)| counts.made).collect::<Vec<_>>(), [0, 2]);
}

/// A reservation never has pages of two objects, for example of two different mappings or of a
/// parent and its child.
#[test]
fn never_two_objects_in_one_reservation() {
    let mut small = Small::new(32, &[9], false);
    let parent = small.kernel().create().unwrap();
    small.map(parent, HEAP, MIB, Source::Anonymous);
    let read = range(HEAP + MIB, MIB);
    small.kernel().map(parent, read, Rights::READ, Source::Anonymous, 0).unwrap();
    small.touch(parent, HEAP, Kind::Store);
    small.touch(parent, HEAP + MIB, Kind::Load);
    let block = |small: &Small, space, addr| small.frame(space, addr) / (2 * MIB);
    assert_ne!(block(&small, parent, HEAP), block(&small, parent, HEAP + MIB));
    let child = small.kernel().create().unwrap();
    small.kernel().fork(parent, child).unwrap();
    small.touch(child, HEAP + 4096, Kind::Store);
    small.touch(parent, HEAP + 8192, Kind::Store);
    let [own, new, old] = [(child, 4096), (parent, 8192), (parent, 0)]
        .map(|(space, offset)| block(&small, space, HEAP + offset));
    assert!(own != new && own != old && new != old, "{own} {new} {old}");
    small.kernel().check().unwrap();
}

#[test]
fn the_least_recently_changed_is_broken_first() {
    let mut small = Small::new(9, &[9], false);
    let space = small.kernel().create().unwrap();
    for index in 0..3 {
        small.map(space, HEAP + index * 4 * MIB, 2 * MIB, Source::Anonymous);
        small.touch(space, HEAP + index * 4 * MIB, Kind::Store);
    }
    // The first reservation is the one that changed last.
    small.touch(space, HEAP + 4096, Kind::Store);
    small.map(space, 2 * HEAP, 16 * MIB, Source::Anonymous);
    let mut at = 2 * HEAP + 4096;
    while small.counts().broken[0] == 0 {
        small.touch(space, at, Kind::Store);
        at += 4096;
    }
    let mut held = |index: u64| {
        let frame = small.frame(space, HEAP + index * 4 * MIB) >> 12;
        let memory = small.memory.get_mut();
        let allocator = physmem::Allocator::reserver(memory.allocator()).unwrap();
        allocator.reservation(physmem::FrameId(frame as u32)).is_some()
    };
    assert_eq!([held(0), held(1), held(2)], [true, false, true]);
}
