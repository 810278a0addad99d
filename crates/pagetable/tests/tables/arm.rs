//! Compares the page table of ARM's first MMU with the model, and bit by bit with the manual.

use addr::{Kind, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Arm, Error, Lent, Loan, Reference, Unfit, Usage};

use crate::common::{Op, Stream, Table, World, around_seam, page, small_worlds};

const K4: PageSize = PageSize::SIZE_4K;
const M1: PageSize = PageSize::from_shift(20).unwrap();
/// The sets of rights that AP can express, and the empty set.
const RIGHTS: [u8; 6] = [5, 7, 13, 15, 0, 8];

#[test]
fn streams_of_operations_do_what_the_model_does() {
    let area = VirtRange::new(VirtAddr::new(0x6200_0000), 0x1e00_0000).unwrap();
    for seed in [1, 2] {
        let stream = Stream {
            regions: vec![0, 1 << 31, (1 << 32) - (1 << 27)],
            region_bytes: 1 << 27,
            frame_bits: 32,
            sizes: vec![K4, M1],
            rights: RIGHTS.map(Rights::from_bits).to_vec(),
            steps: 6000,
            seed,
        };
        for table in [Arm::new(), Arm::with_area(area).unwrap()] {
            let mut world = World::new(table).resizing();
            world.walks_mark = false;
            stream.run(world);
        }
    }
}

/// Runs every short sequence of operations around the boundary of two tables. In this format no
/// count shows when a table is empty.
#[test]
fn small_worlds_enumerated_whole() {
    let world = || {
        let mut world = World::new(Arm::new());
        world.walks_mark = false;
        world
    };
    small_worlds(&world, &around_seam(M1), &[(1, 3), (2, 3), (3, 4)]);
}

/// A section has one AP field, at bit 10; a small page has four, from bit 4 on. The hexadecimal
/// values of other fields are C 8, B 4, and the type: 2 for a page, 1 for a table. NA is 4 with
/// type 0.
#[test]
fn entries_are_those_of_the_manual() {
    let cases = [
        (K4, 5, 0x00e),
        (K4, 1, 0x00e),
        (K4, 7, 0x55e),
        (K4, 13, 0xaae),
        (K4, 15, 0xffe),
        (K4, 0, 0x004),
        (K4, 8, 0xaa4),
        (M1, 5, 0x00e),
        (M1, 7, 0x40e),
        (M1, 13, 0x80e),
        (M1, 15, 0xc0e),
        (M1, 0, 0x004),
    ];
    for (size, rights, bits) in cases {
        let (addr, frame) = (0xbfc0_0000, 0x7640_0000);
        let mut world = World::new(Arm::new());
        world.apply(Op::Create);
        let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
        let space = world.spaces[0].0;
        let first = page(addr, size, frame, Rights::from_bits(rights));
        world.table.map(space, first, 1, memory, frames).unwrap().done(frames);
        let mut references: Vec<Reference> = Vec::new();
        let each = &mut |reference| references.push(reference);
        let walked = world.table.walk(space, VirtAddr::new(addr), Kind::Load, memory, each);
        assert_eq!(walked.is_ok(), bits & 3 != 0, "{size} {rights}");
        // The 12 upper bits of the address select the entry of the first level, and the 8 bits
        // below select the entry of the second.
        assert_eq!(references.len(), if size == K4 { 2 } else { 1 });
        assert_eq!(references[0].addr, PhysAddr::new(space.root().get() + (addr >> 20) * 4));
        let last = references[references.len() - 1];
        assert_eq!(u64::from(memory.read_u32(last.addr)), frame | bits, "{size} {rights}");
        if size == K4 {
            let table = u64::from(memory.read_u32(references[0].addr));
            assert_eq!(table & 0x3ff, 1);
            assert_eq!(last.addr, PhysAddr::new((table & !0x3ff) + (addr >> 12 & 0xff) * 4));
        }
    }
}

/// Hardware has no usage bits. Those of a small page are in a word that hardware never reads; those
/// of a section are in bits of its entry that should be zero.
#[test]
fn usage_is_kept_where_hardware_does_not_look() {
    let mut world = World::new(Arm::new());
    world.apply(Op::Create);
    let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
    let (space, used) = (world.spaces[0].0, Usage { referenced: true, dirty: true, marked: false });
    for (addr, size, frame) in [(0x4_5000, K4, 0x7000), (0x30_0000, M1, 0x40_0000)] {
        let first = page(addr, size, frame, Rights::ALL);
        world.table.map(space, first, 1, memory, frames).unwrap().done(frames);
        let addr = VirtAddr::new(addr);
        world.table.set_usage(space, addr, used, memory).unwrap();
        assert_eq!(world.table.query(space, addr, memory).unwrap().usage, used);
    }
    let table = u64::from(memory.read_u32(PhysAddr::new(space.root().get()))) & !0x3ff;
    assert_eq!(memory.read_u32(PhysAddr::new(table + 0x45 * 4)), 0x7ffe);
    assert_eq!(memory.read_u32(PhysAddr::new(table + 0x400 + 0x45 * 4)), 3);
    assert_eq!(memory.read_u32(PhysAddr::new(space.root().get() + 3 * 4)), 0x40_3c0e);
    // A page that is mapped there later starts with clear usage bits.
    let whole = VirtRange::new(VirtAddr::new(0x4_5000), 0x1000).unwrap();
    world.table.unmap(space, whole, memory, &mut |_| ()).unwrap().done(frames);
    let first = page(0x4_5000, K4, 0x9000, Rights::ALL);
    world.table.map(space, first, 1, memory, frames).unwrap().done(frames);
    let now = world.table.query(space, VirtAddr::new(0x4_5000), memory).unwrap();
    assert_eq!(now.usage, Usage::default());
}

/// A first-level table has entries of several spaces, each in a slot of 32 MB.
#[test]
fn a_space_sees_what_another_lends() {
    let area = VirtRange::new(VirtAddr::new(0x6200_0000), 0x1e00_0000).unwrap();
    let mut world = World::new(Arm::with_area(area).unwrap());
    world.apply(Op::Create);
    world.apply(Op::Create);
    let first = page(0x10_5000, K4, 0x7000, Rights::ALL);
    world.apply(Op::Map { space: 0, first, count: 1 });
    let (from, to) = (world.spaces[0].0, world.spaces[1].0);
    let memory = &mut world.physical.clone();
    let slot = 0x6400_0000;
    let loan = |addr, at| Loan { from, addr: VirtAddr::new(addr), to, at: VirtAddr::new(at) };
    let lent = world.table.lend(loan(0x10_5000, slot + 0x10_5000), memory);
    assert_eq!(lent, Ok(Lent::Copied { is_page: false }));
    let lent = world.table.lend(loan(0x20_0000, slot + 0x20_0000), memory);
    assert_eq!(lent, Ok(Lent::Absent));
    let addr = VirtAddr::new(slot + 0x10_5123);
    let walked = world.table.walk(to, addr, Kind::Store, memory, &mut |_| ()).unwrap();
    assert_eq!(walked.frame, PhysAddr::new(0x7000));
    let outside = VirtAddr::new(0x6000_0000);
    let lent = world.table.lend(loan(0x10_0000, outside.get()), memory);
    assert_eq!(lent, Err(Error::Unfit(Unfit::Virtual(outside))));
    let first = page(0x6400_0000, K4, 0x9000, Rights::ALL);
    let frames = &mut world.physical.clone();
    assert!(world.table.map(to, first, 1, memory, frames).is_err());
    assert!(Arm::with_area(VirtRange::new(VirtAddr::new(0x1000), 1 << 22).unwrap()).is_err());
    assert!(Arm::with_area(VirtRange::new(VirtAddr::new(1 << 32), 1 << 22).unwrap()).is_err());
}
