//! Tests of guarded page tables with every node size.

use addr::{Frames, Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Geometry, Guarded, Node, Reference, SparseMemory, Translation};
use physmem::Physmem;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::common::{Op, RIGHTS, Stream, Table, TreeTable, World, page, small_worlds};

const K4: PageSize = PageSize::SIZE_4K;
const ENTRIES: [u64; 8] = [2, 4, 8, 16, 32, 64, 128, 256];

/// Stands for a table with nodes of adaptive size.
const ADAPTIVE: u64 = 0;

fn table(entries: u64) -> Guarded {
    if entries == ADAPTIVE { Guarded::adaptive() } else { Guarded::new(entries).unwrap() }
}

fn world(entries: u64) -> World<Guarded> {
    let mut world = World::new(table(entries)).resizing();
    world.walks_mark = false;
    world
}

fn size(shift: u8) -> PageSize {
    PageSize::from_shift(shift).unwrap()
}

#[test]
fn streams_of_operations_do_what_the_model_does() {
    for (n, entries) in ENTRIES.into_iter().chain([ADAPTIVE; 3]).enumerate() {
        let stream = Stream {
            regions: vec![0, 1 << 31, 3 << 61, 1 << 63, (1u64 << 26).wrapping_neg()],
            region_bytes: 1 << 26,
            frame_bits: 36,
            sizes: [12, 13, 14, 16, 19, 21, 25].map(size).to_vec(),
            rights: RIGHTS.to_vec(),
            steps: 1000,
            seed: 60 + n as u64,
        };
        stream.run(world(entries));
        stream.run(World::new(table(entries).with_usage()).resizing());
    }
}

/// Uses pages whose addresses diverge at every kind of bit: in a pair, in a node, or far above; and
/// superpages that occupy several places of a node.
#[test]
fn small_worlds_enumerated_whole() {
    let map = |addr, shift, count| Op::Map {
        space: 0,
        first: page(addr, size(shift), 0x4000_0000, Rights::ALL),
        count,
    };
    let unmap = |start, bytes| Op::Unmap {
        space: 0,
        range: VirtRange::new(VirtAddr::new(start), bytes).unwrap(),
    };
    let resize = |start, bytes, shift| Op::Resize {
        space: 0,
        range: VirtRange::new(VirtAddr::new(start), bytes).unwrap(),
        to: size(shift),
    };
    let ops = [
        map(0x1000, 12, 1),
        map(0x1000, 12, 3),
        map(0x4000, 14, 1),
        map(0x8_0000, 19, 2),
        map(u64::MAX, 12, 1),
        unmap(0x1000, 0x1000),
        unmap(0x4000, 0x4000),
        unmap(0x8_0000, 0x8_0000),
        unmap(1 << 63, 1 << 63),
        resize(0x4000, 0x4000, 12),
        resize(0, 0x10_0000, 13),
    ];
    for entries in [2, 16, 64, ADAPTIVE] {
        small_worlds(&|| world(entries), &ops, &[(1, 3), (2, 3), (3, 3), (9, 4)]);
    }
}

fn walk(world: &mut World<Guarded>, addr: u64) -> Vec<Reference> {
    let mut references = Vec::new();
    let each = &mut |reference| references.push(reference);
    let space = world.spaces[0].0;
    let addr = VirtAddr::new(addr);
    let result = world.table.walk(space, addr, Kind::Load, &mut world.physical, each);
    assert!(result.is_ok());
    references
}

/// If only one page is mapped, its walk makes two references, whatever its address. Each page that
/// diverges from it at the bits of another node makes the path one node longer, until that page is
/// unmapped.
#[test]
fn nodes_come_and_go_with_what_parts_there() {
    let addr = 0x0123_4567_89ab_c000;
    for entries in ENTRIES {
        let bits = entries.trailing_zeros();
        let mut world = world(entries);
        world.apply(Op::Create);
        let alone = world.table.footprint();
        assert_eq!(alone.table_bytes, 16);
        let map = |addr| Op::Map { space: 0, first: page(addr, K4, 0x5000, Rights::ALL), count: 1 };
        world.apply(map(addr));
        assert_eq!(walk(&mut world, addr).len(), 2);
        let mut bytes = 32;
        assert_eq!(world.table.footprint().table_bytes, bytes);
        let places: Vec<u32> = (13..64).step_by(bits as usize).collect();
        for (n, place) in places.iter().enumerate() {
            world.apply(map(addr ^ 1 << place));
            let references = walk(&mut world, addr);
            assert_eq!(references.len(), 3 + n);
            let levels: Vec<u8> = references.iter().map(|reference| reference.level).collect();
            let expected: Vec<u8> = (1..=n as u8 + 2).rev().collect();
            assert_eq!(levels[0], world.table.levels());
            assert_eq!(levels[1..], expected);
            bytes += 16 + (16 << bits.min(64 - place));
            assert_eq!(world.table.footprint().table_bytes, bytes);
        }
        assert_eq!(usize::from(world.table.levels()), places.len() + 2);
        for (n, place) in places.iter().enumerate() {
            let range = VirtRange::new(VirtAddr::new(addr ^ 1 << place), 4096).unwrap();
            world.apply(Op::Unmap { space: 0, range });
            assert_eq!(walk(&mut world, addr).len(), places.len() + 1 - n);
        }
        assert_eq!(world.table.footprint().table_bytes, 32);
        world.end();
    }
}

/// A walk that begins at a node makes exactly the last references of the walk from the root. An MMU
/// cache relies on this property for every node that a walk passes.
#[test]
fn a_walk_from_a_node_is_the_tail_of_the_whole_walk() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    for entries in ENTRIES.into_iter().chain([ADAPTIVE]) {
        let mut world = world(entries);
        world.apply(Op::Create);
        let addrs: Vec<u64> =
            (0..40).map(|_| rng.random::<u64>() >> rng.random_range(0..52) & !0xfff).collect();
        for &addr in &addrs {
            world.apply(Op::Map { space: 0, first: page(addr, K4, 0, Rights::READ), count: 1 });
        }
        let space = world.spaces[0].0;
        for &addr in &addrs {
            for node in walk(&mut world, addr).iter().filter_map(|reference| reference.next()) {
                for &other in addrs.iter().filter(|&&other| {
                    (other ^ addr).checked_shr(u32::from(node.shift)).unwrap_or(0) == 0
                }) {
                    let whole = walk(&mut world, other);
                    let other = VirtAddr::new(other);
                    for kind in [Kind::Load, Kind::Store] {
                        let memory = &mut world.physical;
                        let expected = world.table.walk(space, other, kind, memory, &mut |_| {});
                        let mut tail = Vec::new();
                        let each = &mut |reference| tail.push(reference);
                        let found = world.table.walk_from(node, other, kind, memory, each);
                        assert_eq!(found, expected);
                        assert!(whole.ends_with(&tail));
                        assert_eq!(tail[0].level, node.level);
                    }
                }
            }
        }
    }
}

/// An MMU cache may keep every node that a walk passed until a token names the node, and may start
/// walks there. Until then, mapping and unmapping other pages must not make these walks fault or
/// read a freed frame.
#[test]
fn a_node_is_good_until_a_token_names_it() {
    for (seed, entries) in [(7, 2), (8, 16), (9, ADAPTIVE)] {
        println!("seed {seed}, nodes {entries}");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut world = world(entries);
        world.apply(Op::Create);
        let (space, mut physical) = (world.spaces[0].0, world.physical.clone());
        // Nodes, each with the address of the walk that passed the node.
        let mut known: Vec<(u64, Node)> = Vec::new();
        let mut addrs: Vec<u64> = Vec::new();
        for step in 0..400 {
            let unmaps = step >= 300 && !addrs.is_empty();
            let flush = if unmaps {
                let addr = addrs.swap_remove(rng.random_range(0..addrs.len()));
                let range = VirtRange::new(VirtAddr::new(addr), 4096).unwrap();
                world.table.unmap(space, range, &mut physical, &mut |_| {}).unwrap()
            } else {
                let addr = rng.random::<u64>() >> rng.random_range(0..52) & !0xfff;
                if addrs.contains(&addr) {
                    continue;
                }
                addrs.push(addr);
                let first = page(addr, K4, 0, Rights::READ);
                let frames = &mut world.physical;
                world.table.map(space, first, 1, &mut physical, frames).unwrap()
            };
            if let Some(range) = flush.tables() {
                known.retain(|(addr, node)| {
                    let page = VirtAddr::new(*addr);
                    let shift = |addr: VirtAddr| addr.get().checked_shr(node.shift.into());
                    let (first, last) = (shift(range.start()), shift(range.last()));
                    !(first..=last).contains(&shift(page))
                });
            }
            flush.done(&mut world.physical);
            for &addr in &addrs {
                let va = VirtAddr::new(addr);
                let whole = world.table.walk(space, va, Kind::Load, &mut physical, &mut |_| {});
                for (other, node) in &known {
                    if (other ^ addr).checked_shr(node.shift.into()).unwrap_or(0) == 0 {
                        let each = &mut |_| {};
                        let found =
                            world.table.walk_from(*node, va, Kind::Load, &mut physical, each);
                        assert_eq!(found, whole, "step {step}: {addr:#x} from {node:?}");
                    }
                }
            }
            let addr = addrs[rng.random_range(0..addrs.len())];
            for reference in walk(&mut world, addr) {
                known.extend(reference.next().map(|node| (addr, node)));
            }
            known.sort_unstable_by_key(|(addr, node)| (node.table, *addr));
            known.dedup_by_key(|(_, node)| *node);
        }
    }
}

#[test]
fn nodes_that_cannot_be_are_refused() {
    let what = "entries in a node";
    let refused = |entries| Guarded::new(entries).err();
    assert_eq!(refused(12), Some(Geometry::NotPowerOfTwo { what, value: 12 }));
    for value in [1, 512] {
        let expected = Geometry::OutOfRange { what, value, min: 2, max: 256 };
        assert_eq!(refused(value), Some(expected));
    }
}

/// The frame at address 0 is freed by another user and then used for nodes. They must work like
/// nodes at other addresses.
#[test]
fn a_node_may_lie_at_address_0() {
    let mut memory = SparseMemory::new(1 << 20);
    let mut frames = Physmem::buddy(PhysAddr::new(0), 1 << 20, K4).unwrap();
    let first = Frames::allocate(&mut frames, K4).unwrap();
    assert_eq!(first, PhysAddr::new(0));
    let mut table = table(16);
    let space = table.create(&mut memory, &mut frames).unwrap();
    Frames::free(&mut frames, first, K4);
    for addr in [0x1000, 0x4000_0000] {
        let page = VirtAddr::new(addr).page(K4);
        let first = Translation::new(page, PhysAddr::new(addr), Rights::ALL);
        table.map(space, first, 1, &mut memory, &mut frames).unwrap().done(&mut frames);
    }
    for addr in [0x1000, 0x4000_0000] {
        assert!(table.query(space, VirtAddr::new(addr), &memory).is_some(), "{addr:#x}");
    }
}
