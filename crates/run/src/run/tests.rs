//! Tests of shootdowns that are left out or late, and of faults that repeat. No trace can cause
//! these cases.

use addr::{Kind, VirtAddr};
use description::{Clock, Error};
use hardware::walker::Walkers;
use os::{Ask, Platform};
use pagetable::{Fault, Flush};
use ram::Ram;
use results::count::labels::Layout;
use trace::{Batch, Event, Meta, Placed};

use super::Run;
use crate::{plain::Machine, runnable::Runnable};

/// A platform that records shootdowns instead of passing them on.
struct Held<'a> {
    ram: &'a mut Ram,
    layout: &'a Layout,
    flushes: Vec<Flush>,
}

impl Platform for Held<'_> {
    fn processor(&self) -> usize {
        0
    }

    fn ram(&mut self) -> &mut Ram {
        self.ram
    }

    fn layout(&self) -> &Layout {
        self.layout
    }

    fn shoot(&mut self, flush: Flush) {
        self.flushes.push(flush);
    }

    fn access(&self) -> u64 {
        0
    }
}

/// Unmaps the page at 4 MiB in the running space without a flush of hardware.
fn unmap(run: &mut Run) -> Vec<Flush> {
    let gone = Event::Munmap { addr: 0x40_0000, bytes: 4096, result: 0 };
    let Run { system, stack, layout, who, .. } = run;
    let mut held = Held { ram: &mut stack.guest, layout, flushes: Vec::new() };
    system.event(*who, &gone, &mut held).unwrap();
    held.flushes
}

/// Touches a page, unmaps it without a flush, and touches it again.
fn forget_a_shootdown(design: &str, check: bool) -> Result<Walkers, Error> {
    let settings = [format!("mmu_cache.design={design}"), "mmu_cache.entries=8".to_owned()];
    let machine = Machine::load("opteron-2008", &settings)?;
    let mut run = machine.start(check, Clock::Full)?;
    let mut walker = machine.walkers()?;
    let touch = |run: &mut Run, walker: &mut Walkers, addr: u64| {
        let mut batch = Batch::default();
        batch.push(0, addr, Meta::new(Kind::Store, 8, 1));
        run.batch::<false>(&batch, walker)
    };
    touch(&mut run, &mut walker, 0x40_0000)?;
    // The frames of the removed tables stay allocated, because the flush that would free them is
    // never done.
    std::mem::forget(unmap(&mut run));
    // A different page of the removed table; no TLB holds this page.
    touch(&mut run, &mut walker, 0x40_1000)?;
    Ok(walker)
}

#[test]
fn a_forgotten_shootdown_shows() {
    for design in ["uptc", "sptc", "utc", "stc", "tpc"] {
        let Err(error) = forget_a_shootdown(design, true) else { panic!("{design} hides it") };
        let error = error.to_string();
        assert!(error.contains("the MMU cache leads the walk"), "{design}: {error}");
    }
    assert!(forget_a_shootdown("none", true).is_ok());
}

/// Two spaces touch a page at the same address; the page of the first space is unmapped while the
/// second space runs, and then the first space touches it again.
#[test]
fn a_shootdown_goes_where_its_space_is() {
    for policy in ["modulo", "lru", "generation", "per-processor"] {
        let settings = ["core.asid_bits=4".to_owned(), format!("core.contexts={policy}")];
        let machine = Machine::load("epyc-9005", &settings).unwrap();
        let mut run = machine.start(true, Clock::Full).unwrap();
        let mut walker = machine.walkers().unwrap();
        let touch = |run: &mut Run, walker: &mut Walkers| {
            let mut batch = Batch::default();
            batch.push(0, 0x40_0000, Meta::new(Kind::Load, 8, 1));
            run.batch::<true>(&batch, walker)
        };
        let switch = |run: &mut Run, walker: &mut Walkers, space| {
            let event = Event::Run { cpu: None, space };
            run.event(&Placed { at: 0, thread: 0, event }, 0, walker).unwrap();
        };
        touch(&mut run, &mut walker).unwrap();
        switch(&mut run, &mut walker, 1);
        touch(&mut run, &mut walker).unwrap();
        switch(&mut run, &mut walker, 0);
        let flushes = unmap(&mut run);
        switch(&mut run, &mut walker, 1);
        run.ask(0, &mut walker, |_, platform| {
            flushes.into_iter().for_each(|flush| platform.shoot(flush));
            Ok(())
        })
        .unwrap();
        let misses = run.seen.first_touches;
        touch(&mut run, &mut walker).unwrap();
        assert_eq!(run.seen.first_touches, misses, "{policy}: the second space lost its page");
        switch(&mut run, &mut walker, 0);
        touch(&mut run, &mut walker).unwrap();
        assert_eq!(run.seen.first_touches, misses + 1, "{policy}");
    }
}

/// A fault that the operating system handles without any change would be repeated forever.
#[test]
fn a_fault_of_an_access_that_is_allowed_is_an_error() {
    for manager in ["first-touch", "base"] {
        let settings = [format!("os.manager={manager}")];
        let machine = Machine::load("opteron-2008", &settings).unwrap();
        let mut run = machine.start(true, Clock::Full).unwrap();
        let mut walker = machine.walkers().unwrap();
        let (addr, kind) = (VirtAddr::new(0x40_0000), Kind::Store);
        let ask = Ask { who: run.who, addr, kind, fault: Fault::NotMapped { level: 1 } };
        let mut fault = |run: &mut Run| run.ask(0, &mut walker, |os, by| os.fault(&ask, by));
        fault(&mut run).unwrap();
        let error = fault(&mut run).unwrap_err().to_string();
        assert!(error.contains("has the page and allows the access"), "{manager}: {error}");
    }
}
