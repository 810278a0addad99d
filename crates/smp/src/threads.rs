//! Runs a load on threads of this host and measures the time.
//!
//! ```text
//!   Free     thread 0  =op=op=op=op=          InTurn    thread 0  =op=    =op=    =op=
//!            thread 1  =op=op=op=op=                    thread 1      =op=    =op=    =op=
//! ```
//!
//! All threads work on one layer, or each thread on a layer of its own. When threads take turns, no
//! thread waits for a lock, but another thread has written the cache lines that the running thread
//! uses. The cost of these lines is the time of an operation minus its time on a single thread.

use std::{
    collections::BTreeMap,
    hint::spin_loop,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use addr::{Frames, OutOfFrames, PageSize, PhysAddr};
use hat::{
    Hat, HatSpace, Platform, Pool,
    locking::{Global, ListLocks, Locks, Scheme, Single},
};
use pagetable::{Flush, Mounted};
use vm::Io;

use locks::{
    Native,
    costs::Costs,
    watched::{Watch, Watched, watched},
};

use crate::{
    load::{Asked, Processor, Work},
    plan::HostPlan,
    run::{OnScheme, tables, with_any_scheme, with_scheme},
    spaces::Spaces,
    world::World,
};

/// The duration of each measurement.
const MEASURED: Duration = Duration::from_millis(40);

/// The number of operations between two reads of the clock, and before the first read.
const BATCH: u64 = 32;

/// The number of operations that are timed together if threads take turns. It is a multiple of the
/// number of operations after which loads repeat.
const TURNS_BATCH: u64 = 64;

/// The least number of batches if threads take turns. The first batch is not counted.
const TURNS_BATCHES_MIN: usize = 4;

/// How threads run together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// All threads run at the same time.
    Free,
    /// The threads run in turn, one operation each. Only the operation is timed, not the waiting
    /// for the other threads.
    InTurn,
}

/// Nanoseconds per operation of each of `threads`, on `layers` layers: one layer for all threads,
/// or one for each thread.
pub(crate) fn measure(
    plan: &HostPlan,
    asked: &Asked,
    (layers, threads): (usize, usize),
    pace: Pace,
) -> Result<f64, String> {
    let work = OnHost { plan, asked, layers, threads, pace };
    with_scheme::<Native, _>(&plan.scheme, Pool::unlimited(), ListLocks::One, work)?
}

/// Nanoseconds per operation of one thread, on a layer without locks.
pub(crate) fn measure_single(plan: &HostPlan, asked: &Asked) -> Result<f64, String> {
    let scheme = Global::<_, Single>::new(Pool::unlimited());
    let layer = Layer::<_, Single>::new(plan, asked, scheme)?;
    let spaces = layer.spaces(1)?;
    layer.free(0, spaces[0], &Barrier::new(1))
}

/// By class of locks: the number of acquisitions by one thread, during the number of operations
/// that a processor does in virtual time.
pub(crate) fn acquisitions(
    plan: &HostPlan,
    asked: &Asked,
) -> Result<BTreeMap<&'static str, u64>, String> {
    let seen = watch(plan, asked, 0, asked.load.operations())?;
    let mut by_name = BTreeMap::new();
    for (class, count) in seen.taken {
        if let Some(class) = class {
            *by_name.entry(class.name()).or_insert(0) += count;
        }
    }
    Ok(by_name)
}

/// Observes `operations` operations of one thread, after `before` operations that are not observed.
pub(crate) fn watch(
    plan: &HostPlan,
    asked: &Asked,
    before: u64,
    operations: u64,
) -> Result<Watch, String> {
    let work = Watching { plan, asked, before, operations };
    with_any_scheme::<Watched<Native>, _>(&plan.scheme, Pool::unlimited(), ListLocks::One, work)?
}

/// A load of threads on `layers` HAT layers under one locking scheme.
struct OnHost<'a> {
    plan: &'a HostPlan,
    asked: &'a Asked,
    layers: usize,
    threads: usize,
    pace: Pace,
}

impl OnScheme for OnHost<'_> {
    type Result = Result<f64, String>;

    fn on<S: Scheme<Table = dyn Mounted> + Send + Sync>(self, scheme: S) -> Result<f64, String> {
        let OnHost { plan, asked, layers, threads, pace } = self;
        let start = Barrier::new(threads);
        let first = Layer::<S, Native>::new(plan, asked, scheme)?;
        if layers == 1 {
            let all = first.spaces(threads)?;
            let turns = Turns::new(threads);
            return mean(threads, |number| match pace {
                Pace::Free => first.free(number, all[number], &start),
                Pace::InTurn => first.in_turn(number, all[number], &turns),
            });
        }
        mean(threads, |number| {
            if number == 0 {
                return first.free(0, first.spaces(1)?[0], &start);
            }
            let work = Other { plan, asked, number, start: &start };
            with_scheme::<Native, _>(&plan.scheme, Pool::unlimited(), ListLocks::One, work)?
        })
    }
}

/// A thread on its own layer, which runs at the same time as other threads.
struct Other<'a> {
    plan: &'a HostPlan,
    asked: &'a Asked,
    number: usize,
    start: &'a Barrier,
}

impl OnScheme for Other<'_> {
    type Result = Result<f64, String>;

    fn on<S: Scheme<Table = dyn Mounted> + Send + Sync>(self, scheme: S) -> Result<f64, String> {
        let layer = Layer::<S, Native>::new(self.plan, self.asked, scheme)?;
        let spaces = layer.spaces(1)?;
        layer.free(self.number, spaces[0], self.start)
    }
}

/// Operations of one thread under observation.
struct Watching<'a> {
    plan: &'a HostPlan,
    asked: &'a Asked,
    before: u64,
    operations: u64,
}

impl OnScheme for Watching<'_> {
    type Result = Result<Watch, String>;

    fn on<S: Scheme<Table = dyn Mounted> + Send + Sync>(self, scheme: S) -> Self::Result {
        let layer = Layer::<S, Watched<Native>>::new(self.plan, self.asked, scheme)?;
        let spaces = layer.spaces(1)?;
        let mut quiet = layer.quiet();
        watched();
        let mut runner = layer.runner(&mut quiet, 0, spaces[0])?;
        if self.before > 0 {
            (0..self.before).try_for_each(|_| runner.operation(self.asked.load))?;
            watched();
        }
        (0..self.operations).try_for_each(|_| runner.operation(self.asked.load))?;
        drop(runner);
        Ok(watched())
    }
}

/// Runs `f` on each thread. Returns the mean of the results.
fn mean(threads: usize, f: impl Fn(usize) -> Result<f64, String> + Sync) -> Result<f64, String> {
    let measured: Vec<Result<f64, String>> = thread::scope(|scope| {
        let f = &f;
        let all: Vec<_> = (0..threads).map(|number| scope.spawn(move || f(number))).collect();
        let joined = all.into_iter().map(|thread| thread.join());
        joined.map(|done| done.unwrap_or_else(|_| Err("a thread failed".to_owned()))).collect()
    });
    let sum = measured.into_iter().sum::<Result<f64, String>>()?;
    Ok(sum / threads as f64)
}

/// The layer that threads work on.
struct Layer<'a, S, L: Locks> {
    plan: &'a HostPlan,
    asked: &'a Asked,
    world: World<S, L>,
    /// The end of the highest page-table frame that was allocated so far. Frames are allocated in
    /// ascending order, since the memory of a table has an array up to its highest frame.
    frames: Arc<AtomicU64>,
}

impl<'a, S: Scheme<Table = dyn Mounted>, L: Locks> Layer<'a, S, L> {
    fn new(plan: &'a HostPlan, asked: &'a Asked, scheme: S) -> Result<Layer<'a, S, L>, String> {
        let world = World::new(scheme, tables(&plan.table, &plan.scheme)?, plan.hat_only)?;
        Ok(Layer { plan, asked, world, frames: Arc::default() })
    }

    fn quiet(&self) -> Quiet {
        Quiet { next: Arc::clone(&self.frames), free: Vec::new() }
    }

    /// Makes the spaces of each thread.
    fn spaces(&self, threads: usize) -> Result<Vec<Spaces>, String> {
        let mut quiet = self.quiet();
        let shared = self.world.shared(self.asked, &mut quiet)?;
        (0..threads).map(|_| self.world.spaces(self.asked, shared, &mut quiet)).collect()
    }

    fn runner<'b>(
        &'b self,
        quiet: &'b mut Quiet,
        number: usize,
        spaces: Spaces,
    ) -> Result<Box<dyn Work + 'b>, String> {
        let of = (number as u64, spaces);
        self.world.processor(quiet, of, (self.plan.seed, Costs::FREE), self.asked)
    }

    /// Nanoseconds per operation of the thread `number`, while the other threads run.
    fn free(&self, number: usize, spaces: Spaces, start: &Barrier) -> Result<f64, String> {
        let mut quiet = self.quiet();
        let load = self.asked.load;
        let warmed = self.runner(&mut quiet, number, spaces).and_then(|mut runner| {
            (0..BATCH).try_for_each(|_| runner.operation(load)).map(|()| runner)
        });
        start.wait();
        let mut runner = warmed?;
        let (began, mut operations) = (Instant::now(), 0);
        while began.elapsed() < MEASURED {
            for _ in 0..BATCH {
                runner.operation(load)?;
            }
            operations += BATCH;
        }
        Ok(began.elapsed().as_nanos() as f64 / operations as f64)
    }

    /// Nanoseconds per operation of the thread `number`, if threads do one operation each in turn.
    fn in_turn(&self, number: usize, spaces: Spaces, turns: &Turns) -> Result<f64, String> {
        let mut quiet = self.quiet();
        let load = self.asked.load;
        let mut runner = turns.stopping(self.runner(&mut quiet, number, spaces))?;
        let (mut all, mut batch, mut operations) = (Duration::ZERO, Duration::ZERO, 0);
        let mut batches = Vec::new();
        while turns.wait(number) {
            let began = Instant::now();
            turns.stopping(runner.operation(load))?;
            batch += began.elapsed();
            operations += 1;
            if operations == TURNS_BATCH {
                all += batch;
                batches.push(batch.as_nanos() as f64 / TURNS_BATCH as f64);
                (batch, operations) = (Duration::ZERO, 0);
            }
            let is_over =
                batches.len() >= TURNS_BATCHES_MIN && all * turns.threads as u32 >= MEASURED;
            turns.pass(is_over);
        }
        // The first batch finds cold caches.
        Ok(median(batches.into_iter().skip(1)))
    }
}

/// Which thread's turn it is.
struct Turns {
    threads: usize,
    /// The number of operations that have ended; [`Turns::STOP`] if no thread is to continue.
    ended: AtomicUsize,
}

impl Turns {
    const STOP: usize = usize::MAX;

    fn new(threads: usize) -> Turns {
        Turns { threads, ended: AtomicUsize::new(0) }
    }

    /// Waits for this thread's turn. Returns whether the thread is to continue.
    fn wait(&self, number: usize) -> bool {
        loop {
            match self.ended.load(Ordering::Acquire) {
                Turns::STOP => return false,
                ended if ended % self.threads == number => return true,
                _ => spin_loop(),
            }
        }
    }

    /// Passes the turn to the next thread, or stops all threads if `is_over`.
    fn pass(&self, is_over: bool) {
        if is_over {
            self.ended.store(Turns::STOP, Ordering::Release);
        } else {
            self.ended.fetch_add(1, Ordering::Release);
        }
    }

    /// Passes `result` on; an error stops all threads.
    fn stopping<T>(&self, result: Result<T, String>) -> Result<T, String> {
        if result.is_err() {
            self.ended.store(Turns::STOP, Ordering::Release);
        }
        result
    }
}

/// A processor whose shootdowns cost nothing, with its own memory for page tables.
struct Quiet {
    /// The end of the highest frame that was allocated; the threads of a layer share this number.
    next: Arc<AtomicU64>,
    free: Vec<(PhysAddr, PageSize)>,
}

impl Platform for Quiet {
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}

    fn frames(&mut self) -> &mut dyn Frames {
        self
    }
}

impl vm::Platform for Quiet {
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}

    fn zero(&mut self, _: PhysAddr, _: u64) {}

    fn copy(&mut self, _: PhysAddr, _: PhysAddr, _: u64) {}

    fn transfer(&mut self, _: Io) {}
}

impl Processor for Quiet {
    fn enter<S: Scheme<Table = dyn Mounted>>(
        &mut self,
        _: &Hat<dyn Mounted, S>,
        _: HatSpace,
    ) -> Result<(), String> {
        Ok(())
    }
}

impl Frames for Quiet {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        if let Some(place) = self.free.iter().rposition(|&(_, of)| of == size) {
            return Ok(self.free.swap_remove(place).0);
        }
        // Twice the size always contains an aligned frame.
        let end = self.next.fetch_add(2 * size.bytes(), Ordering::Relaxed) + 2 * size.bytes();
        Ok(PhysAddr::new((end - size.bytes()) & !size.mask()))
    }

    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        self.free.push((frame, size));
    }
}

/// The median of the values; for an even number of values, the larger of the two in the middle. The
/// result is 0 if there are no values.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
