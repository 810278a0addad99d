//! Virtual processors as the platform of the HAT layer: shootdowns, memory for page tables, and the
//! cycles of work.
//!
//! ```text
//!   sender    shoot, shoot_each x n .... wait for the last answer .... go on, free
//!   receiver        ---- interrupt: flush, answer ----
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use addr::{Frames, OutOfFrames, PageSize, PhysAddr, VirtAddr};
use hat::{Hat, HatSpace, Platform, Step, locking::Scheme};
use pagetable::{Flush, Mounted, Scope, Translation};
use serde::Serialize;
use vm::Io;

use locks::{
    baton::{interrupt, pass, spend, spend_on, with_me},
    costs::Costs,
};

use crate::load::{Processor, text};

/// How processors are made to flush their TLBs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shootdowns {
    /// An interrupt to each processor that may hold entries of the space.
    Interrupts,
    /// An interrupt to each processor that runs the space now. Other processors flush when they run
    /// the space next.
    Lazy,
    /// The hardware flushes on all processors, as Arm's TLBI does: no processor is interrupted.
    Broadcast,
}

impl Shootdowns {
    /// All kinds, with their names.
    pub const ALL: [(&str, Shootdowns); 3] = [
        ("interrupts", Shootdowns::Interrupts),
        ("lazy", Shootdowns::Lazy),
        ("broadcast", Shootdowns::Broadcast),
    ];
}

/// The counts of shootdowns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ShootCounts {
    /// Shootdowns that were sent.
    pub sent: u64,
    /// Interrupts of processors.
    pub interrupts: u64,
    /// Deferred flushes: a processor flushed a space when it entered the space again.
    pub deferred: u64,
    /// Cycles that senders waited for answers.
    pub wait_cycles: u64,
    /// Pages flushed from caches that are indexed by virtual addresses. A page is counted once for
    /// each processor that may hold lines of it.
    pub cache_pages: u64,
    /// Whole spaces flushed from caches that are indexed by virtual addresses. A space is counted
    /// once for each processor that may hold lines of it.
    pub cache_spaces: u64,
}

/// A TLB entry, and when it was filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlbEntry {
    /// The translation that the entry holds.
    pub translation: Translation,
    /// The time at which the entry was filled, on the clock of [`Board::tick`].
    pub at: u64,
}

/// The TLB of a processor, of unlimited size: it loses entries only by flushes.
pub type Tlb = BTreeMap<(HatSpace, u64), TlbEntry>;

/// The state that all processors share.
#[derive(Debug)]
pub struct Board {
    kind: Shootdowns,
    /// Whether caches are indexed by virtual addresses.
    virtual_caches: bool,
    state: Mutex<State>,
    clock: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// The end of the highest frame that was allocated so far.
    next: u64,
    out: BTreeSet<PhysAddr>,
    free_frames: u64,
    cpus: Vec<Context>,
    counts: ShootCounts,
}

#[derive(Clone, Debug, Default)]
struct Context {
    running: Option<HatSpace>,
    /// The spaces of which the processor may hold entries.
    holds: BTreeSet<HatSpace>,
    /// The spaces in `holds` that the processor has yet to flush.
    stale: BTreeSet<HatSpace>,
    tlb: Tlb,
}

impl Board {
    /// A board with `cpus` processors, shootdowns of `kind`, and `free_frames` frames for page
    /// tables.
    pub fn new(cpus: usize, kind: Shootdowns, free_frames: u64) -> Board {
        let state = State {
            next: 1 << 32,
            out: BTreeSet::new(),
            free_frames,
            cpus: vec![Context::default(); cpus],
            counts: ShootCounts::default(),
        };
        let clock = AtomicU64::new(1);
        Board { kind, virtual_caches: false, state: Mutex::new(state), clock }
    }

    /// This board, with caches that are indexed by virtual addresses if `virtual_caches`: pages that
    /// are unmapped are flushed from these caches too (K94 section 3.2).
    pub fn with_virtual_caches(self, virtual_caches: bool) -> Board {
        Board { virtual_caches, ..self }
    }

    /// This board, with frames for page tables from the address `first` on. Every format must be
    /// able to address these frames.
    pub fn with_frames_from(self, first: u64) -> Board {
        self.lock().next = first;
        self
    }

    /// The counts of shootdowns so far.
    pub fn counts(&self) -> ShootCounts {
        self.lock().counts
    }

    /// The number of page-table frames that are not freed.
    pub fn frames_out(&self) -> usize {
        self.lock().out.len()
    }

    /// Advances the clock. Returns a number that is higher than all earlier ones.
    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Fills the TLB of a processor with a page from its page table.
    pub fn fill(&self, cpu: usize, space: HatSpace, translation: Translation) {
        let entry = TlbEntry { translation, at: self.tick() };
        let context = &mut self.lock().cpus[cpu];
        context.tlb.insert((space, translation.page.start().get()), entry);
    }

    /// The first entry of any TLB for which `f` returns true, with the number of its processor.
    pub fn any_entry(&self, f: impl Fn(HatSpace, &TlbEntry) -> bool) -> Option<(usize, TlbEntry)> {
        let state = self.lock();
        let mut all = state.cpus.iter().enumerate().flat_map(|(cpu, context)| {
            context.tlb.iter().map(move |((space, _), entry)| (cpu, *space, *entry))
        });
        all.find(|(_, space, entry)| f(*space, entry)).map(|(cpu, _, entry)| (cpu, entry))
    }

    /// Switches a processor to `space`.
    pub fn enter(&self, cpu: usize, space: HatSpace) {
        let mut state = self.lock();
        let context = &mut state.cpus[cpu];
        context.running = Some(space);
        if context.stale.remove(&space) {
            context.tlb.retain(|(of, _), _| *of != space);
            state.counts.deferred += 1;
        }
        state.cpus[cpu].holds.insert(space);
    }

    /// Whether any processor runs `space`.
    pub fn runs(&self, space: HatSpace) -> bool {
        self.lock().cpus.iter().any(|context| context.running == Some(space))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A processor of the board.
#[derive(Debug)]
pub struct Cpu<'a> {
    board: &'a Board,
    number: usize,
}

impl<'a> Cpu<'a> {
    /// The processor `number` of `board`.
    pub fn new(board: &'a Board, number: usize) -> Cpu<'a> {
        Cpu { board, number }
    }
}

fn costs() -> Costs {
    with_me(|me| me.baton.costs).unwrap_or(Costs::FREE)
}

impl Platform for Cpu<'_> {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        pass();
        let costs = costs();
        let concerned =
            |context: &Context| flushes.iter().any(|(space, _)| context.holds.contains(space));
        let mut state = self.board.lock();
        forget(&mut state.cpus[self.number].tlb, flushes);
        let mut others = Vec::new();
        for (cpu, context) in state.cpus.iter_mut().enumerate() {
            if cpu == self.number || !concerned(context) {
                continue;
            }
            let runs =
                context.running.is_some_and(|of| flushes.iter().any(|(space, _)| *space == of));
            if self.board.kind == Shootdowns::Lazy && !runs {
                let held = flushes.iter().map(|(space, _)| *space);
                let held: Vec<_> = held.filter(|space| context.holds.contains(space)).collect();
                context.stale.extend(held);
            } else {
                others.push(cpu);
            }
        }
        state.counts.sent += 1;
        spend_on_shootdowns(costs.shoot);
        let mut answer = costs.answer;
        if self.board.virtual_caches {
            let (pages, spaces) = cached(flushes);
            let holders = 1 + others.len() as u64;
            state.counts.cache_pages += pages * holders;
            state.counts.cache_spaces += spaces * holders;
            let flush = costs.cache_page * (pages + spaces * CACHE_PAGES);
            spend_on_shootdowns(flush);
            answer += flush;
        }
        if others.is_empty() {
            return;
        }
        let wait = costs.shoot_each * others.len() as u64 + answer;
        match self.board.kind {
            Shootdowns::Interrupts | Shootdowns::Lazy => {
                state.counts.interrupts += others.len() as u64;
                state.counts.wait_cycles += wait;
                drop(state);
                interrupt(others.iter().copied(), answer);
                spend_on_shootdowns(wait);
            }
            Shootdowns::Broadcast => drop(state),
        }
        // The processors answer one after the other. Between two answers, other processors may run.
        for cpu in others {
            pass();
            forget(&mut self.board.lock().cpus[cpu].tlb, flushes);
        }
        pass();
    }

    fn frames(&mut self) -> &mut dyn Frames {
        self
    }

    fn work(&mut self, step: Step, count: u64) {
        spend(costs().of(step) * count);
    }
}

/// The platform of the memory manager, which has its own frames.
impl vm::Platform for Cpu<'_> {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        Platform::shoot(self, flushes);
    }

    fn zero(&mut self, _: PhysAddr, bytes: u64) {
        spend(costs().zero * (bytes >> PAGE_BITS));
    }

    fn copy(&mut self, _: PhysAddr, _: PhysAddr, bytes: u64) {
        spend(costs().copy * (bytes >> PAGE_BITS));
    }

    fn transfer(&mut self, _: Io) {
        spend(costs().disk);
    }

    fn work(&mut self, step: vm::Step, count: u64) {
        spend(costs().of_vm(step) * count);
    }
}

/// log2 of the page size to which prices of pages refer.
const PAGE_BITS: u32 = 12;

impl Processor for Cpu<'_> {
    fn enter<S: Scheme<Table = dyn Mounted>>(
        &mut self,
        hat: &Hat<dyn Mounted, S>,
        space: HatSpace,
    ) -> Result<(), String> {
        let board = self.board;
        // From here on, no other space gets the context of this space.
        board.enter(self.number, space);
        hat.enter(space, &|space| board.runs(space), self).map(|_| ()).map_err(text)
    }
}

impl Frames for Cpu<'_> {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        pass();
        let mut state = self.board.lock();
        let left = state.free_frames.checked_sub(1).ok_or(OutOfFrames { size, free_bytes: 0 });
        state.free_frames = left?;
        // A gap is left before each frame, so that no two frames are adjacent by accident.
        let frame = PhysAddr::new((state.next + 2 * size.bytes()) & !size.mask());
        state.next = frame.get() + size.bytes();
        state.out.insert(frame);
        Ok(frame)
    }

    fn free(&mut self, frame: PhysAddr, _: PageSize) {
        let mut state = self.board.lock();
        assert!(state.out.remove(&frame), "{frame} is freed twice");
        state.free_frames += 1;
    }
}

/// The number of 4 KiB pages in a SuperSPARC's data cache of 16 KiB.
const CACHE_PAGES: u64 = 4;

fn spend_on_shootdowns(cycles: u64) {
    spend_on(cycles, |time| &mut time.shootdown_cycles);
}

/// The numbers of pages and of whole spaces that `flushes` drops from caches.
fn cached(flushes: &[(HatSpace, Flush)]) -> (u64, u64) {
    flushes.iter().fold((0, 0), |(pages, spaces), (_, flush)| match flush.scope() {
        Scope::Nothing => (pages, spaces),
        Scope::Pages { pages: more, .. } => (pages + more, spaces),
        Scope::Space => (pages, spaces + 1),
    })
}

/// Drops the entries that `flushes` names from a TLB.
fn forget(tlb: &mut Tlb, flushes: &[(HatSpace, Flush)]) {
    for (space, flush) in flushes {
        tlb.retain(|&(of, start), entry| {
            let page = VirtAddr::new(start).page(entry.translation.page.size());
            of != *space || !flush.scope().covers(page)
        });
    }
}
