//! One program of a mix: its batches, taken piece by piece.

use rustc_hash::FxHashMap;

use super::{BATCH_ACCESSES, Numbers};
use crate::{Batch, Error, Event, Placed, Segment, Source};

/// Why a program does not go on at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// It has run the instructions that it was given.
    Budget,
    /// The batch that it writes to is full, or its own is empty.
    Batch,
    /// It has ended.
    Ended,
}

/// A source and how far it has come.
pub(super) struct Program {
    name: String,
    source: Box<dyn Source + Send>,
    /// Its present batch, of which the accesses before `at` and the events before `event` have
    /// been taken.
    batch: Batch,
    at: usize,
    event: usize,
    more: bool,
    /// The mix's numbers of its threads and spaces.
    threads: FxHashMap<u32, u32>,
    spaces: FxHashMap<u32, u32>,
    space: u32,
}

impl Program {
    /// The program of that number, which its first thread and its first space get too.
    pub(super) fn new(number: u32, name: String, source: Box<dyn Source + Send>) -> Program {
        Program {
            name,
            source,
            batch: Batch::default(),
            at: 0,
            event: 0,
            more: true,
            threads: FxHashMap::from_iter([(0, number)]),
            spaces: FxHashMap::from_iter([(0, number)]),
            space: number,
        }
    }

    /// Accesses in all, where that is known.
    pub(super) fn total(&self) -> Option<u64> {
        self.source.total()
    }

    pub(super) fn digest(&self) -> Option<String> {
        self.source.digest()
    }

    /// What became known of it on the way.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        self.source.warnings().iter().map(|warning| format!("{}: {warning}", self.name))
    }

    /// Whether it is about to take the whole of its next batch, which goes without copying if
    /// there is nothing before it.
    pub(super) fn wants_all_of_a_batch(&self) -> bool {
        self.more && self.at == self.batch.len()
    }

    /// Appends what it does next to `out`, about `budget` instructions of it: the last access may
    /// come with more. Gives how many it were.
    pub(super) fn take(
        &mut self,
        out: &mut Batch,
        budget: u64,
        numbers: &mut Numbers,
    ) -> Result<(u64, Stop), Error> {
        if self.at == self.batch.len() && self.event == self.batch.events.len() {
            if !self.more {
                return Ok((0, Stop::Ended));
            }
            self.more = self.source.next(&mut self.batch)?;
            (self.at, self.event) = (0, 0);
            if out.is_empty() && self.is_plain(numbers) {
                let instructions = sum(&self.batch.meta);
                if instructions < budget {
                    self.take_whole(out, numbers);
                    return Ok((instructions, Stop::Batch));
                }
            }
        }
        let mut ran = 0;
        loop {
            self.take_events(out, numbers);
            if self.at == self.batch.len() {
                let stop = if self.more { Stop::Batch } else { Stop::Ended };
                return Ok((ran, stop));
            }
            if ran >= budget {
                return Ok((ran, Stop::Budget));
            }
            if out.len() >= BATCH_ACCESSES {
                return Ok((ran, Stop::Batch));
            }
            ran += self.take_piece(out, budget - ran, numbers);
        }
    }

    /// Whether its batch says nothing of spaces and is made on one processor.
    fn is_plain(&mut self, numbers: &mut Numbers) -> bool {
        let cpus = numbers.cpus;
        let mut segments = self.batch.segments.iter();
        let mut cpu = |segment: &Segment| {
            let next = &mut numbers.threads;
            number(&mut self.threads, segment.thread, next) % cpus
        };
        let Some(first) = segments.next().map(&mut cpu) else { return false };
        segments.all(|segment| cpu(segment) == first)
            && !self.batch.events.iter().any(|placed| matches!(placed.event, Event::Run { .. }))
    }

    /// Gives all of its batch to `out`, which has no access, and takes its memory instead.
    fn take_whole(&mut self, out: &mut Batch, numbers: &mut Numbers) {
        for index in 0..self.batch.segments.len() {
            let Segment { start, thread } = self.batch.segments[index];
            let thread = number(&mut self.threads, thread, &mut numbers.threads);
            if index == 0 {
                numbers.run(thread, self.space, out);
            }
            out.segments.push(Segment { start, thread });
        }
        for placed in self.batch.events.drain(..) {
            let thread = number(&mut self.threads, placed.thread, &mut numbers.threads);
            out.events.push(Placed { thread, ..placed });
        }
        std::mem::swap(&mut out.addr, &mut self.batch.addr);
        std::mem::swap(&mut out.meta, &mut self.batch.meta);
        std::mem::swap(&mut out.paddr, &mut self.batch.paddr);
        self.batch.clear();
    }

    /// The events before the next access.
    fn take_events(&mut self, out: &mut Batch, numbers: &mut Numbers) {
        while let Some(placed) = self.batch.events.get(self.event) {
            if placed.at as usize > self.at {
                break;
            }
            self.event += 1;
            if let Event::Run { space, .. } = placed.event {
                self.space = number(&mut self.spaces, space, &mut numbers.spaces);
                continue;
            }
            let thread = number(&mut self.threads, placed.thread, &mut numbers.threads);
            numbers.run(thread, self.space, out);
            out.push_event(thread, placed.event.clone());
        }
    }

    /// Accesses of one thread up to the next event, of `budget` instructions or a little more, as
    /// far as `out` has room. Gives their instructions.
    fn take_piece(&mut self, out: &mut Batch, budget: u64, numbers: &mut Numbers) -> u64 {
        let segments = &self.batch.segments;
        let later = segments.partition_point(|segment| segment.start as usize <= self.at);
        let event = self.batch.events.get(self.event).map(|placed| placed.at as usize);
        let segment = segments.get(later).map(|segment| segment.start as usize);
        let room = self.at + (BATCH_ACCESSES - out.len());
        let end =
            [event, segment].into_iter().flatten().fold(self.batch.len().min(room), usize::min);
        let mut ran = sum(&self.batch.meta[self.at..end]);
        let mut to = end;
        if ran >= budget {
            (to, ran) = (self.at, 0);
            while ran < budget && to < end {
                ran += u64::from(self.batch.meta[to].instructions());
                to += 1;
            }
        }
        let thread = segments[later - 1].thread;
        let thread = number(&mut self.threads, thread, &mut numbers.threads);
        numbers.run(thread, self.space, out);
        if out.segments.last().is_none_or(|segment| segment.thread != thread) {
            out.segments.push(Segment { start: out.len() as u32, thread });
        }
        let physical = !self.batch.paddr.is_empty();
        if physical || !out.paddr.is_empty() {
            // 0: not known.
            out.paddr.resize(out.addr.len(), 0);
            match physical {
                true => out.paddr.extend_from_slice(&self.batch.paddr[self.at..to]),
                false => out.paddr.resize(out.addr.len() + (to - self.at), 0),
            }
        }
        out.addr.extend_from_slice(&self.batch.addr[self.at..to]);
        out.meta.extend_from_slice(&self.batch.meta[self.at..to]);
        self.at = to;
        ran
    }
}

/// Instructions of some accesses, with sums that fit into the lanes of a vector.
fn sum(metas: &[crate::Meta]) -> u64 {
    let some = metas.chunks(1 << 16);
    some.map(|some| u64::from(some.iter().map(|meta| meta.instructions()).sum::<u32>())).sum()
}

/// The number of `own`, which is `next` if it has none.
fn number(numbers: &mut FxHashMap<u32, u32>, own: u32, next: &mut u32) -> u32 {
    *numbers.entry(own).or_insert_with(|| {
        *next += 1;
        *next - 1
    })
}
