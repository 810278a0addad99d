use std::cell::Cell;

use addr::{Frames, OutOfFrames, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace, Platform, Tables, locking::Scheme};
use pagetable::{Flush, Mount, Mounted, Translation, Usage, X86_64};

use crate::{Contender, OPERATIONS, THREADS_MAX, arena::Arena, work};

const ARENA_BYTES: u64 = 16 << 20;
const SIZE: PageSize = PageSize::SIZE_4K;

/// The HAT layer over x86-64 page tables.
pub(crate) struct Ours<S> {
    hat: Hat<dyn Mounted, S>,
    spaces: [HatSpace; THREADS_MAX],
}

/// A processor with its own frames for page tables, and shootdowns that take no time.
pub(crate) struct Cpu {
    space: HatSpace,
    next: u64,
    end: u64,
    free: Vec<PhysAddr>,
}

impl<S: Scheme<Table = dyn Mounted>> Ours<S> {
    pub(crate) fn new(scheme: S) -> Ours<S> {
        let arena = Arena::new(ARENA_BYTES);
        let memory = arena.memory::<true>();
        let make =
            move || -> Box<dyn Mounted> { Box::new(Mount::tree(X86_64::<4>::new(), memory)) };
        let hat = Hat::with(scheme, Tables::Each(Box::new(make)));
        let mut cpu = Cpu::new(HatSpace(0), THREADS_MAX);
        let spaces = std::array::from_fn(|_| hat.create(&mut cpu).expect("there is memory"));
        // The memory of the page tables must exist until the program ends.
        std::mem::forget(arena);
        Ours { hat, spaces }
    }

    /// Does the work of one thread on the calling thread.
    pub(crate) fn alone(&self) -> [f64; OPERATIONS.len()] {
        let mut cpu = self.thread(0);
        work(self, 0, &mut cpu);
        work(self, 0, &mut cpu)
    }
}

impl Cpu {
    /// A processor with the share of the arena for thread `number`.
    fn new(space: HatSpace, number: usize) -> Cpu {
        let share = ARENA_BYTES / (THREADS_MAX as u64 + 1);
        let start = (number as u64 * share + SIZE.bytes()).next_multiple_of(SIZE.bytes());
        Cpu { space, next: start, end: start + share - 2 * SIZE.bytes(), free: Vec::new() }
    }
}

impl Platform for Cpu {
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}

    fn frames(&mut self) -> &mut dyn Frames {
        self
    }
}

impl Frames for Cpu {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        if let Some(frame) = self.free.pop() {
            return Ok(frame);
        }
        if self.next + size.bytes() > self.end {
            return Err(OutOfFrames { size, free_bytes: 0 });
        }
        self.next += size.bytes();
        Ok(PhysAddr::new(self.next - size.bytes()))
    }

    fn free(&mut self, frame: PhysAddr, _: PageSize) {
        self.free.push(frame);
    }
}

fn range(start: u64, pages: u64) -> VirtRange {
    VirtRange::new(VirtAddr::new(start), pages * SIZE.bytes()).expect("whole pages")
}

impl<S: Scheme<Table = dyn Mounted>> Contender for Ours<S> {
    type Thread = Cpu;

    fn thread(&self, number: usize) -> Cpu {
        Cpu::new(self.spaces[number], number)
    }

    fn load(&self, cpu: &mut Cpu, start: u64, frame: u64, pages: u64) {
        let first = Translation::new(
            VirtAddr::new(start).page(SIZE),
            PhysAddr::new(frame),
            Rights::READ | Rights::WRITE,
        );
        self.hat.load(cpu.space, first, pages, cpu).expect("nothing is there yet");
    }

    fn protect(&self, cpu: &mut Cpu, start: u64, pages: u64) {
        let protected = self.hat.protect(cpu.space, range(start, pages), Rights::READ, cpu);
        protected.expect("it is mapped");
    }

    fn usage(&self, cpu: &mut Cpu, frame: u64) -> bool {
        let clear = Usage { referenced: true, dirty: true, ..Usage::default() };
        let usage = self.hat.usage(PhysAddr::new(frame), SIZE, clear, cpu);
        usage.referenced || usage.dirty
    }

    fn unload(&self, cpu: &mut Cpu, start: u64, pages: u64) {
        let gone = Cell::new(0);
        let each = &mut |_| gone.set(gone.get() + 1);
        self.hat.unload(cpu.space, range(start, pages), each, cpu).expect("it is mapped");
        assert_eq!(gone.get(), pages);
    }
}
