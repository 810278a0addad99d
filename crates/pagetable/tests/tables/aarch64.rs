//! Compares AArch64's page tables with the model, and byte by byte with the manual.

use addr::{Attributes, Kind, Memory, MemoryType, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{
    Aarch64, Aarch64Entries, Error, Flush, Reference, Space, Translation, Unfit, Usage,
};

use crate::common::physical::Physical;
use crate::common::{Op, RIGHTS, Stream, Table, World, page, small_worlds};
use crate::decode;

const fn size(shift: u8) -> PageSize {
    PageSize::from_shift(shift).unwrap()
}

fn run_streams<const GRANULE: u8, const BITS: u8>(sizes: &[u8], seed: u64, steps: usize) {
    let end = 1u64 << BITS;
    let stream = Stream {
        regions: vec![0, end / 2, end - (2 << 30), end.wrapping_neg(), (2u64 << 30).wrapping_neg()],
        region_bytes: 2 << 30,
        frame_bits: 38,
        sizes: sizes.iter().map(|&shift| size(shift)).collect(),
        rights: RIGHTS.to_vec(),
        steps,
        seed,
    };
    let tables = [Aarch64::<GRANULE, BITS>::new(), Aarch64::<GRANULE, BITS>::new().with_bbm2()];
    for table in tables {
        let mut world = World::new(table);
        (world.resizes, world.attributes) = (true, MemoryType::ALL.map(Attributes::of).to_vec());
        stream.run_with(world, |world| {
            let geometry = (u32::from(GRANULE), u32::from(BITS));
            decode::check(world, |root, addr| {
                decode::aarch64(&world.physical, root, addr, geometry)
            });
        });
    }
    let mut world = World::new(Aarch64::<GRANULE, BITS, false>::new());
    (world.resizes, world.walks_mark) = (true, false);
    stream.run(world);
}

#[test]
fn streams_of_operations_do_what_the_model_does() {
    run_streams::<12, 48>(&[12, 16, 21, 25, 30], 1, 5000);
    run_streams::<12, 52>(&[12, 16, 21, 25], 2, 2000);
    run_streams::<14, 48>(&[14, 21, 25, 30], 3, 2000);
    run_streams::<14, 52>(&[14, 21, 25], 4, 2000);
    run_streams::<16, 48>(&[16, 21, 29], 5, 2000);
    run_streams::<16, 52>(&[16, 21, 29], 6, 2000);
}

#[test]
#[ignore = "minutes"]
fn a_million_operations_do_what_the_model_does() {
    run_streams::<12, 48>(&[12, 16, 21, 25, 30], 7, 334_000);
    run_streams::<14, 48>(&[14, 21, 25, 30], 8, 334_000);
    run_streams::<16, 48>(&[16, 21, 29], 9, 334_000);
    run_streams::<12, 52>(&[12, 16, 21, 25], 10, 334_000);
    run_streams::<14, 52>(&[14, 21, 25], 11, 334_000);
    run_streams::<16, 52>(&[16, 21, 29], 12, 334_000);
}

#[test]
fn small_worlds_enumerated_whole() {
    let mut ops = crate::common::around_seam(size(21)).to_vec();
    let whole = VirtRange::new(VirtAddr::new(1 << 21), 1 << 21).unwrap();
    ops.push(Op::Resize { space: 0, range: whole, to: size(16) });
    let world = || World::new(Aarch64::<12>::new()).resizing();
    small_worlds(&world, &ops, &[(1, 3), (2, 3), (3, 3), (4, 4)]);
}

/// Fields of an entry, as hexadecimal values in the lower half: 3 for a page, 1 for a block, the
/// memory type from 4, AP\[1\] 40, AP\[2\] 80, SH 300, AF 400, nG 800. Bit numbers in the upper
/// half: DBM 51, the contiguous bit 52, PXN 53, UXN 54, NA 58.
#[test]
fn entries_are_those_of_the_manual() {
    let (dbm, cont, pxn, uxn, na) = (1 << 51, 1 << 52, 1 << 53, 1 << 54, 1 << 58);
    let frame = 0x7f_c000_0000;
    let of = |shift, rights| page(0x3f_c000_0000, size(shift), frame, Rights::from_bits(rights));
    let with = |memory, first: Translation| first.with(Attributes::of(memory));
    let cases = [
        (of(12, 1), 0xb83 | pxn | uxn),
        (of(12, 3), 0xb83 | dbm | pxn | uxn),
        (of(12, 5), 0xb83 | uxn),
        (of(12, 13), 0xbc3 | pxn),
        (of(12, 15), 0xbc3 | dbm | pxn),
        (Translation { global: true, ..of(12, 5) }, 0x383 | uxn),
        (of(12, 0), 0xb82 | na | pxn | uxn),
        (with(MemoryType::WriteCombining, of(12, 3)), 0xb87 | dbm | pxn | uxn),
        (with(MemoryType::Uncached, of(12, 3)), 0xb8b | dbm | pxn | uxn),
        (with(MemoryType::Device, of(12, 3)), 0xb8f | dbm | pxn | uxn),
        (of(16, 1), 0xb83 | cont | pxn | uxn),
        (of(21, 1), 0xb81 | pxn | uxn),
        (of(25, 1), 0xb81 | cont | pxn | uxn),
        (of(30, 1), 0xb81 | pxn | uxn),
    ];
    for (first, expected) in cases {
        let mut world = World::new(Aarch64::<12>::new());
        world.apply(Op::Create);
        world.attributes = vec![first.attributes];
        world.apply(Op::Map { space: 0, first, count: 1 });
        let (space, addr) = (world.spaces[0].0, first.page.start());
        let at = last_read(&mut world, 0x3f_c000_0000, Kind::Fetch);
        let present = expected & 1 == 1;
        let fetched = first.rights.allows(Kind::Fetch) && present;
        let accessed = if fetched { 0x400 } else { 0 };
        let memory = &mut world.physical.clone();
        assert_eq!(memory.read_u64(at), frame | expected | accessed, "{first:?}");
        // The first store clears AP[2]. When the page loses the right to write, DBM is cleared, and
        // the dirty state is kept in the OS's bit.
        if first.rights.contains(Rights::WRITE) {
            let walked = world.table.walk(space, addr, Kind::Store, memory, &mut |_| {});
            walked.unwrap();
            let written = frame | expected & !0x80 | 0x400;
            assert_eq!(memory.read_u64(at), written, "{first:?}");
            let range = VirtRange::of_page(first.page);
            let rights = Rights::from_bits(first.rights.bits() & !2);
            let flush = world.table.protect(space, range, rights, memory, &mut |_| {}).unwrap();
            flush.done(memory);
            assert_eq!(memory.read_u64(at), written & !dbm | 0x80 | 1 << 55);
            let used = Usage { referenced: true, dirty: true, marked: false };
            assert_eq!(world.table.query(space, addr, memory).unwrap().usage, used);
        }
    }
}

fn last_read(world: &mut World<dyn Table>, addr: u64, kind: Kind) -> PhysAddr {
    let mut last = PhysAddr::new(0);
    let each = &mut |reference: Reference| last = reference.addr;
    let space = world.spaces[0].0;
    let _ = world.table.walk(space, VirtAddr::new(addr), kind, &mut world.physical, each);
    last
}

/// For each granule: the number of entries that a walk reads, the lowest granule of each half, and
/// the position of the frame's upper bits.
#[test]
fn granules_have_their_geometry() {
    fn check<const GRANULE: u8, const BITS: u8>(lookups: usize, frame: u64, bits: u64) {
        for addr in [0, 1 << 47, 1u64 << (BITS - 1), (1u64 << GRANULE).wrapping_neg()] {
            let mut world = World::new(Aarch64::<GRANULE, BITS>::new());
            world.apply(Op::Create);
            let first = page(addr, size(GRANULE), frame, Rights::READ);
            world.apply(Op::Map { space: 0, first, count: 1 });
            let mut reads = Vec::new();
            let each = &mut |reference: Reference| reads.push(reference);
            let space = world.spaces[0].0;
            let addr = VirtAddr::new(addr);
            let memory = &mut world.physical.clone();
            let found = world.table.walk(space, addr, Kind::Load, memory, each).unwrap();
            assert_eq!(found.frame, PhysAddr::new(frame));
            reads.retain(|reference| !reference.write);
            assert_eq!(reads.len(), lookups);
            let entry = memory.read_u64(reads[lookups - 1].addr);
            assert_eq!(entry & 0x0003_ffff_ffff_f300, bits, "{GRANULE} {BITS}");
            world.end();
        }
    }
    check::<12, 48>(4, 0x8765_4321_f000, 0x8765_4321_f300);
    check::<14, 48>(4, 0x8765_4321_c000, 0x8765_4321_c300);
    check::<16, 48>(3, 0x8765_4321_0000, 0x8765_4321_0300);
    check::<12, 52>(5, 0x000d_8765_4321_f000, 0x0001_8765_4321_f300);
    check::<14, 52>(4, 0x000d_8765_4321_c000, 0x0001_8765_4321_c300);
    check::<16, 52>(3, 0x000d_8765_4321_0000, 0x0000_8765_4321_d300);
}

/// The table for TTBR1_EL1 follows the table for TTBR0_EL1, which takes at least 64 bytes. TCR_EL1:
/// T0SZ from bit 0, TG0 14, T1SZ 16, TG1 30, HA 39, HD 40, DS 59.
#[test]
fn registers_are_those_of_the_manual() {
    fn check<const GRANULE: u8, const BITS: u8>(upper: u64, control: u64) {
        let space = Space::new(0, PhysAddr::new(0x8765_4321_0000));
        let expected = [0x8765_4321_0000, 0x8765_4321_0000 + upper];
        assert_eq!(Aarch64::<GRANULE, BITS>::ttbrs(space), expected, "{GRANULE} {BITS}");
        assert_eq!(Aarch64Entries::<GRANULE, BITS, true>::TCR, control, "{GRANULE} {BITS}");
        let unmarked = Aarch64Entries::<GRANULE, BITS, false>::TCR;
        assert_eq!(unmarked, control & !(3 << 39), "{GRANULE} {BITS}");
    }
    check::<12, 48>(4096, 0x0000_0180_8010_0010);
    check::<14, 48>(64, 0x0000_0180_4010_8010);
    check::<16, 48>(512, 0x0000_0180_c010_4010);
    check::<12, 52>(128, 0x0800_0180_800c_000c);
    check::<14, 52>(256, 0x0800_0180_400c_800c);
    check::<16, 52>(8192, 0x0000_0180_c00c_400c);
    // The upper bits of an address of 52 are in bits 5 to 2.
    let space = Space::new(0, PhysAddr::new(0xd_8765_4321_0000));
    assert_eq!(Aarch64::<16, 52>::ttbrs(space), [0x8765_4321_0034, 0x8765_4321_2034]);
}

#[test]
fn what_a_processor_has_not_is_refused() {
    let keyed = page(0, size(12), 0, Rights::ALL).with(Attributes { key: 1, ..Attributes::NORMAL });
    let cases = [
        (keyed, Error::Unfit(Unfit::Key(1))),
        (
            page(0, size(16), 0x1000, Rights::ALL),
            Error::Misaligned { addr: 0x1000, size: size(16) },
        ),
        (page(0, size(39), 0, Rights::ALL), Error::Unfit(Unfit::PageSize(size(39)))),
        (
            page(0, size(12), 1 << 48, Rights::ALL),
            Error::Unfit(Unfit::Physical(PhysAddr::new(1 << 48))),
        ),
        (
            page(1 << 48, size(12), 0, Rights::ALL),
            Error::Unfit(Unfit::Virtual(VirtAddr::new(1 << 48))),
        ),
        (page(0, size(12), 0, Rights::EXECUTE), Error::Unfit(Unfit::Rights(Rights::EXECUTE))),
    ];
    for (first, expected) in cases {
        let mut world = World::new(Aarch64::<12>::new());
        world.apply(Op::Create);
        let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
        let space = world.spaces[0].0;
        assert_eq!(world.table.map(space, first, 1, memory, frames).err(), Some(expected));
        world.end();
    }
}

/// With break-before-make, walks find no page while hardware flushes the old pages. Afterwards all
/// pages and usage bits are still there.
#[test]
fn a_page_of_another_size_is_broken_before_it_is_made() {
    for bbm2 in [false, true] {
        let table = Aarch64::<12>::new();
        let mut world = World::new(if bbm2 { table.with_bbm2() } else { table });
        world.apply(Op::Create);
        let first = page(0x4000_0000, size(21), 0x8000_0000, Rights::ALL);
        world.apply(Op::Map { space: 0, first, count: 1 });
        world.apply(Op::Walk { space: 0, addr: first.page.start(), kind: Kind::Store });
        let (space, memory) = (world.spaces[0].0, &mut world.physical.clone());
        for (from, to) in [(21, 16), (16, 12), (12, 16), (16, 21)] {
            let range = VirtRange::of_page(first.page);
            let (hardware, frames) = (Aarch64::<12>::new(), &mut world.physical.clone());
            let walk = |mut memory: Physical| {
                let addr = first.page.start();
                hardware.walk(space, addr, Kind::Load, &mut memory, &mut |_| {}).is_ok()
            };
            let (mut asked, before) = (0, world.physical.frames_out());
            let forget = &mut |flush: &Flush| {
                asked += 1;
                assert!(flush.scope().covers(first.page.start().page(size(from))));
                assert_eq!(walk(world.physical.clone()), bbm2, "from {from} to {to}");
                // The frame of a removed table has not been freed yet.
                assert!(world.physical.frames_out() >= before);
            };
            world.table.resize(space, range, size(to), memory, frames, forget).unwrap();
            assert_eq!(asked, 1);
            assert!(walk(world.physical.clone()), "from {from} to {to}");
            let tables = if to < 21 { 4 } else { 3 };
            assert_eq!(world.physical.frames_out(), tables, "from {from} to {to}");
            let found = world.table.query(space, first.page.start(), memory).unwrap();
            assert_eq!(found.translation.page.size(), size(to));
            assert!(found.usage.dirty, "from {from} to {to}");
        }
    }
}

/// A walker sets usage bits in one entry of a contiguous page. After a split, each part has the
/// usage of the whole page.
#[test]
fn parts_of_a_contiguous_block_were_used_as_the_whole() {
    for bbm2 in [false, true] {
        for to in [21, 16, 12] {
            let table = Aarch64::<12>::new();
            let mut world = World::new(if bbm2 { table.with_bbm2() } else { table }).resizing();
            world.apply(Op::Create);
            let first = page(0x4000_0000, size(25), 0x8000_0000, Rights::ALL);
            world.apply(Op::Map { space: 0, first, count: 1 });
            world.apply(Op::Walk { space: 0, addr: VirtAddr::new(0x4060_0000), kind: Kind::Store });
            let range = VirtRange::of_page(first.page);
            world.apply(Op::Resize { space: 0, range, to: size(to) });
            world.check();
            world.apply(Op::Resize { space: 0, range, to: size(25) });
            world.check();
            world.end();
        }
    }
}
