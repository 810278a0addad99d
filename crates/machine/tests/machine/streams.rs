//! Runs every memory manager on random streams of events. No run may panic or run forever, and each
//! error must be one line that says what is wrong, and where.
//!
//! A stream has several processes on up to three processors. The processes are forked, execute
//! other programs and end. They map, unmap, move, protect, lock and advise ranges of every size and
//! alignment, including ranges that overlap, ranges without a mapping, and ranges at the ends of
//! the address space. Each stream runs under each manager, with one of the page-table formats, a
//! memory that is mostly too small, and random settings of the manager. If a manager refuses a
//! stream, it must do so in one line, before or during the run.
//!
//! `PAGEWALK_STREAMS=10000` sets the number of streams, `PAGEWALK_STREAMS_SEED` the seed of the
//! first one. `PAGEWALK_STREAMS_ONLY=base` runs only one manager, and prints the streams and
//! settings.

use std::{
    collections::BTreeMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crate::support::{Row, Rows, Stream, process};
use addr::Kind;
use machine::{Machine, RunOptions};
use trace::{Call, Descriptor, Event, FileId, FileKind, Origin, Process};

const PAGE: u64 = 4096;
const BLOCK: u64 = 2 << 20;
/// The number of streams in an ordinary test run, which takes less than a minute.
const STREAMS: u64 = 60;
/// A run that takes more processor time than this counts as endless.
const SECONDS_MAX: u64 = 60;
const PROCESSES: u64 = 4;
const ENOMEM: i64 = -12;

fn one_of<T: Copy>(stream: &mut Stream, of: &[T]) -> T {
    of[stream.below(of.len() as u64) as usize]
}

/// The managers, each with settings that belong to it.
const MANAGERS: [(&str, &[&str]); 10] = [
    (
        "first-touch",
        &["os.page_size=2M", "os.place=\"data=2M\"", "os.promotion={}", "os.populated=true"],
    ),
    ("base", &["os.eager_paging=true", MOSAIC, UTOPIA, "os.colors=4", "os.promotion={}", DEVICES]),
    (
        "irix",
        &[
            "os.place=\"data=2M\"",
            "os.place=\"mmap=2M wait\"",
            "os.place=\"range 0x40000000..0x50000000=2M fallback\"",
            "os.coalesced={period_cycles=20000,mild_share=0.3,strong_after=2,moves=2000,watermarks={2M=\"8M\"}}",
            "os.colors=4",
            "os.promotion={}",
            DEVICES,
        ],
    ),
    (
        "freebsd",
        &[
            "os.reservations={eager=true}",
            "os.reservations={sizes=[\"64K\",\"2M\"]}",
            "os.reservations={marks=\"clear\"}",
            DEVICES,
        ],
    ),
    ("linux", LINUX),
    (
        "ingens",
        &[
            "os.ingens={deferred_mode=2}",
            "os.ingens={util_threshold=1}",
            "os.ingens={aggressive_below=0.9}",
            MOSAIC,
        ],
    ),
    (
        "hawkeye",
        &[
            "os.hawkeye={faults=false,sample_millisecs=1,sleep_millisecs=1}",
            "os.hawkeye={zero_share=0.5,recover_below=0.9,recover_until=0.95,recover_millisecs=1}",
            "os.hawkeye={prezero_millisecs=1}",
            "os.hawkeye={metric=\"mmu-overhead\"}",
            UTOPIA,
        ],
    ),
    ("ca", &["os.ca={offsets_max=1}", "os.linux.hugepages-1048576kB.enabled=always"]),
    (
        "translation-ranger",
        &[
            "os.ranger={region_bytes_min=\"64K\",period_millisecs=1}",
            "os.ranger={moves=3,period_millisecs=1}",
        ],
    ),
    ("recorded", &["os.page_size=2M"]),
];

const MOSAIC: &str = "os.mosaic={}";
const UTOPIA: &str = "os.utopia={size=\"1M\",ways=4}";
const DEVICES: &str = "os.devices={pages=20,faults=3}";

/// Settings of `linux` and of the managers derived from it.
const LINUX: &[&str] = &[
    "os.linux.enabled=madvise",
    "os.linux.enabled=never",
    "os.linux.hugepages-16kB.enabled=always",
    "os.linux.hugepages-64kB.enabled=always",
    "os.linux.hugepages-1024kB.enabled=madvise",
    "os.linux.hugepages-1048576kB.enabled=always",
    "os.linux.defrag=always",
    "os.linux.defrag=defer",
    "os.linux.use_zero_page=0",
    "os.linux.khugepaged.scan_sleep_millisecs=1",
    "os.linux.khugepaged.pages_to_scan=100000",
    "os.linux.khugepaged.max_ptes_none=0",
    "os.linux.khugepaged.max_ptes_swap=511",
    "os.linux.khugepaged.max_ptes_shared=0",
    "os.linux.fault_around_bytes=4096",
    "os.linux.fault_around_bytes=2097152",
    "os.linux.min_free_kbytes=0",
    "os.linux.watermark_scale_factor=3000",
    "os.linux.compaction_proactiveness=100",
    "os.linux.extfrag_threshold=0",
    "os.linux.cycles_per_ms=1000",
    "os.eager_paging=true",
    "os.ranger={region_bytes_min=\"2M\",period_millisecs=1}",
    MOSAIC,
    UTOPIA,
];

/// Page tables, and the numbers of bits of their addresses.
const TABLES: [(&[&str], u32); 22] = [
    (&["page_table.format=x86-64"], 47),
    (&["page_table.format=x86-64"], 47),
    (&["page_table.format=x86-64"], 47),
    (&["page_table.format=x86-64", "page_table.levels=5"], 56),
    (&["page_table.format=x86-64", "page_table.remembers_leaf=false"], 47),
    (&["page_table.format=x86-64", "page_table.software_tlb=8K"], 47),
    (&["page_table.format=x86-32"], 32),
    (&["page_table.format=x86-pae"], 32),
    (&["page_table.format=arm"], 32),
    (&["page_table.format=sparc-reference"], 32),
    (&["page_table.format=flattened"], 47),
    (&["page_table.format=mpt"], 63),
    (&["page_table.format=linear"], 63),
    (&["page_table.format=irix"], 47),
    (&["page_table.format=guarded", "page_table.nodes=4"], 63),
    (&["page_table.format=guarded-adaptive"], 63),
    (&["page_table.format=hashed", "page_table.table=8K"], 63),
    (&["page_table.format=clustered", "page_table.partial_subblocks=true"], 63),
    (&["page_table.format=inverted", "page_table.replicated=true"], 63),
    (&["page_table.format=tsb", "page_table.table=8K"], 63),
    (&["page_table.format=powerpc"], 47),
    (&["page_table.format=elastic-cuckoo"], 63),
];

/// Settings that most managers accept.
const ANY: [&str; 16] = [
    "swap.size=64M",
    "swap.size=1M",
    "swap={size=\"16M\",io_cycles=1000,page_cycles=100}",
    "os.replacement=lru",
    "os.replacement=2q",
    "os.clock=instructions",
    "core.count=3",
    "core.asid_bits=0",
    "core.contexts=lru",
    "walker.tracks_dirty=true",
    "memory.aged={free=0.5,wired=0.1,seed=3}",
    "memory.numa={nodes=2}",
    "memory.allocator=page-blocks",
    "memory.allocator=size-lists",
    "os.inject=\"fail-allocation:40\"",
    "os.at=[{time=20000,key=\"swap.size\",value=\"32M\"},{time=50000,key=\"os.replacement\",value=\"lru\"}]",
];

/// The settings of a machine without its manager, and the number of bits of its addresses.
fn settings(stream: &mut Stream) -> (Vec<String>, u32) {
    let (table, mut bits) = one_of(stream, &TABLES);
    let mut settings: Vec<String> = table.iter().map(|&setting| setting.to_owned()).collect();
    if stream.below(10) > 0 {
        // Few formats have upper levels, which an MMU cache could hold.
        settings.push("mmu_cache.design=none".to_owned());
    }
    let size = one_of(stream, &["1M", "2M", "5M", "16M", "33M", "64M", "256M", "1G", "1G", "1G"]);
    settings.push(format!("memory.size={size}"));
    for _ in 0..stream.below(4) {
        settings.push(one_of(stream, &ANY).to_owned());
    }
    if stream.below(20) == 0 {
        settings.push(format!("os.inject=\"fail-allocation:{}\"", 1 + stream.below(400)));
    }
    // Software refills run in a different part of the simulator.
    if stream.below(4) == 0 {
        settings.extend(["walker.kind=software".to_owned(), "walker.refill_cycles=1".to_owned()]);
    }
    // Some addresses lie beyond the range that the page table can map.
    if stream.below(30) == 0 {
        bits = 63;
    }
    (settings, bits)
}

/// The state of a stream while it is generated.
struct Life<'a> {
    stream: &'a mut Stream,
    rows: Vec<Row>,
    /// The addresses at which regions begin.
    places: Vec<u64>,
    /// The processes that run, and the number of processes so far.
    alive: Vec<u32>,
    born: u32,
    now: u32,
    /// The end of the heap.
    program_break: u64,
    /// The number of processors; 1: the trace does not say which processor runs.
    cores: u64,
}

impl Life<'_> {
    /// A start and a length in bytes: mostly some pages or blocks of 2M at one of the places,
    /// sometimes unaligned, and rarely any range.
    fn range(&mut self, is_event: bool) -> (u64, u64) {
        let place = one_of(self.stream, &self.places);
        let stream = &mut *self.stream;
        // An access beyond the range of all page tables ends the run, so accesses use the first
        // three cases never.
        match if is_event { stream.below(40) } else { 3 + stream.below(37) } {
            0 => (stream.next(), stream.next() >> stream.below(64)),
            1 => (place, one_of(stream, &[0, 1, u64::MAX, 1 << 47, 1 << 63, u64::MAX - place])),
            2 => (u64::MAX - stream.below(2 * PAGE), stream.below(3 * PAGE)),
            3 => (stream.below(3 * PAGE), stream.below(BLOCK)),
            4 => (place + stream.below(BLOCK), stream.below(BLOCK)),
            5..12 => (place, (1 + stream.below(3)) * BLOCK),
            12..16 => {
                let start = place + stream.below(3) * BLOCK;
                (start, one_of(stream, &[BLOCK, BLOCK - PAGE, BLOCK + PAGE, BLOCK / 2]))
            }
            16..20 => (place + BLOCK - PAGE, one_of(stream, &[PAGE, 2 * PAGE, BLOCK + 2 * PAGE])),
            _ => {
                let start = place + stream.below(1200) * PAGE;
                let most = one_of(stream, &[4, 16, 64, 600]);
                let pages = 1 + stream.below(most);
                (start, pages * PAGE)
            }
        }
    }

    fn result(&mut self) -> i64 {
        match self.stream.below(20) {
            0 => one_of(self.stream, &[-1, -9, -11, -14, -16, -22, -4095]),
            1 => ENOMEM,
            _ => 0,
        }
    }

    fn file(&mut self) -> Option<FileId> {
        let inode = self.stream.below(3);
        // The last file is empty, and a mapping may extend beyond the end of each file.
        let bytes = [1 << 20, 5 * PAGE + 1, 0][inode as usize];
        (self.stream.below(4) > 0).then_some(FileId { device: 1, inode, bytes })
    }

    fn event(&mut self) {
        let (addr, bytes) = self.range(true);
        let result = self.result();
        let event = match self.stream.below(60) {
            0..8 => {
                let stream = &mut *self.stream;
                let flags = one_of(
                    stream,
                    &[0x22, 0x22, 0x22, 0x21, 0x2, 0x1, 0x20022, 0x8022, 0x40022, 0x4022],
                );
                let prot = one_of(stream, &[3, 3, 3, 3, 1, 0, 2, 5, 7, 4]);
                let offset = one_of(stream, &[0, PAGE, 100 * PAGE, 1 << 30, 1 << 62, u64::MAX, 77]);
                let offset = if stream.below(2) == 0 { 0 } else { offset };
                let is_file = flags & 0x20 == 0;
                let file = self.file().filter(|_| is_file);
                let path =
                    (is_file && self.stream.below(3) > 0).then(|| "/lib/libc.so.6".to_owned());
                let result = if result == 0 { addr as i64 } else { result };
                let fd = if is_file { 3 } else { -1 };
                Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result }
            }
            8..12 => Event::Munmap { addr, bytes, result },
            12..15 => {
                let prot = one_of(self.stream, &[0, 1, 2, 3, 3, 3, 4, 5, 7, 0x0100_0003]);
                Event::Mprotect { addr, bytes, prot, result }
            }
            15..18 => {
                let (new_addr, other) = self.range(true);
                let new_bytes = one_of(self.stream, &[bytes, bytes, other, bytes / 2]);
                let to = one_of(self.stream, &[new_addr, new_addr, addr, addr.wrapping_add(PAGE)]);
                let result = if result == 0 { to as i64 } else { result };
                let flags = one_of(self.stream, &[0, 1, 3, 5, 7]);
                Event::Mremap { addr, old_bytes: bytes, new_bytes, flags, new_addr, result }
            }
            18..20 => {
                let before = self.program_break;
                let stream = &mut *self.stream;
                let addr = match stream.below(8) {
                    0 => stream.next(),
                    1 => 0,
                    2 => before.wrapping_sub(stream.below(BLOCK)),
                    _ => before.wrapping_add(stream.below(BLOCK)),
                };
                self.program_break = addr;
                Event::Brk { addr, result: addr as i64 }
            }
            20..30 => {
                let advice = match self.stream.below(3) {
                    0 => self.stream.below(28) as u32,
                    1 => one_of(self.stream, &[100, 101, 102, 103, u32::MAX]),
                    _ => one_of(self.stream, &[4, 8, 9, 14, 15, 21, 22, 23, 25]),
                };
                Event::Madvise { addr, bytes, advice, result }
            }
            30 => Event::Mlock { addr, bytes, flags: self.stream.below(2) as u32, result },
            31 | 32 => Event::Munlock { addr, bytes, result },
            33 => Event::Mlockall { flags: self.stream.below(8) as u32, result },
            34 => Event::Munlockall { result },
            35 => Event::Msync { addr, bytes, flags: 4, result },
            36 => {
                let result = if result == 0 { addr as i64 } else { result };
                let (id, file) = (self.stream.below(3) as i32, self.file());
                let bytes = (self.stream.below(4) > 0).then_some(bytes);
                Event::Shmat { id, addr, flags: 0, bytes, file, result }
            }
            37 => Event::Shmdt { addr, result },
            38 => {
                let (mode, nodes) = (self.stream.below(7) as u32, self.stream.next());
                Event::Mbind { addr, bytes, mode, nodes, flags: 0, result }
            }
            39 => Event::HugePages { disabled: self.stream.below(2) == 0, result },
            40 => {
                let page_bytes =
                    one_of(self.stream, &[PAGE, 1 << 16, BLOCK, 1 << 30, 0, 3, u64::MAX]);
                Event::PageSize { addr, bytes, page_bytes }
            }
            41..44 if u64::from(self.born) < PROCESSES => {
                let flags = if self.stream.below(4) == 0 { trace::CLONE_VM } else { 0 };
                let result = i64::from(100 + self.born);
                self.alive.push(self.born);
                self.born += 1;
                Event::Fork { result, flags }
            }
            44 => Event::Fork { result: one_of(self.stream, &[-11, 7, 100, i64::MAX]), flags: 0 },
            45 => Event::Execve { path: "/bin/true".to_owned(), result },
            46 => {
                let group = self.stream.below(3) > 0;
                if group && self.alive.len() > 1 {
                    let gone = self.now;
                    self.alive.retain(|&number| number != gone);
                }
                self.rows.push(Row::Event(Event::Exit { status: 0, group }));
                return self.switch();
            }
            47 => {
                let (rights, offset) = (self.stream.below(8) as u8, Some(self.stream.next() >> 12));
                let origin = match self.stream.below(5) {
                    0 => Origin::File("/lib/libc.so.6".to_owned()),
                    1 => Origin::Stack,
                    2 => Origin::Heap,
                    3 => Origin::Bss,
                    _ => Origin::Other("vvar".to_owned()),
                };
                let file = self.file();
                Event::Mapping { start: addr, bytes, rights, origin, offset, file }
            }
            48..51 => {
                let Some(file) = self.file() else { return };
                let name = one_of(self.stream, &["read", "write", "pread64", "writev"]).to_owned();
                let offset =
                    one_of(self.stream, &[Some(0), Some(PAGE - 1), Some(u64::MAX - 3), None]);
                let about = Descriptor { fd: 3, kind: FileKind::Regular, file, nonblocking: false };
                let bytes = one_of(self.stream, &[1, 4096, 100_000, result]);
                Event::Call(Box::new(Call {
                    name,
                    fd: Some(3),
                    descriptors: vec![about],
                    offset,
                    result: bytes,
                    ..Call::default()
                }))
            }
            51 => Event::WarmupEnd,
            52 => {
                Event::Gap { accesses: self.stream.below(9), instructions: self.stream.below(99) }
            }
            53 => Event::Site { number: self.stream.below(3) as u32, stack: vec![0x1000, 0x2000] },
            54 => Event::Allocate { addr, bytes, site: self.stream.below(4) as u32 },
            55 => Event::Free { addr },
            56 => Event::ProcessMadvise {
                pidfd: 3,
                ranges: addr,
                ranges_count: 2,
                advice: 25,
                result,
            },
            _ => return self.switch(),
        };
        self.rows.push(Row::Event(event));
    }

    /// Switches to another process, on some processor.
    fn switch(&mut self) {
        self.now = one_of(self.stream, &self.alive);
        let number = self.now;
        // Some traces name only the space, and not the process.
        if self.stream.below(8) > 0 {
            self.rows.push(Row::Event(Event::Process { number }));
        }
        let is_scheduled = self.cores > 1 && self.stream.below(3) == 0;
        let cpu = is_scheduled.then(|| self.stream.below(self.cores) as u32);
        self.rows.push(Row::Event(Event::Run { cpu, space: number }));
        self.rows.push(Row::Thread(number));
    }

    /// Adds several accesses: to one page, to successive pages, or anywhere.
    fn touch(&mut self) {
        let is_event = self.stream.below(100) == 0;
        let (start, bytes) = self.range(is_event);
        let kind = Kind::ALL[self.stream.below(3) as usize];
        let size = one_of(self.stream, &[1, 4, 8, 8, 8, 64, 300, 16383]);
        let step = one_of(self.stream, &[8, PAGE, PAGE, PAGE, 8 * PAGE, BLOCK]);
        let count = (bytes / step + 1).min(one_of(self.stream, &[1, 4, 16, 64, 520]));
        for at in 0..count {
            let addr = start.wrapping_add(at * step);
            self.rows.push(Row::Access(kind, addr, size));
        }
    }
}

/// A stream of some hundreds of events, with accesses between them, at addresses below 2 to the
/// power of `bits`.
fn life(stream: &mut Stream, bits: u32, cores: u64) -> Vec<Row> {
    let mut places = vec![0x4000_0000];
    for _ in 0..3 {
        let far = stream.next() >> (64 - bits + stream.below(20) as u32);
        let near = places[0] + stream.below(8) * BLOCK;
        let mask = one_of(stream, &[BLOCK - 1, PAGE - 1]);
        places.push(one_of(stream, &[far, near]) & !mask);
    }
    let (program_break, rows) = (places[1], Vec::new());
    let alive = vec![0];
    let mut life = Life { stream, rows, places, alive, born: 1, now: 0, program_break, cores };
    for _ in 0..40 + life.stream.below(160) {
        if life.stream.below(2) == 0 { life.event() } else { life.touch() }
    }
    life.rows
}

/// The physical address of an access, for a trace that has physical addresses.
fn physical(row: u64, addr: u64) -> u64 {
    // Some pages move to other frames, and a few rows have no physical address.
    let frame = (addr >> 12).wrapping_mul(0x9e37) % 200 + 1 + row / 4000;
    if row % 50_003 == 40_000 { 0 } else { frame << 12 | addr & 0xfff }
}

/// The outcome of a stream under a manager.
enum Outcome {
    /// The run ended without an error.
    Ran,
    /// The machine was refused, or the run ended with an error.
    Refused(String),
    Failed(String),
}

fn one(manager: &str, settings: &[String], rows: &[Row], check: bool) -> Outcome {
    let base = ["opteron-2008", "epyc-9005"][usize::from(check)];
    let machine = match Machine::load(base, settings) {
        Ok(machine) => machine,
        Err(error) => return Outcome::Refused(error.to_string()),
    };
    let processes: Vec<Process> = (0..PROCESSES as u32).map(process).collect();
    let mut source = match manager == "recorded" {
        true => Rows::physical(rows.to_vec(), physical),
        false => Rows::new(rows.to_vec()),
    };
    source = source.of(processes);
    match machine.run(&mut source, RunOptions { check, progress: &mut |_| true }) {
        Ok(_) => Outcome::Ran,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// Whether an error is one line that says what is wrong, and does not say that the simulator
/// contradicts itself. The error may name all settings.
fn is_line(error: &str, settings: &[String]) -> bool {
    let named: usize = settings.iter().map(|setting| "--set  ".len() + setting.len()).sum();
    let tells = error.len() > 10 && error.len() < 500 + named && !error.contains('\n');
    tells && !["panicked", "but the manager has", "counts"].iter().any(|word| error.contains(word))
}

/// Whether an error of a run says where the error is.
fn has_place(error: &str) -> bool {
    error.contains("access ")
        || error.contains("os.")
        || error.contains("memory.")
        || error.contains("0x")
}

/// The current run of a thread, and the processor time of the thread when the run began.
struct Now {
    spent: PathBuf,
    began: Duration,
    what: String,
}

impl Now {
    fn of(what: String) -> Now {
        // `self` is another thread where this is read.
        let thread = fs::read_link("/proc/thread-self").expect("Linux has it");
        let spent = Path::new("/proc").join(thread).join("schedstat");
        Now { began: spent_on(&spent), spent, what }
    }

    /// Whether the run has taken too much processor time. The time of other threads does not count.
    fn is_endless(&self) -> bool {
        spent_on(&self.spent) > self.began + Duration::from_secs(SECONDS_MAX)
    }
}

/// The processor time of a thread: the first number in its `schedstat`, in nanoseconds.
fn spent_on(path: &Path) -> Duration {
    let text = fs::read_to_string(path).unwrap_or_default();
    let first = text.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
    Duration::from_nanos(first.unwrap_or_default())
}

#[derive(Default)]
struct Tally {
    ran: u64,
    refused: BTreeMap<String, u64>,
    failed: BTreeMap<String, u64>,
    wrongs: Vec<String>,
}

/// The words of an error without numbers, which differ from run to run.
fn kind_of(error: &str) -> String {
    let words =
        error.split_ascii_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
    words.take(14).collect::<Vec<_>>().join(" ")
}

/// Runs the stream of a seed under every manager.
fn case(seed: u64, only: Option<&str>, now: &Mutex<Option<Now>>, tally: &Mutex<Tally>) {
    let shows = only.is_some();
    for (number, (manager, own)) in (0..).zip(MANAGERS) {
        if only.is_some_and(|only| only != manager) {
            continue;
        }
        let mut stream = Stream(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..8).for_each(|_| _ = stream.next());
        let (mut all, bits) = settings(&mut stream);
        let cores = if all.iter().any(|setting| setting == "core.count=3") { 3 } else { 1 };
        let rows = life(&mut stream, bits, cores);
        if shows {
            rows.iter().enumerate().for_each(|(at, row)| println!("{at}: {row:?}"));
        }
        let check = stream.below(2) == 0;
        (0..number).for_each(|_| _ = stream.next());
        all.push(format!("os.manager={manager}"));
        for _ in 0..stream.below(3) {
            all.push(one_of(&mut stream, own).to_owned());
        }
        if own == LINUX || matches!(manager, "ingens" | "hawkeye" | "ca" | "translation-ranger") {
            for _ in 0..stream.below(4) {
                all.push(one_of(&mut stream, LINUX).to_owned());
            }
        }
        let told = format!("seed {seed}, {manager}: {all:?}");
        if shows {
            println!("{told}");
        }
        *now.lock().unwrap() = Some(Now::of(told));
        let done = catch_unwind(AssertUnwindSafe(|| one(manager, &all, &rows, check)));
        *now.lock().unwrap() = None;
        let mut tally = tally.lock().unwrap();
        let mut wrong =
            |what: &str| tally.wrongs.push(format!("seed {seed}, {manager}: {what}\n  {all:?}"));
        match &done {
            Err(_) => wrong("a panic"),
            Ok(Outcome::Refused(error)) if !is_line(error, &all) => {
                wrong(&format!("refused: {error}"))
            }
            Ok(Outcome::Failed(error)) if !is_line(error, &all) || !has_place(error) => {
                wrong(&format!("failed: {error}"))
            }
            Ok(_) => {}
        }
        match done {
            Ok(Outcome::Ran) => tally.ran += 1,
            Ok(Outcome::Refused(error)) => *tally.refused.entry(kind_of(&error)).or_default() += 1,
            Ok(Outcome::Failed(error)) => *tally.failed.entry(kind_of(&error)).or_default() += 1,
            Err(_) => {}
        }
    }
}

#[test]
fn every_manager_survives_random_streams() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let streams = number("PAGEWALK_STREAMS").unwrap_or(STREAMS);
    let first = number("PAGEWALK_STREAMS_SEED").unwrap_or(1);
    let only = std::env::var("PAGEWALK_STREAMS_ONLY").ok();
    println!("{streams} streams from seed {first} on");
    let (next, tally) = (AtomicU64::new(first), Mutex::new(Tally::default()));
    let workers = thread::available_parallelism().map_or(1, usize::from).min(4);
    let running: Vec<Mutex<Option<Now>>> = (0..workers).map(|_| Mutex::default()).collect();
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for now in &running {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + streams {
                        break;
                    }
                    case(seed, only.as_deref(), now, &tally);
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        // If a run does not end, the whole test process is ended, because a single thread cannot
        // be.
        while done.load(Ordering::Relaxed) < workers as u64 {
            thread::sleep(Duration::from_millis(50));
            for now in &running {
                let now = now.lock().unwrap();
                if let Some(Now { what, .. }) = now.as_ref().filter(|now| now.is_endless()) {
                    eprintln!("a run takes more than {SECONDS_MAX} s: {what}");
                    std::process::abort();
                }
            }
        }
    });
    let Tally { ran, refused, failed, wrongs } = tally.into_inner().unwrap();
    let sum = |of: &BTreeMap<String, u64>| of.values().sum::<u64>();
    println!("{ran} ran, {} machines were refused, {} runs failed", sum(&refused), sum(&failed));
    for (error, count) in refused.iter().chain(&failed) {
        println!("{count:6} {error}");
    }
    assert!(wrongs.is_empty(), "{} wrong:\n{}", wrongs.len(), wrongs.join("\n"));
    let managers = if only.is_some() { 1 } else { MANAGERS.len() as u64 };
    assert!(ran * 3 > streams * managers, "{ran} ran");
}

/// If a daemon slept from the beginning of its pass, and the pass took longer than the sleep, the
/// daemon would be due again at the end of the pass, and the program would never run.
#[test]
fn daemons_that_take_longer_than_they_sleep_leave_time_for_programs() {
    const ACCESSES: u64 = 2048;
    let coalesced = "os.coalesced={period_cycles=1,mild_share=0.3,strong_after=2,moves=100,watermarks={\"2M\"=\"64M\"}}";
    for settings in [
        vec!["os.manager=linux", "os.linux.khugepaged.scan_sleep_millisecs=0"],
        vec![
            "os.manager=irix",
            "os.place=data=2M",
            "memory.size=256M",
            "memory.aged={free=0.2,wired=0.1,seed=1}",
            coalesced,
        ],
    ] {
        let mut rows = vec![map(LOW, 8 * BLOCK, 3, 0x22)];
        rows.extend((0..ACCESSES).map(|page| Row::Access(Kind::Store, LOW + page * PAGE, 8)));
        let (done, ended) = std::sync::mpsc::channel();
        let of = settings.clone();
        thread::spawn(move || _ = done.send(crate::support::run("opteron-2008", &of, &rows)));
        let results = ended.recv_timeout(Duration::from_secs(SECONDS_MAX)).expect("the run ends");
        let managed = results.manager.expect("it has counts");
        let passes = managed.linux.map_or(0, |linux| linux.khugepaged.passes)
            + managed.daemon.map_or(0, |daemon| daemon.levels.values().map(|of| of.passes).sum());
        // The daemon makes passes, and the program runs between any two of them.
        assert!((20..=4 * ACCESSES).contains(&passes), "{settings:?}: {passes} passes");
    }
}

/// If memory is scarce and all pages are locked, no page can be evicted. A pass of a daemon must
/// not try to evict pages again and again: the pass would take longer than the daemon sleeps, and
/// the program would never run.
#[test]
fn daemons_do_not_wake_replacement_in_vain() {
    let (file, path) =
        (FileId { device: 1, inode: 1, bytes: 1 << 20 }, "/lib/libc.so.6".to_owned());
    let of_file = Event::Mmap {
        addr: HIGH,
        bytes: 16 * PAGE,
        prot: 3,
        flags: 1,
        fd: 3,
        offset: 0,
        path: Some(path),
        file: Some(file),
        result: HIGH as i64,
    };
    // All mapped memory is locked and fills physical memory.
    let mut rows = vec![Row::Event(of_file), Row::Access(Kind::Load, HIGH, 8)];
    rows.push(Row::Event(Event::Mlockall { flags: 3, result: 0 }));
    rows.push(map(LOW, 64 * BLOCK, 3, 0x22));
    rows.extend((0..2048).map(|page| Row::Access(Kind::Load, LOW + page % 64 * PAGE, 8)));
    let settings = [
        "os.manager=translation-ranger",
        "os.ranger={region_bytes_min=\"64K\",period_millisecs=1}",
        "os.linux.cycles_per_ms=1000",
        "os.linux.enabled=never",
        "memory.size=64M",
    ];
    let (done, ended) = std::sync::mpsc::channel();
    thread::spawn(move || {
        _ = done.send(one("translation-ranger", &settings.map(str::to_owned), &rows, true))
    });
    let outcome = ended.recv_timeout(Duration::from_secs(SECONDS_MAX)).expect("the run ends");
    assert!(!matches!(outcome, Outcome::Refused(_)));
}

/// However large a region is, a pass scans eight blocks of 2M, and the blocks of 1G that begin with
/// them.
#[test]
fn a_pass_of_khugepaged_looks_at_as_much_as_it_may() {
    let settings = [
        "os.manager=linux",
        "os.linux.hugepages-1048576kB.enabled=always",
        "os.linux.khugepaged.scan_sleep_millisecs=0",
    ];
    let mut rows = vec![map(1 << 30, 1 << 45, 3, 0x4022)];
    rows.extend((0..256).map(|page| Row::Access(Kind::Store, (1 << 30) + page * PAGE, 8)));
    let results = crate::support::run("epyc-9005", &settings, &rows);
    let scanned = results.manager.and_then(|managed| managed.linux).expect("it counts").khugepaged;
    let looks: u64 = scanned.results.values().sum();
    assert!(scanned.passes > 50, "{} passes", scanned.passes);
    assert!(looks > 8 * (scanned.passes - 1) && looks <= 9 * scanned.passes, "{looks} looks");
}

/// The time of a call that requests large pages depends on how much is mapped, not on how long the
/// range of the call is.
#[test]
fn a_call_looks_at_what_is_mapped_alone() {
    let call = |addr, bytes, advice| Row::Event(Event::Madvise { addr, bytes, advice, result: 0 });
    for manager in ["irix", "linux", "freebsd", "ingens"] {
        let mut rows = vec![map(1 << 45, 1 << 45, 0, 0x4022), map(1 << 30, 4 * BLOCK, 3, 0x22)];
        rows.extend((0..4).map(|page| Row::Access(Kind::Store, (1 << 30) + page * BLOCK, 8)));
        // MADV_HUGEPAGE, MADV_COLLAPSE, MADV_POPULATE_READ, MADV_WILLNEED, MADV_DONTNEED.
        rows.extend([14, 25, 22, 3, 4].map(|advice| call(1 << 21, (1 << 46) - (1 << 22), advice)));
        rows.push(Row::Access(Kind::Store, 1 << 30, 8));
        let settings = [format!("os.manager={manager}")];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let began = spent_on(Path::new("/proc/thread-self/schedstat"));
        crate::support::run("epyc-9005", &settings, &rows);
        let spent = spent_on(Path::new("/proc/thread-self/schedstat")) - began;
        assert!(spent < Duration::from_secs(5), "{manager}: {spent:?}");
    }
}

/// After the shootdown of a page, a checked run searches the TLBs for this page only. It does not
/// examine the thousands of entries of a second-level TLB.
#[test]
fn a_checked_shootdown_takes_about_as_long_as_one_that_is_not() {
    let mut rows = vec![map(LOW, 8 * BLOCK, 3, 0x22)];
    rows.extend((0..4096).map(|page| Row::Access(Kind::Store, LOW + page * PAGE, 8)));
    for _ in 0..10_000 {
        let protect = |prot| Event::Mprotect { addr: LOW, bytes: PAGE, prot, result: 0 };
        rows.extend([1, 3].map(|prot| Row::Event(protect(prot))));
        rows.push(Row::Access(Kind::Store, LOW, 8));
    }
    let settings = ["os.manager=linux", "os.linux.enabled=never"].map(str::to_owned);
    let took = |check| {
        let machine = Machine::load("epyc-9005", &settings).expect("the settings are right");
        let began = spent_on(Path::new("/proc/thread-self/schedstat"));
        let options = RunOptions { check, progress: &mut |_| true };
        machine.run(&mut Rows::new(rows.clone()), options).expect("the run ends");
        spent_on(Path::new("/proc/thread-self/schedstat")) - began
    };
    let (plain, checked) = (took(false), took(true));
    assert!(checked < 3 * plain, "{checked:?} for {plain:?}");
}

const LOW: u64 = 0x40_0000;
const HIGH: u64 = 0x7fff_0000_0000;

fn map(addr: u64, bytes: u64, prot: u32, flags: u32) -> Row {
    let (fd, offset, path, file, result) = (-1, 0, None, None, addr as i64);
    Row::Event(Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result })
}

fn run(rows: &[Row]) -> machine::Results {
    crate::support::run("opteron-2008", &["os.manager=linux", "os.linux.enabled=never"], rows)
}

/// Locked pages lie at both ends of the address space, with a mapping without rights of half of the
/// address space between them. Neither is processed page by page.
#[test]
fn locks_and_populated_mappings_are_as_long_as_what_is_there() {
    let both = [map(LOW, PAGE, 3, 0x22), map(HIGH, PAGE, 3, 0x22)];
    let unused = map(1 << 45, 1 << 46, 0, 0x8022);
    let locked = Row::Event(Event::Mlockall { flags: 1, result: 0 });
    let touched = [LOW, HIGH].map(|addr| Row::Access(Kind::Store, addr, 8));
    let rows = [&both[..], &[unused, locked], &touched].concat();
    assert_eq!(run(&rows).faults.first_touch, 0, "all that may be used was locked before");
}

/// An access that no mapping explains creates a region. If all future mappings are locked, the
/// pages of this region are loaded at once.
#[test]
fn an_unexplained_access_under_a_lock_of_the_future_is_a_first_touch() {
    let locked = Row::Event(Event::Mlockall { flags: 2, result: 0 });
    let rows = [map(LOW, PAGE, 3, 0x22), locked, Row::Access(Kind::Store, HIGH, 8)];
    let results = run(&rows);
    assert_eq!(results.faults.first_touch, 1);
    assert_eq!(results.manager.unwrap().unexplained, 1);
}

/// A page with only the right to write can be read, as its page-table entry allows reading. But
/// `MADV_POPULATE_READ` fails for it with EFAULT.
#[test]
fn populating_for_loads_needs_the_right_to_read() {
    let populated =
        |result| Row::Event(Event::Madvise { addr: LOW, bytes: PAGE, advice: 22, result });
    let load = Row::Access(Kind::Load, LOW, 8);
    let touches = |prot, result| {
        run(&[map(LOW, PAGE, prot, 0x22), populated(result), load.clone()]).faults.first_touch
    };
    assert_eq!([touches(2, -14), touches(3, 0)], [1, 0]);
}

/// `mlock2` with `MLOCK_ONFAULT` and `mlockall` with `MCL_ONFAULT` load no page, neither
/// immediately nor later.
#[test]
fn locks_on_fault_bring_nothing() {
    let touches = (0..4).map(|page| Row::Access(Kind::Store, LOW + page * PAGE, 8));
    let mapped = map(LOW, 4 * PAGE, 3, 0x22);
    let mlock = |flags| Row::Event(Event::Mlock { addr: LOW, bytes: 4 * PAGE, flags, result: 0 });
    let mlockall = |flags| Row::Event(Event::Mlockall { flags, result: 0 });
    for (before, after, faults) in [
        (None, Some(mlock(0)), 0),
        (None, Some(mlock(1)), 4),
        (None, Some(mlockall(1)), 0),
        (None, Some(mlockall(5)), 4),
        (Some(mlockall(2)), None, 0),
        (Some(mlockall(6)), None, 4),
    ] {
        let calls = before.into_iter().chain([mapped.clone()]).chain(after);
        let rows: Vec<Row> = calls.chain(touches.clone()).collect();
        assert_eq!(run(&rows).faults.first_touch, faults, "{rows:?}");
    }
}

/// A move takes along what is known about its source, and the destination of a hole in the source
/// stays as it was. If no mapping explains the source, there are no holes, and the move replaces
/// the whole destination by unexplained pages.
#[test]
fn a_move_replaces_its_destination_where_nothing_explains_the_source() {
    const SOURCE: u64 = LOW + 64 * PAGE;
    let store = |page: u64| Row::Access(Kind::Store, page, 8);
    for sources in 0..4u64 {
        let is_source = |page: u64| sources >> page & 1 == 1;
        let mut rows = vec![map(LOW, 2 * PAGE, 3, 0x22)];
        for page in (0..2).filter(|page| is_source(*page)) {
            rows.push(map(SOURCE + page * PAGE, PAGE, 3, 0x22));
            rows.push(store(SOURCE + page * PAGE));
        }
        rows.extend([store(LOW), store(LOW + PAGE)]);
        let before = run(&rows);
        rows.push(Row::Event(Event::Mremap {
            addr: SOURCE,
            old_bytes: 2 * PAGE,
            new_bytes: 2 * PAGE,
            flags: 3,
            new_addr: LOW,
            result: LOW as i64,
        }));
        rows.extend([store(LOW), store(LOW + PAGE)]);
        let after = run(&rows);
        let expected = if sources == 0 { 2 } else { 0 };
        let unexplained = after.manager.unwrap().unexplained;
        assert_eq!(unexplained, expected, "sources {sources:02b}");
        assert_eq!(after.faults.first_touch, before.faults.first_touch + expected, "{sources:02b}");
    }
}
