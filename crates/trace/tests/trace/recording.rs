//! Tests recordings: the rows of each process are those that were written, and the rows of all
//! processes are in the order of stamps.

use std::fs;
use std::path::PathBuf;

use addr::Kind;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use trace::{
    Address, Arch, Batch, Event, Filter, Header, Op, Options, Process, Program, Reader, Recording,
    Shape, Sink, Source,
};

const SEED: u64 = 0x0072_6563;

fn header() -> Header {
    Header {
        producer: "test".to_owned(),
        command: vec!["make".to_owned()],
        arch: Arch::X86_64,
        fetches: true,
        filter: Filter::None,
        page_bytes: 4096,
        notes: Vec::new(),
        kernel_from: None,
    }
}

fn process(number: u32, parent: Option<u32>, shares_space: bool, began_ns: u64) -> Process {
    let command = vec![format!("/bin/p{number}"), "x".to_owned()];
    Process {
        number,
        pid: 1000 + number,
        parent,
        parent_accesses: None,
        shares_space,
        began_ns,
        programs: vec![Program { arch: Arch::X86_64, command, from: 0 }],
        accesses: 0,
        instructions: 0,
    }
}

fn path(name: &str) -> PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_file(&path);
    path
}

/// A row or the name of an event, with its space and thread.
type Seen = (u32, u32, Result<u64, String>);

/// The contents of `source`. Stamps have no effect on it.
fn all(source: &mut dyn Source) -> Vec<Seen> {
    let (mut seen, mut batch, mut space, mut more) = (Vec::new(), Batch::default(), 0, true);
    while more {
        more = source.next(&mut batch).unwrap();
        assert!(batch.stamps.iter().all(|stamp| stamp.at as usize <= batch.len()));
        let (mut events, mut thread) = (batch.events.iter().peekable(), 0);
        for index in 0..=batch.len() {
            while let Some(placed) = events.next_if(|event| event.at as usize <= index) {
                match placed.event {
                    Event::Run { space: next, .. } => space = next,
                    _ => seen.push((space, placed.thread, Err(placed.event.name().to_owned()))),
                }
            }
            let started = |segment: &&trace::Segment| segment.start as usize == index;
            if let Some(segment) = batch.segments.iter().find(started) {
                thread = segment.thread;
            }
            if let Some(&addr) = batch.addr.get(index) {
                seen.push((space, thread, Ok(addr)));
            }
        }
    }
    seen
}

/// Random segments of random processes. Each process alone has the rows that were written; all
/// together are in the order of their stamps.
#[test]
fn processes_come_back_alone_and_in_the_order_of_their_stamps() {
    println!("seed {SEED:#x}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    for round in 0..20 {
        let path = path(&format!("order-{round}.pwt"));
        let options = Options { chunk_accesses: 50, ..Options::default() };
        let recording = Recording::create(&path, &header(), options).unwrap();
        let count = 1 + random.next_u64() as usize % 5;
        let processes: Vec<Process> =
            (0..count as u32).map(|number| process(number, None, false, 0)).collect();
        let mut writers: Vec<_> =
            processes.iter().map(|process| recording.process(process).unwrap()).collect();
        let (mut pieces, mut own) = (Vec::new(), vec![Vec::new(); count]);
        for ns in 1..200 {
            let index = random.next_u64() as usize % count;
            let writer = &mut writers[index];
            let op = Op { instruction: 0, kind: Kind::Load, size: 8, address: Address::Said };
            let shape = writer.shape(&Shape {
                pc: 64 * (index as u64 + 1),
                bytes: 8,
                instructions: 1,
                fetch: false,
                ops: vec![op],
            });
            let mut piece = Vec::new();
            for _ in 0..random.next_u64() % 20 {
                let thread = (random.next_u64() % 3) as u32;
                if random.next_u64().is_multiple_of(10) {
                    writer.event(thread, Event::ThreadEnd).unwrap();
                    piece.push((thread, Err("thread-end".to_owned())));
                } else {
                    let addr = random.next_u64() >> 20;
                    writer.thread(thread);
                    writer.execute(shape, &[addr]).unwrap();
                    piece.push((thread, Ok(addr)));
                }
            }
            writer.stamp(ns);
            own[index].extend(piece.iter().cloned());
            pieces.push((index as u32, piece));
        }
        for writer in &mut writers {
            writer.end().unwrap();
        }
        drop(writers);
        let summary = recording.finish().unwrap();
        let rows = |seen: &[(u32, Result<u64, String>)]| -> Vec<u64> {
            seen.iter().filter_map(|(_, what)| what.clone().ok()).collect()
        };
        let reader = Reader::open(&path).unwrap();
        let told = |process: &Process| Process { accesses: 0, instructions: 0, ..process.clone() };
        let read: Vec<Process> = reader.processes().iter().map(told).collect();
        assert_eq!(read, processes);
        for (number, own) in own.iter().enumerate() {
            let mut alone = reader.process(number as u32).unwrap();
            assert_eq!(alone.total(), Some(rows(own).len() as u64));
            let seen = all(&mut alone);
            let seen: Vec<_> = seen.into_iter().map(|(_, thread, what)| (thread, what)).collect();
            assert!(seen == *own, "process {number}");
        }
        let merged = all(&mut Reader::open(&path).unwrap());
        let merged: Vec<(u32, u64)> =
            merged.into_iter().filter_map(|(space, _, what)| Some((space, what.ok()?))).collect();
        let expected: Vec<(u32, u64)> = pieces
            .iter()
            .flat_map(|(space, piece)| rows(piece).into_iter().map(|addr| (*space, addr)))
            .collect();
        assert!(merged == expected, "round {round} of {count} processes");
        assert_eq!(summary.accesses, merged.len() as u64);

        // A truncated file gives its complete chunks.
        let bytes = fs::read(&path).unwrap();
        for _ in 0..20 {
            let length = random.next_u64() as usize % bytes.len();
            fs::write(&path, &bytes[..length]).unwrap();
            if let Ok(mut reader) = Reader::open(&path) {
                let part = all(&mut reader).into_iter().filter(|(_, _, what)| what.is_ok());
                assert!(part.count() <= merged.len());
            } else {
                assert!(length < 300, "cut at {length} of {}", bytes.len());
            }
        }
    }
}

/// Records two processes. `other` changes numbers, times and sizes; `addr` changes the accesses.
fn twins(name: &str, other: u64, addr: u64) -> String {
    let recording = Recording::create(&path(name), &header(), Options::default()).unwrap();
    let first = Process { pid: other as u32, ..process(0, None, false, other) };
    let second = Process { pid: 2 * other as u32, ..process(1, Some(0), true, other + 5) };
    let mut writers = [recording.process(&first).unwrap(), recording.process(&second).unwrap()];
    for writer in &mut writers {
        let op = Op { instruction: 0, kind: Kind::Store, size: 4, address: Address::Said };
        let (pc, ops) = (64, vec![op]);
        let shape = writer.shape(&Shape { pc, bytes: 8, instructions: 1, fetch: true, ops });
        writer.event(0, Event::ThreadStart { tid: other as i64 }).unwrap();
        writer.execute(shape, &[addr]).unwrap();
        writer.stamp(3 * other);
        writer.event(0, Event::Fork { result: other as i64, flags: 17 }).unwrap();
    }
    // The writer that finishes first is first in the file.
    if other.is_multiple_of(2) {
        writers.reverse();
    }
    writers.iter_mut().for_each(|writer| writer.end().unwrap());
    recording.finish().unwrap().digest
}

#[test]
fn the_digest_is_of_what_was_done() {
    let one = twins("one.pwt", 1001, 0x1000);
    assert_eq!(one, twins("two.pwt", 2002, 0x1000));
    assert_ne!(one, twins("three.pwt", 1001, 0x1008));
    assert_eq!(Reader::open(&path_of("two.pwt")).unwrap().digest(), Some(one));
}

/// Addresses that are computed from other addresses are restored from the file. A file without such
/// addresses has the format of version 2.
#[test]
fn both_versions_are_read() {
    for (name, follows) in [("follows.pwt", true), ("said.pwt", false)] {
        let path = path(name);
        let recording = Recording::create(&path, &header(), Options::default()).unwrap();
        let mut writer = recording.process(&process(0, None, false, 0)).unwrap();
        let op = |address| Op { instruction: 0, kind: Kind::Load, size: 8, address };
        let behind = [Address::Behind { op: 0, distance: 24 }, Address::BehindStart(8)];
        let others = if follows { behind } else { [Address::Said; 2] };
        let ops = [Address::Said, others[0], others[1]].map(op).to_vec();
        let shape = Shape { pc: 64, bytes: 8, instructions: 1, fetch: false, ops };
        let shape = writer.shape(&shape);
        for addr in (0x1000..0x9000).step_by(72) {
            writer.execute(shape, &[addr, addr + 24, 72]).unwrap();
        }
        writer.end().unwrap();
        drop(writer);
        recording.finish().unwrap();
        let rows = |path: &PathBuf| -> Vec<_> {
            let rows = all(&mut Reader::open(path).unwrap()).into_iter();
            rows.filter_map(|(_, _, what)| what.ok()).collect()
        };
        let expected: Vec<u64> =
            (0x1000..0x9000).step_by(72).flat_map(|addr| [addr, addr + 24, 72]).collect();
        assert_eq!(rows(&path), expected);
        let mut bytes = fs::read(&path).unwrap();
        assert_eq!(bytes[8], 3);
        if !follows {
            bytes[8] = 2;
            fs::write(&path, &bytes).unwrap();
            assert_eq!(rows(&path), expected);
        }
    }
}

fn path_of(name: &str) -> PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A child of `vfork` runs in its parent's space until it executes a program.
#[test]
fn a_child_that_shares_the_space_leaves_it_when_it_executes() {
    let path = path("vfork.pwt");
    let recording = Recording::create(&path, &header(), Options::default()).unwrap();
    let mut parent = recording.process(&process(0, None, false, 0)).unwrap();
    let mut child = recording.process(&process(1, Some(0), true, 15)).unwrap();
    let shape = Shape { pc: 64, bytes: 8, instructions: 1, fetch: true, ops: Vec::new() };
    let ids = [parent.shape(&shape), child.shape(&shape)];
    let mapping = Event::Mapping {
        start: 0,
        bytes: 4096,
        rights: 5,
        origin: trace::Origin::Stack,
        offset: None,
        file: None,
    };
    parent.execute(ids[0], &[]).unwrap();
    parent.stamp(10);
    child.event(0, mapping.clone()).unwrap();
    child.execute(ids[1], &[]).unwrap();
    child.stamp(20);
    // The parent continues before the child's next program begins.
    parent.event(0, Event::Fork { result: 1, flags: trace::CLONE_VM }).unwrap();
    parent.execute(ids[0], &[]).unwrap();
    parent.stamp(22);
    child.event(0, Event::Execve { path: "/bin/true".to_owned(), result: 0 }).unwrap();
    child.event(0, mapping).unwrap();
    child.execute(ids[1], &[]).unwrap();
    child.stamp(30);
    parent.execute(ids[0], &[]).unwrap();
    parent.stamp(40);
    parent.end().unwrap();
    child.end().unwrap();
    drop((parent, child));
    recording.finish().unwrap();
    let seen: Vec<(u32, String)> = all(&mut Reader::open(&path).unwrap())
        .into_iter()
        .map(|(space, _, what)| (space, what.map_or_else(|name| name, |_| "row".to_owned())))
        .collect();
    let expected = [
        (0, "row"),
        // This event belongs to the child, although the child runs in its parent's space.
        (0, "process"),
        (0, "row"),
        (0, "process"),
        // This event reports the call that returned after the child had left its parent's space.
        (0, "fork"),
        (0, "row"),
        (0, "process"),
        (1, "execve"),
        (1, "mapping"),
        (1, "row"),
        (1, "process"),
        (0, "row"),
    ];
    let seen: Vec<(u32, &str)> = seen.iter().map(|(space, what)| (*space, what.as_str())).collect();
    assert_eq!(seen, expected);
    let table = path.with_extension("csv");
    let options = trace::export::Options { overwrite: true, thread: None };
    let summary =
        trace::export::csv(&mut Reader::open(&path).unwrap(), &table, &options, &mut |_| true);
    assert_eq!(summary.unwrap().unwrap().records, 5);
    let text = fs::read_to_string(&table).unwrap();
    let processes: Vec<&str> =
        text.lines().filter_map(|line| Some(line.rsplit_once(',')?.1)).collect();
    assert_eq!(processes, ["process", "0", "1", "0", "1", "0"]);
}

/// The child of a shell runs the shell's program until it executes another. The name of the shell
/// selects the shell itself, and the other names select the children.
#[test]
fn a_name_means_the_process_that_ran_it_last() {
    let path = path("names.pwt");
    let recording = Recording::create(&path, &header(), Options::default()).unwrap();
    for (number, names) in (0..).zip([&["sh"][..], &["sh", "cat"], &["sh", "env", "cat"]]) {
        let program = |name: &&str| Program {
            arch: Arch::X86_64,
            command: vec![format!("/bin/{name}")],
            from: 0,
        };
        let programs = names.iter().map(program).collect();
        let parent = (number > 0).then_some(0);
        let process = Process { programs, ..process(number, parent, false, 0) };
        recording.process(&process).unwrap().end().unwrap();
    }
    recording.finish().unwrap();
    let reader = Reader::open(&path).unwrap();
    for (wanted, number) in [("sh", 0), ("env", 2), ("1001", 1)] {
        assert_eq!(reader.called(wanted).unwrap(), number, "{wanted}");
    }
    for (wanted, says) in
        [("cat", "2 processes are called"), ("/bin/sh", "3 processes"), ("ls", "no process")]
    {
        let error = reader.called(wanted).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
