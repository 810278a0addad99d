//! Tests radix trees with various splits of the address: conventional, flattened and linear.

use std::collections::BTreeMap;

use addr::{Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Geometry, LinearArray, Reference, Split};

use crate::common::{Op, RIGHTS, Stream, Table, TreeTable, World, page, small_worlds};

const K4: PageSize = PageSize::SIZE_4K;

fn world(table: Split) -> World<Split> {
    let mut world = World::new(table).resizing();
    world.walks_mark = false;
    world
}

fn split(index_bits: &[u8], superpage_levels: &[u8]) -> Split {
    Split::new(index_bits, superpage_levels).unwrap()
}

fn stream(top: u64, sizes: &[PageSize], seed: u64) -> Stream {
    let region_bytes = 2 * sizes.last().unwrap().bytes().max(1 << 25);
    Stream {
        regions: vec![0, top / 2, top - region_bytes],
        region_bytes,
        frame_bits: 52,
        sizes: sizes.to_vec(),
        rights: RIGHTS.to_vec(),
        steps: 1500,
        seed,
    }
}

#[test]
fn streams_of_operations_do_what_the_model_does() {
    let cases: [(&[u8], &[u8], u64); 4] = [
        (&[9, 9, 9, 9], &[2, 3], 1 << 47),
        (&[1, 13, 12, 4, 11], &[2, 3], 1 << 52),
        (&[2, 10, 10, 10, 10, 10], &[], u64::MAX - (1 << 26) + 1),
        (&[10, 9, 9], &[3, 2], 1 << 39),
    ];
    for (n, (index_bits, superpage_levels, top)) in cases.into_iter().enumerate() {
        let table = || split(index_bits, superpage_levels);
        let stream = stream(top, table().page_sizes(), 120 + n as u64);
        stream.run(world(table()));
        stream.run(World::new(table().with_usage()).resizing());
    }
    stream(LinearArray.range().start().get(), &[K4], 130).run(world(Split::linear().unwrap()));
}

/// Flattened tables are large, so fewer operations are tested.
#[test]
fn small_worlds_enumerated_whole() {
    let g1 = PageSize::SIZE_1G;
    let map = |addr, size| Op::Map {
        space: 0,
        first: page(addr, size, 0x4000_0000, Rights::ALL),
        count: 1,
    };
    let ops = [
        map(0x3fff_f000, K4),
        map(0x4000_0000, K4),
        map(0x4000_0000, g1),
        Op::Unmap { space: 0, range: VirtRange::of_page(VirtAddr::new(0).page(g1)) },
        Op::Unmap { space: 0, range: VirtRange::ALL },
    ];
    let flattened = || Split::flattened().unwrap();
    small_worlds(&|| world(flattened()), &ops[..4], &[(1, 1), (2, 2)]);
    for index_bits in [&[9u8, 9, 18][..], &[9, 9, 9, 9]] {
        let new = || world(split(index_bits, &[index_bits.len() as u8 - 1]));
        small_worlds(&new, &ops[..2], &[(3, 2)]);
    }
}

/// Uses every one of the many entries of a large table, and then removes all of them.
#[test]
fn large_tables_count_all_their_entries() {
    let mut world = world(split(&[9, 9, 18], &[]));
    world.apply(Op::Create);
    let bytes = 1 << 30;
    let first = page(bytes, K4, 0, Rights::ALL);
    world.apply(Op::Map { space: 0, first, count: bytes >> 12 });
    for (start, bytes, frames) in [(bytes, bytes - 0x1000, 3), (2 * bytes - 0x1000, 0x1000, 1)] {
        let range = VirtRange::new(VirtAddr::new(start), bytes).unwrap();
        world.apply(Op::Unmap { space: 0, range });
        assert_eq!(world.physical.frames_out(), frames);
    }
    world.end();
}

/// The references of a walk depend on the split: a flattened table has two where a conventional
/// table has four.
#[test]
fn a_walk_reads_one_entry_a_level() {
    let cases: [(Split, usize); 4] = [
        (split(&[9, 9, 9, 9], &[2, 3]), 4),
        (split(&[18, 9, 9], &[2, 3]), 3),
        (split(&[9, 9, 18], &[2]), 3),
        (Split::flattened().unwrap(), 2),
    ];
    for (table, references_expected) in cases {
        let mut world = world(table);
        world.apply(Op::Create);
        let addr = 0x1234_5678_9000;
        world.apply(Op::Map { space: 0, first: page(addr, K4, 0x5000, Rights::ALL), count: 1 });
        let mut references = 0;
        let space = world.spaces[0].0;
        let each = &mut |_| references += 1;
        let addr = VirtAddr::new(addr);
        let found = world.table.walk(space, addr, Kind::Load, &mut world.physical, each).unwrap();
        assert_eq!((found.frame, references), (PhysAddr::new(0x5000), references_expected));
        world.end();
    }
}

/// A machine with an unlimited TLB that walks the array, to measure how deep misses nest.
struct Machine {
    world: World<Split>,
    tlb: BTreeMap<Page, PhysAddr>,
}

impl Machine {
    /// Refills the TLB for `addr`. Returns the number of references and of nested misses.
    fn refill(&mut self, addr: u64) -> (usize, usize) {
        let addr = VirtAddr::new(addr);
        let table = &self.world.table;
        let space = self.world.spaces[0].0;
        let known = (1..=LinearArray::LEVELS).find_map(|level| {
            let frame = self.tlb.get(&LinearArray.table_page(addr, level))?;
            Some(LinearArray.node(level, *frame))
        });
        let start = known.unwrap_or(table.root(space));
        let mut references: Vec<Reference> = Vec::new();
        let each = &mut |reference| references.push(reference);
        let memory = &mut self.world.physical;
        let found = table.walk_from(start, addr, Kind::Load, memory, each);
        let whole = table.walk(space, addr, Kind::Load, memory, &mut |_| {});
        assert_eq!(found, whole);
        let mut nested = 0;
        for node in references.iter().filter_map(|reference| reference.next()) {
            let translation = LinearArray.translation_of(addr, node);
            assert_eq!(self.tlb.insert(translation.page, translation.frame), None);
            nested += 1;
        }
        for reference in &references {
            let level = reference.level;
            if level <= LinearArray::LEVELS {
                // The entry has the address in the array that [`LinearArray`] computes: the frame
                // of its page in the TLB, plus the offset.
                let entry = LinearArray.entry(addr, level);
                let frame = self.tlb[&entry.page(K4)];
                assert_eq!(reference.addr.get(), frame.get() + entry.offset_in(K4));
            }
        }
        (references.len(), nested)
    }
}

/// There are at most five nested misses. There is none if the TLB has the page of the array, and
/// otherwise one for each level at which the address diverges from the earlier address.
#[test]
fn misses_on_the_linear_array_nest() {
    let mut world = world(Split::linear().unwrap());
    world.apply(Op::Create);
    let addr = 0x7654_3210_9876_5000;
    let parted = |shift: u32| addr ^ 1 << shift;
    for shift in [12, 20, 21, 29, 30, 47, 56, 57, 62] {
        world.apply(Op::Map {
            space: 0,
            first: page(parted(shift), K4, 0x5000, Rights::READ),
            count: 1,
        });
    }
    let mut machine = Machine { world, tlb: BTreeMap::new() };
    assert_eq!(machine.refill(parted(12)), (6, 5));
    assert_eq!(machine.refill(parted(12)), (1, 0));
    assert_eq!(machine.refill(parted(20)), (1, 0));
    assert_eq!(machine.refill(parted(21)), (2, 1));
    assert_eq!(machine.refill(parted(29)), (2, 1));
    assert_eq!(machine.refill(parted(30)), (3, 2));
    assert_eq!(machine.refill(parted(47)), (4, 3));
    assert_eq!(machine.refill(parted(56)), (5, 4));
    assert_eq!(machine.refill(parted(57)), (6, 5));
    assert_eq!(machine.refill(parted(62)), (6, 5));
    let all = VirtRange::new(VirtAddr::new(0), LinearArray.range().start().get()).unwrap();
    for page in machine.tlb.keys() {
        let level = (1..=5).find(|&level| {
            let pages = LinearArray.pages_for(all, level);
            pages.contains(page.start())
        });
        assert!(level.is_some() && LinearArray.range().contains(page.start()));
    }
    machine.world.end();
}

#[test]
fn splits_that_cannot_be_are_refused() {
    let refused = |index_bits: &[u8], levels: &[u8]| Split::new(index_bits, levels).err();
    let range = |what, value, min, max| Some(Geometry::OutOfRange { what, value, min, max });
    assert_eq!(refused(&[], &[]), range("levels", 0, 1, 8));
    assert_eq!(refused(&[9, 19], &[]), range("bits in an index", 19, 1, 18));
    assert_eq!(refused(&[18, 18, 17], &[]), range("bits in an address", 65, 0, 64));
    assert_eq!(refused(&[9, 9], &[1]), range("levels up to superpages", 1, 2, 2));
    let what = "bits in a superpage's offset";
    assert_eq!(refused(&[4, 18, 18, 12], &[4]), range(what, 60, 0, 51));
}
