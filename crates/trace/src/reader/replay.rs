//! Converts a stored trace back to the form in which its recorder wrote it: shapes, and words for
//! the blocks that ran.
//!
//! ```text
//!   chunk    [0: fetch load]  0  0 ...     codes, residual
//!                |
//!   shape    block 0              words   fixed 0, 1 | a | fixed 0, 1 | b | ...
//! ```
//!
//! This code is used to measure and check encoding without the recorded program. Threads, events
//! and stamps are omitted: everything is attributed to one thread.

use std::path::Path;

use rustc_hash::FxHashMap;

use super::chunks::Chunks;
use super::{ChunkInfo, Reader};
use crate::words::{WORD_COUNT_SHIFT, WORD_FIXED, WORD_SHIFT};
use crate::{Error, Shape};

/// The largest number of operations of a fixed block, limited by the bits of its word.
const SAID_MAX: usize = u8::MAX as usize;

/// The blocks of one process of a stored trace, chunk by chunk.
#[derive(Debug)]
pub struct Replay {
    chunks: Chunks,
    known: FxHashMap<Shape, usize>,
    shapes: Vec<Shape>,
}

impl Replay {
    /// The blocks of process `number` of the trace at `path`.
    pub fn open(path: &Path, number: u32) -> Result<Replay, Error> {
        let reader = Reader::open(path)?;
        let mine = |chunk: &&ChunkInfo| chunk.process == number;
        let chunks: Vec<ChunkInfo> = reader.chunks.iter().filter(mine).copied().collect();
        let chunks = Chunks::new(&reader.file, &chunks)?;
        Ok(Replay { chunks, known: FxHashMap::default(), shapes: Vec::new() })
    }

    /// The shapes of all blocks so far, by the number of the block.
    pub fn shapes(&self) -> &[Shape] {
        &self.shapes
    }

    /// Replaces the contents of `words` by the words of the next chunk's blocks (see
    /// [`crate::WORD_SHIFT`]). Returns false after the last chunk. Blocks with more operations than
    /// a word can count are omitted.
    pub fn next(&mut self, words: &mut Vec<u64>) -> Result<bool, Error> {
        words.clear();
        let Some(decoder) = self.chunks.next_decoder()? else { return Ok(false) };
        let (known, shapes) = (&mut self.known, &mut self.shapes);
        let mut number = |shape: Shape| {
            *known.entry(shape).or_insert_with_key(|shape| {
                shapes.push(shape.clone());
                shapes.len() - 1
            })
        };
        let numbers: Vec<usize> = decoder.shapes().map(&mut number).collect();
        let executed = decoder.executions(|local, said| {
            if said.len() <= SAID_MAX {
                let count = (said.len() as u64) << WORD_COUNT_SHIFT;
                words.push(count | (numbers[local] as u64) << WORD_SHIFT | u64::from(WORD_FIXED));
                words.extend_from_slice(said);
            }
        });
        match executed {
            Ok(()) => Ok(true),
            Err(damage) => Err(self.chunks.damage(&damage)),
        }
    }
}
