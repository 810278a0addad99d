//! Runs one stream of events on the memory manager and on its model.

use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use core::ops::Range;

use addr::{Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{
    Hat, HatSpace, Pool, Tables,
    locking::{Global, Locks, Scheme, Single},
};
use pagetable::{Mounted, Translation};
use physmem::{
    Allocator, Buddy, Coalesced, Contiguous, FrameId, Nodes, PageBlocks, Physmem, Refusing,
    Reservations, Restrictive, SizeLists,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vm::{
    Error, Fallback, FileKey, Hashed, How, Kernel, Marks, Module, POLICIES, Parts, Physical,
    Placement, Refused, Reserving, Settings, SettingsError, Source, Thp, Vm,
};

use crate::{
    board::Board,
    model::{Identity, Known, Model, Space, allows},
    tables::Table,
};

pub(crate) type AnyAllocator = Box<dyn Allocator + Send>;

pub(crate) const BASE: PageSize = PageSize::SIZE_4K;
const fn size(shift: u8) -> PageSize {
    match PageSize::from_shift(shift) {
        Some(size) => size,
        None => BASE,
    }
}
/// The page sizes: base pages, 16K, 64K and 256K.
pub(crate) const SIZES: [PageSize; 4] = [BASE, size(14), size(16), size(18)];
/// The first of the pages that are used: 64 pages on each side of an address at which page tables
/// and chunks of anons end.
const FIRST: u64 = 0x40000 - 64;
const PAGES: u64 = 128;
const SPACES_MAX: usize = 5;
const WIRED_MAX: usize = 24;
const RIGHTS: [u8; 6] = [0, 1, 3, 3, 5, 7];

/// What makes large pages.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Large {
    No,
    /// Modules request them.
    Asked,
    /// Modules request them. There are three NUMA nodes, between which pages are moved, and four
    /// cache colours.
    OnNodes,
    /// Full reservations become large pages.
    Reserved(Reserving),
    /// Linux's rules for faults, and its daemon.
    Linux(Thp),
    /// Linux's rules for faults, and its daemon; an address determines the frames that its page may
    /// have.
    Hashed(Thp, Hashed),
}

/// The number of NUMA nodes in worlds with several nodes.
const NODES: u8 = 3;

/// An allocator with lists by size for each of these ranges of frames.
fn lists(ranges: &[Range<u32>], sizes: &[PageSize]) -> AnyAllocator {
    let lists = |range: &Range<u32>| SizeLists::new(range.clone(), BASE, sizes).unwrap();
    match ranges {
        [one] => Box::new(lists(one)),
        _ => {
            Box::new(Nodes::new(ranges.iter().map(|range| (range.clone(), lists(range))).collect()))
        }
    }
}

/// Memory of `pages` base pages on `nodes` nodes, under lists by size.
pub(crate) fn memory(pages: u64, nodes: u8, sizes: &[PageSize]) -> Physmem<AnyAllocator> {
    let all = |ranges: &[Range<u32>]| lists(ranges, sizes);
    Physmem::on_nodes(PhysAddr::new(0), pages * BASE.bytes(), BASE, nodes, all).unwrap()
}

/// The hardware's operation on a page table.
pub(crate) trait Hardware {
    /// The translation that a walk finds for an access.
    fn walk(&mut self, space: HatSpace, addr: VirtAddr, kind: Kind) -> Option<Translation>;
}

impl<L: Locks> Hardware for Hat<dyn Mounted, Global<dyn Mounted, L>> {
    fn walk(&mut self, space: HatSpace, addr: VirtAddr, kind: Kind) -> Option<Translation> {
        let inner = self.space(space).unwrap();
        self.table_mut().walk(inner, addr, kind, &mut Vec::new()).ok()
    }
}

/// A memory manager with locks of `L`, a HAT layer with the locking scheme `S`, and the model.
pub(crate) struct World<L: Locks = Single, S = Global<dyn Mounted, Single>> {
    pub(crate) vm: Vm<L>,
    hat: Hat<dyn Mounted, S>,
    pub(crate) memory: Physical<Refusing<AnyAllocator>, L>,
    /// Whether pages of several sizes are requested.
    large: bool,
    nodes: u8,
    /// The number of base pages that were moved to another node.
    pub(crate) moved: u64,
    linux: bool,
    /// Whether regions are so large that large pages fit.
    regions_wide: bool,
    pub(crate) board: Board,
    random: Xoshiro256PlusPlus,
    model: Model,
    spaces: BTreeMap<HatSpace, Space>,
    made: u64,
    stamp: u64,
    /// The largest number of frames that page tables have used.
    pub(crate) tables_peak: u64,
}

impl World {
    pub(crate) fn new(table: &Table, replacement: &'static str, frames: u64, seed: u64) -> World {
        World::with(table, replacement, frames, seed, Large::No)
    }

    /// A world with large pages as `large` says.
    pub(crate) fn with(
        table: &Table,
        replacement: &'static str,
        frames: u64,
        seed: u64,
        large: Large,
    ) -> World {
        World::under(Global::new(Pool::unlimited()), table, replacement, (frames, seed), large)
    }
}

impl<L: Locks, S: Scheme<Table = dyn Mounted>> World<L, S>
where
    Hat<dyn Mounted, S>: Hardware,
{
    /// A world under locks of several threads, with the HAT layer's locks by `scheme`.
    pub(crate) fn under(
        scheme: S,
        table: &Table,
        replacement: &'static str,
        (frames, seed): (u64, u64),
        large: Large,
    ) -> World<L, S> {
        let sizes = match large {
            Large::No => &SIZES[..1],
            Large::Asked | Large::OnNodes | Large::Reserved(_) => &SIZES[..],
            Large::Linux(_) | Large::Hashed(..) => &[SIZES[0], SIZES[3]],
        };
        let nodes = if large == Large::OnNodes { NODES } else { 1 };
        let memory =
            Physmem::on_nodes(PhysAddr::new(0), frames * BASE.bytes(), BASE, nodes, |ranges| {
                let frames = ranges[0].clone();
                Refusing::new(match large {
                    Large::Asked | Large::OnNodes => lists(ranges, sizes),
                    Large::Reserved(_) => {
                        Box::new(Reservations::new(Buddy::new(frames.clone()), frames, &[4, 2]))
                    }
                    Large::No => Box::new(Buddy::new(frames)),
                    Large::Linux(_) | Large::Hashed(_, Hashed::Mosaic(_)) => {
                        Box::new(Contiguous::new(PageBlocks::new(frames, 6, 7), 7))
                    }
                    Large::Hashed(_, Hashed::Utopia(segments)) => {
                        let first = segments.iter().flatten().map(|of| of.first).min().unwrap();
                        let flexible = PageBlocks::new(0..first.0, 6, 7);
                        Box::new(Restrictive::new(flexible, first, FrameId(frames.end)))
                    }
                })
            })
            .unwrap();
        let asked = matches!(large, Large::Asked | Large::OnNodes);
        let hat = Hat::with(scheme, Tables::One((table.make)()));
        let mut memory = Physical::with_locks(memory);
        let marks = Marks { min: 4, low: 8, high: 12 };
        let settings = Settings {
            sizes,
            sizing: if asked { "modules" } else { "base" },
            paired: asked,
            replacement,
            reference: table.reference,
            swap_pages: 4000,
            marks,
            reserving: match large {
                Large::Reserved(reserving) => Some(reserving),
                Large::No | Large::Asked | Large::OnNodes => None,
                Large::Linux(_) | Large::Hashed(..) => None,
            },
            thp: match large {
                Large::Linux(thp) | Large::Hashed(thp, _) => Some(thp),
                Large::No | Large::Asked | Large::OnNodes | Large::Reserved(_) => None,
            },
            groups: &[],
            hashed: match large {
                Large::Hashed(_, hashed) => Some(hashed),
                Large::No | Large::Asked | Large::OnNodes => None,
                Large::Reserved(_) | Large::Linux(_) => None,
            },
            nodes,
            colors: if nodes > 1 { 4 } else { 1 },
        };
        let vm = Vm::with_locks(settings, frames).unwrap();
        if asked {
            let thresholds = [(2, 1), (4, 6), (6, 30)];
            let all = memory.get_mut().table().frames();
            vm.set_daemon(Coalesced::new(all, &thresholds, 2));
        }
        memory.get_mut().allocator_mut().0.refuse(u64::MAX);
        World {
            vm,
            hat,
            memory,
            large: asked,
            nodes,
            moved: 0,
            linux: matches!(large, Large::Linux(_) | Large::Hashed(..)),
            regions_wide: large != Large::No,
            board: Board::default(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            model: Model::default(),
            spaces: BTreeMap::new(),
            made: 0,
            stamp: 0,
            tables_peak: 0,
        }
    }

    pub(crate) fn kernel(
        &mut self,
    ) -> Kernel<'_, Parts<dyn Mounted, Refusing<AnyAllocator>, Board, L, S>> {
        let World { vm, hat, memory, board, .. } = self;
        // The node of the processor changes from operation to operation.
        let node = (self.stamp % u64::from(self.nodes)) as u8;
        Kernel::new(vm, hat, memory, board).on_node(node)
    }

    /// Runs events, then ends all spaces and drops the page cache, and checks that every frame is
    /// free again.
    pub(crate) fn run(&mut self, events: u32) {
        for _ in 0..events {
            self.event();
            let tables = self.hat.pool().used_bytes >> BASE.shift();
            self.tables_peak = self.tables_peak.max(tables);
            if let Err(wrong) = self.kernel().check() {
                panic!("{wrong}");
            }
        }
        self.look_at_all();
        for (space, known) in core::mem::take(&mut self.spaces) {
            for user in (0..known.users).rev() {
                assert_eq!(self.kernel().exit(space), Ok(user == 0));
            }
        }
        self.kernel().check().unwrap();
        assert_eq!(self.vm.resident().anon + self.vm.resident().shared, 0);
        self.kernel().drop_caches();
        self.kernel().check().unwrap();
        assert_eq!(self.vm.resident().file, 0);
        assert_eq!(self.vm.swapped(), 0, "swap that nobody uses is free");
        let tables = self.hat.pool().used_bytes + (self.vm.zero_frames() << BASE.shift());
        assert_eq!(self.memory.get_mut().used_bytes(), tables, "every frame is back");
        let work = self.vm.work();
        assert_eq!(work.frames_taken - work.frames_given, tables >> BASE.shift());
    }

    fn event(&mut self) {
        let choice = self.random.random_range(0..1000);
        let Some(space) = self.any_space() else {
            let space = self.kernel().create().unwrap();
            self.spaces.insert(space, Space { users: 1, ..Space::default() });
            return;
        };
        if self.large && self.random.random_bool(0.2) {
            return self.sizes(space);
        }
        if self.linux && self.random.random_bool(0.2) {
            return self.advise(space);
        }
        match choice {
            0..640 => (0..8).for_each(|_| self.access(space)),
            640..730 => self.map(space),
            730..760 => self.unmap(space),
            760..800 => self.protect(space),
            800..840 => self.move_pages(space),
            840..870 => self.discard(space),
            870..890 => self.lock(space),
            890..910 => self.unlock(space),
            910..955 => self.fork(space),
            955..960 => {
                self.kernel().share(space).unwrap();
                self.spaces.get_mut(&space).unwrap().users += 1;
            }
            960..970 => {
                self.kernel().exec(space).unwrap();
                self.spaces.get_mut(&space).unwrap().pages.clear();
            }
            970..980 => self.exit(space),
            980..988 => self.transfer_file(),
            988..992 => self.change(),
            _ => {
                self.kernel().tick();
            }
        }
    }

    fn access(&mut self, space: HatSpace) {
        let page = FIRST + self.random.random_range(0..PAGES);
        let kind = Kind::ALL[self.random.random_range(0..3)];
        let known = self.spaces[&space].pages.get(&page).copied();
        let found = self.hardware(space, page, kind);
        let addr = VirtAddr::new(page << BASE.shift());
        let Some(mut known) = known else {
            assert_eq!(found, Err(Error::NoRegion(addr)));
            return;
        };
        if !self.allows(known.rights, kind) {
            assert!(matches!(found, Err(Error::Denied { .. })), "{found:?} of {known:?}");
            return;
        }
        let frame = found.unwrap_or_else(|error| panic!("{error}"));
        if kind == Kind::Store {
            self.stamp += 1;
            self.board.contents.insert(frame, self.stamp);
            self.model.store(&mut known, self.stamp);
            self.spaces.get_mut(&space).unwrap().pages.insert(page, known);
            if !known.shared {
                self.copied(space, self.board.tlb[&(space, addr)].page);
            }
        } else {
            let found = self.board.contents[&frame];
            assert!(self.model.may_be(&known, found), "{found} at {addr} of {space:?}: {known:?}");
        }
    }

    /// A store to a private page has copied all of `page`, which may be a large page. Its other
    /// base pages then do not get later contents of the file; `mmap` does not define this. More
    /// than `page` may have been copied, if a larger page was refused only after the copy.
    fn copied(&mut self, space: HatSpace, page: Page) {
        let known = self.spaces.get_mut(&space).unwrap();
        let first = page.start().get() >> BASE.shift();
        let others = known.pages.range_mut(first..first + page.size().count_of(BASE));
        for (_, other) in others.filter(|(_, other)| !other.shared && !other.beside) {
            other.own = Some(self.model.contents(other));
        }
        if self.large {
            let most = SIZES[3].count_of(BASE);
            let first = first & !(most - 1);
            known.pages.range_mut(first..first + most).for_each(|(_, other)| other.beside = true);
        }
    }

    fn allows(&self, rights: Rights, kind: Kind) -> bool {
        let of_reading = self.hat.granted(Rights::READ | Rights::USER);
        allows(rights, kind, !of_reading.contains(Rights::EXECUTE))
    }

    /// Simulates an access of a processor: TLB lookup, walk, fault, second walk.
    fn hardware(&mut self, space: HatSpace, page: u64, kind: Kind) -> Result<PhysAddr, Error> {
        let addr = VirtAddr::new(page << BASE.shift());
        if let Some(held) = self.board.tlb.get(&(space, addr))
            && held.rights.allows(kind)
        {
            return Ok(held.apply(addr).align_down(BASE));
        }
        for faults in 0.. {
            if let Some(found) = self.hat.walk(space, addr, kind) {
                self.board.tlb.insert((space, addr), found);
                return Ok(found.apply(addr).align_down(BASE));
            }
            assert!(faults < 2, "{addr} faults again and again");
            self.kernel().fault(space, addr, kind)?;
        }
        unreachable!("it succeeds, or fails for good")
    }

    /// Makes an operation that concerns page sizes: attaches a module, upgrades pages, or runs a
    /// pass of the daemon.
    fn sizes(&mut self, space: HatSpace) {
        let pages = match self.random.random_bool(0.5) {
            true => self.pages(),
            false => FIRST..FIRST + PAGES,
        };
        let range = self.range(&pages);
        let size = SIZES[self.random.random_range(0..SIZES.len())];
        match self.random.random_range(0..10) {
            0..6 => {
                let moves = self.random.random_range(0..40);
                let fallback = if moves > 20 { Fallback::Wait(moves) } else { Fallback::Smaller };
                let mut module = Module { page_size: Some(size), fallback, ..Module::default() };
                if self.nodes > 1 {
                    let node = self.random.random_range(0..self.nodes);
                    let placements = [Placement::Local, Placement::Node(node), Placement::InTurn];
                    module.placement = placements[self.random.random_range(0..3)];
                    module.stays = self.random.random_bool(0.5);
                    module.color_first = self.random.random_bool(0.5);
                }
                self.kernel().attach(space, range, module).unwrap();
            }
            6..8 if self.nodes > 1 && self.random.random_bool(0.8) => {
                (0..12).for_each(|_| self.move_to_some_node(space));
            }
            6..8 => {
                self.kernel().upgrade(space, range, size).unwrap();
            }
            _ => {
                let moves = self.random.random_range(0..60);
                self.kernel().coalesce(moves);
            }
        }
    }

    /// Moves the page at a random address to a random node.
    fn move_to_some_node(&mut self, space: HatSpace) {
        let page = FIRST + self.random.random_range(0..PAGES);
        let node = self.random.random_range(0..self.nodes);
        let addr = VirtAddr::new(page << BASE.shift());
        let before = self.hat.query(space, addr).map(|held| held.translation.page);
        let Ok(moved) = self.kernel().move_to_node(space, addr, node).unwrap() else { return };
        self.moved += moved;
        let Some(held) = self.hat.query(space, addr).map(|held| held.translation) else {
            // There was no page; or a minor fault will restore the page, because the other page of
            // its pair is smaller or a table had no memory.
            return;
        };
        let table = self.memory.get_mut().table();
        let frame = table.frame_at(held.apply(addr)).unwrap();
        assert_eq!(table.get(frame).node(), node);
        assert!(before.is_some_and(|before| before.size() >= held.page.size()));
    }

    /// Makes an operation that concerns Linux's large pages: gives advice, runs the daemon, or
    /// collapses pages.
    fn advise(&mut self, space: HatSpace) {
        let pages = match self.random.random_bool(0.5) {
            true => self.pages(),
            false => FIRST..FIRST + PAGES,
        };
        let range = self.range(&pages);
        match self.random.random_range(0..10) {
            0..4 => {
                let advised = [None, Some(SIZES[3]), Some(SIZES[3]), Some(BASE)];
                let page_size = advised[self.random.random_range(0..advised.len())];
                let module = Module { page_size, ..Module::default() };
                self.kernel().attach(space, range, module).unwrap();
            }
            4..6 => {
                let refused = match range.start().page(BASE).number() % 8 {
                    0 => Refused::Unknown,
                    1 => Refused::Known,
                    _ => Refused::No,
                };
                self.kernel().collapse(space, range, refused).unwrap();
            }
            6 => self.daemons(),
            _ => {
                self.kernel().khugepaged();
            }
        }
    }

    /// Runs the other daemons.
    fn daemons(&mut self) {
        match self.random.random_range(0..6) {
            0 => {
                self.kernel().begin_sample();
                self.kernel().age_use();
            }
            1 => self.kernel().end_sample(),
            2 => self.kernel().prezero(2),
            3 => self.kernel().recover(900, 950, 300),
            4 => self.kernel().range_over(),
            _ => self.kernel().compact_proactively(),
        }
    }

    fn map(&mut self, space: HatSpace) {
        let pages = self.pages();
        let rights = Rights::from_bits(RIGHTS[self.random.random_range(0..RIGHTS.len())]);
        let key = FileKey { device: 1, inode: self.random.random_range(0..3) };
        let first = self.random.random_range(0..20);
        let shared = self.random.random_bool(0.5);
        let (source, identity): (_, fn(FileKey, u64, u64) -> Identity) = match self
            .random
            .random_range(0..4)
        {
            0 | 1 => (Source::Anonymous, |_, _, _| Identity::Anonymous),
            2 => (Source::SharedMemory, |_, made, page| Identity::Memory(made, page)),
            _ => (Source::File { key, first, shared }, |key, _, page| Identity::File(key, page)),
        };
        self.made += 1;
        let (made, range) = (self.made, self.range(&pages));
        self.kernel().map(space, range, rights, source, made as u32 % 3).unwrap();
        if self.large && self.random.random_bool(0.7) {
            let size = SIZES[self.random.random_range(1..SIZES.len())];
            let module = Module { page_size: Some(size), ..Module::default() };
            self.kernel().attach(space, range, module).unwrap();
        }
        for page in pages.clone() {
            let index = page - pages.start;
            let (index, shared) = match source {
                Source::Anonymous | Source::Frames { .. } => (0, false),
                Source::SharedMemory => (index, true),
                Source::File { first, shared, .. } => (first + index, shared),
            };
            let identity = identity(key, made, index);
            let known = Known { identity, rights, shared, wired: false, own: None, beside: false };
            self.spaces.get_mut(&space).unwrap().pages.insert(page, known);
        }
    }

    fn unmap(&mut self, space: HatSpace) {
        let pages = self.pages();
        let range = self.range(&pages);
        self.kernel().unmap(space, range).unwrap();
        self.spaces.get_mut(&space).unwrap().pages.retain(|page, _| !pages.contains(page));
    }

    fn protect(&mut self, space: HatSpace) {
        let pages = self.pages();
        let rights = Rights::from_bits(RIGHTS[self.random.random_range(0..RIGHTS.len())]);
        let range = self.range(&pages);
        self.kernel().protect(space, range, rights).unwrap();
        let known = self.spaces.get_mut(&space).unwrap();
        known.pages.range_mut(pages).for_each(|(_, known)| known.rights = rights);
    }

    /// Moves a run of pages to addresses that do not overlap it, or changes its length in place.
    fn move_pages(&mut self, space: HatSpace) {
        let from = self.pages();
        let from = from.start..from.end.min(from.start + 8);
        let count = self.random.random_range(1..10);
        let in_place = self.random.random_bool(0.3);
        let to = if in_place { from.start } else { self.pages().start };
        let apart = to + count <= from.start || from.end <= to;
        if !(in_place || apart) || to + count > FIRST + PAGES {
            return;
        }
        let known = self.spaces.get_mut(&space).unwrap();
        let length = from.end - from.start;
        // The region of the last page grows; if it is wired, all new pages are brought into memory.
        let last = known.pages.get(&(from.end - 1)).copied();
        if last.is_some_and(|last| last.wired) && count > length {
            return;
        }
        let mut moved = BTreeMap::new();
        for page in from.clone() {
            if let Some(page_known) = known.pages.remove(&page) {
                moved.insert(page - from.start, page_known);
            }
        }
        // Pages at target addresses for which the source has a hole stay.
        known.pages.retain(|page, _| {
            !(to..to + count).contains(page) || count <= length && !moved.contains_key(&(page - to))
        });
        moved.retain(|&into, _| into < count);
        for more in length..count {
            let Some(last) = last else { break };
            let further = more - (length - 1);
            let identity = match last.identity {
                Identity::Anonymous => Identity::Anonymous,
                Identity::File(file, index) => Identity::File(file, index + further),
                Identity::Memory(memory, index) => Identity::Memory(memory, index + further),
            };
            moved.insert(more, Known { identity, own: None, beside: false, ..last });
        }
        known.pages.extend(moved.into_iter().map(|(into, page)| (to + into, page)));
        let (range, to) = (self.range(&from), VirtAddr::new(to << BASE.shift()));
        self.kernel().move_pages(space, range, to, count * BASE.bytes()).unwrap();
    }

    fn discard(&mut self, space: HatSpace) {
        let pages = self.pages();
        let range = self.range(&pages);
        self.kernel().discard(space, range).unwrap();
        let known = self.spaces.get_mut(&space).unwrap();
        let inside = known.pages.range_mut(pages).filter(|(_, known)| !known.wired);
        inside.for_each(|(_, known)| (known.own, known.beside) = (None, false));
    }

    fn lock(&mut self, space: HatSpace) {
        let pages = self.pages();
        let pages = pages.start..pages.end.min(pages.start + 6);
        let wired = self.spaces.values().flat_map(|space| space.pages.values());
        if wired.filter(|known| known.wired).count() + 6 > WIRED_MAX {
            return;
        }
        let range = self.range(&pages);
        // Another kind of lock before or after this one does not change which pages are wired.
        match pages.start % 4 {
            0 => self.kernel().lock_on_fault(space, range).unwrap(),
            1 => self.kernel().lock_later(space, range).unwrap(),
            _ => {}
        }
        self.kernel().lock(space, range).unwrap();
        if pages.start % 4 == 2 {
            self.kernel().lock_on_fault(space, range).unwrap();
        }
        let known = self.spaces.get_mut(&space).unwrap();
        let inside = known.pages.range_mut(pages.clone());
        inside.for_each(|(_, known)| known.wired = true);
        // A page that allows stores becomes the space's own page, with its present contents.
        for page in pages {
            let known = &self.spaces[&space].pages;
            let Some(mut known) = known.get(&page).copied() else { continue };
            if !known.shared && !known.beside && known.rights.contains(Rights::WRITE) {
                known.own = Some(self.model.contents(&known));
                self.spaces.get_mut(&space).unwrap().pages.insert(page, known);
            }
            if known.rights.bits() & 7 != 0 {
                let addr = VirtAddr::new(page << BASE.shift());
                assert!(self.hat.query(space, addr).is_some(), "{addr} is locked");
            }
        }
    }

    fn unlock(&mut self, space: HatSpace) {
        let pages = FIRST..FIRST + PAGES;
        let range = self.range(&pages);
        self.kernel().unlock(space, range).unwrap();
        let known = self.spaces.get_mut(&space).unwrap();
        known.pages.values_mut().for_each(|known| known.wired = false);
    }

    fn fork(&mut self, parent: HatSpace) {
        if self.spaces.len() >= SPACES_MAX {
            return;
        }
        let child = self.kernel().create().unwrap();
        let resident = self.vm.resident();
        self.kernel().fork(parent, child).unwrap();
        assert_eq!(self.vm.resident(), resident, "a child takes no frames until it stores");
        let mut copy = Space { users: 1, ..self.spaces[&parent].clone() };
        copy.pages.values_mut().for_each(|known| known.wired = false);
        self.spaces.insert(child, copy);
    }

    fn exit(&mut self, space: HatSpace) {
        let known = self.spaces.get_mut(&space).unwrap();
        known.users -= 1;
        let last = known.users == 0;
        if last {
            self.spaces.remove(&space);
            self.board.tlb.retain(|&(of, _), _| of != space);
        }
        assert_eq!(self.kernel().exit(space), Ok(last));
    }

    /// A call reads or overwrites whole pages of a file.
    fn transfer_file(&mut self) {
        let key = FileKey { device: 1, inode: self.random.random_range(0..3) };
        let (first, count) = (self.random.random_range(0..40u64), self.random.random_range(1..6));
        let write = self.random.random_bool(0.5);
        let (offset, bytes) = (first << BASE.shift(), count << BASE.shift());
        let mut seen = Vec::new();
        let each = &mut |board: &mut Board, frame: PhysAddr, index: u64| {
            if write {
                board.contents.insert(frame, 1 << 50 | index);
            } else {
                seen.push((index, board.contents[&frame]));
            }
        };
        self.kernel().transfer_file(key, offset, bytes, write, each).unwrap();
        if write {
            for index in first..first + count {
                self.model.overwrite(Identity::File(key, index), 1 << 50 | index);
            }
            return;
        }
        assert_eq!(seen.len() as u64, count);
        for (index, found) in seen {
            assert_eq!(found, self.model.shared(Identity::File(key, index)), "page {index}");
        }
    }

    /// Changes settings while the stream runs.
    fn change(&mut self) {
        let name = POLICIES[self.random.random_range(0..POLICIES.len())].0;
        self.kernel().set_replacement(name).unwrap();
        let min = self.random.random_range(4..8);
        self.kernel().set_marks(Marks { min, low: min + 4, high: min + 8 }).unwrap();
        let wrong = Marks { min: 9, low: 8, high: 12 };
        assert_eq!(self.kernel().set_marks(wrong), Err(SettingsError::Marks));
        let used = self.vm.swapped() as u32;
        let less = self.kernel().set_swap(used.saturating_sub(1));
        assert_eq!(less.is_err(), used > 0, "{used} pages are in swap");
        let more = self.random.random_range(3000..5000);
        self.kernel().set_swap(more).unwrap();
    }

    /// Checks that every page of every space has the expected contents.
    fn look_at_all(&mut self) {
        for (space, known) in self.spaces.clone() {
            for (page, known) in known.pages {
                if !self.allows(known.rights, Kind::Load) {
                    continue;
                }
                let frame = self.hardware(space, page, Kind::Load).unwrap();
                let found = self.board.contents[&frame];
                assert!(
                    self.model.may_be(&known, found),
                    "{found} at {page:#x} of {space:?}: {known:?}"
                );
            }
        }
    }

    /// Locks a region that is larger than memory.
    pub(crate) fn wire_until_refused(&mut self) {
        let space = self.kernel().create().unwrap();
        self.spaces.insert(space, Space { users: 1, ..Space::default() });
        let range = self.range(&(FIRST..FIRST + 2 * PAGES));
        let rights = Rights::READ | Rights::WRITE;
        self.kernel().map(space, range, rights, Source::Anonymous, 0).unwrap();
        let locked = self.kernel().lock(space, range);
        assert!(matches!(locked, Err(Error::OutOfMemory { wired: 100.., .. })), "{locked:?}");
        self.kernel().check().unwrap();
        self.kernel().unlock(space, range).unwrap();
        let few = self.range(&(FIRST..FIRST + 10));
        self.kernel().lock(space, few).unwrap();
        self.kernel().check().unwrap();
    }

    fn any_space(&mut self) -> Option<HatSpace> {
        let known = self.spaces.len();
        let chosen = self.random.random_range(0..known.max(1));
        self.spaces.keys().nth(chosen).copied()
    }

    fn pages(&mut self) -> core::ops::Range<u64> {
        if self.regions_wide && self.random.random_bool(0.3) {
            let start = FIRST + PAGES / 2 * self.random.random_range(0..2);
            return start..FIRST + PAGES;
        }
        let start = FIRST + self.random.random_range(0..PAGES);
        start..(start + self.random.random_range(1..40)).min(FIRST + PAGES)
    }

    fn range(&self, pages: &core::ops::Range<u64>) -> VirtRange {
        let bytes = (pages.end - pages.start) << BASE.shift();
        VirtRange::new(VirtAddr::new(pages.start << BASE.shift()), bytes).unwrap()
    }

    /// A digest of all counts and contents.
    pub(crate) fn digest(&self) -> u64 {
        let faults = How::ALL.iter().map(|&how| self.vm.faults()[how as usize]);
        let work = self.vm.work();
        let counts = faults.chain(work.each().map(|(_, count)| count)).chain([self.stamp]);
        counts.fold(0xcbf2_9ce4_8422_2325, |hash: u64, count| {
            (hash ^ count).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}
