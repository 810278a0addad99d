//! Tests recordings in blocking order: processes wait for each other as on one processor.

mod model;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use addr::Kind;
use trace::import::Options;
use trace::mix::{Mix, Switches};
use trace::{
    Address, Arch, Batch, Call, Descriptor, Event, FileId, FileKind, Op, Process, Program,
    Recording, Shape, Sink, Source, Writer,
};

const CLONE_VM: u64 = trace::CLONE_VM;
const CLONE_VFORK: u64 = 0x4000;
const PIPE: u64 = 77;

/// An action of a process.
#[derive(Clone, Copy)]
enum Act {
    /// Makes this number of accesses, each with ten instructions.
    Run(u64),
    Fork(u32, u64),
    Execve,
    Read(u64, i64),
    Write(u64, i64),
    Wait(u32),
    /// Sleeps for this number of nanoseconds.
    Sleep(u64),
}

use Act::{Execve, Fork, Read, Run, Sleep, Wait, Write};

/// Writes a recording of processes, each with its parent, whether it shares its parent's space, the
/// time of its beginning, and its actions. Each action takes 100 ns.
fn recorded(name: &str, processes: &[(Option<u32>, bool, u64, &[Act])]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("blocking-{name}.pwt"));
    let _ = fs::remove_file(&path);
    let header = crate::common::header();
    let recording = Recording::create(&path, &header, trace::Options::default()).unwrap();
    for (number, (parent, shares_space, began_ns, acts)) in (0..).zip(processes) {
        let (parent, began_ns) = (*parent, *began_ns);
        let process = Process {
            number,
            pid: 1000 + number,
            parent,
            parent_accesses: None,
            shares_space: *shares_space,
            began_ns,
            programs: vec![Program { arch: Arch::X86_64, command: vec!["p".into()], from: 0 }],
            accesses: 0,
            instructions: 0,
        };
        let mut writer = recording.process(&process).unwrap();
        act(&mut writer, number, began_ns, acts);
        writer.end().unwrap();
    }
    recording.finish().unwrap();
    path
}

fn act(writer: &mut Writer, number: u32, mut ns: u64, acts: &[Act]) {
    let op = Op { instruction: 0, kind: Kind::Load, size: 8, address: Address::Said };
    let (bytes, fetch) = (8, false);
    let shape = Shape { pc: 64, bytes, instructions: 10, fetch, ops: vec![op] };
    let shape = writer.shape(&shape);
    writer.thread(0);
    for act in acts {
        let began_ns = ns;
        ns += 100;
        let call = |name: &str, result, ended_ns, pipe: Option<u64>| {
            let file = |inode| FileId { device: 1, inode, bytes: 0 };
            let open = |inode| {
                let (kind, nonblocking) = (FileKind::Pipe, false);
                Descriptor { fd: 3, kind, file: file(inode), nonblocking }
            };
            Event::Call(Box::new(Call {
                name: name.to_owned(),
                result,
                began_ns,
                ended_ns,
                fd: pipe.map(|_| 3),
                descriptors: pipe.map(open).into_iter().collect(),
                ..Call::default()
            }))
        };
        match *act {
            Run(accesses) => {
                for access in 0..accesses {
                    writer.execute(shape, &[u64::from(number) << 32 | access]).unwrap();
                }
            }
            Fork(child, flags) => {
                let result = i64::from(1000 + child);
                writer.event(0, Event::Fork { result, flags }).unwrap();
            }
            Execve => {
                writer.event(0, Event::Execve { path: "x".to_owned(), result: 0 }).unwrap();
            }
            Read(pipe, result) => writer.event(0, call("read", result, ns, Some(pipe))).unwrap(),
            Write(pipe, result) => writer.event(0, call("write", result, ns, Some(pipe))).unwrap(),
            Wait(child) => {
                let event = call("wait4", i64::from(1000 + child), ns, None);
                writer.event(0, event).unwrap();
            }
            Sleep(time) => {
                ns += time;
                writer.event(0, call("nanosleep", 0, ns, None)).unwrap();
            }
        }
        writer.stamp(ns);
    }
}

/// The turns, each with the number of its process and its number of accesses; and the counts of
/// switches.
fn order(spec: &str) -> (Vec<(u64, u64)>, Switches) {
    let mut mix = Mix::open(spec, &Options::default()).unwrap();
    let (mut turns, mut batch, mut more) = (Vec::<(u64, u64)>::new(), Batch::default(), true);
    while more {
        more = mix.next(&mut batch).unwrap();
        for addr in &batch.addr {
            match turns.last_mut() {
                Some((last, count)) if *last == addr >> 32 => *count += 1,
                _ => turns.push((addr >> 32, 1)),
            }
        }
    }
    (turns, mix.switches().unwrap())
}

fn causes(blocked: u64, ended: u64, quantum: u64) -> BTreeMap<&'static str, u64> {
    BTreeMap::from([("blocked", blocked), ("ended", ended), ("quantum", quantum)])
}

/// A pipeline `producer | consumer` with these numbers and sizes of writes and reads. There is one
/// access before each write and read.
fn pipeline(name: &str, (writes, write): (u64, i64), (reads, read): (u64, i64)) -> PathBuf {
    let shell = [Run(10), Fork(1, 0), Fork(2, 0), Wait(1), Wait(2), Run(10)];
    let mut producer: Vec<Act> = (0..writes).flat_map(|_| [Run(1), Write(PIPE, write)]).collect();
    producer.push(Run(1));
    let mut consumer: Vec<Act> = (0..reads).flat_map(|_| [Run(1), Read(PIPE, read)]).collect();
    consumer.extend([Run(1), Read(PIPE, 0), Run(1)]);
    let of_shell = Some(0);
    let processes: [(Option<u32>, bool, u64, &[Act]); 3] = [
        (None, false, 0, &shell),
        (of_shell, false, 200, &producer),
        (of_shell, false, 300, &consumer),
    ];
    recorded(name, &processes)
}

/// The producer waits whenever the pipe is full and it has more to write. The consumer waits
/// whenever the pipe is empty before the end of the data.
#[test]
fn a_pipeline_switches_as_often_as_its_pipe_is_full_and_empty() {
    const K: u64 = 1024;
    // Each case has the number of bytes, the sizes of writes and reads, and the pipe's capacity. No
    // process waits for the last fill.
    for (name, bytes, write, read, capacity) in [
        ("even", 1024 * K, 4 * K, 4 * K, 64 * K),
        ("small", 256 * K, K, K, 16 * K),
        ("reads", 1024 * K, 4 * K, 32 * K, 64 * K),
        ("writes", 1024 * K, 32 * K, 4 * K, 64 * K),
        ("once", 64 * K, 4 * K, 4 * K, 64 * K),
        // A write larger than the pipe is made in parts.
        ("large", 512 * K, 128 * K, 4 * K, 64 * K),
        // Bytes that were read by one call in the recording, with a larger pipe, are read in parts.
        ("parts", 512 * K, 4 * K, 64 * K, 16 * K),
    ] {
        let path = pipeline(name, (bytes / write, write as i64), (bytes / read, read as i64));
        let (turns, switches) = order(&format!("pipe={capacity}B,{}", path.display()));
        let fills = bytes / capacity;
        // The shell waits once. Its children wait between fills, and both end before the shell.
        assert_eq!(switches.by_cause, causes(1 + 2 * (fills - 1), 2, 0), "{name}");
        assert_eq!(switches.unexplained, 0, "{name}");
        let total: u64 = turns.iter().map(|turn| turn.1).sum();
        assert_eq!(total, 20 + bytes / write + 1 + bytes / read + 2, "{name}");
        assert_eq!((turns[0], turns[turns.len() - 1]), ((0, 10), (0, 10)), "{name}");
    }
    let path = pipeline("turns", (256, 4096), (256, 4096));
    let (turns, _) = order(&format!("{}", path.display()));
    // 16 writes fill the pipe, and the writer also makes the access before its next write.
    assert_eq!(turns[..4], [(0, 10), (1, 17), (2, 17), (1, 16)]);
}

#[test]
fn a_quantum_ends_a_turn_before_a_wait_does() {
    let path = pipeline("quantum", (256, 4096), (256, 4096));
    // Each act has one access of ten instructions, so every quantum ends before a process has to
    // wait for the pipe.
    let (turns, switches) = order(&format!("quantum=100,{}", path.display()));
    assert!(turns[1..].iter().all(|turn| turn.1 <= 20), "{turns:?}");
    assert!(switches.by_cause["quantum"] > 30, "{switches:?}");
    // With `order=turns` no process waits for another one, and children begin when they are forked.
    let (turns, switches) = order(&format!("order=turns,{}", path.display()));
    assert_eq!(turns, [(0, 20), (1, 257), (2, 258)]);
    assert_eq!(switches.by_cause, causes(0, 2, 0));
    // In the order of the recording, the two children alternate after each act.
    let (turns, switches) = order(&format!("order=stamps,{}", path.display()));
    assert!(turns.len() > 500 && turns[1..].iter().all(|turn| turn.1 <= 10), "{turns:?}");
    assert!(switches.by_cause["recorded"] > 500, "{switches:?}");
}

#[test]
fn the_parent_waits_for_a_vfork_and_the_child_leaves_its_space() {
    let parent = [Run(5), Fork(1, CLONE_VM | CLONE_VFORK), Run(5), Wait(1), Run(5)];
    let child = [Run(3), Execve, Run(30)];
    let processes: [(Option<u32>, bool, u64, &[Act]); 2] =
        [(None, false, 0, &parent), (Some(0), true, 100, &child)];
    let path = recorded("vfork", &processes);
    let (turns, switches) = order(&format!("quantum=41,{}", path.display()));
    assert_eq!(turns[..3], [(0, 5), (1, 5), (0, 5)]);
    assert_eq!(turns.iter().map(|turn| turn.1).sum::<u64>(), 48);
    assert_eq!(switches.unexplained, 0);
    let mut mix = Mix::open(&format!("{}", path.display()), &Options::default()).unwrap();
    let (mut spaces, mut batch, mut more) = (Vec::new(), Batch::default(), true);
    while more {
        more = mix.next(&mut batch).unwrap();
        spaces.extend(batch.events.iter().filter_map(|placed| match placed.event {
            Event::Run { space, .. } => Some(space),
            _ => None,
        }));
    }
    // The child gets a space of its own when it executes a program.
    assert_eq!(spaces, [0, 1, 0]);
}

#[test]
fn who_slept_goes_on_when_the_others_have_come_so_far() {
    let first = [Fork(1, 0), Sleep(1_000_000), Run(5)];
    let second: Vec<Act> = (0..20).map(|_| Run(1)).chain([Sleep(2_000_000), Run(7)]).collect();
    let processes: [(Option<u32>, bool, u64, &[Act]); 2] =
        [(None, false, 0, &first), (Some(0), false, 100, &second)];
    let path = recorded("sleep", &processes);
    let (turns, switches) = order(&format!("{}", path.display()));
    // The first process sleeps until no process can run, which is when the second process sleeps.
    assert_eq!(turns, [(1, 20), (0, 5), (1, 7)]);
    assert_eq!((switches.by_cause, switches.unexplained), (causes(2, 1, 0), 0));
}

#[test]
fn a_wait_for_what_was_not_recorded_ends() {
    let alone = [Run(5), Read(PIPE, 100), Run(5), Fork(1, 0), Wait(7), Run(1)];
    let processes: [(Option<u32>, bool, u64, &[Act]); 2] =
        [(None, false, 0, &alone), (Some(0), false, 100, &[Run(9)])];
    let path = recorded("alone", &processes);
    let (turns, switches) = order(&format!("{}", path.display()));
    assert_eq!(turns, [(0, 11), (1, 9)]);
    assert_eq!(switches.unexplained, 1);
}

#[test]
fn who_came_first_in_the_recording_is_let_go_first() {
    let [first, second] = [[Fork(1, 0), Read(PIPE, 9), Run(2)], [Run(1), Read(8, 9), Run(3)]];
    let processes: [(Option<u32>, bool, u64, &[Act]); 2] =
        [(None, false, 1 << 30, &first), (Some(0), false, 100, &second)];
    let path = recorded("nobody", &processes);
    let (turns, switches) = order(&format!("{}", path.display()));
    assert_eq!(turns, [(1, 4), (0, 2)]);
    assert_eq!(switches.unexplained, 2);
}

/// When a process waits, the next process gets a whole turn, not the rest of the turn.
#[test]
fn a_wait_ends_the_turn() {
    let shell = [Run(8), Fork(1, 0), Fork(2, 0), Wait(1), Run(1)];
    let processes: [(Option<u32>, bool, u64, &[Act]); 3] = [
        (None, false, 0, &shell),
        (Some(0), false, 100, &[Run(25)]),
        (Some(0), false, 200, &[Run(25)]),
    ];
    let path = recorded("rest", &processes);
    let (turns, switches) = order(&format!("quantum=100,{}", path.display()));
    // A program's first access comes with its first instruction, and each other access after ten
    // more instructions.
    assert_eq!(turns, [(0, 8), (1, 11), (2, 11), (1, 10), (2, 10), (1, 4), (2, 4), (0, 1)]);
    assert_eq!(switches.by_cause, causes(1, 2, 4));
}

/// The time that a processor was idle gives it no longer turns later.
#[test]
fn a_processor_that_was_idle_runs_side_by_side_with_the_others() {
    let first = [Run(100), Fork(1, 0), Run(30)];
    let processes: [(Option<u32>, bool, u64, &[Act]); 2] =
        [(None, false, 0, &first), (Some(0), false, 100, &[Run(30)])];
    let path = recorded("idle", &processes);
    let (turns, _) = order(&format!("cpus=2,slice=100,{}", path.display()));
    let rest: Vec<u64> = turns.iter().map(|turn| turn.1).collect();
    assert!(turns[0].0 == 0 && turns[0].1 >= 100, "{turns:?}");
    assert!(turns.len() >= 6 && rest[1..].iter().all(|accesses| *accesses <= 11), "{turns:?}");
}

#[test]
fn a_recording_without_calls_says_so() {
    let processes: [(Option<u32>, bool, u64, &[Act]); 2] =
        [(None, false, 0, &[Run(5), Fork(1, 0), Run(5)]), (Some(0), false, 100, &[Run(9)])];
    let path = recorded("silent", &processes);
    let mut source = trace::open(path.to_str().unwrap(), &Options::default()).unwrap();
    assert_eq!((source.processes().len(), source.total()), (2, Some(19)));
    let mut batch = Batch::default();
    while source.next(&mut batch).unwrap() {}
    let [warning] = source.warnings() else { panic!("{:?}", source.warnings()) };
    assert!(warning.contains("recorded without --calls"), "{warning}");
    assert_eq!(source.switches().unwrap().order, "blocking");
}
