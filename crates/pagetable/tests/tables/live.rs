//! Changes tables of every hardware-walked format while walkers on other threads use them.
//!
//! ```text
//!   OS        map   split ... forget   complete   protect ... forget   merge ... forget   unmap ... forget
//!   walkers   walk, store; a TLB each, emptied when the OS has them forget
//! ```
//!
//! The walkers record each page to which they have stored. At the end, the OS must know of every
//! store. No walk may find a wrong frame, and while a page is mapped, every walk must find it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use addr::{Frames, Kind, Memory, OutOfFrames, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{
    Aarch64, Fault, Flush, Mapping, Space, Sv39, Sv48, Sv57, Translation, X86_32, X86_64,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::common::Table;
use crate::common::physical::Physical;

const BYTES: u64 = 8 << 20;
const WALKERS: usize = 2;

/// Memory of atomic words, which clones share. Frames are allocated in a circle, so that a freed
/// frame is not reused soon.
#[derive(Clone)]
struct Shared(Arc<[AtomicU64]>);

impl Shared {
    fn new() -> Shared {
        Shared((0..BYTES / 8).map(|_| AtomicU64::new(0)).collect())
    }

    fn word(&self, addr: PhysAddr) -> &AtomicU64 {
        &self.0[(addr.get() / 8) as usize]
    }

    /// Replaces the 4 bytes at `addr`, which are half of a word, by the result of `new`. Returns
    /// the old 4 bytes.
    fn half(&self, addr: PhysAddr, new: impl Fn(u32) -> Option<u32>) -> Result<u32, u32> {
        let shift = addr.get() % 8 * 8;
        let with = |word: u64| {
            let new = u64::from(new((word >> shift) as u32)?);
            Some(word & !(u64::from(u32::MAX) << shift) | new << shift)
        };
        let changed = self.word(addr).fetch_update(SeqCst, SeqCst, with);
        changed.map(|was| (was >> shift) as u32).map_err(|was| (was >> shift) as u32)
    }
}

impl Memory for Shared {
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        self.word(addr).load(SeqCst)
    }
    fn read_u32(&self, addr: PhysAddr) -> u32 {
        (self.word(addr).load(SeqCst) >> (addr.get() % 8 * 8)) as u32
    }
    fn read_u8(&self, addr: PhysAddr) -> u8 {
        (self.word(addr).load(SeqCst) >> (addr.get() % 8 * 8)) as u8
    }
    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        self.word(addr).store(value, SeqCst);
    }
    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        self.half(addr, |_| Some(value)).unwrap();
    }
    fn write_u8(&mut self, _addr: PhysAddr, _value: u8) {
        unreachable!("no entry is a byte")
    }
    fn swap_u64(&mut self, addr: PhysAddr, new: u64) -> u64 {
        self.word(addr).swap(new, SeqCst)
    }
    fn swap_u32(&mut self, addr: PhysAddr, new: u32) -> u32 {
        self.half(addr, |_| Some(new)).unwrap()
    }
    fn invert_u64(&mut self, addr: PhysAddr, bits: u64) -> u64 {
        self.word(addr).fetch_xor(bits, SeqCst)
    }
    fn invert_u32(&mut self, addr: PhysAddr, bits: u32) -> u32 {
        self.half(addr, |was| Some(was ^ bits)).unwrap()
    }
    fn compare_exchange_u64(&mut self, addr: PhysAddr, current: u64, new: u64) -> Result<(), u64> {
        self.word(addr).compare_exchange(current, new, SeqCst, SeqCst).map(|_| ())
    }
    fn compare_exchange_u32(&mut self, addr: PhysAddr, current: u32, new: u32) -> Result<(), u32> {
        self.half(addr, |was| (was == current).then_some(new)).map(|_| ())
    }
}

struct Stack {
    next: u64,
    free: BTreeMap<PageSize, Vec<PhysAddr>>,
    left: usize,
}

impl Frames for Stack {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        if self.left == 0 {
            return Err(OutOfFrames { size, free_bytes: 0 });
        }
        self.left -= 1;
        if let Some(frame) = self.free.get_mut(&size).and_then(Vec::pop) {
            return Ok(frame);
        }
        let start = self.next.next_multiple_of(size.bytes());
        self.next = start + size.bytes();
        assert!(self.next <= BYTES, "tables that went are used again");
        Ok(PhysAddr::new(start))
    }

    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        self.left += 1;
        self.free.entry(size).or_default().push(frame);
    }
}

/// The state that the walkers and the OS share, besides the table.
struct Board {
    range: VirtRange,
    base: PageSize,
    /// The number of shootdowns that the OS has requested; the next field has the number that each
    /// walker has performed.
    asked: AtomicU64,
    forgot: [AtomicU64; WALKERS],
    /// For each base page, whether it was stored to since it was mapped.
    written: Vec<AtomicBool>,
    /// Incremented whenever faults become allowed or forbidden; they are forbidden while the value
    /// is odd. A walk is judged only if the value did not change during the walk.
    strict: AtomicU64,
    /// Like `strict`, but only for faults of stores.
    writable: AtomicU64,
    walks: AtomicU64,
    over: AtomicBool,
}

impl Board {
    fn index(&self, addr: VirtAddr) -> usize {
        ((addr.get() - self.range.start().get()) >> self.base.shift()) as usize
    }

    /// Returns when every walker has ended its current walk and emptied its TLB.
    fn shoot(&self) {
        let asked = self.asked.fetch_add(1, SeqCst) + 1;
        for forgot in &self.forgot {
            while forgot.load(SeqCst) < asked && !self.over.load(SeqCst) {
                thread::yield_now();
            }
        }
    }

    fn count(of: &AtomicU64, is: bool) {
        if of.load(SeqCst) % 2 != u64::from(is) {
            of.fetch_add(1, SeqCst);
        }
    }
}

fn frame_of(range: VirtRange, addr: VirtAddr) -> u64 {
    (1 << 31) + (addr.get() - range.start().get())
}

/// A walker thread. Its TLB has pages and, for each, whether the dirty bit is set.
fn run_walker(
    number: usize,
    seed: u64,
    table: &dyn Table,
    space: Space,
    memory: &mut Shared,
    board: &Board,
) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut tlb: BTreeMap<u64, (Translation, bool)> = BTreeMap::new();
    while !board.over.load(SeqCst) {
        let asked = board.asked.load(SeqCst);
        if board.forgot[number].load(SeqCst) != asked {
            tlb.clear();
            board.forgot[number].store(asked, SeqCst);
        }
        let bytes = board.range.bytes().min(board.base.bytes() * 48);
        let near = if rng.random_bool(0.3) { board.range.bytes() } else { bytes };
        let addr = board.range.start().wrapping_add(rng.random_range(0..near));
        let kind = if rng.random() { Kind::Store } else { Kind::Load };
        let held = tlb.range(..=addr.get()).next_back().map(|(_, held)| *held);
        let held = held.filter(|(page, dirty)| {
            let covers = VirtRange::of_page(page.page).contains(addr);
            covers && page.rights.allows(kind) && (*dirty || kind == Kind::Load)
        });
        let before = [board.strict.load(SeqCst), board.writable.load(SeqCst)];
        let found = match held {
            Some((translation, _)) => Ok(translation),
            None => table.walk(space, addr, kind, memory, &mut |_| {}),
        };
        match found {
            Ok(translation) => {
                assert_eq!(translation.apply(addr).get(), frame_of(board.range, addr), "{addr}");
                assert!(translation.rights.allows(kind));
                if kind == Kind::Store {
                    board.written[board.index(addr)].store(true, SeqCst);
                }
                tlb.insert(translation.page.start().get(), (translation, kind == Kind::Store));
            }
            Err(fault) => {
                let after = [board.strict.load(SeqCst), board.writable.load(SeqCst)];
                let is_strict = before[0] % 2 == 1 && before[0] == after[0];
                let is_writable = before[1] % 2 == 1 && before[1] == after[1];
                let is_due = match fault {
                    Fault::Denied { .. } => kind == Kind::Store && !(is_strict && is_writable),
                    Fault::NotMapped { .. } | Fault::Unfit => !is_strict,
                };
                if !is_due {
                    board.over.store(true, SeqCst);
                    panic!("{addr} {kind:?} while it is mapped: {fault}");
                }
            }
        }
        board.walks.fetch_add(1, SeqCst);
    }
}

/// The properties of a format's hardware.
#[derive(Clone, Copy)]
struct Hardware {
    /// Whether it needs break-before-make, so that a walk may find no page while a page is resized.
    breaks: bool,
    /// Whether its walkers set accessed and dirty bits.
    marks: bool,
}

const MARKS: Hardware = Hardware { breaks: false, marks: true };
const BREAKS: Hardware = Hardware { breaks: true, marks: true };
const ONLY_READS: Hardware = Hardware { breaks: false, marks: false };

/// Repeats map, split, protect, merge and unmap for one page of size `large` and its parts of size
/// `small`.
fn race<P: Table + Send + Sync + 'static>(
    name: &str,
    make: impl Fn() -> P,
    sizes: (PageSize, PageSize),
    hardware: Hardware,
) {
    race_any(name, &|| Box::new(make()), sizes, hardware);
}

fn race_any(
    name: &str,
    make: &dyn Fn() -> Box<dyn Table + Send + Sync>,
    (small, large): (PageSize, PageSize),
    Hardware { breaks, marks }: Hardware,
) {
    let seed = 0x63 ^ u64::from(large.shift() as u8);
    println!("{name}, {small} and {large}: seed {seed:#x}");
    let mut table = make();
    let mut memory = Shared::new();
    let mut frames = Stack { next: 1 << 16, free: BTreeMap::new(), left: usize::MAX };
    let space = table.create(&mut memory, &mut frames).unwrap();
    let start = VirtAddr::new((1 << 30) + large.bytes()).align_down(large);
    let range = VirtRange::of_page(start.page(large));
    let base = table.page_sizes()[0];
    let pages = large.count_of(base);
    let board = Arc::new(Board {
        range,
        base,
        asked: AtomicU64::new(0),
        forgot: Default::default(),
        written: (0..pages).map(|_| AtomicBool::new(false)).collect(),
        strict: AtomicU64::new(0),
        writable: AtomicU64::new(0),
        walks: AtomicU64::new(0),
        over: AtomicBool::new(false),
    });
    // Checks usage bits after a shootdown: each walker records a store before it ends the walk, so
    // all stores are recorded by then.
    let dirty = |gone: &[Mapping]| {
        let mut lost = Vec::new();
        for mapping in gone {
            let Translation { page, .. } = mapping.translation;
            let first = board.index(page.start());
            let of = first..first + page.size().count_of(base) as usize;
            let is_written = board.written[of].iter().any(|page| page.load(SeqCst));
            if marks && is_written && !mapping.usage.dirty {
                lost.push(page);
            }
        }
        lost
    };
    let walk_on = |count: u64| {
        let until = board.walks.load(SeqCst) + count;
        while board.walks.load(SeqCst) < until && !board.over.load(SeqCst) {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let walkers: Vec<_> = (0..WALKERS)
            .map(|number| {
                let (table, mut memory, board) = (make(), memory.clone(), board.clone());
                scope.spawn(move || {
                    run_walker(number, seed + number as u64, &*table, space, &mut memory, &board);
                })
            })
            .collect();
        let frame = PhysAddr::new(frame_of(range, start));
        let rounds = if cfg!(miri) { 1 } else { 8 };
        for round in 0..rounds {
            board.written.iter().for_each(|page| page.store(false, SeqCst));
            let (mut size, count) =
                if round % 2 == 0 { (large, 1) } else { (small, large.count_of(small)) };
            let first = Translation::new(start.page(size), frame, Rights::ALL);
            let flush = table.map(space, first, count, &mut memory, &mut frames).unwrap();
            flush.done(&mut frames);
            Board::count(&board.writable, true);
            Board::count(&board.strict, true);
            walk_on(40);
            for _ in 0..4 {
                size = if size == large { small } else { large };
                Board::count(&board.strict, !breaks);
                let forget = &mut |_: &_| {
                    walk_on(6);
                    board.shoot();
                };
                table.resize(space, range, size, &mut memory, &mut frames, forget).unwrap();
                Board::count(&board.strict, true);
                walk_on(8);
                Board::count(&board.writable, false);
                for rights in [Rights::READ | Rights::USER, Rights::ALL] {
                    let each = &mut |_| {};
                    let flush = table.protect(space, range, rights, &mut memory, each).unwrap();
                    board.shoot();
                    flush.done(&mut frames);
                    walk_on(4);
                }
                Board::count(&board.writable, true);
            }
            // If no frame is left, the operation must change nothing.
            if size == large {
                Board::count(&board.strict, !breaks);
                let left = std::mem::replace(&mut frames.left, 0);
                let forget = &mut |_: &_| board.shoot();
                // Pages with entries at the same level need no table.
                match table.resize(space, range, small, &mut memory, &mut frames, forget) {
                    Err(error) => assert!(matches!(error, pagetable::Error::OutOfFrames(_))),
                    Ok(mapped) => assert_eq!(mapped[0].translation.page.size(), small),
                }
                frames.left += left;
                Board::count(&board.strict, true);
                walk_on(6);
            }
            Board::count(&board.strict, false);
            let mut gone = Vec::new();
            let each = &mut |mapping| gone.push(mapping);
            let flush = table.unmap(space, range, &mut memory, each).unwrap();
            board.shoot();
            flush.done(&mut frames);
            let mapped: u64 = gone.iter().map(|of| of.translation.page.size().bytes()).sum();
            assert_eq!(mapped, large.bytes());
            assert_eq!(
                dirty(&gone),
                [],
                "{name}: stores that the OS does not know of, round {round}"
            );
            if board.over.load(SeqCst) {
                break;
            }
        }
        board.over.store(true, SeqCst);
        walkers.into_iter().for_each(|walker| walker.join().expect("a walk went wrong"));
    });
    table.destroy(space, &mut memory).unwrap().done(&mut frames);
    assert_eq!(frames.left, usize::MAX);
}

const fn size(shift: u8) -> PageSize {
    PageSize::from_shift(shift).unwrap()
}

const K4: PageSize = PageSize::SIZE_4K;
const M2: PageSize = PageSize::SIZE_2M;

#[test]
fn x86_keeps_every_store() {
    race("x86-64", X86_64::<4>::new, (K4, M2), MARKS);
    race("x86-64, 5 levels", X86_64::<5>::new, (M2, PageSize::SIZE_1G), MARKS);
    race("x86-32", X86_32::<false>::new, (K4, size(22)), MARKS);
    race("x86-pae", X86_32::<true>::new, (K4, M2), MARKS);
}

#[test]
fn sparc_keeps_every_store() {
    race("sparc-reference", pagetable::SparcReference::<true>::new, (K4, size(18)), MARKS);
}

#[test]
fn arm_finds_every_page() {
    race("arm", pagetable::Arm::new, (K4, size(20)), ONLY_READS);
}

#[test]
fn riscv_keeps_every_store() {
    race("sv39", Sv39::<true>::new, (K4, M2), MARKS);
    race("sv48", Sv48::<true>::new, (size(16), M2), MARKS);
    race("sv57", Sv57::<true>::new, (K4, size(16)), MARKS);
}

#[test]
fn aarch64_keeps_every_store() {
    race("aarch64, 4K", Aarch64::<12>::new, (K4, M2), BREAKS);
    race("aarch64, 4K, bbm2", || Aarch64::<12>::new().with_bbm2(), (K4, M2), MARKS);
    race("aarch64, 4K, contiguous", Aarch64::<12>::new, (K4, size(16)), BREAKS);
    race(
        "aarch64, 4K, contiguous, bbm2",
        || Aarch64::<12>::new().with_bbm2(),
        (size(16), M2),
        MARKS,
    );
    race("aarch64, 16K", || Aarch64::<14>::new().with_bbm2(), (size(14), size(25)), MARKS);
    race("aarch64, 16K, contiguous", Aarch64::<14>::new, (size(14), size(21)), BREAKS);
    race("aarch64, 64K", Aarch64::<16>::new, (size(16), size(21)), BREAKS);
    race(
        "aarch64, 64K, 52 bits",
        || Aarch64::<16, 52>::new().with_bbm2(),
        (size(16), size(21)),
        MARKS,
    );
    race("aarch64, 16K, 52 bits", Aarch64::<14, 52>::new, (size(14), size(25)), BREAKS);
    race("aarch64, 52 bits", || Aarch64::<12, 52>::new().with_bbm2(), (K4, M2), MARKS);
}

/// Splitting a page of 1G into pages of 4K needs 513 tables.
#[test]
fn a_split_that_finds_no_memory_changes_nothing() {
    let mut physical = Physical::new();
    let (mut table, frames) = (X86_64::<4>::new(), &mut physical.clone());
    let space = table.create(&mut physical, frames).unwrap();
    let page = VirtAddr::new(1 << 30).page(PageSize::SIZE_1G);
    let first = Translation::new(page, PhysAddr::new(1 << 32), Rights::ALL);
    table.map(space, first, 1, &mut physical, frames).unwrap().done(frames);
    let mut unasked = |_: &Flush| panic!("nothing has changed");
    for room in [0, 1, 2, 511, 512] {
        physical.limit(physical.frames_out() + room);
        let range = VirtRange::of_page(page);
        let refused = table.resize(space, range, K4, &mut physical, frames, &mut unasked);
        assert!(matches!(refused.unwrap_err(), pagetable::Error::OutOfFrames(_)));
        assert_eq!(physical.frames_out(), 2);
        assert_eq!(table.query(space, page.start(), &physical).unwrap().translation, first);
    }
    physical.limit(physical.frames_out() + 513);
    let (range, forget) = (VirtRange::of_page(page), &mut |_: &Flush| {});
    let mapped = table.resize(space, range, K4, &mut physical, frames, forget).unwrap();
    assert_eq!(mapped.len(), 1 << 18);
}
