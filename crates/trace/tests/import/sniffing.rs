use std::path::PathBuf;

use trace::import::{Fetches, Format, Interleave, Options};
use trace::open;
use trace::{Error, Source};

use crate::support::*;

/// A new folder, which is removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("pagewalk-import-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_no_trace_is_refused_with_what_to_do() {
    let no = Options::default();
    let mut big = vec![0, 25, 0, 8, 0, 0, 0, 0, 0, 0, 0, 6];
    big.extend([0; 12]);
    let short: Vec<u8> = [[25u8, 0, 0, 0, 6, 0, 0, 0], [28, 0, 12, 0, 6, 0, 0, 0]].concat();
    let raw = (6u64 << 61 | 6).to_le_bytes();
    for (bytes, part) in [
        (b"".as_slice(), "the file is empty"),
        (b"#eof\n", "pinatrace that has only its last line, #eof"),
        (b"# of a pintool\r\n\r\n#eof\r\n", "pinatrace that has only its last line, #eof"),
        (b"# addresses\n\n", "only empty lines and comments"),
        (b" \n\t\r\n", "only empty lines and comments"),
        (b"PAR1\x15\x04\x15", "read from a file, not from a pipe"),
        (&big, "big-endian"),
        (&short, "32-bit"),
        (&[raw, raw].concat(), "raw2trace"),
        (&[7u8; 200], "not a known format; name it with --format"),
        (b"hello, world\n", "--column addr=NAME"),
        (b"\x1f\x8b", "the gzip data is truncated"),
    ] {
        refused(bytes, &no, part);
    }
    assert!(import(b"I  1000,4\n", &Options { format: Some(Format::DrMemTrace), ..no }).is_err());
}

#[test]
fn a_format_can_be_named_before_the_path() {
    let folder = Folder::new("named");
    let path = folder.write("a", b"addr\n1\n");
    let no = Options::default();
    for spec in [path.clone(), format!("csv:{path}")] {
        assert_eq!(drain(open(&spec, &no).unwrap().as_mut()).unwrap().rows, [(0, L, 1, 1, 0)]);
    }
    let message = |spec: &str, options: &Options| open(spec, options).err().unwrap().to_string();
    let lackey = Options { format: Some(Format::Lackey), ..Options::default() };
    assert!(message(&format!("csv:{path}"), &lackey).contains("the format is given twice"));
    assert!(message("csv:", &no).contains("No such file"));
    assert!(matches!(open("/nonexistent", &no), Err(Error::Io { .. })));
    let text = folder.0.display().to_string();
    assert!(message(&format!("csv:{text}"), &no).contains("a folder, where"));
    assert!(message(&text, &no).contains("no trace in the folder"));
    // If a file with exactly this name exists, the name means the file and not a format.
    let odd = folder.write("csv:a", b"addr\n2\n");
    assert_eq!(drain(open(&odd, &no).unwrap().as_mut()).unwrap().rows, [(0, L, 2, 1, 0)]);
}

#[test]
fn errors_and_warnings_come_from_the_thread_that_decodes() {
    let folder = Folder::new("ahead");
    let path = folder.write("a", b"addr\n1\nx\n");
    let error = drain(open(&path, &Options::default()).unwrap().as_mut()).unwrap_err().to_string();
    assert!(
        error.contains(&path) && error.contains("line 3") && error.contains("at byte 7"),
        "{error}"
    );
    let keep = Options { keep_going: true, ..Options::default() };
    let given = drain(open(&path, &keep).unwrap().as_mut()).unwrap();
    assert_eq!(given.rows, [(0, L, 1, 1, 0)]);
    assert_eq!((given.warnings.len(), given.digest.unwrap().len()), (1, 64));
}

/// Stores `source` as a trace in Pagewalk's own format. Returns its path.
pub(crate) fn store(folder: &Folder, source: &mut dyn Source) -> String {
    let path = folder.0.join("stored.pwt");
    let options =
        trace::Options { overwrite: true, chunk_accesses: 1 << 16, ..trace::Options::default() };
    let mut writer = trace::Writer::create(&path, source.header().clone(), options).unwrap();
    trace::copy(source, &mut writer, &mut |_| true).unwrap();
    writer.finish().unwrap();
    path.display().to_string()
}

/// `open` accepts stored traces and generators, as well as files in other tools' formats.
#[test]
fn stored_traces_and_generators_open_by_the_same_name() {
    let folder = Folder::new("door");
    let no = Options::default();
    let spec = "generate:uniform,size=1M,accesses=100000,seed=3";
    let generated = drain(open(spec, &no).unwrap().as_mut()).unwrap();
    assert_eq!(generated.rows.len(), 100_000);

    let path = store(&folder, open(spec, &no).unwrap().as_mut());
    for spec in [path.clone(), format!("pagewalk:{path}")] {
        let stored = drain(open(&spec, &no).unwrap().as_mut()).unwrap();
        same(&stored.rows, &generated.rows, &spec);
    }
    let error = open("generate:nothing", &no).err().unwrap().to_string();
    assert!(error.contains("nothing"), "{error}");
}

/// An option that has no effect on the format of the file is refused.
#[test]
fn options_that_do_not_fit_the_format_are_refused() {
    let folder = Folder::new("fit");
    let header: Vec<u8> =
        [25u8, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 26].iter().copied().chain([0; 11]).collect();
    let champsim: Vec<u8> = (0..4u64)
        .flat_map(|i| [0x40_0000 + 4 * i, 0, 0, 0, 0x7f00_0000_0000, 0, 0, 0])
        .flat_map(u64::to_le_bytes)
        .collect();
    let lackey = folder.write("lackey", b"I  1000,4\n");
    let csv = folder.write("csv", b"addr\n1\n");
    let champsim = folder.write("champsim", &champsim);
    let drmemtrace = folder.write("trace/a.trace", &header);
    let own =
        store(&folder, open("generate:uniform,accesses=10", &Options::default()).unwrap().as_mut());
    let given = "generate:uniform,accesses=10".to_owned();
    let no = Options::default;
    let fetches = Options { fetches: Fetches::None, ..no() };
    let schedule = Options { interleave: Interleave::Schedule, ..no() };
    let v2p = Options { v2p: Some("v2p".into()), ..no() };
    let columns = Options { columns: vec![("addr".into(), "a".into())], ..no() };
    let arch = Options { arch: Some(trace::Arch::Aarch64), ..no() };
    let keep = Options { keep_going: true, ..no() };
    for (options, flag, unfit) in [
        (fetches, "--fetches", vec![&csv, &own, &given]),
        (schedule, "--interleave", vec![&csv, &own, &given, &lackey, &champsim, &drmemtrace]),
        (v2p, "--v2p", vec![&csv, &own, &given, &lackey, &champsim]),
        (columns, "--column", vec![&own, &given, &lackey, &champsim, &drmemtrace]),
        (arch, "--arch", vec![&own, &given]),
        (keep, "--keep-going", vec![&given]),
    ] {
        for spec in unfit {
            let error = open(spec, &options).err().unwrap_or_else(|| panic!("{flag} {spec}"));
            assert!(error.to_string().contains(flag), "{flag} {spec}: {error}");
        }
    }
}

/// If the bytes of a file contradict the given format, the file is refused.
#[test]
fn a_name_that_the_bytes_contradict_is_refused() {
    let named = |format| Options { format: Some(format), ..Options::default() };
    let words = |count: u64, big: bool| -> Vec<u8> {
        let records = (0..40u64).map(move |i| {
            let mut record = vec![0u64; count as usize];
            (record[0], record[4], record[7]) = (0x40_1000 + 4 * i, 0x7f00_0000_1000 + 64 * i, 0);
            record
        });
        let bytes = |word: u64| if big { word.to_be_bytes() } else { word.to_le_bytes() };
        records.flatten().flat_map(bytes).collect()
    };
    let lackey = b"I  1000,4\n S 7000,8\n";
    let header: Vec<u8> =
        [25u8, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 26].iter().copied().chain([0; 11]).collect();
    for (bytes, format, part) in [
        (lackey.to_vec(), Format::ChampSim, "a file of format lackey, not champsim"),
        (header, Format::Csv, "a file of format drmemtrace, not csv"),
        (b"PAR1....".to_vec(), Format::Parquet, "read from a file"),
        (b"PAR1....".to_vec(), Format::Lackey, "a file of format parquet, not lackey"),
        (words(12, false), Format::ChampSim, "give --cloudsuite"),
        (words(8, false), Format::CloudSuite, "leave --cloudsuite out"),
        (words(8, true), Format::ChampSim, "big-endian"),
        (words(12, true), Format::CloudSuite, "big-endian"),
        (vec![1, 0, 7], Format::Csv, "not text"),
        (Vec::new(), Format::Csv, "the file is empty"),
        (b"PK\x05\x06".iter().copied().chain([0; 18]).collect(), Format::Csv, "the file is empty"),
    ] {
        refused(&bytes, &named(format), part);
    }
}

/// A damaged trace in Pagewalk's own format is refused or, with `keep_going`, read up to the
/// damage.
#[test]
fn a_damaged_trace_of_our_own_is_refused_or_kept_as_far_as_it_goes() {
    let folder = Folder::new("own");
    let no = Options::default();
    let spec = "generate:uniform,size=1M,accesses=300000,seed=3";
    let path = store(&folder, open(spec, &no).unwrap().as_mut());
    let whole = drain(open(&path, &no).unwrap().as_mut()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() * 2 / 3] ^= 1;
    for (bytes, part) in [(&bytes[..bytes.len() / 2], "is truncated"), (&flipped, "checksum")] {
        std::fs::write(&path, bytes).unwrap();
        let read =
            |options: &Options| open(&path, options).and_then(|mut source| drain(source.as_mut()));
        let error = read(&no).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("(at byte "), "{error}");
        let kept = read(&Options { keep_going: true, ..no.clone() }).unwrap();
        assert_eq!(kept.warnings.len(), 1);
        assert!(kept.warnings[0].starts_with(&error), "{:?}", kept.warnings);
        assert!(!kept.rows.is_empty() && kept.rows.len() < whole.rows.len());
        same(&kept.rows, &whole.rows[..kept.rows.len()], part);
    }
}
