//! Tests settings that change during a run: `[[os.at]]`.

use addr::Kind;
use machine::{
    Machine, RunOptions,
    sweep::{SweepOptions, sweep},
};
use trace::Event;

use crate::support::{Row, Rows, run};

const BASE: u64 = 0x4000_0000;
/// Settings under which the clock counts accesses, because each access is one instruction of one
/// cycle.
const CLOCK: [&str; 2] = ["os.clock=instructions", "core.cycles_per_instruction=1"];
const OWN: [&str; 6] = [
    "os.manager=base",
    "memory.size=2400K",
    "swap.size=16M",
    "swap.io_cycles=1000",
    CLOCK[0],
    CLOCK[1],
];

/// Stores to each of 1000 pages, in `rounds` rounds.
fn rounds(rounds: u64) -> Vec<Row> {
    let pages = |_| (0..1000).map(|page| Row::Access(Kind::Store, BASE + page * 4096, 8));
    (0..rounds).flat_map(pages).collect()
}

fn owned(settings: &[&str]) -> Vec<String> {
    settings.iter().map(|setting| (*setting).to_owned()).collect()
}

#[test]
fn a_price_and_marks_change_when_their_time_comes() {
    let plain = run("epyc-9005", &OWN, &rounds(4));
    assert!(plain.changed_settings.is_empty());
    let never = [&OWN[..], &["os.at=[{time=100000000000, key=\"swap.io_cycles\", value=1}]"]];
    assert!(run("epyc-9005", &never.concat(), &rounds(4)).manager == plain.manager);
    // The changes are given in no particular order, and both take effect.
    let at = "os.at=[{time=1900, key=\"os.marks\", value={min=\"1M\", low=\"1M\", high=\"1M\"}}, \
              {time=100, key=\"os.replacement\", value=\"2q\"}]";
    let results = run("epyc-9005", &[&OWN[..], &[at]].concat(), &rounds(4));
    let keys: Vec<&str> = results.changed_settings.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["os.replacement", "os.marks"]);
    let accesses: Vec<u64> = results.changed_settings.iter().map(|one| one.access).collect();
    assert_eq!(accesses, [100, 1900]);
    let (manager, before) = (results.manager.unwrap(), plain.manager.unwrap());
    assert_eq!((before.replacement.as_str(), manager.replacement.as_str()), ("clock", "2q"));
    assert_eq!(manager.faults["zero"], 1000, "nothing is lost");
    assert!(manager.bytes.free >= 1 << 20, "{:?}", manager.bytes);
    assert!(before.bytes.free < 1 << 20, "{:?}", before.bytes);
}

#[test]
fn swap_grows_before_it_is_needed_and_shrinks_no_further_than_what_is_there() {
    let small = ["os.manager=base", "memory.size=2400K", "swap.size=4K", "swap.io_cycles=1"];
    let fails = |at: &str| {
        let settings = [&small[..], &CLOCK, &[at]].concat();
        let machine = Machine::load("epyc-9005", &owned(&settings)).unwrap();
        let options = RunOptions { check: false, progress: &mut |_| true };
        machine.run(&mut Rows::new(rounds(2)), options).map(|_| ()).map_err(|e| e.to_string())
    };
    assert!(fails("os.at=[]").unwrap_err().contains("4K of 4K of swap (swap.size) are in use"));
    assert_eq!(fails("os.at=[{time=0, key=\"swap.size\", value=\"16M\"}]"), Ok(()));
    let error = fails(
        "os.at=[{time=0, key=\"swap.size\", value=\"16M\"}, \
         {time=1200, key=\"swap.size\", value=\"4K\"}]",
    );
    let error = error.unwrap_err();
    assert!(
        error.contains("swap.size at the time 1200 (os.at)") && error.contains("in swap"),
        "{error}"
    );
}

#[test]
fn what_cannot_change_is_refused_at_its_line() {
    let text = |manager: &str, entry: &str| {
        let (_, text) = machine::BUILTIN
            .iter()
            .map(|builtin| (builtin.name, builtin.text))
            .find(|(name, _)| *name == "epyc-9005")
            .expect("it comes with the crate");
        let os = format!("[os]\nmanager = \"{manager}\"\n");
        text.replace("[os]\n", &os) + "\n[[os.at]]\n" + entry
    };
    for (manager, entry, said) in [
        ("base", "time = 1\nkey = \"memory.size\"\nvalue = \"1G\"\n", "choose os.marks"),
        ("base", "time = 1\nkey = \"os.page_size\"\nvalue = \"2M\"\n", "cannot change while"),
        ("base", "time = 1\nkey = \"os.replacement\"\nvalue = \"fifo\"\n", "choose clock, lru"),
        (
            "base",
            "time = 1\nkey = \"os.marks\"\nvalue = { min = \"2M\", low = \"1M\", high = \"1M\" }\n",
            "`min`, 2M, is more than `low`, 1M",
        ),
        ("base", "time = 1\nkey = \"swap.size\"\nvalue = \"1Q\"\n", "is not a size"),
        ("first-touch", "time = 1\nkey = \"os.marks\"\nvalue = 1\n", "another os.manager"),
        ("base", "time = -1\nkey = \"os.marks\"\nvalue = 1\n", "`-1` is not a whole number from 0"),
        ("base", "time = 1\nvalue = 1\n", "missing field `key`"),
    ] {
        let text = text(manager, entry);
        let error = Machine::parse("x", &text, "x.toml", &[]).unwrap_err().to_string();
        assert!(error.contains(said), "{entry}: {error}");
        let line: usize = error.split(':').nth(1).unwrap().trim().parse().unwrap();
        let first = text.lines().position(|line| line == "[[os.at]]").unwrap() + 1;
        assert!(line >= first, "{error}: the entry is at {first}");
    }
}

#[test]
fn a_sweep_changes_them_too() {
    let at = "os.at=[{time=2000, key=\"os.replacement\", value=\"lru\"}]";
    let settings = owned(&[&OWN[..], &[at]].concat());
    let other = [settings.clone(), owned(&["mmu_cache.entries=8"])].concat();
    let machines =
        [&settings, &other].map(|settings| Machine::load("epyc-9005", settings).unwrap());
    let alone = machines.clone().map(|machine| {
        let options = RunOptions { check: false, progress: &mut |_| true };
        machine.run(&mut Rows::new(rounds(3)), options).unwrap()
    });
    let options = SweepOptions { threads: 1, progress: &mut |_| true };
    let outcomes = sweep(&machines, &mut Rows::new(rounds(3)), options).unwrap();
    for (outcome, alone) in outcomes.into_iter().zip(alone) {
        let results = outcome.unwrap();
        assert_eq!(results.changed_settings, alone.changed_settings);
        assert!(results.manager == alone.manager);
        assert_eq!(results.changed_settings.len(), 1);
    }
}

#[test]
fn a_wrong_entry_of_a_setting_is_told_with_the_setting() {
    let own = ["os.manager=base", "os.at=[{time=1, key=\"memory.size\", value=\"1G\"}]"];
    let error = Machine::load("epyc-9005", &owned(&own)).unwrap_err().to_string();
    assert!(error.starts_with("--set os.at="), "{error}");
}

/// The accesses before which the settings of `at` changed, for stores that miss every TLB. The
/// machine is an `opteron-2008`, whose second-level TLB, if there is one, takes 7 cycles per
/// lookup.
fn at_each_miss(second_level: bool, walk_cycles: u64, at: &str, rows: Vec<Row>) -> Vec<u64> {
    let builtin = machine::BUILTIN.iter().find(|builtin| builtin.name == "opteron-2008").unwrap();
    let (before, after) = builtin.text.split_once("[tlb.l2d]").unwrap();
    let (_, behind) = after.split_once("[page_table]").unwrap();
    let single = format!("{before}[page_table]{behind}");
    let text = if second_level { builtin.text } else { single.as_str() };
    let free =
        ["shootdown_send", "shootdown_receive", "flush_page", "flush_space", "fault", "switch"]
            .map(|key| format!("os.costs.{key}_cycles=0"));
    let own = ["os.manager=base", "os.clock=full", "tlb.l1d.replacement=lru"];
    let latency = second_level.then_some("tlb.l2d.latency_cycles=7");
    let walk = [format!("os.costs.walk_cycles={walk_cycles}"), "os.costs.source=here".to_owned()];
    let settings = own.into_iter().chain(latency).map(str::to_owned).chain(free).chain(walk);
    let settings: Vec<String> = settings.chain([at.to_owned()]).collect();
    let machine = Machine::parse("x", text, "x.toml", &settings).unwrap();
    let options = RunOptions { check: false, progress: &mut |_| true };
    let results = machine.run(&mut Rows::new(rows), options).unwrap();
    results.changed_settings.iter().map(|one| one.access).collect()
}

/// For an access that misses, a processor's clock advances by one instruction, a lookup of the
/// second-level TLB if there is one, and the price of a walk. The end of a warm-up does not reset
/// the clock.
#[test]
fn the_clock_has_each_lookup_and_each_walk() {
    for (second_level, walk_cycles) in [(true, 0), (true, 30), (false, 0), (false, 30)] {
        let step = 1 + if second_level { 7 } else { 0 } + walk_cycles;
        // The first change is due after the first round, whatever the cost of this round.
        let first = 4000 * step;
        let at = format!(
            "os.at=[{{time={first}, key=\"os.replacement\", value=\"lru\"}}, \
             {{time={}, key=\"os.replacement\", value=\"2q\"}}]",
            first + 1500 * step
        );
        let accesses = at_each_miss(second_level, walk_cycles, &at, rounds(8));
        assert_eq!(accesses[1] - accesses[0], 1500, "{second_level} {walk_cycles}");
        let mut warmed = rounds(8);
        warmed.insert(accesses[0] as usize + 700, Row::Event(Event::WarmupEnd));
        assert_eq!(at_each_miss(second_level, walk_cycles, &at, warmed), accesses);
    }
}
