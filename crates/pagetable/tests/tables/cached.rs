//! Tests the software TLB, the TSB and the PowerPC's table in front of tables of every kind.

use std::cell::Cell;

use addr::{Kind, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{
    CacheShape, Cached, Error, Geometry, Guarded, Hashed, HashedShape, Mpt, Space, Unfit, X86_64,
};

use crate::common::physical::Physical;
use crate::common::{Op, RIGHTS, Stream, Table, World, page, small_worlds};

const K4: PageSize = PageSize::SIZE_4K;

fn world<T: pagetable::PageTable + 'static>(shape: CacheShape, behind: T) -> World<Cached<T>> {
    let mut world = World::new(Cached::new(shape, behind).unwrap()).resizing();
    world.walks_mark = shape.keeps_usage;
    world
}

/// Caches so small that pages evict each other, and two caches of the literature.
fn shapes() -> [CacheShape; 5] {
    let tiny = CacheShape { table_bytes: 256, ..CacheShape::S8K };
    [
        tiny,
        CacheShape { pairs: false, ..tiny },
        CacheShape { table_bytes: 512, ..CacheShape::powerpc(0) },
        CacheShape::S8K,
        CacheShape::powerpc(1 << 20),
    ]
}

fn stream(sizes: &[u8], seed: u64) -> Stream {
    let sizes: Vec<_> = sizes.iter().filter_map(|&shift| PageSize::from_shift(shift)).collect();
    Stream {
        regions: vec![0, 1 << 31, 1 << 46],
        region_bytes: 2 << sizes.last().unwrap().shift().max(20),
        frame_bits: 36,
        sizes,
        rights: RIGHTS.to_vec(),
        steps: 1500,
        seed,
    }
}

#[test]
fn streams_of_operations_do_what_the_model_does() {
    for (n, shape) in shapes().into_iter().enumerate() {
        println!("{shape:?}");
        let seed = 80 + 10 * n as u64;
        let usage = shape.keeping_usage();
        stream(&[12], seed).run(world(shape, Mpt::new()));
        stream(&[12], seed + 1).run(world(usage, Mpt::with_usage()));
        let guarded = || Guarded::new(16).unwrap();
        stream(&[12, 13, 16], seed + 2).run(world(shape, guarded()));
        stream(&[12, 13, 16], seed + 3).run(world(usage, guarded().with_usage()));
        stream(&[12, 21], seed + 4).run(world(shape, X86_64::<4, false>::new()));
        stream(&[12, 21], seed + 5).run(world(usage, X86_64::<4>::new()));
        let hashed = Hashed::new(HashedShape { shared: true, ..HashedShape::H8K }).unwrap();
        stream(&[12], seed + 6).run(world(shape, hashed));
    }
}

/// The number of reads of at most eight bytes that `operation` makes in a table with these pages.
fn words(
    shape: CacheShape,
    pages: &[u64],
    operation: impl FnOnce(&mut dyn Table, Space, &mut Counted),
) -> u64 {
    let mut table = Cached::new(shape, Guarded::new(16).unwrap()).unwrap();
    let mut physical = Physical::new();
    let mut memory = Counted { memory: physical.clone(), reads: Cell::new(0) };
    let space = table.create(&mut memory, &mut physical).unwrap();
    for &addr in pages {
        let first = page(addr, K4, 0x10_0000, Rights::ALL);
        table.map(space, first, 1, &mut memory, &mut physical).unwrap().done(&mut physical);
    }
    memory.reads.set(0);
    operation(&mut table, space, &mut memory);
    memory.reads.get()
}

/// Memory that counts reads.
struct Counted {
    memory: Physical,
    reads: Cell<u64>,
}

impl Memory for Counted {
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        self.reads.set(self.reads.get() + 1);
        self.memory.read_u64(addr)
    }

    fn read_u32(&self, addr: PhysAddr) -> u32 {
        self.reads.set(self.reads.get() + 1);
        self.memory.read_u32(addr)
    }

    fn read_u8(&self, addr: PhysAddr) -> u8 {
        self.reads.set(self.reads.get() + 1);
        self.memory.read_u8(addr)
    }

    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        self.memory.write_u64(addr, value);
    }

    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        self.memory.write_u32(addr, value);
    }

    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        self.memory.write_u8(addr, value);
    }

    addr::exchanges_of_one_user!();
}

/// A cache evicts only the pages that changed; addresses between them cost nothing.
#[test]
fn forgetting_costs_by_page_that_changes() {
    let all = VirtRange::new(VirtAddr::new(0x4000_0000), 16 << 20).unwrap();
    let spread: Vec<u64> = (0..16).map(|n| all.start().get() + (n << 20)).collect();
    for (shape, places) in [
        (CacheShape::S8K, 1),
        (CacheShape::S128K, 1),
        (CacheShape::TSB_1M, 1),
        (CacheShape::powerpc(1 << 26), 16),
    ] {
        let protect = |table: &mut dyn Table, space, memory: &mut Counted| {
            let each = &mut |_| {};
            let _ = table.protect(space, all, Rights::READ, memory, each).unwrap();
        };
        let cached = words(shape, &spread, protect);
        let behind = words(shape, &spread, |table, space, memory| {
            table.visit(space, all, memory, &mut |_| {});
        });
        // Each changed entry is read once more for the exchange, and each place of the cache that
        // may hold it is read once.
        assert!(cached <= behind + 16 + 16 * places, "{cached} after {behind}, {shape:?}");
    }
    let far = [0x1000, 0x7fff_0000_0000];
    let unmapped = words(CacheShape::TSB_1M, &far, |table, space, memory| {
        let _ = table.unmap(space, VirtRange::ALL, memory, &mut |_| {}).unwrap();
    });
    assert!(unmapped < 200, "{unmapped}");
}

/// Operations on the two pages of a pair, on another page with the same place in the cache, and on
/// a superpage that contains the pair, in two spaces.
#[test]
fn small_worlds_enumerated_whole() {
    let k8 = PageSize::from_shift(13).unwrap();
    let map = |addr, size| Op::Map {
        space: 0,
        first: page(addr, size, 0x10_0000, Rights::READ | Rights::WRITE),
        count: 1,
    };
    let walk = |space, addr, kind| Op::Walk { space, addr: VirtAddr::new(addr), kind };
    let ops = [
        Op::Create,
        map(0x2000, K4),
        map(0x3000, K4),
        map(0x2000, k8),
        Op::Unmap { space: 0, range: VirtRange::new(VirtAddr::new(0x3000), 4096).unwrap() },
        Op::Unmap { space: 0, range: VirtRange::ALL },
        Op::Protect { space: 0, range: VirtRange::ALL, rights: Rights::READ },
        walk(0, 0x2000, Kind::Load),
        walk(0, 0x3000, Kind::Store),
        walk(1, 0x3000, Kind::Load),
        Op::Destroy { space: 0 },
    ];
    for pairs in [false, true] {
        for keeps_usage in [false, true] {
            let shape = CacheShape { table_bytes: 16, pairs, keeps_usage, ..CacheShape::S8K };
            let new = || {
                let table = Guarded::new(2).unwrap();
                world(shape, if keeps_usage { table.with_usage() } else { table })
            };
            small_worlds(&new, &ops, &[(1, 3), (2, 3), (9, 4)]);
        }
    }
}

/// Compares the number of references at each level, for a first walk of a page, a second walk, and
/// a walk of the other page of its pair.
#[test]
fn a_hit_never_goes_to_the_table_behind() {
    let cases = [
        // The first walk reads the tag and six levels, and writes both parts of the entry. A hit
        // reads the tag and the page entry.
        (CacheShape::S8K, 1, 2, [2, 2]),
        // If usage is kept, the other page of the pair is not inserted at the same time.
        (CacheShape::S8K.keeping_usage(), 1, 2, [2, 4]),
        // A lookup is one reference of 16 bytes.
        (CacheShape::TSB_1M, 1, 1, [1, 3]),
        // A miss reads all eight places of both buckets.
        (CacheShape::powerpc(1 << 20), 16, 1, [1, 18]),
    ];
    for (shape, reads_of_miss, reads_of_hit, expected) in cases {
        let mut world = world(shape, Mpt::new());
        world.apply(Op::Create);
        world.apply(Op::Map { space: 0, first: page(0x2000, K4, 0, Rights::ALL), count: 2 });
        let space = world.spaces[0].0;
        let mut walk = |addr| {
            let mut levels = [0; 7];
            let each = &mut |reference: pagetable::Reference| {
                levels[usize::from(reference.level)] += 1;
            };
            let (addr, memory) = (VirtAddr::new(addr), &mut world.physical);
            assert!(world.table.walk(space, addr, Kind::Load, memory, each).is_ok());
            levels
        };
        assert_eq!(walk(0x2000), [reads_of_miss + 2, 1, 1, 1, 1, 1, 1], "{shape:?}");
        assert_eq!(walk(0x2000), [reads_of_hit, 0, 0, 0, 0, 0, 0]);
        assert_eq!(walk(0x2000)[0], expected[0]);
        assert_eq!(walk(0x3000)[0], expected[1], "{shape:?}");
    }
}

/// More spaces are created and ended than there are tags. No space ever finds an entry of an ended
/// space.
#[test]
fn a_space_never_finds_the_entries_of_one_that_ended() {
    let mut world = world(CacheShape::S8K, Guarded::new(16).unwrap());
    world.apply(Op::Create);
    let first = |frame| page(0x2000, K4, frame, Rights::ALL);
    for n in 1..300u64 {
        world.apply(Op::Create);
        let walk = Op::Walk { space: 1, addr: VirtAddr::new(0x2000), kind: Kind::Load };
        world.apply(walk);
        world.apply(Op::Map { space: 1, first: first(n << 12), count: 1 });
        world.apply(walk);
        world.apply(walk);
        world.apply(Op::Destroy { space: 1 });
    }
    world.check();
    world.end();
}

#[test]
fn shapes_and_spaces_that_cannot_be_are_refused() {
    let refused = |shape| Cached::new(shape, Mpt::new()).err();
    let what = "bytes of the cache";
    assert_eq!(
        refused(CacheShape { table_bytes: 100, ..CacheShape::S8K }),
        Some(Geometry::NotPowerOfTwo { what, value: 100 })
    );
    assert_eq!(
        refused(CacheShape { table_bytes: 128, ..CacheShape::powerpc(0) }),
        Some(Geometry::OutOfRange { what, value: 128, min: 256, max: 1 << 40 })
    );
    let what = "entries in a bucket";
    assert_eq!(
        refused(CacheShape { bucket_entries: 6, ..CacheShape::S8K }),
        Some(Geometry::NotPowerOfTwo { what, value: 6 })
    );
    // There are 13 bits below the address of a pair. One of them marks a valid entry, and five
    // encode one of 19 page sizes, which leaves seven for the space.
    let mut world = world(CacheShape::S8K, Guarded::new(16).unwrap());
    for _ in 0..128 {
        world.apply(Op::Create);
    }
    let before = world.physical.frames_out();
    let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
    assert_eq!(world.table.create(memory, frames), Err(Error::Unfit(Unfit::Spaces(128))));
    assert_eq!(world.physical.frames_out(), before);
    world.end();
}
