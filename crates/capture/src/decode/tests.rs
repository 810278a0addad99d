//! Tests of blocks that make more accesses than at their last execution, and of windows that begin
//! or end at blocks.

use trace::{
    Batch, Batcher, WORD_AMID, WORD_BLOCK, WORD_COUNT_SHIFT, WORD_FIXED, WORD_MADE_SHIFT,
    WORD_NONE, WORD_SHIFT,
};

use super::*;
use crate::window::Window;

/// A process with one block, of number 0.
struct Only(Block);

impl Context for Only {
    fn block(&mut self, number: u64) -> Option<Block> {
        (number == 0).then_some(self.0)
    }

    fn tags(&mut self, _: u64, tags: &mut Vec<u16>) {
        tags.extend(FIXED_TAGS);
    }

    fn derived(&mut self, _: u64, derived: &mut Vec<Option<Derived>>) {
        derived
            .extend(self.0.recorded.lt(&self.0.accesses).then_some(DERIVED).into_iter().flatten());
    }

    fn event(&mut self, _: EventCode, _: &[u64], _: &mut dyn Sink) -> Result<(), Fault> {
        Ok(())
    }
}

/// An empty block.
const NONE: Block =
    Block { pc: 0, bytes: 0, instructions: 0, accesses: 0, recorded: 0, tags: 0, pad: 0 };

/// A block of one instruction.
const ONE: Only = Only(Block { pc: 0x40_0000, bytes: 2, instructions: 1, ..NONE });

/// The accesses of the block if it is a fixed one.
const FIXED_TAGS: [u16; 3] =
    [Tag::LOAD | 3 << Tag::SIZE_SHIFT, Tag::STORE | 2 << Tag::SIZE_SHIFT | 1, Tag::LOAD | 2];

/// The number of accesses, including fetches, in executions of the block with the numbers of stores
/// in `stores`.
fn rows(strays: bool, stores: &[usize]) -> usize {
    let store = Tag::STORE | 3 << Tag::SIZE_SHIFT;
    let mut records = Vec::new();
    for &count in stores {
        records.push(Record::control(Control::Block, 0).0);
        records.extend((0..count as u64).map(|n| Record::access(0x1000 + 8 * n, store).0));
    }
    let (mut decoder, mut sink) = (Decoder::new(true, strays), Batcher::new());
    let used = decoder.segment(&records, true, &mut None, &mut { ONE }, &mut sink).unwrap();
    assert_eq!(used, records.len());
    let mut batch = Batch::default();
    sink.take(&mut batch);
    batch.len()
}

#[test]
fn what_follows_the_usual_operations_is_a_signals_frame_where_qemu_shows_them() {
    assert_eq!(rows(true, &[4, 4, 4 + STRAYS_MIN]), 3 * 5);
    // These are too few accesses for a frame.
    assert_eq!(rows(true, &[4, 3 + STRAYS_MIN]), 5 + 4 + STRAYS_MIN);
}

#[test]
fn a_repeated_instruction_is_kept_where_it_is_one_run_of_its_block() {
    assert_eq!(rows(false, &[4, 4, 1000, 4]), 3 * 5 + 1001);
}

/// A block of three instructions, of which the second repeats.
const THREE: Only = Only(Block { pc: 0x40_0000, bytes: 9, instructions: 3, ..NONE });

#[test]
fn a_run_of_any_length_is_taken_in_parts_as_it_comes() {
    let store = Tag::STORE | 3 << Tag::SIZE_SHIFT;
    let load = |instruction| Tag::LOAD | 2 << Tag::SIZE_SHIFT | instruction;
    for times in [0, 1, 1998, 1999, 2000, 2001, 3998, 3999, 4000, 4001, 50_000] {
        let mut expected = Vec::new();
        let mut records = Vec::new();
        for run in 0..3u64 {
            records.push(Record::control(Control::Block, 0).0);
            expected.push(0x40_0000);
            let addrs = (0..times).map(|n| (0x10_0000 * (1 + run) + 8 * n, store | 1));
            let all = [(0x100, load(0))].into_iter().chain(addrs).chain([(0x200, load(2))]);
            for (addr, tag) in all {
                records.push(Record::access(addr, tag).0);
                expected.push(addr);
            }
        }
        // The records are decoded as they are published, so the ring never holds more than two
        // parts.
        let (mut decoder, mut sink) = (Decoder::new(true, false), Batcher::new());
        let (mut rest, mut done) = (None, 0);
        for end in (0..records.len()).step_by(1000).skip(1).chain([records.len()]) {
            let whole = end == records.len();
            let segment = &records[done..end];
            assert!(segment.len() <= 2 * PART_OPS + 1000, "{}", segment.len());
            done += decoder.segment(segment, whole, &mut rest, &mut { THREE }, &mut sink).unwrap();
        }
        assert_eq!(done, records.len(), "{times} times");
        let mut batch = Batch::default();
        sink.finish();
        sink.take(&mut batch);
        assert!(batch.addr == expected, "{times} times");
        let instructions: u64 = batch.meta.iter().map(|meta| u64::from(meta.instructions())).sum();
        // A part that begins with the last instruction of the previous part counts this instruction
        // again.
        assert_eq!(instructions, 3 * (3 + times / PART_OPS as u64), "{times} times");
    }
}

#[test]
fn a_fixed_block_makes_the_accesses_that_it_came_to() {
    let (mut records, mut expected) = (Vec::new(), Vec::new());
    for (run, &made) in [3, 3, 1, 3, 0, 3, 2, 2, 3, 3].iter().enumerate() {
        records.push(Record::fixed(0, 3).0);
        expected.push((0x40_0000, Kind::Fetch, 9));
        for (index, (kind, size)) in
            [(Kind::Load, 8), (Kind::Store, 4), (Kind::Load, 1)].into_iter().enumerate()
        {
            // Some addresses do not fit into a record with a tag.
            let addr = u64::MAX - 0x1000 * (1 + run as u64) - index as u64;
            let is_made = index < made;
            records.push(if is_made { addr } else { Record::NONE });
            expected.extend(is_made.then_some((addr, kind, size)));
        }
    }
    let (mut decoder, mut sink) = (Decoder::new(true, true), Batcher::new());
    let used = decoder.segment(&records, false, &mut None, &mut { THREE }, &mut sink).unwrap();
    assert_eq!(used, records.len());
    let mut batch = Batch::default();
    sink.take(&mut batch);
    let rows: Vec<_> = batch.addr.iter().zip(&batch.meta).collect();
    let rows: Vec<_> = rows.iter().map(|(addr, m)| (**addr, m.kind(), m.size())).collect();
    assert_eq!(rows, expected);
}

/// The derivations of the block's addresses if it does not record all.
const DERIVED: [Option<Derived>; 3] =
    [None, Some(Derived { from: 1, distance: 0x100 }), Some(Derived { from: 0, distance: 0x20 })];

/// After a run that ended early, as shown by a fault or by a missing address, the block's next run
/// is a whole one.
#[test]
fn addresses_that_are_not_recorded_follow_from_those_that_are() {
    let block = Block { accesses: 3, recorded: 1, ..THREE.0 };
    let runs = [None, None, Some(1), None, Some(2), Some(0), None, Some(3), Some(1), Some(1), None];
    let (mut records, mut expected) = (Vec::new(), Vec::new());
    for (run, made) in runs.into_iter().chain([None; 20]).enumerate() {
        let addr = 0x1000 * (1 + run as u64);
        let record = Record::fixed(0, 1);
        records.push(made.map_or(record, |made| record.left_after(made)).0);
        records.push(if made == Some(0) { Record::NONE } else { addr });
        let all = [(addr, 8), (addr + 0x100, 4), (0x40_0020, 1)];
        expected.push((0x40_0000, 9));
        expected.extend(all.into_iter().take(made.unwrap_or(3).into()));
        if run % 4 == 3 {
            // All other records that the block leaves out have no address.
            records.extend([record.0, Record::NONE]);
            expected.push((0x40_0000, 9));
        }
    }
    let (mut decoder, mut sink) = (Decoder::new(true, true), Batcher::new());
    let mut context = Only(block);
    let used = decoder.segment(&records, true, &mut None, &mut context, &mut sink).unwrap();
    assert_eq!(used, records.len());
    let mut batch = Batch::default();
    sink.take(&mut batch);
    let rows = batch.addr.iter().zip(&batch.meta);
    let rows: Vec<_> = rows.map(|(&addr, meta)| (addr, meta.size())).collect();
    assert_eq!(rows, expected);
    for wrong in [Record::fixed(0, 3), Record::fixed(0, 0), Record::fixed(1, 1)] {
        let records = [wrong.0, 1, 2, 3];
        assert!(decoder.segment(&records, true, &mut None, &mut context, &mut sink).is_err());
    }
}

/// A whole machine with the block [`THREE`] as a fixed one: records the number of rows before each
/// event.
struct Noting {
    block: Block,
    told: Vec<(EventCode, u64, u64)>,
}

impl Context for Noting {
    fn block(&mut self, _: u64) -> Option<Block> {
        Some(self.block)
    }

    fn tags(&mut self, _: u64, tags: &mut Vec<u16>) {
        tags.extend(FIXED_TAGS);
    }

    fn derived(&mut self, _: u64, _: &mut Vec<Option<Derived>>) {}

    fn event(&mut self, code: EventCode, words: &[u64], sink: &mut dyn Sink) -> Result<(), Fault> {
        self.told.push((code, words[0], sink.accesses()));
        Ok(())
    }
}

fn event(code: EventCode, word: u64) -> [u64; 2] {
    [ring::event_header(code, 1).0, word]
}

/// Translations in a block come before it, wherever a span ends; what comes after it stays there. A block that
/// was left counts the instructions that were completed.
#[test]
fn translations_in_a_block_of_a_machine_come_before_it() {
    let kernel = 0xffff_8880_0000_1000;
    for (is_fixed, pads) in [(true, 0), (true, 3), (false, 0), (false, 3)] {
        let mut records = Vec::new();
        let run = |records: &mut Vec<u64>, events: &[[u64; 2]], made: usize| {
            let record = Record::fixed(0, 3);
            let addrs = [kernel, kernel + 8, 0x7f00];
            let pad = || [Record::control(Control::Pad, pads).0].into_iter().chain(0..pads);
            if is_fixed {
                records.push(if events.is_empty() { record } else { record.with_events() }.0);
                let reached = |index| if index < made { addrs[index] } else { Record::NONE };
                records.extend((0..3).map(reached));
                for event in events {
                    records.extend(pad().take(if pads > 0 { usize::MAX } else { 0 }));
                    records.extend(event);
                }
                return;
            }
            records.push(Record::control(Control::Block, 0).0);
            let first = events.first().filter(|event| event[1] == 1);
            records.extend(first.into_iter().flatten());
            let each = addrs.iter().zip(FIXED_TAGS).take(made);
            records.extend(each.map(|(&addr, tag)| Record::access(addr, tag).0));
            let others = events.iter().skip(usize::from(first.is_some()));
            records.extend(others.flatten());
        };
        let (translation, left) = (EventCode::Translation, EventCode::Left);
        run(&mut records, &[], 3);
        run(&mut records, &[event(translation, 1)], 3);
        run(&mut records, &[event(translation, 1), event(translation, 2)], 3);
        run(&mut records, &[event(translation, 1), event(left, 2)], 2);
        run(&mut records, &[event(left, 0)], 0);
        // The effects of stores to a page table come behind the block, in order.
        let (table, stored) = (EventCode::Table, EventCode::Stored);
        let (begins, ends) = (event(table, 0x1002), event(table, 0x2000));
        run(&mut records, &[begins, event(stored, 0x1008), ends, event(table, 0x3001)], 3);
        records.extend(event(EventCode::Interrupt, 7));
        records.extend(event(translation, 9));
        run(&mut records, &[], 3);
        let (mut decoder, mut sink) = (Decoder::new(true, false), Batcher::new());
        let mut context = Noting { block: THREE.0, told: Vec::new() };
        // The records are decoded as they are published: no event is reported twice, and none is
        // lost.
        let (mut done, mut rest) = (0, None);
        for end in (1..=records.len()).step_by(5).chain([records.len()]) {
            let whole = end == records.len();
            let segment = &records[done..end];
            if !whole && !boundary(&records[..end]) {
                continue;
            }
            done += decoder.segment(segment, whole, &mut rest, &mut context, &mut sink).unwrap();
        }
        assert_eq!(done, records.len(), "{is_fixed} {pads}");
        let expected = [
            (translation, 1, 4),
            (translation, 1, 8),
            (translation, 2, 8),
            (translation, 1, 12),
            (table, 0x1002, 15),
            (stored, 0x1008, 19),
            (table, 0x2000, 19),
            (table, 0x3001, 19),
            (EventCode::Interrupt, 7, 19),
            (translation, 9, 19),
        ];
        assert_eq!(context.told, expected, "{is_fixed} {pads}");
        let mut batch = Batch::default();
        sink.finish();
        sink.take(&mut batch);
        assert_eq!(batch.len(), 23);
        assert_eq!(batch.addr[12..15], [0x40_0000, kernel, kernel + 8]);
        let instructions: u64 = batch.meta.iter().map(|meta| u64::from(meta.instructions())).sum();
        let gaps = batch.events.iter().map(|placed| match placed.event {
            trace::Event::Gap { instructions, .. } => instructions,
            _ => 0,
        });
        assert_eq!(instructions + gaps.sum::<u64>(), 3 * 5 + 2);
    }
}

/// Whether a recorder may publish these records: it never does so within the records of a fixed block or an event.
fn boundary(records: &[u64]) -> bool {
    let mut at = 0;
    while let Some(&word) = records.get(at) {
        at += 1 + match Record(word).as_control() {
            Some(Control::Fixed) => Record(word).fixed_parts().1,
            Some(Control::Event) => event_parts(Record(word).value()).1,
            Some(Control::Pad) => Record(word).value() as usize,
            _ => 0,
        };
    }
    at == records.len()
}

/// A window of the addresses in executions of the block with the numbers of stores in `stores`.
fn window(stores: &[u64], from: u64, max: u64) -> Vec<u64> {
    let store = Tag::STORE | 3 << Tag::SIZE_SHIFT;
    let mut records = Vec::new();
    for (run, &count) in stores.iter().enumerate() {
        records.push(Record::control(Control::Block, 0).0);
        let addr = |store| 0x1000 * (1 + run as u64) + 8 * store;
        records.extend((0..count).map(|store_number| Record::access(addr(store_number), store).0));
    }
    let mut window = Window::new(Batcher::new(), from, Some(max));
    let used = Decoder::new(true, false)
        .segment(&records, true, &mut None, &mut { ONE }, &mut window)
        .unwrap();
    assert_eq!(used, records.len());
    let mut batch = Batch::default();
    window.close().unwrap().take(&mut batch);
    batch.addr
}

#[test]
fn a_window_cuts_blocks_wherever_it_begins_and_ends() {
    let stores = [2, 2, 2, 0, 2, 2, 3, 2, 2, 2];
    let all = window(&stores, 0, u64::MAX);
    assert_eq!(all.len() as u64, stores.iter().map(|stores| 1 + stores).sum::<u64>());
    for from in 0..=all.len() {
        for max in 0..=all.len() - from {
            let cut = window(&stores, from as u64, max as u64);
            assert_eq!(cut, all[from..from + max], "{max} accesses after {from}");
        }
    }
}

/// The formats of records in sinks and in rings agree.
#[test]
fn records_are_the_words_of_sinks() {
    let amid = |control| Record::control(control, 0).tag().0 >= WORD_AMID;
    assert!(amid(Control::Wide) && amid(Control::Pad));
    assert!(!amid(Control::Block) && !amid(Control::Context) && !amid(Control::Advance));
    assert!(!amid(Control::Fixed) && !amid(Control::Passed) && !amid(Control::Hits));
    assert_eq!(WORD_BLOCK, Tag::CONTROL);
    assert_eq!(Record::control(Control::Block, 5).0, 5 << WORD_SHIFT | u64::from(WORD_BLOCK));
    assert_eq!(Record::access(5, 7).0, 5 << WORD_SHIFT | 7);
    let fixed = 9 << WORD_COUNT_SHIFT | 5 << WORD_SHIFT | u64::from(WORD_FIXED);
    assert_eq!(Record::fixed(5, 9).0, fixed);
    assert_eq!(Record(fixed).fixed_parts(), (5, 9));
    for made in [0, 1, 126] {
        let left = Record(fixed).left_after(made);
        assert_eq!((left.fixed_parts(), left.made()), ((5, 9), Some(made.into())));
        assert_eq!(left.0 >> WORD_MADE_SHIFT & 0xff, u64::from(made) + 1);
    }
    assert_eq!(Record(fixed).made(), None);
    for (from, distance) in [(0, 0), (3, u64::MAX - 7), (u16::MAX - 1, 0x1234_5678_9abc_def0)] {
        let derived = Derived { from, distance };
        assert_eq!(Derived::from_words(derived.words()), Some(derived));
    }
    assert_eq!(Derived::from_words(Derived::NOT), None);
    assert_eq!(Record::NONE, WORD_NONE);
}
