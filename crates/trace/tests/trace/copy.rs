//! Any source can be stored, and the stored trace has the same rows.

use addr::Kind;
use proptest::prelude::*;
use trace::{Batch, Error, Event, Header, Meta, Options, Reader, Source, Writer, copy, generate};

use crate::common::{Rows, header};

/// A source that returns rows in batches of given lengths.
struct Given {
    header: Header,
    rows: Vec<(u32, u64, Meta, Option<u64>)>,
    events: Vec<(u64, u32, Event)>,
    at: usize,
    batch: usize,
}

impl Source for Given {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        batch.first = self.at as u64;
        let end = self.rows.len().min(self.at + self.batch);
        let last = end == self.rows.len();
        for at in self.at..=end {
            let here = self.events.iter().filter(|event| event.0 == at as u64);
            for (_, thread, event) in here.filter(|_| at < end || last) {
                batch.push_event(*thread, event.clone());
            }
            if at < end {
                let (thread, addr, meta, paddr) = self.rows[at];
                batch.push(thread, addr, meta);
                batch.paddr.extend(paddr);
            }
        }
        if last {
            self.events.clear();
        }
        self.at = end;
        Ok(!batch.is_empty())
    }
}

fn rows() -> impl Strategy<Value = Vec<(u32, u64, Meta, Option<u64>)>> {
    let kind = prop_oneof![Just(Kind::Fetch), Just(Kind::Load), Just(Kind::Store)];
    let size = prop_oneof![Just(8u32), 0u32..20_000];
    let instructions = prop_oneof![4 => 0u32..4, 1 => any::<u32>()];
    let addr = prop_oneof![0u64..64, any::<u64>()];
    let thread = prop_oneof![9 => Just(0u32), 1 => 0u32..5];
    let row = (thread, addr, kind, size, instructions)
        .prop_map(|(thread, addr, kind, size, count)| (thread, addr, Meta::new(kind, size, count)));
    (prop::collection::vec(row, 0..200), any::<bool>()).prop_map(|(rows, physical)| {
        let paddr = |addr| physical.then(|| crate::common::paddr(addr));
        rows.into_iter().map(|(thread, addr, meta)| (thread, addr, meta, paddr(addr))).collect()
    })
}

fn stored(source: &mut dyn Source, name: &str) -> Rows {
    let path = std::env::temp_dir().join(format!("pagewalk-{}-{name}.pwt", std::process::id()));
    let options = Options { overwrite: true, chunk_accesses: 50, ..Options::default() };
    let mut writer = Writer::create(&path, source.header().clone(), options).unwrap();
    copy(source, &mut writer, &mut |_| true).unwrap();
    writer.finish().unwrap();
    let rows = Rows::of(&mut Reader::open(&path).unwrap(), 0).unwrap();
    std::fs::remove_file(&path).unwrap();
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn rows_come_back(rows in rows(), batch in 1usize..60, events in prop::collection::vec(any::<prop::sample::Index>(), 0..5)) {
        let mut events: Vec<_> = events
            .iter()
            .enumerate()
            .map(|(number, at)| (at.index(rows.len() + 1) as u64, 1, Event::Fork { result: number as i64, flags: 0 }))
            .collect();
        events.sort_by_key(|event| event.0);
        let expected = Rows { rows: rows.clone(), events: events.clone() };
        let mut source = Given { header: header(), rows, events, at: 0, batch };
        prop_assert_eq!(stored(&mut source, "copy").with_known_paddrs(), expected.with_known_paddrs());
    }
}

#[test]
fn a_generated_trace_is_stored_as_it_is() {
    for spec in ["join,table=1M,accesses=3k", "zipf,accesses=1k", "strided,accesses=1k"] {
        let expected = Rows::of(generate::parse(spec).unwrap().as_mut(), 0).unwrap();
        assert_eq!(
            stored(generate::parse(spec).unwrap().as_mut(), "generated"),
            expected,
            "{spec}"
        );
    }
}

#[test]
fn a_copy_that_is_stopped_leaves_no_file() {
    let path = std::env::temp_dir().join(format!("pagewalk-{}-stopped.pwt", std::process::id()));
    let mut source = generate::parse("uniform,accesses=1M").unwrap();
    let mut writer = Writer::create(&path, source.header().clone(), Options::default()).unwrap();
    let mut calls = 0;
    let stopped = copy(source.as_mut(), &mut writer, &mut |done| {
        calls += 1;
        done < 200_000
    });
    assert!(matches!(stopped, Err(Error::Interrupted)));
    assert_eq!(calls, 4);
    drop(writer);
    assert!(!path.exists() && !path.with_extension("pwt.part").exists());
}

/// The rows of a loop of two blocks: the size of the stored trace does not grow with the number of
/// rows.
#[test]
fn repeated_blocks_cost_next_to_nothing() {
    let row = |kind, addr, instructions| (0, addr, Meta::new(kind, 8, instructions), None);
    let rows = (0..50_000u64).flat_map(|round| {
        [
            row(Kind::Fetch, 0x1000, 4),
            row(Kind::Load, 0x10_0000 + 8 * round, 2),
            row(Kind::Fetch, 0x2000, 7),
            row(Kind::Store, 0x9000, 3),
        ]
    });
    let mut source =
        Given { header: header(), rows: rows.collect(), events: Vec::new(), at: 0, batch: 1000 };
    let path = std::env::temp_dir().join(format!("pagewalk-{}-loop.pwt", std::process::id()));
    let mut writer = Writer::create(&path, source.header.clone(), Options::default()).unwrap();
    copy(&mut source, &mut writer, &mut |_| true).unwrap();
    let summary = writer.finish().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(summary.accesses, 200_000);
    assert!(summary.bytes < summary.accesses / 64, "{} bytes", summary.bytes);
}
