//! Makes walks before each write of an operation that changes the table.
//!
//! ```text
//!   OS        map, unmap, protect, split, merge:  write . write . write . write
//!   walker                                         walk    walk    walk    walk      of every page of the region
//! ```
//!
//! Each walk must find the page as it was before the change, or as it is after it. The walker is a
//! twin of the table object, in its state before the change, because hardware's registers have this
//! state. Tables that return true for
//! [`PageTable::walks_beside_changes`](pagetable::PageTable::walks_beside_changes) pass. For each
//! other table the test finds a walk whose result is wrong.

use std::cell::RefCell;
use std::rc::Rc;

use addr::{Frames, Kind, Memory, OutOfFrames, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{
    Aarch64, Arm, CacheShape, Cached, ElasticCuckoo, Error, Fault, Flush, Guarded, Hashed,
    HashedShape, Irix, Mapping, Mpt, Space, SparcReference, SparseMemory, Split, Sv39, Sv48, Sv57,
    Translation, X86_32, X86_64,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::common::Table;

/// The first page of the region.
const START: u64 = 1 << 30;
/// The address of a run of many pages.
const MANY: u64 = START + (8 << 28);
const MANY_PAGES: u64 = 700;
/// The frames of pages begin at this address; the frames of tables are below it.
const DATA: u64 = 1 << 30;

/// Memory that a table and its walker share.
#[derive(Clone)]
struct Shared(Rc<RefCell<SparseMemory>>);

impl Memory for Shared {
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        self.0.borrow().read_u64(addr)
    }
    fn read_u32(&self, addr: PhysAddr) -> u32 {
        self.0.borrow().read_u32(addr)
    }
    fn read_u8(&self, addr: PhysAddr) -> u8 {
        self.0.borrow().read_u8(addr)
    }
    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        self.0.borrow_mut().write_u64(addr, value);
    }
    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        self.0.borrow_mut().write_u32(addr, value);
    }
    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        self.0.borrow_mut().write_u8(addr, value);
    }
    addr::exchanges_of_one_user!();
}

/// Allocates frames for tables. A frame that was freed is not reused.
#[derive(Clone)]
struct Fresh {
    next: u64,
    left: usize,
}

impl Frames for Fresh {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        self.left = self.left.checked_sub(1).ok_or(OutOfFrames { size, free_bytes: 0 })?;
        let start = self.next.next_multiple_of(size.bytes());
        self.next = start + size.bytes();
        assert!(self.next <= DATA, "there is no frame left for tables");
        Ok(PhysAddr::new(start))
    }

    fn free(&mut self, _frame: PhysAddr, _size: PageSize) {}
}

/// The result of a walk: the number of the page in the region, and its physical address or the
/// fault.
type Seen = (usize, Result<PhysAddr, Fault>);

/// The memory as one side sees it. Before each write of this side, the other side's function is
/// called.
struct Watched<'a> {
    memory: Shared,
    before_write: &'a mut dyn FnMut(&Shared),
}

impl Memory for Watched<'_> {
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        self.memory.read_u64(addr)
    }
    fn read_u32(&self, addr: PhysAddr) -> u32 {
        self.memory.read_u32(addr)
    }
    fn read_u8(&self, addr: PhysAddr) -> u8 {
        self.memory.read_u8(addr)
    }
    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        (self.before_write)(&self.memory);
        self.memory.write_u64(addr, value);
    }
    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        (self.before_write)(&self.memory);
        self.memory.write_u32(addr, value);
    }
    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        (self.before_write)(&self.memory);
        self.memory.write_u8(addr, value);
    }
    fn swap_u64(&mut self, addr: PhysAddr, new: u64) -> u64 {
        (self.before_write)(&self.memory);
        self.memory.swap_u64(addr, new)
    }
    fn swap_u32(&mut self, addr: PhysAddr, new: u32) -> u32 {
        (self.before_write)(&self.memory);
        self.memory.swap_u32(addr, new)
    }
    fn invert_u64(&mut self, addr: PhysAddr, bits: u64) -> u64 {
        (self.before_write)(&self.memory);
        self.memory.invert_u64(addr, bits)
    }
    fn invert_u32(&mut self, addr: PhysAddr, bits: u32) -> u32 {
        (self.before_write)(&self.memory);
        self.memory.invert_u32(addr, bits)
    }
    fn compare_exchange_u64(&mut self, addr: PhysAddr, current: u64, new: u64) -> Result<(), u64> {
        (self.before_write)(&self.memory);
        self.memory.compare_exchange_u64(addr, current, new)
    }
    fn compare_exchange_u32(&mut self, addr: PhysAddr, current: u32, new: u32) -> Result<(), u32> {
        (self.before_write)(&self.memory);
        self.memory.compare_exchange_u32(addr, current, new)
    }
    fn write_upper_u64(&mut self, addr: PhysAddr, value: u64) {
        (self.before_write)(&self.memory);
        self.memory.write_upper_u64(addr, value);
    }
    fn zero(&mut self, start: PhysAddr, bytes: u64) {
        (self.before_write)(&self.memory);
        self.memory.zero(start, bytes);
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Map(Translation, u64),
    Unmap(VirtRange),
    Protect(VirtRange, Rights),
    Resize(VirtRange, PageSize),
}

/// A table with its memory, its frames and its space.
struct Side {
    table: Box<dyn Table>,
    memory: Shared,
    frames: Fresh,
    space: Space,
}

impl Side {
    fn new(make: &dyn Fn() -> Box<dyn Table>) -> Side {
        let mut memory = Shared(Rc::new(RefCell::new(SparseMemory::new(DATA))));
        let mut frames = Fresh { next: 1 << 20, left: usize::MAX };
        let mut table = make();
        let space = table.create(&mut memory, &mut frames).unwrap();
        Side { table, memory, frames, space }
    }

    fn apply(&mut self, change: Change, memory: &mut dyn Memory) -> Result<(), Error> {
        let Side { table, frames, space, .. } = self;
        let space = *space;
        let flush = match change {
            Change::Map(first, count) => table.map(space, first, count, memory, frames),
            Change::Unmap(range) => table.unmap(space, range, memory, &mut |_| {}),
            Change::Protect(range, rights) => {
                table.protect(space, range, rights, memory, &mut |_| {})
            }
            Change::Resize(range, to) => {
                let resized = table.resize(space, range, to, memory, frames, &mut |_| {});
                resized.map(|_| Flush::nothing(space))
            }
        };
        flush.map(|flush| flush.done(frames))
    }

    fn found(&self, pages: &[VirtAddr]) -> Vec<Option<PhysAddr>> {
        let at = |&addr| {
            let found: Option<Mapping> = self.table.query(self.space, addr, &self.memory);
            found.map(|found| found.translation.apply(addr))
        };
        pages.iter().map(at).collect()
    }
}

/// The outcome of a stream of changes.
#[derive(Default)]
struct Outcome {
    /// Descriptions of the walks with wrong results.
    wrong: Vec<String>,
    /// The number of changes that were made; the next field counts those for which there was no
    /// frame.
    made: u32,
    refused: u32,
}

fn run(name: &str, make: &dyn Fn() -> Box<dyn Table>, breaks: bool) -> Outcome {
    let seed = 0x63;
    println!("{name}: seed {seed:#x}");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut real, mut twin) = (Side::new(make), Side::new(make));
    let sizes = real.table.page_sizes().to_vec();
    let base = sizes[0];
    let large = sizes[1..].iter().copied().find(|size| size.count_of(base) >= 8).unwrap_or(base);
    let range = |start: u64, bytes: u64| VirtRange::new(VirtAddr::new(start), bytes).unwrap();
    let region = large.bytes().max(base.bytes() * 64) * 2;
    // The first pages, the pages at the boundary of two large pages, and some pages that are far
    // apart.
    let near = [0, 1, 2, 3, 7, 8].map(|page| page * base.bytes());
    let seam = [region / 2 - base.bytes(), region / 2, region / 2 + base.bytes()];
    let far = (4..8u64).map(|page| (page << 28) + page * 9 * base.bytes());
    let pages: Vec<VirtAddr> =
        near.into_iter().chain(seam).chain(far).map(|at| VirtAddr::new(START + at)).collect();
    let walked: Vec<VirtAddr> = pages
        .iter()
        .copied()
        .chain([VirtAddr::new(MANY), VirtAddr::new(MANY + base.bytes() * 300)])
        .collect();
    let mut outcome = Outcome::default();
    for step in 0..250 {
        let at = pages[rng.random_range(0..pages.len())];
        let (few, of_large) = (rng.random_range(1..12), rng.random_bool(0.3));
        let pages_there = range(at.get(), few * base.bytes());
        let of_page = VirtRange::of_page(at.page(large));
        let rights = Rights::READ | Rights::WRITE;
        let change = match rng.random_range(0..20) {
            0 => {
                let first = VirtAddr::new(MANY).page(base);
                let frame = PhysAddr::new(DATA + (MANY - START));
                Change::Map(Translation::new(first, frame, rights), MANY_PAGES)
            }
            1 => Change::Unmap(range(MANY, MANY_PAGES * base.bytes())),
            2..9 => {
                let size = if of_large { large } else { base };
                let page = at.page(size);
                let frame = PhysAddr::new(DATA + (page.start().get() - START));
                let count = if of_large { 1 } else { few };
                Change::Map(Translation::new(page, frame, rights), count)
            }
            9..13 => Change::Unmap(if of_large { of_page } else { pages_there }),
            13..16 => {
                let rights = if rng.random() { Rights::READ } else { rights };
                Change::Protect(if of_large { of_page } else { pages_there }, rights)
            }
            _ => Change::Resize(of_page, if rng.random() { base } else { large }),
        };
        let before = real.found(&walked);
        let left = if rng.random_bool(0.2) { rng.random_range(0..3) } else { usize::MAX };
        (real.frames.left, twin.frames.left) = (left, left);
        let mut seen: Vec<Seen> = Vec::new();
        let (space, registers) = (real.space, &*twin.table);
        let mut walk = |memory: &Shared| {
            for (number, &addr) in walked.iter().enumerate() {
                let memory = &mut memory.clone();
                let found = registers.walk(space, addr, Kind::Load, memory, &mut |_| {});
                seen.push((number, found.map(|found| found.apply(addr))));
            }
        };
        let memory = real.memory.clone();
        let watched = &mut Watched { memory, before_write: &mut walk };
        match real.apply(change, watched) {
            Ok(()) => outcome.made += 1,
            Err(Error::OutOfFrames(_)) => outcome.refused += 1,
            Err(_) => {}
        }
        walk(&real.memory);
        let after = real.found(&walked);
        let breaks = breaks && matches!(change, Change::Resize(..));
        for (number, found) in seen {
            let (before, after) = (before[number], after[number]);
            let is_due = match found {
                Ok(found) => before == Some(found) || after == Some(found),
                Err(_) => before.is_none() || after.is_none() || breaks,
            };
            if !is_due {
                let addr = walked[number];
                let wrong = format!("{name}, step {step}, {change:?}: {addr} is {found:?}");
                outcome.wrong.push(wrong);
            }
        }
        let memory = &mut twin.memory.clone();
        // The twin has the same result, because it has the same number of frames.
        let _ = twin.apply(change, memory);
        assert_eq!(twin.found(&walked), after, "{name}, step {step}");
    }
    outcome
}

type Make = Box<dyn Fn() -> Box<dyn Table>>;

fn make<P: Table + 'static>(of: impl Fn() -> P + 'static) -> Make {
    Box::new(move || Box::new(of()))
}

/// Trees in which an entry is one word.
fn trees() -> Vec<(&'static str, Make, bool)> {
    vec![
        ("x86-64", make(X86_64::<4>::new), false),
        ("x86-32", make(X86_32::<false>::new), false),
        ("x86-pae", make(X86_32::<true>::new), false),
        ("sv39", make(Sv39::<true>::new), false),
        ("sv48", make(Sv48::<false>::new), false),
        ("sv57", make(Sv57::<true>::new), false),
        ("aarch64, 4K", make(Aarch64::<12>::new), true),
        ("aarch64, 4K, bbm2", make(|| Aarch64::<12>::new().with_bbm2()), false),
        ("aarch64, 16K, bbm2", make(|| Aarch64::<14>::new().with_bbm2()), false),
        ("arm", make(Arm::new), false),
        ("sparc", make(SparcReference::<true>::new), false),
        ("irix", make(|| Irix::new(PageSize::SIZE_4K).unwrap()), false),
        ("mpt", make(Mpt::new), false),
        ("flattened", make(|| Split::flattened().unwrap()), false),
        ("linear", make(|| Split::linear().unwrap()), false),
    ]
}

#[test]
fn a_walk_beside_a_change_finds_what_was_or_what_is() {
    for (name, make, breaks) in trees() {
        assert!(make().walks_beside_changes(), "{name}");
        let Outcome { wrong, made, refused } = run(name, &make, breaks);
        assert_eq!(wrong, Vec::<String>::new());
        assert!(made > 60 && refused > 0, "{name}: {made} changes were made, {refused} refused");
    }
}

/// Hashed, guarded and cuckoo tables.
#[test]
fn tables_that_refuse_walks_beside_changes_have_a_reason() {
    // Walks do not move entries to the front of their chain here, because that would disturb the
    // operation itself.
    let hashed = |shape: HashedShape| {
        let shape = HashedShape { table_bytes: 4 << 10, move_to_front: false, ..shape };
        make(move || Hashed::new(shape.with_large_pages()).unwrap())
    };
    let others: Vec<(&str, Make)> = vec![
        ("hashed", hashed(HashedShape::H8K)),
        ("clustered", hashed(HashedShape::C128K)),
        ("inverted", hashed(HashedShape::inverted(16 << 20, 2))),
        ("guarded", make(|| Guarded::new(16).unwrap())),
        // Adaptive guarded tables are left out: their nodes move, so a walk during a change might
        // never end.
        ("cuckoo", make(|| ElasticCuckoo::new(2, 4096).unwrap())),
    ];
    let mut faultless = Vec::new();
    for (name, make) in others {
        assert!(!make().walks_beside_changes(), "{name}");
        let Outcome { wrong, made, refused } = run(name, &make, false);
        println!("{made} changes made, {refused} refused, {} walks went wrong", wrong.len());
        println!("{:?}", wrong.first());
        faultless.extend(wrong.is_empty().then_some(name));
    }
    assert_eq!(faultless, [""; 0], "these could say that they are walked beside changes");
}

/// A walk finds a page in the table behind a cache in memory. Before the walk inserts the page into
/// the cache, the OS unmaps the page.
#[test]
fn a_walk_that_fills_a_cache_late_leaves_a_stale_entry() {
    let cached = make(|| Cached::new(CacheShape::S8K, Mpt::new()).unwrap());
    assert!(!cached().walks_beside_changes());
    let (mut real, mut twin) = (Side::new(&cached), Side::new(&cached));
    let page = VirtAddr::new(START).page(PageSize::SIZE_4K);
    let map = Change::Map(Translation::new(page, PhysAddr::new(DATA), Rights::READ), 1);
    for side in [&mut real, &mut twin] {
        let memory = &mut side.memory.clone();
        side.apply(map, memory).unwrap();
    }
    let (space, memory, mut is_mapped) = (real.space, real.memory.clone(), true);
    let mut unmap = |memory: &Shared| {
        if std::mem::take(&mut is_mapped) {
            let range = VirtRange::of_page(page);
            real.apply(Change::Unmap(range), &mut memory.clone()).unwrap();
        }
    };
    let walker = &mut Watched { memory: memory.clone(), before_write: &mut unmap };
    let walk = |memory: &mut dyn Memory| {
        twin.table.walk(space, page.start(), Kind::Load, memory, &mut |_| {})
    };
    assert!(walk(walker).is_ok());
    assert_eq!(real.found(&[page.start()]), [None]);
    assert!(walk(&mut memory.clone()).is_ok(), "the stale entry is found");
}
