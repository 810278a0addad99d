//! Tests that the rows that are written to a file are the rows that are read: whole, in parts and
//! in one batch.

use std::path::PathBuf;

use proptest::prelude::*;
use trace::{Batch, Batcher, Options, Reader, Sink, Source, WORD_BLOCK, WORD_COUNT_SHIFT, Writer};

use crate::common::{Rows, Script, header, script};

/// A path for the file of a test, which is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let file = format!("pagewalk-{}-{name}.pwt", std::process::id());
        Scratch(std::env::temp_dir().join(file))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn batched(script: &Script) -> Rows {
    let (mut batcher, mut all, mut batch) = (Batcher::new(), Rows::default(), Batch::default());
    script.play(&mut batcher).unwrap();
    batcher.finish();
    batcher.take(&mut batch);
    all.extend(&batch, 0);
    all
}

fn written(script: &Script, scratch: &Scratch, chunk_accesses: u32) -> Reader {
    let options = Options { overwrite: true, chunk_accesses, ..Options::default() };
    let mut writer = Writer::create(&scratch.0, header(), options).unwrap();
    script.play(&mut writer).unwrap();
    let summary = writer.finish().unwrap();
    let reader = Reader::open(&scratch.0).unwrap();
    assert_eq!(reader.total(), Some(summary.accesses));
    assert_eq!(reader.digest(), Some(summary.digest));
    assert_eq!(reader.bytes(), summary.bytes);
    assert_eq!(reader.bytes(), std::fs::metadata(&scratch.0).unwrap().len());
    assert_eq!(reader.chunks().len() as u64, summary.chunks);
    let instructions: u64 = reader.chunks().iter().map(|chunk| chunk.instructions).sum();
    assert_eq!(instructions, summary.instructions);
    assert_eq!(*reader.header(), header());
    reader
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn a_file_gives_what_a_batcher_gives(script in script(300), chunk in prop_oneof![1u32..50, Just(1 << 20)]) {
        let scratch = Scratch::new("round-trip");
        let expected = batched(&script).with_known_paddrs();
        let mut reader = written(&script, &scratch, chunk).in_place();
        let rows = Rows::of(&mut reader, 0).unwrap();
        let counted: u64 = rows.rows.iter().map(|row| u64::from(row.2.instructions())).sum();
        let counted = counted + rows.events.iter().map(|event| event.2.uncounted_instructions()).sum::<u64>();
        let claimed: u64 = reader.chunks().iter().map(|chunk| chunk.instructions).sum();
        prop_assert_eq!(counted, claimed);
        let mut batcher = Batcher::new();
        script.play(&mut batcher).unwrap();
        prop_assert_eq!(batcher.instructions(), claimed);
        prop_assert_eq!(rows.with_known_paddrs(), expected);
    }

    #[test]
    fn blocks_told_at_once_are_the_same_blocks(
        script in script(300),
        chunk in prop_oneof![1u32..50, Just(1 << 20)],
    ) {
        let expected = batched(&script);
        let (mut batcher, mut all, mut batch) = (Batcher::new(), Rows::default(), Batch::default());
        script.play_as_words(&mut batcher).unwrap();
        batcher.finish();
        batcher.take(&mut batch);
        all.extend(&batch, 0);
        prop_assert_eq!(&all, &expected);

        let scratch = Scratch::new("at-once");
        let options = Options { overwrite: true, chunk_accesses: chunk, ..Options::default() };
        let mut writer = Writer::create(&scratch.0, header(), options).unwrap();
        script.play_as_words(&mut writer).unwrap();
        writer.finish().unwrap();
        let rows = Rows::of(&mut Reader::open(&scratch.0).unwrap().in_place(), 0).unwrap();
        prop_assert_eq!(rows.with_known_paddrs(), expected.with_known_paddrs());
    }

    #[test]
    fn a_range_is_a_slice(script in script(200), chunk in 1u32..60, cut in any::<[prop::sample::Index; 2]>()) {
        let scratch = Scratch::new("range");
        let all = Rows::of(&mut written(&script, &scratch, chunk), 0).unwrap();
        let total = all.rows.len() as u64;
        let mut ends = cut.map(|index| index.index(total as usize + 1) as u64);
        ends.sort_unstable();
        let mut together = Rows::default();
        for (from, to) in [(0, ends[0]), (ends[0], ends[1]), (ends[1], total)] {
            let mut reader = Reader::open(&scratch.0).unwrap().range(from..to).unwrap();
            prop_assert_eq!(reader.total(), Some(to - from));
            let part = Rows::of(&mut reader, from).unwrap();
            let known = all.part(from, to).with_known_paddrs();
            prop_assert_eq!(part.clone().with_known_paddrs(), known);
            if from < to || to < total {
                together.rows.extend(part.rows);
                together.events.extend(part.events);
            }
        }
        prop_assert_eq!(together.rows.len(), all.rows.len());
    }
}

#[test]
fn all_instructions_are_counted() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    runner
        .run(&script(200), |script| {
            let mut expected = 0u64;
            for call in &script.calls {
                expected += match call {
                    crate::common::Call::Execute(shape, _)
                    | crate::common::Call::Physical(shape, _) => {
                        u64::from(script.shapes[shape % script.shapes.len()].instructions)
                    }
                    crate::common::Call::Advance(instructions) => *instructions,
                    _ => 0,
                };
            }
            prop_assert_eq!(batched(&script).instructions(), expected);
            Ok(())
        })
        .unwrap();
}

#[test]
fn ranges_outside_the_trace_are_refused() {
    let scratch = Scratch::new("outside");
    let script = Script { shapes: Vec::new(), calls: Vec::new() };
    let _ = written(&script, &scratch, 10);
    let backwards = std::ops::Range { start: 1, end: 0 };
    for range in [0..1, 1..1, backwards] {
        assert!(Reader::open(&scratch.0).unwrap().range(range).is_err());
    }
    let mut empty = Reader::open(&scratch.0).unwrap().range(0..0).unwrap();
    assert_eq!(Rows::of(&mut empty, 0).unwrap(), Rows::default());
}

#[test]
fn batches_that_are_not_cleared_are_replaced() {
    let scratch = Scratch::new("replaced");
    let shapes =
        vec![trace::Shape { pc: 4096, bytes: 3, instructions: 1, fetch: true, ops: Vec::new() }];
    let calls = vec![crate::common::Call::Execute(0, vec![0]); 200_000];
    let mut reader = written(&Script { shapes, calls }, &scratch, 70_000);
    let (mut batch, mut accesses) = (Batch::default(), 0);
    while reader.next(&mut batch).unwrap() {
        assert_eq!(batch.first, accesses);
        assert!(batch.addr.iter().all(|&addr| addr == 4096));
        accesses += batch.len() as u64;
        batch.push(77, 1, batch.meta[0]);
    }
    assert_eq!(accesses, 200_000);
}

/// The words of a ring come from another process, so invalid words must be refused.
#[test]
fn a_block_with_a_count_that_is_no_fixed_one_is_not_taken() {
    let mut batcher = Batcher::new();
    let ops = Vec::new();
    let id = batcher.shape(&trace::Shape { pc: 1, bytes: 1, instructions: 1, fetch: true, ops });
    batcher.usual(0, id, &[]);
    let block = u64::from(WORD_BLOCK);
    let counted = |count: u64| block | count << WORD_COUNT_SHIFT;
    assert_eq!(batcher.execute_words(&[block, block, block]).unwrap().words, 2);
    assert_eq!(batcher.execute_words(&[block, counted(1), block, block]).unwrap().words, 1);
    assert_eq!(batcher.execute_words(&[counted(2), block, block]).unwrap().words, 0);
}

#[test]
fn a_shape_that_cannot_be_is_reported_when_it_runs() {
    let scratch = Scratch::new("shape");
    let wrong = trace::Shape { pc: 1, bytes: 1, instructions: 0, fetch: true, ops: Vec::new() };
    let mut writer = Writer::create(&scratch.0, header(), Options::default()).unwrap();
    let id = writer.shape(&wrong);
    assert!(writer.execute(id, &[]).unwrap_err().to_string().contains("no instruction"));
    let mut batcher = Batcher::new();
    let id = batcher.shape(&wrong);
    assert!(batcher.execute(id, &[]).unwrap_err().to_string().contains("no instruction"));
}
