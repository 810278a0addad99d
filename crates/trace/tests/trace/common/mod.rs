//! Code that the tests of the format share: scripts of a recorder's calls, and the contents of a
//! source as a list of rows.
#![allow(dead_code)]

use addr::Kind;
use proptest::prelude::*;
use trace::{
    Address, Arch, Batch, Error, Event, Filter, Header, KnownSizes, Meta, Op, Origin, Placed, Seen,
    Shape, ShapeId, Sink, Source, Translation, WORD_BLOCK, WORD_COUNT_SHIFT, WORD_FIXED, WORD_NONE,
    WORD_SHIFT, When,
};

/// A call of a sink.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    /// Executes the shape with this number and these addresses. If the shape needs more addresses,
    /// they are computed from these.
    Execute(usize, Vec<u64>),
    /// Executes the shape with this number and these physical addresses. If the shape needs more
    /// addresses, they are computed from these.
    Physical(usize, Vec<u64>),
    Thread(u32),
    Advance(u64),
    Event(u32, Event),
}

/// Shapes, and the calls that use them.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) shapes: Vec<Shape>,
    pub(crate) calls: Vec<Call>,
}

impl Script {
    /// Makes the calls of the script on `sink`.
    pub(crate) fn play(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let ids: Vec<_> = self.shapes.iter().map(|shape| sink.shape(shape)).collect();
        self.play_known(&ids, sink)
    }

    fn play_known(&self, ids: &[ShapeId], sink: &mut dyn Sink) -> Result<(), Error> {
        for call in &self.calls {
            match call {
                Call::Execute(shape, addrs) => {
                    let shape = shape % ids.len();
                    sink.execute(ids[shape], &self.addrs(shape, addrs))?;
                }
                Call::Physical(shape, addrs) => {
                    let shape = shape % ids.len();
                    let addrs = self.addrs(shape, addrs);
                    let fetch = self.shapes[shape].fetch.then_some(self.shapes[shape].pc);
                    let rows = fetch.into_iter().chain(addrs.iter().copied());
                    let paddrs: Vec<u64> = rows.map(paddr).collect();
                    sink.execute_physical(ids[shape], &addrs, &paddrs)?;
                }
                Call::Thread(thread) => sink.thread(*thread),
                Call::Advance(instructions) => sink.advance(*instructions),
                Call::Event(thread, event) => sink.event(*thread, event.clone())?,
            }
        }
        Ok(())
    }

    /// Like [`Script::play`], but successive executions are passed as words of a recorder, if words
    /// can hold their addresses. Each shape is a block, every other shape a block with a fixed
    /// number of accesses, and some executions are unusual.
    pub(crate) fn play_as_words(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let ids: Vec<_> = self.shapes.iter().map(|shape| sink.shape(shape)).collect();
        let mut rest = self.calls.as_slice();
        while !rest.is_empty() {
            let (mut words, mut runs) = (Vec::new(), Vec::new());
            while let [Call::Execute(shape, addrs), after @ ..] = rest {
                let shape = shape % ids.len();
                let addrs = self.addrs(shape, addrs);
                if addrs.iter().any(|addr| addr >> (64 - WORD_SHIFT) != 0) {
                    break;
                }
                // Some executions have other operations than the previous one.
                let tag = u16::from(addrs.last().is_some_and(|addr| addr % 5 == 0));
                runs.push((words.len(), shape, tag, addrs.clone()));
                let number = (shape as u64) << WORD_SHIFT;
                if shape % 2 == 0 && addrs.len() < 256 {
                    let count = (addrs.len() as u64) << WORD_COUNT_SHIFT;
                    words.push(count | number | u64::from(WORD_FIXED));
                    words.extend(&addrs);
                    // The sink ignores a run that is cut off, whatever addresses it has.
                    if let Some(last) = words.last_mut().filter(|_| tag != 0 && !addrs.is_empty()) {
                        *last = WORD_NONE;
                    }
                } else {
                    words.push(number | u64::from(WORD_BLOCK));
                    words.extend(addrs.iter().map(|addr| addr << WORD_SHIFT | u64::from(tag)));
                }
                rest = after;
            }
            // Another kind of word ends the last run.
            words.push(u64::from(WORD_BLOCK + 1));
            let mut at = 0;
            while at + 1 < words.len() {
                at += sink.execute_words(&words[at..])?.words;
                if let Some((_, shape, tag, addrs)) = runs.iter().find(|run| run.0 == at) {
                    sink.execute(ids[*shape], addrs)?;
                    sink.usual(*shape, ids[*shape], &vec![*tag; addrs.len()]);
                    at += 1 + addrs.len();
                }
            }
            if let [other, after @ ..] = rest {
                let (shapes, calls) = (self.shapes.clone(), vec![other.clone()]);
                Script { shapes, calls }.play_known(&ids, sink)?;
                rest = after;
            }
        }
        Ok(())
    }

    fn addrs(&self, shape: usize, addrs: &[u64]) -> Vec<u64> {
        let count = self.shapes[shape].ops.len();
        (0..count).map(|op| addrs[op % addrs.len()].wrapping_add(8 * op as u64)).collect()
    }
}

/// A physical address: mostly by a fixed mapping of pages, sometimes unknown, and sometimes
/// unrelated to a page.
pub(crate) fn paddr(addr: u64) -> u64 {
    match addr % 7 {
        0 => 0,
        1 => addr.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        _ => (addr >> 12).wrapping_mul(31) << 13 >> 1 | addr & 0xfff,
    }
}

pub(crate) fn header() -> Header {
    Header {
        producer: "test".to_owned(),
        command: vec!["prog".to_owned(), "--flag".to_owned()],
        arch: Arch::X86_64,
        fetches: true,
        filter: Filter::None,
        page_bytes: 4096,
        notes: Vec::new(),
        kernel_from: None,
    }
}

/// The contents of a source.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Rows {
    /// Thread, address and meta of each row, and its physical address if the source has one.
    pub(crate) rows: Vec<(u32, u64, Meta, Option<u64>)>,
    /// Position, thread and event.
    pub(crate) events: Vec<(u64, u32, Event)>,
}

impl Rows {
    /// Appends a batch, whose first access must follow the last one.
    pub(crate) fn extend(&mut self, batch: &Batch, begin: u64) {
        assert_eq!(batch.meta.len(), batch.len());
        assert!(batch.paddr.is_empty() || batch.paddr.len() == batch.len());
        assert!(batch.is_empty() || batch.first == begin + self.rows.len() as u64);
        assert!(batch.is_empty() == batch.segments.is_empty());
        assert!(batch.segments.first().is_none_or(|segment| segment.start == 0));
        assert!(batch.segments.windows(2).all(|two| two[0].start < two[1].start));
        assert!(batch.events.is_sorted_by_key(|event| event.at));
        let base = begin + self.rows.len() as u64;
        for event in &batch.events {
            assert!(event.at as usize <= batch.len());
            self.events.push((base + u64::from(event.at), event.thread, event.event.clone()));
        }
        for index in 0..batch.len() {
            let segment = batch.segments.iter().rfind(|one| one.start as usize <= index);
            let paddr = batch.paddr.get(index).copied();
            let thread = segment.expect("a segment holds each access").thread;
            self.rows.push((thread, batch.addr[index], batch.meta[index], paddr));
        }
    }

    /// Reads all of `source`, whose first access has the index `begin`.
    pub(crate) fn of(source: &mut dyn Source, begin: u64) -> Result<Rows, Error> {
        let (mut all, mut batch) = (Rows::default(), Batch::default());
        while source.next(&mut batch)? {
            assert!(!batch.is_empty());
            all.extend(&batch, begin);
        }
        assert!(batch.is_empty());
        all.extend(&batch, begin);
        assert!(!source.next(&mut batch)? && batch.is_empty() && batch.events.is_empty());
        Ok(all)
    }

    /// The accesses with indices of at least `from` and below `to`, and the events before each of
    /// them.
    pub(crate) fn part(&self, from: u64, to: u64) -> Rows {
        let total = self.rows.len() as u64;
        let wanted = |at: u64| from <= at && (at < to || to == total);
        Rows {
            rows: self.rows[from as usize..to as usize].to_vec(),
            events: self.events.iter().filter(|event| wanted(event.0)).cloned().collect(),
        }
    }

    /// The instructions of all rows and gaps.
    pub(crate) fn instructions(&self) -> u64 {
        let rows: u64 = self.rows.iter().map(|row| u64::from(row.2.instructions())).sum();
        let gap = |event: &Event| match event {
            Event::Gap { instructions, .. } => *instructions,
            _ => 0,
        };
        rows + self.events.iter().map(|event| gap(&event.2)).sum::<u64>()
    }

    /// The rows with the physical address 0 replaced by `None`. The format does not distinguish an
    /// unknown address from a source without physical addresses.
    pub(crate) fn with_known_paddrs(mut self) -> Rows {
        for row in &mut self.rows {
            row.3 = row.3.filter(|&paddr| paddr != 0);
        }
        self
    }
}

pub(crate) fn script(calls: usize) -> impl Strategy<Value = Script> {
    let shapes = prop::collection::vec(shape(), 1..12);
    (shapes, prop::collection::vec(call(), 0..calls))
        .prop_map(|(shapes, calls)| Script { shapes, calls })
}

fn shape() -> impl Strategy<Value = Shape> {
    let op = (0u16..4, any::<bool>(), prop_oneof![Just(8u32), 1u32..70_000]);
    (
        prop_oneof![0x40_0000u64..0x40_1000, any::<u64>()],
        0u32..20_000,
        any::<bool>(),
        prop_oneof![4 => prop::collection::vec(op.clone(), 0..5), 1 => prop::collection::vec(op, 5..30)],
        prop_oneof![4 => 0u32..5, 1 => 0u32..20_000],
    )
        .prop_map(|(pc, bytes, fetch, ops, trailing)| {
            let mut instruction = 0;
            let ops: Vec<Op> = ops
                .into_iter()
                .map(|(step, store, size)| {
                    instruction += step;
                    let kind = if store { Kind::Store } else { Kind::Load };
                    Op { instruction, kind, size, address: Address::Said }
                })
                .collect();
            let instructions = u32::from(instruction) + 1 + trailing;
            Shape { pc, bytes, instructions, fetch, ops }
        })
}

fn call() -> impl Strategy<Value = Call> {
    let addrs = prop::collection::vec(
        prop_oneof![
            4 => (0u64..16).prop_map(|index| 0x7fff_0000_0000 + index * 64),
            1 => Just(0xffff_ffff_ff60_0000u64),
            1 => any::<u64>(),
        ],
        1..4,
    );
    prop_oneof![
        40 => (any::<usize>(), addrs.clone()).prop_map(|(shape, addrs)| Call::Execute(shape, addrs)),
        2 => (any::<usize>(), addrs).prop_map(|(shape, addrs)| Call::Physical(shape, addrs)),
        4 => (0u32..40).prop_map(Call::Thread),
        1 => prop_oneof![0u64..10, 0u64..1 << 40].prop_map(Call::Advance),
        1 => (0u32..3, event()).prop_map(|(thread, event)| Call::Event(thread, event)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (any::<u64>(), any::<u64>(), any::<i64>())
            .prop_map(|(addr, bytes, result)| Event::Munmap { addr, bytes, result }),
        (".{0,8}", any::<i64>()).prop_map(|(path, result)| Event::Execve { path, result }),
        (any::<u64>(), ".{0,8}").prop_map(|(start, name)| Event::Mapping {
            start,
            bytes: 4096,
            rights: 5,
            origin: Origin::File(name),
            offset: None,
            file: None,
        }),
        Just(Event::ThreadEnd),
        Just(Event::Snapshot { when: When::End, sizes: KnownSizes::Large }),
        (0u64..1 << 52, 1u64..9, any::<Option<u16>>()).prop_map(|(unit, pages, frame)| {
            let paddr = frame.map(|frame| u64::from(frame) << 12);
            let page = Translation::base(Seen::Snapshot, (unit << 12).min(u64::MAX << 16));
            Event::Translation(Box::new(Translation { pages, paddr, ..page }))
        }),
    ]
}

/// A source that returns rows in batches of seven.
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
        batch.first = self.at as u64;
        let end = (self.at + 7).min(self.all.rows.len());
        for &(thread, addr, meta, _) in &self.all.rows[self.at..end] {
            batch.push(thread, addr, meta);
        }
        let (from, is_last) = (self.at as u64, end == self.all.rows.len() && self.at == end);
        for (at, thread, event) in &self.all.events {
            let mine = (from..end as u64).contains(at) || (is_last && *at == end as u64);
            if mine {
                let at = (at - from) as u32;
                batch.events.push(Placed { at, thread: *thread, event: event.clone() });
            }
        }
        self.at = end;
        self.is_over = batch.is_empty();
        Ok(!batch.is_empty())
    }

    fn digest(&self) -> Option<String> {
        Some("all".to_owned())
    }
}

/// A source of `all`, in batches of seven rows.
pub(crate) fn in_sevens(all: &Rows) -> Box<dyn Source + Send> {
    Box::new(Given { header: header(), all: all.clone(), at: 0, is_over: false })
}

/// A small pseudo-random number generator. The seed must not be 0.
pub(crate) struct Stream(pub(crate) u64);

impl Stream {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
