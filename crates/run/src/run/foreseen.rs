//! Whether the events of a trace report mappings, determined before the first access runs.
//!
//! ```text
//!   source      | batch | batch | batch with an mmap | batch | ...
//!               '-- read ahead: at most 2^20 --------'
//!                   accesses, then given in order
//! ```
//!
//! The page sizes that an address without a known mapping may have depend on whether the trace has
//! mapping events at all: [`Layout::is_told`](results::count::labels::Layout::is_told). A trace of
//! another tool may have its first mapping event after some accesses. So that all addresses without
//! a known mapping are treated in the same way, the beginning of a trace is read ahead.

use std::collections::VecDeque;

use results::count::labels::Told;
use trace::{Batch, Error, Event, Forward, KERNEL, Source};

/// The largest number of accesses and events that are read ahead.
const HELD_MAX: usize = 1 << 20;

/// A source whose beginning has been read ahead.
pub struct Foreseen<'a> {
    source: &'a mut dyn Source,
    /// The batches that were read ahead, each with the result of [`Source::next`].
    ahead: VecDeque<Result<(Batch, bool), Error>>,
    told: Told,
}

impl<'a> Foreseen<'a> {
    /// Reads ahead until each space seen so far has a mapping event, but at most [`HELD_MAX`] accesses and
    /// events.
    pub fn new(source: &'a mut dyn Source) -> Foreseen<'a> {
        Foreseen::within(source, HELD_MAX)
    }

    /// Like [`Foreseen::new`], but with at most `held_max` accesses and events.
    fn within(source: &'a mut dyn Source, held_max: usize) -> Foreseen<'a> {
        let mut ahead = VecDeque::new();
        let (mut held, mut number) = (0, 0);
        let mut told = Told::default();
        told.come(number);
        let mut is_settled = false;
        while !is_settled {
            let mut batch = Batch::default();
            let next = source.next(&mut batch);
            // The point up to which the trace is examined does not depend on how the source forms
            // batches.
            for (before, placed) in batch.events.iter().enumerate() {
                is_settled |= told.are_all();
                if is_settled || held + before + placed.at as usize >= held_max {
                    break;
                }
                match placed.event {
                    // Traces have no mapping events for the kernel's space.
                    Event::Run { space: KERNEL, .. } => {}
                    Event::Run { space, .. } => {
                        number = space;
                        told.come(number);
                    }
                    ref event => {
                        if event.changes_mappings() {
                            told.tell(number);
                        }
                    }
                }
            }
            held += batch.len() + batch.events.len();
            is_settled |= told.are_all() || held >= held_max;
            // Reading ahead stops at a recorder's request, as the recorder waits for the answer.
            is_settled |= batch.asks || !matches!(next, Ok(true));
            ahead.push_back(next.map(|more| (batch, more)));
        }
        Foreseen { source, ahead, told }
    }

    /// The spaces that have mapping events in the part of the trace that was read ahead.
    pub fn told(&self) -> &Told {
        &self.told
    }
}

impl Forward for Foreseen<'_> {
    fn source(&self) -> &dyn Source {
        self.source
    }

    fn source_mut(&mut self) -> &mut dyn Source {
        self.source
    }

    fn forward(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        match self.ahead.pop_front() {
            Some(next) => {
                let (next, more) = next?;
                *batch = next;
                Ok(more)
            }
            None => self.source.next(batch),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use addr::Kind;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use results::count::labels::Layout;
    use trace::{Arch, Filter, Header, Meta};

    use super::*;

    const SPACES: u32 = 4;

    /// An access or an event.
    #[derive(Clone, PartialEq, Debug)]
    enum Item {
        Access(u64),
        Event(Event),
    }

    /// A source that returns items in batches of these lengths, and at the end an error or the end
    /// of the trace.
    struct Items {
        header: Header,
        items: VecDeque<Item>,
        lengths: VecDeque<usize>,
        fails: bool,
        given: usize,
    }

    impl Source for Items {
        fn header(&self) -> &Header {
            &self.header
        }

        fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
            batch.clear();
            if self.items.is_empty() && self.fails {
                return Err(Error::Interrupted);
            }
            let length = self.lengths.pop_front().unwrap_or(1);
            for item in self.items.drain(..length.min(self.items.len())) {
                self.given += 1;
                match item {
                    Item::Access(addr) => batch.push(0, addr, Meta::new(Kind::Load, 8, 1)),
                    Item::Event(event) => batch.push_event(0, event),
                }
            }
            Ok(!batch.is_empty() || !self.items.is_empty() || self.fails)
        }
    }

    fn items(random: &mut Xoshiro256PlusPlus, events: f64) -> Vec<Item> {
        let length = random.random_range(1..300);
        let item = |at| {
            if !random.random_bool(events) {
                return Item::Access(at);
            }
            let spaces = [0, 1, 2, 3, KERNEL];
            Item::Event(match random.random_range(0..4) {
                0 => Event::Munmap { addr: 4096, bytes: 4096, result: 0 },
                1 => Event::Gap { accesses: 1, instructions: 1 },
                _ => Event::Run { cpu: None, space: spaces[random.random_range(0..5)] },
            })
        };
        (0..length).map(item).collect()
    }

    fn source(random: &mut Xoshiro256PlusPlus, items: &[Item], fails: bool) -> Items {
        let header = Header {
            producer: "test".to_owned(),
            command: Vec::new(),
            arch: Arch::Unknown,
            fetches: true,
            filter: Filter::None,
            page_bytes: 4096,
            notes: Vec::new(),
            kernel_from: None,
        };
        let lengths = (0..items.len()).map(|_| random.random_range(1..30)).collect();
        Items { header, items: items.to_vec().into(), lengths, fails, given: 0 }
    }

    /// The expected result for each space, computed from the definition: whether the space has a
    /// mapping event among the first items. The first items are the smallest number of items after
    /// which each space that has occurred has such an event, but at most `held_max` items.
    fn model(items: &[Item], held_max: usize) -> Vec<bool> {
        let (mut come, mut told) = (BTreeSet::from([0]), BTreeSet::new());
        let mut space = 0;
        for item in items.iter().take(held_max) {
            if told.len() == come.len() {
                break;
            }
            match item {
                Item::Event(Event::Run { space: KERNEL, .. }) | Item::Access(_) => {}
                Item::Event(Event::Run { space: next, .. }) => {
                    space = *next;
                    come.insert(space);
                }
                Item::Event(event) if event.changes_mappings() => {
                    told.insert(space);
                }
                Item::Event(_) => {}
            }
        }
        let is_told =
            |space| if come.contains(&space) { told.contains(&space) } else { !told.is_empty() };
        (0..SPACES).map(is_told).collect()
    }

    #[test]
    fn what_is_told_does_not_depend_on_batches_and_all_is_handed_on() {
        let mut told_some = 0;
        for seed in 0..400 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let events = [0.02, 0.2, 0.7][random.random_range(0..3)];
            let items = items(&mut random, events);
            let held_max = random.random_range(1..300);
            let fails = random.random();
            let mut whole = source(&mut random, &items, fails);
            let mut foreseen = Foreseen::within(&mut whole, held_max);
            let mut layout = Layout::default();
            (0..SPACES).for_each(|space| layout.enter(space));
            layout.foresee(foreseen.told().clone());
            let told: Vec<bool> = (0..SPACES).map(|space| layout.is_told(space)).collect();
            assert_eq!(told, model(&items, held_max), "seed {seed}, {held_max} held: {items:?}");
            // No batch is read that begins after the bound.
            let read: usize = foreseen.ahead.iter().flatten().map(|(batch, _)| batch.len()).sum();
            assert!(read < held_max + 30, "seed {seed}, {held_max} held, {read} read");

            let mut found = Vec::new();
            let mut batch = Batch::default();
            let ended = loop {
                let next = foreseen.next(&mut batch);
                if next.is_err() {
                    break next;
                }
                let mut events = batch.events.drain(..).peekable();
                for at in 0..=batch.addr.len() {
                    while let Some(placed) = events.next_if(|one| one.at as usize == at) {
                        found.push(Item::Event(placed.event));
                    }
                    found.extend(batch.addr.get(at).map(|&addr| Item::Access(addr)));
                }
                if !matches!(next, Ok(true)) {
                    break next;
                }
            };
            assert_eq!(ended.is_err(), fails, "seed {seed}");
            assert_eq!(found, items, "seed {seed}");
            told_some += u32::from(told.iter().any(|&is_told| is_told));
        }
        assert!((50..350).contains(&told_some), "{told_some}");
    }

    #[test]
    fn a_recorder_that_asks_is_answered_first() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        struct Asking(Items);
        impl Source for Asking {
            fn header(&self) -> &Header {
                &self.0.header
            }

            fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
                let more = self.0.next(batch)?;
                batch.asks = true;
                Ok(more)
            }
        }
        let accesses: Vec<Item> = (0..100).map(Item::Access).collect();
        let mut asking = Asking(source(&mut random, &accesses, false));
        asking.0.lengths = [7, 5].into();
        Foreseen::new(&mut asking);
        assert_eq!(asking.0.given, 7);
    }
}
