//! Code that the tests of this crate share: a source of given accesses, and a seeded stream of
//! numbers.

// Each test file is a program of its own and uses a part of this.
#![allow(dead_code)]

use addr::Kind;
use machine::{Machine, Results, RunOptions};
use trace::{Arch, Batch, Error, Event, Filter, Header, Meta, Origin, Process, Source};

/// Settings of every page-table format that a manager with base pages supports.
pub(crate) const TABLES: [&[&str]; 13] = [
    &["page_table.levels=4"],
    &["page_table.levels=5"],
    &["page_table.format=flattened"],
    &["page_table.format=mpt"],
    &["page_table.format=linear"],
    &["page_table.format=guarded", "page_table.nodes=16"],
    &["page_table.format=guarded-adaptive"],
    &["page_table.levels=4", "page_table.software_tlb=8K"],
    &["page_table.format=hashed"],
    &["page_table.format=clustered"],
    &["page_table.format=inverted"],
    &["page_table.format=tsb", "page_table.table=8K"],
    &["page_table.format=powerpc"],
];

/// One row of a test's trace.
#[derive(Clone, Debug)]
pub(crate) enum Row {
    /// An access: kind, address and bytes.
    Access(Kind, u64, u32),
    /// An event before the next access.
    Event(Event),
    /// The rows that follow are from this thread. Before the first such row, the thread is 0.
    Thread(u32),
}

/// A source that returns rows in small batches, so that batches end at many places.
pub(crate) struct Rows {
    header: Header,
    rows: Vec<Row>,
    thread: u32,
    next: usize,
    batch_rows: usize,
    position: u64,
    /// A function that computes the physical address of a row from its number and address, if the
    /// rows have physical addresses.
    physical: Option<fn(u64, u64) -> u64>,
    processes: Vec<Process>,
    /// Whether the source can be read twice.
    again: bool,
}

impl Rows {
    pub(crate) fn new(rows: Vec<Row>) -> Rows {
        let header = Header {
            producer: "test".to_owned(),
            command: Vec::new(),
            arch: Arch::Unknown,
            fetches: true,
            filter: Filter::None,
            page_bytes: 4096,
            notes: Vec::new(),
            kernel_from: None,
        };
        Rows {
            header,
            rows,
            thread: 0,
            next: 0,
            batch_rows: 97,
            position: 0,
            physical: None,
            processes: Vec::new(),
            again: false,
        }
    }
}

impl Rows {
    /// Rows with physical addresses.
    pub(crate) fn physical(rows: Vec<Row>, physical: fn(u64, u64) -> u64) -> Rows {
        Rows { physical: Some(physical), ..Rows::new(rows) }
    }

    /// Rows that can be read twice.
    pub(crate) fn foretold(self) -> Rows {
        Rows { again: true, ..self }
    }

    /// Rows of the given processes.
    pub(crate) fn of(self, processes: Vec<Process>) -> Rows {
        Rows { processes, ..self }
    }
}

/// Process `number`, which the process before it has forked. Its process id is 100 plus `number`.
pub(crate) fn process(number: u32) -> Process {
    Process {
        number,
        pid: 100 + number,
        parent: number.checked_sub(1),
        parent_accesses: None,
        shares_space: false,
        began_ns: 0,
        programs: Vec::new(),
        accesses: 0,
        instructions: 0,
    }
}

impl Source for Rows {
    fn header(&self) -> &Header {
        &self.header
    }

    fn processes(&self) -> &[Process] {
        &self.processes
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        batch.first = self.position;
        while self.next < self.rows.len() && batch.len() < self.batch_rows {
            match &self.rows[self.next] {
                Row::Access(kind, addr, bytes) => {
                    batch.push(self.thread, *addr, Meta::new(*kind, *bytes, 1));
                }
                Row::Event(event) => batch.push_event(self.thread, event.clone()),
                Row::Thread(thread) => self.thread = *thread,
            }
            self.next += 1;
        }
        if let Some(physical) = self.physical {
            let rows = (self.position..).zip(&batch.addr);
            batch.paddr = rows.map(|(row, &addr)| physical(row, addr)).collect();
        }
        self.position += batch.len() as u64;
        Ok(!batch.is_empty())
    }

    fn foretold(&self) -> Option<Box<dyn Source + Send>> {
        self.again.then(|| Box::new(Rows::new(self.rows.clone())) as Box<dyn Source + Send>)
    }
}

/// The address of the heap in [`heap_program`].
pub(crate) const HEAP: u64 = 0x4000_0000;
const PAGE: u64 = 4096;

/// A mapping of anonymous memory.
pub(crate) fn mapping(start: u64, bytes: u64) -> Row {
    let origin = Origin::Heap;
    Row::Event(Event::Mapping { start, bytes, rights: 3, origin, offset: None, file: None })
}

/// Accesses to a heap of `pages` pages: first to all pages in order, then at random. If `moving`,
/// parts of the heap are unmapped or protected, or another process runs.
pub(crate) fn heap_program(seed: u64, pages: u64, accesses: u64, moving: bool) -> Vec<Row> {
    let mut stream = Stream(seed);
    let mut rows = vec![mapping(HEAP, pages * PAGE)];
    rows.extend((0..pages).map(|page| Row::Access(Kind::Store, HEAP + page * PAGE, 8)));
    for access in 1..=accesses {
        if moving && access % 400 == 0 {
            let addr = HEAP + stream.below(pages) * PAGE;
            let bytes = (1 + stream.below(9)) * PAGE;
            rows.push(Row::Event(match stream.below(3) {
                0 => Event::Munmap { addr, bytes, result: 0 },
                1 => Event::Mprotect { addr, bytes, prot: 1, result: 0 },
                _ => Event::Mprotect { addr, bytes, prot: 3, result: 0 },
            }));
        }
        if moving && access % 1500 == 0 {
            let space = (access / 1500 % 2) as u32;
            rows.push(Row::Event(Event::Run { cpu: None, space }));
            if access == 1500 {
                rows.push(mapping(HEAP, pages * PAGE));
            }
        }
        let kind = [Kind::Load, Kind::Load, Kind::Store][stream.below(3) as usize];
        let at = stream.below(pages * PAGE - 8);
        // Some accesses cross into the next page, and so into the next block.
        let crosses = access % 40 == 0 && at < (pages - 1) * PAGE;
        rows.push(Row::Access(kind, HEAP + if crosses { at | 0xffc } else { at & !7 }, 8));
    }
    rows
}

/// Runs `rows` on the machine `name` with `settings`, with and without checks of every translation.
/// Both runs must give equal counts.
pub(crate) fn run(name: &str, settings: &[&str], rows: &[Row]) -> Results {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    let machine = Machine::load(name, &settings).unwrap_or_else(|error| panic!("{error}"));
    let run = |check: bool| {
        let options = RunOptions { check, progress: &mut |_| true };
        machine
            .run(&mut Rows::new(rows.to_vec()), options)
            .unwrap_or_else(|error| panic!("{name} {settings:?}: {error}"))
    };
    let (fast, checked) = (run(false), run(true));
    assert_eq!(Results { checked: true, ..fast.clone() }, checked, "{name} {settings:?}");
    fast
}

/// A small pseudo-random number generator for test streams only.
pub(crate) struct Stream(pub(crate) u64);

impl Stream {
    pub(crate) fn next(&mut self) -> u64 {
        assert_ne!(self.0, 0, "seeds begin with 1: all numbers from 0 are 0");
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
