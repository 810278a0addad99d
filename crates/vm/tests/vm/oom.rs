//! Tests which space is chosen to end when memory is used up.

use addr::{Kind, VirtAddr};
use hat::HatSpace;
use vm::{Error, Largest, OomPolicy, Source, SpaceUsage};

use crate::machine::{AT, MIB, Machine, PAGE, range};

/// A policy of a kernel in which the first space must not end.
struct NotTheFirst;

impl OomPolicy for NotTheFirst {
    fn badness(&self, usage: &SpaceUsage) -> Option<u64> {
        (usage.space != HatSpace(0)).then(|| Largest.badness(usage))?
    }
}

fn filled(machine: &mut Machine, space: HatSpace) -> u64 {
    machine.map(space, range(AT, MIB), Source::Anonymous);
    let mut pages = 0;
    loop {
        let addr = VirtAddr::new(AT + pages * PAGE);
        match machine.kernel().fault(space, addr, Kind::Store) {
            Ok(_) => pages += 1,
            Err(Error::OutOfMemory { .. }) => return pages,
            Err(error) => panic!("{error}"),
        }
        machine.check();
    }
}

#[test]
fn the_largest_space_is_chosen_and_its_end_helps() {
    let mut machine = Machine::with(MIB, &[crate::machine::BASE], 0);
    let spaces = [machine.space(), machine.space(), machine.space()];
    for (space, pages) in spaces.into_iter().zip([90, 10, 0]) {
        machine.map(space, range(AT, 100 * PAGE), Source::Anonymous);
        (0..pages).for_each(|page| _ = machine.store(space, AT + page * PAGE, page));
    }
    let grown = filled(&mut machine, spaces[1]);
    assert!(grown > 90, "{grown} pages");
    let usage = machine.kernel().usage_of(spaces[1]).unwrap();
    assert_eq!((usage.private, usage.shared, usage.swapped), (grown, 0, 0));
    assert_eq!(machine.kernel().oom_victim(&Largest), Some(spaces[1]));
    assert_eq!(machine.kernel().oom_victim(&NotTheFirst), Some(spaces[1]));
    assert_eq!(machine.kernel().exit(spaces[1]), Ok(true));
    assert_eq!(machine.kernel().oom_victim(&Largest), Some(spaces[0]));
    assert_eq!(machine.kernel().oom_victim(&NotTheFirst), None, "the others have no pages");
    machine.store(spaces[2], AT, 1);
    assert_eq!(machine.kernel().oom_victim(&NotTheFirst), Some(spaces[2]));
    assert_eq!(machine.kernel().usage_of(spaces[1]), None);
    machine.end(&[spaces[0], spaces[2]], 0);
}

/// Pages that a fork shares and pages in swap are counted separately.
#[test]
fn pages_are_counted_by_kind() {
    let mut machine = Machine::new();
    let parent = machine.space();
    machine.map(parent, range(AT, 8 * PAGE), Source::Anonymous);
    (0..8).for_each(|page| _ = machine.store(parent, AT + page * PAGE, page));
    machine.kernel().lock(parent, range(AT, PAGE)).unwrap();
    let child = machine.space();
    machine.kernel().fork(parent, child).unwrap();
    machine.store(child, AT + PAGE, 9);
    let usage = machine.kernel().usage_of(parent).unwrap();
    assert_eq!((usage.private, usage.shared, usage.swapped, usage.wired), (1, 7, 0, 1));
    machine.crowd();
    let usage = machine.kernel().usage_of(parent).unwrap();
    assert_eq!((usage.private, usage.shared, usage.swapped, usage.wired), (0, 1, 7, 1));
    machine.end(&[parent, child], 0);
}
