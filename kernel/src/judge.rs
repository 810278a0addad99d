//! Tests whether processors use a page table as `pagetable` says.
//!
//! ```text
//!   operations: map, unmap, protect, clear bits, other sizes    the same on both, with allocators alike
//!        |                              |
//!   table in memory               its twin in simulated memory
//!        | user mode: load, store, fetch | walk, contents of frames by a model
//!        v                              v
//!   fault or what was found   =?=   fault or translation          after each access
//!   bytes of all tables       =?=   bytes of all tables           after each operation: accessed and dirty bits
//! ```
//!
//! The operating system flushes exactly what each token names. If a flush is left out on purpose
//! (`omit=here`, `omit=elsewhere`), a processor has a translation that the twin does not have: the next
//! access on that processor shows it. All processors make accesses in turn.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
    vec::Vec,
};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use addr::{Frames, Kind, Memory, OutOfFrames, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Flush, Mapping, PageTable, Reference, Space, SparseMemory, Translation, Usage};
use physmem::{Buddy, Physmem};

use crate::{
    PROCESSORS_MAX,
    arch::{self, Context},
    direct::{Direct, seen},
    locks, say, shootdown,
    trap::{Fault, Trap},
};

const BASE: PageSize = PageSize::SIZE_4K;
const LARGE: PageSize = PageSize::SIZE_2M;
/// The addresses of the stream's pages, and of the instructions of accesses.
const AREA: u64 = 0x4000_0000;
const AREA_BYTES: u64 = 8 << 20;
const PROBE: u64 = 0x1_0000;
/// The size of the physical memory of twins.
const SIMULATED: u64 = 1 << 34;
/// The number of large frames for pages, which follow those for tables.
const DATA_LARGE: u64 = 4;
const RIGHTS: [u8; 5] = [0, 1, 3, 5, 7];

/// Frames for tables, with a list of those that are in use.
struct Tables {
    memory: Physmem<Buddy>,
    out: BTreeSet<u64>,
}

impl Frames for Tables {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        let frame = Frames::allocate(&mut self.memory, size)?;
        self.out.insert(frame.get());
        Ok(frame)
    }

    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        self.out.remove(&frame.get());
        Frames::free(&mut self.memory, frame, size);
    }
}

/// A page table with its memory and frames.
struct Side<M> {
    table: arch::Table,
    memory: M,
    frames: Tables,
    space: Space,
}

/// An operation of the stream.
#[derive(Clone, Copy, Debug)]
enum Op {
    Map(Translation, u64),
    Unmap(VirtRange),
    Protect(VirtRange, Rights),
    Clear(VirtRange),
    Resize(VirtRange, PageSize),
    Access(VirtAddr, Kind),
}

impl<M: Memory> Side<M> {
    fn new(mut memory: M, start: PhysAddr, bytes: u64) -> Side<M> {
        let memory_of = Physmem::buddy(start, bytes, BASE).expect("whole frames");
        let mut frames = Tables { memory: memory_of, out: BTreeSet::new() };
        let mut table = arch::table();
        let space = table.create(&mut memory, &mut frames).expect("there is room for a root");
        Side { table, memory, frames, space }
    }

    /// Does the operation. Returns the mappings that it has reported, and its result. `forget` makes the
    /// processors flush.
    fn change(&mut self, op: Op, forget: &mut dyn FnMut(&Flush)) -> (Vec<Mapping>, Result<(), String>) {
        let Side { table, memory, frames, space } = self;
        let (mut told, space) = (Vec::new(), *space);
        let each = &mut |mapping| told.push(mapping);
        let done = match op {
            Op::Map(first, count) => table.map(space, first, count, memory, frames),
            Op::Unmap(range) => table.unmap(space, range, memory, each),
            Op::Protect(range, rights) => table.protect(space, range, rights, memory, each),
            Op::Clear(range) => {
                let bits = Usage { referenced: true, dirty: true, marked: false };
                table.clear_usage(space, range, bits, memory, each)
            }
            Op::Resize(range, to) => {
                let forget = &mut |flush: &Flush, _: &mut M| forget(flush);
                let resized = table.resize(space, range, to, memory, frames, forget);
                resized.map(|_| Flush::nothing(space))
            }
            Op::Access(..) => Ok(Flush::nothing(space)),
        };
        let ended = match done {
            Ok(flush) => {
                forget(&flush);
                flush.done(frames);
                Ok(())
            }
            Err(error) => Err(format!("{error}")),
        };
        (told, ended)
    }
}

/// A request to a processor for an access, and its answer.
struct Desk {
    /// The address, the value, and the kind plus one; 0 if there is no request.
    at: AtomicU64,
    value: AtomicU64,
    kind: AtomicUsize,
    root: AtomicU64,
    /// The outcome: see [`Found::word`].
    found: [AtomicU64; 2],
}

static DESKS: [Desk; PROCESSORS_MAX] = [const {
    Desk {
        at: AtomicU64::new(0),
        value: AtomicU64::new(0),
        kind: AtomicUsize::new(0),
        root: AtomicU64::new(0),
        found: [const { AtomicU64::new(0) }; 2],
    }
}; PROCESSORS_MAX];

/// The outcome of an access in user mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// The access was made. A load has read this word.
    Done(u64),
    /// The access faulted at this address, as this kind of access.
    Fault(u64, Kind),
    /// Another trap came, with this number.
    Other(u64),
}

impl Found {
    fn words(self) -> [u64; 2] {
        match self {
            Found::Done(word) => [0, word],
            Found::Fault(at, kind) => [1 + kind as u64, at],
            Found::Other(number) => [9, number],
        }
    }

    fn of([what, word]: [u64; 2]) -> Found {
        match what {
            0 => Found::Done(word),
            1..=3 => Found::Fault(word, Kind::ALL[what as usize - 1]),
            _ => Found::Other(word),
        }
    }
}

/// Makes an access in user mode on this processor.
fn access(processor: usize, root: PhysAddr, at: u64, kind: Kind, value: u64) -> Found {
    let pc = match kind {
        Kind::Fetch => at,
        Kind::Load => PROBE,
        Kind::Store => PROBE + 16,
    };
    let mut context = Context::new(pc, PROBE, [at, value]);
    loop {
        shootdown::enter(processor, root);
        match context.run(processor) {
            Trap::Call => {
                return Found::Done(if kind == Kind::Load { context.call().number } else { 0 });
            }
            Trap::Page(Fault { at, kind }) => return Found::Fault(at, kind),
            Trap::Timer | Trap::Poke => shootdown::poll(),
            Trap::Wrong(number) => return Found::Other(number),
        }
    }
}

/// Serves requests for accesses for ever.
pub fn serve(processor: usize) -> ! {
    let desk = &DESKS[processor];
    loop {
        let kind = desk.kind.load(Ordering::Acquire);
        if kind == 0 {
            locks::turn();
            continue;
        }
        let root = PhysAddr::new(desk.root.load(Ordering::Relaxed));
        let (at, value) = (desk.at.load(Ordering::Relaxed), desk.value.load(Ordering::Relaxed));
        let found = access(processor, root, at, Kind::ALL[kind - 1], value).words();
        desk.found.iter().zip(found).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        desk.kind.store(0, Ordering::Release);
    }
}

/// Makes an access on the given processor.
fn access_on(processor: usize, root: PhysAddr, at: u64, kind: Kind, value: u64) -> Found {
    if processor == arch::this() {
        return access(processor, root, at, kind, value);
    }
    let desk = &DESKS[processor];
    desk.root.store(root.get(), Ordering::Relaxed);
    desk.at.store(at, Ordering::Relaxed);
    desk.value.store(value, Ordering::Relaxed);
    desk.kind.store(kind as usize + 1, Ordering::Release);
    while desk.kind.load(Ordering::Acquire) != 0 {
        locks::turn();
    }
    Found::of([0, 1].map(|word: usize| desk.found[word].load(Ordering::Relaxed)))
}

/// A pseudo-random number generator (Marsaglia's xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// The parameters of a stream from the command line.
pub struct Stream {
    /// The number of operations and accesses.
    pub events: u64,
    /// The seed of the random numbers.
    pub seed: u64,
    /// Whether each walk is printed on the serial line, to be checked outside.
    pub is_told: bool,
    /// Whether the processor sets accessed bits only after a walk that has found a page, as Bochs does: manuals
    /// allow both.
    pub is_late: bool,
}

struct Judge {
    real: Side<Direct>,
    twin: Side<SparseMemory>,
    /// The word at the beginning of each frame.
    contents: BTreeMap<u64, u64>,
    data: u64,
    random: Random,
    stamp: u64,
    is_told: bool,
    is_late: bool,
}

/// Runs a stream over the memory in `frames`. The error says what differs.
pub fn run(frames: &core::ops::Range<u64>, stream: &Stream) -> Result<(u64, u64), String> {
    let data = (frames.end - DATA_LARGE * LARGE.bytes()) & !LARGE.mask();
    let start = PhysAddr::new(frames.start.next_multiple_of(BASE.bytes()));
    let bytes = data.checked_sub(start.get()).filter(|bytes| *bytes >= 1 << 20);
    let bytes = bytes.ok_or("the judge needs more memory: leave `frames` out, or give the machine 128M")?.min(4 << 20);
    let mut judge = Judge {
        real: Side::new(Direct, start, bytes),
        twin: Side::new(SparseMemory::new(SIMULATED), start, bytes),
        contents: BTreeMap::new(),
        data,
        random: Random(stream.seed.max(1)),
        stamp: 0,
        is_told: stream.is_told,
        is_late: stream.is_late,
    };
    judge.begin()?;
    if stream.is_told {
        say!("tables {:x} {:x} {:x}", judge.real.space.root().get(), start.get(), start.get() + bytes);
    }
    let mut accesses = 0;
    for number in 0..stream.events {
        let op = judge.choose();
        accesses += u64::from(matches!(op, Op::Access(..)));
        judge.step(op).map_err(|what| format!("event {number}, {op:x?}: {what}"))?;
    }
    Ok((stream.events - accesses, accesses))
}

impl Judge {
    /// Fills the frames, and writes the instructions of accesses.
    fn begin(&mut self) -> Result<(), String> {
        for frame in 0..DATA_LARGE * LARGE.count_of(BASE) {
            self.write(self.data + frame * BASE.bytes());
        }
        // The last frame of all has the instructions.
        let code = self.data + DATA_LARGE * LARGE.bytes() - BASE.bytes();
        for (offset, bytes) in [(0, arch::PROBE_LOAD), (16, arch::PROBE_STORE)] {
            // SAFETY: the frame is the judge's.
            unsafe { seen(PhysAddr::new(code + offset)).cast::<[u8; 8]>().write(bytes) };
        }
        let page = VirtAddr::new(PROBE).page(BASE);
        let rights = Rights::READ | Rights::EXECUTE | Rights::USER;
        self.step(Op::Map(Translation::new(page, PhysAddr::new(code), rights), 1))?;
        arch::adopt(self.real.space);
        Ok(())
    }

    /// A new word for a frame: an instruction that calls the kernel, and a number.
    fn next_word(&mut self) -> u64 {
        self.stamp += 1;
        u64::from(arch::CALL_CODE) | self.stamp << 32
    }

    fn write(&mut self, frame: u64) {
        let word = self.next_word();
        Direct.write_u64(PhysAddr::new(frame), word);
        self.contents.insert(frame, word);
    }

    fn range(&mut self) -> VirtRange {
        let pages = AREA_BYTES / BASE.bytes();
        let (first, count) = match self.random.below(4) {
            // All of a large page, or some pages that lie close.
            0 => (self.random.below(4) * 512, 512),
            1 => (self.random.below(pages), 1),
            _ => (self.random.below(4) * 512 + self.random.below(24), 1 + self.random.below(12)),
        };
        let bytes = count.min(pages - first) * BASE.bytes();
        VirtRange::new(VirtAddr::new(AREA + first * BASE.bytes()), bytes).expect("inside the area")
    }

    fn rights(&mut self) -> Rights {
        let bits = RIGHTS[self.random.below(RIGHTS.len() as u64) as usize];
        Rights::from_bits(bits) | Rights::USER
    }

    fn choose(&mut self) -> Op {
        let range = self.range();
        match self.random.below(16) {
            0..=2 => {
                let is_large = self.random.below(4) == 0;
                let size = if is_large { LARGE } else { BASE };
                let count = if is_large { 1 } else { 1 + self.random.below(4) };
                let frames = DATA_LARGE * LARGE.bytes() / size.bytes() - count;
                let frame = self.data + self.random.below(frames) * size.bytes();
                let first = Translation::new(range.start().page(size), PhysAddr::new(frame), self.rights());
                Op::Map(first, count)
            }
            3 => Op::Unmap(range),
            4 => Op::Protect(range, self.rights()),
            5 => Op::Clear(range),
            6 => Op::Resize(range, if self.random.below(2) == 0 { BASE } else { LARGE }),
            _ => {
                // Most accesses are where pages are.
                let kind = Kind::ALL[self.random.below(3) as usize];
                Op::Access(range.start(), kind)
            }
        }
    }

    fn step(&mut self, op: Op) -> Result<(), String> {
        if let Op::Access(addr, kind) = op {
            self.access(addr, kind)?;
        } else {
            let forget = &mut |flush: &Flush| shootdown::shoot_tokens(core::iter::once(flush));
            let real = self.real.change(op, forget);
            let twin = self.twin.change(op, &mut |_| ());
            if real != twin {
                return Err(format!("in memory {real:x?}, its twin {twin:x?}"));
            }
        }
        self.compare()
    }

    /// Compares an access in user mode with a walk of the twin.
    fn access(&mut self, addr: VirtAddr, kind: Kind) -> Result<(), String> {
        let mut references: Vec<Reference> = Vec::new();
        let Side { table, memory, space, .. } = &mut self.twin;
        if kind != Kind::Fetch {
            // The instruction of the access is fetched too.
            let each = &mut |reference| references.push(reference);
            let fetched = table.walk(*space, VirtAddr::new(PROBE), Kind::Fetch, memory, each);
            fetched.map_err(|fault| format!("the instruction of an access: {fault}"))?;
        }
        let mut of_access: Vec<Reference> = Vec::new();
        let walked = table.walk(*space, addr, kind, memory, &mut |reference| of_access.push(reference));
        if walked.is_err() && self.is_late {
            for set in of_access.extract_if(.., |reference| reference.write) {
                let entry = memory.read_u64(set.addr);
                memory.write_u64(set.addr, entry & !arch::ACCESSED);
            }
        }
        references.extend(of_access);
        let value = self.next_word();
        let expected = match walked {
            Ok(found) => {
                let frame = found.apply(addr).get();
                if kind == Kind::Store {
                    self.contents.insert(frame, value);
                }
                Found::Done(if kind == Kind::Load { self.contents[&frame] } else { 0 })
            }
            Err(_) => Found::Fault(addr.get(), kind),
        };
        if self.is_told {
            let mut line = format!("walk {:x} {}", addr.get(), kind.name());
            for reference in &references {
                let what = if reference.write { 'w' } else { 'r' };
                line += &format!(" {what}{:x}", reference.addr.get());
            }
            say!("{line}");
            // Nothing of the walks is in a TLB.
            arch::forget_all();
            arch::mark();
        }
        let processor = self.random.below(u64::from(shootdown::online())) as usize;
        let found = access_on(processor, self.real.space.root(), addr.get(), kind, value);
        if self.is_told {
            arch::mark();
        }
        if found != expected {
            return Err(format!("processor {processor} has {found:x?}, the walk of the twin {expected:x?}"));
        }
        Ok(())
    }

    /// Compares the bytes of all tables.
    fn compare(&self) -> Result<(), String> {
        if self.real.frames.out != self.twin.frames.out {
            return Err(format!(
                "tables lie at {:x?}, those of the twin at {:x?}",
                self.real.frames.out, self.twin.frames.out
            ));
        }
        let root = self.real.space.root().get();
        for &table in &self.real.frames.out {
            // The kernel's half of the root is not the twin's.
            let bytes = if table == root { BASE.bytes() / 2 } else { BASE.bytes() };
            for at in (table..table + bytes).step_by(8).map(PhysAddr::new) {
                let (real, twin) = (self.real.memory.read_u64(at), self.twin.memory.read_u64(at));
                if real != twin {
                    return Err(format!("the entry at {at} is {real:x}, that of the twin {twin:x}"));
                }
            }
        }
        Ok(())
    }
}
