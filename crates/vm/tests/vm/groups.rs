//! Tests of groups of processes with limits: which group is charged, which group loses pages, and
//! what is counted.

use alloc::{boxed::Box, vec::Vec};

use addr::{Kind, PhysAddr, Rights, VirtAddr};
use hat::{Hat, HatSpace};
use pagetable::{Mount, SparcReference, SparseMemory};
use physmem::{Contiguous, PageBlocks, Physmem};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vm::{Kernel, Limits, POLICIES, Physical, Settings, Source, Vm};

use crate::{
    board::Board,
    linux::pages,
    world::{AnyAllocator, BASE},
};

const FRAMES: u64 = 2048;
const FIRST: u64 = 0x1000;
const PAGES: u64 = 200;
const BOTH: Rights = Rights::from_bits(3);

/// Two groups and a space without a group touch pages at random. No group ever exceeds its limit,
/// and no other group loses a page because of it. The number of pages in memory and in swap is the
/// number of touched pages.
#[test]
fn a_group_evicts_its_own_pages() {
    for (place, (policy, _)) in POLICIES.into_iter().enumerate() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(place as u64);
        let limits = [
            Limits { max: 80, ..Limits::NONE },
            Limits { high: 60, swap_max: 150, ..Limits::NONE },
        ];
        let memory = Physmem::new(PhysAddr::new(0), FRAMES * BASE.bytes(), BASE, |frames| {
            Box::new(Contiguous::new(PageBlocks::new(frames, 6, 7), 7)) as AnyAllocator
        });
        let settings = Settings {
            replacement: policy,
            swap_pages: 1 << 12,
            groups: &limits,
            ..Settings::default()
        };
        let vm = Vm::new(settings, FRAMES).unwrap();
        let table = Mount::tree(SparcReference::<true>::new(), SparseMemory::new(1 << 34));
        let hat = Hat::new(Box::new(table));
        let memory = Physical::new(memory.unwrap());
        let mut board = Board::default();
        let mut kernel = Kernel::new(&vm, &hat, &memory, &mut board);
        let spaces: Vec<HatSpace> = (0..3).map(|_| kernel.create().unwrap()).collect();
        for (group, &space) in (0..).zip(&spaces) {
            kernel.set_group(space, group).unwrap();
            let range = pages(FIRST..FIRST + PAGES);
            kernel.map(space, range, BOTH, Source::Anonymous, 0).unwrap();
        }
        let mut touched = [[false; PAGES as usize]; 3];
        for step in 0..4000 {
            let (of, page) = (random.random_range(0..3usize), random.random_range(0..PAGES));
            let addr = VirtAddr::new((FIRST + page) << BASE.shift());
            if hat.query(spaces[of], addr).is_none() {
                kernel.fault(spaces[of], addr, Kind::Store).unwrap();
            }
            touched[of][page as usize] = true;
            let groups = vm.groups();
            for (group, (counts, touched)) in groups.iter().zip(&touched).enumerate() {
                let all = touched.iter().filter(|&&touched| touched).count() as u64;
                let context = format!("{policy}, step {step}, group {group}: {counts:?}");
                assert_eq!(counts.current + counts.swap_current, all, "{context}");
                assert!(counts.current <= [u64::MAX, 80, 60][group], "{context}");
                assert!(counts.swap_current <= [0, u64::MAX, 150][group], "{context}");
            }
            kernel.check().unwrap();
        }
        let [none, max, high] = vm.groups()[..] else { panic!("three groups") };
        let all = touched[0].iter().filter(|&&touched| touched).count() as u64;
        assert_eq!((none.pswpout, none.current), (0, all));
        assert!(max.max > 20 && max.oom == 0 && max.pswpin > 100, "{max:?}");
        assert!(high.high > 20 && high.max == 0 && high.pswpin > 100, "{high:?}");

        // A child belongs to its parent's group, which is charged for pages that the child copies.
        let child = kernel.create().unwrap();
        kernel.fork(spaces[1], child).unwrap();
        for page in 0..PAGES {
            let addr = VirtAddr::new((FIRST + page) << BASE.shift());
            kernel.fault(child, addr, Kind::Store).unwrap();
        }
        let after = vm.groups()[1];
        assert!(after.current <= 80 && after.current + after.swap_current > PAGES, "{after:?}");
        for space in spaces.into_iter().chain([child]) {
            kernel.exit(space).unwrap();
        }
        let left = |counts: &vm::GroupCounts| counts.current + counts.swap_current;
        assert!(vm.groups().iter().all(|counts| left(counts) == 0), "{:?}", vm.groups());
    }
}

/// A group without room in swap exceeds its limit, and this event is counted.
#[test]
fn a_group_that_cannot_evict_has_an_event() {
    let limits = [Limits { max: 10, high: u64::MAX, swap_max: 5 }];
    let memory = Physmem::new(PhysAddr::new(0), FRAMES * BASE.bytes(), BASE, |frames| {
        Box::new(Contiguous::new(PageBlocks::new(frames, 6, 7), 7)) as AnyAllocator
    });
    let settings = Settings { swap_pages: 1 << 12, groups: &limits, ..Settings::default() };
    let vm = Vm::new(settings, FRAMES).unwrap();
    let table = Mount::tree(SparcReference::<true>::new(), SparseMemory::new(1 << 34));
    let hat = Hat::new(Box::new(table));
    let memory = Physical::new(memory.unwrap());
    let mut board = Board::default();
    let mut kernel = Kernel::new(&vm, &hat, &memory, &mut board);
    let space = kernel.create().unwrap();
    kernel.set_group(space, 1).unwrap();
    kernel.map(space, pages(FIRST..FIRST + 40), BOTH, Source::Anonymous, 0).unwrap();
    for page in FIRST..FIRST + 20 {
        kernel.fault(space, VirtAddr::new(page << BASE.shift()), Kind::Store).unwrap();
    }
    let counts = vm.groups()[1];
    assert_eq!((counts.current, counts.swap_current), (15, 5), "{counts:?}");
    assert_eq!(counts.oom, 5, "{counts:?}");
    kernel.check().unwrap();
}
