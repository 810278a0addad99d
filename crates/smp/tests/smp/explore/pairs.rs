//! Tests two concurrent operations on the same pages, in many schedules. The result must be equal
//! to the result of the operations one after the other, in one of the two orders.
//!
//! ```text
//!   page   0 1 2 3   of space 0       processor 0:  duplicate 0..4 to space 1
//!          | | | |                    processor 1:  protect 1, unload the frame of 2, ...
//!   frame  f         of pages of
//!   space 1 too
//! ```
//!
//! The TLBs hold all pages before the operations. Entries that remain in a TLB afterwards must
//! agree with the page tables.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use addr::{PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace, LoadError, Tables, locking::Scheme};
use pagetable::{Mapping, Mounted, Translation};
use smp::{Baton, Board, Costs, Cpu, LockKind, Shootdowns};

const SIZE: PageSize = PageSize::SIZE_4K;
const LARGE: PageSize = super::K16;
/// The number of base pages in a large page.
const PAGES: u64 = 4;
const FIRST: u64 = 0x4000_0000;
const FRAMES: u64 = 0x100_0000;
/// Rights that every format can express.
const READ_ONLY: Rights = Rights::from_bits(1 | 4 | 8);

/// The index of one of the two spaces.
type Of = usize;

/// An operation. It names pages by their numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Do {
    Load(Of, u64),
    Unload(Of, u64, u64),
    /// Unloads the frame of this page from all spaces.
    UnloadFrame(u64),
    Protect(Of, u64, u64, Rights),
    /// Duplicates all pages of the first space to the second.
    Duplicate,
    /// Changes the page size of all pages of the first space.
    Resize(PageSize),
    /// Maps pages of the first space to the second.
    MapFrom(u64, u64),
    /// Moves pages of the first space to the second.
    Grant(u64, u64),
    /// Revokes the mappings that were made from these pages of the first space.
    Revoke(u64, u64),
    /// Removes the right to write from the mappings that were made from these pages of the first
    /// space.
    Restrict(u64, u64),
    Destroy(Of),
}

/// A test case: operations that prepare the two spaces, and the two operations that run
/// concurrently.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) before: [&'static [Do]; 2],
    pub(crate) both: [Do; 2],
    /// Whether the case needs a larger page size.
    pub(crate) is_large: bool,
    /// Whether the result may lack pages that one operation changes during the other: minor faults
    /// would load these pages again.
    pub(crate) may_lack: bool,
}

const fn case(name: &'static str, before: [&'static [Do]; 2], both: [Do; 2]) -> Case {
    Case { name, before, both, is_large: false, may_lack: false }
}

const fn large(name: &'static str, before: [&'static [Do]; 2], both: [Do; 2]) -> Case {
    Case { is_large: true, ..case(name, before, both) }
}

const ALL_PAGES: &[Do] = &[Do::Load(0, 0), Do::Load(0, 1), Do::Load(0, 2), Do::Load(0, 3)];
const ALL_BUT_LAST: &[Do] = &[Do::Load(0, 0), Do::Load(0, 1), Do::Load(0, 2)];
const OTHERS: &[Do] = &[Do::Load(1, 0), Do::Load(1, 1)];
const OTHERS_FIRST: &[Do] = &[Do::Load(1, 0)];
const ONE_LARGE: &[Do] =
    &[Do::Load(0, 0), Do::Load(0, 1), Do::Load(0, 2), Do::Load(0, 3), Do::Resize(LARGE)];

pub(crate) const CASES: [Case; 22] = [
    case("unload against load", [ALL_BUT_LAST, &[]], [Do::Unload(0, 0, 4), Do::Load(0, 3)]),
    case("unload against unload", [ALL_PAGES, &[]], [Do::Unload(0, 0, 4), Do::Unload(0, 1, 1)]),
    case("frame against load", [&[], OTHERS], [Do::UnloadFrame(1), Do::Load(0, 1)]),
    case("frame against unload", [ALL_PAGES, OTHERS], [Do::UnloadFrame(1), Do::Unload(0, 0, 4)]),
    case("frame against frame", [ALL_PAGES, OTHERS], [Do::UnloadFrame(1), Do::UnloadFrame(1)]),
    case(
        "frame against protect",
        [ALL_PAGES, OTHERS],
        [Do::UnloadFrame(1), Do::Protect(0, 0, 4, READ_ONLY)],
    ),
    case(
        "duplicate against protect",
        [ALL_PAGES, &[]],
        [Do::Duplicate, Do::Protect(0, 1, 2, READ_ONLY)],
    ),
    case(
        "duplicate against protect, to write",
        [ALL_PAGES, &[]],
        [Do::Duplicate, Do::Protect(0, 0, 4, Rights::ALL)],
    ),
    case("duplicate against unload", [ALL_PAGES, &[]], [Do::Duplicate, Do::Unload(0, 1, 1)]),
    case("duplicate against frame", [ALL_PAGES, &[]], [Do::Duplicate, Do::UnloadFrame(2)]),
    case("duplicate against its end", [ALL_PAGES, &[]], [Do::Duplicate, Do::Destroy(1)]),
    case("map against revoke", [ALL_PAGES, &[]], [Do::MapFrom(1, 1), Do::Revoke(1, 1)]),
    case("map against restrict", [ALL_PAGES, &[]], [Do::MapFrom(1, 1), Do::Restrict(1, 1)]),
    case("map against frame", [ALL_PAGES, &[]], [Do::MapFrom(1, 1), Do::UnloadFrame(1)]),
    case("grant against revoke", [ALL_PAGES, &[]], [Do::Grant(1, 1), Do::Revoke(1, 1)]),
    case("grant against frame", [ALL_PAGES, OTHERS_FIRST], [Do::Grant(1, 1), Do::UnloadFrame(1)]),
    large("resize against load", [ALL_BUT_LAST, &[]], [Do::Resize(LARGE), Do::Load(0, 3)]),
    large("resize against unload", [ALL_PAGES, &[]], [Do::Resize(LARGE), Do::Unload(0, 0, 4)]),
    large("cut against load", [ONE_LARGE, &[]], [Do::Resize(SIZE), Do::Load(0, 1)]),
    large("cut against frame", [ONE_LARGE, OTHERS], [Do::Resize(SIZE), Do::UnloadFrame(1)]),
    large(
        "resize against protect",
        [ALL_PAGES, &[]],
        [Do::Resize(LARGE), Do::Protect(0, 0, 4, READ_ONLY)],
    ),
    Case {
        may_lack: true,
        ..large("resize against duplicate", [ALL_PAGES, &[]], [Do::Resize(LARGE), Do::Duplicate])
    },
];

/// The result of both operations: the error of each, and the pages of each space.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Outcome {
    said: [String; 2],
    pages: BTreeMap<(Of, u64), (PageSize, PhysAddr, Rights)>,
}

impl Outcome {
    fn is_as(&self, order: &Outcome, may_lack: bool) -> bool {
        let is_there = |(at, page): (&_, &_)| order.pages.get(at) == Some(page);
        self.said == order.said
            && self.pages.iter().all(is_there)
            && (may_lack || self.pages.len() == order.pages.len())
    }
}

/// How the two operations are run.
#[derive(Clone, Copy, Debug)]
enum Run {
    /// First the operation with this number, then the other.
    After(usize),
    /// Concurrently, in the schedule of this seed.
    AtOnce(u64),
}

/// Explores the given number of schedules of a case. The error names the schedule that had a
/// different result.
pub(crate) fn explore<S>(
    scheme: impl Fn() -> S,
    tables: impl Fn() -> Tables<dyn Mounted>,
    (case, schedules): (&Case, u64),
) -> Result<(), String>
where
    S: Scheme<Table = dyn Mounted> + Sync + Send,
{
    let run = |how| Scene::new(scheme(), tables()).run(case, how);
    let orders = [run(Run::After(0))?, run(Run::After(1))?];
    for seed in 0..schedules {
        let outcome = run(Run::AtOnce(seed)).map_err(|error| format!("seed {seed}: {error}"))?;
        if !orders.iter().any(|order| outcome.is_as(order, case.may_lack)) {
            return Err(format!("seed {seed}: {outcome:x?} is none of {orders:x?}"));
        }
    }
    Ok(())
}

struct Scene<S> {
    hat: Hat<dyn Mounted, S>,
    board: Board,
    spaces: [HatSpace; 2],
}

impl<S: Scheme<Table = dyn Mounted> + Sync + Send> Scene<S> {
    fn new(scheme: S, tables: Tables<dyn Mounted>) -> Scene<S> {
        let board = Board::new(2, Shootdowns::Interrupts, 400);
        let hat = Hat::with(scheme, tables);
        let mut cpu = Cpu::new(&board, 0);
        let spaces = [0; 2].map(|_| hat.create(&mut cpu).unwrap());
        Scene { hat, board, spaces }
    }

    fn run(&self, case: &Case, how: Run) -> Result<Outcome, String> {
        let mut cpu = Cpu::new(&self.board, 0);
        for step in case.before.into_iter().flatten() {
            self.operation(*step, &mut cpu);
        }
        for cpu in 0..2 {
            for space in self.spaces {
                self.board.enter(cpu, space);
                let fill = &mut |found: Mapping| {
                    self.board.fill(cpu, space, found.translation);
                };
                self.hat.visit(space, VirtRange::ALL, fill);
            }
        }
        let said = Mutex::new([const { String::new() }; 2]);
        let one = |number: usize| {
            let told = self.operation(case.both[number], &mut Cpu::new(&self.board, number));
            said.lock().unwrap_or_else(PoisonError::into_inner)[number] = told;
        };
        match how {
            Run::After(first) => [first, 1 - first].into_iter().for_each(one),
            Run::AtOnce(seed) => {
                let baton = Baton::new(2, Costs::FREE, LockKind::Spin, Some(seed));
                baton.limit(400_000);
                baton.run(one)?;
            }
        }
        self.hat.check().map_err(String::from)?;
        let said = said.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut pages = BTreeMap::new();
        for (of, space) in self.spaces.into_iter().enumerate() {
            self.hat.visit(space, VirtRange::ALL, &mut |found| {
                let Translation { page, frame, rights, .. } = found.translation;
                pages.insert((of, page.start().get()), (page.size(), frame, rights));
            });
        }
        let stale = self.board.any_entry(|space, entry| {
            let page = entry.translation.page;
            let now = self.hat.query(space, page.start()).map(|found| found.translation);
            now.is_none_or(|now| {
                now.rights != entry.translation.rights
                    || now.apply(page.start()) != entry.translation.frame
            })
        });
        match stale {
            Some(stale) => Err(format!("{stale:?} is in a TLB, and the pages are {pages:x?}")),
            None => Ok(Outcome { said, pages }),
        }
    }

    /// Does the operation. Returns its error, or an empty text.
    fn operation(&self, of: Do, cpu: &mut Cpu<'_>) -> String {
        let [first, second] = self.spaces;
        let told = |done: Result<(), LoadError>| match done {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        let unloaded = |done: Result<(), pagetable::Error>| told(done.map_err(LoadError::Table));
        match of {
            Do::Load(of, page) => {
                let (at, frame) = (range(page, 1).start().page(SIZE), frame(page));
                let page = Translation::new(at, frame, Rights::ALL);
                told(self.hat.load(self.spaces[of], page, 1, cpu))
            }
            Do::Unload(of, page, count) => {
                unloaded(self.hat.unload(self.spaces[of], range(page, count), &mut |_| (), cpu))
            }
            Do::UnloadFrame(page) => {
                self.hat.unload_frames(&[(frame(page), SIZE)], &mut |_, _| (), cpu);
                String::new()
            }
            Do::Protect(of, page, count, rights) => {
                unloaded(self.hat.protect(self.spaces[of], range(page, count), rights, cpu))
            }
            Do::Duplicate => told(self.hat.duplicate(first, second, range(0, PAGES), cpu)),
            Do::Resize(to) => told(self.hat.resize(first, range(0, PAGES), to, cpu)),
            Do::MapFrom(page, count) => {
                let (from, at) = (range(page, count), range(page, 1).start());
                told(self.hat.map_from(first, from, second, at, Rights::ALL, cpu))
            }
            Do::Grant(page, count) => {
                let (from, at) = (range(page, count), range(page, 1).start());
                told(self.hat.grant(first, from, second, at, cpu))
            }
            Do::Restrict(page, count) => {
                told(self.hat.restrict(first, range(page, count), READ_ONLY, false, cpu))
            }
            Do::Revoke(page, count) => {
                told(self.hat.revoke(first, range(page, count), false, &mut |_, _| (), cpu))
            }
            Do::Destroy(of) => {
                self.hat.destroy(self.spaces[of], cpu);
                String::new()
            }
        }
    }
}

fn range(page: u64, count: u64) -> VirtRange {
    let start = VirtAddr::new(FIRST + page * SIZE.bytes());
    VirtRange::new(start, count * SIZE.bytes()).unwrap()
}

fn frame(page: u64) -> PhysAddr {
    PhysAddr::new(FRAMES + page * SIZE.bytes())
}
