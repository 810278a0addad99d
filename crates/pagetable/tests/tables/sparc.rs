//! Compares the page table of the SPARC reference MMU with the model, and bit by bit with the
//! manual.

use addr::{Kind, Memory, PageSize, PhysAddr, Rights, VirtAddr};
use pagetable::{Error, Reference, SparcReference, Unfit};

use crate::common::{Op, Stream, Table, World, page};

const K4: PageSize = PageSize::SIZE_4K;
const K256: PageSize = PageSize::from_shift(18).unwrap();
const M16: PageSize = PageSize::from_shift(24).unwrap();
/// The sets of rights that entries can express: those of the user, those of the supervisor only,
/// and the empty sets.
const RIGHTS: [u8; 9] = [9, 11, 13, 15, 12, 5, 7, 0, 8];

#[test]
fn streams_of_operations_do_what_the_model_does() {
    for seed in [1, 2, 3] {
        let stream = Stream {
            regions: vec![0, 1 << 31, (1 << 32) - (1 << 29)],
            region_bytes: 1 << 29,
            frame_bits: 36,
            sizes: vec![K4, K256, M16],
            rights: RIGHTS.map(Rights::from_bits).to_vec(),
            steps: 6000,
            seed,
        };
        stream.run(World::new(SparcReference::<true>::new()).resizing());
        let mut world = World::new(SparcReference::<false>::new()).resizing();
        world.walks_mark = false;
        stream.run(world);
    }
}

/// A world with one page, and the references of a load from this page.
fn walked(size: PageSize, rights: u8) -> (World<SparcReference>, Vec<Reference>, bool) {
    let (addr, frame) = (0x8b4d_6000, 0xf_7600_0000);
    let mut world = World::new(SparcReference::<true>::new());
    world.apply(Op::Create);
    let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
    let space = world.spaces[0].0;
    let first = page(addr, size, frame, Rights::from_bits(rights));
    world.table.map(space, first, 1, memory, frames).unwrap().done(frames);
    let mut references = Vec::new();
    let each = &mut |reference| references.push(reference);
    let memory = &mut world.physical;
    let result = world.table.walk(space, VirtAddr::new(addr), Kind::Load, memory, each);
    let there = world.table.query(space, VirtAddr::new(addr), memory).unwrap().translation;
    assert_eq!(there.frame, PhysAddr::new(frame));
    // If entries cannot express the requested rights, the page gets the smallest set that contains
    // them.
    assert!(there.rights.contains(first.rights), "{:?} for {:?}", there.rights, first.rights);
    (world, references, result.is_ok())
}

/// The hexadecimal values of the bits are C 80 and R 20. ACC begins at bit 2, and the type is 2 for
/// a page or 1 for a table.
#[test]
fn entries_are_those_of_the_manual() {
    for (size, levels) in [(K4, 3), (K256, 2), (M16, 1)] {
        for (rights, access) in
            [(9, 0), (11, 1), (13, 2), (15, 3), (10, 1), (1, 6), (2, 7), (3, 7), (4, 6), (5, 6)]
        {
            let (world, references, found) = walked(size, rights);
            assert!(found, "{size} {rights}");
            let reads: Vec<_> = references.iter().filter(|one| !one.write).collect();
            assert_eq!(reads.len(), levels);
            let entry = world.physical.read_u32(reads[levels - 1].addr);
            assert_eq!(entry, 0xf760_0000 | 0xa0 | access << 2 | 2, "{size} {rights}");
            // The indices have 8, 6 and 6 bits. An entry holds the address of a table shifted right
            // by 4 bits.
            let mut table = world.spaces[0].0.root().get();
            for (read, index) in reads.iter().zip([0x8b, 0x13, 0x16]) {
                assert_eq!(read.addr.get(), table + index * 4);
                let entry = world.physical.read_u32(read.addr);
                assert!(entry & 3 == 2 || entry & 3 == 1);
                table = u64::from(entry & !3) << 4;
            }
        }
        for (rights, entry) in [(0, 0xf760_0084), (8, 0xf760_008c)] {
            let (world, references, found) = walked(size, rights);
            assert!(!found);
            assert_eq!(world.physical.read_u32(references[levels - 1].addr), entry);
        }
        // This page may be executed but not read.
        let (world, references, found) = walked(size, 12);
        assert!(!found);
        assert_eq!(world.physical.read_u32(references[levels - 1].addr), 0xf760_0092);
    }
}

#[test]
fn what_it_cannot_hold_is_refused() {
    let refused = |first, expected| {
        let mut world = World::new(SparcReference::<true>::new());
        world.apply(Op::Create);
        let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
        let space = world.spaces[0].0;
        let error = world.table.map(space, first, 1, memory, frames).err();
        assert_eq!(error, Some(Error::Unfit(expected)));
    };
    let all = Rights::ALL;
    refused(page(1 << 32, K4, 0, all), Unfit::Virtual(VirtAddr::new(1 << 32)));
    refused(page(0, K4, 1 << 36, all), Unfit::Physical(PhysAddr::new(1 << 36)));
    refused(page(0, PageSize::SIZE_2M, 0, all), Unfit::PageSize(PageSize::SIZE_2M));
    let global = pagetable::Translation { global: true, ..page(0, K4, 0, all) };
    refused(global, Unfit::Global);
}
