//! All processes of a recording, in the order of their stamps.
//!
//! ```text
//!   process 0   |--- 100 ns ---|------- 300 ns -------|          stamps at the pieces' ends
//!   process 1        |--- 200 ns ---|-- 250 ns --|
//!   merged      0 0 0 0 0 0 0 0  1 1 1 1 1 1 1 1 1  0 0 0 0 0
//! ```
//!
//! The piece that was done first comes first. So what a process did before it handed something over
//! by a recorded call comes before what the taker did with it, as both calls have stamps.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rustc_hash::FxHashMap;

use super::chunks::Chunks;
use super::{BATCH_ACCESSES, ChunkInfo, OpenFile};
use crate::{Batch, Error, Event, Placed, Process, Segment};

/// The processes that are still to be read.
#[derive(Debug)]
pub(super) struct Merge {
    streams: Vec<Stream>,
    /// The time of each stream's next piece, or a time before it, and the stream.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    spaces: Spaces,
    /// The number of each thread of each process.
    threads: FxHashMap<(usize, u32), u32>,
    /// Accesses given.
    given: u64,
    /// The space of what was given last.
    space: u32,
}

/// A process that is being read.
#[derive(Debug)]
struct Stream {
    /// What is not read yet.
    chunks: Option<Chunks>,
    batches: VecDeque<Batch>,
    /// Rows of the first batch that were given, and stamps of it that are over.
    at: u32,
    stamps: usize,
    /// The last stamp that was given.
    ns: u64,
}

/// Which process runs in which space.
#[derive(Debug)]
struct Spaces(Vec<(u32, bool)>);

impl Spaces {
    fn new(processes: &[Process]) -> Spaces {
        let mut spaces: Vec<(u32, bool)> = Vec::with_capacity(processes.len());
        for process in processes {
            let shared = process.parent.filter(|_| process.shares_space);
            let space = shared.and_then(|parent| spaces.get(parent as usize));
            spaces.push((space.map_or(process.number, |space| space.0), space.is_some()));
        }
        Spaces(spaces)
    }
}

impl Merge {
    /// Begins to read all of `processes`.
    pub(super) fn new(
        file: &OpenFile,
        processes: &[Process],
        chunks: &[ChunkInfo],
    ) -> Result<Merge, Error> {
        let mut own: Vec<Vec<ChunkInfo>> = vec![Vec::new(); processes.len()];
        for chunk in chunks {
            own[chunk.process as usize].push(*chunk);
        }
        let streams = own.iter().zip(processes).map(|(own, process)| {
            Ok(Stream {
                chunks: Some(Chunks::new(file, own)?),
                batches: VecDeque::new(),
                at: 0,
                stamps: 0,
                ns: process.began_ns,
            })
        });
        let streams = streams.collect::<Result<Vec<_>, Error>>()?;
        let began = |(index, process): (usize, &Process)| Reverse((process.began_ns, index));
        Ok(Merge {
            streams,
            next: processes.iter().enumerate().map(began).collect(),
            spaces: Spaces::new(processes),
            threads: FxHashMap::default(),
            given: 0,
            space: 0,
        })
    }

    /// Replaces `batch` with the next accesses; false after the last.
    pub(super) fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        batch.first = self.given;
        while batch.len() < BATCH_ACCESSES
            && let Some(Reverse((_, index))) = self.next.pop()
        {
            let Some(ns) = self.streams[index].next_ns()? else { continue };
            if let Some(&Reverse(other)) = self.next.peek()
                && other < (ns, index)
            {
                self.next.push(Reverse((ns, index)));
                continue;
            }
            self.take(index, batch);
            let ns = self.streams[index].ns;
            self.next.push(Reverse((ns, index)));
        }
        self.given += batch.len() as u64;
        Ok(!batch.is_empty())
    }

    /// Appends the next piece of a stream.
    fn take(&mut self, index: usize, to: &mut Batch) {
        let stream = &mut self.streams[index];
        let Some(from) = stream.batches.front_mut() else { return };
        let start = stream.at;
        let stamp = from.stamps.get(stream.stamps).copied();
        let end = stamp.map_or(from.len() as u32, |stamp| stamp.at);
        let base = to.len() as u32;
        let mut thread = |own: u32| {
            let next = self.threads.len() as u32;
            *self.threads.entry((index, own)).or_insert(next)
        };
        let here = &mut self.space;
        let mut enter = |to: &mut Batch, at: u32, thread: u32, space: u32| {
            if std::mem::replace(here, space) != space {
                to.events.push(Placed { at, thread, event: Event::Run { cpu: 0, space } });
            }
        };
        let (space, shared) = &mut self.spaces.0[index];
        let count = from.events.iter().take_while(|event| event.at <= end).count();
        let segment = from.segments.iter().rev().find(|segment| segment.start <= start);
        let first = match (from.events[..count].first(), segment) {
            (Some(event), _) => Some(event.thread),
            (None, Some(segment)) if end > start => Some(segment.thread),
            _ => None,
        };
        if let Some(first) = first {
            enter(to, base, thread(first), *space);
        }
        for Placed { at, thread: own, event } in from.events.drain(..count) {
            let (at, number) = (base + at - start, thread(own));
            match &event {
                // They are its parent's, which are known.
                Event::Mapping { .. } if *shared => continue,
                Event::Execve { result: 0, .. } if *shared => {
                    (*space, *shared) = (index as u32, false);
                    enter(to, at, number, *space);
                }
                _ => {}
            }
            to.events.push(Placed { at, thread: number, event });
        }
        let rows = start as usize..end as usize;
        to.addr.extend_from_slice(&from.addr[rows.clone()]);
        to.meta.extend_from_slice(&from.meta[rows.clone()]);
        let after = from.segments.iter().skip(1).map(|segment| segment.start);
        let ends = after.chain([from.len() as u32]);
        for (segment, until) in from.segments.iter().zip(ends) {
            if until <= start || segment.start >= end {
                continue;
            }
            let (at, number) = (base + segment.start.max(start) - start, thread(segment.thread));
            if to.segments.last().is_none_or(|last| last.thread != number) {
                to.segments.push(Segment { start: at, thread: number });
            }
        }
        if !from.paddr.is_empty() || !to.paddr.is_empty() {
            to.paddr.resize(base as usize, 0);
            to.paddr.extend_from_slice(from.paddr.get(rows).unwrap_or_default());
            to.paddr.resize(to.addr.len(), 0);
        }
        if let Some(stamp) = stamp {
            stream.ns = stamp.ns;
            stream.stamps += 1;
            stream.at = end;
        } else {
            stream.batches.pop_front();
            (stream.at, stream.stamps) = (0, 0);
        }
    }
}

impl Stream {
    /// When its next piece was done; `None` when nothing is left.
    fn next_ns(&mut self) -> Result<Option<u64>, Error> {
        loop {
            let mut stamps = self.stamps;
            for batch in &self.batches {
                if let Some(stamp) = batch.stamps.get(stamps) {
                    return Ok(Some(stamp.ns));
                }
                stamps = 0;
            }
            let Some(chunks) = &mut self.chunks else {
                // What was not published before the end comes after the last stamp.
                return Ok((!self.batches.is_empty()).then_some(self.ns));
            };
            let mut batch = Batch::default();
            if !chunks.next(&mut batch)? {
                self.chunks = None;
            }
            if !(batch.is_empty() && batch.events.is_empty() && batch.stamps.is_empty()) {
                self.batches.push_back(batch);
            }
        }
    }
}
