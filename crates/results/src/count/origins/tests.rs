//! Compares origins with a model that searches for the last fetch of a thread from the beginning of
//! the trace.

use std::collections::BTreeMap;

use addr::Kind;
use trace::{Batch, Event, Meta, Origin, generate};

use super::*;
use crate::count::labels::Layout;

/// Rows of a random program of three threads in two spaces, cut into batches of random length.
#[test]
fn each_miss_is_of_the_block_that_its_thread_fetched_last() {
    let header = generate::parse("uniform,size=1M,accesses=1").unwrap().header().clone();
    let header = trace::Header { fetches: true, ..header };
    for seed in 1..=20u64 {
        let mut state = seed;
        let mut random = |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        let mut layout = Layout::default();
        let path = "/bin/own".to_owned();
        let image = Event::Image { path: path.clone(), identity: Some("crc32 1".to_owned()) };
        layout.apply(0, &image);
        let (origin, offset) = (Origin::File(path), Some(0x100));
        let (bytes, rights, file) = (0x1000, 5, None);
        layout.apply(0, &Event::Mapping { start: 0x1000, bytes, rights, origin, offset, file });
        let mut origins = Origins::new(&header);
        // The last block that each thread fetched, and the number of its instructions since then.
        let mut last: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        let mut expected: BTreeMap<(Option<u64>, u32, u32), u64> = BTreeMap::new();
        for _ in 0..40 {
            let mut batch = Batch::default();
            let mut missed = Vec::new();
            for _ in 0..random(30) {
                let thread = random(3) as u32;
                let instructions = random(3) as u32;
                if random(4) == 0 {
                    let block = 0x1000 + 8 * random(9);
                    batch.push(thread, block, Meta::new(Kind::Fetch, 8, 1 + instructions));
                    last.insert(thread, (block, 0));
                } else {
                    batch.push(thread, 1, Meta::new(Kind::Load, 8, instructions));
                    if let Some(at) = last.get_mut(&thread) {
                        at.1 += instructions;
                    }
                }
                if random(60) == 0 {
                    // A `rep` instruction.
                    let row = Meta::new(Kind::Store, 8, 0);
                    (0..9000).for_each(|_| batch.push(thread, 1, row));
                }
                if random(2) == 0 {
                    missed.push(batch.len() - 1);
                    let block = last.get(&thread).map(|(block, _)| *block - 0x1000 + 0x100);
                    let instruction = last.get(&thread).map_or(0, |(_, at)| *at);
                    *expected.entry((block, instruction, thread)).or_insert(0) += 1;
                }
            }
            if random(5) == 0 {
                origins.mappings_changed();
            }
            for index in missed {
                let (region, page) =
                    (layout.label_of(0, addr::VirtAddr::new(1)), PageSize::SIZE_4K);
                let missed = Missed { region, site: None, page, cold: false };
                origins.miss(&batch, index, 0, &layout, missed);
            }
            origins.batch_ends(&batch);
        }
        let told = origins.finish(&layout, &[0]);
        let mut found = BTreeMap::new();
        for &(code, _, _, thread, _, misses, _) in &told.misses {
            let code = code.map(|code| &told.code[code as usize]);
            assert!(code.is_none_or(|code| code.object.as_deref() == Some("/bin/own")), "{code:?}");
            let key = (
                code.map(|code| code.offset),
                code.map_or(0, |code| code.instruction),
                thread.unwrap(),
            );
            *found.entry(key).or_insert(0) += misses;
        }
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn misses_that_are_too_various_lose_their_code_and_are_counted() {
    let header = generate::parse("uniform,size=1M,accesses=1").unwrap().header().clone();
    let mut origins = Origins::new(&trace::Header { fetches: true, ..header });
    let mut layout = Layout::default();
    let region = layout.label_of(0, addr::VirtAddr::new(1));
    let count = KEYS_MAX + 1000;
    let mut batch = Batch::default();
    (0..count).for_each(|at| batch.push(0, 16 * at as u64, Meta::new(Kind::Fetch, 8, 1)));
    for index in 0..count {
        let missed = Missed { region, site: None, page: PageSize::SIZE_4K, cold: true };
        origins.miss(&batch, index, 0, &layout, missed);
    }
    let told = origins.finish(&layout, &[0]);
    assert_eq!(told.misses.len(), KEYS_MAX + 1);
    assert_eq!(told.misses.iter().map(|row| row.5).sum::<u64>(), count as u64);
    assert_eq!(told.misses[0].5, 1000);
    assert_eq!((told.misses[0].0, told.misses[0].3), (None, None));
}
