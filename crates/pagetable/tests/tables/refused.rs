//! What cannot be, asked of a table of every organisation: a typed error, and everything as it was.

use addr::{Attributes, MemoryType, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{
    Aarch64, Arm, CacheShape, Cached, ElasticCuckoo, Error, Footprint, Guarded, Hashed,
    HashedShape, Irix, Mapping, Mpt, Space, SparcReference, Split, Sv39, Unfit, X86_32, X86_64,
};

use crate::common::physical::Physical;
use crate::common::{Table, page};

const K4: PageSize = PageSize::SIZE_4K;
const WRITE_BACK: &[MemoryType] = &[MemoryType::WriteBack];

/// A table, the memory types that its entries tell apart, and how many protection keys.
struct Case {
    name: &'static str,
    table: Box<dyn Table>,
    types: &'static [MemoryType],
    keys: u8,
}

fn cases() -> Vec<Case> {
    use MemoryType::{Device, WriteBack, WriteCombining};
    let hashed = Hashed::new(HashedShape::C128K.with_large_pages()).unwrap();
    let cached = Cached::new(CacheShape::S8K, Guarded::new(16).unwrap()).unwrap();
    let case = |name, table: Box<dyn Table>, types, keys| Case { name, table, types, keys };
    let plain = |name, table: Box<dyn Table>| case(name, table, WRITE_BACK, 1);
    vec![
        case("x86-64", Box::new(X86_64::<4>::new()), &MemoryType::ALL, 16),
        case("x86-32", Box::new(X86_32::<false>::new()), &MemoryType::ALL, 1),
        case("sv39", Box::new(Sv39::<true>::new()), &[WriteBack, WriteCombining, Device], 1),
        plain("sv39 without Svpbmt", Box::new(Sv39::<true>::new().without_svpbmt())),
        case("aarch64", Box::new(Aarch64::<12>::new()), &MemoryType::ALL, 1),
        plain("arm", Box::new(Arm::new())),
        plain("sparc", Box::new(SparcReference::<true>::new())),
        plain("irix", Box::new(Irix::new(K4).unwrap())),
        plain("mpt", Box::new(Mpt::new())),
        plain("flattened", Box::new(Split::flattened().unwrap())),
        plain("guarded", Box::new(Guarded::new(16).unwrap())),
        plain("adaptive", Box::new(Guarded::adaptive())),
        plain("hashed", Box::new(hashed)),
        plain("cuckoo", Box::new(ElasticCuckoo::new(3, 4096).unwrap())),
        plain("cached", Box::new(cached)),
    ]
}

/// All that an operation which is refused must leave alone.
fn state(table: &dyn Table, space: Space, physical: &Physical) -> (u64, Footprint, Vec<Mapping>) {
    let mut pages = Vec::new();
    table.visit(space, VirtRange::ALL, physical, &mut |mapping| pages.push(mapping));
    (physical.bytes_out(), table.footprint(), pages)
}

#[test]
fn what_an_entry_cannot_say_is_refused_by_name() {
    for Case { name, mut table, types, keys } in cases() {
        let mut memory = Physical::new();
        let mut frames = memory.clone();
        let space = table.create(&mut memory, &mut frames).unwrap();
        let base = table.page_sizes()[0];
        let there = page(0x10_0000, base, 0x20_0000, Rights::ALL);
        table.map(space, there, 1, &mut memory, &mut frames).unwrap().done(&mut frames);
        let before = state(&*table, space, &memory);
        let other = page(0x40_0000, base, 0x20_0000, Rights::ALL);
        let odd = (base.shift() as u8..48).filter_map(PageSize::from_shift);
        let odd = odd.filter(|size| !table.page_sizes().contains(size)).min().unwrap();
        let mut refusals = vec![
            (page(0, odd, 0, Rights::ALL), Error::Unfit(Unfit::PageSize(odd))),
            (
                page(0x40_0000, base, 1 << 56, Rights::ALL),
                Error::Unfit(Unfit::Physical(PhysAddr::new(1 << 56))),
            ),
            (
                other.with(Attributes { key: keys, ..Attributes::NORMAL }),
                Error::Unfit(Unfit::Key(keys)),
            ),
        ];
        for memory in MemoryType::ALL.into_iter().filter(|memory| !types.contains(memory)) {
            let first = other.with(Attributes::of(memory));
            refusals.push((first, Error::Unfit(Unfit::Memory(memory))));
        }
        for &larger in &table.page_sizes()[1..] {
            let first = page(0, larger, larger.bytes() / 2, Rights::ALL);
            let addr = larger.bytes() / 2;
            refusals.push((first, Error::Misaligned { addr, size: larger }));
        }
        for (first, expected) in refusals {
            let refused = table.map(space, first, 1, &mut memory, &mut frames);
            assert_eq!(refused.err(), Some(expected), "{name}: {first:?}");
            assert_eq!(state(&*table, space, &memory), before, "{name}: {first:?}");
        }
        for &kind in types {
            let first = other.with(Attributes::of(kind));
            table.map(space, first, 1, &mut memory, &mut frames).unwrap().done(&mut frames);
            let found = table.query(space, VirtAddr::new(0x40_0000), &memory).unwrap();
            assert_eq!(found.translation.attributes, first.attributes, "{name}");
            let range = VirtRange::of_page(first.page);
            table.unmap(space, range, &mut memory, &mut |_| {}).unwrap().done(&mut frames);
        }
    }
}

/// A space, a page far away, and a split: where one needs a frame and there is none, nothing changes.
#[test]
fn memory_that_ends_changes_nothing() {
    for Case { name, mut table, .. } in cases() {
        let mut memory = Physical::new();
        let mut frames = memory.clone();
        let space = table.create(&mut memory, &mut frames).unwrap();
        let (base, larger) = (table.page_sizes()[0], table.page_sizes().get(1).copied());
        let size = larger.unwrap_or(base);
        let large = page(2 * size.bytes(), size, 2 * size.bytes(), Rights::ALL);
        table.map(space, large, 1, &mut memory, &mut frames).unwrap().done(&mut frames);
        memory.limit(memory.frames_out());
        let before = state(&*table, space, &memory);
        let check = |table: &dyn Table, memory: &Physical, error: Error| {
            assert!(matches!(error, Error::OutOfFrames(_)), "{name}: {error}");
            assert_eq!(state(table, space, memory), before, "{name}");
        };
        let refused = table.create(&mut memory, &mut frames).unwrap_err();
        check(&*table, &memory, refused);
        // Many pages, so that each organisation needs a frame for them.
        let many = page(0x4000_0000, base, 0, Rights::ALL);
        let refused = table.map(space, many, 1 << 13, &mut memory, &mut frames);
        check(&*table, &memory, refused.unwrap_err());
        let range = VirtRange::of_page(large.page);
        let forget = &mut |_: &_| {};
        match table.resize(space, range, base, &mut memory, &mut frames, forget) {
            Err(error) => check(&*table, &memory, error),
            // What it needs is in frames that it has, or it needs nothing.
            Ok(mapped) => {
                let (_, _, pages) = state(&*table, space, &memory);
                assert_eq!(pages, mapped, "{name}");
            }
        }
    }
}
