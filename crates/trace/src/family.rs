//! Merges the processes of a recording into one stream, with numbers of threads, processes and
//! spaces that are unique in the recording.
//!
//! ```text
//!   process 1, threads 0 1     piece --\                  thread 0 1   Process 1, Run: space 1
//!   process 2, thread  0       piece ---+--> append -->    thread 2     Process 2, Run: space 2
//! ```

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::mix::RECORDED;
use crate::{Batch, Event, Hits, Placed, Process, Segment};

/// The numbers of threads, and the space that each process runs in.
///
/// A child that shares its parent's space runs there until it executes a program.
#[derive(Debug, Default)]
pub struct Family {
    /// For each process: its space, and whether it shares the space of its parent.
    spaces: Vec<(u32, bool)>,
    threads: FxHashMap<(u32, u32), u32>,
    /// The process and space of the rows that were appended last.
    process: u32,
    space: u32,
    /// How many times the stream changed from one process to another.
    switches: u64,
}

impl Family {
    /// Begins a process, which gets the next number.
    pub fn begin(&mut self, process: &Process) {
        let shared = process.parent.filter(|_| process.shares_space);
        let space = shared.and_then(|parent| self.spaces.get(parent as usize));
        let space = space.map_or((process.number, false), |&(space, _)| (space, true));
        self.spaces.push(space);
    }

    /// How many times the stream changed from one process to another.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// Appends to `to` the accesses `rows` of `from`, a batch of `process`, and its next `count`
    /// events. Events before `rows` must have been appended already. Stamps are not appended.
    pub fn append(
        &mut self,
        process: u32,
        from: &mut Batch,
        rows: Range<u32>,
        count: usize,
        to: &mut Batch,
    ) {
        let base = to.len() as u32;
        let Family { spaces, threads, process: last, space: here, switches } = self;
        let Some((space, shared)) = spaces.get_mut(process as usize) else { return };
        let mut thread = |own: u32| {
            let next = threads.len() as u32;
            *threads.entry((process, own)).or_insert(next)
        };
        let mut enter = |to: &mut Batch, at: u32, thread: u32, space: u32| {
            if std::mem::replace(here, space) != space {
                to.events.push(Placed { at, thread, event: Event::Run { cpu: None, space } });
            }
        };
        let segment = from.segments.iter().rev().find(|segment| segment.start <= rows.start);
        // A gap belongs to no process. If a process has only gaps left, the stream does not switch
        // to it.
        let is_gap = |placed: &Placed| matches!(placed.event, Event::Gap { .. });
        let is_silent = rows.is_empty() && from.hits.is_empty() && !from.asks;
        let idle = is_silent && from.events[..count].iter().all(is_gap);
        let first = match (from.events[..count].first(), segment) {
            (Some(event), _) => (!idle).then_some(event.thread),
            (None, Some(segment)) if !rows.is_empty() => Some(segment.thread),
            // A request for the contents of the TLBs concerns the space of the process, which has
            // one thread.
            (None, _) if from.asks => Some(0),
            (None, _) => from.hits.first().map(|hits| hits.thread),
        };
        if let Some(first) = first {
            let first = thread(first);
            if std::mem::replace(last, process) != process {
                *switches += 1;
                to.switches.push((base, RECORDED));
                let event = Event::Process { number: process };
                to.events.push(Placed { at: base, thread: first, event });
            }
            enter(to, base, first, *space);
        }
        for Placed { at, thread: own, event } in from.events.drain(..count) {
            let (at, number) = (base + at.saturating_sub(rows.start), thread(own));
            // The mappings of a shared space were reported by the parent already.
            if *shared && matches!(event, Event::Mapping { .. }) {
                continue;
            }
            if *shared && matches!(event, Event::Execve { result: 0, .. }) {
                (*space, *shared) = (process, false);
                enter(to, at, number, *space);
            }
            to.events.push(Placed { at, thread: number, event });
        }
        let after = from.segments.iter().skip(1).map(|segment| segment.start);
        let ends = after.chain([from.len() as u32]);
        for (segment, until) in from.segments.iter().zip(ends) {
            if until <= rows.start || segment.start >= rows.end {
                continue;
            }
            let start = base + segment.start.max(rows.start) - rows.start;
            let thread = thread(segment.thread);
            if to.segments.last().is_none_or(|last| last.thread != thread) {
                to.segments.push(Segment { start, thread });
            }
        }
        to.hits.extend(from.hits.drain(..).map(|hits| Hits {
            at: base + hits.at.saturating_sub(rows.start),
            thread: thread(hits.thread),
            ..hits
        }));
        to.passed.extend(
            from.passed.drain(..).map(|(at, count)| (base + at.saturating_sub(rows.start), count)),
        );
        to.asks |= std::mem::take(&mut from.asks);
        let is_whole = rows.len() == from.len();
        let rows = rows.start as usize..rows.end as usize;
        if base == 0 && is_whole {
            std::mem::swap(&mut to.addr, &mut from.addr);
            std::mem::swap(&mut to.meta, &mut from.meta);
            std::mem::swap(&mut to.paddr, &mut from.paddr);
            return;
        }
        if rows.is_empty() {
            return;
        }
        to.addr.extend_from_slice(&from.addr[rows.clone()]);
        to.meta.extend_from_slice(&from.meta[rows.clone()]);
        if !from.paddr.is_empty() || !to.paddr.is_empty() {
            to.paddr.resize(base as usize, 0);
            to.paddr.extend_from_slice(from.paddr.get(rows).unwrap_or_default());
            to.paddr.resize(to.addr.len(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a recorder asks for the contents of the TLBs, the answer is for the space in which its process
    /// runs, even if it has no rows.
    #[test]
    fn a_process_that_asks_goes_on() {
        let mut family = Family::default();
        for number in 0..2 {
            family.begin(&Process {
                number,
                pid: number,
                parent: None,
                parent_accesses: None,
                shares_space: false,
                began_ns: 0,
                programs: Vec::new(),
                accesses: 0,
                instructions: 0,
            });
        }
        let mut batch = Batch::default();
        let mut ends = Batch::default();
        ends.push_event(0, Event::Gap { accesses: 0, instructions: 1 });
        family.append(1, &mut ends, 0..0, 1, &mut batch);
        assert!(!batch.asks && family.switches() == 0);
        family.append(1, &mut Batch { asks: true, ..Batch::default() }, 0..0, 0, &mut batch);
        assert!(batch.asks && family.switches() == 1);
        let events: Vec<Event> = batch.events.into_iter().map(|placed| placed.event).collect();
        let gap = Event::Gap { accesses: 0, instructions: 1 };
        let run = Event::Run { cpu: None, space: 1 };
        assert_eq!(events, [gap, Event::Process { number: 1 }, run]);
    }
}
