//! Tests of hashed and clustered tables of all shapes.

use addr::{Kind, Memory, PageSize, Rights, VirtAddr, VirtRange};
use pagetable::{Error, Fault, Footprint, Geometry, Hashed, HashedShape, Reference, Unfit};

use crate::common::{Op, RIGHTS, Stream, Table, World, page, small_worlds};

const K4: PageSize = PageSize::SIZE_4K;

fn world(shape: HashedShape) -> World<Hashed> {
    let mut world = World::new(Hashed::new(shape).unwrap()).resizing();
    world.walks_mark = shape.walk_sets_usage;
    world.loses_notes = shape.partial_subblocks;
    world
}

/// Shapes so small that chains are long, and the shapes of the paper.
fn shapes() -> Vec<HashedShape> {
    let tiny = HashedShape { table_bytes: 256, ..HashedShape::H8K };
    let shared = HashedShape { table_bytes: 4096, shared: true, ..HashedShape::H8K };
    let clustered = HashedShape { table_bytes: 4096, ..HashedShape::C128K };
    vec![
        tiny,
        shared,
        clustered,
        HashedShape { table_bytes: 1024, entry_pages: 1, walk_sets_usage: true, ..tiny },
        HashedShape { move_to_front: false, walk_sets_usage: true, ..tiny },
        HashedShape { shared: true, entry_pages: 16, walk_sets_usage: true, ..clustered },
        HashedShape::H8K,
        HashedShape::C128K,
        HashedShape::inverted(1 << 20, 1),
        HashedShape::inverted(1 << 20, 2),
        HashedShape { walk_sets_usage: true, ..HashedShape::inverted(1 << 20, 16) },
        HashedShape { packed: true, ..HashedShape::inverted(1 << 20, 16) },
        HashedShape { packed: true, ..clustered }.with_partial_subblocks(),
        clustered.with_partial_subblocks(),
        HashedShape { superpages: false, walk_sets_usage: true, ..clustered }
            .with_partial_subblocks(),
        HashedShape { larger_sizes: [size(16), size(20)], ..tiny },
        HashedShape { larger_sizes: [size(16), size(20)], shared: true, ..clustered }
            .with_partial_subblocks(),
        HashedShape { larger_sizes: [size(16), size(20)], replicated: true, ..tiny },
        HashedShape { larger_sizes: [size(16), None], replicated: true, shared: true, ..clustered }
            .with_partial_subblocks(),
        HashedShape {
            larger_sizes: [size(17), size(20)],
            replicated: true,
            walk_sets_usage: true,
            ..HashedShape::inverted(1 << 20, 16)
        },
        HashedShape { larger_sizes: [size(13), None], ..HashedShape::inverted(1 << 20, 1) },
        HashedShape { larger_sizes: [size(18), None], ..HashedShape::inverted(1 << 20, 16) }
            .with_partial_subblocks(),
    ]
}

fn size(shift: u8) -> Option<PageSize> {
    PageSize::from_shift(shift)
}

fn sizes(shape: HashedShape) -> Vec<PageSize> {
    Hashed::new(shape).unwrap().page_sizes().to_vec()
}

#[test]
fn streams_of_operations_do_what_the_model_does() {
    for (n, shape) in shapes().into_iter().enumerate() {
        println!("{shape:?}");
        let stream = Stream {
            regions: vec![0, 1 << 31, 1 << 63, (1u64 << 20).wrapping_neg()],
            region_bytes: 1 << 20,
            frame_bits: 36,
            sizes: sizes(shape),
            rights: RIGHTS.to_vec(),
            steps: 2500,
            seed: 40 + n as u64,
        };
        stream.run(world(shape));
    }
}

/// Operations on the two pages of a pair, on a superpage that contains them, and on another page in
/// the same bucket, in two spaces.
#[test]
fn small_worlds_enumerated_whole() {
    for shared in [false, true] {
        let shape = HashedShape { table_bytes: 32, superpages: true, shared, ..HashedShape::H8K };
        let k8 = sizes(shape)[1];
        let map = |space, addr, size, count| Op::Map {
            space,
            first: page(addr, size, 0x10_0000, Rights::ALL),
            count,
        };
        let unmap = |space, start, bytes| Op::Unmap {
            space,
            range: VirtRange::new(VirtAddr::new(start), bytes).unwrap(),
        };
        let ops = [
            Op::Create,
            map(0, 0, K4, 1),
            map(0, 0x1000, K4, 2),
            map(0, 0, k8, 1),
            map(1, 0, K4, 4),
            unmap(0, 0, 0x1000),
            unmap(0, 0, 0x2000),
            unmap(1, 0, 1 << 63),
            Op::Resize { space: 0, range: VirtRange::of_page(VirtAddr::new(0).page(k8)), to: K4 },
            Op::Resize { space: 0, range: VirtRange::of_page(VirtAddr::new(0).page(k8)), to: k8 },
            Op::Walk { space: 0, addr: VirtAddr::new(0x1fff), kind: Kind::Load },
            Op::Destroy { space: 0 },
        ];
        small_worlds(&|| world(shape), &ops, &[(1, 3), (2, 4), (3, 4), (8, 4)]);
    }
}

/// Operations on two pages of a cluster, with frames at corresponding positions or elsewhere, and
/// on a page that is larger than a cluster.
#[test]
fn small_worlds_with_subblocks_and_large_pages() {
    let shape = HashedShape {
        table_bytes: 32,
        larger_sizes: [size(14), None],
        ..HashedShape::H8K.with_partial_subblocks()
    };
    let map = |addr, size, frame, count| Op::Map {
        space: 0,
        first: page(addr, size, frame, Rights::ALL),
        count,
    };
    let unmap = |start, bytes| Op::Unmap {
        space: 0,
        range: VirtRange::new(VirtAddr::new(start), bytes).unwrap(),
    };
    let of = |bytes| VirtRange::new(VirtAddr::new(0), bytes).unwrap();
    let ops = [
        map(0, K4, 0x10_0000, 1),
        map(0, K4, 0x10_1000, 2),
        map(0x1000, K4, 0x10_1000, 1),
        map(0x1000, K4, 0x20_1000, 2),
        map(0, size(14).unwrap(), 0x10_0000, 1),
        unmap(0, 0x1000),
        unmap(0, 0x2000),
        unmap(0, 0x4000),
        Op::Resize { space: 0, range: of(0x4000), to: K4 },
        Op::Resize { space: 0, range: of(0x4000), to: size(14).unwrap() },
        Op::Protect {
            space: 0,
            range: VirtRange::new(VirtAddr::new(0x1000), 0x1000).unwrap(),
            rights: Rights::READ,
        },
        Op::Walk { space: 0, addr: VirtAddr::new(0x1fff), kind: Kind::Store },
    ];
    for (walk_sets_usage, replicated) in [(false, false), (true, false), (true, true)] {
        let shape = HashedShape { walk_sets_usage, replicated, ..shape };
        small_worlds(&|| world(shape), &ops, &[(2, 4), (8, 4)]);
    }
}

/// A walk tries the cluster first, and then each larger size that is in use. A size that no page
/// has costs nothing.
#[test]
fn each_size_in_use_is_a_probe() {
    let huge = [PageSize::SIZE_2M, PageSize::SIZE_1G];
    let mut world = world(HashedShape::C128K.with_large_pages());
    world.apply(Op::Create);
    let space = world.spaces[0].0;
    let references = |world: &mut World<Hashed>, addr| {
        let mut count = 0;
        let (addr, memory) = (VirtAddr::new(addr), &mut world.physical);
        let found = world.table.walk(space, addr, Kind::Load, memory, &mut |_| count += 1);
        (found.is_ok(), count)
    };
    let map = |world: &mut World<Hashed>, addr, size| {
        world.apply(Op::Map { space: 0, first: page(addr, size, 1 << 30, Rights::ALL), count: 1 });
    };
    assert_eq!(references(&mut world, 1 << 30), (false, 2));
    map(&mut world, 1 << 30, huge[1]);
    assert_eq!(references(&mut world, 1 << 30), (true, 2));
    map(&mut world, 3 << 30, huge[0]);
    assert_eq!(references(&mut world, 3 << 30), (true, 2));
    assert_eq!(references(&mut world, 1 << 30), (true, 4));
    map(&mut world, 5 << 30, K4);
    assert_eq!(references(&mut world, 5 << 30), (true, 2));
    assert_eq!(references(&mut world, 3 << 30), (true, 4));
    assert_eq!(references(&mut world, 1 << 30), (true, 6));
    world.apply(Op::Unmap { space: 0, range: VirtRange::ALL });
    assert_eq!(references(&mut world, 1 << 30), (false, 2));
    world.end();
}

/// A replicated page is found at the first attempt at each of its addresses, and takes one entry
/// per cluster. A table like the Itanium's is read and filled as with base pages (B10 §5.1).
#[test]
fn a_replicated_page_is_found_as_its_base_pages_are() {
    for entry_pages in [1, 2, 16] {
        let shape = HashedShape::inverted(16 << 20, entry_pages).with_large_pages();
        let shape = HashedShape { replicated: true, ..shape };
        let mut world = world(shape);
        world.apply(Op::Create);
        let large = page(4 << 20, PageSize::SIZE_2M, 2 << 20, Rights::ALL);
        world.apply(Op::Map { space: 0, first: large, count: 2 });
        let (space, mut references) = (world.spaces[0].0, 0);
        for n in 0..1024 {
            let addr = VirtAddr::new((4 << 20) + (n << 12) + 8);
            let memory = &mut world.physical;
            let found = world.table.walk(space, addr, Kind::Load, memory, &mut |_| references += 1);
            assert_eq!(found.map(|found| found.apply(addr).get()), Ok(addr.get() - (2 << 20)));
        }
        let least = if entry_pages == 1 { 1024 } else { 2048 };
        assert!((least..least + 400).contains(&references), "{references} of {entry_pages}");
        world.apply(Op::Unmap { space: 0, range: VirtRange::ALL });
        world.end();
    }
}

/// If there are frames for only half of a page's copies, the page is refused and no copy stays.
#[test]
fn a_replicated_page_is_entered_whole_or_not_at_all() {
    let large = size(20);
    let shape = HashedShape { larger_sizes: [large, None], replicated: true, ..HashedShape::H8K };
    let mut world = world(HashedShape { table_bytes: 32, ..shape });
    world.apply(Op::Create);
    world.physical.limit(2);
    let large = page(1 << 20, large.unwrap(), 1 << 20, Rights::ALL);
    // A frame has room for 128 entries of two pages.
    for count in [2, 1] {
        world.apply(Op::Map { space: 0, first: large, count });
        world.check();
    }
    let addr = VirtAddr::new((2 << 20) - 1);
    let found = world.table.query(world.spaces[0].0, addr, &world.physical);
    assert_eq!(found.map(|found| found.translation), Some(large));
    world.end();
}

/// The memory of a cluster outside its bucket, as a full entry and as a partial subblock.
#[test]
fn a_partial_subblock_takes_less() {
    for (shape, node_bytes) in
        [(HashedShape::C128K, 80), (HashedShape::C128K.with_partial_subblocks(), 32)]
    {
        let mut world = world(shape);
        world.apply(Op::Create);
        // Both clusters are in one bucket.
        for addr in [0, 1 << 39 | 1 << 27] {
            let first = page(addr, K4, 1 << 20, Rights::ALL);
            world.apply(Op::Map { space: 0, first, count: 8 });
        }
        let space = world.spaces[0].0;
        let taken = |world: &World<Hashed>| world.table.footprint_of(space).table_bytes;
        assert_eq!(taken(&world), (128 << 10) + node_bytes);
        // A partial subblock takes three reads (tag, frame, flags), and a full entry two (tag, page
        // entry).
        let mut count = 0;
        let (addr, memory) = (VirtAddr::new(0x3000), &mut world.physical);
        let found = world.table.walk(space, addr, Kind::Load, memory, &mut |_| count += 1);
        assert_eq!(found.map(|found| found.frame.get()), Ok((1 << 20) + 0x3000));
        assert_eq!(count, if node_bytes == 80 { 2 } else { 3 });
        world.end();
    }
}

/// With several pairs in one bucket, tests the number of reads for each, and the writes of a hit
/// further back in the chain.
#[test]
fn a_hit_in_the_chain_comes_to_its_front() {
    let shape = HashedShape { table_bytes: 32, ..HashedShape::H8K };
    let mut world = world(shape);
    world.apply(Op::Create);
    for addr in [0x2000, 0x4000, 0x6000, 0x8000] {
        world.apply(Op::Map { space: 0, first: page(addr, K4, addr, Rights::ALL), count: 1 });
    }
    let space = world.spaces[0].0;
    let mut walk = |addr| {
        let mut references: Vec<Reference> = Vec::new();
        let each = &mut |reference| references.push(reference);
        let addr = VirtAddr::new(addr);
        let result = world.table.walk(space, addr, Kind::Load, &mut world.physical, each);
        let written = references.iter().filter(|reference| reference.write).count();
        (result.is_ok(), references.len() - written, written)
    };
    // A hit reads the tag and the page entry, and before them the tag and the pointer of each entry
    // that it passes.
    assert_eq!(walk(0x2000), (true, 2, 0));
    assert_eq!(walk(0x8000), (true, 4, 0));
    assert_eq!(walk(0x6000), (true, 7, 3));
    assert_eq!(walk(0x6000), (true, 4, 0));
    assert_eq!(walk(0x8000), (true, 7, 3));
    assert_eq!(walk(0x4000), (true, 9, 3));
    assert_eq!(walk(0x8000), (true, 7, 3));
    // The even page of this pair is mapped and the odd page is not: its page entry is empty.
    assert_eq!(walk(0x3000), (false, 9, 0));
    assert_eq!(walk(0xa000), (false, 8, 0));
    world.check();
}

/// The bytes of an entry are those that the paper gives.
#[test]
fn entries_are_those_of_the_paper() {
    for (shape, table_bytes, node_bytes) in
        [(HashedShape::H8K, 8 << 10, 32), (HashedShape::C128K, 128 << 10, 80)]
    {
        let mut world = world(shape);
        world.apply(Op::Create);
        let space = world.spaces[0].0;
        let alone = Footprint { table_bytes, frame_bytes: table_bytes };
        assert_eq!(world.table.footprint_of(space), alone);
        // Both clusters hash to one bucket, because folding makes bits of the cluster number cancel
        // out.
        let cluster = 4096 * shape.entry_pages;
        for addr in [0, cluster << 24 | cluster << 12] {
            let first = page(addr, K4, 0x7000, Rights::READ);
            world.apply(Op::Map { space: 0, first, count: 1 });
        }
        let taken = world.table.footprint_of(space);
        assert_eq!(taken.table_bytes, table_bytes + node_bytes);
        let root = space.root();
        assert_eq!(world.physical.read_u64(root), 1);
        assert_ne!(world.physical.read_u64(root.wrapping_add(8)), 0);
        assert_eq!(world.physical.read_u32(root.wrapping_add(16)), 0x703);
        world.end();
    }
}

/// An inverted table has room for twice as many pages as memory has frames. A walk that finds its
/// page in the first entry reads one location, or two if a tag has several pages. If the table is
/// half full, a hit reads 1.2 to 1.3 entries on average, whatever the pages (B10 §5.1).
#[test]
fn an_inverted_table_half_full_reads_little_more_than_one_entry() {
    let memory_bytes = 32 << 20;
    for (entry_pages, more, packed) in [(1, 0, false), (2, 1, false), (16, 1, false), (16, 1, true)]
    {
        let shape = HashedShape { packed, ..HashedShape::inverted(memory_bytes, entry_pages) };
        let places = shape.table_bytes / (16 + 8 * entry_pages).next_power_of_two() * entry_pages;
        assert!(places >= 2 * (memory_bytes >> 12));
        let mut world = world(shape);
        world.apply(Op::Create);
        let pages = places / entry_pages / 2;
        for scatter in [1, 0x51_2345_6789] {
            let addr = |n: u64| ((n * scatter) & 0x000f_ffff_ffff) * (entry_pages << 12);
            for n in 0..pages {
                let first = page(addr(n), K4, 0, Rights::ALL);
                world.apply(Op::Map { space: 0, first, count: 1 });
            }
            let (space, mut references) = (world.spaces[0].0, 0);
            for n in 0..pages {
                let memory = &mut world.physical;
                let each = &mut |_| references += 1;
                let found =
                    world.table.walk(space, VirtAddr::new(addr(n)), Kind::Load, memory, each);
                assert!(found.is_ok());
            }
            let entries_a_hit = (references - more * pages) as f64 / pages as f64;
            assert!((1.15..1.35).contains(&entries_a_hit), "{entries_a_hit} of {entry_pages}");
            world.apply(Op::Unmap { space: 0, range: VirtRange::ALL });
        }
        world.end();
    }
}

/// The number of spaces is limited by the bits that the tag leaves for them.
#[test]
fn shared_tables_hold_as_many_spaces_as_their_tags_tell_apart() {
    let shape = HashedShape { shared: true, ..HashedShape::C128K };
    let mut world = world(shape);
    let max = 1 << 10;
    for _ in 0..max {
        world.apply(Op::Create);
    }
    let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
    assert_eq!(world.table.create(memory, frames), Err(Error::Unfit(Unfit::Spaces(max))));
    assert_eq!(world.physical.frames_out(), 1);
    let last = world.spaces.len() - 1;
    world.apply(Op::Map { space: last, first: page(0, K4, 0, Rights::ALL), count: 1 });
    let (first, last) = (world.spaces[0].0, world.spaces[last].0);
    let memory = &mut world.physical;
    let addr = VirtAddr::new(0);
    let found = world.table.walk(first, addr, Kind::Load, memory, &mut |_| {});
    assert_eq!(found, Err(Fault::NotMapped { level: 1 }));
    assert!(world.table.walk(last, addr, Kind::Load, memory, &mut |_| {}).is_ok());
    assert_eq!(world.table.footprint_of(last), Footprint::default());
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let what = "bytes of the hash table";
    let cases = [
        (
            HashedShape { table_bytes: 9000, ..HashedShape::H8K },
            Geometry::NotPowerOfTwo { what, value: 9000 },
        ),
        (
            HashedShape { table_bytes: 64, ..HashedShape::C128K },
            Geometry::OutOfRange { what, value: 64, min: 128, max: 1 << 40 },
        ),
        (
            HashedShape { entry_pages: 3, ..HashedShape::H8K },
            Geometry::NotPowerOfTwo { what: "pages in an entry", value: 3 },
        ),
        (
            HashedShape { entry_pages: 512, ..HashedShape::H8K },
            Geometry::OutOfRange { what: "pages in an entry", value: 512, min: 1, max: 256 },
        ),
        (
            HashedShape { larger_sizes: [size(15), None], ..HashedShape::C128K },
            Geometry::OutOfRange {
                what: "bits in a larger page's offset",
                value: 15,
                min: 16,
                max: 51,
            },
        ),
    ];
    for (shape, expected) in cases {
        assert_eq!(Hashed::new(shape).err(), Some(expected));
    }
}
