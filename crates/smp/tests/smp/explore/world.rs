//! Processors that load, unload, protect, fork and steal at random on one HAT layer, and the
//! conditions that must be true for every schedule.
//!
//! ```text
//!   each change, in the order in which page tables changed  --> a map of pages, step by step
//!   pages that were removed                                 --> in no TLB that had them before
//!   at the end                                              --> tables, lists and map are equal
//! ```

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use addr::{Frames, OutOfFrames, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace, LoadError, MakeTable, Platform, Step, Tables, locking::Scheme};
use pagetable::{Flush, Mapping, Mounted, Translation, Usage};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use smp::{Baton, Board, Costs, Cpu, LockKind, Shootdowns};

const SIZE: PageSize = PageSize::SIZE_4K;
const SPACES: usize = 3;
/// The number of pages of each processor in each space.
const PAGES: u64 = 3;
/// The number of frames that all processors map.
const FRAMES: u64 = 4;
const FIRST_FRAME: u64 = 0x10_0000;
/// From this address on, each processor has a page for the mapping tree: it maps this page from
/// space to space.
const TREES: u64 = 60 << 21;
/// The address of the first frame for page tables. Some formats need page tables below 4 GiB.
const FIRST_TABLE: u64 = 1 << 28;

/// A change. The log of changes has them in their order.
#[derive(Clone, Copy, Debug)]
enum Event {
    Load(HatSpace, Translation),
    Removed(HatSpace, Translation),
    Protect(HatSpace, VirtRange, Rights),
    Resized(HatSpace, VirtRange, PageSize),
    Ended(HatSpace),
}

/// The operation under way on a processor.
#[derive(Clone, Copy, Debug)]
enum Op {
    Look,
    Load(HatSpace, Translation),
    Protect(HatSpace, VirtRange, Rights),
    Resize(HatSpace, VirtRange, PageSize),
    Destroy(HatSpace),
    /// A page moves from one space to another: it is entered into the new space, and then removed
    /// from the old space.
    Grant {
        from: HatSpace,
        to: HatSpace,
        page: Translation,
        operations: u32,
    },
}

/// Defects that are made on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Faults {
    /// A shootdown returns before the processors have answered.
    pub(crate) early_answer: bool,
    /// If no frame is left for a table, another space loses its tables immediately, during the load
    /// that needs the frame.
    pub(crate) steal_in_load: bool,
}

/// The parameters of a run, besides the scheme and the page tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) cpus: usize,
    pub(crate) steps: u32,
    pub(crate) seed: u64,
    /// The number of frames for page tables.
    pub(crate) frames: u64,
    /// log2 of the bytes from the start of one page to the start of the next. With 21, each page
    /// has its own page table.
    pub(crate) page_shift: u32,
    /// A larger page size. Pages of this size are loaded and resized too.
    pub(crate) large: Option<PageSize>,
    pub(crate) faults: Faults,
    /// Whether the processors are threads of the host, which run at the same time.
    pub(crate) is_native: bool,
}

/// The layer, and the state that is needed to check it.
struct World<S> {
    hat: Hat<dyn Mounted, S>,
    board: Board,
    log: Mutex<Vec<Event>>,
    spaces: Mutex<Vec<HatSpace>>,
}

/// Runs a random schedule of random operations. The error names the condition that was violated.
pub(crate) fn explore<S>(scheme: S, tables: Tables<dyn Mounted>, plan: Plan) -> Result<(), String>
where
    S: Scheme<Table = dyn Mounted> + Sync + Send,
{
    let world = World {
        hat: Hat::with(scheme, tables),
        board: Board::new(plan.cpus, Shootdowns::Interrupts, plan.frames)
            .with_frames_from(FIRST_TABLE),
        log: Mutex::default(),
        spaces: Mutex::default(),
    };
    let mut cpu = Cpu::new(&world.board, 0);
    for _ in 0..SPACES {
        lock(&world.spaces).push(world.hat.create(&mut cpu).unwrap());
    }
    let steal = |cpu: &mut Cpu<'_>| {
        let space = lock(&world.spaces)[0];
        world.hat.unload(space, VirtRange::ALL, &mut |_| (), cpu).unwrap();
    };
    let work = &|number| Thread::new(&world, number, plan, &steal).run(plan.steps);
    if plan.is_native {
        std::thread::scope(|scope| {
            (0..plan.cpus).for_each(|number| drop(scope.spawn(move || work(number))));
        });
    } else {
        let baton = Baton::new(plan.cpus, Costs::FREE, LockKind::Spin, Some(plan.seed));
        baton.limit(400_000);
        baton.run(work)?;
    }
    world.compare()?;
    let spaces = std::mem::take(&mut *lock(&world.spaces));
    spaces.into_iter().for_each(|space| world.hat.destroy(space, &mut cpu));
    match world.hat.mappings() {
        0 => Ok(()),
        left => Err(format!("{left} mapping nodes are left of nothing")),
    }
}

impl<S: Scheme<Table = dyn Mounted>> World<S> {
    /// Replays the changes on a map, then compares the map with the page tables.
    fn compare(&self) -> Result<(), String> {
        let mut model: BTreeMap<(HatSpace, u64), Translation> = BTreeMap::new();
        for event in lock(&self.log).iter() {
            match *event {
                Event::Load(space, page) => {
                    let page = compared(page);
                    if model.insert((space, page.page.start().get()), page).is_some() {
                        return Err(format!("{page:?} was loaded where a page is"));
                    }
                }
                Event::Removed(space, page) => {
                    let known = model.remove(&(space, page.page.start().get()));
                    if known != Some(compared(page)) {
                        return Err(format!("{page:?} went, and the map has {known:?}"));
                    }
                }
                Event::Protect(space, range, rights) => {
                    let (first, last) = (range.start().get(), range.last().get());
                    model
                        .range_mut((space, first)..=(space, last))
                        .for_each(|(_, page)| page.rights = rights);
                }
                Event::Resized(space, range, to) => {
                    let (first, last) = (range.start().get(), range.last().get());
                    let before: Vec<_> = model
                        .range((space, first)..=(space, last))
                        .map(|(_, page)| *page)
                        .collect();
                    model.retain(|(of, at), _| *of != space || *at < first || *at > last);
                    for page in before {
                        let (start, bytes) = (page.page.start(), page.page.size().bytes());
                        // Several smaller pages have become one page, at the address of the first
                        // of them.
                        if start.align_down(to) != start {
                            continue;
                        }
                        for offset in (0..bytes).step_by(to.bytes() as usize) {
                            let at = VirtAddr::new(start.get() + offset);
                            let frame = PhysAddr::new(page.frame.get() + offset);
                            let resized = Translation { page: at.page(to), frame, ..page };
                            model.insert((space, at.get()), resized);
                        }
                    }
                }
                Event::Ended(space) => model.retain(|(of, _), _| *of != space),
            }
        }
        let mut found = BTreeMap::new();
        for &space in lock(&self.spaces).iter() {
            self.hat.visit(space, VirtRange::ALL, &mut |mapping| {
                let page = compared(mapping.translation);
                found.insert((space, page.page.start().get()), page);
            });
        }
        if found != model {
            return Err(format!("the page tables have {found:?}, the map {model:?}"));
        }
        self.hat.check().map_err(String::from)
    }
}

/// The properties of a page that are compared with the map. The rights of a page in the mapping
/// tree are left out, because they are removed from several spaces in one operation.
fn compared(page: Translation) -> Translation {
    let is_in_tree = page.page.start().get() >= TREES;
    Translation { rights: if is_in_tree { Rights::NONE } else { page.rights }, ..page }
}

/// A processor.
struct Thread<'a, S> {
    world: &'a World<S>,
    number: usize,
    page_shift: u32,
    large: Option<PageSize>,
    is_native: bool,
    random: Xoshiro256PlusPlus,
    probe: Probe<'a>,
    /// The spaces that were given the processor's page in the mapping tree: for each, the space
    /// from which it was mapped, if any, and the frame. Other processors may have removed the page
    /// since.
    parents: BTreeMap<HatSpace, (Option<HatSpace>, PhysAddr)>,
}

/// A platform that records changes and flushes.
struct Probe<'a> {
    board: &'a Board,
    cpu: Cpu<'a>,
    log: &'a Mutex<Vec<Event>>,
    op: Op,
    /// Pages that the operation removed, each with the time.
    removed: Vec<(HatSpace, Translation, u64)>,
    is_stealing: bool,
    faults: Faults,
    /// Removes all pages of one of the spaces, and so frees its tables.
    steal: &'a (dyn Fn(&mut Cpu<'_>) + Sync),
    /// Shootdowns that are done later, with the defect `early_answer`.
    late: Vec<Vec<(HatSpace, Flush)>>,
}

impl Probe<'_> {
    fn note(&mut self, event: Event) {
        if let Event::Removed(space, page) = event {
            self.removed.push((space, page, self.board.tick()));
        }
        lock(self.log).push(event);
    }
}

impl Platform for Probe<'_> {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        if let Op::Destroy(space) = self.op {
            self.note(Event::Ended(space));
        }
        if self.faults.early_answer {
            let copies = flushes.iter().map(|(space, flush)| (*space, flush.without_frames()));
            self.late.push(copies.collect());
            smp::pass();
        } else {
            self.cpu.shoot(flushes);
        }
    }

    fn frames(&mut self) -> &mut dyn Frames {
        self
    }

    fn stolen(&mut self, space: HatSpace, page: &Mapping) {
        self.is_stealing = true;
        self.note(Event::Removed(space, page.translation));
    }

    fn work(&mut self, step: Step, count: u64) {
        self.cpu.work(step, count);
        if let (Op::Grant { operations, .. }, Step::Operation) = (&mut self.op, step) {
            *operations += 1;
        }
        if step != Step::TableWrite || count == 0 || std::mem::take(&mut self.is_stealing) {
            return;
        }
        match self.op {
            Op::Load(space, page) => self.note(Event::Load(space, page)),
            Op::Protect(space, range, rights) => self.note(Event::Protect(space, range, rights)),
            Op::Resize(space, range, to) => self.note(Event::Resized(space, range, to)),
            Op::Grant { to, page, operations: 1, .. } => self.note(Event::Load(to, page)),
            Op::Grant { from, page, .. } => {
                self.note(Event::Removed(from, page));
            }
            Op::Look | Op::Destroy(_) => {}
        }
    }
}

impl Frames for Probe<'_> {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        let first = self.cpu.allocate(size);
        if first.is_ok() || !self.faults.steal_in_load {
            return first;
        }
        (self.steal)(&mut self.cpu);
        self.cpu.allocate(size)
    }

    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        self.cpu.free(frame, size);
    }
}

/// Rights that every format can express.
const READ_ONLY: Rights = Rights::from_bits(1 | 4 | 8);

impl<'a, S: Scheme<Table = dyn Mounted>> Thread<'a, S> {
    fn new(
        world: &'a World<S>,
        number: usize,
        plan: Plan,
        steal: &'a (dyn Fn(&mut Cpu<'_>) + Sync),
    ) -> Thread<'a, S> {
        let seed = plan.seed.wrapping_mul(1000).wrapping_add(number as u64);
        let probe = Probe {
            board: &world.board,
            cpu: Cpu::new(&world.board, number),
            log: &world.log,
            op: Op::Look,
            removed: Vec::new(),
            is_stealing: false,
            faults: plan.faults,
            steal,
            late: Vec::new(),
        };
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let Plan { page_shift, large, is_native, .. } = plan;
        let parents = BTreeMap::new();
        Thread { world, number, page_shift, large, is_native, random, probe, parents }
    }

    fn run(&mut self, steps: u32) {
        for &space in lock(&self.world.spaces).iter() {
            self.world.board.enter(self.number, space);
        }
        for _ in 0..steps {
            self.step();
            for flushes in std::mem::take(&mut self.probe.late) {
                self.probe.cpu.shoot(&flushes);
            }
        }
    }

    fn step(&mut self) {
        let start = self.world.board.tick();
        self.probe.removed.clear();
        let space = self.any_space();
        let mut unloaded = None;
        match self.random.random_range(0..100) {
            0..30 => self.load(space),
            30..45 => self.unload(space),
            45..60 => unloaded = Some(self.unload_frames()),
            60..68 => self.protect(space),
            68..74 => {
                let frame = self.any_frame();
                let clear = Usage { referenced: true, dirty: true, marked: false };
                self.probe.op = Op::Look;
                self.world.hat.usage(frame, SIZE, clear, &mut self.probe);
            }
            // Operations of the mapping tree only run on threads of the host; other tests explore
            // their schedules.
            91..96 if self.is_native => self.tree(space),
            74..82 if self.is_native && self.random.random_bool(0.5) => self.hand_on(space),
            74..82 => self.duplicate(space),
            82..85 => self.renew(),
            85..91 if self.large.is_some() => self.resize(space),
            _ => self.access(space),
        }
        self.no_stale_entry(start, unloaded);
    }

    /// A random page of those that only this processor loads.
    fn own_page(&mut self) -> VirtRange {
        let number = self.number as u64 * PAGES + self.random.random_range(0..PAGES);
        VirtRange::of_page(VirtAddr::new((number + 1) << self.page_shift).page(SIZE))
    }

    /// The one page of the large size that only this processor loads.
    fn own_large(&self, size: PageSize) -> VirtRange {
        VirtRange::of_page(VirtAddr::new((self.number as u64 + 40) << 21).page(size))
    }

    /// Loads or unloads a page of the large size, splits it into base pages, or joins these again.
    fn resize(&mut self, space: HatSpace) {
        let Some(large) = self.large else { return };
        let range = self.own_large(large);
        match self.random.random_range(0..4) {
            0 => {
                let page = range.start().page(large);
                let frame = PhysAddr::new(FIRST_FRAME);
                let page = Translation::new(page, frame, Rights::ALL);
                self.load_page(space, page);
            }
            1 => self.unload_range(space, range),
            half => {
                let to = if half == 2 { SIZE } else { large };
                self.probe.op = Op::Resize(space, range, to);
                // The layer refuses this if not all pages are mapped.
                let _ = self.world.hat.resize(space, range, to, &mut self.probe);
            }
        }
    }

    fn any_frame(&mut self) -> PhysAddr {
        PhysAddr::new(FIRST_FRAME + self.random.random_range(0..FRAMES) * SIZE.bytes())
    }

    fn any_space(&mut self) -> HatSpace {
        let spaces = lock(&self.world.spaces);
        spaces[self.random.random_range(0..spaces.len())]
    }

    fn load(&mut self, space: HatSpace) {
        let (page, frame) = (self.own_page(), self.any_frame());
        let page = page.start().page(SIZE);
        let page = Translation::new(page, frame, Rights::ALL);
        self.load_page(space, page);
    }

    fn load_page(&mut self, space: HatSpace, page: Translation) {
        self.probe.op = Op::Load(space, page);
        match self.world.hat.load(space, page, 1, &mut self.probe) {
            Ok(()) | Err(LoadError::NoTableMemory | LoadError::NoSpace(_)) => {}
            Err(LoadError::Table(pagetable::Error::AlreadyMapped { .. })) => {}
            Err(error @ (LoadError::Table(_) | LoadError::NoMemory)) => panic!("{error}"),
        }
    }

    fn unload(&mut self, space: HatSpace) {
        let range = self.own_page().hull(self.own_page());
        self.unload_range(space, range);
    }

    fn unload_range(&mut self, space: HatSpace, range: VirtRange) {
        let hat = &self.world.hat;
        self.removing(|each, probe| {
            hat.unload(space, range, &mut |mapping| each(space, mapping), probe).unwrap();
        });
    }

    /// Unloads two random frames from all spaces. Returns these frames.
    fn unload_frames(&mut self) -> Vec<PhysAddr> {
        let frames = vec![self.any_frame(), self.any_frame()];
        let asked: Vec<_> = frames.iter().map(|frame| (*frame, SIZE)).collect();
        let hat = &self.world.hat;
        self.removing(|each, probe| hat.unload_frames(&asked, each, probe));
        frames
    }

    /// Calls a function of the layer that reports each page which it removes, and records these
    /// pages.
    fn removing<R>(
        &mut self,
        f: impl FnOnce(&mut dyn FnMut(HatSpace, Mapping), &mut Probe<'a>) -> R,
    ) -> R {
        self.probe.op = Op::Look;
        let Probe { board, log, .. } = self.probe;
        let mut removed = Vec::new();
        let each = &mut |space, mapping: Mapping| {
            removed.push((space, mapping.translation, board.tick()));
            lock(log).push(Event::Removed(space, mapping.translation));
        };
        let result = f(each, &mut self.probe);
        self.probe.removed.extend(removed);
        result
    }

    fn protect(&mut self, space: HatSpace) {
        let range = self.own_page();
        let rights = if self.random.random_bool(0.5) { Rights::ALL } else { READ_ONLY };
        self.probe.op = Op::Protect(space, range, rights);
        self.world.hat.protect(space, range, rights, &mut self.probe).unwrap();
    }

    /// Duplicates a page as a fork does.
    fn duplicate(&mut self, from: HatSpace) {
        let (to, range) = (self.any_space(), self.own_page());
        if from == to {
            return;
        }
        self.probe.op = Op::Look;
        let known = self.world.hat.query(from, range.start());
        let there = self.world.hat.query(to, range.start());
        let (Some(known), None) = (known, there) else { return };
        // The right to write is removed before the copy, so that the only later change is the load
        // of the copy.
        self.probe.op = Op::Protect(from, range, READ_ONLY);
        self.world.hat.protect(from, range, READ_ONLY, &mut self.probe).unwrap();
        let copy = Translation { rights: READ_ONLY, ..known.translation };
        self.probe.op = Op::Load(to, copy);
        let _ = self.world.hat.duplicate(from, to, range, &mut self.probe);
    }

    /// Maps a page from one space to another, and sometimes revokes the mappings that were made
    /// from the page.
    fn hand_on(&mut self, from: HatSpace) {
        let (to, range) = (self.any_space(), self.own_page());
        self.probe.op = Op::Look;
        let known = self.world.hat.query(from, range.start());
        let there = self.world.hat.query(to, range.start());
        if let (Some(known), None) = (known, there) {
            let rights = Rights::from_bits(known.translation.rights.bits() & READ_ONLY.bits());
            self.probe.op = Op::Load(to, Translation { rights, ..known.translation });
            let at = range.start();
            let _ = self.world.hat.map_from(from, range, to, at, READ_ONLY, &mut self.probe);
        }
        if self.random.random_bool(0.5) {
            let hat = &self.world.hat;
            let revoked = self.removing(|each, probe| hat.revoke(from, range, false, each, probe));
            assert!(matches!(revoked, Ok(()) | Err(LoadError::NoSpace(_))), "{revoked:?}");
        }
    }

    /// Loads the processor's page of the mapping tree, maps it to another space, grants it, or
    /// restricts its rights in all spaces to which it was mapped. Other processors do not map this
    /// page to further spaces or add rights to it, but they may remove it.
    fn tree(&mut self, space: HatSpace) {
        let hat = &self.world.hat;
        let range =
            VirtRange::of_page(VirtAddr::new(TREES + ((self.number as u64) << 21)).page(SIZE));
        let (at, other) = (range.start(), self.any_space());
        self.probe.op = Op::Look;
        self.forget_gone(at);
        let known = hat.query(space, at).filter(|_| self.parents.contains_key(&space));
        let is_free = other != space && hat.query(other, at).is_none();
        let Some(Mapping { translation: page, .. }) = known else {
            let page = at.page(SIZE);
            let page = Translation::new(page, self.any_frame(), Rights::ALL);
            self.parents.insert(space, (None, page.frame));
            return self.load_page(space, page);
        };
        match self.random.random_range(0..3) {
            0 if is_free => {
                self.probe.op = Op::Load(other, page);
                let _ = hat.map_from(space, range, other, at, Rights::ALL, &mut self.probe);
                self.parents.insert(other, (Some(space), page.frame));
            }
            1 if is_free => {
                self.probe.op = Op::Grant { from: space, to: other, page, operations: 0 };
                let _ = hat.grant(space, range, other, at, &mut self.probe);
                let parent = self.parents.remove(&space).and_then(|(parent, _)| parent);
                self.parents.insert(other, (parent, page.frame));
                for (parent, _) in self.parents.values_mut().filter(|of| of.0 == Some(space)) {
                    *parent = Some(other);
                }
            }
            _ => {
                let restricted = hat.restrict(space, range, READ_ONLY, true, &mut self.probe);
                assert!(
                    matches!(restricted, Ok(()) | Err(LoadError::NoSpace(_))),
                    "{restricted:?}"
                );
                self.forget_gone(at);
                // The page is still mapped, so the mappings below it were restricted too.
                if self.parents.contains_key(&space) {
                    for &below in self.parents.keys().filter(|of| self.is_below(**of, space)) {
                        let rights = hat.query(below, at).map(|found| found.translation.rights);
                        let is_less = rights.is_none_or(|rights| READ_ONLY.contains(rights));
                        assert!(is_less, "{below:?} has {rights:?} of {space:?}");
                    }
                }
            }
        }
    }

    /// Removes from the known tree the spaces that no longer have the page. Spaces below a removed
    /// space are then below its parent.
    fn forget_gone(&mut self, at: VirtAddr) {
        let is_there = |space: HatSpace, frame| {
            let found = self.world.hat.query(space, at);
            found.is_some_and(|found| found.translation.frame == frame)
        };
        let gone = self.parents.iter().filter(|(space, (_, frame))| !is_there(**space, *frame));
        let gone: Vec<HatSpace> = gone.map(|(space, _)| *space).collect();
        for space in gone {
            let above = self.parents.remove(&space).and_then(|(parent, _)| parent);
            for (parent, _) in self.parents.values_mut().filter(|of| of.0 == Some(space)) {
                *parent = above;
            }
        }
    }

    /// Whether a space is `above`, or has the page from `above`, directly or through other spaces.
    fn is_below(&self, mut space: HatSpace, above: HatSpace) -> bool {
        loop {
            if space == above {
                return true;
            }
            match self.parents.get(&space) {
                Some((Some(parent), _)) => space = *parent,
                Some((None, _)) | None => return false,
            }
        }
    }

    /// Ends one of the spaces, and creates another.
    fn renew(&mut self) {
        let mut spaces = lock(&self.world.spaces);
        if spaces.len() < SPACES {
            return;
        }
        let space = spaces.pop().unwrap();
        drop(spaces);
        self.probe.op = Op::Destroy(space);
        self.world.hat.destroy(space, &mut self.probe);
        self.probe.op = Op::Look;
        let made = loop {
            match self.world.hat.create(&mut self.probe) {
                Ok(made) => break made,
                Err(error) => assert_eq!(error, LoadError::NoTableMemory),
            }
            smp::pass();
        };
        lock(&self.world.spaces).push(made);
        self.world.board.enter(self.number, made);
    }

    /// The processor accesses a page, and enters it into its TLB.
    fn access(&mut self, space: HatSpace) {
        let number = self.random.random_range(0..PAGES * 4);
        let mut at = VirtAddr::new((number + 1) << self.page_shift);
        if let Some(large) = self.large.filter(|_| number == 0) {
            at = self.own_large(large).start();
        }
        self.world.board.enter(self.number, space);
        let range = VirtRange::of_page(at.page(SIZE));
        // The TLB is filled inside the lock, because a walk and its fill are one step of hardware.
        let fill = &mut |mapping: Mapping| {
            self.world.board.fill(self.number, space, mapping.translation);
        };
        self.world.hat.visit(space, range, fill);
    }

    /// Checks that no TLB has an entry for a removed page that is older than the removal, or an
    /// entry for an unloaded frame that is older than the beginning of the unload.
    fn no_stale_entry(&self, start: u64, unloaded: Option<Vec<PhysAddr>>) {
        for &(space, page, at) in &self.probe.removed {
            let stale = self.world.board.any_entry(|of, entry| {
                of == space && entry.translation.page == page.page && entry.at < at
            });
            assert!(stale.is_none(), "{page:?} is gone, and {stale:?} is in a TLB");
        }
        for frame in unloaded.into_iter().flatten() {
            let stale = self
                .world
                .board
                .any_entry(|_, entry| maps(&entry.translation, frame) && entry.at < start);
            assert!(stale.is_none(), "{frame} can have a new owner, and {stale:?} is in a TLB");
        }
    }
}

fn maps(page: &Translation, frame: PhysAddr) -> bool {
    let offset = frame.get().wrapping_sub(page.frame.get());
    offset < page.page.size().bytes()
}

/// Page tables of which each space has its own.
pub(crate) fn each(make: fn() -> Box<dyn Mounted>) -> Tables<dyn Mounted> {
    let make: MakeTable<dyn Mounted> = Box::new(make);
    Tables::Each(make)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
