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
