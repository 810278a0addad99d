//! Tests of elastic cuckoo tables.

use addr::{Kind, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{ElasticCuckoo, Geometry, Reference};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::common::{Op, RIGHTS, Stream, Table, World, page, small_worlds};

const K4: PageSize = PageSize::SIZE_4K;
const M2: PageSize = PageSize::SIZE_2M;

fn world(ways: u64) -> World<ElasticCuckoo> {
    let mut world = World::new(ElasticCuckoo::new(ways, 4096).unwrap()).resizing();
    world.walks_mark = false;
    world
}

#[test]
fn streams_of_operations_do_what_the_model_does() {
    for (ways, seed) in [(2, 140), (3, 141), (8, 142)] {
        let stream = Stream {
            regions: vec![0, 1 << 40, 1 << 63, (4u64 << 30).wrapping_neg()],
            region_bytes: 4 << 30,
            frame_bits: 52,
            sizes: vec![K4, M2, PageSize::SIZE_1G],
            rights: RIGHTS.to_vec(),
            steps: 2500,
            seed,
        };
        stream.run(world(ways));
        stream.run(World::new(ElasticCuckoo::new(ways, 4096).unwrap().with_usage()).resizing());
    }
}

#[test]
fn small_worlds_enumerated_whole() {
    let map = |addr, size, count| Op::Map {
        space: 0,
        first: page(addr, size, 0x4000_0000, Rights::ALL),
        count,
    };
    let unmap = |start, bytes| Op::Unmap {
        space: 0,
        range: VirtRange::new(VirtAddr::new(start), bytes).unwrap(),
    };
    let large = VirtRange::of_page(VirtAddr::new(0x20_0000).page(M2));
    let resize = |to| Op::Resize { space: 0, range: large, to };
    let ops = [
        Op::Create,
        map(0x1f_f000, K4, 1),
        map(0x1f_e000, K4, 9),
        map(0x20_0000, M2, 1),
        unmap(0x1f_f000, 0x1000),
        unmap(0x20_0000, 0x20_0000),
        unmap(0, 1 << 63),
        resize(K4),
        resize(M2),
        Op::Destroy { space: 0 },
    ];
    small_worlds(&|| world(2), &ops, &[(1, 2), (2, 3), (3, 3), (4, 3), (9, 4)]);
}

/// Inserts thousands of lines with one page each. The ways double several times. A walk always
/// finds every page, and the table is never much more than six tenths full.
#[test]
fn tables_grow_while_they_are_used() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
    for ways in [2, 3, 4] {
        let mut world = world(ways);
        world.apply(Op::Create);
        let mut addrs = Vec::new();
        for n in 0..3000u64 {
            let addr = rng.random::<u64>() & !0x7fff | (n & 7) << 12;
            world.apply(Op::Map {
                space: 0,
                first: page(addr, K4, n << 12, Rights::READ),
                count: 1,
            });
            addrs.push(addr);
            let bytes = world.table.footprint().table_bytes;
            assert!(bytes * 8 >= n * 64 * 10, "more than eight tenths full at {n}");
            let back = addrs[rng.random_range(0..addrs.len())];
            let mut references: Vec<Reference> = Vec::new();
            let each = &mut |reference| references.push(reference);
            let (space, addr) = (world.spaces[0].0, VirtAddr::new(back));
            let found = world.table.walk(space, addr, Kind::Load, &mut world.physical, each);
            assert!(found.is_ok());
            assert!(references.len() == ways as usize);
            assert!(references.iter().all(|read| read.bytes == 64 && read.addr.get() % 64 == 0));
        }
        let bytes = world.table.footprint().table_bytes;
        assert!(bytes <= 3000 * 64 * 8, "{bytes}");
        world.check();
        world.end();
    }
}

/// If there is no room for a larger table, the operation is refused and keeps no memory.
#[test]
fn a_run_that_is_refused_leaves_no_larger_table() {
    let mut world = world(3);
    world.apply(Op::Create);
    let map = |addr, count| Op::Map { space: 0, first: page(addr, K4, 0, Rights::READ), count };
    world.apply(map(0x10_0000, 3));
    assert_eq!(world.physical.bytes_out(), 12288);
    for room in 0..3 {
        world.physical.limit(3 + room);
        // The world compares the bytes of allocated frames before and after.
        world.apply(map(0x4000_0000, 4096));
        assert_eq!(world.table.footprint().table_bytes, 12288);
        world.check();
    }
    world.physical.limit(6);
    world.apply(map(0x4000_0000, 1200));
    assert_eq!(world.table.footprint().table_bytes, 24576);
    world.check();
    world.end();
}

/// Tests the bits of a line: each entry has a part of the tag above bit 52, and the first entry has
/// the lowest part.
#[test]
fn a_line_has_its_tag_in_the_upper_bits() {
    let mut world = world(3);
    world.apply(Op::Create);
    let cluster: u64 = 0x1_2345_6789_abcd;
    let addr = cluster << 15 | 5 << 12;
    world.apply(Op::Map { space: 0, first: page(addr, K4, 0x7000, Rights::READ), count: 1 });
    let mut lines: Vec<PhysAddr> = Vec::new();
    let each = &mut |reference: Reference| lines.push(reference.addr);
    let space = world.spaces[0].0;
    let found = world.table.walk(space, VirtAddr::new(addr), Kind::Load, &mut world.physical, each);
    assert!(found.is_ok());
    let used = lines.iter().find(|line| world.physical.read_u64(line.wrapping_add(40)) & 1 != 0);
    for n in 0..8 {
        let word = world.physical.read_u64(used.unwrap().wrapping_add(n * 8));
        assert_eq!(word >> 52, cluster >> (7 * n) & 0x7f);
        assert_eq!(word & ((1 << 52) - 1), if n == 5 { 0x7003 } else { 0 });
    }
    world.end();
}

#[test]
fn ways_that_cannot_be_are_refused() {
    let refused = |ways, bytes| ElasticCuckoo::new(ways, bytes).err();
    let range = |what, value, min, max| Some(Geometry::OutOfRange { what, value, min, max });
    assert_eq!(refused(1, 4096), range("ways", 1, 2, 8));
    assert_eq!(refused(3, 2048), range("bytes of a way", 2048, 4096, 1 << 40));
    let what = "bytes of a way";
    assert_eq!(refused(3, 5000), Some(Geometry::NotPowerOfTwo { what, value: 5000 }));
}
