//! Virtual processors, one of which runs at a time: the processor that has the baton.
//!
//! ```text
//!   processor 0  =====L-----------------------R==        = runs   L, R: takes, gives back a lock
//!   processor 1       ==L.................(busy)..R=     . waits
//!   processor 2  -----------====S---------------=        S shootdown
//! ```
//!
//! Each virtual processor is a thread of the host with a clock of its own. Between two points at
//! which a processor could interact with another one (locks, sleeps, shootdowns, the pool), the
//! processor only advances its clock. At such a point the baton is passed to the processor whose
//! clock shows the least time. Interactions between processors therefore happen in the order of
//! virtual time, and in the same way in every run. With a seed, the baton is passed to a random
//! processor that can run: this explores schedules, each of which is repeated by the same seed.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use hat::locking::Class;

use crate::{
    costs::{Costs, LockKind, Paces},
    stats::{ClassCounts, LockCounts, TimeUse, WorkIn},
};

/// The largest number of processors in a run: each is a thread of the host.
pub const CPUS_MAX: usize = 128;

/// The baton, with the state of each processor: which processor has the baton, and which processors
/// can get it.
pub struct Baton {
    state: Mutex<State>,
    turns: Vec<Condvar>,
    /// The prices of work.
    pub costs: Costs,
    /// What a processor does while it waits for a lock.
    pub kind: LockKind,
    /// The measured duration of work by place, if it was measured.
    paces: Option<Paces>,
}

struct State {
    cpus: Vec<Cpu>,
    running: usize,
    random: Option<Xoshiro256PlusPlus>,
    passes: u64,
    passes_max: u64,
    failed: Option<String>,
}

#[derive(Clone, Copy, Default)]
struct Cpu {
    clock: u64,
    /// Cycles that this processor spent on interrupts from other processors.
    interrupted: u64,
    status: Status,
    /// Whether the processor was woken before it slept.
    is_woken: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Status {
    #[default]
    Runnable,
    Blocked,
    Done,
}

/// The result of a run of the virtual processors.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The cycles on each processor's clock when it ended.
    pub clocks: Vec<u64>,
    /// Counts of locks by class.
    pub locks: LockCounts,
    /// How the cycles of all processors were used.
    pub time: TimeUse,
    /// The number of points at which the baton could be passed.
    pub passes: u64,
    /// The work of all processors, by the lock under which it was done.
    pub work: WorkIn,
}

/// The counts of one processor.
type Done = (LockCounts, TimeUse, WorkIn);

/// A processor, from the view of the thread that runs it.
pub struct Me {
    /// The baton of all processors.
    pub baton: Arc<Baton>,
    /// The number of the processor.
    pub cpu: usize,
    /// Cycles that have not been added to the clock yet.
    pending: u64,
    locks: LockCounts,
    time: TimeUse,
    work: WorkIn,
    /// The locks that the processor holds, each with the time when it was taken.
    holds: Vec<(Class, u64)>,
    /// The cycles that the current operation can still spend on cache lines that locks guard.
    guarded_left: u64,
    /// The source of random durations of work.
    random: Xoshiro256PlusPlus,
}

impl Me {
    /// The duration of work that takes `mean` cycles on average: a random value up to twice that.
    /// With constant durations, processors that repeat one operation would run in step and never
    /// meet at a lock again after their first collision. The standard deviation of the time that
    /// locks are held while a page is inserted was measured as 0.1 to 0.9 of the mean; here it is
    /// 0.58.
    fn around(&mut self, mean: u64) -> u64 {
        self.random.random_range(0..=2 * mean)
    }

    /// The cycles to fetch the cache lines that a lock guards, up to what is left of the limit for
    /// one operation.
    pub(crate) fn guarded(&mut self) -> u64 {
        let cycles = self.guarded_left.min(self.baton.costs.guarded);
        self.guarded_left -= cycles;
        cycles
    }

    fn work(&mut self, place: Option<Class>, cycles: u64) {
        self.pending += cycles;
        self.time.work_cycles += cycles;
        *self.work.entry(place).or_insert(0) += cycles;
    }

    /// Adds the measured time that no step of work accounts for. With a class, the time is part of
    /// a hold of its lock; without a class, it precedes a lock.
    fn more(&mut self, place: Option<Class>) {
        if let Some(mean) = self.baton.paces.as_ref().map(|paces| paces.more(place)) {
            let cycles = self.around(mean);
            self.work(place, cycles);
        }
    }
}

thread_local! {
    static ME: RefCell<Option<Me>> = const { RefCell::new(None) };
}

impl Baton {
    /// A baton for `cpus` processors; with a `seed`, in a random order.
    pub fn new(cpus: usize, costs: Costs, kind: LockKind, seed: Option<u64>) -> Arc<Baton> {
        Baton::paced(cpus, costs, kind, seed, None)
    }

    /// A baton for `cpus` processors, in a random order if there is a `seed`. If there are `paces`, they
    /// determine the duration of work.
    pub fn paced(
        cpus: usize,
        costs: Costs,
        kind: LockKind,
        seed: Option<u64>,
        paces: Option<Paces>,
    ) -> Arc<Baton> {
        let state = State {
            cpus: vec![Cpu::default(); cpus],
            running: 0,
            random: seed.map(Xoshiro256PlusPlus::seed_from_u64),
            passes: 0,
            passes_max: u64::MAX,
            failed: None,
        };
        let turns = (0..cpus).map(|_| Condvar::new()).collect();
        Arc::new(Baton { state: Mutex::new(state), turns, costs, kind, paces })
    }

    /// Makes the run fail after this many passes: processors that wait for each other without
    /// sleeping would run forever.
    pub fn limit(&self, passes_max: u64) {
        self.lock().passes_max = passes_max;
    }

    /// Runs `work` with each processor's number on that processor, until all have ended. The error
    /// is the first panic, or that all processors sleep.
    pub fn run(self: &Arc<Baton>, work: impl Fn(usize) + Sync) -> Result<Finished, String> {
        let count = self.turns.len();
        let first = self.lock().choose();
        self.lock().running = first.unwrap_or(0);
        let counts: Vec<Done> = thread::scope(|scope| {
            let threads: Vec<_> = (0..count)
                .map(|cpu| {
                    let work = &work;
                    scope.spawn(move || self.one(cpu, work))
                })
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|counts| counts.unwrap_or_default()).collect()
        });
        let state = self.lock();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        let mut locks = LockCounts::new();
        let mut time = TimeUse::default();
        let mut work = WorkIn::new();
        for (of, spent, done) in &counts {
            time += spent;
            for (class, cycles) in done {
                *work.entry(*class).or_insert(0) += cycles;
            }
            for (class, counts) in of {
                *locks.entry(*class).or_default() += counts;
            }
        }
        let clocks: Vec<u64> = state.cpus.iter().map(|cpu| cpu.clock).collect();
        let end = clocks.iter().copied().max().unwrap_or(0);
        time.ended_cycles = clocks.iter().map(|clock| end - clock).sum();
        time.interrupt_cycles = state.cpus.iter().map(|cpu| cpu.interrupted).sum();
        Ok(Finished { clocks, locks, time, passes: state.passes, work })
    }

    fn one(self: &Arc<Baton>, cpu: usize, work: &(impl Fn(usize) + Sync)) -> Done {
        let done = catch_unwind(AssertUnwindSafe(|| {
            drop(self.wait_for_turn(self.lock(), cpu));
            let baton = Arc::clone(self);
            ME.set(Some(Me {
                baton,
                cpu,
                pending: 0,
                locks: LockCounts::new(),
                time: TimeUse::default(),
                work: WorkIn::new(),
                holds: Vec::new(),
                guarded_left: 0,
                random: Xoshiro256PlusPlus::seed_from_u64(cpu as u64),
            }));
            work(cpu);
            pass();
        }));
        let me = ME.take();
        let mut state = self.lock();
        state.cpus[cpu].status = Status::Done;
        match done {
            Ok(()) => {
                if let Some(next) = state.choose() {
                    state.running = next;
                    self.turns[next].notify_one();
                } else if state.cpus.iter().any(|cpu| cpu.status == Status::Blocked) {
                    state.fail("all processors that have not ended sleep".to_owned());
                }
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.into()));
                state.fail(text.unwrap_or_default());
            }
        }
        if state.failed.is_some() {
            self.turns.iter().for_each(Condvar::notify_one);
        }
        me.map(|me| (me.locks, me.time, me.work)).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_turn<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        cpu: usize,
    ) -> MutexGuard<'a, State> {
        while state.running != cpu && state.failed.is_none() {
            state = self.turns[cpu].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        // A processor that is already unwinding a panic may still take locks.
        if state.failed.is_some() && !thread::panicking() {
            drop(state);
            panic!("another processor has failed");
        }
        state
    }

    /// Passes the baton to the processor that is due, and returns when this processor has the baton
    /// again.
    fn hand_over<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        cpu: usize,
    ) -> MutexGuard<'a, State> {
        state.passes += 1;
        if state.passes > state.passes_max {
            state
                .fail("the processors do not end: they have passed the baton too often".to_owned());
        }
        match state.choose() {
            Some(next) if next == cpu => {}
            Some(next) => {
                state.running = next;
                self.turns[next].notify_one();
            }
            None => state
                .fail("deadlock: all processors sleep, so that none can wake another".to_owned()),
        }
        if state.failed.is_some() {
            self.turns.iter().for_each(Condvar::notify_one);
        }
        self.wait_for_turn(state, cpu)
    }
}

impl State {
    /// The processor that runs next, out of those that can run.
    fn choose(&mut self) -> Option<usize> {
        let can = |cpu: &Cpu| cpu.status == Status::Runnable;
        match &mut self.random {
            Some(random) => {
                let count = self.cpus.iter().filter(|cpu| can(cpu)).count();
                let nth = random.random_range(0..count.max(1));
                let mut all = self.cpus.iter().enumerate().filter(|(_, cpu)| can(cpu));
                all.nth(nth).map(|(number, _)| number)
            }
            None => {
                let all = self.cpus.iter().enumerate().filter(|(_, cpu)| can(cpu));
                all.min_by_key(|(_, cpu)| cpu.clock).map(|(number, _)| number)
            }
        }
    }

    /// Records a failure; only the first failure is kept.
    fn fail(&mut self, what: String) {
        self.failed.get_or_insert(what);
    }
}

/// Runs `f` with the virtual processor of this thread, if the thread is a virtual processor.
pub fn with_me<R>(f: impl FnOnce(&mut Me) -> R) -> Option<R> {
    ME.with_borrow_mut(|me| me.as_mut().map(f))
}

fn baton() -> Option<(Arc<Baton>, usize, u64)> {
    with_me(|me| (Arc::clone(&me.baton), me.cpu, std::mem::take(&mut me.pending)))
}

/// Spends `cycles` of work on this thread's processor.
pub fn spend(cycles: u64) {
    with_me(|me| {
        let place = me.holds.last().map(|(class, _)| *class);
        let cycles = match &me.baton.paces {
            Some(paces) => {
                let mean = paces.of(place, cycles);
                me.around(mean)
            }
            None => cycles,
        };
        me.work(place, cycles);
    });
}

/// Begins an operation of a load on this thread's processor.
pub fn begin_operation() {
    with_me(|me| me.guarded_left = me.baton.costs.guarded_operation);
}

/// Spends `cycles`, counted in the part of [`TimeUse`] that `part` selects.
pub fn spend_on(cycles: u64, part: fn(&mut TimeUse) -> &mut u64) {
    with_me(|me| {
        me.pending += cycles;
        *part(&mut me.time) += cycles;
    });
}

/// A point at which the baton may be passed to another processor.
pub fn pass() {
    let Some((baton, cpu, pending)) = baton() else { return };
    let mut state = baton.lock();
    state.cpus[cpu].clock += pending;
    drop(baton.hand_over(state, cpu));
}

/// Sleeps until another processor wakes this one. Returns the duration of the sleep in cycles.
pub(crate) fn sleep() -> u64 {
    let Some((baton, cpu, pending)) = baton() else { return 0 };
    let mut state = baton.lock();
    state.cpus[cpu].clock += pending;
    let before = state.cpus[cpu];
    if !before.is_woken {
        state.cpus[cpu].status = Status::Blocked;
        state = baton.hand_over(state, cpu);
    }
    state.cpus[cpu].is_woken = false;
    let after = state.cpus[cpu];
    drop(state);
    let slept = after.clock - before.clock;
    with_me(|me| me.time.wait_cycles += slept - (after.interrupted - before.interrupted));
    slept
}

/// Wakes `cpu`, which continues `cycles` from now at the earliest.
pub(crate) fn wake(cpu: usize, cycles: u64) {
    let Some((baton, me, pending)) = baton() else { return };
    let mut state = baton.lock();
    state.cpus[me].clock += pending;
    let at = state.cpus[me].clock + cycles;
    let woken = &mut state.cpus[cpu];
    woken.is_woken = true;
    woken.status = Status::Runnable;
    woken.clock = woken.clock.max(at);
}

/// Interrupts other processors for `cycles` each.
pub fn interrupt(cpus: impl Iterator<Item = usize>, cycles: u64) {
    let Some((baton, me, pending)) = baton() else { return };
    let mut state = baton.lock();
    state.cpus[me].clock += pending;
    for cpu in cpus {
        if state.cpus[cpu].status != Status::Done {
            state.cpus[cpu].clock += cycles;
            state.cpus[cpu].interrupted += cycles;
        }
    }
}

/// The clock of this thread's virtual processor; 0 if the thread is not a virtual processor.
pub fn now() -> u64 {
    let Some((baton, cpu, pending)) = baton() else { return 0 };
    let mut state = baton.lock();
    state.cpus[cpu].clock += pending;
    state.cpus[cpu].clock
}

/// The number of this thread's virtual processor, if the thread is one.
pub fn cpu() -> Option<usize> {
    with_me(|me| me.cpu)
}

/// Updates the counts for `class`.
pub(crate) fn count(class: Class, f: impl FnOnce(&mut ClassCounts)) {
    with_me(|me| f(me.locks.entry(class).or_default()));
}

/// Called when a lock is requested.
pub(crate) fn before_hold() {
    with_me(|me| {
        if me.holds.is_empty() {
            me.more(None);
        }
    });
}

/// Called when a lock of `class` has been taken.
pub(crate) fn begin_hold(class: Class) {
    let at = now();
    with_me(|me| {
        me.holds.push((class, at));
        me.more(Some(class));
    });
}

/// Called when the lock of `class` that was taken last is released.
pub(crate) fn end_hold(class: Class) {
    let at = now();
    with_me(|me| {
        if let Some(place) = me.holds.iter().rposition(|(of, _)| *of == class) {
            let (_, since) = me.holds.remove(place);
            me.locks.entry(class).or_default().holds.add(at - since);
        }
    });
}
