//! Tests texts of other tools with one access per line, similar texts, and files that are no
//! traces.

use std::io::Write;

use trace::import::{Fetches, Format, Options};

use crate::sniffing::{Folder, store};
use crate::support::*;

/// Random accesses in every form of text, compared with the expected rows.
#[test]
fn what_was_written_comes_out() {
    seeded(3, |random| {
        let accesses: Vec<(bool, u64)> =
            (0..70_000).map(|_| (random.below(2) == 0, random.next() >> 17 & !3)).collect();
        let letter = |is_store: bool| if is_store { "W" } else { "R" };
        let write = |line: &dyn Fn(usize, bool, u64) -> String| -> Vec<u8> {
            let lines = accesses.iter().enumerate();
            lines.map(|(at, &(is_store, addr))| line(at, is_store, addr)).collect::<String>().into()
        };
        // Each format has the bytes of an access, and the number of instructions that a line
        // counts.
        let forms: Vec<(Format, u32, u64, Vec<u8>)> = vec![
            (
                Format::Pinatrace,
                1,
                0,
                write(&|at, s, a| format!("{at:#x}: {} {a:#x}\n", letter(s))),
            ),
            (
                Format::Pinatrace,
                8,
                0,
                write(&|_, s, a| format!("0x1: {} {a:#x}  8 0x2a\n", letter(s))),
            ),
            (Format::Pinatrace, 1, 0, write(&|_, s, a| format!("{} {a}\n", letter(s)))),
            (Format::Pinatrace, 1, 0, write(&|_, s, a| format!("0x1: {} {a:016X}\r\n", letter(s)))),
            (Format::Dinero, 4, 0, write(&|_, s, a| format!("{} {a:x}\n", u8::from(s)))),
            (
                Format::Dinero,
                16,
                0,
                write(&|_, s, a| format!("{} {a:x} 10\n", if s { "w" } else { "r" })),
            ),
            (Format::Ramulator, 1, 0, write(&|_, s, a| format!("{a:#x} {}\n", letter(s)))),
            (
                Format::Ramulator,
                1,
                0,
                write(&|_, s, a| format!("{} {a}\n", if s { "ST" } else { "LD" })),
            ),
            (Format::Ramulator, 1, 8, write(&|_, s, a| format!("7 {a} {}\n", letter(s)))),
            (Format::Usimm, 1, 4, write(&|_, s, a| format!("3 {} {a:#x} 0x4005d0\n", letter(s)))),
            (Format::Usimm, 1, 4, write(&|_, s, a| format!("3 {} {a:x}\n", letter(s)))),
        ];
        for (format, bytes, instructions, text) in forms {
            let begin = String::from_utf8_lossy(&text[..40]).into_owned();
            for named in [None, Some(format)] {
                let given = import(&text, &Options { format: named, ..Options::default() });
                let given = given.unwrap_or_else(|error| panic!("{begin:?}: {error}"));
                let rows: Vec<_> =
                    accesses.iter().map(|&(s, a)| (0, if s { S } else { L }, a, bytes)).collect();
                same(&given.data(), &rows, &begin);
                assert_eq!(given.instructions(), instructions * 70_000, "{begin:?}");
                assert_eq!(given.notes.len(), 1, "{begin:?}");
            }
        }
    });
}

#[test]
fn fetches_of_dinero_are_blocks_and_its_caches_records_are_left_out() {
    let text = b"2 400000\n0 7f1001\n2 400004\n4 7f1000\n2 400010\n1 7f2000\n";
    let given = import(text, &Options::default()).unwrap();
    assert_eq!(
        given.rows,
        [
            (0, F, 0x40_0000, 8, 1),
            (0, L, 0x7f_1000, 4, 0),
            (0, F, 0x40_0010, 4, 2),
            (0, S, 0x7f_2000, 4, 0),
        ]
    );
    let none = Options { fetches: Fetches::None, ..Options::default() };
    let given = import(text, &none).unwrap();
    assert_eq!((given.rows.len(), given.instructions()), (2, 3));
}

#[test]
fn reads_of_ramulators_cpu_write_lines_back() {
    let text = b"3 20734016\n0 20846400 20734528\n70000 20734208\n";
    let given = import(text, &Options::default()).unwrap();
    let data = [(0, L, 20_734_016, 1), (0, L, 20_846_400, 1), (0, S, 20_734_528, 1)];
    assert_eq!(given.data(), [&data[..], &[(0, L, 20_734_208, 1)]].concat());
    assert_eq!(given.instructions(), 4 + 1 + 70_001);
}

/// Threads are numbered in the order of their first samples. Lines that are no samples are ignored.
#[test]
fn samples_of_perf_are_accesses() {
    let text = "# captured on\n\
        prog  7/70 [001] 1.000001: 1 cpu/mem-loads,ldlat=30/P: 7f12a0079d40 68100142 |OP LOAD|LVL L1|\n\
        \t    401000 main+0x10 (/bin/prog)\n\n\
        Web Content  9 [000] 1.000002: 1 cpu/mem-stores/P: 10 5080144 |OP STORE|LVL L1 hit|\n\
        prog  7/70 [001] 1.000003: 1 cpu/mem-loads,ldlat=30/P: 0 0 |OP NA|\n\
        prog  7/70 [001] 1.000004: 1 page-faults: 7f12a0079000\n";
    let given = import(text.as_bytes(), &Options::default()).unwrap();
    let rows = [(0, L, 0x7f12_a007_9d40, 1, 0), (1, S, 0x10, 1, 0), (0, L, 0x7f12_a007_9000, 1, 0)];
    assert_eq!(given.rows, rows);
    assert_eq!(given.warnings, ["1 sample has no address: left out"]);
    assert!(given.notes[0].starts_with("SAMPLES"), "{:?}", given.notes);
    let no = Options::default();
    for text in [
        "prog 7 1.5: 250000 cycles:  401000 main+0x10 (/bin/prog)\n",
        "prog 7 1.5: 250000 cycles: \n\t401000 main+0x10 (/bin/prog)\n",
    ] {
        refused(text.as_bytes(), &no, "perf script -F comm,tid,time,event,addr,data_src");
    }
}

/// A line that the format does not allow is an error that names the line. With `keep_going`, the
/// lines before it are kept.
#[test]
fn wrong_lines_are_refused_with_line_and_byte() {
    let no = Options::default();
    let prog = "a 1 1.5: e: 10\n";
    for (text, wrong, part) in [
        ("0x1: R 0x10\n", "0x1: Q 0x10\n", "`0x1: Q 0x10` is not a line of pinatrace,"),
        ("0 7f\n", "9 7f\n", "`9 7f` is not a line of a trace for Dinero"),
        ("r 7f 4\n", "r 7f\n", "is not a line of a trace for Dinero"),
        ("0x10 R\n", "0x10 Q\n", "is not a line of a trace for Ramulator"),
        ("17 64\n", "99999999999 64\n", "is not a line of a trace for Ramulator"),
        ("1 R 0x10\n", "1 R\n", "is not a line of a trace for USIMM"),
        (prog, "a b\n", "is not a line of perf script's"),
        (prog, "a 1 1.5: e: main\n", "without the address"),
    ] {
        // The wrong line lies behind the part of the file from which the format is detected.
        let many = text.repeat((1 << 18) / text.len() + 1);
        assert_eq!(
            refused(format!("{many}{wrong}").as_bytes(), &no, part),
            Some(many.len() as u64),
            "{wrong:?}"
        );
        let keep = Options { keep_going: true, ..no.clone() };
        let kept = import(format!("{many}{wrong}").as_bytes(), &keep).unwrap();
        same(&kept.rows, &import(many.as_bytes(), &no).unwrap().rows, wrong);
    }
    let two = b"0x1: R 0x10\n0x1: Q 0x10\n";
    let named = Options { format: Some(Format::Pinatrace), ..no };
    assert_eq!(refused(two, &named, "line 2: `0x1: Q 0x10`"), Some(12));
}

/// If a text could have two formats, it is refused until an option names the format.
#[test]
fn what_could_be_two_formats_has_to_be_named() {
    let text = b"3 1000\n0 1040\n5 1080\n";
    refused(text, &Options::default(), "--format dinero or --format ramulator");
    let rows = |format| {
        import(text, &Options { format: Some(format), ..Options::default() }).unwrap().data()
    };
    assert_eq!(rows(Format::Dinero), [(0, L, 0x1000, 4), (0, L, 0x1040, 4)]);
    assert_eq!(rows(Format::Ramulator), [(0, L, 1000, 1), (0, L, 1040, 1), (0, L, 1080, 1)]);
    // The labels can only be those of Dinero III, because no program has so few instructions
    // between its misses.
    let dinero = import(b"2 1000\n0 2000\n1 3000\n", &Options::default()).unwrap();
    assert_eq!(dinero.data(), [(0, L, 0x2000, 4), (0, S, 0x3000, 4)]);
}

/// The header of a file in a tar archive: of the old format, or of `ustar`.
fn tar(is_ustar: bool) -> Vec<u8> {
    let mut header = [0u8; 512];
    header[..8].copy_from_slice(b"ls.trace");
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(b"00000001000");
    if is_ustar {
        header[257..263].copy_from_slice(b"ustar\0");
    }
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    [&header[..], &[b'x'; 512], &[0; 1024]].concat()
}

/// For a file that is no trace, the error says what it is and what to do, whichever format is
/// given.
#[test]
fn what_is_no_trace_is_named() {
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let lzma = |length: u64| {
        let properties = [0x5d, 0, 0, 0x80, 0];
        [&properties[..], &length.to_le_bytes(), &[0; 40]].concat()
    };
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
    for (bytes, part) in [
        (pointer.to_vec(), "a pointer of Git LFS, not the file"),
        (b"/annex/objects/SHA256E-s9--00.trace\n".to_vec(), "git annex get"),
        (b"\n<!DOCTYPE html>\n<html><body>Not found".to_vec(), "a web page"),
        (b"<HTML>".to_vec(), "a web page"),
        (b"<?xml version='1.0'?><Error>".to_vec(), "a web page"),
        (tar(true), "a tar archive: unpack it first"),
        (tar(false), "a tar archive: unpack it first"),
        (gzip(&tar(true)), "a tar archive: unpack it first"),
        (lzma(u64::MAX), "compressed in the old LZMA format, which is not read"),
        (lzma(4096), "compressed in the old LZMA format, which is not read"),
        (b"PERFILE2\0\0".to_vec(), "perf script -F"),
        (b"SIFT\0\0\0\0".to_vec(), "Sniper"),
        (b"\x7fELF\x02".to_vec(), "pagewalk record"),
        (b"7z\xbc\xaf\x27\x1c\0".to_vec(), "7z x"),
        (gzip(&gzip(pointer)), "packed twice"),
        (b"\x1f\x9d\x90".to_vec(), "gzip -d"),
        (b"\xff\xfea\0d\0d\0r\0\n\0".to_vec(), "UTF-16"),
        (b"R 0,0,3,1,2,9\nW 0,0,3,1,2,9\n".to_vec(), "columns `addr,kind`"),
        (b"once upon a time\nthere was\n".to_vec(), "begins with `once upon a time`"),
    ] {
        refused(&bytes, &Options::default(), part);
    }
    for format in [Format::Csv, Format::ChampSim, Format::Lackey, Format::Perf] {
        let named = Options { format: Some(format), ..Options::default() };
        refused(pointer, &named, "a pointer of Git LFS");
        refused(&tar(true), &named, "a tar archive");
    }
}

/// Files with the names of Pagewalk's own traces and of Parquet, which cannot be read as a stream,
/// are examined too.
#[test]
fn a_trace_of_our_own_is_told_from_what_wraps_it() {
    let folder = Folder::new("wrapped");
    let options = Options::default();
    let mut own = trace::open("generate:uniform,accesses=10", &options).unwrap();
    let stored = std::fs::read(store(&folder, own.as_mut())).unwrap();
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n".to_vec();
    for (name, bytes, part) in [
        ("a.pwt", pointer.clone(), "a pointer of Git LFS"),
        ("a.parquet", pointer, "a pointer of Git LFS"),
        ("b.pwt", gzip(&stored), "compressed by gzip"),
        ("b.gz", gzip(&stored), "compressed by gzip"),
        ("c.parquet.gz", gzip(b"PAR1\x15\x04\x15"), "compressed by gzip"),
        ("d.pwt", b"addr\n1\n".to_vec(), "not a Pagewalk trace"),
    ] {
        let path = folder.write(name, &bytes);
        let error = trace::open(&path, &options).err().unwrap().to_string();
        assert!(error.contains(part) && error.contains(&path), "{error}");
    }
}

/// A ChampSim record can begin with the bytes of an LZMA header, if its instruction has such an
/// address.
#[test]
fn champsim_is_not_taken_for_lzma() {
    let records = (0..8u64).flat_map(|i| {
        let mut record = [0u64; 8];
        (record[0], record[4]) = (0x40_005d + 4 * i, 0x7f00_0000_0000 + 64 * i);
        record.into_iter().flat_map(u64::to_le_bytes)
    });
    let given = import(&records.collect::<Vec<u8>>(), &Options::default()).unwrap();
    assert_eq!(given.data().len(), 8);
}
