//! Compares traces without fetches with a list of rows from which the fetches were removed.

use std::collections::BTreeMap;

use addr::Kind;
use proptest::prelude::*;
use trace::{Batch, DataOnly, Event, Meta, Source};

use crate::common::{Rows, in_sevens, script};

/// The loads and stores of `all`. The instructions of each removed fetch are added to the next row
/// of its thread.
fn expected(all: &Rows) -> Rows {
    let mut waiting: BTreeMap<u32, u64> = BTreeMap::new();
    let mut found = Rows::default();
    let mut events = all.events.iter().peekable();
    for (index, &(thread, addr, meta, _)) in all.rows.iter().enumerate() {
        while let Some((_, thread, event)) = events.next_if(|(at, ..)| *at <= index as u64) {
            found.events.push((found.rows.len() as u64, *thread, event.clone()));
        }
        let carried = waiting.entry(thread).or_default();
        if meta.kind() == Kind::Fetch {
            *carried += u64::from(meta.instructions());
            continue;
        }
        if *carried + u64::from(meta.instructions()) > u64::from(Meta::INSTRUCTIONS_MAX) {
            let gap = Event::Gap { accesses: 0, instructions: *carried };
            found.events.push((found.rows.len() as u64, thread, gap));
            *carried = 0;
        }
        let instructions = meta.instructions() + *carried as u32;
        *carried = 0;
        found.rows.push((thread, addr, Meta::new(meta.kind(), meta.size(), instructions), None));
    }
    for (_, thread, event) in events {
        found.events.push((found.rows.len() as u64, *thread, event.clone()));
    }
    for (thread, instructions) in waiting.into_iter().filter(|(_, left)| *left > 0) {
        let gap = Event::Gap { accesses: 0, instructions };
        found.events.push((found.rows.len() as u64, thread, gap));
    }
    found
}

proptest! {
    #[test]
    fn fetches_are_left_out_and_their_instructions_counted(script in script(60)) {
        let mut sink = trace::Batcher::new();
        script.play(&mut sink).unwrap();
        sink.finish();
        let mut all = Rows::default();
        let mut batch = Batch::default();
        while sink.take(&mut batch) {
            batch.first = all.rows.len() as u64;
            all.extend(&batch, 0);
        }
        all.extend(&batch, 0);
        for row in &mut all.rows {
            row.3 = None;
        }
        let mut data = DataOnly::new(in_sevens(&all));
        prop_assert!(!data.header().fetches);
        prop_assert_eq!(Rows::of(&mut data, 0).unwrap(), expected(&all));
    }
}
