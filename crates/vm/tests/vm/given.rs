//! Tests of frames that are given to regions: devices, framebuffers, frames of the kernel.

use addr::{Attributes, Kind, MemoryType, PageSize, PhysAddr, Rights, VirtAddr};
use hat::HatSpace;
use pagetable::Unfit;
use vm::{Access, Error, How, Source};

use crate::machine::{AT, BASE, MIB, Machine, PAGE, RW, range};

const DEVICE: u64 = 0xfe00_0000;

fn device() -> Source {
    Machine::frames(DEVICE, MemoryType::Device)
}

/// All pages are loaded when the region is mapped, with the largest pages that fit, and no frame is
/// counted.
#[test]
fn a_framebuffer_is_loaded_at_once() {
    let mut machine = Machine::with(8 * MIB, &[BASE, PageSize::SIZE_2M], 0);
    let space = machine.space();
    let free = machine.memory.get_mut().free_bytes() - machine.hat.pool().used_bytes;
    let frames = Machine::frames(0xe01f_f000, MemoryType::WriteCombining);
    let bytes = 4 * MIB + 2 * PAGE;
    machine.map(space, range(AT + 2 * MIB - PAGE, bytes), frames);
    let sizes: Vec<_> = machine.hat.mapped().map(|(_, pages)| pages).collect();
    assert_eq!(sizes[..2], [2, 2]);
    for into in [0, PAGE, 2 * MIB, bytes - PAGE] {
        let held = machine.held(space, AT + 2 * MIB - PAGE + into).unwrap();
        let at = held.apply(VirtAddr::new(AT + 2 * MIB - PAGE + into));
        assert_eq!(at.get(), 0xe01f_f000 + into);
        assert_eq!(held.attributes, Attributes::of(MemoryType::WriteCombining));
        assert!(held.rights.contains(RW));
    }
    let resident = machine.vm.resident();
    assert_eq!(resident.anon + resident.file + resident.shared, 0);
    assert_eq!(machine.vm.faults().iter().sum::<u64>(), 0);
    // Only page tables have taken memory.
    let tables = machine.hat.pool().used_bytes;
    assert!(free - machine.memory.get_mut().free_bytes() <= tables);
    // A part of a large page is unmapped; the rest stays.
    machine.kernel().unmap(space, range(AT + 3 * MIB, PAGE)).unwrap();
    machine.check();
    assert!(machine.held(space, AT + 3 * MIB).is_none());
    let held = machine.held(space, AT + 3 * MIB - PAGE).unwrap();
    assert_eq!((held.page.size(), held.attributes.memory), (BASE, MemoryType::WriteCombining));
    machine.end(&[space], 0);
}

/// A frame has one memory type, in all spaces.
#[test]
fn a_frame_that_is_mapped_twice_has_equal_attributes() {
    let mut machine = Machine::new();
    let [one, two] = [machine.space(), machine.space()];
    machine.map(one, range(AT, 8 * PAGE), device());
    machine.map(two, range(AT, PAGE), Source::Anonymous);
    machine.store(two, AT, 5);
    // The last page of the new region is the first of the known one.
    let other = Machine::frames(DEVICE - 3 * PAGE, MemoryType::Uncached);
    let refused = machine.kernel().map(two, range(AT, 4 * PAGE), RW, other, 0);
    let known = Attributes::of(MemoryType::Device);
    let asked = Attributes::of(MemoryType::Uncached);
    let frame = PhysAddr::new(DEVICE);
    assert_eq!(refused, Err(Error::Attributes { frame, known, asked }));
    machine.check();
    assert_eq!(machine.load(two, AT), 5, "what was mapped there is as it was");
    // Adjacent frames can be mapped with another type, and these frames with the same type.
    machine.kernel().map(two, range(AT, 3 * PAGE), RW, other, 0).unwrap();
    machine.map(two, range(2 * AT, 4 * PAGE), device());
    // While any space maps a frame, its type stays.
    machine.kernel().unmap(one, range(AT, 2 * PAGE)).unwrap();
    machine.check();
    let again = Machine::frames(DEVICE, MemoryType::Uncached);
    assert!(machine.kernel().map(one, range(AT, PAGE), RW, again, 0).is_err());
    machine.kernel().unmap(two, range(2 * AT, PAGE)).unwrap();
    machine.kernel().map(one, range(AT, PAGE), RW, again, 0).unwrap();
    machine.check();
    machine.end(&[one, two], 0);
}

/// The kernel may give frames that it has allocated, and no others of the manager's memory.
#[test]
fn frames_of_memory_must_be_the_kernels() {
    let mut machine = Machine::new();
    let space = machine.space();
    let own = machine.kernel_frame();
    let source = |frame: PhysAddr| Machine::frames(frame.get(), MemoryType::WriteBack);
    machine.map(space, range(AT, PAGE), source(own));
    let free = PhysAddr::new(machine.memory.get_mut().bytes() - PAGE);
    let refused = machine.kernel().map(space, range(2 * AT, PAGE), RW, source(free), 0);
    assert_eq!(refused, Err(Error::NotGiven(free)));
    machine.map(space, range(2 * AT, PAGE), Source::Anonymous);
    let page = machine.store(space, 2 * AT, 1);
    let refused = machine.kernel().map(space, range(2 * AT, PAGE), RW, source(page), 0);
    assert_eq!(refused, Err(Error::NotGiven(page)));
    assert_eq!(machine.load(space, 2 * AT), 1);
    let odd = source(PhysAddr::new(own.get() + 8));
    let refused = machine.kernel().map(space, range(3 * AT, PAGE), RW, odd, 0);
    assert!(matches!(refused, Err(Error::Table(pagetable::Error::Misaligned { .. }))));
    // While it is mapped, the kernel cannot free it.
    let number = machine.memory.get_mut().table().frame_at(own).unwrap();
    assert!(machine.memory.get_mut().try_free(number, 0).is_err());
    let before = machine.memory.get_mut().table().get(number);
    machine.crowd();
    machine.kernel().unmap(space, range(AT, PAGE)).unwrap();
    let after = machine.memory.get_mut().table().get(number);
    assert_eq!((after.flags, after.identity), (before.flags, before.identity));
    machine.memory.get_mut().try_free(number, 0).unwrap();
    machine.end(&[space], 0);
}

/// A fork shares given frames: both may store to them.
#[test]
fn a_fork_shares_given_frames() {
    let mut machine = Machine::new();
    let parent = machine.space();
    let own = machine.kernel_frame();
    machine.map(parent, range(AT, 4 * PAGE), device());
    machine.map(parent, range(2 * AT, PAGE), Machine::frames(own.get(), MemoryType::WriteBack));
    machine.map(parent, range(3 * AT, PAGE), Source::Anonymous);
    machine.store(parent, 3 * AT, 1);
    let child = machine.space();
    machine.kernel().fork(parent, child).unwrap();
    machine.check();
    for (at, frame) in [(AT, DEVICE), (AT + 3 * PAGE, DEVICE + 3 * PAGE), (2 * AT, own.get())] {
        for space in [parent, child] {
            let held = machine.held(space, at).unwrap();
            assert_eq!((held.frame.get(), held.rights.contains(RW)), (frame, true));
        }
    }
    assert_eq!(machine.kernel().exit(parent), Ok(true));
    machine.check();
    assert!(machine.held(child, AT).is_some());
    machine.end(&[child], 1);
}

/// Operations on pages do not change given frames, or are refused.
#[test]
fn given_frames_are_no_pages() {
    let mut machine = Machine::new();
    let space = machine.space();
    let all = range(AT, 8 * PAGE);
    machine.map(space, all, device());
    let given = Error::Given(VirtAddr::new(AT));
    let pinned = machine.kernel().pin(space, range(AT, PAGE), Kind::Load);
    assert_eq!(pinned.map(drop), Err(given));
    let read = machine.kernel().access(space, all, Kind::Load, Access::Forced, &mut |_, _, _| ());
    assert_eq!(read, Err(given));
    machine.kernel().discard(space, all).unwrap();
    machine.kernel().lock(space, all).unwrap();
    machine.check();
    machine.kernel().prefault(space, all, None).unwrap();
    machine.kernel().unlock(space, all).unwrap();
    machine.check();
    assert_eq!(machine.kernel().loaded(space, all), 8);
    // The region can be moved with its frames, and can become shorter but not longer.
    let moved = VirtAddr::new(2 * AT);
    let longer = machine.kernel().move_pages(space, all, moved, 9 * PAGE);
    assert_eq!(longer, Err(Error::Given(VirtAddr::new(AT + 7 * PAGE))));
    machine.kernel().move_pages(space, all, moved, 6 * PAGE).unwrap();
    machine.check();
    let held = machine.held(space, 2 * AT + 5 * PAGE).unwrap();
    assert_eq!(held.frame.get(), DEVICE + 5 * PAGE);
    assert_eq!(held.attributes, Attributes::of(MemoryType::Device));
    machine.end(&[space], 0);
}

/// Changes the rights of a part of a region; a fault restores translations that are allowed.
#[test]
fn rights_of_given_frames_change() {
    let mut machine = Machine::new();
    let space = machine.space();
    machine.map(space, range(AT, 6 * PAGE), device());
    let part = range(AT + PAGE, 2 * PAGE);
    machine.kernel().protect(space, part, Rights::READ).unwrap();
    machine.check();
    let addr = VirtAddr::new(AT + PAGE);
    let refused = machine.kernel().fault(space, addr, Kind::Store);
    assert!(matches!(refused, Err(Error::Denied { .. })));
    machine.kernel().protect(space, part, RW).unwrap();
    assert_eq!(machine.kernel().fault(space, addr, Kind::Store), Ok(How::Write));
    machine.kernel().protect(space, part, Rights::NONE).unwrap();
    machine.check();
    assert!(machine.held(space, AT + PAGE).is_none());
    machine.kernel().protect(space, part, RW).unwrap();
    assert_eq!(machine.kernel().fault(space, addr, Kind::Store), Ok(How::Minor));
    let held = machine.held(space, AT + PAGE).unwrap();
    assert_eq!((held.frame.get(), held.attributes.memory), (DEVICE + PAGE, MemoryType::Device));
    machine.check();
    machine.end(&[space], 0);
}

/// If the table cannot express the attributes, the mapping is refused and no part of the region is
/// left.
#[test]
fn attributes_that_no_entry_has_are_refused() {
    let mut machine = Machine::new();
    let space = machine.space();
    let attributes = Attributes { memory: MemoryType::Device, key: 16 };
    let source = Source::Frames { first: PhysAddr::new(DEVICE), attributes };
    let refused = machine.kernel().map(space, range(AT, 4 * PAGE), RW, source, 0);
    assert_eq!(refused, Err(Error::Table(pagetable::Error::Unfit(Unfit::Key(16)))));
    machine.check();
    assert!(machine.vm.regions(space).is_empty());
    // Now the frames can be mapped with any attributes.
    machine.map(space, range(AT, 4 * PAGE), device());
    machine.end(&[space], 0);
}

/// Maps, unmaps, cuts and forks regions of a few frames in random order. After each step, the
/// checks compare the records with the regions.
#[test]
fn records_of_frames_agree_with_regions() {
    let mut machine = Machine::with(MIB, &[BASE], 0);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let mut spaces: Vec<HatSpace> = vec![machine.space()];
    let (mut refused, mut mapped) = (0, 0);
    for _ in 0..2000 {
        let space = spaces[below(spaces.len() as u64) as usize];
        let start = AT + below(32) * PAGE;
        let part = range(start, (1 + below(12)) * PAGE);
        match below(12) {
            0..5 => {
                let kind = [MemoryType::Device, MemoryType::Uncached][below(2) as usize];
                let source = Machine::frames(DEVICE + below(64) * PAGE, kind);
                match machine.kernel().map(space, part, RW, source, 0) {
                    Ok(()) => mapped += 1,
                    Err(Error::Attributes { .. }) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            5..7 => machine.kernel().unmap(space, part).unwrap(),
            7 => machine.kernel().protect(space, part, Rights::READ).unwrap(),
            8 => machine.kernel().lock(space, part).unwrap(),
            9 => {
                let to = VirtAddr::new(AT + (64 + below(32)) * PAGE);
                let bytes = part.last().get() + 1 - part.start().get();
                machine.kernel().move_pages(space, part, to, bytes).unwrap();
            }
            10 if spaces.len() < 4 => {
                let child = machine.space();
                machine.kernel().fork(space, child).unwrap();
                spaces.push(child);
            }
            _ if spaces.len() > 1 => {
                spaces.retain(|of| *of != space);
                assert_eq!(machine.kernel().exit(space), Ok(true));
            }
            _ => machine.kernel().map(space, part, RW, Source::Anonymous, 0).unwrap(),
        }
        machine.check();
    }
    assert!(refused > 50 && mapped > 300, "{refused} refused, {mapped} mapped");
    machine.end(&spaces, 0);
}
