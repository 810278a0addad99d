//! In every format, a frame at address 0 works like any other frame: nodes and tables in it are
//! found.

use addr::{Kind, PageSize, Rights, VirtAddr, VirtRange};
use pagetable::{
    Aarch64, Arm, ElasticCuckoo, Guarded, Hashed, HashedShape, Irix, Mpt, SparcReference, Split,
    Sv39, X86_32, X86_64,
};

use crate::common::{Op, Table, World, page};

const K4: PageSize = PageSize::SIZE_4K;
const PAGES: u64 = 40;

/// Maps pages that share one bucket or have one table each, with notes, while frames are allocated
/// from address 0 on. Looks up all of them after each change.
fn finds_all(name: &str, table: impl Table + 'static) {
    let mut world = World::new(table);
    world.apply(Op::Create);
    let space = world.spaces[0].0;
    let (memory, frames) = (&mut world.physical.clone(), &mut world.physical.clone());
    let before = world.physical.frames_out();
    world.physical.start_at(0);
    let table = &mut world.table;
    let addr = |n: u64| VirtAddr::new(0x1000 + n * 0x40_0000);
    let frame = |n: u64| (100 + 3 * n) * K4.bytes();
    for last in 0..PAGES {
        let first = page(addr(last).get(), K4, frame(last), Rights::ALL);
        table.map(space, first, 1, memory, frames).unwrap().done(frames);
        for n in 0..=last {
            let found = table.query(space, addr(n), memory).map(|found| found.translation.frame);
            assert_eq!(
                found.map(|found| found.get()),
                Some(frame(n)),
                "{name}, page {n} of {last}"
            );
            let walked = table.walk(space, addr(n), Kind::Load, memory, &mut |_| {});
            assert_eq!(walked.unwrap().frame.get(), frame(n), "{name}, page {n} of {last}");
        }
    }
    assert!(world.physical.frames_out() > before || name == "cuckoo", "{name} took no frame");
    for n in (0..PAGES).step_by(2) {
        let mut gone = Vec::new();
        let range = VirtRange::of_page(addr(n).page(K4));
        let each = &mut |mapping: pagetable::Mapping| gone.push(mapping.translation.frame.get());
        table.unmap(space, range, memory, each).unwrap().done(frames);
        assert_eq!(gone, [frame(n)], "{name}");
    }
    let mut left = Vec::new();
    let each = &mut |mapping: pagetable::Mapping| left.push(mapping.translation.frame.get());
    table.visit(space, VirtRange::ALL, memory, each);
    assert_eq!(left, (1..PAGES).step_by(2).map(frame).collect::<Vec<_>>(), "{name}");
    table.destroy(space, memory).unwrap().done(frames);
}

#[test]
fn what_lies_at_address_0_is_found() {
    finds_all("x86-64", X86_64::<4>::new());
    finds_all("x86-32", X86_32::<false>::new());
    finds_all("x86-pae", X86_32::<true>::new());
    finds_all("sv39", Sv39::<true>::new());
    finds_all("aarch64", Aarch64::<12>::new());
    finds_all("arm", Arm::new());
    finds_all("sparc", SparcReference::<true>::new());
    finds_all("irix", Irix::new(K4).unwrap());
    finds_all("mpt", Mpt::new());
    finds_all("flattened", Split::flattened().unwrap());
    finds_all("linear", Split::linear().unwrap());
    finds_all("guarded", Guarded::new(16).unwrap());
    finds_all("guarded-adaptive", Guarded::adaptive());
    finds_all("cuckoo", ElasticCuckoo::new(2, 4096).unwrap());
    // There are so few buckets that nearly all entries are in overflow chains.
    let few = |shape: HashedShape| Hashed::new(HashedShape { table_bytes: 256, ..shape }).unwrap();
    finds_all("hashed", few(HashedShape::H8K));
    finds_all("clustered", few(HashedShape::C128K));
    finds_all("partial subblocks", few(HashedShape::C128K.with_partial_subblocks()));
    finds_all("inverted", few(HashedShape::inverted(1 << 20, 2)));
    let still = HashedShape { move_to_front: false, ..HashedShape::C128K };
    finds_all("without moves", few(still));
}
