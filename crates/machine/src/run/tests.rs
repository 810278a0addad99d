//! A shootdown that is forgotten, which no trace can bring about.

use addr::Kind;
use trace::{Batch, Event, Meta};

use super::Run;
use crate::{Error, Machine, hardware::walker::Walker};

/// Touches a page, unmaps it without a flush, and touches it again.
fn forget_a_shootdown(design: &str, check: bool) -> Result<Walker, Error> {
    let settings = [format!("mmu_cache.design={design}"), "mmu_cache.entries=8".to_owned()];
    let machine = Machine::load("opteron-2008", &settings)?;
    let mut run = Run::new(&machine, check)?;
    let mut walker = machine.walker()?;
    let touch = |run: &mut Run, walker: &mut Walker, addr: u64| {
        let mut batch = Batch::default();
        batch.push(0, addr, Meta::new(Kind::Store, 8, 1));
        run.batch::<false>(&batch, walker)
    };
    touch(&mut run, &mut walker, 0x40_0000)?;
    let gone = Event::Munmap { addr: 0x40_0000, bytes: 4096, result: 0 };
    // The tables' frames stay allocated, as nobody says that they may go.
    for shootdown in run.os.event(&gone).unwrap() {
        std::mem::forget(shootdown);
    }
    // Another page of the table that went: the TLBs know nothing of it.
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

/// Two spaces touch a page at the same address; that of the first is unmapped while the second
/// runs, and the first touches it again.
#[test]
fn a_shootdown_goes_where_its_space_is() {
    for policy in ["modulo", "lru", "generation", "per-processor"] {
        let settings = ["core.asid_bits=4".to_owned(), format!("core.contexts={policy}")];
        let machine = Machine::load("epyc-9005", &settings).unwrap();
        let mut run = Run::new(&machine, true).unwrap();
        let mut walker = machine.walker().unwrap();
        let touch = |run: &mut Run, walker: &mut Walker| {
            let mut batch = Batch::default();
            batch.push(0, 0x40_0000, Meta::new(Kind::Load, 8, 1));
            run.batch::<true>(&batch, walker)
        };
        let switch = |run: &mut Run, walker: &mut Walker, space| {
            run.event(&Event::Run { cpu: 0, space }, 0, walker).unwrap();
        };
        touch(&mut run, &mut walker).unwrap();
        switch(&mut run, &mut walker, 1);
        touch(&mut run, &mut walker).unwrap();
        switch(&mut run, &mut walker, 0);
        let gone = Event::Munmap { addr: 0x40_0000, bytes: 4096, result: 0 };
        let shootdowns = run.os.event(&gone).unwrap();
        switch(&mut run, &mut walker, 1);
        for shootdown in shootdowns {
            run.shoot_down(shootdown, &mut walker);
        }
        let misses = run.os.first_touches;
        touch(&mut run, &mut walker).unwrap();
        assert_eq!(run.os.first_touches, misses, "{policy}: the second space lost its page");
        switch(&mut run, &mut walker, 0);
        touch(&mut run, &mut walker).unwrap();
        assert_eq!(run.os.first_touches, misses + 1, "{policy}");
    }
}
