//! Compares windows with the same part of a list of all rows.

use proptest::prelude::*;
use trace::{Batch, Bounds, Event, Source, Window, generate};

use crate::common::{Rows, in_sevens, script};

/// The rows that a window should have.
fn expected(all: &Rows, bounds: Bounds) -> Rows {
    let total = all.rows.len() as u64;
    let from = bounds.skip;
    let counted = from + bounds.warmup;
    let end = bounds.accesses_max.map_or(total, |max| (counted + max).min(total));
    let is_in = |at: u64, event: &Event| {
        let gap_before = bounds.skip > 0 && at <= from && matches!(event, Event::Gap { .. });
        let within = at < end || (at == end && end == total && bounds.end_is_open(total));
        within && !gap_before
    };
    let mut events: Vec<_> = all
        .events
        .iter()
        .filter(|(at, _, event)| is_in(*at, event))
        .map(|(at, thread, event)| ((*at).max(from), *thread, event.clone()))
        .collect();
    if bounds.warmup > 0 {
        let place = events.partition_point(|(at, ..)| *at <= counted);
        events.insert(place, (counted, 0, Event::WarmupEnd));
    }
    Rows { rows: all.rows[from as usize..end as usize].to_vec(), events }
}

trait EndIsOpen {
    fn end_is_open(&self, total: u64) -> bool;
}

impl EndIsOpen for Bounds {
    /// Whether a window reaches the end of the source, and not only its last access.
    fn end_is_open(&self, total: u64) -> bool {
        self.accesses_max.is_none_or(|max| self.skip + self.warmup + max > total)
    }
}

/// The rows with thread 0 for the event that ends a warm-up, because its thread has no meaning.
fn without_its_thread(mut rows: Rows) -> Rows {
    for (_, thread, event) in &mut rows.events {
        if matches!(event, Event::WarmupEnd) {
            *thread = 0;
        }
    }
    rows
}

proptest! {
    #[test]
    fn a_window_is_a_part(
        script in script(60),
        skip in 0u64..40,
        warmup in 0u64..20,
        max in proptest::option::of(0u64..40),
    ) {
        let mut sink = trace::Batcher::new();
        script.play(&mut sink).unwrap();
        sink.finish();
        let mut all = Rows::default();
        let mut batch = Batch::default();
        while sink.take(&mut batch) {
            let begin = all.rows.len() as u64;
            batch.first = begin;
            all.extend(&batch, 0);
        }
        all.extend(&batch, 0);
        for row in &mut all.rows {
            row.3 = None;
        }
        let total = all.rows.len() as u64;
        let bounds = Bounds { skip, warmup, accesses_max: max };
        let mut window = Window::new(in_sevens(&all), bounds);
        let reached = (skip == 0 || skip < total || (skip == total && warmup > 0))
            && (warmup == 0 || skip + warmup < total);
        // A window of no accesses ends immediately, without reading an access.
        let asks = max != Some(0) || skip + warmup > 0;
        match Rows::of(&mut window, skip) {
            Ok(found) => {
                prop_assert!(reached || !asks);
                if asks && max != Some(0) {
                    prop_assert_eq!(without_its_thread(found), expected(&all, bounds));
                }
            }
            Err(error) => {
                prop_assert!(!reached, "{error}");
                let text = error.to_string();
                let ends = format!("the trace ends after {total} accesses");
                prop_assert!(text.contains(&ends), "{text}");
            }
        }
    }
}

#[test]
fn a_window_has_a_digest_and_a_length_of_its_own() {
    let window = |skip, warmup, accesses_max| {
        let source = generate::parse("uniform,accesses=200k").unwrap();
        Window::new(source, Bounds { skip, warmup, accesses_max })
    };
    let digests = [(0, 0, Some(9)), (1, 0, None), (0, 1, None), (1, 1, None), (1, 1, Some(9))]
        .map(|(skip, warmup, max)| window(skip, warmup, max).digest());
    for (index, digest) in digests.iter().enumerate() {
        assert!(digest.is_some() && !digests[..index].contains(digest));
    }
    assert_eq!(window(50_000, 20_000, None).total(), Some(150_000));
    assert_eq!(window(50_000, 20_000, Some(7)).total(), Some(20_007));
    let note = "a part of the trace: its first 50000 accesses are left out; the next 20000 warm up \
                the machine and are not counted; it ends after 7 counted accesses";
    assert_eq!(window(50_000, 20_000, Some(7)).header().notes.last().unwrap(), note);
}
