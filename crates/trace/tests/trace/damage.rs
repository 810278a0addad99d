//! Reads files that were truncated, damaged or forged. The result must be the same data, or an
//! error that says where. A reader must not panic, and must not use much more memory than the size
//! of the file.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use trace::{
    Address, ChunkInfo, Error, Event, Op, Options, Reader, Seen, Shape, Source, Translation, Writer,
};

use crate::common::{Call, Rows, Script, header};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("pagewalk-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        // Some file systems write a truncated file to the disk at once, but not a new file.
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A small script that uses every part of the format.
fn small() -> Script {
    let address = Address::Said;
    let op = |instruction, kind, size| Op { instruction, kind, size, address };
    let ops = vec![op(0, addr::Kind::Load, 8), op(2, addr::Kind::Store, 4)];
    let shapes = vec![
        Shape { pc: 0x40_1000, bytes: 12, instructions: 4, fetch: true, ops },
        Shape { pc: 0x40_2000, bytes: 3, instructions: 1, fetch: true, ops: Vec::new() },
    ];
    let mut calls = Vec::new();
    for round in 0..20u64 {
        calls.push(Call::Execute(
            0,
            vec![0x7000 + 64 * round, 0x1234_5678_9abc - 99 * round * round],
        ));
        calls.push(Call::Execute(1, vec![0]));
        if round % 7 == 3 {
            calls.push(Call::Thread(round as u32));
            calls.push(Call::Event(1, Event::Brk { addr: round, result: 5 }));
            let page = Translation::base(Seen::Walk, round << 21);
            calls.push(Call::Event(1, Event::Translation(Box::new(page))));
        }
    }
    calls.push(Call::Physical(0, vec![0x7000, 0x9000]));
    Script { shapes, calls }
}

/// The bytes of a trace that `script` wrote.
fn written(script: &Script, folder: &Folder, chunk_accesses: u32) -> Vec<u8> {
    let path = folder.0.join("whole.pwt");
    let options = Options { overwrite: true, chunk_accesses, ..Options::default() };
    let mut writer = Writer::create(&path, header(), options).unwrap();
    script.play(&mut writer).unwrap();
    writer.finish().unwrap();
    std::fs::read(&path).unwrap()
}

/// Reads all rows, and the notes of the header.
fn read(path: &Path) -> Result<(Rows, Vec<String>), Error> {
    let mut reader = Reader::open(path)?.in_place();
    let rows = Rows::of(&mut reader, 0)?;
    Ok((rows, reader.header().notes.clone()))
}

fn check_error(error: &Error, path: &Path, bytes: usize) {
    let text = error.to_string();
    assert!(text.starts_with(&path.display().to_string()) && !text.contains('\n'), "{text}");
    match error {
        Error::Corrupt { offset, .. } => assert!(*offset <= bytes as u64, "{text}"),
        _ => panic!("{text}"),
    }
}

#[test]
fn every_changed_byte_is_found_or_changes_nothing() {
    let folder = Folder::new("changed");
    let bytes = written(&small(), &folder, 25);
    let (whole, _) = read(&folder.0.join("whole.pwt")).unwrap();
    let mut same = 0;
    for at in 0..bytes.len() {
        for change in [1, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= change;
            let path = folder.file("damaged.pwt", &damaged);
            match read(&path) {
                Ok((rows, notes)) => {
                    assert_eq!(rows, whole, "byte {at} ^ {change:#x}");
                    assert!(notes.iter().any(|note| note.contains("truncated")));
                    same += 1;
                }
                Err(error) => check_error(&error, &path, bytes.len()),
            }
        }
    }
    // Only a file whose end is damaged is repaired, from its chunks.
    assert_eq!(same, 3 * 20);
}

#[test]
fn what_is_whole_of_a_cut_file_is_read() {
    let folder = Folder::new("cut");
    let bytes = written(&small(), &folder, 25);
    let path = folder.0.join("whole.pwt");
    let (whole, _) = read(&path).unwrap();
    let reader = Reader::open(&path).unwrap();
    let (chunks, digest) = (reader.chunks().to_vec(), reader.digest());
    assert!(chunks.len() > 2);
    for length in 0..bytes.len() {
        let path = folder.file("cut.pwt", &bytes[..length]);
        if length < chunks[0].offset as usize {
            check_error(&read(&path).unwrap_err(), &path, length);
            continue;
        }
        let (rows, notes) = read(&path).unwrap();
        let kept =
            chunks.iter().filter(|chunk| chunk.offset + u64::from(chunk.bytes) <= length as u64);
        let accesses = kept.clone().map(|chunk| u64::from(chunk.accesses)).sum::<u64>();
        assert_eq!(rows.rows, whole.rows[..accesses as usize], "cut to {length}");
        assert!(
            rows.events.len() >= whole.events.iter().filter(|event| event.0 < accesses).count()
        );
        let end = kept
            .clone()
            .next_back()
            .map_or(chunks[0].offset, |chunk| chunk.offset + u64::from(chunk.bytes));
        let note = format!(
            "its {} complete chunks are used, and its last {} bytes are left out",
            kept.count(),
            length as u64 - end
        );
        assert!(notes.iter().any(|text| text.contains(&note)), "{notes:?}, not {note}");
        let again = Reader::open(&path).unwrap();
        assert_eq!(again.digest() == digest, accesses == whole.rows.len() as u64);
    }
}

#[test]
fn other_files_are_called_what_they_are() {
    let folder = Folder::new("other");
    let mut bytes = written(&small(), &folder, 25);
    for (name, contents, wanted) in [
        ("empty", &b""[..], "is empty"),
        ("text", b"hello, world, how are you?", "not a Pagewalk trace"),
        ("short", b"\x89PW", "truncated within its header"),
        ("shifted", &bytes[1..], "not a Pagewalk trace"),
    ] {
        let path = folder.file(name, contents);
        let error = read(&path).unwrap_err();
        check_error(&error, &path, contents.len());
        assert!(error.to_string().contains(wanted), "{name}: {error}");
    }
    bytes[8] = 4;
    let error = read(&folder.file("version", &bytes)).unwrap_err().to_string();
    assert!(error.contains("version 4, but this Pagewalk reads versions 1 to 3"), "{error}");
    let error = read(&folder.0.join("missing")).unwrap_err().to_string();
    assert!(error.contains("missing: No such file"), "{error}");
    let error = read(&folder.0).unwrap_err().to_string();
    assert!(error.contains("a directory"), "{error}");
}

#[test]
fn a_writer_leaves_nothing_half_done() {
    let folder = Folder::new("writer");
    let (path, part) = (folder.0.join("out.pwt"), folder.0.join("out.pwt.part"));
    let create = |overwrite| {
        Writer::create(
            &path,
            header(),
            Options { overwrite, chunk_accesses: 25, ..Options::default() },
        )
    };

    let mut writer = create(false).unwrap();
    small().play(&mut writer).unwrap();
    assert!(part.exists() && !path.exists());
    assert!(create(false).unwrap_err().to_string().contains("is being written"));
    drop(writer);
    assert!(!part.exists() && !path.exists());

    // The file is left as by a writer that was killed.
    let mut writer = create(false).unwrap();
    small().play(&mut writer).unwrap();
    std::mem::forget(writer);
    let (rows, notes) = read(&part).unwrap();
    assert!(rows.rows.len() >= 50 && notes.len() == 1);

    let mut writer = create(true).unwrap();
    small().play(&mut writer).unwrap();
    writer.finish().unwrap();
    assert!(!part.exists());
    assert!(create(false).unwrap_err().to_string().contains("exists already"));
    assert!(!part.exists());
    let before = std::fs::read(&path).unwrap();
    drop(create(true).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), before);

    let nowhere = folder.0.join("no/such/folder/out.pwt");
    let error = Writer::create(&nowhere, header(), Options::default()).unwrap_err().to_string();
    assert!(error.contains("out.pwt: No such file"), "{error}");
    assert!(
        Writer::create(&folder.0, header(), Options { overwrite: true, ..Options::default() })
            .is_err()
    );
}

#[test]
fn somebody_elses_file_is_not_replaced() {
    let folder = Folder::new("elses");
    let path = folder.0.join("out.pwt");
    let mut writer = Writer::create(&path, header(), Options::default()).unwrap();
    small().play(&mut writer).unwrap();
    std::fs::write(&path, b"mine").unwrap();
    let error = writer.finish().unwrap_err().to_string();
    assert!(error.contains("the trace is in") && error.contains("out.pwt.part"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    assert!(read(&folder.0.join("out.pwt.part")).unwrap().1.is_empty());
}

#[cfg(unix)]
#[test]
fn a_pipe_is_written_to_and_a_link_stays() {
    let folder = Folder::new("pipe");
    let (pipe, path, link) =
        (folder.0.join("pipe"), folder.0.join("out.pwt"), folder.0.join("link.pwt"));
    let write = |path: &Path| {
        let options = Options { overwrite: true, ..Options::default() };
        let mut writer = Writer::create(path, header(), options).unwrap();
        small().play(&mut writer).unwrap();
        writer.finish().unwrap();
    };
    write(&path);
    let whole = std::fs::read(&path).unwrap();

    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    write(&pipe);
    assert_eq!(reader.join().unwrap(), whole);
    assert!(!pipe.metadata().unwrap().is_file() && !folder.0.join("pipe.part").exists());

    std::fs::write(&path, b"old").unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    write(&link);
    assert_eq!(std::fs::read(&path).unwrap(), whole);
    assert!(link.symlink_metadata().unwrap().is_symlink());
}

/// The disk is full: the file is `/dev/full`.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_with_the_name_of_the_file() {
    let folder = Folder::new("full");
    let path = folder.0.join("out.pwt");
    std::os::unix::fs::symlink("/dev/full", folder.0.join("out.pwt.part")).unwrap();
    let options = Options { overwrite: true, ..Options::default() };
    let error = Writer::create(&path, header(), options).unwrap_err().to_string();
    assert!(error.contains("out.pwt: No space left on device"), "{error}");
    assert!(!path.exists());
}

/// Tests forged chunks, which have right checksums but wrong contents. Forged streams inside a
/// chunk are tested with the decoder.
mod forged {
    use super::*;

    const FRAME: usize = 12;

    fn frame(kind: &[u8; 4], body: &[u8], file: &mut Vec<u8>) -> [u8; 4] {
        let length = (body.len() as u32).to_le_bytes();
        let crc = crc32fast::hash(&[kind, &length, body].concat()).to_le_bytes();
        file.extend_from_slice(&[kind, &length, &crc, body].concat());
        crc
    }

    /// The trace `bytes` with only its first chunk. The body of this chunk is replaced by `body`,
    /// and the checksums, the index and the end of the file fit it.
    fn with_body(bytes: &[u8], chunk: ChunkInfo, body: &[u8]) -> Vec<u8> {
        let mut file = bytes[..chunk.offset as usize].to_vec();
        let crc = frame(b"CHNK", body, &mut file);
        let mut index = (FRAME as u32 + body.len() as u32).to_le_bytes().to_vec();
        index.extend_from_slice(&crc);
        index.extend_from_slice(&chunk.accesses.to_le_bytes());
        index.extend_from_slice(&chunk.events.to_le_bytes());
        index.extend_from_slice(&chunk.instructions.to_le_bytes());
        let offset = file.len() as u64;
        frame(b"INDX", &index, &mut file);
        frame(b"TAIL", &offset.to_le_bytes(), &mut file);
        file
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

        #[test]
        fn any_bytes_are_no_trace(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let folder = Folder::new("bytes");
            let path = folder.file("any.pwt", &bytes);
            check_error(&read(&path).unwrap_err(), &path, bytes.len());
        }
    }

    /// Counts that would need much memory are refused before memory is allocated for them.
    #[test]
    fn absurd_counts_are_refused() {
        let folder = Folder::new("absurd");
        let bytes = written(&small(), &folder, 1 << 20);
        let chunk = Reader::open(&folder.0.join("whole.pwt")).unwrap().chunks()[0];
        let start = chunk.offset as usize;
        let body = &bytes[start + FRAME..start + chunk.bytes as usize];
        for field in (8..44 + 7 * 8).step_by(4) {
            let mut forged = body.to_vec();
            forged[field..field + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            let path = folder.file("absurd.pwt", &with_body(&bytes, chunk, &forged));
            match read(&path) {
                Err(error) => check_error(&error, &path, bytes.len()),
                // The number of instructions is only stored in the index, so a wrong number is
                // accepted.
                Ok(_) => assert!(field < 16, "field at {field}"),
            }
        }
        let mut long = bytes.clone();
        long[start + 4..start + 8].copy_from_slice(&u32::MAX.to_le_bytes());
        let path = folder.file("long.pwt", &long);
        check_error(&read(&path).unwrap_err(), &path, bytes.len());
    }
}
