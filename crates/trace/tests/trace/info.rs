//! Compares the counts of a trace with counts that are computed one access at a time.

use std::collections::{BTreeMap, BTreeSet};

use addr::Kind;
use proptest::prelude::*;
use trace::{
    Batch, Batcher, Error, Event, Header, Info, Origin, Region, RegionInfo, Regions, Source, info,
};

use crate::common::{Call, Rows, Script, header, script};

/// A source that returns a script as one batch.
struct Played(Option<Batch>, Header);

impl Source for Played {
    fn header(&self) -> &Header {
        &self.1
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        *batch = self.0.take().unwrap_or_default();
        Ok(!batch.is_empty())
    }
}

fn played(script: &Script) -> Batch {
    let (mut batcher, mut batch) = (Batcher::new(), Batch::default());
    script.play(&mut batcher).unwrap();
    batcher.finish();
    batcher.take(&mut batch);
    batch
}

/// Random mappings below 64 KiB, where half of the accesses are too.
fn crowded() -> impl Strategy<Value = Script> {
    let event = (0u64..16, 1u64..4, 0u8..3).prop_map(|(page, pages, what)| {
        let (start, bytes) = (page * 4096, pages * 4096);
        match what {
            0 => Event::Munmap { addr: start, bytes, result: 0 },
            _ => {
                let origin = Origin::Other(format!("{page}+{pages}"));
                Event::Mapping { start, bytes, rights: 3, origin, offset: None, file: None }
            }
        }
    });
    let calls = prop::collection::vec((any::<prop::sample::Index>(), event), 0..40);
    (script(300), calls).prop_map(|(mut script, events)| {
        for shape in &mut script.shapes {
            shape.pc %= 1 << 16;
        }
        for call in &mut script.calls {
            if let Call::Execute(_, addrs) = call {
                addrs
                    .iter_mut()
                    .for_each(|addr| *addr = addr.wrapping_mul(0x9e37_79b9) % (1 << 16));
            }
        }
        for (at, event) in events {
            let at = at.index(script.calls.len() + 1);
            script.calls.insert(at, Call::Event(0, event));
        }
        script
    })
}

fn check(info: &Info, rows: &Rows) {
    let mut regions = Regions::new();
    let mut events = rows.events.iter().peekable();
    let mut pages: BTreeSet<(usize, u64)> = BTreeSet::new();
    let mut lines: BTreeSet<(usize, u64)> = BTreeSet::new();
    let mut in_region: BTreeMap<u32, ([u64; 3], BTreeSet<u64>)> = BTreeMap::new();
    let mut kinds = [0; 3];
    for (at, (_, addr, meta, _)) in rows.rows.iter().enumerate() {
        while let Some(event) = events.next_if(|event| event.0 <= at as u64) {
            regions.apply(&event.2);
        }
        let kind = meta.kind() as usize;
        kinds[kind] += 1;
        in_region.entry(regions.region_of(*addr).0).or_default().0[kind] += 1;
        let last = addr.saturating_add(u64::from(meta.size().max(1)) - 1);
        for line in addr >> 6..=last >> 6 {
            lines.insert((kind, line));
            pages.insert((kind, line >> 6));
        }
        for page in addr >> 12..=last >> 12 {
            in_region.entry(regions.region_of(page << 12).0).or_default().1.insert(page);
        }
    }
    let all = [info.accesses.fetch, info.accesses.load, info.accesses.store];
    assert_eq!(all, kinds);
    let of = |set: &BTreeSet<(usize, u64)>, kind: Kind| {
        set.iter().filter(|(other, _)| *other == kind as usize).count() as u64
    };
    for (counts, set) in [(info.pages, &pages), (info.lines, &lines)] {
        assert_eq!(counts.fetch, of(set, Kind::Fetch));
        assert_eq!(counts.load, of(set, Kind::Load));
        assert_eq!(counts.store, of(set, Kind::Store));
        let total: BTreeSet<u64> = set.iter().map(|(_, number)| *number).collect();
        assert_eq!(counts.total, total.len() as u64);
    }
    // A region that events report is listed alone. An inferred region is a part of the cluster that
    // contains it.
    let mut same = |region: &RegionInfo, members: &mut dyn Iterator<Item = &Region>| {
        let (mut accesses, mut pages) = ([0; 3], 0);
        for member in members {
            let (counts, touched) = in_region.remove(&member.id.0).unwrap_or_default();
            accesses.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            pages += touched.len() as u64;
        }
        let counted = [region.accesses.fetch, region.accesses.load, region.accesses.store];
        assert_eq!(counted, accesses, "{}", region.name);
        assert_eq!(region.pages, pages, "{}", region.name);
    };
    let (inferred, told): (Vec<&RegionInfo>, Vec<&RegionInfo>) =
        info.regions.iter().partition(|region| region.inferred);
    let known = regions.all().iter().filter(|region| !region.inferred);
    for (region, known) in told.into_iter().zip(known) {
        same(region, &mut std::iter::once(known));
    }
    for cluster in &inferred {
        let within = |region: &&Region| {
            region.inferred && region.start.wrapping_sub(cluster.start) < cluster.bytes
        };
        same(cluster, &mut regions.all().iter().filter(within));
    }
    for pair in inferred.windows(2) {
        assert!(pair[1].start - pair[0].start - pair[0].bytes > 4 << 20);
    }
    assert!(in_region.is_empty());
    let gaps = rows.events.iter().any(|event| matches!(event.2, Event::Gap { accesses: 1.., .. }));
    assert!(gaps || info.instructions == rows.instructions());
    let threads: BTreeSet<u32> = rows.rows.iter().map(|row| row.0).collect();
    assert_eq!(info.threads, threads.len() as u64);
    assert_eq!(info.events.values().sum::<u64>(), rows.events.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn counts_are_those_of_a_naive_count(script in prop_oneof![script(100), crowded()]) {
        let batch = played(&script);
        let mut rows = Rows::default();
        rows.extend(&batch, 0);
        let counted = info(&mut Played(Some(batch), header()), &mut |_| true).unwrap();
        check(&counted, &rows);
    }
}

#[test]
fn a_count_that_is_stopped_says_so() {
    let mut source = trace::generate::parse("uniform,accesses=1M").unwrap();
    let stopped = info(source.as_mut(), &mut |done| done < 100_000);
    assert!(matches!(stopped, Err(Error::Interrupted)));
}

#[test]
fn gaps_are_told_apart_from_what_was_counted() {
    let gap = |accesses, instructions| Call::Event(0, Event::Gap { accesses, instructions });
    let script = Script {
        shapes: vec![trace::Shape { pc: 64, bytes: 4, instructions: 5, fetch: true, ops: vec![] }],
        calls: vec![Call::Execute(0, vec![0]), gap(10, 70), Call::Execute(0, vec![0])],
    };
    let counted = info(&mut Played(Some(played(&script)), header()), &mut |_| true).unwrap();
    assert_eq!(counted.instructions, 10);
    assert_eq!((counted.missing.accesses, counted.missing.instructions), (10, 70));
    assert_eq!((counted.events["gap"], counted.accesses.fetch), (2, 2));
    assert_eq!((counted.bytes_on_disk, counted.chunks), (None, None));
}
