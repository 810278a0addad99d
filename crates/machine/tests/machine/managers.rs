//! Tests every manager with every page table, and compares the first touches with a set of touched
//! pages.

use std::collections::BTreeSet;

use addr::Kind;
use machine::{Machine, Results, RunOptions};
use trace::Event;

use crate::support::{Row, Rows, Stream, TABLES};

const BASE: u64 = 0x4000_0000;
/// The size of memory, which includes the page tables.
const MEMORY: &str = "memory.size=256M";
const MANAGERS: [&str; 4] = ["first-touch", "base", "recorded", "irix"];

/// The expected results of a stream.
#[derive(Default)]
struct Model {
    /// Pages that have been touched since they were mapped, each with its space.
    touched: BTreeSet<(u32, u64)>,
    faults: u64,
}

impl Model {
    fn touch(&mut self, space: u32, page: u64) {
        self.faults += u64::from(self.touched.insert((space, page)));
    }

    fn forget(&mut self, of: u32, first: u64, count: u64) {
        self.touched
            .retain(|&(space, page)| space != of || !(first..first + count).contains(&page));
    }
}

/// Private memory of three spaces that is mapped and unmapped at random: 300 pages, whose entries
/// are in three tables.
fn life(seed: u64) -> (Vec<Row>, Model) {
    let mut stream = Stream(seed);
    let (mut rows, mut model, mut current) = (Vec::new(), Model::default(), 0);
    for space in (0..3).rev() {
        rows.push(Row::Event(Event::Run { cpu: None, space }));
        rows.push(Row::Event(mmap(0, 300)));
    }
    for _ in 0..2500 {
        let first = stream.below(300);
        let count = 1 + stream.below((300 - first).min(40));
        let (addr, bytes) = (BASE + first * 4096, count * 4096);
        match stream.below(80) {
            0 => {
                rows.push(Row::Event(Event::Munmap { addr, bytes, result: 0 }));
                rows.push(Row::Event(mmap(first, count)));
                model.forget(current, first, count);
            }
            1 => {
                rows.push(Row::Event(mmap(first, count)));
                model.forget(current, first, count);
            }
            2 => {
                rows.push(Row::Event(Event::Madvise { addr, bytes, advice: 4, result: 0 }));
                model.forget(current, first, count);
            }
            3..6 => {
                current = stream.below(3) as u32;
                rows.push(Row::Event(Event::Run { cpu: None, space: current }));
            }
            _ => {
                let kind = Kind::ALL[stream.below(3) as usize];
                rows.push(Row::Access(kind, addr + 8 * stream.below(500), 8));
                model.touch(current, first);
            }
        }
    }
    (rows, model)
}

fn mmap(page: u64, pages: u64) -> Event {
    Event::Mmap {
        addr: BASE + page * 4096,
        bytes: pages * 4096,
        prot: 7,
        flags: 0x22,
        fd: -1,
        offset: 0,
        path: None,
        file: None,
        result: (BASE + page * 4096) as i64,
    }
}

/// Runs with and without checks, which must give equal results.
fn run(settings: &[&str], rows: &[Row]) -> Result<Results, String> {
    let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
    let machine = Machine::load("r4700", &settings).map_err(|error| error.to_string())?;
    let run = |check| {
        let mut rows = Rows::physical(rows.to_vec(), |_, addr| addr - BASE + (16 << 20));
        let options = RunOptions { check, progress: &mut |_| true };
        machine.run(&mut rows, options).map_err(|error| error.to_string())
    };
    let (fast, checked) = (run(false)?, run(true)?);
    assert!(Results { checked: true, ..fast.clone() } == checked, "{settings:?}");
    Ok(fast)
}

#[test]
fn every_manager_over_every_page_table() {
    let sizes: Vec<String> = (0..=18).map(|order| format!("\"{}K\"", 4u64 << order)).collect();
    let every_size = format!("tlb.l1.page_sizes=[{}]", sizes.join(", "));
    for (seed, table) in (1..).zip(TABLES) {
        let (rows, model) = life(seed);
        for manager in MANAGERS {
            println!("{table:?}, {manager}, seed {seed}");
            let own = format!("os.manager={manager}");
            let small = [
                "page_table.format=x86-64",
                "tlb.l1.entries=4",
                "tlb.l1.paired=false",
                &every_size,
            ];
            let settings = [&small[..], table, &[MEMORY, &own]].concat();
            let results = run(&settings, &rows).unwrap();
            assert_eq!(results.faults.first_touch, model.faults);
            let memory = results.memory;
            // Under `recorded`, spaces share a frame if the trace gives the same physical address
            // for their pages.
            let frames = match manager {
                "recorded" => {
                    model.touched.iter().map(|(_, page)| page).collect::<BTreeSet<_>>().len()
                }
                _ => model.touched.len(),
            };
            assert_eq!(memory.frames_used_bytes - memory.table_bytes, frames as u64 * 4096);
        }
    }
}
