//! The heap becomes full during an operation on a table, for every organisation and format. Each
//! allocation is refused once: the operation either fails with a typed error and changes nothing,
//! or succeeds without the allocation. After a failure, the operation is repeated with memory and
//! succeeds.

use addr::{PageSize, Rights, VirtAddr, VirtRange};
use pagetable::{Error, Footprint, Mapping, Space, Translation, Usage};

use crate::common::physical::Physical;
use crate::common::{Table, page};
use crate::heap;
use crate::refused::{Case, cases};

struct Scene {
    name: &'static str,
    table: Box<dyn Table>,
    space: Space,
    memory: Physical,
}

/// The state that a refused operation must not change.
type State = (u64, Footprint, Vec<Mapping>);

type Operation<'a> = &'a dyn Fn(&mut Scene) -> Result<(), Error>;

impl Scene {
    fn new(Case { name, mut table, .. }: Case) -> Scene {
        let mut memory = Physical::new();
        let space = table.create(&mut memory.clone(), &mut memory).unwrap();
        Scene { name, table, space, memory }
    }

    fn state(&self) -> State {
        (self.memory.bytes_out(), self.table.footprint(), self.pages())
    }

    fn pages(&self) -> Vec<Mapping> {
        let mut pages = Vec::new();
        let each = &mut |mapping| pages.push(mapping);
        self.table.visit(self.space, VirtRange::ALL, &self.memory, each);
        pages
    }

    fn map(&mut self, first: Translation, count: u64) -> Result<(), Error> {
        let (memory, frames) = (&mut self.memory.clone(), &mut self.memory.clone());
        self.table.map(self.space, first, count, memory, frames)?.done(frames);
        Ok(())
    }

    fn unmap(&mut self, range: VirtRange) -> Result<(), Error> {
        let memory = &mut self.memory;
        self.table.unmap(self.space, range, memory, &mut |_| {})?.done(memory);
        Ok(())
    }

    fn protect(&mut self, range: VirtRange, rights: Rights) -> Result<(), Error> {
        let memory = &mut self.memory;
        self.table.protect(self.space, range, rights, memory, &mut |_| {})?.done(memory);
        Ok(())
    }

    fn set_usage(&mut self, addr: VirtAddr, usage: Usage) -> Result<(), Error> {
        self.table.set_usage(self.space, addr, usage, &mut self.memory)
    }

    fn clear_usage(&mut self, range: VirtRange, usage: Usage) -> Result<(), Error> {
        let memory = &mut self.memory;
        self.table.clear_usage(self.space, range, usage, memory, &mut |_| {})?.done(memory);
        Ok(())
    }

    fn resize(&mut self, range: VirtRange, to: PageSize) -> Result<(), Error> {
        let (memory, frames) = (&mut self.memory.clone(), &mut self.memory.clone());
        let forget = &mut |_: &_| {};
        let pages = self.table.resize(self.space, range, to, memory, frames, forget)?;
        assert!(!pages.is_empty());
        Ok(())
    }

    /// Runs `act` once for each of its allocations, with this allocation refused. Returns the
    /// number of refused allocations.
    fn each_refused(&mut self, what: &str, act: Operation<'_>, undo: Operation<'_>) -> u64 {
        let name = self.name;
        println!("{name}: {what}");
        act(self).unwrap();
        let after = self.pages();
        undo(self).unwrap();
        for number in 1.. {
            let before = self.state();
            let (done, was_refused) = heap::refusing(number, || act(self));
            if let Err(error) = done {
                assert!(was_refused, "{name}: {what}: {error}");
                assert_eq!(error, Error::NoMemory, "{name}: {what}");
                assert_eq!(self.state(), before, "{name}: {what}, allocation {number}");
                continue;
            }
            assert_eq!(self.pages(), after, "{name}: {what}, allocation {number}");
            if !was_refused {
                return number - 1;
            }
            undo(self).unwrap();
            assert_eq!(self.pages(), before.2, "{name}: {what}, allocation {number}");
        }
        unreachable!("an operation ends")
    }

    /// Checks that `act` needs no memory. In a tree with more than five levels, unmapping a page
    /// can free more tables than a token has room for, so `act` may fail there.
    fn needs_none(&mut self, what: &str, act: Operation<'_>) {
        let name = self.name;
        match heap::without(|| act(self)) {
            Err(Error::NoMemory) if DEEP.contains(&name) => act(self).unwrap(),
            done => assert_eq!(done, Ok(()), "{name}: {what}"),
        }
    }
}

fn range(start: u64, bytes: u64) -> VirtRange {
    VirtRange::new(VirtAddr::new(start), bytes).unwrap()
}

const USED: Usage = Usage { referenced: true, dirty: true, marked: false };

/// Trees with more than five levels.
const DEEP: [&str; 1] = ["mpt"];

/// Runs the operations on pages that need many tables, and on a page that needs a table at each
/// level.
#[test]
fn each_allocation_is_refused_once() {
    check(|name| !SLOW.contains(&name));
}

/// Tables that make many allocations, each of which is refused once.
const SLOW: [&str; 5] = ["adaptive", "hashed", "clustered", "cuckoo", "cached"];

#[test]
#[ignore = "takes minutes: thousands of allocations, each refused once"]
fn each_allocation_of_other_tables_is_refused_once() {
    check(|name| SLOW.contains(&name));
}

fn check(is_wanted: impl Fn(&str) -> bool) {
    for case in cases().into_iter().filter(|case| is_wanted(case.name)) {
        let base = case.table.page_sizes()[0];
        let small = |size: &&PageSize| size.count_of(base) <= 1 << 13;
        let size = *case.table.page_sizes().iter().rfind(small).unwrap();
        let mut scene = Scene::new(case);
        let create: Operation<'_> = &|scene| {
            let (memory, frames) = (&mut scene.memory.clone(), &mut scene.memory.clone());
            let space = scene.table.create(memory, frames)?;
            // A space without pages ends without memory.
            heap::without(|| scene.table.destroy(space, memory)).unwrap().done(frames);
            Ok(())
        };
        scene.each_refused("create", create, &|_| Ok(()));
        let one = page(0x3000_0000, base, 0x10_0000, Rights::ALL);
        let there = VirtRange::of_page(one.page);
        scene.each_refused("map one", &|scene| scene.map(one, 1), &|scene| scene.unmap(there));
        scene.needs_none("unmap one", &|scene| scene.unmap(there));
        let (start, count) = (0x4000_0000, 1 << 11);
        let many = page(start, base, 0, Rights::ALL);
        let all = range(start, count * base.bytes());
        let (map, unmap): (Operation<'_>, Operation<'_>) =
            (&|scene| scene.map(many, count), &|scene| scene.unmap(all));
        scene.each_refused("map many", map, unmap);
        scene.each_refused("unmap many", unmap, map);
        scene.map(many, count).unwrap();
        scene.each_refused("protect", &|scene| scene.protect(all, Rights::READ), &|scene| {
            scene.protect(all, Rights::ALL)
        });
        let use_all: Operation<'_> =
            &|scene| all.pages(base).try_for_each(|page| scene.set_usage(page.start(), USED));
        scene.needs_none("use", use_all);
        scene.each_refused("clear", &|scene| scene.clear_usage(all, USED), use_all);
        let (mut found, seen) = (Vec::with_capacity(1 << 12), scene.pages());
        let Scene { table, space, memory, .. } = &scene;
        heap::without(|| {
            table.visit(*space, VirtRange::ALL, memory, &mut |mapping| found.push(mapping));
        });
        assert_eq!(found, seen);
        scene.needs_none("protect without memory", &|scene| scene.protect(all, Rights::READ));
        for page in all.pages(base) {
            scene.needs_none("unmap each", &|scene| scene.unmap(VirtRange::of_page(page)));
        }
        assert!(scene.pages().is_empty());
        if size > base {
            let large = page(2 * size.bytes(), size, 2 * size.bytes(), Rights::ALL);
            let whole = VirtRange::of_page(large.page);
            scene.each_refused("map large", &|scene| scene.map(large, 1), &|scene| {
                scene.unmap(whole)
            });
            scene.set_usage(whole.start(), USED).unwrap();
            let (split, merge): (Operation<'_>, Operation<'_>) =
                (&|scene| scene.resize(whole, base), &|scene| scene.resize(whole, size));
            scene.each_refused("split", split, merge);
            scene.each_refused("merge", merge, split);
            scene.needs_none("unmap large", &|scene| scene.unmap(whole));
        }
    }
}

/// A space with many pages is ended without free memory: its pages are unmapped first, one by one.
#[test]
fn a_space_ends_without_memory() {
    for case in cases() {
        let base = case.table.page_sizes()[0];
        let mut scene = Scene::new(case);
        let memory = &mut scene.memory.clone();
        let space = scene.table.create(memory, &mut scene.memory.clone()).unwrap();
        for number in 0..64u64 {
            let first = page(number << 26, base, number << 20, Rights::ALL);
            let map = scene.table.map(space, first, 1, memory, &mut scene.memory.clone());
            map.unwrap().done(&mut scene.memory.clone());
        }
        let before = scene.memory.bytes_out();
        let mut frames = scene.memory.clone();
        match heap::without(|| scene.table.destroy(space, memory)) {
            Ok(flush) => flush.done(&mut frames),
            Err(error) => {
                assert_eq!((error, scene.memory.bytes_out()), (Error::NoMemory, before));
                heap::without(|| {
                    for number in 0..64u64 {
                        let page = VirtRange::of_page(VirtAddr::new(number << 26).page(base));
                        let unmap = &mut || scene.table.unmap(space, page, memory, &mut |_| {});
                        let flush = match unmap() {
                            Err(Error::NoMemory) if DEEP.contains(&scene.name) => {
                                heap::unrefused(unmap)
                            }
                            flush => flush,
                        };
                        flush.unwrap().done(&mut frames);
                    }
                    scene.table.destroy(space, memory).unwrap().done(&mut frames);
                });
            }
        }
        assert!(scene.memory.bytes_out() < before, "{}", scene.name);
        assert!(scene.pages().is_empty());
    }
}
