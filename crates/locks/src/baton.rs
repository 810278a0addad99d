//! Virtual processors, of which one runs at a time: it has the baton.
//!
//! ```text
//!   processor 0  =====L-----------------------R==        = runs   L, R: takes, gives back a lock
//!   processor 1       ==L.................(busy)..R=     . waits
//!   processor 2  -----------====S---------------=        S shootdown
//! ```
//!
//! Each is a thread of the host with a clock of its own. Between two points where it could meet
//! another (locks, sleeps, shootdowns, the pool) it only adds to its clock. At such a point the baton
//! goes to the processor whose clock is least. So that whatever happens between processors happens
//! in the order of virtual time, and equally each time. With a seed the baton goes to any processor
//! that can run: then the same code explores schedules, each of which comes again with its seed.

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

/// The most processors that a run can have: each is a thread of the host.
pub const CPUS_MAX: usize = 128;

/// Who has the baton, and who wants it.
pub struct Baton {
    state: Mutex<State>,
    turns: Vec<Condvar>,
    /// Prices.
    pub costs: Costs,
    /// What a waiting processor does.
    pub kind: LockKind,
    /// How fast work goes where, if that was measured.
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
    /// Cycles that others' interrupts took.
    interrupted: u64,
    status: Status,
    /// It was woken before it slept.
    is_woken: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Status {
    #[default]
    Runnable,
    Blocked,
    Done,
}

/// What a run of the processors has come to.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Cycles of each processor's clock when it ended.
    pub clocks: Vec<u64>,
    /// By class.
    pub locks: LockCounts,
    /// Where the cycles of all have gone.
    pub time: TimeUse,
    /// How often the baton could have been passed.
    pub passes: u64,
    /// Where the work of all was done.
    pub work: WorkIn,
}

/// What a processor has counted.
type Done = (LockCounts, TimeUse, WorkIn);

/// A processor, as the thread that runs it sees it.
pub struct Me {
    /// What all of them pass on.
    pub baton: Arc<Baton>,
    /// Its number.
    pub cpu: usize,
    /// Cycles since the clock was last told.
    pending: u64,
    locks: LockCounts,
    time: TimeUse,
    work: WorkIn,
    /// Since when it has which.
    holds: Vec<(Class, u64)>,
    /// Cycles that an operation can still take for lines that locks guard.
    guarded_left: u64,
    /// How long work takes.
    random: Xoshiro256PlusPlus,
}

impl Me {
    /// What work takes that takes `mean` cycles at the mean: anything up to twice that. Without it, processors that
    /// do the same keep out of each other's way after their first meeting. Holds of locks that enter a page
    /// were seen to vary by 0.1 to 0.9 of their mean (standard deviation); this is 0.58.
    fn around(&mut self, mean: u64) -> u64 {
        self.random.random_range(0..=2 * mean)
    }

    /// What it takes to fetch the lines that a lock guards, as far as an operation has not fetched all of its own.
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

    /// Time of a lock's hold, or before it, that no step of work stands for.
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
    /// For `cpus` processors; with a `seed`, in a random order.
    pub fn new(cpus: usize, costs: Costs, kind: LockKind, seed: Option<u64>) -> Arc<Baton> {
        Baton::paced(cpus, costs, kind, seed, None)
    }

    /// For `cpus` processors, with a random order if there is a `seed`. If there are `paces`, work takes as
    /// long as they say.
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

    /// Gives up after so many passes: processors that wait for each other without sleeping would
    /// go on for ever.
    pub fn limit(&self, passes_max: u64) {
        self.lock().passes_max = passes_max;
    }

    /// Runs `work` on every processor, with its number, to the end. An error is the first panic, or
    /// that all sleep.
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
                    state.fail("the processors that are left all sleep".to_owned());
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
        // Who is on its way out already may take locks there.
        if state.failed.is_some() && !thread::panicking() {
            drop(state);
            panic!("another processor has failed");
        }
        state
    }

    /// Gives the baton to whom it is due, and comes back when this processor has it again.
    fn hand_over<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        cpu: usize,
    ) -> MutexGuard<'a, State> {
        state.passes += 1;
        if state.passes > state.passes_max {
            state.fail("the processors do not come to an end".to_owned());
        }
        match state.choose() {
            Some(next) if next == cpu => {}
            Some(next) => {
                state.running = next;
                self.turns[next].notify_one();
            }
            None => state.fail("every processor sleeps".to_owned()),
        }
        if state.failed.is_some() {
            self.turns.iter().for_each(Condvar::notify_one);
        }
        self.wait_for_turn(state, cpu)
    }
}

impl State {
    /// The processor that runs next, of those that can.
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

    /// The first failure counts.
    fn fail(&mut self, what: String) {
        self.failed.get_or_insert(what);
    }
}

/// Runs `f` on the processor of this thread, if it is one.
pub fn with_me<R>(f: impl FnOnce(&mut Me) -> R) -> Option<R> {
    ME.with_borrow_mut(|me| me.as_mut().map(f))
}

fn baton() -> Option<(Arc<Baton>, usize, u64)> {
    with_me(|me| (Arc::clone(&me.baton), me.cpu, std::mem::take(&mut me.pending)))
}

/// The processor of this thread does `cycles` of work.
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

/// An operation of a load begins on the processor of this thread.
pub fn begin_operation() {
    with_me(|me| me.guarded_left = me.baton.costs.guarded_operation);
}

/// It spends `cycles` on what `part` says.
pub fn spend_on(cycles: u64, part: fn(&mut TimeUse) -> &mut u64) {
    with_me(|me| {
        me.pending += cycles;
        *part(&mut me.time) += cycles;
    });
}

/// A point where another processor could come first.
pub fn pass() {
    let Some((baton, cpu, pending)) = baton() else { return };
    let mut state = baton.lock();
    state.cpus[cpu].clock += pending;
    drop(baton.hand_over(state, cpu));
}

/// Sleeps until it is woken; says for how many cycles.
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

/// Wakes `cpu`, which runs on `cycles` after now at the earliest.
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

/// What the clock of this thread's processor shows; 0 if it is none.
pub fn now() -> u64 {
    let Some((baton, cpu, pending)) = baton() else { return 0 };
    let mut state = baton.lock();
    state.cpus[cpu].clock += pending;
    state.cpus[cpu].clock
}

/// The number of this thread's processor, if it is one.
pub fn cpu() -> Option<usize> {
    with_me(|me| me.cpu)
}

/// Counts for `class`.
pub(crate) fn count(class: Class, f: impl FnOnce(&mut ClassCounts)) {
    with_me(|me| f(me.locks.entry(class).or_default()));
}

/// A lock is asked for.
pub(crate) fn before_hold() {
    with_me(|me| {
        if me.holds.is_empty() {
            me.more(None);
        }
    });
}

/// A lock of `class` is held from now on.
pub(crate) fn begin_hold(class: Class) {
    let at = now();
    with_me(|me| {
        me.holds.push((class, at));
        me.more(Some(class));
    });
}

/// The lock of `class` that was taken last is held no more.
pub(crate) fn end_hold(class: Class) {
    let at = now();
    with_me(|me| {
        if let Some(place) = me.holds.iter().rposition(|(of, _)| *of == class) {
            let (_, since) = me.holds.remove(place);
            me.locks.entry(class).or_default().holds.add(at - since);
        }
    });
}
