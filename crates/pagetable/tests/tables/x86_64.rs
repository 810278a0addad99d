//! Compares the x86-64 page table with the model, and bit by bit with the manual.

use addr::{
    Attributes, Kind, Memory, MemoryType, PageSize, PhysAddr, RangeError, Rights, VirtAddr,
    VirtRange,
};
use pagetable::{Error, Fault, Reference, Space, Translation, Unfit, Usage, X86_64};

use crate::common::{Op, RIGHTS, Stream, Table, TreeTable, World, page, small_worlds};
use crate::decode;

const K4: PageSize = PageSize::SIZE_4K;
const M2: PageSize = PageSize::SIZE_2M;
const G1: PageSize = PageSize::SIZE_1G;
const READ_WRITE: Rights = Rights::from_bits(Rights::READ.bits() | Rights::WRITE.bits());

fn range(start: u64, bytes: u64) -> VirtRange {
    VirtRange::new(VirtAddr::new(start), bytes).unwrap()
}

/// The middle of each half of the space, and both sides of the hole between them.
fn regions(levels: u8) -> Vec<u64> {
    let half = 1u64 << (9 * u32::from(levels) + 11);
    vec![0, half / 2, half - (2 << 30), half.wrapping_neg(), (2u64 << 30).wrapping_neg()]
}

#[test]
fn streams_of_operations_do_what_the_model_does() {
    run_streams::<4>(&[1, 2], 6000);
    run_streams::<5>(&[3], 6000);
}

#[test]
#[ignore = "minutes"]
fn a_million_operations_do_what_the_model_does() {
    run_streams::<4>(&[4], 500_000);
    run_streams::<5>(&[5], 500_000);
}

/// All types of memory, with and without a key.
fn attributes() -> Vec<Attributes> {
    let with = |key| move |memory| Attributes { memory, key };
    MemoryType::ALL.into_iter().map(with(0)).chain(MemoryType::ALL.map(with(11))).collect()
}

/// PWT (hexadecimal 8) and PCD (10) select a field of IA32_PAT; the key is in bits 59 to 62.
/// Changes of rights keep both.
#[test]
fn attributes_are_those_of_the_manual() {
    let pat = pagetable::X86Entries::<4, true>::PAT.to_le_bytes();
    let cases = [
        (MemoryType::WriteBack, 0x00, 6),
        (MemoryType::WriteCombining, 0x08, 1),
        (MemoryType::Uncached, 0x10, 7),
        (MemoryType::Device, 0x18, 0),
    ];
    for (size, ps) in [(K4, 0), (M2, 0x80), (G1, 0x80)] {
        for (number, (memory, bits, kind)) in cases.into_iter().enumerate() {
            assert_eq!(pat[number], kind, "{memory} is what the register says");
            let attributes = Attributes { memory, key: 9 };
            let first = page(0x4000_0000, size, 0x8000_0000, Rights::ALL).with(attributes);
            let mut world = World::new(X86_64::<4>::new());
            world.apply(Op::Create);
            world.attributes = vec![attributes];
            world.apply(Op::Map { space: 0, first, count: 1 });
            let space = world.spaces[0].0;
            let (found, references) = walk(&mut world, space, 0x4000_0000, Kind::Load);
            assert_eq!(found.unwrap().attributes, attributes);
            let at = references.iter().rfind(|reference| !reference.write).unwrap().addr;
            let entry = 0x4800_0000_8000_0027 | ps | bits;
            assert_eq!(world.physical.read_u64(at), entry, "{size} {memory}");
            let range = range(0x4000_0000, size.bytes());
            for rights in [Rights::NONE, Rights::READ] {
                let memory = &mut world.physical;
                let flush = world.table.protect(space, range, rights, memory, &mut |_| {});
                flush.unwrap().done(memory);
            }
            assert_eq!(world.physical.read_u64(at), entry & !6 | 1 << 63, "{size} {memory}");
        }
    }
    let mut world = World::new(X86_64::<4>::new());
    world.apply(Op::Create);
    let first = page(0, K4, 0, Rights::ALL).with(Attributes { key: 16, ..Attributes::NORMAL });
    let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
    let refused = world.table.map(world.spaces[0].0, first, 1, memory, frames);
    assert_eq!(refused.err(), Some(Error::Unfit(Unfit::Key(16))));
}

fn run_streams<const LEVELS: u8>(seeds: &[u64], steps: usize) {
    for &seed in seeds {
        let stream = Stream {
            regions: regions(LEVELS),
            region_bytes: 2 << 30,
            frame_bits: 38,
            sizes: vec![K4, M2, G1],
            rights: RIGHTS.to_vec(),
            steps,
            seed,
        };
        let mut world = World::new(X86_64::<LEVELS>::new());
        (world.resizes, world.attributes) = (true, attributes());
        stream.run_with(world, |world| {
            decode::check(world, |root, addr| decode::x86_64(&world.physical, root, addr, LEVELS));
        });
        let mut world = World::new(X86_64::<LEVELS, false>::new()).resizing();
        world.walks_mark = false;
        stream.run(world);
    }
}

/// Runs every sequence of three operations on three page sizes around the boundary of two tables:
/// with a frame only for the root, with a frame for one more table, and so on. Runs every sequence
/// of four operations with enough frames.
#[test]
fn small_worlds_enumerated_whole() {
    let map = |addr, size, frame| Op::Map {
        space: 0,
        first: page(addr, size, frame, Rights::ALL),
        count: 1,
    };
    let unmap = |range| Op::Unmap { space: 0, range };
    let ops = [
        map(0x1f_f000, K4, 0x1000),
        map(0x20_0000, K4, 0x2000),
        Op::Map { space: 0, first: page(0x1f_f000, K4, 0x5000, Rights::READ), count: 2 },
        map(0x20_0000, M2, 0x40_0000),
        map(0, G1, 0),
        unmap(range(0x1f_f000, 0x1000)),
        unmap(range(0x20_0000, 0x1000)),
        unmap(range(0x1f_f000, 0x2000)),
        unmap(range(0x20_0000, 0x20_0000)),
        unmap(VirtRange::ALL),
        Op::Protect { space: 0, range: range(0x20_0000, 0x20_0000), rights: Rights::NONE },
        Op::Resize { space: 0, range: range(0x20_0000, 0x20_0000), to: K4 },
    ];
    let rooms = [(1, 3), (2, 3), (3, 3), (4, 3), (5, 3), (6, 4)];
    small_worlds(&|| World::new(X86_64::<4>::new()).resizing(), &ops, &rooms);
}

/// A world with one space that holds one page.
fn with_page<const LEVELS: u8>(translation: Translation) -> (World<X86_64<LEVELS>>, Space) {
    let mut world = World::new(X86_64::<LEVELS>::new());
    world.apply(Op::Create);
    world.apply(Op::Map { space: 0, first: translation, count: 1 });
    let space = world.spaces[0].0;
    (world, space)
}

fn walk<const LEVELS: u8>(
    world: &mut World<X86_64<LEVELS>>,
    space: Space,
    addr: u64,
    kind: Kind,
) -> (Result<Translation, Fault>, Vec<Reference>) {
    let mut references = Vec::new();
    let each = &mut |reference| references.push(reference);
    let result = world.table.walk(space, VirtAddr::new(addr), kind, &mut world.physical, each);
    (result, references)
}

/// Compares the entries of pages with the manual. The hexadecimal values of the bits are P 1, RW 2,
/// US 4, A 20, D 40, PS 80, G 100; NX is the uppermost bit. 200 is the bit NA of this crate.
/// Without P the frame's bits are inverted.
#[test]
fn page_entries_are_those_of_the_manual() {
    let cases = [
        (K4, Rights::READ, false, 0x8000_0000_0000_0001),
        (K4, READ_WRITE, false, 0x8000_0000_0000_0003),
        (K4, Rights::READ | Rights::EXECUTE, false, 0x1),
        (K4, Rights::ALL, false, 0x7),
        (K4, Rights::ALL, true, 0x107),
        (K4, Rights::NONE, false, 0x8000_0000_0000_0200),
        (K4, Rights::USER, false, 0x8000_0000_0000_0204),
        (M2, Rights::ALL, false, 0x87),
        (G1, Rights::READ | Rights::USER, true, 0x8000_0000_0000_0185),
    ];
    let addr = 0x7fff_c000_0000;
    for (size, rights, global, bits) in cases {
        let frame = 0x000f_f765_4000_0000;
        let translation = Translation { global, ..page(addr, size, frame, rights) };
        let (mut world, space) = with_page::<4>(translation);
        let (_, references) = walk(&mut world, space, addr, Kind::Load);
        let at = references.iter().rfind(|reference| !reference.write).unwrap().addr;
        let present = rights.contains(Rights::READ);
        let accessed = if present { 0x20 } else { 0 };
        let frame = if present { frame } else { frame ^ 0x000f_ffff_ffff_f000 };
        assert_eq!(world.physical.read_u64(at), frame | bits | accessed, "{size} {rights:?}");
        if rights.contains(Rights::WRITE) {
            let _ = walk(&mut world, space, addr, Kind::Store);
            assert_eq!(world.physical.read_u64(at), frame | bits | 0x60, "{size} {rights:?}");
        }
    }
}

/// A protection against L1 Terminal Fault: an entry that is not present never contains a frame of
/// the lower half of memory, however it came to be not present. When the page gets rights again,
/// its entry has the true frame.
#[test]
fn the_frame_of_a_page_without_rights_is_hidden() {
    let frames = 0x000f_ffff_ffff_f000;
    for (size, level) in [(K4, 1), (M2, 2), (G1, 3)] {
        for frame in [0, size.bytes(), 0x1234_4000_0000] {
            let addr = 0x7fff_c000_0000;
            let (mut world, space) = with_page::<4>(page(addr, size, frame, Rights::ALL));
            let (_, references) = walk(&mut world, space, addr, Kind::Store);
            let at = references.last().unwrap();
            assert_eq!(at.level, level);
            let range = range(addr, size.bytes());
            for rights in [Rights::NONE, Rights::USER, Rights::READ, Rights::NONE, READ_WRITE] {
                let memory = &mut world.physical;
                let flush = world.table.protect(space, range, rights, memory, &mut |_| {});
                flush.unwrap().done(memory);
                let entry = world.physical.read_u64(at.addr);
                let hidden = if rights.contains(Rights::READ) { 0 } else { frames };
                assert_eq!(entry & frames, frame ^ hidden, "{size} at {frame:#x}: {rights}");
                // Both bits are still set, because nothing has cleared them.
                assert_eq!(entry & 0x60, 0x60);
                let found = world.table.query(space, VirtAddr::new(addr), &world.physical);
                let found = found.unwrap().translation;
                assert_eq!((found.frame, found.rights), (PhysAddr::new(frame), rights));
            }
        }
    }
}

/// An entry that leads to a table has P, RW, US, the frame of the table, and the population in bits
/// 52 to 61.
#[test]
fn table_entries_count_the_entries_in_use() {
    let addr = 0x1234_5678_9000;
    let (mut world, space) = with_page::<4>(page(addr, K4, 0x7000, Rights::ALL));
    let root_entry = PhysAddr::new(space.root().get() + 0x24 * 8);
    let table = PhysAddr::new(world.physical.read_u64(root_entry) & 0x000f_ffff_ffff_f000);
    assert_eq!(world.physical.read_u64(root_entry), table.get() | 7 | 1 << 52);
    let next_entry = PhysAddr::new(table.get() + 0xd1 * 8);
    let expected = [1, 2, 3, 2, 1];
    for (n, population) in expected.into_iter().enumerate() {
        assert_eq!(world.physical.read_u64(root_entry) >> 52, population);
        assert_eq!(world.physical.read_u64(next_entry) >> 52, 1);
        let other = |n: u64| (addr & !0x3fff_ffff) + (n << 30);
        match n {
            0 | 1 => world.apply(Op::Map {
                space: 0,
                first: page(other(n as u64 + 1), G1, 0, Rights::ALL),
                count: 1,
            }),
            2 => world.apply(Op::Unmap { space: 0, range: range(other(1), 1 << 30) }),
            3 => world.apply(Op::Unmap { space: 0, range: range(other(2), 1 << 30) }),
            _ => {}
        }
    }
}

/// The first walk sets A in each entry that it passes, and the first store sets D. Later walks only
/// read.
#[test]
fn walks_read_one_entry_a_level_and_write_only_what_changes() {
    check_references::<4>(&[(K4, 4), (M2, 3), (G1, 2)]);
    check_references::<5>(&[(K4, 5), (G1, 3)]);
}

fn check_references<const LEVELS: u8>(cases: &[(PageSize, u8)]) {
    for &(size, reads) in cases {
        let addr = 0x1234_4000_0000;
        let (mut world, space) = with_page::<LEVELS>(page(addr, size, 0x4000_0000, Rights::ALL));
        let writes = |references: &[Reference]| -> Vec<(u8, bool)> {
            references.iter().map(|reference| (reference.level, reference.write)).collect()
        };
        let top_down = (0..reads).map(|n| LEVELS - n);
        let (_, references) = walk(&mut world, space, addr, Kind::Load);
        let expected: Vec<_> =
            top_down.clone().flat_map(|level| [(level, false), (level, true)]).collect();
        assert_eq!(writes(&references), expected);

        let (_, references) = walk(&mut world, space, addr, Kind::Fetch);
        let mut expected: Vec<_> = top_down.map(|level| (level, false)).collect();
        assert_eq!(writes(&references), expected);

        let (_, references) = walk(&mut world, space, addr, Kind::Store);
        expected.push((LEVELS + 1 - reads, true));
        assert_eq!(writes(&references), expected);
        let last = &references[references.len() - 2..];
        assert_eq!((last[0].addr, last[0].next()), (last[1].addr, None));
    }
}

/// An MMU cache relies on this property: a walk may start at any node that an earlier walk passed,
/// if both addresses agree in the bits from `shift` up.
#[test]
fn a_walk_from_a_node_is_the_tail_of_the_whole_walk() {
    let addr = 0x7abc_def0_1000;
    for (size, other) in [(K4, 0x7abc_def0_2000), (M2, 0x7abc_dee0_0000), (G1, addr + 0x999)] {
        let (mut world, space) = with_page::<4>(page(addr, size, 0, READ_WRITE));
        if size != G1 {
            let first = page(other, size, 1 << 30, Rights::READ);
            world.apply(Op::Map { space: 0, first, count: 1 });
        }
        for kind in Kind::ALL {
            for target in [addr, other, addr ^ 1 << 46] {
                let (_, passed) = walk(&mut world, space, addr, Kind::Load);
                let (result, whole) = walk(&mut world, space, target, kind);
                let (again, whole) = match result {
                    Ok(_) => walk(&mut world, space, target, kind),
                    Err(_) => (result, whole),
                };
                assert_eq!(again, result);
                for node in passed.iter().filter_map(|reference| reference.next()) {
                    assert_eq!(node.shift, 12 + 9 * node.level);
                    if addr >> node.shift != target >> node.shift {
                        continue;
                    }
                    let mut tail = Vec::new();
                    let each = &mut |reference| tail.push(reference);
                    let target = VirtAddr::new(target);
                    let memory = &mut world.physical;
                    assert_eq!(world.table.walk_from(node, target, kind, memory, each), result);
                    assert!(whole.ends_with(&tail));
                    assert_eq!(tail[0].level, node.level);
                }
            }
        }
    }
}

/// A page cannot allow an access that a table on the path forbids: RW and US must be set, and NX
/// clear, in all entries. PS has no meaning at level 4.
#[test]
fn rights_of_all_levels_are_combined() {
    let without = |bits: u64| move |entry: u64| entry & !bits;
    let with = |bits: u64| move |entry: u64| entry | bits;
    let read_user = Rights::READ | Rights::USER;
    type Change = Box<dyn Fn(u64) -> u64>;
    let cases: [(Change, Rights); 5] = [
        (Box::new(without(2)), read_user | Rights::EXECUTE),
        (Box::new(without(4)), Rights::from_bits(7)),
        (Box::new(with(1 << 63)), read_user | Rights::WRITE),
        (Box::new(|entry| entry & !6 | 1 << 63), Rights::READ),
        (Box::new(|entry| entry), Rights::ALL),
    ];
    for (change, rights) in cases {
        for level in [2, 3, 4] {
            let (mut world, space) = with_page::<4>(page(0x5000, K4, 0, Rights::ALL));
            let (_, references) = walk(&mut world, space, 0x5000, Kind::Load);
            let at = references.iter().find(|reference| reference.level == level).unwrap().addr;
            let ps = if level == 4 { 0x80 } else { 0 };
            let entry = change(world.physical.read_u64(at)) | ps;
            world.physical.write_u64(at, entry);
            let translation = page(0x5000, K4, 0, rights);
            for kind in Kind::ALL {
                let (result, references) = walk(&mut world, space, 0x5000, kind);
                let denied = Fault::Denied { translation };
                let expected = if rights.allows(kind) { Ok(translation) } else { Err(denied) };
                assert_eq!(result, expected, "level {level}, {kind:?}");
                let below = references
                    .iter()
                    .find_map(|reference| reference.next().filter(|_| reference.level == level));
                assert_eq!(below.map(|node| node.rights), Some(rights));
            }
        }
    }
}

#[test]
fn what_x86_64_cannot_hold_is_refused() {
    let k8 = PageSize::from_shift(13).unwrap();
    let execute_only = Rights::EXECUTE | Rights::USER;
    let hole = 0x8000_0000_0000;
    let cases = [
        (page(0, k8, 0, Rights::ALL), 1, Error::Unfit(Unfit::PageSize(k8))),
        (page(0, M2, 0x1000, Rights::ALL), 1, Error::Misaligned { addr: 0x1000, size: M2 }),
        (page(0, K4, 0, execute_only), 1, Error::Unfit(Unfit::Rights(execute_only))),
        (page(0, K4, 0, Rights::WRITE), 1, Error::Unfit(Unfit::Rights(Rights::WRITE))),
        (page(hole, K4, 0, Rights::ALL), 1, Error::Unfit(Unfit::Virtual(VirtAddr::new(hole)))),
        (
            page(hole - 0x1000, K4, 0, Rights::ALL),
            2,
            Error::Unfit(Unfit::Virtual(VirtAddr::new(hole))),
        ),
        (
            page(0, K4, 1 << 52, Rights::ALL),
            1,
            Error::Unfit(Unfit::Physical(PhysAddr::new(1 << 52))),
        ),
        (
            page(0, K4, (1 << 52) - 0x1000, Rights::ALL),
            2,
            Error::Unfit(Unfit::Physical(PhysAddr::new((1 << 52) - 0x1000))),
        ),
        (page(0, K4, 0, Rights::ALL), 0, Error::Range(RangeError::Empty)),
        (page(0, K4, 0, Rights::ALL), 1 << 52, Error::Range(RangeError::Wraps)),
        (page(u64::MAX, K4, 0, Rights::ALL), 2, Error::Range(RangeError::Wraps)),
    ];
    for (first, count, expected) in cases {
        let mut world = World::new(X86_64::<4>::new());
        world.apply(Op::Create);
        let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
        let space = world.spaces[0].0;
        assert_eq!(world.table.map(space, first, count, memory, frames).err(), Some(expected));
        assert_eq!(world.physical.frames_out(), 1);
        world.check();
    }
}

#[test]
fn ranges_that_are_no_pages_and_spaces_that_are_gone_are_refused() {
    let (mut world, space) = with_page::<4>(page(0, K4, 0, Rights::ALL));
    let memory = &mut world.physical.clone();
    for (start, bytes, addr) in [(1, 0x1000, 1), (0, 0x1001, 0x1001), (0x800, 0x800, 0x800)] {
        let refused = Error::Misaligned { addr, size: K4 };
        let range = range(start, bytes);
        let table = &mut world.table;
        assert_eq!(table.unmap(space, range, memory, &mut |_| {}).err(), Some(refused));
        let result = table.protect(space, range, Rights::NONE, memory, &mut |_| {});
        assert_eq!(result.err(), Some(refused));
    }
    // The adjacent page is in a table that is freed together with the space.
    world.apply(Op::Map { space: 0, first: page(0x1000, K4, 0x1000, Rights::ALL), count: 1 });
    world.check();
    world.apply(Op::Destroy { space: 0 });
    let gone = Error::NoSpace(space);
    let table = &mut world.table;
    let (addr, all) = (VirtAddr::new(0), VirtRange::ALL);
    assert_eq!(table.destroy(space, memory).err(), Some(gone));
    assert_eq!(
        table.map(space, page(0, K4, 0, Rights::ALL), 1, memory, &mut world.physical).err(),
        Some(gone)
    );
    let neighbour = range(0x1000, 0x1000);
    assert_eq!(table.unmap(space, neighbour, memory, &mut |_| {}).err(), Some(gone));
    let result = table.protect(space, neighbour, Rights::NONE, memory, &mut |_| {});
    assert_eq!(result.err(), Some(gone));
    assert_eq!(table.set_usage(space, addr, Usage::default(), memory), Err(gone));
    assert_eq!(
        table.clear_usage(space, all, Usage::default(), memory, &mut |_| {}).err(),
        Some(gone)
    );
    assert_eq!(table.query(space, addr, memory), None);
    table.visit(space, all, memory, &mut |mapping| panic!("{mapping:?} in a space that is gone"));
}

/// A mark is bit 10 of a page's entry. Walks and changes of rights keep it, and clearing it needs
/// no flush.
#[test]
fn marks_are_the_systems_alone() {
    let mut memory = pagetable::SparseMemory::new(64 << 20);
    let mut frames =
        physmem::Physmem::buddy(PhysAddr::new(0), 64 << 20, K4).expect("frames of 64 MiB");
    let mut table = X86_64::<4>::new();
    let space = table.create(&mut memory, &mut frames).unwrap();
    let addr = VirtAddr::new(0x5000);
    let first = page(0x5000, K4, 0x20_0000, Rights::ALL);
    table.map(space, first, 1, &mut memory, &mut frames).unwrap().done(&mut frames);
    let mark = Usage { marked: true, ..Usage::default() };
    table.set_usage(space, addr, mark, &mut memory).unwrap();
    let mut leaf = 0;
    let each = &mut |reference: Reference| leaf = reference.addr.get();
    table.walk(space, addr, Kind::Load, &mut memory, each).unwrap();
    assert_eq!(memory.read_u64(PhysAddr::new(leaf)) >> 10 & 1, 1);
    let whole = range(0x5000, 0x1000);
    let flush = table.protect(space, whole, READ_WRITE, &mut memory, &mut |_| ()).unwrap();
    flush.done(&mut frames);
    let usage = |table: &X86_64<4>, memory: &pagetable::SparseMemory| {
        table.query(space, addr, memory).unwrap().usage
    };
    assert_eq!(usage(&table, &memory), Usage { referenced: true, ..mark });
    let flush = table.clear_usage(space, whole, mark, &mut memory, &mut |_| ()).unwrap();
    assert!(flush.is_empty());
    flush.done(&mut frames);
    assert_eq!(usage(&table, &memory), Usage { referenced: true, ..Usage::default() });
}
