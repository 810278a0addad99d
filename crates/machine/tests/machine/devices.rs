//! Tests frames of devices beside pages of broken reservations, and the predictions of a SpecTLB
//! for these pages (B10 sections 6.2.3 and 6.5.3).

use addr::Kind;
use machine::{
    Machine, Results, RunOptions,
    results::{DeviceCounts, SpecTlbCounts},
    sweep::{SweepOptions, sweep},
};

use crate::support::{HEAP, Row, Rows, Stream, mapping};

const MIB: u64 = 1 << 20;

/// Accesses to half of the pages of `heaps` heaps of 2 MiB, in random order. Memory has room for
/// half of the heaps as a whole.
fn rows(seed: u64, heaps: u64, accesses: u64) -> Vec<Row> {
    let mut stream = Stream(seed);
    let heap = |heap: u64| mapping(HEAP + heap * 4 * MIB, 2 * MIB);
    let mut rows: Vec<Row> = (0..heaps).map(heap).collect();
    rows.extend((0..accesses).map(|access| {
        // In the first quarter only the first half of the heaps is used, later all heaps.
        let some = if access < accesses / 4 { heaps / 2 } else { heaps };
        let page = stream.below(some) * 4 * MIB + stream.below(512) * 4096;
        Row::Access([Kind::Load, Kind::Store][stream.below(2) as usize], HEAP + page, 8)
    }));
    rows
}

/// A machine whose memory is too small for the reservations of `rows`, with devices.
fn scarce(marks: &str, settings: &[&str]) -> Vec<String> {
    let fixed = [
        "spec_tlb.fill=marks",
        "spec_tlb.entries=24",
        "memory.size=36M",
        "swap.size=64M",
        "os.devices={pages=64,faults=8}",
    ];
    let marks = format!("os.reservations={{marks=\"{marks}\"}}");
    let all = fixed.into_iter().chain([marks.as_str()]).chain(settings.iter().copied());
    all.map(str::to_owned).collect()
}

fn run(settings: &[String], rows: &[Row]) -> Results {
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    crate::support::run("freebsd-2009", &settings, rows)
}

fn said(results: &Results) -> &SpecTlbCounts {
    results.spec_tlb.as_ref().unwrap()
}

fn devices(results: &Results) -> DeviceCounts {
    results.manager.as_ref().unwrap().devices.unwrap()
}

#[test]
fn each_way_of_clearing_marks_keeps_guesses_from_devices_so_far() {
    let rows = rows(3, 24, 30_000);
    let [kept, cleared, on_use] =
        ["keep", "clear", "clear-devices"].map(|marks| run(&scarce(marks, &[]), &rows));
    let of = devices(&kept);
    assert_eq!((of.pages, of.lent), (64, of.returned + 64), "{of:?}");
    assert!(of.lent > 300 && of.blocks == 0, "{of:?}");
    assert_eq!(kept.memory.device_bytes, 64 * 4096);
    let reached = [&kept, &cleared, &on_use].map(|results| said(results).devices_reached);
    assert!(reached[0] > 20, "kept marks lead to devices: {reached:?}");
    assert!(reached[1] * 2 < reached[0] && reached[2] * 2 < reached[0], "{reached:?}");
    let marks = |results: &Results| {
        let reservations = results.manager.as_ref().unwrap().reservations.as_ref().unwrap();
        (reservations.marks_cleared > 0, devices(results).marks_cleared > 0)
    };
    assert_eq!(
        [&kept, &cleared, &on_use].map(marks),
        [(false, false), (true, false), (false, true)]
    );
    assert!(said(&kept).right > said(&cleared).right);
}

#[test]
fn requests_that_say_what_they_are_reach_no_device() {
    let rows = rows(4, 24, 20_000);
    let [plain, tagged] = ["false", "true"].map(|tagged| {
        let tagged = format!("spec_tlb.tagged={tagged}");
        run(&scarce("keep", &[&tagged]), &rows)
    });
    assert!(said(&plain).devices > 0 && said(&plain).devices_reached == said(&plain).devices);
    assert_eq!((said(&tagged).devices, said(&tagged).devices_reached), (said(&plain).devices, 0));
    assert_eq!(said(&tagged).right, said(&plain).right);
}

/// B10 section 6.2.3: with blocks of their own, no frame of a device is in a block with marked
/// frames.
#[test]
fn devices_with_blocks_of_their_own_are_never_named() {
    let rows = rows(5, 24, 16_000);
    let apart = "os.devices={pages=64,faults=8,apart=true}";
    for marks in ["keep", "clear", "clear-devices"] {
        let results = run(&scarce(marks, &[apart]), &rows);
        let of = devices(&results);
        assert!(of.lent > 200 && of.blocks == 1, "{of:?}");
        assert_eq!(results.memory.device_bytes, 2 * MIB);
        assert_eq!((said(&results).devices, of.marks_cleared), (0, 0), "{marks}");
    }
}

#[test]
fn a_sweep_knows_of_devices_too() {
    let rows = rows(6, 24, 20_000);
    let machines: Vec<Machine> = [2, 8, 24]
        .map(|entries| {
            let entries = format!("spec_tlb.entries={entries}");
            Machine::load("freebsd-2009", &scarce("keep", &[&entries])).unwrap()
        })
        .into();
    let options = SweepOptions { threads: 2, progress: &mut |_| true };
    let swept = sweep(&machines, &mut Rows::new(rows.clone()), options).unwrap();
    for (machine, swept) in machines.iter().zip(swept) {
        let options = RunOptions { check: true, progress: &mut |_| true };
        let alone = machine.run(&mut Rows::new(rows.clone()), options).unwrap();
        assert!(said(&alone).devices > 0);
        assert_eq!(swept.unwrap(), Results { origins: None, checked: false, ..alone });
    }
}

#[test]
fn what_is_wrong_is_said() {
    for (name, setting, expected) in [
        ("freebsd-2009", "os.devices={pages=0,faults=1}", "os.devices.pages: write 1 to"),
        ("freebsd-2009", "os.devices={pages=9,faults=0}", "os.devices.faults: write the number"),
        ("opteron-2008", "os.devices={pages=9,faults=1}", "`first-touch` lends no frames to"),
        ("freebsd-2009", "os.devices={pages=9}", "missing field `faults`"),
    ] {
        let error = Machine::load(name, &[setting.to_owned()]).err().unwrap().to_string();
        assert!(error.contains(expected), "{setting}: {error}");
    }
}
