//! Whether a trace says what is mapped, as far as that is known before its first access.
//!
//! ```text
//!   source      | batch | batch | batch with an mmap | batch | ...
//!               '-- read ahead: at most 2^20 --------'
//!                   accesses, then given in order
//! ```
//!
//! Which page sizes an address may have that no mapping explains depends on whether the trace has mappings at all:
//! [`Layout::is_told`](results::count::labels::Layout::is_told). A trace of another tool may tell the first of them after some
//! accesses. So that all such addresses are treated alike, the beginning of a trace is looked through first.

use std::collections::VecDeque;

use results::count::labels::Told;
use trace::{Batch, Error, Event, Forward, KERNEL, Source};

/// Accesses and events that are looked through at most.
const HELD_MAX: usize = 1 << 20;

/// A source whose beginning has been looked through.
pub struct Foreseen<'a> {
    source: &'a mut dyn Source,
    /// What was read ahead: each batch, with what [`Source::next`] said of it.
    ahead: VecDeque<Result<(Batch, bool), Error>>,
    told: Told,
}

impl<'a> Foreseen<'a> {
    /// Reads ahead until events say what is mapped in each space that has come, or for [`HELD_MAX`] accesses
    /// and events.
    pub fn new(source: &'a mut dyn Source) -> Foreseen<'a> {
        let mut ahead = VecDeque::new();
        let (mut held, mut number) = (0, 0);
        let mut told = Told::default();
        told.come(number);
        let mut is_settled = false;
        while !is_settled {
            let mut batch = Batch::default();
            let next = source.next(&mut batch);
            // Where it ends does not depend on how the source makes batches.
            for (before, placed) in batch.events.iter().enumerate() {
                is_settled |= told.are_all();
                if is_settled || held + before + placed.at as usize >= HELD_MAX {
                    break;
                }
                match placed.event {
                    // Nothing is ever told of the kernel's space.
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
            is_settled |= told.are_all() || held >= HELD_MAX;
            // A recorder that asks waits for the answer.
            is_settled |= batch.asks || !matches!(next, Ok(true));
            ahead.push_back(next.map(|more| (batch, more)));
        }
        Foreseen { source, ahead, told }
    }

    /// Of which spaces events say what is mapped, as far as was looked.
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
    use addr::Kind;
    use trace::{Header, Meta, Placed};

    use super::*;

    /// Batches as they are, then an end or an error.
    struct Given {
        header: Header,
        batches: VecDeque<Batch>,
        fails: bool,
    }

    impl Source for Given {
        fn header(&self) -> &Header {
            &self.header
        }

        fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
            *batch = self.batches.pop_front().unwrap_or_default();
            match self.fails && batch.is_empty() {
                true => Err(Error::Parameters("damaged".to_owned())),
                false => Ok(!batch.is_empty()),
            }
        }
    }

    /// An access, or an event.
    #[derive(Clone, PartialEq, Debug)]
    enum Item {
        Access(u64),
        Event(Event),
    }

    /// `items` in batches of `size` of them, but for the last.
    fn given(items: &[Item], size: usize, fails: bool) -> Given {
        let mut batches = VecDeque::new();
        for part in items.chunks(size) {
            let mut batch = Batch::default();
            for item in part {
                match item {
                    Item::Access(addr) => batch.push(0, *addr, Meta::new(Kind::Load, 8, 1)),
                    Item::Event(event) => batch.push_event(0, event.clone()),
                }
            }
            // A batch without an access is the end.
            if batch.is_empty() {
                batch.push(0, 0, Meta::new(Kind::Load, 8, 1));
            }
            batches.push_back(batch);
        }
        let header =
            trace::import::open("generate:uniform,accesses=1", &trace::import::Options::default())
                .map(|source| source.header().clone());
        Given { header: header.unwrap(), batches, fails }
    }

    /// The addresses and the events of a batch.
    type Contents = (Vec<u64>, Vec<Placed>);

    /// What `source` gives, and whether it ends with an error.
    fn drained(source: &mut dyn Source) -> (Vec<Contents>, bool) {
        let (mut all, mut batch) = (Vec::new(), Batch::default());
        loop {
            match source.next(&mut batch) {
                Ok(true) => all.push((batch.addr.clone(), batch.events.clone())),
                Ok(false) => return (all, false),
                Err(_) => return (all, true),
            }
        }
    }

    fn mapped() -> Item {
        Item::Event(Event::Munmap { addr: 0x1000, bytes: 4096, result: 0 })
    }

    fn runs(space: u32) -> Item {
        Item::Event(Event::Run { cpu: None, space })
    }

    /// What is read ahead comes as it came, whatever the batches and wherever it stops, and an error comes where it was.
    #[test]
    fn what_was_read_ahead_is_given_as_it_came() {
        for (place, size) in [(0, 1), (1, 7), (50, 7), (99, 100), (100, 3), (100, 1000)] {
            for fails in [false, true] {
                let mut items: Vec<Item> = (0..100).map(|page| Item::Access(page << 12)).collect();
                items.insert(place, mapped());
                let expected = drained(&mut given(&items, size, fails));
                let mut source = given(&items, size, fails);
                let found = drained(&mut Foreseen::new(&mut source));
                assert_eq!(found, expected, "at {place}, {size} each, {fails}");
            }
        }
    }

    /// Spaces that are told of, and others: wherever the events stand, in batches of any size.
    #[test]
    fn what_is_told_of_does_not_depend_on_where_events_stand() {
        let access = Item::Access(1 << 40);
        let (first, second) = (vec![access.clone(), mapped()], vec![mapped(), access.clone()]);
        let nothing = vec![access.clone(), access];
        let cases = [
            (first.clone(), vec![], [true, true]),
            (second.clone(), vec![], [true, true]),
            (nothing.clone(), vec![], [false, false]),
            (nothing.clone(), first.clone(), [false, true]),
            (first.clone(), nothing, [true, false]),
            (first, second, [true, true]),
        ];
        for (of_0, of_1, expected) in cases {
            for size in [1, 2, 3, 100] {
                let mut items = of_0.clone();
                if !of_1.is_empty() {
                    // Both come before either is told of.
                    items = [&[runs(1), runs(0)], &of_0[..], &[runs(1)], &of_1].concat();
                }
                let mut source = given(&items, size, false);
                let mut layout = results::count::labels::Layout::default();
                let foreseen = Foreseen::new(&mut source);
                layout.foresee(foreseen.told().clone());
                let is_told = [0, 1].map(|space| {
                    layout.enter(space);
                    layout.is_told(space)
                });
                assert_eq!(is_told, expected, "{items:?}, {size} each");
            }
        }
    }

    /// A trace that tells nothing is not read to its end.
    #[test]
    fn a_bounded_part_is_looked_through() {
        let size = 1 << 12;
        for (place, expected) in [(HELD_MAX - 1, true), (HELD_MAX, false), (HELD_MAX + size, false)]
        {
            let mut items = vec![Item::Access(0); HELD_MAX + 4 * size];
            items.insert(place, mapped());
            let mut source = given(&items, size, false);
            assert_eq!(Foreseen::new(&mut source).told().are_all(), expected, "{place}");
            assert!(source.batches.len() >= 3, "{place}: {} are left", source.batches.len());
        }
    }
}
