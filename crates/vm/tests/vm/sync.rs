//! Tests of pages of files that are written back and dropped on request, and of disks that fail.

use addr::{Kind, VirtAddr};
use vm::{Error, FileKey, How, Source, Store};

use crate::{
    board::{Board, original},
    machine::{AT, BASE, FILE, MIB, Machine, PAGE, range},
};

fn file(first: u64, shared: bool) -> Source {
    Source::File { key: FILE, first, shared }
}

/// A store after the write-back makes the page dirty again.
#[test]
fn dirty_pages_are_written_on_request() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 200 * PAGE), file(0, true));
    assert_eq!(machine.kernel().sync_file(FILE, 0..u64::MAX), Ok(0));
    for page in (0..200).step_by(2) {
        machine.store(space, AT + page * PAGE, page);
        machine.load(space, AT + (page + 1) * PAGE);
    }
    assert_eq!(machine.kernel().sync_file(FILE, 100..u64::MAX), Ok(50));
    machine.check();
    assert_eq!(machine.board.on_disk(FILE, 98), original(FILE, 98));
    assert_eq!(machine.kernel().sync_file(FILE, 0..u64::MAX), Ok(50));
    assert_eq!(machine.kernel().sync_file(FILE, 0..u64::MAX), Ok(0));
    let right = |page: u64| if page.is_multiple_of(2) { page } else { original(FILE, page) };
    assert!((0..200).all(|page| machine.board.on_disk(FILE, page) == right(page)));
    // Hardware may no longer store without a fault.
    assert!(machine.held(space, AT).is_none_or(|held| !held.rights.allows(Kind::Store)));
    machine.store(space, AT, 77);
    assert_eq!(machine.kernel().sync_file(FILE, 0..u64::MAX), Ok(1));
    assert_eq!(machine.board.on_disk(FILE, 0), 77);
    // Eviction has nothing left to write.
    let before = machine.vm.work().writes;
    machine.end(&[space], 0);
    assert_eq!(machine.vm.work().writes, before);
}

/// `msync` writes what the range shares with files, and reports a hole.
#[test]
fn a_range_is_written_on_request() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 4 * PAGE), file(10, true));
    machine.map(space, range(AT + 4 * PAGE, 2 * PAGE), file(10, false));
    machine.map(space, range(AT + 7 * PAGE, PAGE), Source::Anonymous);
    for page in [0, 1, 3, 4, 7] {
        machine.store(space, AT + page * PAGE, 100 + page);
    }
    assert_eq!(machine.kernel().sync(space, range(AT + PAGE, PAGE)), Ok(1));
    assert_eq!(machine.board.on_disk(FILE, 11), 101);
    assert_eq!(machine.board.on_disk(FILE, 10), original(FILE, 10));
    let hole = machine.kernel().sync(space, range(AT, 8 * PAGE));
    assert_eq!(hole, Err(Error::NoRegion(VirtAddr::new(AT + 6 * PAGE))));
    assert_eq!([10, 13].map(|page| machine.board.on_disk(FILE, page)), [100, 103]);
    let hole = machine.kernel().sync(space, range(AT - PAGE, 2 * PAGE));
    assert_eq!(hole, Err(Error::NoRegion(VirtAddr::new(AT - PAGE))));
    let hole = machine.kernel().sync(space, range(AT + 7 * PAGE, 2 * PAGE));
    assert_eq!(hole, Err(Error::NoRegion(VirtAddr::new(AT + 8 * PAGE))));
    machine.check();
    machine.end(&[space], 0);
}

/// A write-back that fails is an error; the page stays dirty, and is written when the disk works again.
#[test]
fn a_page_that_cannot_be_written_stays_dirty() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 4 * PAGE), file(0, true));
    (0..4).for_each(|page| _ = machine.store(space, AT + page * PAGE, 50 + page));
    let place = Store::File(FILE, 1);
    machine.board.broken.insert(place);
    assert_eq!(machine.kernel().sync_file(FILE, 0..u64::MAX), Err(Error::Io(place)));
    machine.check();
    assert_eq!([0, 2, 3].map(|page| machine.board.on_disk(FILE, page)), [50, 52, 53]);
    assert_eq!(machine.vm.pinned(), 0);
    // The page is not evicted either.
    machine.crowd();
    assert_eq!(machine.load(space, AT + PAGE), 51);
    assert_eq!(machine.kernel().sync(space, range(AT, 4 * PAGE)), Err(Error::Io(place)));
    machine.board.broken.clear();
    assert_eq!(machine.kernel().sync(space, range(AT, 4 * PAGE)), Ok(1));
    assert_eq!(machine.board.on_disk(FILE, 1), 51);
    machine.end(&[space], 0);
}

/// Pages that cannot be written to swap stay in memory. When no other page can be evicted, memory
/// is used up.
#[test]
fn a_swap_that_fails_loses_nothing() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.board.swap_is_broken = true;
    machine.map(space, range(AT, MIB), Source::Anonymous);
    let mut pages = 0;
    let refused = loop {
        let addr = VirtAddr::new(AT + pages * PAGE);
        if let Err(error) = machine.kernel().fault(space, addr, Kind::Store) {
            break error;
        }
        machine.store(space, addr.get(), pages);
        pages += 1;
    };
    assert!(matches!(refused, Error::OutOfMemory { .. }), "{refused}");
    machine.check();
    assert_eq!(machine.vm.swapped(), 0);
    machine.board.swap_is_broken = false;
    (pages..256).for_each(|page| _ = machine.store(space, AT + page * PAGE, page));
    (0..256).for_each(|page| assert_eq!(machine.load(space, AT + page * PAGE), page));
    machine.end(&[space], 0);
}

/// A read that fails refuses the access. The frame is free again, and a later read finds the page.
#[test]
fn a_page_that_cannot_be_read_is_refused() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 2 * PAGE), Source::Anonymous);
    machine.map(space, range(2 * AT, 2 * PAGE), file(0, true));
    machine.store(space, AT, 9);
    machine.crowd();
    let place = Store::File(FILE, 1);
    machine.board.broken.insert(place);
    let free = machine.memory.get_mut().free_bytes();
    let addr = VirtAddr::new(2 * AT + PAGE);
    assert_eq!(machine.kernel().fault(space, addr, Kind::Load), Err(Error::Io(place)));
    machine.check();
    assert_eq!(machine.memory.get_mut().free_bytes(), free);
    let slots: Vec<Store> = (0..1000).map(|slot| Store::Swap(vm::Slot(slot))).collect();
    machine.board.broken.extend(slots);
    let addr = VirtAddr::new(AT);
    let refused = machine.kernel().fault(space, addr, Kind::Store);
    assert!(matches!(refused, Err(Error::Io(Store::Swap(_)))), "{refused:?}");
    machine.check();
    machine.board.broken.clear();
    assert_eq!(machine.load(space, AT), 9);
    assert_eq!(machine.load(space, 2 * AT + PAGE), original(FILE, 1));
    machine.end(&[space], 0);
}

/// The pages beyond the new end of the file are removed, even if they are dirty or locked, and so
/// are the copies that spaces have.
#[test]
fn a_file_becomes_shorter() {
    let mut machine = Machine::new();
    let [one, two] = [machine.space(), machine.space()];
    machine.map(one, range(AT, 8 * PAGE), file(0, true));
    machine.map(two, range(AT, 8 * PAGE), file(2, false));
    (0..8).for_each(|page| _ = machine.store(one, AT + page * PAGE, 30 + page));
    // These stores copy the pages 3 and 5 of the file.
    [1, 3].iter().for_each(|page| _ = machine.store(two, AT + page * PAGE, 60 + page));
    machine.kernel().lock(one, range(AT + 6 * PAGE, PAGE)).unwrap();
    machine.check();
    let pinned = machine.kernel().pin(one, range(AT + 7 * PAGE, PAGE), Kind::Load).unwrap();
    let writes = machine.vm.work().writes;
    let broken = (4..20).map(|page| Store::File(FILE, page));
    machine.board.broken.extend(broken);
    assert_eq!(machine.kernel().truncate(FILE, 4), Ok(4));
    machine.check();
    assert_eq!(machine.vm.work().writes, writes, "nothing is written");
    for (space, page, index) in [(one, 4, 4), (one, 7, 7), (two, 3, 5), (two, 7, 9)] {
        let addr = VirtAddr::new(AT + page * PAGE);
        let gone = machine.kernel().fault(space, addr, Kind::Load);
        assert_eq!(gone, Err(Error::Io(Store::File(FILE, index))));
    }
    assert_eq!([machine.load(one, AT + 3 * PAGE), machine.load(two, AT + PAGE)], [33, 61]);
    assert_eq!(machine.board.contents[&pinned.frames()[0]], 37);
    machine.kernel().unpin(pinned);
    machine.check();
    // The file becomes longer again: the old contents beyond the end are gone.
    machine.board.broken.clear();
    assert_eq!(machine.load(one, AT + 4 * PAGE), original(FILE, 4));
    assert_eq!(machine.load(two, AT + 3 * PAGE), original(FILE, 5));
    machine.end(&[one, two], 0);
    let none = FileKey { device: 9, inode: 9 };
    assert_eq!(machine.kernel().truncate(none, 0), Ok(0));
}

/// Pages are read again; dirty pages are written first.
#[test]
fn a_file_is_read_again() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 4 * PAGE), file(0, true));
    machine.store(space, AT, 40);
    (1..4).for_each(|page| _ = machine.load(space, AT + page * PAGE));
    machine.kernel().lock(space, range(AT + 3 * PAGE, PAGE)).unwrap();
    assert_eq!(machine.kernel().invalidate(FILE, 0..u64::MAX), Ok(1));
    machine.check();
    assert_eq!(machine.vm.resident().file, 1);
    assert_eq!(machine.board.on_disk(FILE, 0), 40);
    let fault = |machine: &mut Machine, page: u64| {
        let addr = VirtAddr::new(AT + page * PAGE);
        machine.kernel().fault(space, addr, Kind::Load)
    };
    assert_eq!([0, 1].map(|page| fault(&mut machine, page)), [Ok(How::Disk); 2]);
    assert_eq!(machine.load(space, AT), 40);
    // If a page cannot be written, none is dropped.
    machine.store(space, AT, 41);
    machine.board.broken.insert(Store::File(FILE, 0));
    let resident = machine.vm.resident();
    let refused = machine.kernel().invalidate(FILE, 0..u64::MAX);
    assert_eq!(refused, Err(Error::Io(Store::File(FILE, 0))));
    assert_eq!(machine.vm.resident(), resident);
    machine.board.broken.clear();
    machine.end(&[space], 0);
}

/// Pages that were written by calls and that no region maps are written back too.
#[test]
fn a_file_that_nobody_maps_is_written() {
    let mut machine = Machine::with(MIB, &[BASE], 0);
    let each = &mut |board: &mut Board, at, index| _ = board.contents.insert(at, 70 + index);
    machine.kernel().transfer_file(FILE, PAGE, 3 * PAGE, true, each).unwrap();
    machine.check();
    assert_eq!(machine.kernel().sync_file(FILE, 0..u64::MAX), Ok(3));
    assert_eq!([1, 2, 3].map(|page| machine.board.on_disk(FILE, page)), [71, 72, 73]);
    assert_eq!(machine.kernel().truncate(FILE, 0), Ok(3));
    machine.check();
    assert_eq!(machine.vm.resident().file, 0);
    machine.end(&[], 0);
}
