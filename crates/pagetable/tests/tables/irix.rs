//! Tests of IRIX's table, in which each base page has an entry with the size of its page.

use addr::{Kind, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Error, Flush, Irix, Mount, Mounted, Reference, SparseMemory, Unfit};
use physmem::Physmem;

use crate::common::{Op, RIGHTS, Stream, Table, World, page, small_worlds};

const K4: PageSize = PageSize::SIZE_4K;

fn size(shift: u8) -> PageSize {
    PageSize::from_shift(shift).unwrap()
}

fn world(base: PageSize) -> World<Irix> {
    let mut world = World::new(Irix::new(base).unwrap()).resizing();
    world.walks_mark = false;
    world
}

#[test]
fn streams_of_operations_do_what_the_model_does() {
    for (seed, base) in [(31, K4), (32, size(14))] {
        let table = Irix::new(base).unwrap();
        let stream = Stream {
            regions: vec![0, 1 << 36, (1 << 47) - (1 << 26)],
            region_bytes: 1 << 26,
            frame_bits: 40,
            sizes: table.page_sizes().to_vec(),
            rights: RIGHTS.to_vec(),
            steps: 300,
            seed,
        };
        stream.run(world(base));
        stream.run(World::new(table.with_usage()).resizing());
    }
}

/// Uses pages of three sizes around the boundary of two level-1 tables.
#[test]
fn small_worlds_enumerated_whole() {
    let map = |addr, shift: u8, frame| Op::Map {
        space: 0,
        first: page(addr, size(shift), frame, Rights::ALL),
        count: 1,
    };
    let unmap = |start, bytes| Op::Unmap {
        space: 0,
        range: VirtRange::new(VirtAddr::new(start), bytes).unwrap(),
    };
    let ops = [
        map(0x100_0000, 12, 0x1000),
        map(0x100_0000, 14, 0x4000),
        map(0x100_0000, 16, 0x3_0000),
        map(0xff_0000, 16, 0x2_0000),
        unmap(0xff_0000, 0x1_4000),
        unmap(0x100_0000, 0x1000),
        Op::Unmap { space: 0, range: VirtRange::ALL },
    ];
    small_worlds(&|| world(K4), &ops, &[(1, 3), (3, 3), (4, 3), (9, 4)]);
}

/// Tests figure 2 of G98: with base pages of 4K, a page of 16K has four entries with adjacent frame
/// numbers and equal sizes. A walk of any of its addresses finds the whole page.
#[test]
fn figure_2() {
    let mut world = world(K4);
    world.apply(Op::Create);
    let first = page(0x4000, size(14), 0x8000, Rights::ALL);
    world.apply(Op::Map { space: 0, first, count: 1 });
    let space = world.spaces[0].0;
    let mut entries = Vec::new();
    for number in 0..4u64 {
        let addr = VirtAddr::new(0x4000 + number * 0x1000);
        let mut references: Vec<Reference> = Vec::new();
        let each = &mut |reference| references.push(reference);
        let found = world.table.walk(space, addr, Kind::Load, &mut world.physical, each).unwrap();
        assert_eq!(found, first);
        assert_eq!(references.len(), 3, "three levels");
        let last = references[2];
        entries.push((last.addr, world.physical.read_u64(last.addr)));
    }
    for (number, &(at, entry)) in entries.iter().enumerate() {
        assert_eq!(at.get(), entries[0].0.get() + 8 * number as u64);
        assert_eq!(entry >> 12, 8 + number as u64, "the frame number of the base page");
        assert_eq!(entry >> 9 & 7, 1, "the code of 16K");
        assert_eq!(entry & 0xff, entries[0].1 & 0xff, "equal attributes");
    }
    world.end();
}

/// The size of a page is reduced and increased again; no entry, table or frame moves.
#[test]
fn sizes_change_in_place() {
    let mut table = Mount::tree(Irix::new(K4).unwrap(), SparseMemory::new(64 << 20));
    let mut frames = Physmem::buddy(PhysAddr::new(0), 64 << 20, K4).unwrap();
    let space = Mounted::create(&mut table, &mut frames).unwrap();
    let first = page(0x1_0000, size(16), 0x5_0000, Rights::ALL);
    Mounted::map(&mut table, space, first, 1, &mut frames).unwrap().done(&mut frames);
    let addr = VirtAddr::new(0x1_5678);
    let entry_of = |table: &mut Mount<Irix, SparseMemory>| {
        let mut references = Vec::new();
        let found = Mounted::walk(table, space, addr, Kind::Load, &mut references).unwrap();
        (found.page.size(), found.apply(addr), references[2].addr)
    };
    let before = entry_of(&mut table);
    let range = VirtRange::of_page(first.page);
    let (used, mut pages) = (frames.used_bytes(), Vec::new());
    for (shift, count) in [(14, 4), (12, 16), (14, 4), (16, 1)] {
        let forget = &mut |flush: &Flush| {
            pages.push(flush.sizes().map(PageSize::bytes).sum::<u64>() >> 12);
        };
        let to = size(shift);
        let mapped = Mounted::resize(&mut table, space, range, to, &mut frames, forget).unwrap();
        assert_eq!(mapped.len(), count);
        assert_eq!(entry_of(&mut table), (size(shift), before.1, before.2));
        assert_eq!(frames.used_bytes(), used);
    }
    assert_eq!(pages, [16, 4, 1, 4], "the token names the pages as they were");
    // A hole cannot be part of a larger page.
    let small = size(14);
    let forget = &mut |_: &Flush| {};
    Mounted::resize(&mut table, space, range, small, &mut frames, forget).unwrap();
    let hole = VirtRange::of_page(VirtAddr::new(0x1_8000).page(small));
    Mounted::unmap(&mut table, space, hole, &mut |_| ()).unwrap().done(&mut frames);
    let refused = Mounted::resize(&mut table, space, range, size(16), &mut frames, forget);
    assert!(matches!(refused, Err(Error::NotMapped { .. })));
    assert_eq!(entry_of(&mut table).0, small);
}

#[test]
fn what_it_cannot_hold_is_refused() {
    for shift in [11, 13, 16] {
        assert!(Irix::new(size(shift)).is_err(), "a base page of {}", size(shift));
    }
    let m2 = PageSize::SIZE_2M;
    for (first, expected) in [
        (page(0, m2, 0, Rights::ALL), Unfit::PageSize(m2).into()),
        (page(1 << 47, K4, 0, Rights::ALL), Unfit::Virtual(VirtAddr::new(1 << 47)).into()),
        (
            page(0, size(16), 0x4000, Rights::ALL),
            Error::Misaligned { addr: 0x4000, size: size(16) },
        ),
    ] {
        let mut world = world(K4);
        world.apply(Op::Create);
        let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
        let space = world.spaces[0].0;
        assert_eq!(world.table.map(space, first, 1, memory, frames).err(), Some(expected));
        world.check();
    }
}
