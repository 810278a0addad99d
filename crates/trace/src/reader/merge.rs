//! All processes of a recording, in the order of their stamps.
//!
//! ```text
//!   process 0   |--- 100 ns ---|------- 300 ns -------|          stamps at the pieces' ends
//!   process 1        |--- 200 ns ---|-- 250 ns --|
//!   merged      0 0 0 0 0 0 0 0  1 1 1 1 1 1 1 1 1  0 0 0 0 0
//! ```
//!
//! The piece that ended first comes first. Therefore the accesses of a process before it passes
//! data on by a recorded call come before the receiver's accesses to these data, since both calls
//! have stamps. The event after a piece reports the result of the call at which the piece ended.
//! The event comes with the next piece, and pieces of other processes may be in between, such as
//! those of a child between `vfork` and its return.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::chunks::Chunks;
use super::{BATCH_ACCESSES, ChunkInfo, OpenFile};
use crate::{Batch, Error, Family, Placed, Process};

/// The processes that are still being read.
#[derive(Debug)]
pub(super) struct Merge {
    streams: Vec<Stream>,
    /// For each stream: a lower bound of the time of its next piece, and the stream's index.
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
    /// The number of rows of the first batch that were given; the next field has the number of its
    /// stamps that have passed.
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
            // Of a batch that was given as a whole, events and stamps may be left.
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
    /// The time by which its next piece was done; `None` if nothing is left.
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
                // Accesses that were not published before the end come after the last stamp.
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
