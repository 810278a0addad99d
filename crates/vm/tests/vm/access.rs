//! Tests of accesses by the kernel to the memory of a space.

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::HatSpace;
use vm::{Access, Error, Source};

use crate::{
    board::{Board, original},
    machine::{AT, BASE, FILE, MIB, Machine, PAGE, RW, range},
};

/// The contents that a debugger reads, page by page.
fn read(machine: &mut Machine, space: HatSpace, part: VirtRange, access: Access) -> Vec<u64> {
    let mut seen = Vec::new();
    let each = &mut |board: &mut Board, at: PhysAddr, _| {
        seen.push(board.contents[&PhysAddr::new(at.get() & !BASE.mask())]);
    };
    machine.kernel().access(space, part, Kind::Load, access, each).unwrap();
    machine.check();
    seen
}

fn write(
    machine: &mut Machine,
    space: HatSpace,
    part: VirtRange,
    access: Access,
    stamp: u64,
) -> Result<(), Error> {
    let each = &mut |board: &mut Board, at: PhysAddr, _| {
        board.contents.insert(PhysAddr::new(at.get() & !BASE.mask()), stamp);
    };
    let done = machine.kernel().access(space, part, Kind::Store, access, each);
    machine.check();
    done
}

/// The kernel can access pages that are in memory, in swap, in a file, or do not exist yet, and the
/// space sees the stored data.
#[test]
fn the_kernel_reads_and_writes_what_the_space_sees() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 4 * PAGE), Source::Anonymous);
    let file = Source::File { key: FILE, first: 4, shared: true };
    machine.map(space, range(AT + 4 * PAGE, 2 * PAGE), file);
    machine.store(space, AT, 10);
    machine.crowd();
    machine.store(space, AT + PAGE, 11);
    let all = range(AT, 6 * PAGE);
    let expected = [10, 11, 0, 0, original(FILE, 4), original(FILE, 5)];
    assert_eq!(read(&mut machine, space, all, Access::Allowed), expected);
    write(&mut machine, space, range(AT + PAGE, 4 * PAGE), Access::Allowed, 20).unwrap();
    assert_eq!(read(&mut machine, space, all, Access::Allowed)[1..5], [20; 4]);
    let found: Vec<u64> = (0..6).map(|page| machine.load(space, AT + page * PAGE)).collect();
    assert_eq!(found, [10, 20, 20, 20, 20, original(FILE, 5)]);
    // The page of the file is dirty.
    assert_eq!(machine.kernel().sync_file(FILE, 0..u64::MAX), Ok(1));
    assert_eq!(machine.board.on_disk(FILE, 4), 20);
    machine.end(&[space], 0);
}

/// The addresses passed to the callback begin and end with the range, also inside a page.
#[test]
fn each_page_has_its_part_of_the_range() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 3 * PAGE), Source::Anonymous);
    let frames: Vec<PhysAddr> =
        (0..3).map(|page| machine.store(space, AT + page * PAGE, 1)).collect();
    let mut parts = Vec::new();
    let whole = range(AT + 0x10, 2 * PAGE);
    let each = &mut |_: &mut Board, at, part| parts.push((at, part));
    machine.kernel().access(space, whole, Kind::Load, Access::Allowed, each).unwrap();
    let at = |page: usize, into: u64| PhysAddr::new(frames[page].get() + into);
    let expected = [
        (at(0, 0x10), range(AT + 0x10, PAGE - 0x10)),
        (at(1, 0), range(AT + PAGE, PAGE)),
        (at(2, 0), range(AT + 2 * PAGE, 0x10)),
    ];
    assert_eq!(parts, expected);
    machine.end(&[space], 0);
}

/// A debugger sets a breakpoint in text: the process gets its own copy, and other processes do not.
#[test]
fn a_debugger_stores_to_text() {
    let mut machine = Machine::new();
    let [one, other] = [machine.space(), machine.space()];
    let text = Source::File { key: FILE, first: 0, shared: false };
    let rights = Rights::READ | Rights::EXECUTE;
    for space in [one, other] {
        machine.kernel().map(space, range(AT, 2 * PAGE), rights, text, 0).unwrap();
        assert_eq!(machine.load(space, AT), original(FILE, 0));
    }
    let part = range(AT + 8, 1);
    let denied = write(&mut machine, one, part, Access::Allowed, 99);
    assert!(matches!(denied, Err(Error::Denied { .. })));
    write(&mut machine, one, part, Access::Forced, 99).unwrap();
    assert_eq!(machine.load(one, AT), 99);
    assert!(!machine.held(one, AT).unwrap().rights.contains(Rights::WRITE));
    assert_eq!(machine.load(other, AT), original(FILE, 0));
    // A forced access does not store to shared memory that the space may not store to.
    let shared = Source::File { key: FILE, first: 0, shared: true };
    machine.kernel().map(one, range(2 * AT, PAGE), Rights::READ, shared, 0).unwrap();
    assert!(write(&mut machine, one, range(2 * AT, 1), Access::Forced, 1).is_err());
    // A forced access can read a page without rights.
    machine.kernel().protect(one, range(AT, PAGE), Rights::NONE).unwrap();
    assert_eq!(read(&mut machine, one, range(AT, 1), Access::Forced), [99]);
    write(&mut machine, one, range(AT, 1), Access::Forced, 98).unwrap();
    assert!(machine.held(one, AT).is_none());
    machine.kernel().protect(one, range(AT, PAGE), RW).unwrap();
    assert_eq!(machine.load(one, AT), 98);
    machine.end(&[one, other], 0);
}

/// A store to a page that a fork shares gives the space its own copy.
#[test]
fn an_access_copies_what_is_shared() {
    for sizes in [&[BASE][..], &[BASE, PageSize::SIZE_2M]] {
        let mut machine = Machine::with(16 * MIB, sizes, 100);
        let parent = machine.space();
        machine.map(parent, range(AT, 2 * MIB), Source::Anonymous);
        (0..8).for_each(|page| _ = machine.store(parent, AT + page * PAGE, page));
        let child = machine.space();
        machine.kernel().fork(parent, child).unwrap();
        write(&mut machine, child, range(AT + 2 * PAGE, PAGE), Access::Allowed, 50).unwrap();
        assert_eq!(
            [machine.load(parent, AT + 2 * PAGE), machine.load(child, AT + 2 * PAGE)],
            [2, 50]
        );
        assert_eq!([machine.load(parent, AT + PAGE), machine.load(child, AT + PAGE)], [1, 1]);
        machine.end(&[parent, child], 0);
    }
}

/// After an error, the pages before the error have been accessed.
#[test]
fn an_access_ends_at_the_first_hole() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 2 * PAGE), Source::Anonymous);
    let mut seen = 0;
    let each = &mut |_: &mut Board, _, _| seen += 1;
    let done =
        machine.kernel().access(space, range(AT, 4 * PAGE), Kind::Load, Access::Forced, each);
    assert_eq!(done, Err(Error::NoRegion(VirtAddr::new(AT + 2 * PAGE))));
    assert_eq!(seen, 2);
    machine.end(&[space], 0);
}
