//! Converts a stored recording back to a recorder's words, and encodes it again. The accesses must
//! be equal.

use std::path::{Path, PathBuf};

use addr::Kind;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use trace::{
    Address, Batch, Meta, Op, Options, Process, Reader, Recording, Replay, Shape, Sink, Source,
    Writer,
};

use crate::common::header;

const SEED: u64 = 0x0e5c_0de5;

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pagewalk-{}-{name}", std::process::id()))
}

/// Writes a recording of one process to `path`. `fill` writes the rows.
fn record(path: &Path, options: Options, fill: impl FnOnce(&mut Writer)) {
    let recording = Recording::create(path, &header(), options).unwrap();
    let process = Process {
        number: 0,
        pid: 1,
        parent: None,
        parent_accesses: None,
        shares_space: false,
        began_ns: 0,
        programs: Vec::new(),
        accesses: 0,
        instructions: 0,
    };
    let mut writer = recording.process(&process).unwrap();
    fill(&mut writer);
    writer.end().unwrap();
    drop(writer);
    recording.finish().unwrap();
}

fn rows(path: &Path) -> (Vec<u64>, Vec<Meta>) {
    let (mut reader, mut batch) = (Reader::open(path).unwrap(), Batch::default());
    let (mut addrs, mut metas) = (Vec::new(), Vec::new());
    while reader.next(&mut batch).unwrap() {
        addrs.extend_from_slice(&batch.addr);
        metas.extend_from_slice(&batch.meta);
    }
    (addrs, metas)
}

/// Shapes of blocks with and without a fetch, with up to twenty operations. The addresses of some operations follow
/// from the address of another operation or of the first instruction of the block.
fn shapes(random: &mut Xoshiro256PlusPlus) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for number in 0..40u64 {
        let mut ops: Vec<Op> = Vec::new();
        for index in 0..number / 2 {
            let said: Vec<u16> = (0..ops.len() as u16)
                .filter(|&op| ops[usize::from(op)].address == Address::Said)
                .collect();
            let address = match (random.next_u64() % 4, said.is_empty()) {
                (0, false) => Address::Behind {
                    op: said[random.next_u64() as usize % said.len()],
                    distance: random.next_u64() % 64,
                },
                (1, _) => Address::BehindStart(random.next_u64() % 4096),
                _ => Address::Said,
            };
            let kind = if random.next_u64().is_multiple_of(3) { Kind::Store } else { Kind::Load };
            ops.push(Op { instruction: (index / 2) as u16, kind, size: 8, address });
        }
        let fetch = number % 4 != 1;
        shapes.push(Shape { pc: 64 * number, bytes: 9, instructions: 12, fetch, ops });
    }
    shapes
}

/// Chunks have some thousand accesses, so that shapes are stored several times. The addresses
/// compress well in some chunks and not at all in others, so that each setting of the compressor is
/// used.
#[test]
fn a_replayed_recording_has_the_same_accesses() {
    println!("seed {SEED:#x}");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let options = || Options { overwrite: true, chunk_accesses: 4000, ..Options::default() };
    let (first, again) = (path("replay-first.pwt"), path("replay-again.pwt"));
    let shapes = shapes(&mut random);
    record(&first, options(), |writer| {
        let ids: Vec<_> = shapes.iter().map(|shape| writer.shape(shape)).collect();
        for round in 0..60_000u64 {
            let number = random.next_u64() as usize % shapes.len();
            let is_wild = round / 10_000 % 2 == 0;
            let said = shapes[number].ops.iter().filter(|op| op.address == Address::Said);
            let addrs: Vec<u64> = said
                .enumerate()
                .map(|(index, _)| match is_wild {
                    true => random.next_u64() >> (random.next_u64() % 64),
                    false => 0x7000 + 64 * index as u64,
                })
                .collect();
            writer.execute(ids[number], &addrs).unwrap();
        }
    });
    record(&again, options(), |writer| {
        let mut replay = Replay::open(&first, 0).unwrap();
        let (mut words, mut known) = (Vec::new(), 0);
        while replay.next(&mut words).unwrap() {
            for (number, shape) in replay.shapes().iter().enumerate().skip(known) {
                let id = writer.shape(shape);
                let said = shape.ops.iter().filter(|op| op.address == Address::Said).count();
                writer.usual(number, id, &vec![0; said]);
            }
            known = replay.shapes().len();
            let taken = writer.execute_words(&words).unwrap();
            assert_eq!(taken.words, words.len());
        }
        assert_eq!(known, shapes.len());
    });
    let (expected, found) = (rows(&first), rows(&again));
    for path in [&first, &again] {
        std::fs::remove_file(path).unwrap();
    }
    assert!(expected == found, "{} rows, {} after the replay", expected.0.len(), found.0.len());
}
