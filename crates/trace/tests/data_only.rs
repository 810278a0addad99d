//! Traces without fetches against a list of rows from which the fetches were taken.

mod common;

use std::collections::BTreeMap;

use addr::Kind;
use common::{Rows, script};
use proptest::prelude::*;
use trace::{Batch, DataOnly, Error, Event, Header, Meta, Placed, Source};

/// Rows that come in batches of seven.
struct Given {
    header: Header,
    all: Rows,
    at: usize,
    is_over: bool,
}

impl Source for Given {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        if self.is_over {
            return Ok(false);
        }
        let (from, end) = (self.at, (self.at + 7).min(self.all.rows.len()));
        for &(thread, addr, meta, _) in &self.all.rows[from..end] {
            batch.push(thread, addr, meta);
        }
        let mine =
            |at: &u64| (from as u64..end as u64).contains(at) || *at == end as u64 && from == end;
        for (at, thread, event) in self.all.events.iter().filter(|(at, ..)| mine(at)) {
            let at = (at - from as u64) as u32;
            batch.events.push(Placed { at, thread: *thread, event: event.clone() });
        }
        self.at = end;
        self.is_over = from == end;
        Ok(!self.is_over)
    }
}

/// The loads and stores of `all`, each with the instructions of its thread that were not counted.
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
        let given: Box<dyn Source> =
            Box::new(Given { header: common::header(), all: all.clone(), at: 0, is_over: false });
        let mut data = DataOnly::new(given);
        prop_assert!(!data.header().fetches);
        prop_assert_eq!(Rows::of(&mut data, 0).unwrap(), expected(&all));
    }
}
