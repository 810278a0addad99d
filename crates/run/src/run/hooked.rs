//! Tests what each feature of a machine requires of a run: to be called at each miss, to be called
//! in the order of misses, or to price misses itself.

use description::Clock;

use crate::{plain::Machine, runnable::Runnable};

#[test]
fn each_feature_says_what_it_asks_for() {
    let alone = (false, true, true);
    let of_misses = (true, false, true);
    let of_prices = (true, false, false);
    let machines: [(&str, &[&str], bool, _); 10] = [
        ("opteron-2008", &[], false, alone),
        ("opteron-2008", &["walker.tracks_dirty=true"], false, alone),
        ("opteron-2008", &[], true, alone),
        ("opteron-2008", &["os.populated=true"], false, of_misses),
        ("opteron-2008", &["walker.kind=software", "walker.tracks_dirty=true"], false, of_misses),
        ("opteron-2008", &["nested.page_size=4K"], false, of_misses),
        ("opteron-2008", &["spec_tlb.entries=24"], false, of_misses),
        ("opteron-2008", &["range_tlb={}"], false, of_misses),
        ("opteron-2008", &["core.count=2", "memory.numa={nodes=2}"], false, of_prices),
        ("tlb-only", &["page_table.format=linear"], false, of_prices),
    ];
    for (name, settings, check, expected) in machines {
        let all: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let machine = Machine::load(name, &all).unwrap();
        let mut run = machine.start(check, Clock::Full).unwrap();
        run.hooks.look(&machine.walkers().unwrap());
        let hooks = &run.hooks;
        let found = (hooks.is_any(), hooks.allow_dense(), hooks.leave_prices());
        assert_eq!(found, expected, "{name} {settings:?}, checked: {check}");
    }
}
