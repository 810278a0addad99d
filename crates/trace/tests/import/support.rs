//! Code that the tests share: the contents of a source as plain values, and random numbers with a
//! printed seed.

use std::io::Cursor;

use addr::Kind;
use trace::import::{Options, from_reader};
use trace::{Batch, Error, Event, Source};

pub(crate) const F: Kind = Kind::Fetch;
pub(crate) const L: Kind = Kind::Load;
pub(crate) const S: Kind = Kind::Store;

/// A row: thread, kind, address, size and instructions.
pub(crate) type Row = (u32, Kind, u64, u32, u32);

/// The contents of a source.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Given {
    pub(crate) rows: Vec<Row>,
    pub(crate) paddr: Vec<u64>,
    /// The events, each with the number of rows before it and its thread.
    pub(crate) events: Vec<(u64, u32, Event)>,
    pub(crate) notes: Vec<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) digest: Option<String>,
}

impl Given {
    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.rows.iter().filter(|row| row.1 == kind).count()
    }

    /// The instructions of all rows and gaps.
    pub(crate) fn instructions(&self) -> u64 {
        let gaps = self.events.iter().map(|(_, _, event)| match event {
            Event::Gap { instructions, .. } => *instructions,
            _ => 0,
        });
        self.rows.iter().map(|row| u64::from(row.4)).sum::<u64>() + gaps.sum::<u64>()
    }

    pub(crate) fn data(&self) -> Vec<(u32, Kind, u64, u32)> {
        let data = self.rows.iter().filter(|row| row.1 != F);
        data.map(|&(thread, kind, addr, size, _)| (thread, kind, addr, size)).collect()
    }
}

/// Reads all of `source`, and checks the conditions that hold for every batch.
pub(crate) fn drain(source: &mut dyn Source) -> Result<Given, Error> {
    let mut given = Given { notes: source.header().notes.clone(), ..Given::default() };
    let mut batch = Batch::default();
    loop {
        let more = source.next(&mut batch)?;
        assert_eq!(more, !batch.is_empty());
        assert_eq!(batch.addr.len(), batch.meta.len());
        assert!(batch.paddr.is_empty() || batch.paddr.len() == batch.len());
        assert!(batch.len() < (1 << 16) + 16, "a batch of {} rows", batch.len());
        assert!(batch.segments.is_sorted_by_key(|segment| segment.start));
        assert!(batch.events.is_sorted_by_key(|placed| placed.at));
        assert!(batch.events.last().is_none_or(|placed| placed.at as usize <= batch.len()));
        let first = given.rows.len() as u64;
        if more {
            assert_eq!(batch.first, first);
            assert_eq!(batch.segments[0].start, 0);
        }
        given.events.extend(
            batch.events.iter().map(|p| (first + u64::from(p.at), p.thread, p.event.clone())),
        );
        given.paddr.extend(&batch.paddr);
        let mut segments = batch.segments.iter().peekable();
        let mut thread = 0;
        for (index, (&addr, meta)) in batch.addr.iter().zip(&batch.meta).enumerate() {
            while let Some(segment) = segments.next_if(|s| s.start as usize <= index) {
                thread = segment.thread;
            }
            given.rows.push((thread, meta.kind(), addr, meta.size(), meta.instructions()));
        }
        if !more {
            break;
        }
    }
    given.warnings = source.warnings().to_vec();
    given.digest = source.digest();
    Ok(given)
}

/// Imports `bytes`.
pub(crate) fn import(bytes: &[u8], options: &Options) -> Result<Given, Error> {
    drain(from_reader("test", Box::new(Cursor::new(bytes.to_vec())), options)?.as_mut())
}

/// Checks that `bytes` are refused with a message that contains `part`. Returns the position that
/// the error names.
#[track_caller]
pub(crate) fn refused(bytes: &[u8], options: &Options, part: &str) -> Option<u64> {
    let error = import(bytes, options).expect_err("it was accepted");
    let message = error.to_string();
    assert!(message.contains(part), "{message:?} does not say {part:?}");
    assert!(!message.contains('\n'), "{message:?} is more than a line");
    match error {
        Error::Corrupt { offset, .. } => Some(offset),
        _ => None,
    }
}

/// Panics with the first difference between two lists.
#[track_caller]
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(given: &[T], expected: &[T], what: &str) {
    let first = given.iter().zip(expected).position(|(a, b)| a != b);
    if let Some(at) = first {
        panic!("{what}: row {at} is {:?} and should be {:?}", given[at], expected[at]);
    }
    assert_eq!(given.len(), expected.len(), "{what}: rows");
}

/// The pseudo-random number generator SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Runs `body` with several seeds, and prints the seed of a failure.
pub(crate) fn seeded(count: u64, mut body: impl FnMut(&mut Random)) {
    for seed in 0..count {
        let guard = Named(seed);
        body(&mut Random(seed.wrapping_mul(0x1234_5678_9abc_def1)));
        std::mem::forget(guard);
    }
}

struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        eprintln!("with seed {}", self.0);
    }
}
