//! Tests E99's multi-level table, with six levels, 32-bit entries, and pairs at the leaves.

use addr::{Kind, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Error, Footprint, Mpt, Reference, Translation, Unfit};

use crate::common::{Op, RIGHTS, Stream, Table, World, page, small_worlds};

const K4: PageSize = PageSize::SIZE_4K;

fn world() -> World<Mpt> {
    let mut world = World::new(Mpt::new()).resizing();
    world.walks_mark = false;
    world
}

#[test]
fn streams_of_operations_do_what_the_model_does() {
    let stream = Stream {
        regions: vec![0, 1 << 31, 7 << 51, 1 << 63, (1u64 << 26).wrapping_neg()],
        region_bytes: 1 << 26,
        frame_bits: 36,
        sizes: vec![K4],
        rights: RIGHTS.to_vec(),
        steps: 4000,
        seed: 21,
    };
    stream.run(world());
    stream.run(World::new(Mpt::with_usage()));
}

/// Operations around the boundary of two leaves, and of two entries of the root.
#[test]
fn small_worlds_enumerated_whole() {
    let map =
        |addr, frame, count| Op::Map { space: 0, first: page(addr, K4, frame, Rights::ALL), count };
    let unmap = |start, bytes| Op::Unmap {
        space: 0,
        range: VirtRange::new(VirtAddr::new(start), bytes).unwrap(),
    };
    let ops = [
        map(0x1f_f000, 0x1000, 1),
        map(0x20_0000, 0x2000, 1),
        map(0x1f_e000, 0x5000, 3),
        map((1 << 61) - 0x1000, 0x9000, 2),
        unmap(0x1f_f000, 0x1000),
        unmap(0x1f_f000, 0x2000),
        unmap(0, 1 << 61),
        Op::Unmap { space: 0, range: VirtRange::ALL },
    ];
    small_worlds(&world, &ops, &[(1, 3), (5, 3), (6, 3), (7, 3), (11, 3), (12, 3), (17, 4)]);
}

/// For one page, tests the positions and contents of its six entries: the address must be split as
/// in the paper.
#[test]
fn an_address_is_split_as_in_the_paper() {
    let indices = [5u64, 0x155, 0x2aa, 0x133, 0x3f1, 0x9d];
    let shifts = [61, 51, 41, 31, 21, 13];
    let even: u64 = indices.iter().zip(shifts).map(|(index, shift)| index << shift).sum();
    for (addr, frame, pte) in
        [(even | 0x234, 0x1234_5000, 0x0123_451f_u32), (even | 0x1234, 0xf_ffff_f000, 0xffff_ff1f)]
    {
        let mut world = world();
        world.apply(Op::Create);
        world.apply(Op::Map { space: 0, first: page(addr, K4, frame, Rights::ALL), count: 1 });
        let space = world.spaces[0].0;
        let mut references: Vec<Reference> = Vec::new();
        let each = &mut |reference| references.push(reference);
        let found =
            world.table.walk(space, VirtAddr::new(addr), Kind::Load, &mut world.physical, each);
        let frame_of = found.map(|found| found.apply(VirtAddr::new(addr)).get());
        assert_eq!(frame_of, Ok(frame | addr & 0xfff));

        assert_eq!(references.len(), 6);
        let mut table = space.root();
        for (n, reference) in references.iter().enumerate() {
            let odd = addr >> 12 & 1;
            let offset = if n < 5 { indices[n] * 4 } else { indices[5] * 16 + odd * 4 };
            assert_eq!(reference.addr.get(), table.get() + offset, "level {}", 6 - n);
            assert_eq!((reference.level, reference.bytes), (6 - n as u8, 4));
            let entry = world.physical.read_u32(reference.addr);
            if n < 5 {
                assert_eq!(entry & 0xfff, 1, "one entry in use in the next table");
                table = PhysAddr::new(u64::from(entry & 0xffff_f000));
            } else {
                assert_eq!(entry & !0xc0, pte);
            }
        }
        let footprint = Footprint { table_bytes: 32 + 5 * 4096, frame_bytes: 6 * 4096 };
        assert_eq!(world.table.footprint(), footprint);
        world.end();
    }
}

#[test]
fn what_it_cannot_hold_is_refused() {
    let end = 1 << 36;
    let m2 = PageSize::SIZE_2M;
    let cases: [(Translation, u64, Error); 3] = [
        (page(0, m2, 0, Rights::ALL), 1, Unfit::PageSize(m2).into()),
        (page(0, K4, end, Rights::ALL), 1, Unfit::Physical(PhysAddr::new(end)).into()),
        (
            page(0, K4, end - 0x1000, Rights::ALL),
            2,
            Unfit::Physical(PhysAddr::new(end - 0x1000)).into(),
        ),
    ];
    for (first, count, expected) in cases {
        let mut world = world();
        world.apply(Op::Create);
        let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
        let space = world.spaces[0].0;
        assert_eq!(world.table.map(space, first, count, memory, frames).err(), Some(expected));
        world.check();
    }
}

/// Pointers cannot lead to tables above 4 GiB, so a space or table with a frame there is refused.
#[test]
fn tables_lie_below_4_gib() {
    let mut world = world();
    world.apply(Op::Create);
    world.physical.start_at(1 << 32);
    let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
    let end = PhysAddr::new(1 << 32);
    let too_high = |n: u64| Unfit::Table { frame: end.wrapping_add(n * 0x1000), end }.into();
    assert_eq!(world.table.create(memory, frames), Err(too_high(0)));
    let first = page(0, K4, 0, Rights::ALL);
    let space = world.spaces[0].0;
    assert_eq!(world.table.map(space, first, 1, memory, frames).err(), Some(too_high(1)));
    world.check();
    world.end();
}
