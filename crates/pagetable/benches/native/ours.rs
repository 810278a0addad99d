use std::hint::black_box;

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Flush, PageTable, Scope, Space, Translation};

use crate::{
    arena::{Arena, DirectMap},
    lost::Walked,
    work::{PAGE_BYTES, Table, unmapped},
};

/// Stands for no space, before the first round.
const NO_SPACE: Space = Space::new(0, PhysAddr::new(0));

/// A table of this crate, in memory with or without walkers.
pub(crate) struct Ours<P, const WALKERS: bool> {
    table: P,
    arena: Arena,
    memory: DirectMap<WALKERS>,
    /// The space of the current round.
    space: Space,
}

impl<P: PageTable + 'static, const WALKERS: bool> Ours<P, WALKERS> {
    pub(crate) fn new(table: P, arena_bytes: u64) -> Ours<P, WALKERS> {
        let arena = Arena::new(arena_bytes);
        let memory = arena.memory();
        Ours { table, arena, memory, space: NO_SPACE }
    }

    #[inline(always)]
    fn protect_range(&mut self, range: VirtRange) {
        let (space, rights) = (self.space, Rights::READ | Rights::USER);
        let flush = self.table.protect(space, range, rights, &mut self.memory, &mut |_| {});
        self.flush(flush.expect("it can be protected"));
    }

    #[inline(always)]
    fn unmap_range(&mut self, range: VirtRange) {
        let flush = self.table.unmap(self.space, range, &mut self.memory, &mut |_| {});
        self.flush(flush.expect("it can be unmapped"));
    }

    /// Passes required flushes to a black box.
    #[inline(always)]
    fn flush(&mut self, flush: Flush) {
        match flush.scope() {
            Scope::Nothing => {}
            Scope::Pages { range, pages: 1 } => _ = black_box(range.start()),
            scope => _ = black_box(scope),
        }
        flush.done(&mut self.arena);
    }
}

fn page(start: u64) -> VirtRange {
    VirtRange::of_page(VirtAddr::new(start).page(PageSize::SIZE_4K))
}

fn region(start: u64, pages: u64) -> VirtRange {
    VirtRange::new(VirtAddr::new(start), pages * PAGE_BYTES).expect("a range of the work")
}

impl<P: PageTable + 'static, const WALKERS: bool> Walked for Ours<P, WALKERS> {
    fn memory(&self) -> DirectMap<true> {
        self.arena.memory()
    }

    fn root(&self) -> PhysAddr {
        self.space.root()
    }
}

impl<P: PageTable + 'static, const WALKERS: bool> Table for Ours<P, WALKERS> {
    fn create(&mut self) {
        let space = self.table.create(&mut self.memory, &mut self.arena);
        self.space = space.expect("the arena has room");
    }

    fn destroy(&mut self) {
        let flush = self.table.destroy(self.space, &mut self.memory).expect("it exists");
        flush.done(&mut self.arena);
    }

    #[inline(always)]
    fn map(&mut self, start: u64, frame: u64, pages: u64) {
        let page = VirtAddr::new(start).page(PageSize::SIZE_4K);
        let rights = Rights::READ | Rights::WRITE | Rights::USER;
        let first = Translation::new(page, PhysAddr::new(frame), rights);
        let space = self.space;
        let mapped = self.table.map(space, first, pages, &mut self.memory, &mut self.arena);
        mapped.expect("nothing is there yet").done(&mut self.arena);
    }

    #[inline(always)]
    fn walk(&mut self, addr: u64) -> u64 {
        let (space, addr) = (self.space, VirtAddr::new(addr));
        let found = self.table.walk(space, addr, Kind::Load, &mut self.memory, &mut |_| {});
        found.unwrap_or_else(|_| unmapped()).apply(addr).get()
    }

    #[inline(always)]
    fn protect(&mut self, start: u64, pages: u64) {
        match pages {
            1 => self.protect_range(page(start)),
            _ => self.protect_range(region(start, pages)),
        }
    }

    #[inline(always)]
    fn unmap(&mut self, start: u64, pages: u64) {
        match pages {
            1 => self.unmap_range(page(start)),
            _ => self.unmap_range(region(start, pages)),
        }
    }
}
