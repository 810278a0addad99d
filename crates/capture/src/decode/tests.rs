//! Blocks whose last instruction does more than the last time.

use trace::{Batch, Batcher};

use super::*;

/// One block of one instruction.
struct One;

impl Context for One {
    fn block(&mut self, number: u64) -> Option<Block> {
        (number == 0).then_some(Block { pc: 0x40_0000, bytes: 2, instructions: 1 })
    }

    fn event(&mut self, _: EventCode, _: &[u64], _: &mut dyn Sink) -> Result<(), Fault> {
        Ok(())
    }
}

/// How many accesses come of runs of the block with so many stores each, fetches included.
fn rows(strays: bool, stores: &[usize]) -> usize {
    let store = Tag::STORE | 3 << Tag::SIZE_SHIFT;
    let mut records = Vec::new();
    for &count in stores {
        records.push(Record::control(Control::Block, 0).0);
        records.extend((0..count as u64).map(|n| Record::access(0x1000 + 8 * n, store).0));
    }
    let (mut decoder, mut sink) = (Decoder::new(true, strays), Batcher::new());
    let used = decoder.segment(&records, true, &mut One, &mut sink).unwrap();
    assert_eq!(used, records.len());
    let mut batch = Batch::default();
    sink.take(&mut batch);
    batch.len()
}

#[test]
fn what_follows_the_usual_operations_is_a_signals_frame_where_qemu_shows_them() {
    assert_eq!(rows(true, &[4, 4, 4 + STRAYS_MIN]), 3 * 5);
    // Too few for a frame.
    assert_eq!(rows(true, &[4, 3 + STRAYS_MIN]), 5 + 4 + STRAYS_MIN);
}

#[test]
fn a_repeated_instruction_is_kept_where_it_is_one_run_of_its_block() {
    assert_eq!(rows(false, &[4, 4, 1000, 4]), 3 * 5 + 1001);
}
