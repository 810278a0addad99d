//! Checks that the options of a recording select the requested part, by comparison with the whole
//! recording of the same program.

use std::path::PathBuf;
use std::process::Command;

use addr::Kind;
use capture::{Live, Options};
use trace::{Event, Filter};

use crate::common::{In, Row, Whole, compile, directory, numbers, options, plugin, record};

in_both!(
    two_recordings_are_the_same,
    skip_and_max_give_exactly_that_part,
    a_program_that_is_not_wanted_any_more_is_ended,
    without_fetches_the_rest_is_the_same,
    the_filter_keeps_what_the_model_keeps,
    live_is_what_is_stored,
    a_live_program_nobody_looks_at_runs_to_its_end,
    a_program_runs_on_when_its_live_source_is_dropped,
);

/// A program that makes the same accesses in every run: it uses no addresses of other origin and no
/// clock.
const STEADY: &str = r#"
    #include <stdlib.h>
    #include <string.h>
    static long table[1 << 16];
    int main(void) {
        unsigned long x = 1;
        for (int i = 0; i < 60000; i++) {
            x = x * 6364136223846793005ul + 1442695040888963407ul;
            table[x >> 48] += i;
            if (i % 1000 == 0) { char *p = malloc(5000); memset(p, 1, 5000); }
        }
        return 0;
    }"#;

fn steady(name: &str, (engine, options): In) -> (PathBuf, Options) {
    let directory = directory(&format!("{name}-{engine}"));
    let program = compile(&directory, "steady", "gcc", STEADY);
    let options = options(&program, &[]);
    (directory, options)
}

fn recorded(directory: &std::path::Path, options: &Options) -> Whole {
    let outcome = record(directory, options);
    assert_eq!(outcome.status, 0);
    Whole::read(&outcome.summary.path)
}

/// The rows without their instruction counts, which depend on the row before.
fn plain(rows: &[Row]) -> Vec<(u64, Kind, u32)> {
    rows.iter().map(|row| (row.addr, row.kind(), row.meta.size())).collect()
}

fn instructions(whole: &Whole) -> u64 {
    let rows: u64 = whole.rows.iter().map(|row| u64::from(row.meta.instructions())).sum();
    let gaps = whole.events.iter().map(|(_, _, event)| match event {
        Event::Gap { instructions, .. } => *instructions,
        _ => 0,
    });
    rows + gaps.sum::<u64>()
}

fn two_recordings_are_the_same(engine: In) {
    let (directory, options) = steady("same", engine);
    let first = recorded(&directory, &options);
    let second = recorded(&directory, &options);
    assert!(first.rows.len() > 200_000, "{}", first.rows.len());
    assert_eq!(first.rows, second.rows);
}

fn skip_and_max_give_exactly_that_part(engine: In) {
    let (directory, mut options) = steady("window", engine);
    let whole = recorded(&directory, &options);
    let rows = plain(&whole.rows);
    let total = rows.len() as u64;
    for (skip, max) in [
        (0, Some(1)),
        (0, Some(12_345)),
        (1, None),
        (777, Some(2)),
        (50_001, Some(100_000)),
        (50_002, Some(33_333)),
        (total - 5, None),
        (total + 100_000, None),
    ] {
        options.skip_accesses = skip;
        options.accesses_max = max;
        let part = recorded(&directory, &options);
        let from = skip.min(total) as usize;
        let to = (skip + max.unwrap_or(total)).min(total) as usize;
        assert_eq!(plain(&part.rows), rows[from..to], "skip {skip}, max {max:?}");
        if skip != 0 {
            let gap = part.events.iter().find_map(|(at, _, event)| match event {
                Event::Gap { accesses, instructions } => Some((*at, *accesses, *instructions)),
                _ => None,
            });
            let (at, accesses, gap_instructions) = gap.expect("a gap says what was skipped");
            assert_eq!((at, accesses), (0, from as u64), "skip {skip}");
            let before: u64 =
                whole.rows[..from].iter().map(|row| u64::from(row.meta.instructions())).sum();
            // Instructions without a row of their own are counted by the next row.
            assert!(gap_instructions.abs_diff(before) <= 512, "{gap_instructions} of {before}");
        }
    }
}

fn a_program_that_is_not_wanted_any_more_is_ended((engine, options): In) {
    let directory = directory(&format!("ends-early-{engine}"));
    let forever = "int main(void) { static volatile int x; for (;;) x++; }";
    let program = compile(&directory, "forever", "gcc", forever);
    let mut options = options(&program, &[]);
    options.accesses_max = Some(300_000);
    options.ends = true;
    let outcome = record(&directory, &options);
    assert_eq!(outcome.status, 0, "it was killed as asked");
    assert_eq!(outcome.summary.accesses, 300_000);
    assert_eq!(Whole::read(&outcome.summary.path).rows.len(), 300_000);
}

fn without_fetches_the_rest_is_the_same(engine: In) {
    let (directory, mut options) = steady("no_fetch", engine);
    let whole = recorded(&directory, &options);
    options.fetches = false;
    let part = recorded(&directory, &options);
    let data: Vec<Row> =
        whole.rows.iter().filter(|row| row.kind() != Kind::Fetch).copied().collect();
    assert_eq!(plain(&part.rows), plain(&data));
    assert_eq!(instructions(&part), instructions(&whole));
}

fn the_filter_keeps_what_the_model_keeps(engine: In) {
    let (directory, mut options) = steady("filter", engine);
    let whole = recorded(&directory, &options);
    options.filter = Filter::Page16;
    let part = recorded(&directory, &options);
    // The model has a table of 16 pages for fetches and one for data, and keeps the first store to
    // a page.
    let mut fetch = [None; 16];
    let mut data = [None; 16];
    let mut kept = Vec::new();
    for row in &whole.rows {
        let last = (row.addr + u64::from(row.meta.size()) - 1) >> 12;
        let pages = [row.addr >> 12, last];
        let stores = row.kind() == Kind::Store;
        let table = if row.kind() == Kind::Fetch { &mut fetch } else { &mut data };
        let held = |entry: Option<(u64, bool)>, page: u64| {
            entry.is_some_and(|(held, stored)| held == page && (stored || !stores))
        };
        if pages.iter().all(|&page| held(table[page as usize % 16], page)) {
            continue;
        }
        for page in pages {
            let stored = matches!(table[page as usize % 16], Some((held, true)) if held == page);
            table[page as usize % 16] = Some((page, stored || stores));
        }
        kept.push(*row);
    }
    assert_eq!(plain(&part.rows), plain(&kept));
    assert!(part.rows.len() < whole.rows.len() / 2, "it drops something");
    assert_eq!(instructions(&part), instructions(&whole));
    let dropped = part.events.iter().filter_map(|(_, _, event)| match event {
        Event::Gap { accesses, .. } => Some(*accesses),
        _ => None,
    });
    assert_eq!(dropped.sum::<u64>(), (whole.rows.len() - kept.len()) as u64);
}

fn live_is_what_is_stored(engine: In) {
    let (directory, options) = steady("live", engine);
    let stored = recorded(&directory, &options);
    let mut live = Live::start(&options).unwrap();
    let seen = Whole::of(&mut live);
    assert_eq!(live.finish(), 0);
    assert_eq!(seen.rows, stored.rows);
    let calls = |whole: &Whole| -> Vec<Event> {
        let is_told = |event: &Event| !matches!(event, Event::ThreadStart { .. });
        whole.events.iter().map(|(_, _, event)| event.clone()).filter(is_told).collect()
    };
    assert_eq!(calls(&seen), calls(&stored));
}

fn a_live_program_nobody_looks_at_runs_to_its_end(engine: In) {
    let (_, options) = steady("unseen", engine);
    let live = Live::start(&options).unwrap();
    assert_eq!(live.finish(), 0);
}

fn a_program_runs_on_when_its_live_source_is_dropped((engine, options): In) {
    let directory = directory(&format!("dropped-{engine}"));
    let source = r#"
        #include <stdio.h>
        static volatile long table[1 << 16];
        int main(int argc, char **argv) {
            for (long i = 0; i < 30000000; i++) table[i & 0xffff] += i;
            FILE *f = fopen(argv[1], "w");
            return fclose(f);
        }"#;
    let program = compile(&directory, "long", "gcc", source);
    let said = directory.join("said");
    let mut live = Live::start(&options(&program, &[said.to_str().unwrap()])).unwrap();
    let mut batch = trace::Batch::default();
    for _ in 0..10 {
        assert!(trace::Source::next(&mut live, &mut batch).unwrap());
    }
    drop(live);
    assert!(!said.exists(), "it was dropped in between");
    let begin = std::time::Instant::now();
    while !said.exists() {
        assert!(begin.elapsed().as_secs() < 60, "the program does not end");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Stores at addresses that a formula determines, and writes the address of the table.
const SCATTERED: &str = r#"
    #include <stdio.h>
    static volatile long table[1 << 16];
    int main(int count, char **arguments) {
        FILE *said = fopen(arguments[1], "w");
        fprintf(said, "%lx", (long)table);
        fclose(said);
        unsigned long x = 1;
        for (int i = 0; i < 60000; i++) {
            x = x * 6364136223846793005ul + 1442695040888963407ul;
            table[x >> 48] = i;
        }
        return 0;
    }"#;

/// The QEMU of Debian 12 loads plugins. If there is no QEMU that loads plugins, this test does
/// nothing.
#[test]
fn another_qemu_records_by_its_plugin_interface() {
    let path = std::env::var_os("PATH").expect("a path");
    let mut paths = std::env::split_paths(&path).map(|folder| folder.join("qemu-x86_64"));
    let loads = |path: &PathBuf| {
        let said = Command::new(path).arg("-h").output();
        said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("-plugin"))
    };
    let Some(other) = paths.find(loads) else { return };
    let directory = directory("another");
    let program = compile(&directory, "scattered", "gcc", SCATTERED);
    let said = directory.join("said");
    let mut options = options(&program, &[said.to_str().expect("a path in UTF-8")]);
    for qemu in [None, Some(other)] {
        let is_ours = qemu.is_none();
        options.qemu = qemu;
        options.plugins = if is_ours { Vec::new() } else { vec![plugin()] };
        let whole = recorded(&directory, &options);
        let start = numbers(&said)[0];
        let mut x = 1u64;
        let next = |_| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            start + 8 * (x >> 48)
        };
        let expected: Vec<u64> = (0..60_000).map(next).collect();
        assert!(whole.addrs(Kind::Store, start, 8 << 16) == expected, "ours: {is_ours}");
    }
}
