//! Passes mutated files to every decoder. Each must return an error or rows: it must not panic, and
//! must not return rows without limit.
//!
//! ```text
//!   sample ----------------------------> mutate --> unsound records
//!   sample --pack--> every container --> mutate --> unsound containers
//! ```
//!
//! Each test takes about a second; with `PAGEWALK_FUZZ_SECONDS=60` each takes a minute. After a
//! failure the seed is printed; `PAGEWALK_FUZZ_SEED` sets the first seed.

use std::io::Cursor;
use std::time::{Duration, Instant};

use trace::import::{Fetches, Format, Interleave, Options, from_reader};
use trace::open;
use trace::{Batch, Source};

use crate::compression::packed;
use crate::sniffing::Folder;
use crate::support::*;
use crate::zip;

/// More rows than any mutation of such small files can contain.
const ROWS_MAX: usize = 1 << 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Mutates `samples`, and containers of them, until the time has passed.
fn fuzz(format: Format, samples: &[Vec<u8>]) {
    // A sample that is not mutated is accepted in every container.
    let containers: Vec<Vec<u8>> = samples.iter().flat_map(|sample| containers(sample)).collect();
    for bytes in &containers {
        assert!(run(bytes.clone(), &Options { format: Some(format), ..Options::default() }));
    }
    repeat(format.name(), |random| {
        let pool: &[Vec<u8>] = if random.below(2) == 0 { samples } else { &containers };
        let sample = one_of(pool, random);
        let bytes = mutate(sample, pool, random);
        let mut options = Options {
            format: (random.below(8) > 0).then_some(format),
            keep_going: random.below(2) == 0,
            ..Options::default()
        };
        // Some have a part of their addresses in the top byte.
        if random.below(4) == 0 {
            options.arch = Some(trace::Arch::Aarch64);
        }
        if matches!(
            format,
            Format::DrMemTrace
                | Format::ChampSim
                | Format::CloudSuite
                | Format::Lackey
                | Format::Dinero
        ) {
            let fetches = [Fetches::Blocks, Fetches::Instructions, Fetches::None];
            options.fetches = *one_of(&fetches, random);
        }
        run(bytes, &options)
    });
}

/// Calls `once` until the time has passed. `once` returns whether the mutated file was accepted.
fn repeat(name: &'static str, mut once: impl FnMut(&mut Random) -> bool) {
    let time = Duration::from_secs_f64(number("PAGEWALK_FUZZ_SECONDS").map_or(0.7, |s| s as f64));
    let start = Instant::now();
    let mut seed = number("PAGEWALK_FUZZ_SEED").unwrap_or(0);
    let (mut runs, mut accepted) = (0u64, 0u64);
    while start.elapsed() < time {
        let guard = Seed(name, seed);
        accepted += u64::from(once(&mut Random(seed.wrapping_mul(0x9e37_79b9))));
        std::mem::forget(guard);
        (seed, runs) = (seed + 1, runs + 1);
    }
    // Some mutated samples must be accepted too; otherwise the mutations are too large.
    assert!(runs > 20 && accepted * 50 > runs, "{name}: {accepted} of {runs} were accepted");
}

/// `bytes` as they are, and packed in every container.
fn containers(bytes: &[u8]) -> Vec<Vec<u8>> {
    let parts = bytes.split_at(bytes.len() / 2);
    let parts = [parts.0, parts.1];
    let mut all: Vec<Vec<u8>> = packed(bytes).into_iter().map(|(_, packed)| packed).collect();
    all.extend([
        bytes.to_vec(),
        zip::archive(&parts, zip::Lengths::Known),
        zip::archive(&parts, zip::Lengths::After { signature: true, long: false }),
        zip::archive(&parts, zip::Lengths::Stored),
    ]);
    all
}

fn one_of<'a, T>(all: &'a [T], random: &mut Random) -> &'a T {
    &all[random.below(all.len() as u64) as usize]
}

struct Seed(&'static str, u64);

impl Drop for Seed {
    fn drop(&mut self) {
        eprintln!("{} fails: PAGEWALK_FUZZ_SEED={}", self.0, self.1);
    }
}

fn run(bytes: Vec<u8>, options: &Options) -> bool {
    from_reader("fuzz", Box::new(Cursor::new(bytes)), options).is_ok_and(drained)
}

/// Reads all rows of `source`. Returns whether the source ended without an error.
fn drained(mut source: Box<dyn Source + Send>) -> bool {
    let mut batch = Batch::default();
    let mut rows = 0;
    loop {
        match source.next(&mut batch) {
            Err(_) => return false,
            Ok(false) => return true,
            Ok(true) => {
                assert!(!batch.is_empty() && batch.addr.len() == batch.meta.len());
                assert!(batch.paddr.is_empty() || batch.paddr.len() == batch.len());
                rows += batch.len();
                assert!(rows < ROWS_MAX, "{rows} rows");
            }
        }
    }
}

fn mutate(sample: &[u8], samples: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    const TELLING: [u64; 9] =
        [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 1 << 32, 1 << 63, u64::MAX];
    let mut bytes = sample.to_vec();
    for _ in 0..1 + random.below(4) {
        let length = bytes.len() as u64;
        if length == 0 {
            break;
        }
        let at = random.below(length) as usize;
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => {
                let end = (at + 1 + random.below(40) as usize).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + 1 + random.below(100) as usize).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = random.below(length) as usize;
                bytes.splice(to..to, piece);
            }
            5 => {
                let value = TELLING[random.below(9) as usize].to_le_bytes();
                let width = 1 << random.below(4);
                let end = (at + width).min(bytes.len());
                bytes[at..end].copy_from_slice(&value[..end - at]);
            }
            _ => {
                let other = one_of(samples, random);
                let from = random.below(other.len() as u64) as usize;
                bytes.truncate(at);
                bytes.extend(&other[from..]);
            }
        }
    }
    bytes
}

fn record(kind: u16, size: u16, addr: u64) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &size.to_le_bytes(), &addr.to_le_bytes()].concat()
}

fn drmemtrace_sample() -> Vec<u8> {
    let mut bytes: Vec<u8> = [
        (25, 0, 7),
        (28, 12, 7),
        (28, 9, 0x40),
        (22, 4, 5),
        (24, 4, 5),
        (28, 18, 4096),
        (28, 2, 100),
    ]
    .iter()
    .flat_map(|&(kind, size, addr)| record(kind, size, addr))
    .collect();
    for i in 0..60u64 {
        bytes.extend(record(10 + (i % 8) as u16, 4 + (i % 3) as u16, 0x1000 + 4 * i));
        bytes.extend(record((i % 2) as u16, 8, 0x7000_0000 + 64 * i));
        // A version and a page size must be valid.
        if !matches!(i % 40, 12 | 18) {
            bytes.extend(record(28, (i % 40) as u16, 0x1_0000_0000 + i));
        }
        if i % 10 == 0 {
            bytes.extend(record(28, 2, 100 + i));
        }
    }
    bytes.extend([record(23, 4, 5), record(26, 0, 0)].concat());
    bytes
}

/// Records with several examples of all calls, pages and windows that the decoder evaluates.
fn drmemtrace_events() -> Vec<u8> {
    const CALL: u64 = 1 << 32;
    let mut bytes = drmemtrace_sample()[..7 * 12].to_vec();
    for (turn, number) in [9u64, 10, 11, 12, 25, 28, 56, 57, 60, 9, 11, 231].into_iter().enumerate()
    {
        let turn = turn as u64;
        bytes.extend([record(28, 14, turn / 4), record(28, 2, 200 + turn)].concat());
        bytes
            .extend([record(28, 15, 0x9_0000 + 4096 * turn), record(28, 17, 4096 * turn)].concat());
        bytes.extend([record(10, 4, 0x1000 + 4 * turn), record(0, 8, 4096 * turn + 8)].concat());
        bytes.extend([record(28, 25, number), record(28, 4, CALL + number)].concat());
        (0..6).for_each(|arg| bytes.extend(record(28, 6, 0x1000 << arg)));
        bytes.extend([record(28, 4, CALL + number), record(28, 7, 0x7000_0000)].concat());
        if turn.is_multiple_of(3) {
            bytes.extend([record(28, 30, 22), record(28, 16, 4096 * turn)].concat());
        }
        bytes.extend([record(22, 4, 5 + turn % 3), record(24, 4, 5 + turn % 2)].concat());
        bytes.extend([record(17, 3, 0x03_02_01), record(47, 4, turn)].concat());
    }
    bytes.extend([record(23, 4, 5), record(26, 0, 0)].concat());
    bytes
}

#[test]
fn drmemtrace() {
    fuzz(Format::DrMemTrace, &[drmemtrace_sample(), drmemtrace_events()]);
}

/// A folder with several files, their schedule and their page list, one of which is mutated.
#[test]
fn folder() {
    let entry = |tid: u64, time: u64| [tid, time, 0, 0].into_iter().flat_map(u64::to_le_bytes);
    let schedule: Vec<u8> = (0..30).flat_map(|i| entry(5, 100 + 10 * i)).collect();
    let mut v2p = "address_mapping_group {\n  page_size: 4096\n".to_owned();
    for page in 0..40 {
        v2p += &format!(
            "address_mapping {{\n  virtual_address: {:#x}\n  physical_address: {}\n}}\n",
            0x7000_0000u64 + 4096 * page,
            4096 * page
        );
    }
    v2p += "}\naddress_mapping_group {\n  page_size: 0x200000\n  address_mapping {\n    \
            physical_address: 0x40000000\n  }\n  information {\n    page_count: 1\n  }\n}\n";
    let files = [
        ("a.trace", drmemtrace_sample()),
        ("b.trace.gz", drmemtrace_events()),
        ("serial_schedule.bin", schedule),
        ("v2p.textproto", v2p.into_bytes()),
    ];
    let samples: Vec<Vec<u8>> = files.iter().map(|(_, bytes)| bytes.clone()).collect();
    let folder = Folder::new("fuzz");
    let path = folder.0.display().to_string();
    files.iter().for_each(|(name, bytes)| drop(folder.write(name, bytes)));
    repeat("folder", |random| {
        let (name, bytes) = &files[random.below(4) as usize];
        folder.write(name, &mutate(bytes, &samples, random));
        let options = Options {
            interleave: *one_of(&[Interleave::Timestamps, Interleave::Schedule], random),
            keep_going: random.below(2) == 0,
            ..Options::default()
        };
        let accepted = open(&path, &options).is_ok_and(drained);
        folder.write(name, bytes);
        accepted
    });
}

#[test]
fn champsim() {
    let mut bytes = Vec::new();
    for i in 0..200u64 {
        let mut record = [0u64; 8];
        record[0] = 0x40_0000 + 4 * i;
        record[1] = u64::from(i % 5 == 0);
        record[2 + (i % 6) as usize] = 0x7f00_0000_0000 + 64 * i;
        bytes.extend(record.iter().flat_map(|word| word.to_le_bytes()));
    }
    fuzz(Format::ChampSim, &[bytes]);
}

#[test]
fn cloudsuite() {
    let mut bytes = Vec::new();
    for i in 0..200u64 {
        let mut record = [0u64; 12];
        record[0] = 0x40_0000 + 4 * i;
        record[3 + (i % 8) as usize] = 0x7f00_0000_0000 + 64 * i;
        record[11] = i / 50;
        bytes.extend(record.iter().flat_map(|word| word.to_le_bytes()));
    }
    fuzz(Format::CloudSuite, &[bytes]);
}

#[test]
fn lackey() {
    let mut text = "==1== Lackey\n".to_owned();
    for i in 0..100 {
        text += &format!("I  {:08x},4\n S {:08x},8\n M {:x},1\n", 0x1000 + 4 * i, 0x7000 + i, i);
    }
    fuzz(Format::Lackey, &[text.into_bytes()]);
}

/// Texts with one access per line, in each form that a format has.
#[test]
fn pinatrace() {
    let mut text = "#\n# Memory Access Trace Generated By Pin\n#\n".to_owned();
    for i in 0..100 {
        text += &format!("{:#x}: R {:#x}\n{:#x}: W {:#x} 8 0x2a\n", i * 4, i << 12, i * 4, i);
    }
    text += "#eof\n";
    let plain = (0..100).map(|i| format!("R {}\n", 139_717_970_992_448u64 + 64 * i));
    fuzz(Format::Pinatrace, &[text.into_bytes(), plain.collect::<String>().into_bytes()]);
}

#[test]
fn dinero() {
    let words = (0..100).map(|i| format!("{} {:x} rest\n", i % 6, 0x7f12_a000 + 64 * i));
    let sized = (0..100).map(|i| {
        format!("{} {:x} {:x}\n", ["r", "w", "i", "m", "c"][i % 5], 4096 * i, 1 + (i << 7))
    });
    let samples = [words.collect::<String>(), sized.collect()];
    fuzz(Format::Dinero, &samples.map(String::into_bytes));
}

#[test]
fn ramulator() {
    let dram = (0..100).map(|i| format!("{:#x} {}\n", i << 12, ["R", "W"][i % 2]));
    let cpu = (0..100).map(|i| match i % 3 {
        0 => format!("{i} {}\n", 4096 * i),
        1 => format!("{i} {} {}\n", 4096 * i, 64 * i),
        _ => format!("{i} {} W\n", 4096 * i),
    });
    let second = (0..100).map(|i| format!("{} {:#x}\n", ["LD", "ST"][i % 2], i << 12));
    let samples = [dram.collect::<String>(), cpu.collect(), second.collect()];
    fuzz(Format::Ramulator, &samples.map(String::into_bytes));
}

#[test]
fn usimm() {
    let lines = (0..100).map(|i| match i % 2 {
        0 => format!("{i} R {:#x} 0x4005d0\n", i << 12),
        _ => format!("{} W {:x}\n", i << 20, i << 6),
    });
    fuzz(Format::Usimm, &[lines.collect::<String>().into_bytes()]);
}

#[test]
fn perf() {
    let lines = (0..100).map(|i| {
        let kind = ["LOAD", "STORE"][i % 2];
        format!(
            "a b {}/{} [00{}] {i}.5: 1 cpu/mem-loads/P: {:x} 68100142 |OP {kind}|LVL L1 hit| 5\n\
             \t  401000 main+0x10 (/bin/a)\n\n",
            i % 3,
            i % 5,
            i % 4,
            i << 12
        )
    });
    fuzz(Format::Perf, &[lines.collect::<String>().into_bytes()]);
}

#[test]
fn csv() {
    let mut text = "addr,size,kind,thread,paddr,instrs\n".to_owned();
    for i in 0..100 {
        text += &format!("{:#x},8,{},{},{},3\n", i * 4096, i % 3, i % 4, i);
    }
    let headless = b"0x1000,R\n0x2000,W\n0x3000,r\n".to_vec();
    fuzz(Format::Csv, &[text.into_bytes(), b"addr\n1\n2\n".to_vec(), headless]);
}
