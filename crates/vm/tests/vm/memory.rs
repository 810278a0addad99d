//! Tests operations on regions when memory runs out: the allocator of the test program refuses each
//! allocation once, and the manager must neither abort nor change anything.
//!
//! The operations load no translations: the HAT layer and the page table still abort without memory.

use alloc::{
    alloc::{GlobalAlloc, Layout},
    vec::Vec,
};
use core::{cell::Cell, ptr};
use std::alloc::System;

use addr::{Memory, PhysAddr, Rights, VirtAddr};
use hat::HatSpace;
use vm::{Error, Source};

use crate::machine::{AT, Machine, PAGE, RW, range};

struct Refusing;

thread_local! {
    /// The number of allocations of this thread up to and including the one that is refused; 0 if
    /// none is refused.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

fn is_refused() -> bool {
    LEFT.try_with(|left| {
        let before = left.get();
        left.set(before.saturating_sub(1));
        before == 1
    })
    .unwrap_or(false)
}

// SAFETY: every block is one of the system's allocator.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        if is_refused() { ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the block came from the system's allocator.
        if is_refused() { ptr::null_mut() } else { unsafe { System.realloc(block, layout, bytes) } }
    }
}

/// Runs `f` without refusing any allocation.
fn unrefused<R>(f: impl FnOnce() -> R) -> R {
    let left = LEFT.replace(0);
    let done = f();
    LEFT.set(left);
    done
}

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
    for number in 1.. {
        let (mut machine, spaces) = prepare();
        let before = state(&mut machine, &spaces);
        LEFT.set(number);
        let done = act(&mut machine, &spaces);
        let was_refused = LEFT.replace(0) == 0;
        machine.check();
        match done {
            Ok(_) if !was_refused => return number - 1,
            // The operation succeeded without the refused allocation.
            Ok(_) => continue,
            Err(error) => assert_eq!(error, Error::NoMemory),
        }
        assert_eq!(state(&mut machine, &spaces), before, "allocation {number} was refused");
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
