//! Tests the manager `recorded`, which puts each page into the frame that the trace gives for it.

use addr::Kind;
use machine::{Machine, Results, RunOptions};
use trace::{Event, KnownSizes, Seen, Translation, When};

use crate::support::{Row, Rows, Stream};

const BASE: u64 = 0x4000_0000;

fn attempt_as(
    settings: &[&str],
    rows: &[Row],
    physical: fn(u64, u64) -> u64,
    source: fn(Rows) -> Rows,
) -> Result<Results, String> {
    let settings = [&["os.manager=recorded"][..], settings].concat();
    let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
    let machine = Machine::load("epyc-9005", &settings).map_err(|error| error.to_string())?;
    let run = |check: bool| {
        let options = RunOptions { check, progress: &mut |_| true };
        let mut rows = source(Rows::physical(rows.to_vec(), physical));
        machine.run(&mut rows, options).map_err(|error| error.to_string())
    };
    let (fast, checked) = (run(false)?, run(true)?);
    assert!(Results { checked: true, ..fast.clone() } == checked, "{settings:?}");
    Ok(fast)
}

fn attempt(
    settings: &[&str],
    rows: &[Row],
    physical: fn(u64, u64) -> u64,
) -> Result<Results, String> {
    attempt_as(settings, rows, physical, |rows| rows)
}

fn load(addr: u64) -> Row {
    Row::Access(Kind::Load, addr, 8)
}

fn pages(count: u64) -> Vec<Row> {
    (0..count).map(|page| load(BASE + page * 4096 + 8)).collect()
}

fn sizes(results: &Results) -> (u64, u64) {
    let of = |size| results.memory.pages_by_size.get(size).copied().unwrap_or(0);
    (of("4K"), of("2M"))
}

#[test]
fn pages_lie_where_the_trace_has_them() {
    // Caches are physically addressed, so lines of pages that share a frame hit.
    let rows = [pages(100), pages(100)].concat();
    let apart = attempt(&[], &rows, |_, addr| addr - BASE + (1 << 20)).unwrap();
    assert_eq!(apart.memory.mapped_bytes, 100 * 4096);
    let shared = attempt(&[], &rows, |_, addr| (1 << 20) + addr % 4096).unwrap();
    assert_eq!((sizes(&shared), shared.faults.first_touch), ((100, 0), 100));
    let reads = |results: &Results| results.caches[1].program.read_misses;
    assert!(reads(&shared) + 90 < reads(&apart), "{} {}", reads(&shared), reads(&apart));
}

#[test]
fn a_page_that_moves_is_found_where_it_went() {
    // From row 3 on, the frame of every page is 1 MiB higher. Each page that is touched again then
    // faults once more.
    let rows = [pages(3), pages(3), pages(3)].concat();
    let moved = |row: u64, addr: u64| addr - BASE + (1 << 20) + if row < 3 { 0 } else { 1 << 20 };
    let results = attempt(&[], &rows, moved).unwrap();
    assert_eq!(results.faults.first_touch, 6);
    assert_eq!(results.memory.mapped_bytes, 3 * 4096, "where they were is free again");
    assert_eq!(results.shootdowns.made, 3);
}

#[test]
fn large_pages_where_both_addresses_agree() {
    let large = ["os.page_size=2M"];
    let rows = [pages(600), pages(600)].concat();
    let agrees = attempt(&large, &rows, |_, addr| addr - BASE + (4 << 20)).unwrap();
    assert_eq!((sizes(&agrees), agrees.faults.first_touch), ((0, 2), 2));
    let off = attempt(&large, &rows, |_, addr| addr - BASE + (4 << 20) + 4096).unwrap();
    assert_eq!((sizes(&off), off.faults.first_touch), ((600, 0), 600));
    // The frame of page 7 is not adjacent to the others. The large page is split when an access
    // shows this.
    let one = |_, addr: u64| {
        let at = addr - BASE;
        if at >> 12 == 7 { (100 << 20) + at % 4096 } else { at + (4 << 20) }
    };
    let results = attempt(&large, &rows, one).unwrap();
    assert_eq!((sizes(&results), results.faults.first_touch), ((512, 1), 3));
}

#[test]
fn spaces_share_frames_and_free_them_with_their_last_page() {
    let space = |space| Row::Event(Event::Run { cpu: None, space });
    let gone =
        |pages: u64| Row::Event(Event::Munmap { addr: BASE, bytes: pages * 4096, result: 0 });
    let mut rows = vec![space(0)];
    rows.extend(pages(10));
    rows.push(space(1));
    rows.extend(pages(10));
    let physical = |_, addr: u64| addr - BASE + (1 << 20);
    let used = |rows: &[Row]| attempt(&[], rows, physical).unwrap().memory;
    assert_eq!(used(&rows).frames_used_bytes - used(&rows).table_bytes, 10 * 4096);
    rows.extend([gone(10), space(0), gone(4)]);
    assert_eq!(used(&rows).frames_used_bytes - used(&rows).table_bytes, 6 * 4096);
}

/// Pages are mapped, moved and unmapped at random. Runs with and without checks give equal results.
#[test]
fn random_lives() {
    for seed in 1..6 {
        let mut stream = Stream(seed);
        let mut rows = Vec::new();
        for _ in 0..4000 {
            let addr = BASE + stream.below(2000) * 4096;
            rows.push(match stream.below(60) {
                0 => Row::Event(Event::Munmap { addr, bytes: 20 * 4096, result: 0 }),
                1 => Row::Event(Event::Run { cpu: None, space: stream.below(3) as u32 }),
                2 => Row::Access(Kind::Store, addr + 4092, 8),
                _ => Row::Access(Kind::ALL[stream.below(3) as usize], addr + 16, 8),
            });
        }
        let wanders = |row: u64, addr: u64| addr - BASE + ((row / 1000 + 1) << 24);
        for settings in [&[][..], &["os.page_size=2M"], &["core.count=2", "page_table.levels=5"]] {
            attempt(settings, &rows, wanders).unwrap_or_else(|error| panic!("{seed}: {error}"));
        }
    }
}

/// An access may cross into pages for which no row of the trace has a frame. Such pages always get
/// a frame; if few frames are left, they share frames.
#[test]
fn accesses_cross_into_pages_that_no_row_has() {
    let (count, size) = (300, 3 * 4096);
    // Only every fourth page has rows. Each access extends into the pages behind it.
    let rows = |times: u64| -> Vec<Row> {
        let all = (0..times * count).map(|at| BASE + at % count * 4 * 4096 + 8);
        all.map(|addr| Row::Access(Kind::Load, addr, size)).collect()
    };
    let physical = |_, addr: u64| ((addr - BASE) / 4) & !0xfff | addr & 0xfff;
    let pages = |size: &str, rows: &[Row]| {
        let of = attempt(&[&format!("memory.size={size}")], rows, physical).unwrap();
        (of.memory.mapped_bytes >> 12, of.faults.first_touch, of.memory.frames_used_bytes >> 12)
    };
    // The last 40 of the 640 frames are for page tables and for pages without rows, which take 20
    // frames.
    let (mapped, faults, few) = pages("2560K", &rows(2));
    assert_eq!((mapped, faults), (320, 4 * count));
    assert!((320..330).contains(&few), "{few} frames are used");
    let (_, _, many) = pages("256M", &rows(2));
    assert!((1200..1215).contains(&many), "{many} frames are used");
    // These frames are freed when their pages are unmapped. Later rows of these pages give their
    // recorded frames.
    let gone = Event::Munmap { addr: BASE, bytes: count * 4 * 4096, result: 0 };
    let again = [rows(1), vec![Row::Event(gone)], rows(1)].concat();
    assert_eq!(pages("2560K", &again).2, few);
    let told = (0..4 * count).map(|page| load(BASE + page * 4096 + 8));
    let later = [rows(1), told.collect()].concat();
    let apart = |_, addr: u64| addr - BASE;
    let results = attempt(&["memory.size=8M"], &later, apart).unwrap();
    assert_eq!(results.memory.frames_used_bytes - results.memory.table_bytes, 4 * count * 4096);
}

/// Runs `rows` without physical addresses.
fn told(settings: &[&str], rows: &[Row]) -> Result<Results, String> {
    attempt(settings, rows, |_, _| 0)
}

fn found(seen: Seen, addr: u64, page_bytes: u64, pages: u64, paddr: Option<u64>) -> Row {
    let page = Translation::base(seen, addr);
    Row::Event(Event::Translation(Box::new(Translation { page_bytes, pages, paddr, ..page })))
}

fn snapshot() -> Row {
    Row::Event(Event::Snapshot { when: When::Interval, sizes: KnownSizes::Large })
}

#[test]
fn pages_have_the_sizes_that_events_say() {
    let (walk, shot) = (Seen::Walk, Seen::Snapshot);
    // Each large page is reported before its first access.
    let walks = (0..3).map(|block| found(walk, BASE + (block << 21), 2 << 20, 1, None));
    let rows = walks.chain(pages(1600)).collect::<Vec<_>>();
    let results = told(&[], &rows).unwrap();
    assert_eq!((sizes(&results), results.faults.first_touch), ((1600 - 3 * 512, 3), 67));
    // A later snapshot replaces mapped base pages by a large page. This causes no fault, and the
    // old frames are freed.
    let collapsed = vec![snapshot(), found(shot, BASE, 2 << 20, 1, None)];
    let rows = [vec![snapshot()], pages(600), collapsed, pages(600)].concat();
    let results = told(&[], &rows).unwrap();
    assert_eq!((sizes(&results), results.faults.first_touch), ((88, 1), 600));
    let used = results.memory.frames_used_bytes - results.memory.table_bytes;
    assert_eq!(used, (512 + 88) * 4096);
    // If a later snapshot splits a large page, its parts are mapped when they are touched.
    let split = [vec![found(walk, BASE, 2 << 20, 1, None)], pages(512)].concat();
    let again = [vec![snapshot(), found(shot, BASE, 4096, 512, None)], pages(100)].concat();
    let results = told(&[], &[split.clone(), again].concat()).unwrap();
    assert_eq!((sizes(&results), results.faults.first_touch), ((100, 0), 101));
    // Recorded sizes of unmapped pages are dropped.
    let gone = Row::Event(Event::Munmap { addr: BASE, bytes: 2 << 20, result: 0 });
    let results = told(&[], &[split, vec![gone], pages(7)].concat()).unwrap();
    assert_eq!((sizes(&results), results.faults.first_touch), ((7, 0), 8));
}

#[test]
fn a_page_has_the_size_that_the_next_snapshot_says() {
    let shot = Seen::Snapshot;
    let small = |block: u64| found(shot, BASE + (block << 21), 4096, 512, None);
    let large = |block: u64| found(shot, BASE + (block << 21), 2 << 20, 1, None);
    let touch = |block: u64| load(BASE + (block << 21));
    let space = |space| Row::Event(Event::Run { cpu: None, space });
    let rows = vec![
        // The first snapshot covers both spaces: in space 0, block 0 is large and block 1 is small.
        touch(0),
        touch(1),
        space(1),
        touch(0),
        space(0),
        snapshot(),
        large(0),
        small(1),
        // The second snapshot: block 1 has become large, and block 2 is large from its first touch
        // on.
        touch(2),
        touch(1),
        snapshot(),
        large(0),
        large(1),
        large(2),
        // No snapshot covers the accesses after the last snapshot.
        touch(3),
        space(1),
        snapshot(),
        small(0),
    ];
    let run = |source| attempt_as(&[], &rows, |_, _| 0, source).unwrap();
    let results = run(Rows::foretold);
    assert_eq!((sizes(&results), results.faults.first_touch), ((2, 3), 5));
    // A page is touched after one snapshot was taken, and the next snapshot has it.
    let late = vec![touch(0), snapshot(), small(5), snapshot(), large(0)];
    let results = attempt_as(&[], &late, |_, _| 0, Rows::foretold).unwrap();
    assert_eq!((sizes(&results), results.faults.first_touch), ((0, 1), 1));
    // If the trace is read only once, a page is small until the run has passed a snapshot. Without
    // any earlier event, such a run is refused.
    let error = attempt(&[], &rows, |_, _| 0).unwrap_err();
    assert!(error.contains("needs the physical address") && error.contains("--pages"), "{error}");
    let rows = [vec![snapshot()], rows].concat();
    let results = attempt(&[], &rows, |_, _| 0).unwrap();
    assert_eq!((sizes(&results), results.faults.first_touch), ((2, 3), 5));
}

#[test]
fn pages_lie_in_the_frames_that_events_say() {
    let walk = Seen::Walk;
    let at = |frame| found(walk, BASE, 2 << 20, 1, Some(frame));
    let touch = |memory: &str, frame| {
        let rows = [vec![at(frame)], pages(512)].concat();
        told(&[&format!("memory.size={memory}")], &rows)
    };
    let results = touch("64M", 16 << 20).unwrap();
    assert_eq!((sizes(&results), results.faults.first_touch), ((0, 1), 1));
    let error = touch("64M", 128 << 20).unwrap_err();
    assert!(error.contains("set memory.size=1G"), "{error}");
    // The frames belong to another page already, so base pages are mapped, which can share frames.
    let other = [found(walk, BASE + (8 << 20), 4096, 1, Some(16 << 20)), load(BASE + (8 << 20))];
    let rows = [other.to_vec(), vec![at(16 << 20)], pages(512)].concat();
    let results = told(&["memory.size=64M"], &rows).unwrap();
    assert_eq!((sizes(&results), results.faults.first_touch), ((513, 0), 513));
    // If rows contradict an event, the frames in the rows are used.
    let rows = [vec![at(16 << 20)], pages(3)].concat();
    let results = attempt(&[], &rows, |_, addr| addr - BASE + (32 << 20)).unwrap();
    assert_eq!(sizes(&results), (0, 1));
}

/// Random walks, snapshots and calls. The page sizes agree with a simple model, as far as the
/// counts at the end show, and runs with and without checks give equal results.
#[test]
fn random_translations() {
    for seed in 1..6 {
        println!("seed {seed}");
        let mut stream = Stream(seed);
        let mut rows = vec![found(Seen::Walk, BASE, 4096, 1, None)];
        // For each block of 2M, whether it is a large page; for each base page, whether it is
        // mapped.
        let (mut large, mut mapped) = ([false; 8], [[false; 512]; 8]);
        for _ in 0..6000 {
            let (block, page) = (stream.below(8) as usize, stream.below(512) as usize);
            let addr = BASE + ((block as u64) << 21);
            match stream.below(60) {
                0 => {
                    rows.push(Row::Event(Event::Munmap { addr, bytes: 2 << 20, result: 0 }));
                    (large[block], mapped[block]) = (false, [false; 512]);
                }
                1 => {
                    let seen = if page % 2 == 0 { Seen::Walk } else { Seen::Snapshot };
                    rows.push(found(seen, addr, 2 << 20, 1, None));
                    let any = mapped[block].contains(&true);
                    large[block] = true;
                    mapped[block] = [any; 512];
                }
                2 => {
                    rows.push(found(Seen::Walk, addr, 4096, 512, None));
                    if large[block] {
                        mapped[block] = [false; 512];
                    }
                    large[block] = false;
                }
                3 => rows.push(snapshot()),
                _ => {
                    rows.push(load(addr + ((page as u64) << 12)));
                    match large[block] {
                        true => mapped[block] = [true; 512],
                        false => mapped[block][page] = true,
                    }
                }
            }
        }
        let results = told(&[], &rows).unwrap();
        let is = |block: &usize| large[*block] && mapped[*block][0];
        let blocks = (0..8).filter(is).count() as u64;
        let small = (0..8).filter(|block| !large[*block]);
        let small: usize = small.map(|block| mapped[block].iter().filter(|is| **is).count()).sum();
        assert_eq!(sizes(&results), (small as u64, blocks), "{seed}");
    }
}

#[test]
fn what_it_needs_and_does_not_get_is_told() {
    let fails = |settings: &[&str], physical| attempt(settings, &pages(3), physical).unwrap_err();
    let error = fails(&[], |row, addr| if row < 2 { addr } else { 0 });
    assert!(
        error.starts_with("access 2:") && error.contains("needs the physical address"),
        "{error}"
    );
    let error = fails(&[], |_, addr| addr + 8);
    assert!(error.contains("must have equal offsets in a page of 4K"), "{error}");
    let error = fails(&["memory.size=64M"], |_, addr| addr);
    assert!(error.contains("memory of 64 MiB") && error.contains("memory.size=2G"), "{error}");
    assert!(attempt(&["memory.size=2G"], &pages(3), |_, addr| addr).is_ok());
    let error = fails(&["memory.aged={free=0.5,wired=0,seed=1}"], |_, addr| addr);
    assert!(error.contains("memory.aged"), "{error}");
    let options = RunOptions { check: false, progress: &mut |_| true };
    let machine = Machine::load("epyc-9005", &["os.manager=recorded".to_owned()]).unwrap();
    let error = machine.run(&mut Rows::new(pages(1)), options).unwrap_err().to_string();
    assert!(error.contains("needs the physical address"), "{error}");
    let tlb_only = Machine::load("tlb-only", &["os.manager=recorded".to_owned()]);
    assert!(tlb_only.unwrap_err().to_string().contains("first-touch"));
}
