//! Exporters: what another tool would read, byte by byte, and what comes back.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use addr::Kind;
use trace::import::{self, Fetches, Format};
use trace::{Arch, Batch, Error, Event, Filter, Header, Meta, Source, export};

/// A source over rows and events.
struct Rows {
    header: Header,
    batches: Vec<Batch>,
}

impl Rows {
    fn new(batches: Vec<Batch>) -> Rows {
        let header = Header {
            producer: "test".to_owned(),
            command: Vec::new(),
            arch: Arch::X86_64,
            fetches: true,
            filter: Filter::None,
            page_bytes: 4096,
            notes: Vec::new(),
            kernel_from: None,
        };
        Rows { header, batches: batches.into_iter().rev().collect() }
    }
}

impl Source for Rows {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        *batch = self.batches.pop().unwrap_or_default();
        Ok(!batch.is_empty())
    }
}

const F: Kind = Kind::Fetch;
const L: Kind = Kind::Load;
const S: Kind = Kind::Store;

fn batch(rows: &[(u32, Kind, u64, u32, u32)]) -> Batch {
    let mut batch = Batch::default();
    for &(thread, kind, addr, size, instructions) in rows {
        batch.push(thread, addr, Meta::new(kind, size, instructions));
    }
    batch
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("pagewalk-export-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// No file is left but `names`.
    fn holds(&self, names: &[&str]) {
        let mut found: Vec<String> = std::fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        assert_eq!(found, names);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

type Exporter = fn(
    &mut dyn Source,
    &Path,
    &export::Options,
    &mut dyn FnMut(u64) -> bool,
) -> Result<Option<export::Summary>, Error>;

/// What `exporter` writes, with its summary.
fn written(
    exporter: Exporter,
    batches: Vec<Batch>,
    options: &export::Options,
) -> Result<(Vec<u8>, export::Summary), Error> {
    let folder = Folder::new(&format!("{:?}", std::thread::current().id()));
    let path = folder.file("out");
    let summary = exporter(&mut Rows::new(batches), &path, options, &mut |_| true);
    if summary.is_err() {
        folder.holds(&[]);
    }
    let summary = summary?.expect("nobody stopped it");
    folder.holds(&["out"]);
    Ok((std::fs::read(&path).unwrap(), summary))
}

/// ip, is_branch, branch_taken, dest_mem, src_mem.
type Record = (u64, u8, u8, Vec<u64>, Vec<u64>);

fn records(bytes: &[u8]) -> Vec<Record> {
    let word =
        |record: &[u8], at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
    let slots = |record: &[u8], at: std::ops::Range<usize>| -> Vec<u64> {
        at.step_by(8).map(|at| word(record, at)).filter(|&addr| addr != 0).collect()
    };
    assert_eq!(bytes.len() % 64, 0);
    bytes.chunks(64).map(|r| (word(r, 0), r[8], r[9], slots(r, 16..32), slots(r, 32..64))).collect()
}

#[test]
fn champsim_blocks_become_instructions() {
    let first =
        batch(&[(0, L, 0x99, 8, 1), (0, F, 0x1000, 12, 1), (0, L, 0xa0, 8, 0), (0, S, 0xb0, 8, 1)]);
    // The first row says that one more instruction of the block before it began.
    let second = batch(&[(0, F, 0x2000, 4, 2), (0, F, 0x2004, 2, 1), (0, S, 0, 8, 0)]);
    let (bytes, summary) =
        written(export::champsim, vec![first, second], &export::Options::default()).unwrap();
    assert_eq!(
        records(&bytes),
        [
            (0x1000, 0, 0, vec![], vec![0xa0]),
            (0x1004, 0, 0, vec![0xb0], vec![]),
            (0x1008, 1, 1, vec![], vec![]),
            (0x2000, 0, 0, vec![], vec![]),
            (0x2004, 0, 0, vec![], vec![]),
        ]
    );
    assert_eq!((summary.records, summary.bytes), (5, 5 * 64));
    assert_eq!(summary.warnings.len(), 2, "{:?}", summary.warnings);
    // The registers of a branch: it writes the pointer, and reads it and the flags.
    assert_eq!(bytes[2 * 64 + 10..2 * 64 + 16], [26, 0, 26, 25, 0, 0]);
}

#[test]
fn champsim_records_hold_four_loads_and_two_stores() {
    let mut rows = vec![(0, F, 0x1000, 4, 1)];
    rows.extend((1..=5).map(|i| (0, L, i * 16, 8, 0)));
    rows.extend((6..=8).map(|i| (0, S, i * 16, 8, 0)));
    let (bytes, _) =
        written(export::champsim, vec![batch(&rows)], &export::Options::default()).unwrap();
    assert_eq!(
        records(&bytes),
        [
            (0x1000, 0, 0, vec![], vec![16, 32, 48, 64]),
            (0x1000, 0, 0, vec![96, 112], vec![80]),
            (0x1000, 0, 0, vec![128], vec![]),
        ]
    );
}

#[test]
fn champsim_takes_one_thread() {
    let rows = batch(&[
        (0, F, 0x1000, 4, 1),
        (1, F, 0x2000, 4, 1),
        (1, L, 0x10, 8, 0),
        (0, F, 0x1004, 4, 1),
    ]);
    let error =
        written(export::champsim, vec![rows.clone()], &export::Options::default()).unwrap_err();
    assert!(error.to_string().contains("--thread N"), "{error}");
    let only = |thread| export::Options { thread: Some(thread), ..export::Options::default() };
    let (bytes, _) = written(export::champsim, vec![rows.clone()], &only(1)).unwrap();
    assert_eq!(records(&bytes), [(0x2000, 0, 0, vec![], vec![0x10])]);
    let (bytes, _) = written(export::champsim, vec![rows], &only(0)).unwrap();
    assert_eq!(records(&bytes).len(), 2);
    let mut source = Rows::new(Vec::new());
    source.header.fetches = false;
    let folder = Folder::new("no-fetches");
    let error =
        export::champsim(&mut source, &folder.file("out"), &only(0), &mut |_| true).unwrap_err();
    assert!(error.to_string().contains("no instruction fetches"), "{error}");
    folder.holds(&[]);
}

#[test]
fn csv_lines_are_rows() {
    let mut rows = batch(&[(0, F, 0x1000, 4, 3), (7, L, u64::MAX, 16, 0)]);
    rows.push_event(7, Event::Gap { accesses: 0, instructions: 100_000 });
    rows.push_event(7, Event::ThreadEnd);
    let more = batch(&[(7, S, 0, 1, 2)]);
    let (bytes, summary) =
        written(export::csv, vec![rows.clone(), more.clone()], &export::Options::default())
            .unwrap();
    let text = "addr,size,kind,thread,instrs\n0x1000,4,fetch,0,3\n\
        0xffffffffffffffff,16,load,7,0\n0x0,1,store,7,100002\n";
    assert_eq!(String::from_utf8(bytes).unwrap(), text);
    assert_eq!(summary.records, 3);
    assert_eq!(summary.warnings, ["1 event has no place in a table: left out"]);

    rows.paddr = vec![0x9000, 0];
    let only = export::Options { thread: Some(7), ..export::Options::default() };
    let (bytes, _) = written(export::csv, vec![rows, more], &only).unwrap();
    let text = "addr,size,kind,thread,instrs,paddr\n0xffffffffffffffff,16,load,7,0,\n\
        0x0,1,store,7,100002,\n";
    assert_eq!(String::from_utf8(bytes).unwrap(), text);
    let (bytes, _) = written(export::csv, Vec::new(), &export::Options::default()).unwrap();
    assert_eq!(bytes, b"addr,size,kind,thread,instrs\n", "an empty table is a table");
}

#[test]
fn nothing_half_written_gets_a_name() {
    let folder = Folder::new("half");
    let path = folder.file("out.csv");
    let rows = || Rows::new(vec![batch(&[(0, L, 1, 1, 0)]); 3]);
    let options = export::Options::default();
    let mut calls = 0;
    let stop = &mut |_| {
        calls += 1;
        calls < 2
    };
    assert_eq!(export::csv(&mut rows(), &path, &options, stop).unwrap(), None);
    folder.holds(&[]);
    export::csv(&mut rows(), &path, &options, &mut |_| true).unwrap();
    let error = export::csv(&mut rows(), &path, &options, &mut |_| true).unwrap_err().to_string();
    assert!(error.contains("it exists already"), "{error}");
    let force = export::Options { overwrite: true, ..options };
    export::csv(&mut rows(), &path, &force, &mut |_| true).unwrap();
    folder.holds(&["out.csv"]);
}

/// All of what the import of `bytes` gives: rows, threads and physical addresses.
fn all(bytes: Vec<u8>, format: Format, fetches: Fetches) -> Batch {
    let options = import::Options { format: Some(format), fetches, ..import::Options::default() };
    let mut source = import::from_reader("test", Box::new(Cursor::new(bytes)), &options).unwrap();
    let (mut all, mut batch) = (Batch::default(), Batch::default());
    while source.next(&mut batch).unwrap() {
        for segment in &batch.segments {
            let start = segment.start + all.len() as u32;
            if all.segments.last().is_none_or(|last| last.thread != segment.thread) {
                all.segments.push(trace::Segment { start, ..*segment });
            }
        }
        all.addr.extend(&batch.addr);
        all.meta.extend(&batch.meta);
        all.paddr.extend(&batch.paddr);
    }
    all
}

#[test]
fn a_table_comes_back_as_it_was_under_every_compression() {
    let mut state = 1u64;
    let mut random = |bound: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % bound
    };
    let mut batches = Vec::new();
    let mut threads = 0;
    for _ in 0..4 {
        let rows: Vec<_> = (0..20_000)
            .map(|_| {
                // The importer numbers threads as they appear.
                let thread = random(u64::from(threads) + 1).min(5) as u32;
                threads = threads.max(thread + 1).min(5);
                let kind = [F, L, S][random(3) as usize];
                (thread, kind, random(1 << 31) << 16, 1 + random(64) as u32, random(65536) as u32)
            })
            .collect();
        let mut batch = batch(&rows);
        batch.paddr = rows.iter().map(|_| random(1 << 31)).collect();
        batches.push(batch);
    }
    let addr: Vec<u64> = batches.iter().flat_map(|batch| batch.addr.clone()).collect();
    let meta: Vec<Meta> = batches.iter().flat_map(|batch| batch.meta.clone()).collect();
    let paddr: Vec<u64> = batches.iter().flat_map(|batch| batch.paddr.clone()).collect();
    let folder = Folder::new("compressed");
    for name in ["a.csv", "a.csv.gz", "a.csv.xz", "a.csv.bz2", "a.csv.zst"] {
        let path = folder.file(name);
        let mut source = Rows::new(batches.clone());
        let summary = export::csv(&mut source, &path, &export::Options::default(), &mut |_| true);
        assert_eq!(summary.unwrap().unwrap().records, 80_000);
        let bytes = std::fs::read(&path).unwrap();
        assert_ne!(bytes[0] == b'a', name != "a.csv", "{name}");
        let back = all(bytes, Format::Csv, Fetches::Blocks);
        assert!(back.addr == addr && back.meta == meta && back.paddr == paddr, "{name}");
    }
}

/// Instructions and accesses of a recorded kind of trace go to ChampSim and back.
#[test]
fn champsim_comes_back_with_the_same_accesses() {
    let mut text = String::new();
    let mut pc = 0x40_0000u64;
    for i in 0..30_000u64 {
        text += &format!("I  {pc:x},4\n");
        if i % 3 == 0 {
            text += &format!(" L {:x},8\n", 0x7000_0000 + i * 24);
        }
        if i % 7 == 0 {
            text += &format!(" S {:x},4\n", 0x6000_0000 + i * 8);
        }
        pc = if i % 11 == 0 { 0x40_0000 + (i * 2654435761) % 65536 * 4 } else { pc + 4 };
    }
    let options = import::Options { format: Some(Format::Lackey), ..import::Options::default() };
    let mut source =
        import::from_reader("test", Box::new(Cursor::new(text.clone().into_bytes())), &options)
            .unwrap();
    let folder = Folder::new("back");
    let path = folder.file("a.champsim");
    let summary =
        export::champsim(source.as_mut(), &path, &export::Options::default(), &mut |_| true);
    assert_eq!(summary.unwrap().unwrap().records, 30_000);
    let there = all(text.into_bytes(), Format::Lackey, Fetches::Instructions);
    let back = all(std::fs::read(&path).unwrap(), Format::ChampSim, Fetches::Instructions);
    // Instructions of four bytes are spread as they were; sizes are not in the format.
    assert_eq!(there.addr.len(), back.addr.len());
    let kinds = |batch: &Batch| batch.meta.iter().map(|meta| meta.kind()).collect::<Vec<_>>();
    assert!(there.addr == back.addr && kinds(&there) == kinds(&back));
}
