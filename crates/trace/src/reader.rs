use std::{ops::Range, path::Path};

use crate::{Batch, Error, Header, Source};

/// What the index says about a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkInfo {
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u32,
    /// Index in the trace of its first access.
    pub first: u64,
    /// Accesses in it.
    pub accesses: u32,
    /// Instructions that its rows count.
    pub instructions: u64,
    /// Events in it.
    pub events: u32,
}

/// A stored trace.
#[derive(Debug)]
pub struct Reader {}

impl Reader {
    /// Opens `path`, reads its header and its index, or rebuilds the index if it is missing.
    pub fn open(_path: &Path) -> Result<Reader, Error> {
        unimplemented!()
    }

    /// From now on gives only the accesses `range`, starting with its first, and the events
    /// that come before one of them; those after the last access belong to its end.
    pub fn range(self, _range: Range<u64>) -> Result<Reader, Error> {
        unimplemented!()
    }

    /// The chunks, in order.
    pub fn chunks(&self) -> &[ChunkInfo] {
        unimplemented!()
    }

    /// The length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        unimplemented!()
    }
}

impl Source for Reader {
    fn header(&self) -> &Header {
        unimplemented!()
    }

    fn next(&mut self, _batch: &mut Batch) -> Result<bool, Error> {
        unimplemented!()
    }

    fn total(&self) -> Option<u64> {
        unimplemented!()
    }

    fn digest(&self) -> Option<String> {
        unimplemented!()
    }
}
