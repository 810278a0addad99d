//! Mutated files through every decoder: an error or rows, never a panic, never without bound.
//!
//! A second each in the tests; `PAGEWALK_FUZZ_SECONDS=60` for a minute each. The seed of a
//! failure is printed; `PAGEWALK_FUZZ_SEED` starts there.

use std::io::{Cursor, Write};
use std::time::{Duration, Instant};

use trace::Batch;
use trace::import::{Fetches, Format, Options, from_reader};

use crate::support::*;
use crate::zip;

/// More rows than any mutation of files this small can stand for.
const ROWS_MAX: usize = 1 << 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Mutates `samples` until the time is over.
fn fuzz(format: Format, samples: &[Vec<u8>]) {
    let time = Duration::from_secs_f64(number("PAGEWALK_FUZZ_SECONDS").map_or(0.7, |s| s as f64));
    let start = Instant::now();
    let mut seed = number("PAGEWALK_FUZZ_SEED").unwrap_or(0);
    let (mut runs, mut accepted) = (0u64, 0u64);
    while start.elapsed() < time {
        let guard = Seed(format, seed);
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9));
        let sample = &samples[random.below(samples.len() as u64) as usize];
        let bytes = mutate(sample, samples, &mut random);
        let options = Options {
            format: (random.below(8) > 0).then_some(format),
            keep_going: random.below(2) == 0,
            fetches: [Fetches::Blocks, Fetches::Instructions, Fetches::None]
                [random.below(3) as usize],
            ..Options::default()
        };
        accepted += u64::from(run(bytes, &options));
        std::mem::forget(guard);
        (seed, runs) = (seed + 1, runs + 1);
    }
    // A sample that is not mutated passes; so do some that are, or the mutations are too wild.
    for sample in samples {
        assert!(run(sample.clone(), &Options { format: Some(format), ..Options::default() }));
    }
    assert!(runs > 50 && accepted * 50 > runs, "{accepted} of {runs} were accepted");
}

struct Seed(Format, u64);

impl Drop for Seed {
    fn drop(&mut self) {
        eprintln!("{} fails: PAGEWALK_FUZZ_SEED={}", self.0, self.1);
    }
}

fn run(bytes: Vec<u8>, options: &Options) -> bool {
    let Ok(mut source) = from_reader("fuzz", Box::new(Cursor::new(bytes)), options) else {
        return false;
    };
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
                let other = &samples[random.below(samples.len() as u64) as usize];
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

#[test]
fn drmemtrace() {
    let plain = drmemtrace_sample();
    let parts = [&plain[..500], &plain[500..]];
    fuzz(
        Format::DrMemTrace,
        &[
            plain.clone(),
            zip::archive(&parts, zip::Lengths::Known),
            zip::archive(&parts, zip::Lengths::After { signature: true, long: false }),
            zip::archive(&parts, zip::Lengths::Stored),
        ],
    );
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

#[test]
fn csv() {
    let mut text = "addr,size,kind,thread,paddr,instrs\n".to_owned();
    for i in 0..100 {
        text += &format!("{:#x},8,{},{},{},3\n", i * 4096, i % 3, i % 4, i);
    }
    fuzz(Format::Csv, &[text.into_bytes(), b"addr\n1\n2\n".to_vec()]);
}

/// The compressions around a text, which must be bounded whatever they are made to claim.
#[test]
fn compressions() {
    let mut text = String::new();
    for i in 0..300 {
        text += &format!("I  {:08x},4\n", 0x1000 + 4 * i);
    }
    let text = text.as_bytes();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(text).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(text).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(text).unwrap();
    let mut snappy = snap::write::FrameEncoder::new(Vec::new());
    snappy.write_all(text).unwrap();
    fuzz(
        Format::Lackey,
        &[
            gzip.finish().unwrap(),
            xz.finish().unwrap(),
            bzip2.finish().unwrap(),
            zstd::encode_all(text, 1).unwrap(),
            lz4.finish().unwrap(),
            snappy.into_inner().unwrap(),
            zip::archive(&[text], zip::Lengths::Known),
        ],
    );
}
