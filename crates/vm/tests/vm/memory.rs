//! Tests operations on regions when memory runs out: the allocator of the test program refuses each
//! allocation once, and the manager must neither abort nor change anything.
//!
//! The operations load no translations: the HAT layer and the page table still abort without memory.

use alloc::vec::Vec;

use addr::{Kind, Memory, PhysAddr, Rights, VirtAddr};
use hat::HatSpace;
use vm::{Error, Source};

use crate::{
    heap::{self, unrefused},
    machine::{AT, FILE, Machine, PAGE, RW, range},
};

/// Physical memory of the tests, whose own data is never refused.
pub(crate) struct Unrefused<M>(pub(crate) M);

macro_rules! passed_on {
    ($($read:ident $write:ident $swap:ident $invert:ident $exchange:ident $word:ty;)*) => { $(
        fn $read(&self, addr: PhysAddr) -> $word {
            self.0.$read(addr)
        }
        fn $write(&mut self, addr: PhysAddr, value: $word) {
            unrefused(|| self.0.$write(addr, value));
        }
        fn $swap(&mut self, addr: PhysAddr, new: $word) -> $word {
            unrefused(|| self.0.$swap(addr, new))
        }
        fn $invert(&mut self, addr: PhysAddr, bits: $word) -> $word {
            unrefused(|| self.0.$invert(addr, bits))
        }
        fn $exchange(&mut self, addr: PhysAddr, old: $word, new: $word) -> Result<(), $word> {
            unrefused(|| self.0.$exchange(addr, old, new))
        }
    )* };
}

impl<M: Memory> Memory for Unrefused<M> {
    passed_on! {
        read_u64 write_u64 swap_u64 invert_u64 compare_exchange_u64 u64;
        read_u32 write_u32 swap_u32 invert_u32 compare_exchange_u32 u32;
    }

    fn read_u8(&self, addr: PhysAddr) -> u8 {
        self.0.read_u8(addr)
    }

    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        unrefused(|| self.0.write_u8(addr, value));
    }

    fn zero(&mut self, start: PhysAddr, bytes: u64) {
        unrefused(|| self.0.zero(start, bytes));
    }
}

/// The state of a machine, as far as the manager's interface shows it.
fn state(machine: &mut Machine, spaces: &[HatSpace]) -> impl PartialEq + core::fmt::Debug + use<> {
    let regions: Vec<_> = spaces.iter().map(|space| machine.vm.regions(*space)).collect();
    let mut loaded = Vec::new();
    for space in spaces {
        machine.hat.visit(*space, addr::VirtRange::ALL, &mut |held| loaded.push(held.translation));
    }
    let free = machine.memory.get_mut().free_bytes();
    (regions, loaded, free, machine.vm.resident(), machine.vm.swapped(), machine.vm.pinned())
}

/// Refuses each allocation of `act` once, each time in a new machine that `prepare` creates.
/// Returns the number of refused allocations.
fn each_refused<R>(
    prepare: impl Fn() -> (Machine, Vec<HatSpace>),
    act: impl Fn(&mut Machine, &[HatSpace]) -> Result<R, Error>,
) -> u64 {
    each_refused_of(true, prepare, act)
}

/// Like [`each_refused`]. If `is_whole` is false, a failed operation may have been done in part: a
/// fault may read a page into memory that it cannot load, and the next fault finds the page there.
fn each_refused_of<R>(
    is_whole: bool,
    prepare: impl Fn() -> (Machine, Vec<HatSpace>),
    act: impl Fn(&mut Machine, &[HatSpace]) -> Result<R, Error>,
) -> u64 {
    for number in 1.. {
        let (mut machine, spaces) = prepare();
        let before = state(&mut machine, &spaces);
        let (done, was_refused) = heap::refusing(number, || act(&mut machine, &spaces));
        machine.check();
        match done {
            Ok(_) if !was_refused => return number - 1,
            // The operation succeeded without the refused allocation.
            Ok(_) => continue,
            Err(error) => assert_eq!(error, Error::NoMemory),
        }
        if is_whole {
            assert_eq!(state(&mut machine, &spaces), before, "allocation {number} was refused");
        }
        if let Err(error) = act(&mut machine, &spaces) {
            panic!("after allocation {number} was refused: {error}");
        }
        machine.check();
    }
    unreachable!("each operation ends")
}

/// A machine with adjacent regions, no two of which have equal properties.
fn patchwork() -> (Machine, Vec<HatSpace>) {
    let mut machine = Machine::new();
    let space = machine.space();
    for number in 0..40 {
        let part = range(AT + number * 4 * PAGE, 4 * PAGE);
        machine.kernel().map(space, part, RW, Source::Anonymous, number as u32).unwrap();
    }
    machine.store(space, AT + 60 * PAGE, 1);
    machine.kernel().discard(space, range(AT + 60 * PAGE, PAGE)).unwrap();
    // The memory for the first objects has been allocated after this.
    machine.map(space, range(3 * AT, PAGE), Source::SharedMemory);
    machine.kernel().unmap(space, range(3 * AT, PAGE)).unwrap();
    (machine, Vec::from([space]))
}

#[test]
fn regions() {
    let part = range(AT + 57 * PAGE, 2 * PAGE);
    let file =
        |inode| Source::File { key: vm::FileKey { device: 2, inode }, first: 0, shared: true };
    let refused = each_refused(patchwork, |machine, spaces| {
        machine.kernel().map(spaces[0], part, RW, Source::Anonymous, 99)
    });
    assert!(refused >= 1, "{refused} allocations");
    assert!(
        each_refused(patchwork, |machine, spaces| machine.kernel().unmap(spaces[0], part)) >= 1
    );
    assert!(
        each_refused(patchwork, |machine, spaces| {
            machine.kernel().protect(spaces[0], part, Rights::READ)
        }) >= 1
    );
    assert!(
        each_refused(patchwork, |machine, spaces| {
            machine.kernel().lock_on_fault(spaces[0], part)
        }) >= 1
    );
    assert!(
        each_refused(patchwork, |machine, spaces| {
            let to = VirtAddr::new(4 * AT);
            machine.kernel().move_pages(spaces[0], range(AT + 50 * PAGE, 40 * PAGE), to, 40 * PAGE)
        }) >= 1
    );
    // Creates a new object, at addresses without a mapping.
    assert!(
        each_refused(patchwork, |machine, spaces| {
            machine.kernel().map(spaces[0], range(3 * AT, PAGE), RW, file(5), 0)
        }) >= 1
    );
}

/// A space with private pages and pages of a file. Some of them are on disk.
fn used() -> (Machine, Vec<HatSpace>) {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 300 * PAGE), Source::Anonymous);
    let file = Source::File { key: FILE, first: 0, shared: false };
    machine.map(space, range(2 * AT, 20 * PAGE), file);
    for page in 0..280 {
        machine.store(space, AT + page * PAGE, page);
    }
    for page in 0..10 {
        machine.touch(space, 2 * AT + page * PAGE, Kind::Load).unwrap();
    }
    (machine, Vec::from([space]))
}

fn few() -> (Machine, Vec<HatSpace>) {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 40 * PAGE), Source::Anonymous);
    let file = Source::File { key: FILE, first: 0, shared: false };
    machine.map(space, range(2 * AT, 20 * PAGE), file);
    for page in 0..20 {
        machine.store(space, AT + page * PAGE, page);
    }
    let other = machine.space();
    (machine, Vec::from([space, other]))
}

#[test]
fn faults() {
    let fault = |at: u64, kind: Kind| {
        move |machine: &mut Machine, spaces: &[HatSpace]| {
            machine.kernel().fault(spaces[0], VirtAddr::new(at), kind)
        }
    };
    let mut refused = 0;
    for (at, kind) in [
        (AT + 25 * PAGE, Kind::Store),
        (AT + 25 * PAGE, Kind::Load),
        (2 * AT + 5 * PAGE, Kind::Load),
        (2 * AT + 5 * PAGE, Kind::Store),
    ] {
        refused += each_refused_of(false, few, fault(at, kind));
    }
    // A fault reads a page from disk, and other pages are evicted for it.
    refused += each_refused_of(false, used, fault(AT, Kind::Load));
    refused += each_refused_of(false, used, fault(AT, Kind::Store));
    refused += each_refused_of(false, used, fault(AT + 290 * PAGE, Kind::Store));
    refused += each_refused_of(false, used, fault(2 * AT + 5 * PAGE, Kind::Store));
    assert!(refused > 10, "{refused}");
}

#[test]
fn spaces() {
    let empty = || (Machine::new(), Vec::new());
    let refused = each_refused(empty, |machine, _| machine.kernel().create());
    assert!(refused >= 1);
    let refused = each_refused_of(false, few, |machine, spaces| {
        let mut kernel = machine.kernel();
        let child = kernel.create()?;
        let done = kernel.fork(spaces[0], child);
        if done.is_err() {
            kernel.exit(child)?;
        }
        done
    });
    assert!(refused >= 1, "{refused}");
}

/// Unmapping pages, ending spaces and evicting pages to disk need no memory.
#[test]
fn what_goes_needs_no_memory() {
    for prepare in [few, used] {
        let (mut machine, spaces) = prepare();
        heap::without(|| {
            machine.kernel().discard(spaces[0], range(AT, 5 * PAGE))?;
            machine.kernel().discard(spaces[0], range(2 * AT, 5 * PAGE))?;
            machine.kernel().unmap(spaces[0], range(2 * AT, 20 * PAGE))
        })
        .unwrap();
        machine.check();
        assert!(heap::without(|| machine.kernel().exit(spaces[0])).unwrap());
        machine.check();
        heap::without(|| machine.kernel().drop_caches());
        machine.check();
    }
}
