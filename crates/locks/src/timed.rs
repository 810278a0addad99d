//! Locks of virtual processors ([`crate::baton`]).
//!
//! A lock that is released goes to the processor that has waited longest. The cost of a wait
//! depends on the kind ([`LockKind`]): after spinning, a cache line is fetched; after sleeping,
//! threads are switched. A processor spins as long as a lock's holder runs, and a virtual holder
//! always runs unless it sleeps on another lock.
//!
//! With [`LockKind::Barging`], a free lock is taken by the first processor that tries, and readers
//! write to cache lines of their own ([`crate::biased`]):
//!
//! ```text
//!   holder    [==== lock held ====RRR]                R  fetches the line back, once for each try
//!   spinner      t     t     t     t     t H[=====    t  tries: takes the line   H  has seen it free
//! ```

use std::{
    collections::VecDeque,
    sync::{Mutex as StdMutex, MutexGuard, PoisonError},
};

use hat::locking::{Class, Locks, Mutex, Rw, Site, Wait};

use crate::{
    baton::{
        Me, before_hold, begin_hold, count, cpu, end_hold, now, pass, sleep, spend_on, wake,
        with_me,
    },
    costs::LockKind,
    native::NativeOnce,
};

/// The platform of virtual processors. On other threads, such as one that prepares a test or a
/// load, locks are always free and cost nothing.
#[derive(Debug)]
pub enum Timed {}

impl Locks for Timed {
    type Mutex<T: Send> = TimedMutex<T>;
    type Row<T: Send> = Box<[TimedMutex<T>]>;
    type Rw<T> = TimedRw<T>;
    type Wait = TimedWait;
    type Once<T> = NativeOnce<T>;

    fn acquired(of: Class, _: Site, was_busy: bool) {
        count(of, |counts| {
            counts.acquisitions += 1;
            counts.contended += u64::from(was_busy);
        });
        begin_hold(of);
    }

    fn acquired_too(of: Class, _: Site) {
        count(of, |counts| counts.acquisitions += 1);
        begin_hold(of);
    }

    /// The price of the mutex includes the cost of the first flag.
    fn flags(count: usize) {
        let price = with_me(|me| me.baton.costs.lock).unwrap_or(0);
        spend_on_locks(price * count.saturating_sub(1) as u64);
    }

    fn released(of: Class) {
        end_hold(of);
    }
}

/// The holders of a lock, and the processors that wait for it.
#[derive(Debug)]
struct Gate {
    class: Class,
    state: StdMutex<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    readers: usize,
    writer: bool,
    /// Waiting processors in order of arrival, each with its time of arrival and whether it is a
    /// writer.
    queue: VecDeque<(usize, u64, bool)>,
    /// The processor that last wrote the lock's cache line.
    last: Option<usize>,
}

impl Gate {
    fn new(class: Class) -> Gate {
        Gate { class, state: StdMutex::default() }
    }

    fn take(&self, writes: bool) {
        let Some(me) = cpu() else { return };
        let costs = with_me(|me| (me.baton.costs, me.baton.kind));
        let Some((costs, kind)) = costs else { return };
        before_hold();
        let mut waited = None;
        let is_far = loop {
            pass();
            let mut state = lock(&self.state);
            let is_first = state.queue.is_empty() || kind == LockKind::Barging;
            if is_first && state.is_free(writes) {
                state.grant(writes);
                break kind.writes_line(writes) && state.moves_to(me);
            }
            state.queue.push_back((me, now(), writes));
            drop(state);
            *waited.get_or_insert(0) += sleep();
            if kind != LockKind::Barging {
                // The processor that released the lock has handed it to this one.
                break lock(&self.state).moves_to(me);
            }
        };
        // A processor that has spun already has the lock's line, in which it saw that the lock is
        // free.
        let has_line = kind == LockKind::Barging && waited.is_some();
        let line = if has_line { 0 } else { costs.transfer };
        spend_on_locks(costs.lock);
        if is_far {
            spend_on_locks(line + with_me(Me::guarded).unwrap_or(0));
        }
        count(self.class, |counts| {
            counts.acquisitions += 1;
            counts.transfers += u64::from(is_far);
            if let Some(waited) = waited {
                counts.contended += 1;
                counts.waits.add(waited);
            }
        });
        begin_hold(self.class);
    }

    fn give_back(&self, writes: bool) {
        let costs = with_me(|me| (me.baton.costs, me.baton.kind));
        let Some((costs, kind)) = costs else { return };
        // A processor that tries to take the lock before this point of virtual time still finds it
        // held.
        pass();
        if kind == LockKind::Barging && writes {
            let fetched = lock(&self.state).tries(now(), costs.pause);
            spend_on_locks(fetched * costs.release);
            pass();
        }
        end_hold(self.class);
        let mut state = lock(&self.state);
        if writes {
            state.writer = false;
        } else {
            state.readers -= 1;
        }
        let delay = match kind {
            LockKind::Spin | LockKind::Adaptive => 0,
            LockKind::HandOver => costs.sleep,
            LockKind::Barging => {
                // All waiting processors see at their next attempt that the lock is free; the first
                // of them takes it.
                let waiting =
                    if state.is_free(true) { state.queue.split_off(0) } else { VecDeque::new() };
                drop(state);
                for (cpu, since, _) in waiting {
                    wake(cpu, costs.until_seen(since, now()));
                }
                spend_on_locks(costs.lock);
                return;
            }
        };
        while let Some(&(next, _, writes)) = state.queue.front() {
            if !state.is_free(writes) {
                break;
            }
            state.queue.pop_front();
            state.grant(writes);
            wake(next, delay);
        }
        drop(state);
        spend_on_locks(costs.lock);
    }
}

impl GateState {
    /// Moves the lock's cache line to `cpu`. Returns whether it comes from another processor.
    fn moves_to(&mut self, cpu: usize) -> bool {
        self.last.replace(cpu).is_some_and(|last| last != cpu)
    }

    /// How many times spinning processors have fetched the lock's line so far: once per attempt.
    fn tries(&self, now: u64, pause: u64) -> u64 {
        let tries = |&(_, since, _): &(_, u64, _)| 1 + now.saturating_sub(since) / pause.max(1);
        self.queue.iter().map(tries).sum()
    }

    /// Whether a writer (`writes`) or a reader could take the lock.
    fn is_free(&self, writes: bool) -> bool {
        !self.writer && (!writes || self.readers == 0)
    }

    fn grant(&mut self, writes: bool) {
        if writes {
            self.writer = true;
        } else {
            self.readers += 1;
        }
    }
}

/// A mutex of [`Timed`].
#[derive(Debug)]
pub struct TimedMutex<T> {
    gate: Gate,
    value: StdMutex<T>,
}

impl<T> Mutex<T> for TimedMutex<T> {
    type Wait = TimedWait;

    fn new(class: Class, value: T) -> TimedMutex<T> {
        TimedMutex { gate: Gate::new(class), value: StdMutex::new(value) }
    }

    fn with<R>(&self, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        self.gate.take(true);
        let result = f(&mut lock(&self.value));
        self.gate.give_back(true);
        result
    }

    fn until<R>(&self, _: Site, wait: &TimedWait, mut f: impl FnMut(&mut T) -> Option<R>) -> R {
        loop {
            self.gate.take(true);
            let result = f(&mut lock(&self.value));
            if result.is_none() {
                lock(&wait.sleepers).extend(cpu().map(|cpu| (cpu, now())));
            }
            self.gate.give_back(true);
            if let Some(result) = result {
                return result;
            }
            assert!(cpu().is_some(), "nobody is there to wait for");
            let waited = sleep();
            count(wait.class, |counts| counts.waits.add(waited));
        }
    }

    fn get_mut(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader/writer lock of [`Timed`]. Readers run at the same time; a reader that arrives after a
/// writer waits for the writer.
#[derive(Debug)]
pub struct TimedRw<T> {
    gate: Gate,
    value: std::sync::RwLock<T>,
}

impl<T> Rw<T> for TimedRw<T> {
    fn new(class: Class, value: T) -> TimedRw<T> {
        TimedRw { gate: Gate::new(class), value: std::sync::RwLock::new(value) }
    }

    fn read<R>(&self, _: Site, f: impl FnOnce(&T) -> R) -> R {
        self.gate.take(false);
        let result = f(&self.value.read().unwrap_or_else(PoisonError::into_inner));
        self.gate.give_back(false);
        result
    }

    fn write<R>(&self, _: Site, f: impl FnOnce(&mut T) -> R) -> R {
        self.gate.take(true);
        let result = f(&mut self.value.write().unwrap_or_else(PoisonError::into_inner));
        self.gate.give_back(true);
        result
    }
}

/// Where virtual processors sleep.
#[derive(Debug)]
pub struct TimedWait {
    class: Class,
    /// The sleeping processors, each with the time when it began to sleep.
    sleepers: StdMutex<Vec<(usize, u64)>>,
}

impl Wait for TimedWait {
    fn new(class: Class) -> TimedWait {
        TimedWait { class, sleepers: StdMutex::default() }
    }

    fn wake_all(&self) {
        let Some((costs, kind)) = with_me(|me| (me.baton.costs, me.baton.kind)) else { return };
        let sleepers = std::mem::take(&mut *lock(&self.sleepers));
        for (cpu, since) in sleepers {
            // Threads of a present-day host spin here, as they do for a lock. Threads of Solaris
            // sleep.
            let delay = match kind {
                LockKind::Spin | LockKind::Adaptive | LockKind::HandOver => costs.sleep,
                LockKind::Barging => costs.until_seen(since, now()),
            };
            wake(cpu, delay);
        }
    }
}

fn spend_on_locks(cycles: u64) {
    spend_on(cycles, |time| &mut time.lock_cycles);
}

fn lock<T>(mutex: &StdMutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
