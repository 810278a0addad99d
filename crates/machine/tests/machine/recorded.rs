//! The manager `recorded`: pages lie where the trace's physical addresses say.

use addr::Kind;
use machine::{Machine, Results, RunOptions};
use trace::Event;

use crate::support::{Row, Rows, Stream};

const BASE: u64 = 0x4000_0000;

fn attempt(
    settings: &[&str],
    rows: &[Row],
    physical: fn(u64, u64) -> u64,
) -> Result<Results, String> {
    let settings = [&["os.manager=recorded"][..], settings].concat();
    let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
    let machine = Machine::load("epyc-9005", &settings).map_err(|error| error.to_string())?;
    let run = |check: bool| {
        let options = RunOptions { check, progress: &mut |_| true };
        let mut rows = Rows::physical(rows.to_vec(), physical);
        machine.run(&mut rows, options).map_err(|error| error.to_string())
    };
    let (fast, checked) = (run(false)?, run(true)?);
    assert!(Results { checked: true, ..fast.clone() } == checked, "{settings:?}");
    Ok(fast)
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
    // Caches are physical: lines of pages that share frames are found again.
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
    // Row 3 on has every page 1 MiB higher: one fault more for each that is touched again.
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
    // Page 7 lies elsewhere: the page that was taken for large is made small when that is seen.
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

/// Pages move, come and go at random; both ways of running agree access by access.
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

/// An access that crosses into a page of which no row has a frame finds one, however many there are: with few frames left
/// for them these pages share frames.
#[test]
fn accesses_cross_into_pages_that_no_row_has() {
    let (count, size) = (300, 3 * 4096);
    // Every fourth page has rows; an access goes on in the three behind it.
    let rows = |times: u64| -> Vec<Row> {
        let all = (0..times * count).map(|at| BASE + at % count * 4 * 4096 + 8);
        all.map(|addr| Row::Access(Kind::Load, addr, size)).collect()
    };
    let physical = |_, addr: u64| ((addr - BASE) / 4) & !0xfff | addr & 0xfff;
    let pages = |size: &str, rows: &[Row]| {
        let of = attempt(&[&format!("memory.size={size}")], rows, physical).unwrap();
        (of.memory.mapped_bytes >> 12, of.faults.first_touch, of.memory.frames_used_bytes >> 12)
    };
    // Of 640 frames the last 40 are for tables and for such pages, which take 20.
    let (mapped, faults, few) = pages("2560K", &rows(2));
    assert_eq!((mapped, faults), (320, 4 * count));
    assert!((320..330).contains(&few), "{few} frames are used");
    let (_, _, many) = pages("256M", &rows(2));
    assert!((1200..1215).contains(&many), "{many} frames are used");
    // They go with their pages, and rows that come later say where the pages are.
    let gone = Event::Munmap { addr: BASE, bytes: count * 4 * 4096, result: 0 };
    let again = [rows(1), vec![Row::Event(gone)], rows(1)].concat();
    assert_eq!(pages("2560K", &again).2, few);
    let told = (0..4 * count).map(|page| load(BASE + page * 4096 + 8));
    let later = [rows(1), told.collect()].concat();
    let apart = |_, addr: u64| addr - BASE;
    let results = attempt(&["memory.size=8M"], &later, apart).unwrap();
    assert_eq!(results.memory.frames_used_bytes - results.memory.table_bytes, 4 * count * 4096);
}

#[test]
fn what_it_needs_and_does_not_get_is_told() {
    let fails = |settings: &[&str], physical| attempt(settings, &pages(3), physical).unwrap_err();
    let error = fails(&[], |row, addr| if row < 2 { addr } else { 0 });
    assert!(error.starts_with("access 2:") && error.contains("no physical address"), "{error}");
    let error = fails(&[], |_, addr| addr + 8);
    assert!(error.contains("differ within a page of 4K"), "{error}");
    let error = fails(&["memory.size=64M"], |_, addr| addr);
    assert!(error.contains("memory of 64 MiB") && error.contains("memory.size=2G"), "{error}");
    assert!(attempt(&["memory.size=2G"], &pages(3), |_, addr| addr).is_ok());
    let error = fails(&["memory.aged={free=0.5,wired=0,seed=1}"], |_, addr| addr);
    assert!(error.contains("memory.aged"), "{error}");
    let options = RunOptions { check: false, progress: &mut |_| true };
    let machine = Machine::load("epyc-9005", &["os.manager=recorded".to_owned()]).unwrap();
    let error = machine.run(&mut Rows::new(pages(1)), options).unwrap_err().to_string();
    assert!(error.contains("no physical address"), "{error}");
    let tlb_only = Machine::load("tlb-only", &["os.manager=recorded".to_owned()]);
    assert!(tlb_only.unwrap_err().to_string().contains("first-touch"));
}
