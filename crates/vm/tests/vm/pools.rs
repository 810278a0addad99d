//! Compares pools of reserved large pages with a list of blocks, and tests large blocks of shared
//! memory.
//!
//! ```text
//!   free, promised, surplus    three numbers     who has a block: spaces, by slot
//! ```

use alloc::{collections::BTreeMap, vec::Vec};

use addr::{Kind, Rights, VirtAddr};
use hat::HatSpace;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vm::{Defrag, Khugepaged, Shmem, Source, Thp};

use crate::{
    linux::{BLOCK, FIRST, LARGE, ORDER, Small, pages},
    world::BASE,
};

const SLOTS: u64 = 3;
const BLOCKS: u64 = 3;
const BOTH: Rights = Rights::from_bits(3);

/// The state of a block in a space: no page yet, a page of the pool, or base pages after a fault
/// for which the pool had no page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Block {
    Nothing { promised: bool },
    Page(usize),
    Broken(Option<usize>),
}

/// The model.
#[derive(Default)]
struct Model {
    free: u64,
    surplus: u64,
    overcommit: u64,
    total: u64,
    promised: u64,
    mapped: u64,
    refused: u64,
    taken: u64,
    bus_errors: u64,
    /// For each page of the pool, the number of spaces that use it.
    users: Vec<u32>,
    spaces: BTreeMap<u32, BTreeMap<u64, Vec<Block>>>,
}

impl Model {
    fn map(&mut self, space: u32, slot: u64, promises: bool) -> bool {
        let missing = if promises { BLOCKS.saturating_sub(self.free - self.promised) } else { 0 };
        if self.surplus + missing > self.overcommit {
            self.refused += 1;
            return false;
        }
        self.surplus += missing;
        self.total += missing;
        self.free += missing;
        if promises {
            self.promised += BLOCKS;
            self.mapped += 1;
        }
        let blocks = (0..BLOCKS).map(|_| Block::Nothing { promised: promises }).collect();
        self.spaces.get_mut(&space).unwrap().insert(slot, blocks);
        true
    }

    /// Takes a page of the pool, if there is one.
    fn take(&mut self, promised: bool) -> Option<usize> {
        if promised {
            self.promised -= 1;
        }
        if promised || self.free > self.promised {
            self.free -= 1;
        } else if self.surplus < self.overcommit {
            self.surplus += 1;
            self.total += 1;
        } else {
            self.bus_errors += 1;
            return None;
        }
        self.taken += 1;
        self.users.push(1);
        Some(self.users.len() - 1)
    }

    /// Touches a block. Returns whether it is a large page afterwards; `None` if it has base pages,
    /// which the model does not record.
    fn touch(&mut self, space: u32, slot: u64, block: usize, store: bool) -> Option<bool> {
        let now = self.spaces[&space][&slot][block];
        let (next, large) = match now {
            Block::Nothing { promised } => match self.take(promised) {
                Some(page) => (Block::Page(page), true),
                None => (Block::Broken(None), false),
            },
            Block::Page(page) if store && self.users[page] > 1 => match self.take(false) {
                Some(copy) => {
                    self.users[page] -= 1;
                    (Block::Page(copy), true)
                }
                None => (Block::Broken(Some(page)), false),
            },
            Block::Page(_) => (now, true),
            Block::Broken(_) => return None,
        };
        self.spaces.get_mut(&space).unwrap().get_mut(&slot).unwrap()[block] = next;
        Some(large)
    }

    /// Whether the model does not know what a fault in this block does. This is so if the block has
    /// base pages, or if it would be copied from a page of which another space has copied base
    /// pages; Linux would have ended a process before.
    fn is_unknown(&self, space: u32, slot: u64, block: usize, store: bool) -> bool {
        match self.spaces[&space][&slot][block] {
            Block::Nothing { .. } => false,
            Block::Broken(_) => true,
            Block::Page(page) => {
                let all = self.spaces.values().flat_map(BTreeMap::values).flatten();
                store && all.into_iter().any(|&other| other == Block::Broken(Some(page)))
            }
        }
    }

    fn unmap(&mut self, space: u32, slot: u64) {
        let Some(blocks) = self.spaces.get_mut(&space).unwrap().remove(&slot) else { return };
        let mut unpromised = 0;
        for block in blocks {
            match block {
                Block::Page(page) | Block::Broken(Some(page)) => {
                    self.users[page] -= 1;
                    if self.users[page] > 0 {
                    } else if self.surplus > 0 {
                        self.surplus -= 1;
                        self.total -= 1;
                    } else {
                        self.free += 1;
                    }
                }
                Block::Nothing { promised } => unpromised += u64::from(promised),
                Block::Broken(None) => {}
            }
        }
        self.promised -= unpromised;
        let leaving = unpromised.min(self.surplus).min(self.free);
        self.surplus -= leaving;
        self.total -= leaving;
        self.free -= leaving;
    }

    fn fork(&mut self, parent: u32, child: u32) {
        let mut copy = self.spaces[&parent].clone();
        for block in copy.values_mut().flatten() {
            match *block {
                Block::Nothing { .. } => *block = Block::Nothing { promised: false },
                Block::Page(page) | Block::Broken(Some(page)) => self.users[page] += 1,
                Block::Broken(None) => {}
            }
        }
        self.spaces.insert(child, copy);
    }
}

fn slot_pages(slot: u64) -> core::ops::Range<u64> {
    let first = FIRST + slot * 2 * BLOCKS * BLOCK;
    first..first + BLOCKS * BLOCK
}

/// Makes mappings, accesses and forks with a pool that is often empty, and compares the result with
/// the model.
#[test]
fn a_pool_gives_what_a_list_of_blocks_gives() {
    let mut seen = [0; 4];
    for seed in 0..24 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut world = Small::new(64 * BLOCK, Thp::new(1 << ORDER, 0, Khugepaged::of(ORDER)));
        let (blocks, overcommit) = (random.random_range(0..9), random.random_range(0..4));
        assert_eq!(world.kernel().set_pool(LARGE, blocks, overcommit), blocks);
        let mut model = Model { free: blocks, total: blocks, overcommit, ..Model::default() };
        let free_before = world.free();
        for step in 0..400 {
            let numbers: Vec<u32> = model.spaces.keys().copied().collect();
            let choice = random.random_range(0..100);
            if numbers.is_empty() {
                let space = world.kernel().create().unwrap();
                model.spaces.insert(space.0, BTreeMap::new());
                continue;
            }
            let number = numbers[random.random_range(0..numbers.len())];
            let (space, slot) = (HatSpace(number), random.random_range(0..SLOTS));
            let has = model.spaces[&number].contains_key(&slot);
            let context = format!("seed {seed}, step {step}, space {number}, slot {slot}");
            match choice {
                0..60 if has => {
                    let block = random.random_range(0..BLOCKS) as usize;
                    let store = random.random_bool(0.6);
                    let page = slot_pages(slot).start + block as u64 * BLOCK;
                    if !model.is_unknown(number, slot, block, store) {
                        let kind = if store { Kind::Store } else { Kind::Load };
                        let at = page + random.random_range(0..BLOCK);
                        let addr = VirtAddr::new(at << BASE.shift());
                        let large = model.touch(number, slot, block, store);
                        let inner = world.hat.space(space).unwrap();
                        let walk = world.hat.table_mut().walk(inner, addr, kind, &mut Vec::new());
                        if walk.is_err() {
                            world.kernel().fault(space, addr, kind).unwrap();
                        }
                        assert_eq!(Some(world.is_large(space, at)), large, "{context}");
                    }
                }
                60..80 if !has => {
                    let (range, promises) = (pages(slot_pages(slot)), random.random_bool(0.7));
                    world.kernel().map(space, range, BOTH, Source::Anonymous, 0).unwrap();
                    let mapped = world.kernel().reserve(space, range, LARGE, promises).unwrap();
                    assert_eq!(mapped, model.map(number, slot, promises), "{context}");
                    if !mapped {
                        world.kernel().unmap(space, range).unwrap();
                    }
                }
                80..90 => {
                    world.kernel().unmap(space, pages(slot_pages(slot))).unwrap();
                    model.unmap(number, slot);
                }
                90..95 if numbers.len() < 4 => {
                    let child = world.kernel().create().unwrap();
                    world.kernel().fork(space, child).unwrap();
                    model.fork(number, child.0);
                }
                95..98 => {
                    assert_eq!(world.kernel().exit(space), Ok(true));
                    (0..SLOTS).for_each(|slot| model.unmap(number, slot));
                    model.spaces.remove(&number);
                }
                _ => {}
            }
            world.kernel().check().unwrap_or_else(|wrong| panic!("{context}: {wrong}"));
            let (_, counts) = world.vm.pools()[0];
            let found = [
                counts.nr_hugepages,
                counts.free_hugepages,
                counts.resv_hugepages,
                counts.surplus_hugepages,
                counts.mapped,
                counts.refused,
                counts.taken,
                counts.bus_errors,
            ]; // as the model counts them
            let expected = [
                model.total,
                model.free,
                model.promised,
                model.surplus,
                model.mapped,
                model.refused,
                model.taken,
                model.bus_errors,
            ];
            assert_eq!(found, expected, "{context}");
        }
        for space in model.spaces.keys() {
            world.kernel().exit(HatSpace(*space)).unwrap();
        }
        let (_, counts) = world.vm.pools()[0];
        assert_eq!((counts.nr_hugepages, counts.free_hugepages), (blocks, blocks));
        let free = world.free() + world.vm.zero_frames();
        assert_eq!(free, free_before, "seed {seed}: surplus pages are free again");
        let more = [model.taken, model.refused, model.bus_errors, u64::from(overcommit > 0)];
        seen.iter_mut().zip(more).for_each(|(seen, more)| *seen += more);
    }
    assert!(seen.iter().all(|&seen| seen > 10), "{seen:?}");
}

/// Shared memory gets its large blocks at the first fault, and a child finds them.
#[test]
fn shared_memory_has_the_blocks_that_its_setting_allows() {
    for (order, is_large) in [(ORDER, true), (4, false)] {
        let shmem = Shmem { always: 1 << order, ..Shmem::default() };
        let thp = Thp { shmem, defrag: Defrag::Never, ..Thp::new(0, 0, Khugepaged::of(ORDER)) };
        let mut world = Small::new(64 * BLOCK, thp);
        let parent = world.kernel().create().unwrap();
        // The first and the last block of the region are incomplete.
        let region = pages(FIRST + 8..FIRST + 3 * BLOCK + 8);
        world.kernel().map(parent, region, BOTH, Source::SharedMemory, 0).unwrap();
        // The memory begins with the region, which is aligned for blocks of 8 pages.
        world.store(parent, FIRST + BLOCK);
        assert_eq!(world.vm.resident().shared, 1, "order {order}: addresses are not aligned alike");
        world.kernel().exit(parent).unwrap();

        let parent = world.kernel().create().unwrap();
        let region = pages(FIRST..FIRST + 3 * BLOCK);
        world.kernel().map(parent, region, BOTH, Source::SharedMemory, 0).unwrap();
        let child = world.kernel().create().unwrap();
        world.kernel().fork(parent, child).unwrap();
        world.store(parent, FIRST + BLOCK + 5);
        assert_eq!(world.vm.resident().shared, 1 << order);
        assert_eq!(world.is_large(parent, FIRST + BLOCK + 5), is_large);
        world.store(child, FIRST + BLOCK + 6);
        assert_eq!(world.vm.resident().shared, 1 << order);
        assert_eq!(world.is_large(child, FIRST + BLOCK), is_large);
        world.kernel().check().unwrap();
        let stats = world.vm.stats_by_size(&world.memory);
        assert_eq!(stats.iter().map(|(_, of)| of.shmem_alloc).sum::<u64>(), 1);
        world.kernel().exit(parent).unwrap();
        world.kernel().exit(child).unwrap();
        assert_eq!(world.vm.resident().shared, 0);
    }
}

/// Blocks smaller than a large page are made even if only a few pages are mapped.
#[test]
fn the_daemon_makes_smaller_blocks_where_it_may() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(62);
    for none in [BLOCK - 1, 0] {
        let daemon = Khugepaged { max_ptes_none: none, ..Khugepaged::of(ORDER) };
        let thp =
            Thp { faults: false, collapses_smaller: true, ..Thp::new(1 << 2 | 1 << 4, 0, daemon) };
        let mut world = Small::new(64 * BLOCK, thp);
        let space = world.space();
        let mut touched = [false; (3 * BLOCK) as usize];
        for part in 0..3 * BLOCK / 4 {
            // All four pages, some of them, or none of them are touched.
            let choice = random.random_range(0..3);
            for page in part * 4..part * 4 + 4 {
                if choice == 2 || choice == 1 && random.random_bool(0.5) {
                    touched[page as usize] = true;
                    world.store(space, FIRST + page);
                }
            }
        }
        world.kernel().khugepaged();
        world.kernel().check().unwrap();
        let frame = |world: &Small, page: u64| {
            let addr = VirtAddr::new((FIRST + page) << BASE.shift());
            world.hat.query(space, addr).map(|found| found.translation.frame.get() >> BASE.shift())
        };
        let is_block = |world: &Small, first: u64, pages: u64| {
            let at = frame(world, first);
            at.is_some_and(|at| {
                at % pages == 0
                    && (0..pages).all(|into| frame(world, first + into) == Some(at + into))
            })
        };
        for first in (0..3 * BLOCK).step_by(4) {
            let of = |pages: u64| {
                let first = first / pages * pages;
                (first..first + pages).filter(|&page| touched[page as usize]).count() as u64
            };
            let enough = |pages: u64| of(pages) >= if none == 0 { pages } else { 1 };
            let expected = enough(16) || enough(4);
            let whole = if enough(16) { first / 16 * 16 } else { first };
            let found = is_block(&world, whole, if enough(16) { 16 } else { 4 });
            assert_eq!(found, expected, "page {first}, {none} may be missing");
        }
    }
}
