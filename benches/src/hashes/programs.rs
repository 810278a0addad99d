//! Programs, generated from a seed, that make all kinds of requests to an operating system.
//!
//! ```text
//!   seed --> who goes on --+--> accesses to a mapping: in order, at random, a few pages again and again
//!                          +--> a call that makes a mapping, changes it or gives it back
//!                          +--> fork, execve, exit; another process, on this or another processor
//! ```
//!
//! Each process has a text, a heap, a stack and an area of 8 MiB slots for one mapping each, in all within
//! 256 MiB, so that it fits in 32-bit page tables and small spaces. The streams use only integers, from a
//! generator with a fixed specification: they are the same on every host.

use addr::Kind;
use rand_xoshiro::{
    Xoshiro256PlusPlus,
    rand_core::{Rng, SeedableRng},
};
use trace::{
    Arch, Batch, CLONE_VM, Call, Descriptor, Error, Event, FileId, FileKind, Filter, Header, Meta,
    Origin, Process, Program, Source,
};

const PAGE: u64 = 4096;
const LARGE: u64 = 2 << 20;
const TEXT: u64 = 0x40_0000;
const TEXT_BYTES: u64 = 1 << 20;
const BSS: u64 = 0x60_0000;
const BSS_BYTES: u64 = 256 << 10;
const HEAP: u64 = 0x100_0000;
const HEAP_MAX: u64 = 16 << 20;
const AREA: u64 = 0x400_0000;
const SLOT: u64 = 8 << 20;
const SLOTS: usize = 18;
const STACK: u64 = 0xff0_0000;
const STACK_BYTES: u64 = 512 << 10;
const FILES: u64 = 6;
/// The process identifier of process 0; each later process has the next one.
const PID: u32 = 100;
/// Accesses of a batch, so that events come both between batches and within them.
const BATCH: usize = 400;

/// The parameters of a stream.
pub(crate) struct Shape {
    /// The name in its lines.
    pub(crate) name: &'static str,
    /// The seed of its random numbers.
    pub(crate) seed: u64,
    /// The number of steps.
    pub(crate) steps: u64,
    /// The number of processes in all.
    pub(crate) processes: u32,
    /// The number of processors in its schedule; 0: there is no schedule, and the machine assigns threads
    /// to processors.
    pub(crate) cpus: u32,
    /// The share of steps that are calls instead of accesses, in per cent.
    pub(crate) calls: u64,
    /// The largest size of a mapping in bytes.
    pub(crate) mapping_max: u64,
}

/// A generated stream.
pub(crate) struct Programs {
    header: Header,
    processes: Vec<Process>,
    batches: Vec<Batch>,
}

impl Programs {
    /// Generates the stream of `shape`.
    pub(crate) fn new(shape: &Shape) -> Programs {
        let mut life = Life {
            random: Xoshiro256PlusPlus::seed_from_u64(shape.seed),
            shape,
            spaces: vec![Space::default()],
            running: 0,
            thread: 0,
            memories: 0,
            pairs: 0,
            processes: vec![process(0, None)],
            batch: Batch::default(),
            batches: Vec::new(),
            rows: 0,
        };
        life.begin("first");
        for _ in 0..shape.steps {
            life.step();
        }
        life.turn();
        let header = Header {
            kernel_from: None,
            producer: "pagewalk bench".to_owned(),
            command: vec![shape.name.to_owned()],
            arch: Arch::Unknown,
            fetches: true,
            filter: Filter::None,
            page_bytes: PAGE,
            notes: Vec::new(),
        };
        Programs { header, processes: life.processes, batches: life.batches }
    }

    /// The stream from its beginning; if `physical`, with frames as a recorded trace can have them.
    pub(crate) fn source(&self, physical: bool) -> Given<'_> {
        Given { programs: self, next: 0, physical }
    }
}

/// A source that reads [`Programs`].
pub(crate) struct Given<'a> {
    programs: &'a Programs,
    next: usize,
    physical: bool,
}

impl Source for Given<'_> {
    fn header(&self) -> &Header {
        &self.programs.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        match self.programs.batches.get(self.next) {
            Some(made) => batch.clone_from(made),
            None => batch.clear(),
        }
        if !self.physical {
            batch.paddr.clear();
        }
        self.next += 1;
        Ok(!batch.is_empty())
    }

    fn processes(&self) -> &[Process] {
        &self.programs.processes
    }
}

fn process(number: u32, parent: Option<u32>) -> Process {
    let command = vec![format!("program{number}")];
    Process {
        number,
        pid: PID + number,
        parent,
        parent_accesses: None,
        shares_space: false,
        began_ns: u64::from(number),
        programs: vec![Program { arch: Arch::Unknown, command, from: 0 }],
        accesses: 0,
        instructions: 0,
    }
}

/// The mapping in a slot.
#[derive(Clone, Copy)]
struct Mapping {
    start: u64,
    bytes: u64,
    /// The pages that loads and stores currently use: the first page, and the number of pages.
    used: (u64, u64),
}

/// The address space of a process.
#[derive(Clone)]
struct Space {
    slots: [Option<Mapping>; SLOTS],
    heap_end: u64,
    locked: u64,
    has_run: bool,
    is_over: bool,
}

impl Default for Space {
    fn default() -> Space {
        Space { slots: [None; SLOTS], heap_end: HEAP, locked: 0, has_run: false, is_over: false }
    }
}

struct Life<'a> {
    random: Xoshiro256PlusPlus,
    shape: &'a Shape,
    spaces: Vec<Space>,
    /// The index of the running process.
    running: usize,
    thread: u32,
    /// The number of shared memory segments so far.
    memories: i32,
    /// The number of allocations so far.
    pairs: u64,
    processes: Vec<Process>,
    batch: Batch,
    batches: Vec<Batch>,
    rows: u64,
}

impl Life<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    fn one_of<T: Copy, const N: usize>(&mut self, of: [T; N]) -> T {
        of[self.below(N as u64) as usize]
    }

    fn space(&mut self) -> &mut Space {
        &mut self.spaces[self.running]
    }

    fn event(&mut self, event: Event) {
        self.batch.push_event(self.thread, event);
    }

    /// Makes an access, with the frame that a physical trace has for it: blocks of 2 MiB are at random
    /// physical addresses, and some of them move later.
    fn access(&mut self, kind: Kind, addr: u64, bytes: u32) {
        let instructions = 1 + self.below(12) as u32;
        self.batch.push(self.thread, addr, Meta::new(kind, bytes, instructions));
        let block = addr / LARGE + (self.running as u64) * 97 + (self.rows >> 15);
        self.batch.paddr.push(block * 7 % 24 * LARGE + addr % LARGE);
        self.rows += 1;
        if self.batch.len() == BATCH {
            self.turn();
        }
    }

    /// Ends a batch.
    fn turn(&mut self) {
        let first = self.rows;
        let done = std::mem::replace(&mut self.batch, Batch { first, ..Batch::default() });
        self.batches.push(done);
    }

    /// Sets up the space of a process at the beginning of its program.
    fn begin(&mut self, name: &str) {
        let number = self.running as u64;
        let identity = Some(format!("crc32 {number:08x}"));
        self.event(Event::Image { path: format!("/bin/{name}"), identity });
        let text = Origin::File(format!("/bin/{name}"));
        let known = [
            (TEXT, TEXT_BYTES, 5, text, Some(0)),
            (BSS, BSS_BYTES, 3, Origin::Bss, None),
            (HEAP, PAGE, 3, Origin::Heap, None),
            (STACK, STACK_BYTES, 3, Origin::Stack, None),
        ];
        for (start, bytes, rights, origin, offset) in known {
            self.event(Event::Mapping { start, bytes, rights, origin, offset, file: None });
        }
        for site in 0..4 {
            self.event(Event::Site { number: site, stack: vec![TEXT + u64::from(site)] });
        }
        *self.space() = Space { has_run: true, heap_end: HEAP + PAGE, ..Space::default() };
    }

    fn step(&mut self) {
        if self.below(100) >= self.shape.calls {
            return self.uses();
        }
        match self.below(100) {
            0..16 => self.map(),
            16..22 => self.unmap(),
            22..32 => self.protect(),
            32..40 => self.discard(),
            40..48 => self.moves(),
            48..58 => self.advise(),
            58..66 => self.set_break(),
            66..70 => self.lock(),
            70..75 => self.fork(),
            75..77 => self.execute(),
            77..79 => self.exit(),
            79..90 => self.switch(),
            90..94 => self.transfer(),
            94..97 => self.allocate(),
            _ => self.tell(),
        }
    }

    /// Accesses text, heap, stack, or the mapping in a slot.
    fn uses(&mut self) {
        let slot = self.below(SLOTS as u64) as usize;
        let heap = self.space().heap_end - HEAP;
        let (start, bytes) = match (self.below(12), self.space().slots[slot]) {
            (0, _) => (TEXT, TEXT_BYTES),
            (1, _) => (STACK + STACK_BYTES / 2, STACK_BYTES / 2),
            (2, _) => (BSS, BSS_BYTES),
            (3, _) | (_, None) => (HEAP, heap),
            (_, Some(mapping)) => (mapping.start, mapping.bytes),
        };
        let pages = bytes / PAGE;
        if pages == 0 {
            return;
        }
        let kinds = match start {
            TEXT => [Kind::Fetch, Kind::Fetch, Kind::Load],
            _ => self.one_of([
                [Kind::Load, Kind::Store, Kind::Store],
                [Kind::Load; 3],
                [Kind::Load, Kind::Load, Kind::Store],
            ]),
        };
        let first = match (start, self.space().slots[slot]) {
            (AREA.., Some(Mapping { used: (first, _), .. })) if self.below(3) > 0 => first % pages,
            _ => self.below(pages),
        };
        if start >= AREA
            && let Some(mapping) = &mut self.spaces[self.running].slots[slot]
        {
            mapping.used = (first, pages);
        }
        let way = self.below(4);
        let count = 20 + self.below(100);
        for at in 0..count {
            let page = match way {
                // In order, as far as the mapping goes.
                0 => (first + at) % pages,
                // Each page of a large one.
                1 => (first / 512 * 512 + at * 5 % 512) % pages,
                // Anywhere.
                2 => self.below(pages),
                // A few pages.
                _ => (first + self.below(4)) % pages,
            };
            let kind = self.one_of(kinds);
            let within = self.below(PAGE / 8) * 8;
            // Now and then an access crosses into the next page.
            let crosses = self.below(64) == 0 && page + 1 < pages;
            let within = if crosses { PAGE - 4 } else { within };
            self.access(kind, start + page * PAGE + within, 8);
        }
    }

    /// A random slot that has a mapping, and the mapping.
    fn mapping(&mut self) -> Option<(usize, Mapping)> {
        let from = self.below(SLOTS as u64) as usize;
        let slots = &self.spaces[self.running].slots;
        let found = (0..SLOTS).map(|at| (from + at) % SLOTS).find(|&at| slots[at].is_some())?;
        slots[found].map(|mapping| (found, mapping))
    }

    fn free_slot(&mut self) -> Option<usize> {
        let from = self.below(SLOTS as u64) as usize;
        let slots = &self.spaces[self.running].slots;
        (0..SLOTS).map(|at| (from + at) % SLOTS).find(|&at| slots[at].is_none())
    }

    /// A part of a mapping: all of it, its blocks of 2 MiB, or some pages.
    fn part(&mut self, mapping: Mapping) -> (u64, u64) {
        let pages = mapping.bytes / PAGE;
        let first = self.below(pages);
        match self.below(4) {
            0 => (mapping.start, mapping.bytes),
            1 => {
                let start = mapping.start.next_multiple_of(LARGE);
                let end = (mapping.start + mapping.bytes) / LARGE * LARGE;
                if end > start { (start, end - start) } else { (mapping.start, mapping.bytes) }
            }
            _ => (mapping.start + first * PAGE, (1 + self.below((pages - first).min(40))) * PAGE),
        }
    }

    fn file(&mut self) -> (Option<String>, Option<FileId>) {
        let number = self.below(FILES);
        let path = Some(format!("/data/{number}"));
        // Of some files only the path is known.
        (path, (number > 1).then(|| file_id(number)))
    }

    fn map(&mut self) {
        let Some(slot) = self.free_slot() else { return };
        let aligned = self.below(3) > 0;
        let start = AREA + slot as u64 * SLOT + if aligned { 0 } else { self.below(300) * PAGE };
        let most = self.shape.mapping_max.min(SLOT - 300 * PAGE) / PAGE;
        let pages = match self.below(3) {
            0 => 1 + self.below(40.min(most)),
            1 => 1 + self.below(most),
            // Whole pages of 2 MiB.
            _ => (1 + self.below(3)) * 512,
        };
        let bytes = pages.min(most) * PAGE;
        self.space().slots[slot] = Some(Mapping { start, bytes, used: (0, 1) });
        let prot = self.one_of([3, 3, 3, 7, 1]);
        let (private, shared) = (2, 1);
        let (anonymous, of_a_stack) = (0x20, 0x20000);
        let (flags, (path, file)) = match self.below(10) {
            0 => (private, self.file()),
            1 | 2 => (shared, self.file()),
            3 => (shared | anonymous, (None, None)),
            4 if self.shape.processes > 1 => {
                self.memories += 1;
                let id = self.memories % 3;
                let file = (id > 0).then(|| file_id(100 + id as u64));
                let result = start as i64;
                let (bytes, flags) = (Some(bytes), 0);
                return self.event(Event::Shmat { id, addr: 0, flags, bytes, file, result });
            }
            5 => (private | anonymous | of_a_stack, (None, None)),
            _ => (private | anonymous, (None, None)),
        };
        let fd = if path.is_some() { 3 } else { -1 };
        let offset = if path.is_some() { self.below(30) * PAGE } else { 0 };
        let (addr, result) = (0, start as i64);
        self.event(Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result });
    }

    fn unmap(&mut self) {
        let Some((slot, mapping)) = self.mapping() else { return };
        let (addr, bytes) = self.part(mapping);
        self.event(Event::Munmap { addr, bytes, result: 0 });
        // What is left after a hole is used as one: accesses to the hole are what no mapping explains.
        if bytes == mapping.bytes {
            self.space().slots[slot] = None;
        } else if addr == mapping.start {
            let (start, bytes) = (addr + bytes, mapping.bytes - bytes);
            self.space().slots[slot] = Some(Mapping { start, bytes, ..mapping });
        }
    }

    fn protect(&mut self) {
        let Some((_, mapping)) = self.mapping() else { return };
        let (addr, bytes) = self.part(mapping);
        let prot = self.one_of([1, 3, 3, 7]);
        self.event(Event::Mprotect { addr, bytes, prot, result: 0 });
    }

    fn discard(&mut self) {
        let Some((_, mapping)) = self.mapping() else { return };
        let (addr, bytes) = self.part(mapping);
        self.event(Event::Madvise { addr, bytes, advice: 4, result: 0 });
    }

    fn moves(&mut self) {
        let (Some((slot, mapping)), Some(to)) = (self.mapping(), self.free_slot()) else { return };
        let aligned = self.below(2) == 0;
        let off = if aligned { mapping.start % LARGE } else { self.below(200) * PAGE };
        let new_addr = AREA + to as u64 * SLOT + off;
        let pages = mapping.bytes / PAGE;
        let new_pages = match self.below(3) {
            0 => pages,
            1 => (pages + 1 + self.below(64)).min((SLOT - off) / PAGE),
            _ => 1 + self.below(pages),
        };
        let (addr, old_bytes, new_bytes) = (mapping.start, mapping.bytes, new_pages * PAGE);
        if off + new_bytes > SLOT {
            return;
        }
        let result = new_addr as i64;
        self.event(Event::Mremap { addr, old_bytes, new_bytes, flags: 3, new_addr, result });
        self.space().slots[slot] = None;
        self.space().slots[to] = Some(Mapping { start: new_addr, bytes: new_bytes, used: (0, 1) });
    }

    /// `MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`, `MADV_COLLAPSE`, and advice that no manager follows.
    fn advise(&mut self) {
        let Some((_, mapping)) = self.mapping() else { return };
        let (addr, bytes) = self.part(mapping);
        let advice = self.one_of([14, 14, 14, 15, 25, 25, 8, 3]);
        self.event(Event::Madvise { addr, bytes, advice, result: 0 });
    }

    fn set_break(&mut self) {
        let now = self.space().heap_end;
        let to = match self.below(4) {
            0 => HEAP + self.below((now - HEAP) / PAGE + 1) * PAGE,
            _ => (now + (1 + self.below(400)) * PAGE).min(HEAP + HEAP_MAX),
        };
        self.space().heap_end = to;
        self.event(Event::Brk { addr: to, result: to as i64 });
    }

    /// Locks a few pages, or all memory for a while.
    fn lock(&mut self) {
        let Some((_, mapping)) = self.mapping() else { return };
        let addr = mapping.start;
        let bytes = mapping.bytes.min(20 * PAGE);
        match self.below(6) {
            0 | 1 if self.space().locked < 4 => {
                self.space().locked += 1;
                self.event(Event::Mlock { addr, bytes, flags: 0, result: 0 });
            }
            2 if self.space().locked < 4 => {
                self.event(Event::Mlockall { flags: 2, result: 0 });
                self.map();
                self.event(Event::Munlockall { result: 0 });
                self.space().locked = 0;
            }
            3 => {
                self.event(Event::Munlockall { result: 0 });
                self.space().locked = 0;
            }
            _ => self.event(Event::Munlock { addr, bytes, result: 0 }),
        }
    }

    fn fork(&mut self) {
        let number = self.spaces.len() as u32;
        if number == self.shape.processes {
            return;
        }
        // A call that failed asks for nothing; a child of vfork is in its parent's space until it ends.
        match self.below(8) {
            0 => return self.event(Event::Fork { result: -11, flags: 0 }),
            1 => return self.event(Event::Fork { result: 77, flags: CLONE_VM }),
            _ => {}
        }
        self.event(Event::Fork { result: i64::from(PID + number), flags: 0 });
        self.processes.push(process(number, Some(self.running as u32)));
        let child = Space { has_run: false, locked: 0, ..self.space().clone() };
        self.spaces.push(child);
        if self.below(2) == 0 {
            self.run(number as usize);
        }
    }

    fn execute(&mut self) {
        if self.running == 0 {
            return;
        }
        let name = format!("other{}", self.below(3));
        self.event(Event::Execve { path: format!("/bin/{name}"), result: 0 });
        self.begin(&name);
    }

    fn exit(&mut self) {
        if self.running == 0 {
            return;
        }
        self.event(Event::Exit { status: 0, group: true });
        self.space().is_over = true;
        self.run(0);
    }

    /// Switches to another process. New processes get their spaces in the order in which they were
    /// forked.
    fn switch(&mut self) {
        let to = self.below(self.spaces.len() as u64) as usize;
        let next_new = self.spaces.iter().position(|space| !space.has_run && !space.is_over);
        match &self.spaces[to] {
            Space { is_over: true, .. } => {}
            Space { has_run: false, .. } if next_new != Some(to) => {}
            _ => self.run(to),
        }
    }

    fn run(&mut self, to: usize) {
        let first = self.spaces.iter().position(|space| !space.has_run);
        if !self.spaces[to].has_run && first != Some(to) {
            return;
        }
        self.spaces[to].has_run = true;
        self.running = to;
        let space = to as u32;
        let cpu = match self.shape.cpus {
            0 => None,
            cpus => Some(self.below(u64::from(cpus)) as u32),
        };
        self.thread = space * 2 + self.below(2) as u32;
        self.event(Event::Run { cpu, space });
    }

    /// Reads or writes a file by a call.
    fn transfer(&mut self) {
        let (kind, file) = (FileKind::Regular, file_id(2 + self.below(FILES - 2)));
        let write = self.below(2) == 0;
        let offset = self.below(60) * PAGE + self.below(2) * 100;
        let result = self.one_of([PAGE as i64, 100, 5 * PAGE as i64]);
        self.event(Event::Call(Box::new(Call {
            name: if write { "pwrite64" } else { "pread64" }.to_owned(),
            fd: Some(3),
            offset: Some(offset),
            result,
            descriptors: vec![Descriptor { fd: 3, kind, file, nonblocking: false }],
            ..Call::default()
        })));
    }

    /// Allocates a part of a mapping at a line of the program, or frees one.
    fn allocate(&mut self) {
        let Some((_, mapping)) = self.mapping() else { return };
        let addr = mapping.start + 16;
        self.pairs += 1;
        let site = (self.pairs % 4) as u32;
        match self.below(3) {
            0 => self.event(Event::Free { addr }),
            _ => self.event(Event::Allocate { addr, bytes: mapping.bytes - 16, site }),
        }
    }

    /// Makes calls that request nothing, and calls that fail.
    fn tell(&mut self) {
        let number = self.below(10);
        let failed = -12;
        self.event(match number {
            0 => Event::Msync { addr: AREA, bytes: SLOT, flags: 4, result: 0 },
            1 => Event::Mbind { addr: AREA, bytes: SLOT, mode: 2, nodes: 1, flags: 0, result: 0 },
            2 => Event::Munmap { addr: AREA, bytes: SLOT, result: failed },
            3 => Event::Mprotect { addr: AREA, bytes: SLOT, prot: 0, result: failed },
            4 => Event::Madvise { addr: AREA, bytes: SLOT, advice: 4, result: failed },
            5 => Event::Brk { addr: 0, result: failed },
            6 => Event::HugePages { disabled: true, result: 0 },
            7 => Event::PageSize { addr: AREA, bytes: SLOT, page_bytes: LARGE },
            8 => Event::Shmdt { addr: AREA, result: 0 },
            _ => Event::Marker { number },
        });
    }
}

fn file_id(number: u64) -> FileId {
    FileId { device: 1, inode: number, bytes: 1 << 20 }
}
