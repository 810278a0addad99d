//! Tests of stacks that grow downwards.

use addr::{Kind, Rights, VirtAddr};
use vm::{Access, Error, Growth, Source};

use crate::machine::{AT, Machine, PAGE, RW, range};

const TOP: u64 = AT + 100 * PAGE;

fn growth() -> Growth {
    Growth { lowest: VirtAddr::new(AT), gap_bytes: 4 * PAGE }
}

#[test]
fn a_stack_grows_to_the_page_of_the_access() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.kernel().map_stack(space, range(TOP - PAGE, PAGE), RW, growth(), 3).unwrap();
    machine.store(space, TOP - PAGE, 1);
    machine.store(space, TOP - 20 * PAGE, 2);
    let regions = machine.vm.regions(space);
    let [stack] = &regions[..] else { panic!("{regions:?}") };
    assert_eq!((stack.pages.end - stack.pages.start, stack.label), (20, 3));
    // The stack can grow down to its limit and no further.
    machine.store(space, AT, 3);
    let below = VirtAddr::new(AT - PAGE);
    assert_eq!(machine.kernel().fault(space, below, Kind::Load), Err(Error::NoRegion(below)));
    assert_eq!([machine.load(space, TOP - PAGE), machine.load(space, AT)], [1, 3]);
    // The limit is changed.
    let lower = Growth { lowest: VirtAddr::new(AT - 2 * PAGE), gap_bytes: 0 };
    machine.kernel().set_growth(space, VirtAddr::new(TOP - 1), lower).unwrap();
    machine.store(space, AT - PAGE, 4);
    machine.end(&[space], 0);
}

#[test]
fn the_gap_below_a_stack_stays_free() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.kernel().map_stack(space, range(TOP - PAGE, PAGE), RW, growth(), 0).unwrap();
    machine.map(space, range(AT + 50 * PAGE, PAGE), Source::Anonymous);
    // Pages 51 to 54 are the gap.
    let mut fault = |page: u64| {
        let addr = VirtAddr::new(AT + page * PAGE);
        let done = machine.kernel().fault(space, addr, Kind::Store);
        machine.check();
        done.map(drop)
    };
    let refused = |page: u64| Err(Error::NoRegion(VirtAddr::new(AT + page * PAGE)));
    assert_eq!(fault(54), refused(54));
    assert_eq!(fault(55), Ok(()));
    assert_eq!(fault(54), refused(54));
    // A region that allows nothing may lie in the gap.
    let mut kernel = machine.kernel();
    kernel.protect(space, range(AT + 50 * PAGE, PAGE), Rights::NONE).unwrap();
    drop(kernel);
    let addr = VirtAddr::new(AT + 52 * PAGE);
    machine.kernel().fault(space, addr, Kind::Store).unwrap();
    machine.check();
    machine.end(&[space], 0);
}

#[test]
fn what_remains_of_a_stack_grows_and_a_child_has_it_too() {
    let mut machine = Machine::new();
    let parent = machine.space();
    machine.kernel().map_stack(parent, range(TOP - 8 * PAGE, 8 * PAGE), RW, growth(), 0).unwrap();
    machine.store(parent, TOP - PAGE, 1);
    // The lower half of the stack is unmapped.
    machine.kernel().unmap(parent, range(TOP - 8 * PAGE, 4 * PAGE)).unwrap();
    let child = machine.space();
    machine.kernel().fork(parent, child).unwrap();
    machine.check();
    for space in [parent, child] {
        machine.store(space, TOP - 6 * PAGE, 2);
        assert_eq!(machine.load(space, TOP - PAGE), 1);
    }
    // Mapping another region in place of the lowest page removes only this page of the stack.
    machine.map(parent, range(TOP - 6 * PAGE, PAGE), Source::SharedMemory);
    let addr = VirtAddr::new(TOP - 7 * PAGE);
    assert_eq!(machine.kernel().fault(parent, addr, Kind::Load), Err(Error::NoRegion(addr)));
    // A new program has a stack of its own.
    machine.kernel().exec(child).unwrap();
    assert!(machine.kernel().fault(child, VirtAddr::new(TOP - PAGE), Kind::Load).is_err());
    machine.end(&[parent, child], 0);
}

/// An access by the kernel extends the stack like an access by the process.
#[test]
fn the_kernel_reaches_below_a_stack() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.kernel().map_stack(space, range(TOP - PAGE, PAGE), RW, growth(), 0).unwrap();
    let mut seen = 0;
    let part = range(TOP - 3 * PAGE, 3 * PAGE);
    let each = &mut |_: &mut _, _, _| seen += 1;
    machine.kernel().access(space, part, Kind::Store, Access::Allowed, each).unwrap();
    assert_eq!(seen, 3);
    let pin = machine.kernel().pin(space, range(TOP - 9 * PAGE, PAGE), Kind::Store).unwrap();
    machine.check();
    machine.kernel().unpin(pin);
    machine.end(&[space], 0);
}
