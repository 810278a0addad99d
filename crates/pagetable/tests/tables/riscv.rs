//! Compares RISC-V's page tables with the model, and byte by byte with the manual.

use addr::{Attributes, Kind, Memory, MemoryType, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Error, Reference, Riscv, Sv39, Sv48, Translation, Unfit};

use crate::common::{Op, Stream, Table, World, around_seam, page, small_worlds};
use crate::decode;

const K4: PageSize = PageSize::SIZE_4K;
const K64: PageSize = PageSize::from_shift(16).unwrap();
const M2: PageSize = PageSize::SIZE_2M;
const G1: PageSize = PageSize::SIZE_1G;
/// The sets of rights that R, W, X and U can express, and the empty set.
const RIGHTS: [u8; 9] = [1, 3, 4, 5, 7, 13, 15, 0, 8];

fn attributes() -> Vec<Attributes> {
    let types = [MemoryType::WriteBack, MemoryType::WriteCombining, MemoryType::Device];
    types.map(Attributes::of).to_vec()
}

/// The middle of each half of the space, and both sides of the hole between them.
fn regions(levels: u8) -> Vec<u64> {
    let half = 1u64 << (9 * u32::from(levels) + 11);
    vec![0, half / 2, half - (2 << 30), half.wrapping_neg(), (2u64 << 30).wrapping_neg()]
}

fn run_streams<const LEVELS: u8>(sizes: &[PageSize], seed: u64, steps: usize) {
    let stream = Stream {
        regions: regions(LEVELS),
        region_bytes: 2 << 30,
        frame_bits: 38,
        sizes: sizes.to_vec(),
        rights: RIGHTS.map(Rights::from_bits).to_vec(),
        steps,
        seed,
    };
    let mut world = World::new(Riscv::<LEVELS>::new());
    (world.resizes, world.attributes) = (true, attributes());
    stream.run_with(world, |world| {
        decode::check(world, |root, addr| decode::riscv(&world.physical, root, addr, LEVELS));
    });
    let mut world = World::new(Riscv::<LEVELS, false>::new());
    (world.resizes, world.walks_mark) = (true, false);
    stream.run(world);
}

#[test]
fn streams_of_operations_do_what_the_model_does() {
    run_streams::<3>(&[K4, K64, M2, G1], 1, 6000);
    run_streams::<4>(&[K4, K64, M2, G1], 2, 6000);
    run_streams::<5>(&[K4, K64, M2], 3, 4000);
}

#[test]
#[ignore = "minutes"]
fn a_million_operations_do_what_the_model_does() {
    run_streams::<3>(&[K4, K64, M2, G1], 4, 500_000);
    run_streams::<4>(&[K4, K64, M2, G1], 5, 500_000);
    run_streams::<5>(&[K4, K64, M2], 6, 500_000);
}

#[test]
fn small_worlds_enumerated_whole() {
    let mut ops = around_seam(M2).to_vec();
    let whole = VirtRange::new(VirtAddr::new(M2.bytes()), M2.bytes()).unwrap();
    ops.push(Op::Resize { space: 0, range: whole, to: K64 });
    let world = || World::new(Sv39::<true>::new()).resizing();
    small_worlds(&world, &ops, &[(1, 3), (2, 3), (3, 3), (4, 4)]);
}

/// The hexadecimal values of the bits are V 1, R 2, W 4, X 8, U 10, G 20, A 40, D 80, and NA of the
/// OS 200. N and PBMT are the uppermost bits.
#[test]
fn entries_are_those_of_the_manual() {
    let write_combining = Attributes::of(MemoryType::WriteCombining);
    let device = Attributes::of(MemoryType::Device);
    let (frame, addr) = (0x7f_c000_0000, 0x3f_c000_0000);
    let ppn = frame >> 12 << 10;
    let of = |size, rights| page(addr, size, frame, Rights::from_bits(rights));
    let cases = [
        (of(K4, 1), ppn | 0x03),
        (of(K4, 3), ppn | 0x07),
        (of(K4, 4), ppn | 0x09),
        (of(K4, 15), ppn | 0x1f),
        (Translation { global: true, ..of(K4, 1) }, ppn | 0x23),
        (of(K4, 0), ppn | 0x200),
        (of(K4, 8), ppn | 0x210),
        (of(K4, 3).with(write_combining), ppn | 1 << 61 | 0x07),
        (of(K4, 3).with(device), ppn | 2 << 61 | 0x07),
        (of(K64, 3), 1 << 63 | ppn | 0x2000 | 0x07),
        (of(M2, 7), ppn | 0x0f),
        (of(G1, 7).with(device), ppn | 2 << 61 | 0x0f),
    ];
    for (first, expected) in cases {
        let mut world = World::new(Sv39::<true>::new());
        world.apply(Op::Create);
        world.attributes = vec![first.attributes];
        world.apply(Op::Map { space: 0, first, count: 1 });
        let space = world.spaces[0].0;
        let mut references: Vec<Reference> = Vec::new();
        let memory = &mut world.physical.clone();
        let each = &mut |reference| references.push(reference);
        let kind = if first.rights.allows(Kind::Store) { Kind::Store } else { Kind::Load };
        let walked = world.table.walk(space, VirtAddr::new(addr), kind, memory, each);
        // On Sv39, a walk reads an entry of 8 bytes per level, each at an offset of 8 times the
        // index.
        let reads: Vec<_> = references.iter().filter(|reference| !reference.write).collect();
        let levels: Vec<u8> = reads.iter().map(|reference| reference.level).collect();
        let last = match first.page.size().shift() {
            12 | 16 => 1,
            21 => 2,
            _ => 3,
        };
        assert_eq!(levels, (last..=3).rev().collect::<Vec<u8>>());
        let at = reads[reads.len() - 1].addr;
        let used = if walked.is_ok() { if kind == Kind::Store { 0xc0 } else { 0x40 } } else { 0 };
        assert_eq!(memory.read_u64(at), expected | used, "{first:?}");
        if last < 3 {
            let table = memory.read_u64(PhysAddr::new(space.root().get() + 0xff * 8));
            assert_eq!(table & 0x3ff, 1, "nothing but V and the frame");
        }
    }
}

#[test]
fn what_a_processor_has_not_is_refused() {
    let uncached = page(0, K4, 0, Rights::ALL).with(Attributes::of(MemoryType::Uncached));
    let device = page(0, K4, 0, Rights::ALL).with(Attributes::of(MemoryType::Device));
    let keyed = page(0, K4, 0, Rights::ALL).with(Attributes { key: 1, ..Attributes::NORMAL });
    let napot = page(0, K64, 0, Rights::ALL);
    let unaligned = page(0, K64, 0x1000, Rights::ALL);
    let beyond = page(0, K4, 1 << 56, Rights::ALL);
    let write_only = page(0, K4, 0, Rights::WRITE);
    let hole = page(1 << 38, K4, 0, Rights::ALL);
    let full = || Sv39::<true>::new();
    let bare = || Sv39::<true>::new().without_svnapot().without_svpbmt();
    let cases = [
        (full(), uncached, Error::Unfit(Unfit::Memory(MemoryType::Uncached))),
        (full(), keyed, Error::Unfit(Unfit::Key(1))),
        (full(), unaligned, Error::Misaligned { addr: 0x1000, size: K64 }),
        (full(), beyond, Error::Unfit(Unfit::Physical(PhysAddr::new(1 << 56)))),
        (full(), write_only, Error::Unfit(Unfit::Rights(Rights::WRITE))),
        (full(), hole, Error::Unfit(Unfit::Virtual(VirtAddr::new(1 << 38)))),
        (bare(), device, Error::Unfit(Unfit::Memory(MemoryType::Device))),
        (bare(), napot, Error::Unfit(Unfit::PageSize(K64))),
    ];
    for (table, first, expected) in cases {
        let mut world = World::new(table);
        world.apply(Op::Create);
        let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
        let space = world.spaces[0].0;
        assert_eq!(world.table.map(space, first, 1, memory, frames).err(), Some(expected));
        world.check();
        world.end();
    }
    assert!(Sv48::<true>::new().page_sizes().iter().any(|size| size.shift() == 39));
}
