//! Free pages by chunk, with chunks ordered by their number of migratable pages (G98 section
//! 6.4.4).
//!
//! ```text
//!   migratable pages   0          3        17              4096
//!   bucket           [ c7-c2 ]  [ c4 ]   [ c0 ]   ...     [ c5 ]
//!                         ^                                  ^
//!          kernel memory comes from here      movable memory comes from here
//! ```
//!
//! Frames that cannot be moved are concentrated in few chunks, so that the other chunks can be
//! emptied by migration. The paper gives the order but not how to break ties. Here, within a
//! bucket, chunks with immovable pages are at the end. Movable pages are allocated from the first
//! chunk, and all other pages from the last chunk. Chunks without a free frame are in no bucket. A
//! chunk's count is the number of its migratable pages in use.

use alloc::{vec, vec::Vec};
use core::ops::Range;

use crate::{
    frame::{FrameId, NO_FRAME},
    lists::FreeLists,
    request::Color,
    table::FrameTable,
};

struct Chunk {
    lists: FreeLists<32>,
    free_frames: u32,
    migratable: u32,
    /// The numbers of the previous and next chunk in the bucket.
    links: [u32; 2],
}

/// The free pages of each chunk of `2^order` base frames.
pub(crate) struct Chunks {
    order: u32,
    first: u32,
    chunks: Vec<Chunk>,
    /// The first and last chunk of each bucket.
    buckets: Vec<[u32; 2]>,
    counts: [u64; 32],
}

impl Chunks {
    /// Chunks of `2^order` frames over `frames`, none free yet.
    pub(crate) fn new(frames: Range<u32>, order: u32) -> Chunks {
        let first = frames.start >> order;
        let count = if frames.is_empty() { 0 } else { ((frames.end - 1) >> order) - first + 1 };
        let empty = || Chunk {
            lists: FreeLists::new(),
            free_frames: 0,
            migratable: 0,
            links: [NO_FRAME; 2],
        };
        Chunks {
            order,
            first,
            chunks: (0..count).map(|_| empty()).collect(),
            buckets: vec![[NO_FRAME; 2]; (1 << order) + 1],
            counts: [0; 32],
        }
    }

    pub(crate) fn count(&self, order: u32) -> u64 {
        self.counts.get(order as usize).copied().unwrap_or(0)
    }

    /// The free page, with its order, from which a request should be served. Its order is one of
    /// `orders`, which ascend. `movable` is true if the request is for a movable page; it
    /// determines from which chunk the page is taken. If `color` is given, `2^wanted` frames of
    /// that colour must begin in the page.
    pub(crate) fn choose(
        &self,
        table: &FrameTable,
        movable: bool,
        orders: impl Iterator<Item = u32> + Clone,
        color: Option<Color>,
        wanted: u32,
    ) -> Option<(FrameId, u32)> {
        let from_chunk = |number: u32| {
            let lists = &self.chunks[number as usize].lists;
            orders
                .clone()
                .find_map(|order| Some((lists.choose(table, order, color, wanted)?, order)))
        };
        // For a movable page the links are followed forward, for any other page backward.
        let (end, link) = if movable { (0, 1) } else { (1, 0) };
        let search = |bucket: &[u32; 2]| {
            let mut number = bucket[end];
            while number != NO_FRAME {
                if let Some(found) = from_chunk(number) {
                    return Some(found);
                }
                number = self.chunks[number as usize].links[link];
            }
            None
        };
        if movable {
            self.buckets.iter().rev().find_map(search)
        } else {
            self.buckets.iter().find_map(search)
        }
    }

    pub(crate) fn push(&mut self, table: &mut FrameTable, block: FrameId, order: u32) {
        let number = self.number(block);
        let chunk = &mut self.chunks[number as usize];
        chunk.lists.push(table, block, order);
        chunk.free_frames += 1 << order;
        self.counts[order as usize] += 1;
        if chunk.free_frames == 1 << order {
            self.enter(number);
        }
    }

    pub(crate) fn remove(&mut self, table: &mut FrameTable, block: FrameId, order: u32) {
        let number = self.number(block);
        let chunk = &mut self.chunks[number as usize];
        chunk.lists.remove(table, block, order);
        chunk.free_frames -= 1 << order;
        self.counts[order as usize] -= 1;
        if chunk.free_frames == 0 {
            self.leave(number);
        }
    }

    pub(crate) fn migratable_changed(&mut self, frame: FrameId, change: i64) {
        let number = self.number(frame);
        let listed = self.chunks[number as usize].free_frames > 0;
        if listed {
            self.leave(number);
        }
        let chunk = &mut self.chunks[number as usize];
        chunk.migratable =
            chunk.migratable.saturating_add_signed(change as i32).min(1 << self.order);
        if listed {
            self.enter(number);
        }
    }

    fn number(&self, frame: FrameId) -> u32 {
        (frame.0 >> self.order) - self.first
    }

    /// Inserts a chunk into its bucket: at the end if it holds immovable pages, otherwise at the
    /// front.
    fn enter(&mut self, number: u32) {
        let Chunk { free_frames, migratable, .. } = self.chunks[number as usize];
        let behind = free_frames + migratable < 1 << self.order;
        let bucket = &mut self.buckets[migratable as usize];
        let (end, link) = if behind { (1, 1) } else { (0, 0) };
        let neighbour = bucket[end];
        let mut links = [NO_FRAME; 2];
        links[1 - link] = neighbour;
        bucket[end] = number;
        if neighbour == NO_FRAME {
            *bucket = [number; 2];
        } else {
            self.chunks[neighbour as usize].links[link] = number;
        }
        self.chunks[number as usize].links = links;
    }

    fn leave(&mut self, number: u32) {
        let Chunk { links: [previous, next], migratable, .. } = self.chunks[number as usize];
        let bucket = &mut self.buckets[migratable as usize];
        match previous {
            NO_FRAME => bucket[0] = next,
            _ => self.chunks[previous as usize].links[1] = next,
        }
        match next {
            NO_FRAME => bucket[1] = previous,
            _ => self.chunks[next as usize].links[0] = previous,
        }
    }
}
