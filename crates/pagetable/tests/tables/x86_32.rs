//! Compares the page tables of 32-bit x86 with the model, and bit by bit with the manual.

use addr::{Kind, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Error, Lent, Loan, Reference, Unfit, Usage, X86_32};

use crate::common::{Op, RIGHTS, Stream, Table, TreeTable, World, around_seam, page, small_worlds};

const K4: PageSize = PageSize::SIZE_4K;
const M2: PageSize = PageSize::SIZE_2M;
const M4: PageSize = PageSize::from_shift(22).unwrap();
const DIRTY: Usage = Usage { referenced: true, dirty: true, marked: false };
/// The sets of rights that entries without NX can express.
const EXECUTABLE: [Rights; 4] =
    [Rights::ALL, Rights::from_bits(5), Rights::from_bits(7), Rights::NONE];

fn stream(large: PageSize, frame_bits: u32, rights: &[Rights], seed: u64) -> Stream {
    Stream {
        regions: vec![0, 1 << 31, (1 << 32) - (1 << 29)],
        region_bytes: 1 << 29,
        frame_bits,
        sizes: vec![K4, large],
        rights: rights.to_vec(),
        steps: 6000,
        seed,
    }
}

#[test]
fn streams_of_operations_do_what_the_model_does() {
    for seed in [1, 2] {
        let narrow = stream(M4, 32, &EXECUTABLE, seed);
        narrow.run(World::new(X86_32::<false>::new()).resizing());
        let area = VirtRange::new(VirtAddr::new(0xc000_0000), 1 << 29).unwrap();
        narrow.run(World::new(X86_32::<false>::with_area(area).unwrap()));
        let mut world = World::new(X86_32::<false, false>::new()).resizing();
        world.walks_mark = false;
        narrow.run(world);
        stream(M2, 40, &RIGHTS, seed).run(World::new(X86_32::<true>::new()).resizing());
    }
}

/// Runs every sequence of operations around the boundary of two tables, with few frames and with
/// enough. In this format no count shows when a table is empty.
#[test]
fn small_worlds_enumerated_whole() {
    let rooms = [(1, 3), (2, 3), (3, 4)];
    small_worlds(&|| World::new(X86_32::<false>::new()), &around_seam(M4), &rooms);
}

/// A table is removed with its last page, in whatever order its pages are unmapped.
#[test]
fn a_table_goes_with_its_last_page() {
    for orders in [[0u64, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let pages = [0u64, 0x1f_f000, 0x3f_f000];
        let mut world = World::new(X86_32::<false>::new());
        world.apply(Op::Create);
        for addr in pages {
            world.apply(Op::Map { space: 0, first: page(addr, K4, addr, Rights::ALL), count: 1 });
        }
        for (gone, place) in orders.into_iter().enumerate() {
            assert_eq!(world.physical.frames_out(), 2, "{orders:?}");
            let range = VirtRange::new(VirtAddr::new(pages[place as usize]), 0x1000).unwrap();
            world.apply(Op::Unmap { space: 0, range });
            world.check();
            assert_eq!(world.physical.frames_out() == 1, gone == 2, "{orders:?}");
        }
    }
}

/// Compares entries with the manual. The hexadecimal values of the bits are P 1, RW 2, US 4, A 20,
/// D 40, PS 80, G 100; with PAE, NX is the uppermost bit. 200 is the bit NA of this crate.
fn entries<const PAE: bool>(cases: &[(PageSize, Rights, bool, u64)]) {
    for &(size, rights, global, bits) in cases {
        let (addr, frame) = (0xbfc0_0000, 0x7640_0000);
        let first = pagetable::Translation { global, ..page(addr, size, frame, rights) };
        let mut world = World::new(X86_32::<PAE>::new());
        world.apply(Op::Create);
        let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
        let space = world.spaces[0].0;
        world.table.map(space, first, 1, memory, frames).unwrap().done(frames);
        let mut references: Vec<Reference> = Vec::new();
        let each = &mut |reference| references.push(reference);
        let root = world.table.root(space);
        let walked =
            world.table.walk_from(root, VirtAddr::new(addr), Kind::Load, &mut world.physical, each);
        let last = *references.iter().rfind(|reference| !reference.write).unwrap();
        let read = if PAE {
            world.physical.read_u64(last.addr)
        } else {
            u64::from(world.physical.read_u32(last.addr))
        };
        let present = bits & 1 != 0;
        assert_eq!(walked.is_ok(), present, "{size} {rights:?}");
        let hidden = if PAE && !present { 0x000f_ffff_ffff_f000 } else { 0 };
        let accessed = if present { 0x20 } else { 0 };
        assert_eq!(read, (frame | bits | accessed) ^ hidden, "{size} {rights:?}");
        let step = if PAE { 8 } else { 4 };
        let reads: Vec<_> = references.iter().filter(|one| !one.write).collect();
        assert_eq!(reads.len(), if size == K4 { 2 } else { 1 });
        // The entry of the directory, and the first entry of its table.
        let shift = if PAE { 21 } else { 22 };
        assert_eq!(reads[0].addr, PhysAddr::new(space.root().get() + (addr >> shift) * step));
        if size == K4 {
            let bits = if PAE { 9 } else { 10 };
            let place = addr >> 12 & ((1 << bits) - 1);
            let directory = world.physical.read_u32(reads[0].addr);
            assert_eq!(directory & 0xfff, 0x27);
            let table = u64::from(directory & 0xffff_f000);
            assert_eq!(reads[1].addr, PhysAddr::new(table + place * step));
        }
    }
}

#[test]
fn page_entries_are_those_of_the_manual() {
    let (rw, user) = (Rights::from_bits(3), Rights::USER);
    entries::<false>(&[
        (K4, Rights::READ, false, 0x1),
        (K4, rw, false, 0x3),
        (K4, Rights::WRITE | user, false, 0x7),
        (K4, Rights::ALL, true, 0x107),
        (K4, Rights::NONE, false, 0x200),
        (K4, user, false, 0x204),
        (M4, Rights::ALL, false, 0x87),
        (M4, Rights::READ | user, true, 0x185),
    ]);
    entries::<true>(&[
        (K4, Rights::READ, false, 0x8000_0000_0000_0001),
        (K4, Rights::EXECUTE, false, 0x1),
        (K4, Rights::NONE, false, 0x8000_0000_0000_0200),
        (M2, rw | user, true, 0x8000_0000_0000_0187),
    ]);
}

/// If entries cannot express a set of rights, the page gets the smallest set that contains it.
#[test]
fn what_may_be_read_may_be_executed() {
    for bits in 0..16 {
        let rights = Rights::from_bits(bits);
        let mut world = World::new(X86_32::<false>::new());
        world.apply(Op::Create);
        let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
        let space = world.spaces[0].0;
        let first = page(0x5000, K4, 0x7000, rights);
        world.table.map(space, first, 1, memory, frames).unwrap().done(frames);
        let found = world.table.query(space, VirtAddr::new(0x5000), memory).unwrap();
        let none = bits & 7 == 0;
        let expected = if none { bits } else { bits | 5 };
        assert_eq!(found.translation.rights.bits(), expected, "{rights:?}");
    }
}

#[test]
fn what_32_bits_cannot_hold_is_refused() {
    let refused = |first, expected| {
        let mut world = World::new(X86_32::<false>::new());
        world.apply(Op::Create);
        let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
        let space = world.spaces[0].0;
        let error = world.table.map(space, first, 1, memory, frames).err();
        assert_eq!(error, Some(Error::Unfit(expected)));
    };
    let beyond = VirtAddr::new(1 << 32);
    refused(page(1 << 32, K4, 0, Rights::ALL), Unfit::Virtual(beyond));
    refused(page(0, K4, 1 << 32, Rights::ALL), Unfit::Physical(PhysAddr::new(1 << 32)));
    refused(page(0, M2, 0, Rights::ALL), Unfit::PageSize(M2));
}

/// A walker sets bits in the entry that leads to a table. Changes that the OS makes below this
/// entry keep these bits.
#[test]
fn the_directory_keeps_what_walkers_set() {
    let mut world = World::new(X86_32::<false>::new());
    world.apply(Op::Create);
    for addr in [0x1000, 0x2000, 0x3000] {
        world.apply(Op::Map { space: 0, first: page(addr, K4, addr, Rights::ALL), count: 1 });
        world.apply(Op::Walk { space: 0, addr: VirtAddr::new(addr), kind: Kind::Store });
    }
    let root = world.spaces[0].0.root();
    let before = world.physical.read_u32(root);
    assert_eq!(before & 0x20, 0x20);
    let range = VirtRange::new(VirtAddr::new(0x1000), 0x2000).unwrap();
    world.apply(Op::Unmap { space: 0, range });
    world.apply(Op::ClearUsage { space: 0, range: VirtRange::ALL, bits: Usage::default() });
    assert_eq!(world.physical.read_u32(root), before);
}

/// Walks in the area go through the copied entries into the lender's current tables. Only walks
/// find pages there.
#[test]
fn a_space_sees_what_another_lends() {
    let area = VirtRange::new(VirtAddr::new(0xc000_0000), 1 << 29).unwrap();
    let mut world = World::new(X86_32::<false>::with_area(area).unwrap());
    world.apply(Op::Create);
    world.apply(Op::Create);
    for (space, addr, size, frame) in [
        (0, 0x5000, K4, 0x7000),
        (0, 0x80_0000, M4, 0x40_0000),
        (1, 0xbfff_f000, K4, 0x9000),
        (1, 0xe000_0000, K4, 0xa000),
    ] {
        world.apply(Op::Map { space, first: page(addr, size, frame, Rights::ALL), count: 1 });
    }
    let (from, to) = (world.spaces[0].0, world.spaces[1].0);
    let memory = &mut world.physical.clone();
    let mut lend = |world: &mut World<X86_32>, addr, at| {
        let (addr, at) = (VirtAddr::new(addr), VirtAddr::new(at));
        world.table.lend(Loan { from, addr, to, at }, memory)
    };
    let slot = 0xd000_0000;
    assert_eq!(lend(&mut world, 0x5000, slot + 0x5000), Ok(Lent::Copied { is_page: false }));
    assert_eq!(lend(&mut world, 0x6000, slot + 0x6000), Ok(Lent::There));
    assert_eq!(lend(&mut world, 0x80_0000, slot + 0x80_0000), Ok(Lent::Copied { is_page: true }));
    assert_eq!(lend(&mut world, 0x40_0000, slot + 0x40_0000), Ok(Lent::Absent));
    let outside = Error::Unfit(Unfit::Virtual(VirtAddr::new(0xbfc0_0000)));
    assert_eq!(lend(&mut world, 0x5000, 0xbfc0_0000), Err(outside));
    let size = M4;
    assert_eq!(lend(&mut world, 0x5000, slot), Err(Error::Misaligned { addr: slot, size }));

    let walk = |world: &mut World<X86_32>, addr| {
        let memory = &mut world.physical.clone();
        world.table.walk(to, VirtAddr::new(addr), Kind::Store, memory, &mut |_| ())
    };
    assert_eq!(walk(&mut world, slot + 0x5123).unwrap().frame, PhysAddr::new(0x7000));
    assert_eq!(walk(&mut world, slot + 0x80_1000).unwrap().frame, PhysAddr::new(0x40_0000));
    assert!(walk(&mut world, slot + 0x6000).is_err());
    // A page that the lender maps in the same table is visible immediately.
    world.apply(Op::Map { space: 0, first: page(0x6000, K4, 0xb000, Rights::ALL), count: 1 });
    assert_eq!(walk(&mut world, slot + 0x6000).unwrap().frame, PhysAddr::new(0xb000));
    // The borrower's model contains none of these pages. Walkers have set bits in the lender's
    // table, and in the copied entry of the large page.
    world.spaces[0].1.set_usage(VirtAddr::new(0x5000), DIRTY).unwrap();
    world.spaces[0].1.set_usage(VirtAddr::new(0x6000), DIRTY).unwrap();
    world.check();
    world.apply(Op::Unmap { space: 1, range: VirtRange::ALL });

    let mut back = Vec::new();
    let each = &mut |at: VirtAddr, usage| back.push((at.get(), usage));
    world.table.take_back(to, area, &mut world.physical, each).unwrap();
    assert_eq!(back, [(slot, None), (slot + 0x80_0000, Some(DIRTY))]);
    assert!(walk(&mut world, slot + 0x5000).is_err());
    world.check();
    assert!(
        X86_32::<false>::with_area(VirtRange::new(VirtAddr::new(0x1000), 1 << 22).unwrap())
            .is_err()
    );
    assert!(
        X86_32::<true>::with_area(VirtRange::new(VirtAddr::new(1 << 32), 1 << 22).unwrap())
            .is_err()
    );
}
