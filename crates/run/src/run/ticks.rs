//! An operating system with deadlines: the times at which it is woken are compared with a clock
//! that is read after every access.

use std::sync::{Arc, Mutex};

use addr::Kind;
use description::Clock;
use hardware::walker::Walkers;
use os::{Answer, Ask, Platform, System, Who};
use pagetable::Space;
use ram::Failure;
use trace::{Batch, Event, Meta};

use super::Run;
use crate::{plain::Machine, runnable::Runnable};

/// A system that requests to be woken at a fixed period in cycles, and records when it was woken.
struct Alarm {
    system: Box<dyn System>,
    period: u64,
    next: u64,
    woken: Arc<Mutex<Vec<u64>>>,
}

impl System for Alarm {
    fn enter(&mut self, number: u32, platform: &mut dyn Platform) -> Result<Space, Failure> {
        self.system.enter(number, platform)
    }

    fn fault(&mut self, ask: &Ask, platform: &mut dyn Platform) -> Result<Answer, Failure> {
        self.system.fault(ask, platform)
    }

    fn event(
        &mut self,
        who: Who,
        event: &Event,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        self.system.event(who, event, platform)
    }

    fn deadline(&self) -> Option<u64> {
        Some(self.next)
    }

    fn tick(&mut self, now: u64, _platform: &mut dyn Platform) -> Result<(), Failure> {
        self.woken.lock().unwrap().push(now);
        self.next = now + self.period;
        Ok(())
    }
}

/// Hits, misses, faults and unmapped pages, in batches of `accesses` accesses each.
fn batches(accesses: usize) -> Vec<Batch> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    let (mut batches, mut batch) = (Vec::new(), Batch::default());
    for number in 0..6000 {
        let pages = [4, 4, 4, 300][below(4) as usize];
        let addr = 0x40_0000 + (below(pages) << 12);
        if number % 500 == 499 {
            batch.push_event(0, Event::Munmap { addr, bytes: 8 << 12, result: 0 });
        }
        batch.push(0, addr, Meta::new(Kind::Load, 8, below(9) as u32));
        if batch.len() == accesses {
            batches.push(std::mem::take(&mut batch));
        }
    }
    batches.push(batch);
    batches
}

fn machine(settings: &[&str]) -> Machine {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    Machine::load("epyc-9005", &settings).unwrap()
}

/// The times at which an operating system with this period is woken.
fn woken(machine: &Machine, clock: Clock, period: u64, accesses: usize) -> Vec<u64> {
    let mut run = machine.start(false, clock).unwrap();
    let mut walkers = machine.walkers().unwrap();
    let woken = Arc::default();
    let alarm = |system| Alarm { system, period, next: period, woken: Arc::clone(&woken) };
    let other = machine.start(false, clock).unwrap().system;
    let system = std::mem::replace(&mut run.system, other);
    run.system = Box::new(alarm(system));
    for batch in batches(accesses) {
        run.batch::<false>(&batch, &mut walkers).unwrap();
    }
    drop(run);
    woken.lock().unwrap().clone()
}

/// The times at which an operating system with this period must be woken, found by reading the
/// clock after each access.
fn expected(machine: &Machine, clock: Clock, period: u64) -> Vec<u64> {
    let mut run = machine.start(false, clock).unwrap();
    let mut walkers: Walkers = machine.walkers().unwrap();
    let (mut next, mut woken) = (period, Vec::new());
    for batch in batches(1) {
        // The time that an event takes ends before the access that follows the event.
        for placed in &batch.events {
            run.event(placed, 0, &mut walkers).unwrap();
        }
        let mut ring = |run: &Run| {
            if run.now() >= next {
                woken.push(run.now());
                next = run.now() + period;
            }
        };
        ring(&run);
        let batch = Batch { events: Vec::new(), ..batch };
        run.batch::<false>(&batch, &mut walkers).unwrap();
        ring(&run);
    }
    woken
}

#[test]
fn a_deadline_comes_after_the_access_that_reaches_it() {
    for settings in [&[][..], &["tlb.l1d.entries=8"], &["core.cycles_per_instruction=1.5"]] {
        let machine = machine(settings);
        for clock in [Clock::Full, Clock::Instructions] {
            for period in [1, 40, 700, 9_000] {
                let expected = expected(&machine, clock, period);
                for accesses in [1, 7, 6000] {
                    let woken = woken(&machine, clock, period, accesses);
                    assert_eq!(woken, expected, "{settings:?} {clock:?} {period} {accesses}");
                }
            }
        }
    }
}

/// The `instructions` clock does not depend on TLBs; the `full` clock depends on TLBs, but not on
/// the caches behind them.
#[test]
fn what_the_clock_knows() {
    let (few, many) = (machine(&["tlb.l1d.entries=8"]), machine(&["tlb.l1d.entries=96"]));
    let at = |machine, clock| woken(machine, clock, 500, 100);
    assert_eq!(at(&few, Clock::Instructions), at(&many, Clock::Instructions));
    assert_ne!(at(&few, Clock::Full), at(&many, Clock::Full));
    let behind = machine(&["tlb.l1d.entries=8", "mmu_cache.design=none", "cache.l2.size=64K"]);
    assert_eq!(at(&few, Clock::Full), at(&behind, Clock::Full));
}
