//! Traces of whole systems: physical addresses from their page walks, and their export as drmemtrace, against a
//! model that has the frame of each page of each space.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use addr::Kind;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use trace::{
    Address, Arch, Batch, Event, Filter, Header, KERNEL, Op, Options, Seen, Shape, Sink, Source,
    Translation, Writer, export, import,
};

const SEED: u64 = 0x6803;
const KERNEL_FROM: u64 = 1 << 63;
const KERNEL_PAGES: u64 = 0xffff_8880_0020_0000;
const USER_PAGES: u64 = 0x40_0000;
/// The pages of each half that are used: two of 2M.
const PAGES: u64 = 1024;
const LARGE: u64 = 512;
const BLOCKS: usize = 20_000;

/// A row: kind, address, bytes, physical address (0: unknown), and the space that it is of.
type Row = (Kind, u64, u32, u64, u32);

/// A block that has run.
struct Block {
    thread: u32,
    tid: u64,
    space: u32,
    /// The fetch, and the physical address of the next page, if the block crosses into it.
    fetch: Row,
    beyond: u64,
    instructions: u64,
    data: Vec<Row>,
}

struct Random(Xoshiro256PlusPlus);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    fn addr(&mut self) -> u64 {
        let half = if self.below(2) == 0 { KERNEL_PAGES } else { USER_PAGES };
        half + (self.below(PAGES) << 12) + self.below(4096)
    }
}

fn header(kernel_from: Option<u64>) -> Header {
    Header {
        producer: "test".to_owned(),
        command: vec!["ls".to_owned()],
        arch: Arch::X86_64,
        fetches: true,
        filter: Filter::None,
        page_bytes: 4096,
        notes: Vec::new(),
        kernel_from,
    }
}

/// The frames of pages by space and page number.
type Frames = HashMap<(u32, u64), u64>;

fn of(space: u32, addr: u64) -> u32 {
    if addr >= KERNEL_FROM { KERNEL } else { space }
}

fn paddr(frames: &Frames, space: u32, addr: u64) -> u64 {
    frames.get(&(of(space, addr), addr >> 12)).map_or(0, |frame| frame + (addr & 0xfff))
}

/// Maps the page of `addr` anew.
fn walk(
    random: &mut Random,
    frames: &mut Frames,
    space: u32,
    addr: u64,
    out: &mut Writer,
    cpu: u32,
) {
    let pages = if random.below(50) == 0 { LARGE } else { 1 };
    let (first, bytes) = (addr >> 12 & !(pages - 1), pages << 12);
    let frame = (1 + random.below(1 << 20)) * bytes;
    for page in 0..pages {
        frames.insert((of(space, addr), first + page), frame + (page << 12));
    }
    let found = Translation {
        page_bytes: bytes,
        paddr: Some(frame),
        ..Translation::base(Seen::Walk, first << 12)
    };
    out.event(cpu, Event::Translation(Box::new(found))).unwrap();
}

/// Writes a random recording of two processors, and returns its blocks.
fn recorded(path: &Path, random: &mut Random) -> Vec<Block> {
    let options = Options { overwrite: true, chunk_accesses: 5000, ..Options::default() };
    let mut out = Writer::create(path, header(Some(KERNEL_FROM)), options).unwrap();
    let (mut frames, mut blocks) = (Frames::new(), Vec::new());
    let (mut spaces, mut tids, mut last) = ([1, 2], [1, 1], None);
    let mut cpu = 0;
    for _ in 0..BLOCKS {
        if random.below(20) == 0 {
            cpu = random.below(2) as usize;
        }
        if random.below(40) == 0 {
            spaces[cpu] = 1 + random.below(4) as u32;
        }
        let (thread, space) = (cpu as u32, spaces[cpu]);
        if last != Some((thread, space)) {
            last = Some((thread, space));
            out.event(thread, Event::Process { number: space }).unwrap();
            out.event(thread, Event::Run { cpu: Some(thread), space }).unwrap();
        }
        if random.below(40) == 0 {
            tids[cpu] = [0, 1, 101, 102, 103][random.below(5) as usize];
            let (pid, name) = (tids[cpu] as u32, "task".to_owned());
            out.event(thread, Event::Task { pid, tgid: pid, name }).unwrap();
        }
        if random.below(30) == 0 {
            let event = Event::Interrupt { vector: 14, device: false, pc: 7, error: 0, addr: None };
            out.event(thread, event).unwrap();
        }
        let pc = random.addr();
        let bytes = 1 + random.below(60) as u32;
        // Now and then a string instruction, with more iterations than bytes.
        let most = if random.below(10) == 0 { 80 } else { u64::from(bytes) };
        let mut ops = Vec::new();
        let mut addrs = Vec::new();
        let mut instruction = 0;
        for _ in 0..random.below(5) {
            instruction += random.below(3) as u16;
            let kind = if random.below(2) == 0 { Kind::Load } else { Kind::Store };
            let size = 1 << random.below(4);
            ops.push(Op { instruction, kind, size, address: Address::Said });
            addrs.push(random.addr());
        }
        let needed = u64::from(instruction) + 1;
        let instructions = (1 + random.below(most)).max(needed);
        // Most pages are walked before they are used. Few are never walked.
        for &addr in addrs.iter().chain([&pc, &(pc + u64::from(bytes) - 1)]) {
            let is_known = frames.contains_key(&(of(space, addr), addr >> 12));
            if random.below(if is_known { 100 } else { 10 }) != 1 && is_known {
                continue;
            }
            if random.below(4) != 0 {
                walk(random, &mut frames, space, addr, &mut out, thread);
            }
        }
        let row =
            |kind, addr, size| (kind, addr, size, paddr(&frames, space, addr), of(space, addr));
        let after = ((pc >> 12) + 1) << 12;
        let crosses = (pc + u64::from(bytes) - 1) >> 12 != pc >> 12;
        blocks.push(Block {
            thread,
            tid: tids[cpu],
            space,
            fetch: row(Kind::Fetch, pc, bytes),
            // The exporter knows the space of the block's first byte.
            beyond: if crosses { paddr(&frames, space, after) } else { 0 },
            // Of more instructions than bytes, only those are written that accesses show.
            instructions: instructions.min(needed.max(u64::from(bytes))),
            data: ops.iter().zip(&addrs).map(|(op, &addr)| row(op.kind, addr, op.size)).collect(),
        });
        let shape = Shape { pc, bytes, instructions: instructions as u32, fetch: true, ops };
        let shape = out.shape(&shape);
        out.thread(thread);
        out.execute(shape, &addrs).unwrap();
    }
    out.finish().unwrap();
    blocks
}

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn located() -> import::Options {
    import::Options { physical: true, ..import::Options::default() }
}

/// All rows of a source, each with the space that runs.
fn rows(source: &mut dyn Source) -> Vec<Row> {
    let (mut rows, mut batch, mut space) = (Vec::new(), Batch::default(), 0);
    while source.next(&mut batch).unwrap() {
        let mut events = batch.events.iter().peekable();
        for at in 0..batch.len() {
            while let Some(placed) = events.next_if(|placed| placed.at as usize <= at) {
                if let Event::Run { space: next, .. } = placed.event {
                    space = next;
                }
            }
            let (meta, paddr) = (batch.meta[at], batch.paddr.get(at).copied().unwrap_or(0));
            rows.push((meta.kind(), batch.addr[at], meta.size(), paddr, space));
        }
        for placed in events {
            if let Event::Run { space: next, .. } = placed.event {
                space = next;
            }
        }
    }
    rows
}

#[test]
fn accesses_have_the_physical_addresses_of_their_walks() {
    println!("seed {SEED:#x}");
    let mut random = Random(Xoshiro256PlusPlus::seed_from_u64(SEED));
    let path = folder("located").join("system.pwt");
    let blocks = recorded(&path, &mut random);
    let mut source = trace::open(path.to_str().unwrap(), &located()).unwrap();
    let found = rows(&mut *source);
    let expected: Vec<Row> = blocks
        .iter()
        .flat_map(|block| [block.fetch].into_iter().chain(block.data.clone()))
        .collect();
    let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(differs.map(|at| (at, found[at], expected[at])), None);
    assert_eq!(found.len(), expected.len());
    let unknown = expected.iter().filter(|row| row.3 == 0).count();
    assert!(unknown > 10, "{unknown}");
    let told = format!("{unknown} accesses have no recorded translation");
    assert!(source.warnings()[0].starts_with(&told), "{:?}", source.warnings());
    // A window begins with the walks before it.
    let skip = 1234;
    let bounds = trace::Bounds { skip, ..trace::Bounds::default() };
    let options = import::Options { bounds, ..located() };
    let mut source = trace::open(path.to_str().unwrap(), &options).unwrap();
    assert!(rows(&mut *source)[..] == expected[skip as usize..]);
}

#[test]
fn a_trace_without_walks_has_no_physical_addresses() {
    let path = folder("no-walks").join("plain.pwt");
    let mut out = Writer::create(&path, header(None), Options::default()).unwrap();
    let shape =
        out.shape(&Shape { pc: 64, bytes: 4, instructions: 1, fetch: true, ops: Vec::new() });
    out.thread(0);
    out.execute(shape, &[]).unwrap();
    out.finish().unwrap();
    let error = trace::open(path.to_str().unwrap(), &located()).err().unwrap().to_string();
    assert!(error.contains("no page walks") && error.contains("record --system"), "{error}");
    // Of a source that is not stored, that is known only at the end.
    let generated = "generate:uniform,size=1M,accesses=1000";
    let mut source = trace::open(generated, &located()).unwrap();
    let mut batch = Batch::default();
    let ended = loop {
        match source.next(&mut batch) {
            Ok(true) => {}
            ended => break ended,
        }
    };
    assert_eq!(ended.unwrap_err().to_string(), error);
}

/// What a reader of DynamoRIO's records knows of one record: whether it is an instruction, load or store, its address
/// and bytes, its process and thread, and its physical address (0: unknown), if pages are kept by file and by process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Record {
    kind: u16,
    addr: u64,
    bytes: u32,
    pid: u64,
    tid: u64,
    paddr: [u64; 2],
}

/// Decodes a file by itself: the file type, the records, and the number of interrupts.
fn decoded(bytes: &[u8]) -> (u64, Vec<Record>, usize) {
    let (mut records, mut filetype, mut interrupts) = (Vec::new(), 0, 0);
    let (mut pid, mut tid, mut phys) = (0, 0, 0);
    let (mut by_file, mut by_process) = (HashMap::new(), HashMap::new());
    for record in bytes.chunks(12) {
        let kind = u16::from_le_bytes(record[..2].try_into().unwrap());
        let size = u16::from_le_bytes(record[2..4].try_into().unwrap());
        let addr = u64::from_le_bytes(record[4..].try_into().unwrap());
        let page = addr >> 12;
        match (kind, size) {
            (22, _) => (tid, pid) = (addr, u64::MAX),
            (24, _) => pid = addr,
            (28, 9) => filetype = addr,
            (28, 15) => phys = addr,
            (28, 17) => {
                assert_eq!((phys & 0xfff, addr & 0xfff), (0, 0));
                by_file.insert(page, phys);
                by_process.insert((pid, page), phys);
            }
            (28, 16) => {
                by_file.remove(&page);
                by_process.remove(&(pid, page));
            }
            (28, 43) => interrupts += 1,
            (0 | 1 | 10 | 29 | 48 | 49, _) => {
                let found = [by_file.get(&page), by_process.get(&(pid, page))];
                let paddr = found.map(|frame| frame.map_or(0, |frame| frame + (addr & 0xfff)));
                records.push(Record { kind, addr, bytes: u32::from(size), pid, tid, paddr });
            }
            (23 | 25 | 26, _) | (28, 2 | 3 | 10 | 12 | 18) => {}
            other => panic!("{other:?}"),
        }
    }
    (filetype, records, interrupts)
}

/// Compares the records of one thread with its blocks.
fn compare(records: &[Record], blocks: &[&Block]) {
    let mut records = records.iter().peekable();
    for block in blocks {
        let (_, pc, bytes, at, _) = block.fetch;
        let (mut next, mut data) = (pc, block.data.iter());
        for instruction in 0..block.instructions {
            let record = records.next().unwrap();
            let count = u128::from(block.instructions);
            let offset = u128::from(bytes) * u128::from(instruction) / count;
            assert_eq!(record.addr, pc + offset as u64);
            assert_eq!((record.pid, record.tid), (u64::from(block.space), block.tid));
            let is_first = record.addr >> 12 == pc >> 12;
            let expected = match (is_first, at, block.beyond) {
                (true, 0, _) | (false, _, 0) => 0,
                (true, at, _) => at + (record.addr - pc),
                (false, _, beyond) => beyond + (record.addr & 0xfff),
            };
            assert_eq!(record.paddr, [expected; 2], "{record:x?}");
            if record.kind != 29 {
                assert_eq!(record.addr, next);
                next += u64::from(record.bytes);
            }
            while let Some(access) = records.next_if(|record| record.kind < 2) {
                let &(kind, addr, bytes, paddr, _) = data.next().unwrap();
                let kind = if kind == Kind::Store { 1 } else { 0 };
                let (pid, tid) = (u64::from(block.space), block.tid);
                let expected = Record { kind, addr, bytes, pid, tid, paddr: [paddr; 2] };
                assert_eq!(*access, expected);
            }
        }
        assert_eq!((next, data.next()), (pc + u64::from(bytes), None));
    }
    assert_eq!(records.next(), None);
}

/// Rows with the pieces of blocks joined: an importer ends a block at the end of a batch. Spaces are compared by half.
fn joined(rows: Vec<Row>) -> Vec<Row> {
    let mut joined: Vec<Row> = Vec::new();
    let mut block: Option<usize> = None;
    for row in rows {
        let of = if row.4 == KERNEL { KERNEL } else { 0 };
        match (row.0, block.map(|at| &mut joined[at])) {
            (Kind::Fetch, Some(before)) if before.1 + u64::from(before.2) == row.1 => {
                before.2 += row.2;
            }
            (kind, _) => {
                if kind == Kind::Fetch {
                    block = Some(joined.len());
                }
                joined.push((kind, row.1, row.2, row.3, of));
            }
        }
    }
    joined
}

#[test]
fn drmemtrace_has_every_access_of_a_system_with_its_physical_address() {
    println!("seed {SEED:#x}");
    let mut random = Random(Xoshiro256PlusPlus::seed_from_u64(SEED + 1));
    let folder = folder("system");
    let path = folder.join("system.pwt");
    let blocks = recorded(&path, &mut random);
    let exported = folder.join("exported");
    fs::create_dir(&exported).unwrap();
    let spec = path.to_str().unwrap();
    for thread in 0..2 {
        let to = exported.join(format!("{thread}.trace"));
        let options = export::Options { thread: Some(thread), ..export::Options::default() };
        let mut source = trace::open(spec, &located()).unwrap();
        let summary = export::drmemtrace(&mut *source, &to, &options, &mut |_| true);
        assert_eq!(summary.unwrap().unwrap().warnings, [""; 0]);
        let (filetype, records, interrupts) = decoded(&fs::read(&to).unwrap());
        assert_eq!(filetype, 0x40 | 0x10000 | 0x40000);
        assert!(interrupts > 100, "{interrupts}");
        let own: Vec<&Block> = blocks.iter().filter(|block| block.thread == thread).collect();
        compare(&records, &own);
    }
    let mut back = trace::open(exported.to_str().unwrap(), &import::Options::default()).unwrap();
    let back = joined(rows(&mut *back));
    let mut there = trace::open(spec, &located()).unwrap();
    let there = joined(rows(&mut *there));
    let differs = back.iter().zip(&there).position(|(back, there)| back != there);
    assert_eq!(differs.map(|at| (at, back[at], there[at])), None);
    assert_eq!(back.len(), there.len());
}

#[test]
fn drmemtrace_refuses_what_it_cannot_write() {
    let folder = folder("refused");
    let path = folder.join("system.pwt");
    recorded(&path, &mut Random(Xoshiro256PlusPlus::seed_from_u64(SEED)));
    let open = || trace::open(path.to_str().unwrap(), &import::Options::default()).unwrap();
    let export = |name: &str| {
        let options = export::Options::default();
        let error = export::drmemtrace(&mut *open(), &folder.join(name), &options, &mut |_| true);
        error.unwrap_err().to_string()
    };
    let error = export("t.trace.zip");
    assert!(error.contains("t.trace.zip: no .zip file") && error.contains(".trace.gz"), "{error}");
    let error = export("t.trace");
    assert!(error.contains("drmemtrace has only one") && error.contains("--thread N"), "{error}");
    assert!(!folder.join("t.trace").exists());
}
