//! Tests of pages that are pinned for input and output.

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr};
use hat::HatSpace;
use vm::{Error, Pin, Source};

use crate::machine::{AT, BASE, FILE, MIB, Machine, PAGE, range};

fn pin(machine: &mut Machine, space: HatSpace, pages: u64, kind: Kind) -> Pin {
    let pin = machine.kernel().pin(space, range(AT, pages * PAGE), kind).unwrap();
    machine.check();
    pin
}

fn file(shared: bool) -> Source {
    Source::File { key: FILE, first: 0, shared }
}

/// Pinned pages stay in their frames when all other pages are evicted.
#[test]
fn a_pinned_page_stays_in_its_frame() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 8 * PAGE), Source::Anonymous);
    (0..8).for_each(|page| _ = machine.store(space, AT + page * PAGE, page));
    machine.crowd();
    assert_eq!(machine.vm.swapped(), 8);
    let pinned = pin(&mut machine, space, 3, Kind::Load);
    let twice = pin(&mut machine, space, 2, Kind::Store);
    assert_eq!(twice.frames(), &pinned.frames()[..2]);
    assert_eq!(machine.vm.pinned(), 3);
    machine.crowd();
    for (page, frame) in pinned.frames().iter().enumerate() {
        assert_eq!(machine.board.contents[frame], page as u64);
        let found = machine.touch(space, AT + page as u64 * PAGE, Kind::Store).unwrap();
        assert_eq!(found, *frame, "a store goes to the pinned frame");
    }
    machine.kernel().unpin(pinned);
    machine.check();
    assert_eq!(machine.vm.pinned(), 2);
    machine.crowd();
    assert_eq!(machine.vm.swapped(), 6);
    machine.kernel().unpin(twice);
    machine.check();
    machine.crowd();
    assert_eq!(machine.vm.swapped(), 8);
    (0..8).for_each(|page| assert_eq!(machine.load(space, AT + page * PAGE), page));
    machine.end(&[space], 0);
}

/// A page that is copied on write is copied before it is pinned, whatever the device does with the
/// page.
#[test]
fn a_pinned_page_is_the_spaces_own() {
    for (source, stamp) in [(Source::Anonymous, 7), (file(false), crate::board::original(FILE, 0))]
    {
        let mut machine = Machine::new();
        let parent = machine.space();
        machine.map(parent, range(AT, PAGE), source);
        if source == Source::Anonymous {
            machine.store(parent, AT, stamp);
        } else {
            assert_eq!(machine.load(parent, AT), stamp);
        }
        let child = machine.space();
        machine.kernel().fork(parent, child).unwrap();
        let pinned = pin(&mut machine, parent, 1, Kind::Load);
        assert_eq!(machine.board.contents[&pinned.frames()[0]], stamp);
        assert_eq!(machine.touch(parent, AT, Kind::Load), Ok(pinned.frames()[0]));
        assert_eq!(machine.store(parent, AT, 8), pinned.frames()[0]);
        assert_eq!(machine.load(child, AT), stamp, "the child has what it had");
        machine.kernel().unpin(pinned);
        machine.end(&[parent, child], 0);
    }
}

/// A fork gives the child copies of pinned pages; the parent keeps its frames, and may store to them.
#[test]
fn a_fork_copies_pinned_pages() {
    for sizes in [&[BASE][..], &[BASE, PageSize::SIZE_2M]] {
        let mut machine = Machine::with(16 * MIB, sizes, 1000);
        let parent = machine.space();
        machine.map(parent, range(AT, 2 * MIB), Source::Anonymous);
        (0..512).for_each(|page| _ = machine.store(parent, AT + page * PAGE, page));
        let pinned = pin(&mut machine, parent, 2, Kind::Store);
        let child = machine.space();
        machine.kernel().fork(parent, child).unwrap();
        machine.check();
        for (page, frame) in pinned.frames().iter().enumerate() {
            let at = AT + page as u64 * PAGE;
            assert_eq!(machine.store(parent, at, 100), *frame);
            assert_eq!(machine.load(child, at), page as u64);
            assert_ne!(machine.store(child, at, 200), *frame);
        }
        // The other pages are shared, and copied when one of the two stores.
        let shared = machine.touch(parent, AT + 5 * PAGE, Kind::Load);
        assert_eq!(machine.touch(child, AT + 5 * PAGE, Kind::Load), shared);
        machine.kernel().unpin(pinned);
        machine.end(&[parent, child], 0);
    }
}

/// Without memory for the copies a fork is refused, and nothing has changed.
#[test]
fn a_fork_without_memory_for_copies_is_refused() {
    let mut machine = Machine::with(MIB, &[BASE], 0);
    let [parent, child] = [machine.space(), machine.space()];
    let pages = 130;
    machine.map(parent, range(AT, pages * PAGE), Source::Anonymous);
    (0..pages).for_each(|page| _ = machine.store(parent, AT + page * PAGE, page));
    let pinned = pin(&mut machine, parent, pages, Kind::Store);
    let resident = machine.vm.resident();
    let refused = machine.kernel().fork(parent, child);
    assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
    machine.check();
    assert_eq!(machine.vm.resident(), resident);
    assert!(machine.vm.regions(child).is_empty());
    machine.kernel().unpin(pinned);
    machine.kernel().fork(parent, child).unwrap();
    machine.end(&[parent, child], 0);
}

/// If the space unmaps pinned pages or ends, only the frames of the pin stay allocated.
#[test]
fn frames_outlive_the_space_until_their_pin_is_given_back() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 8 * PAGE), Source::Anonymous);
    (0..8).for_each(|page| _ = machine.store(space, AT + page * PAGE, page));
    let first = pin(&mut machine, space, 4, Kind::Store);
    machine.kernel().unmap(space, range(AT, PAGE)).unwrap();
    machine.check();
    machine.kernel().discard(space, range(AT + PAGE, PAGE)).unwrap();
    machine.check();
    assert_eq!(machine.load(space, AT + PAGE), 0, "a discarded page has zeros");
    machine.end(&[space], 4);
    machine.crowd();
    for (page, frame) in first.frames().iter().enumerate() {
        assert_eq!(machine.board.contents[frame], page as u64, "nobody else has got the frame");
    }
    machine.kernel().unpin(first);
    machine.check();
    machine.end(&[], 0);
}

/// Shared pages of files are pinned in the page cache. Data that a device has stored is written to
/// the disk.
#[test]
fn a_device_stores_to_pages_of_a_file() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 4 * PAGE), file(true));
    let pinned = pin(&mut machine, space, 2, Kind::Store);
    assert_eq!(machine.kernel().sync_file(FILE, 0..u64::MAX), Ok(2));
    machine.check();
    // The device stores after that.
    for frame in pinned.frames() {
        machine.board.contents.insert(*frame, 5);
    }
    machine.kernel().unpin(pinned);
    machine.check();
    machine.crowd();
    assert_eq!([0, 1, 2].map(|page| machine.board.on_disk(FILE, page) == 5), [true, true, false]);
    // A device that reads changes nothing.
    let pinned = pin(&mut machine, space, 4, Kind::Load);
    machine.kernel().unpin(pinned);
    machine.crowd();
    assert_eq!(machine.load(space, AT), 5);
    machine.end(&[space], 0);
}

#[test]
fn what_cannot_be_pinned_is_refused() {
    let mut machine = Machine::with(MIB, &[BASE], 0);
    let space = machine.space();
    machine.map(space, range(AT, 4 * PAGE), Source::Anonymous);
    machine.kernel().map(space, range(AT + 4 * PAGE, PAGE), Rights::READ, file(false), 0).unwrap();
    let hole = machine.kernel().pin(space, range(AT, 6 * PAGE), Kind::Load).map(drop);
    assert_eq!(hole, Err(Error::NoRegion(VirtAddr::new(AT + 5 * PAGE))));
    let denied = machine.kernel().pin(space, range(AT, 5 * PAGE), Kind::Store).map(drop);
    assert!(matches!(denied, Err(Error::Denied { .. })));
    assert_eq!(machine.vm.pinned(), 0);
    machine.check();
    // Pins more pages than memory has.
    machine.map(space, range(2 * AT, 2 * MIB), Source::Anonymous);
    for bytes in [2 * MIB, MIB] {
        let large = machine.kernel().pin(space, range(2 * AT, bytes), Kind::Load).map(drop);
        assert!(matches!(large, Err(Error::OutOfMemory { .. })), "{large:?}");
        assert_eq!(machine.vm.pinned(), 0);
        machine.check();
    }
    // Pins a page as many times as its descriptor can count.
    let mut pins = Vec::new();
    let full = loop {
        match machine.kernel().pin(space, range(AT, PAGE), Kind::Load) {
            Ok(pin) => pins.push(pin),
            Err(error) => break error,
        }
    };
    assert_eq!((full, pins.len()), (Error::PinLimit(pins[0].frames()[0]), 65535));
    machine.check();
    pins.into_iter().for_each(|pin| machine.kernel().unpin(pin));
    machine.end(&[space], 0);
}

/// Locks in memory and pins of a page are independent.
#[test]
fn locks_and_pins_count_separately() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 2 * PAGE), Source::Anonymous);
    machine.store(space, AT, 1);
    let pinned = pin(&mut machine, space, 1, Kind::Load);
    machine.kernel().lock(space, range(AT, 2 * PAGE)).unwrap();
    machine.check();
    machine.kernel().unpin(pinned);
    machine.check();
    machine.crowd();
    assert!(machine.held(space, AT).is_some());
    let pinned = pin(&mut machine, space, 1, Kind::Load);
    machine.kernel().unlock(space, range(AT, 2 * PAGE)).unwrap();
    machine.check();
    machine.crowd();
    assert_eq!(machine.touch(space, AT, Kind::Load), Ok(pinned.frames()[0]));
    // The space ends while the page is locked and pinned.
    machine.kernel().lock(space, range(AT, PAGE)).unwrap();
    machine.end(&[space], 1);
    machine.kernel().unpin(pinned);
    machine.end(&[], 0);
}

/// Tests the list of memory parts for a device, for a range that begins and ends inside pages.
#[test]
fn a_pin_lists_parts_of_memory() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 4 * PAGE), Source::Anonymous);
    let part = range(AT + 100, 2 * PAGE);
    let pinned = machine.kernel().pin(space, part, Kind::Load).unwrap();
    assert_eq!(pinned.range(), part);
    assert_eq!(pinned.frames().len(), 3);
    let parts: Vec<(PhysAddr, u64)> = pinned.parts().collect();
    assert_eq!(parts.iter().map(|(_, bytes)| bytes).sum::<u64>(), 2 * PAGE);
    assert_eq!(parts[0].0.get() % PAGE, 100);
    machine.kernel().unpin(pinned);
    machine.end(&[space], 0);
}
