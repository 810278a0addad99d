//! All processes of a recording, in the order of their stamps.
//!
//! ```text
//!   process 0   |--- 100 ns ---|------- 300 ns -------|          stamps at the pieces' ends
//!   process 1        |--- 200 ns ---|-- 250 ns --|
//!   merged      0 0 0 0 0 0 0 0  1 1 1 1 1 1 1 1 1  0 0 0 0 0
//! ```
//!
//! The piece that ended first comes first. Suppose that one process passes data to another by
//! recorded calls. Both calls have stamps, so the accesses of the sender before its call come
//! before the receiver's accesses to the data. The event after a piece reports the result of the
//! call at which the piece ended. The event comes with the next piece of the process. Pieces of
//! other processes may come before it, for example those of a child between `vfork` and its return.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::chunks::Chunks;
use super::{BATCH_ACCESSES, ChunkInfo, OpenFile};
use crate::{Batch, Error, Family, Placed, Process};

/// The processes that are still being read.
#[derive(Debug)]
pub(super) struct Merge {
    streams: Vec<Stream>,
    /// For each stream (process): a lower bound of the time of its next piece, and the index of the
    /// stream.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    family: Family,
    /// The number of accesses given.
    given: u64,
}

/// A process that is being read.
#[derive(Debug)]
struct Stream {
    /// The chunks not read yet.
    chunks: Option<Chunks>,
    batches: VecDeque<Batch>,
    /// The number of rows of the first batch that were returned. The next field has the number of
    /// stamps of the first batch that have been processed.
    at: u32,
    stamps: usize,
    /// The last stamp that was given.
    ns: u64,
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
        let mut family = Family::default();
        processes.iter().for_each(|process| family.begin(process));
        let began = |(index, process): (usize, &Process)| Reverse((process.began_ns, index));
        Ok(Merge {
            streams,
            next: processes.iter().enumerate().map(began).collect(),
            family,
            given: 0,
        })
    }

    /// Replaces the contents of `batch` by the next accesses; false after the last.
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
        let stamp = from.stamps.get(stream.stamps).copied();
        let end = stamp.map_or(from.len() as u32, |stamp| stamp.at);
        let is_done = stamp.is_none() || stream.at == end;
        let comes = |placed: &&Placed| {
            placed.at < end || (placed.at == end && (is_done || placed.event.is_of_the_end()))
        };
        let count = from.events.iter().take_while(comes).count();
        self.family.append(index as u32, from, stream.at..end, count, to);
        match stamp {
            // If all rows of the batch have been returned, events and stamps may remain, so the
            // batch is kept.
            Some(stamp) => {
                (stream.ns, stream.stamps, stream.at) = (stamp.ns, stream.stamps + 1, end)
            }
            None => {
                stream.batches.pop_front();
                (stream.at, stream.stamps) = (0, 0);
            }
        }
    }
}

impl Stream {
    /// The time at which the next piece of the stream ended; `None` if nothing is left.
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
                // Accesses for which the recording has no stamp at their end come after the last
                // stamp.
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
