//! A trace out of a file.
//!
//! ```text
//!   FILE.pwt --chunk--> Decoder --batches--> next()            one processor
//!
//!   FILE.pwt --chunk--> Decoder --queue of batches--> next()   two: decoding runs ahead
//!                          \<------used batches------/
//! ```

mod ahead;
mod chunks;
mod open;

use std::ops::Range;
use std::path::Path;
use std::thread::available_parallelism;

use crate::{Batch, Error, Header, Source, Stored};
use ahead::Ahead;
use chunks::Chunks;

/// Accesses of a batch, about.
const BATCH_ACCESSES: usize = 1 << 16;

/// What is known of a chunk without reading it.
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
    /// The CRC-32 of its frame.
    pub crc: u32,
}

/// A stored trace.
///
/// Holding one proves that the file has a header and an index, or that one could be made; a
/// chunk that is damaged is found when it is read.
#[derive(Debug)]
pub struct Reader {
    header: Header,
    chunks: Vec<ChunkInfo>,
    bytes: u64,
    cut_at: Option<u64>,
    digest: String,
    range: Range<u64>,
    decoding: Decoding,
}

#[derive(Debug)]
enum Decoding {
    /// Nothing has been asked for.
    Waiting(Box<Chunks>),
    /// In place, for want of a second processor.
    Here(Box<Chunks>),
    /// In a thread of its own.
    Ahead(Ahead),
    /// All has been given, or an error.
    Over,
}

impl Reader {
    /// Opens `path`, reads its header and its index, or rebuilds the index if it is missing;
    /// the header's notes then say so.
    pub fn open(path: &Path) -> Result<Reader, Error> {
        open::open(path)
    }

    /// From now on gives only the accesses `range`, starting with its first, and the events
    /// that come before one of them; events after the trace's last access belong to the range
    /// that ends there.
    pub fn range(mut self, range: Range<u64>) -> Result<Reader, Error> {
        let accesses = self.accesses();
        if range.start > range.end || range.end > accesses {
            return Err(Error::Parameters(format!(
                "accesses {} to {} were asked for; the trace has {accesses}",
                range.start, range.end
            )));
        }
        let Decoding::Waiting(chunks) = self.decoding else {
            return Err(Error::Parameters(
                "a range can only be chosen before the first batch is read".to_owned(),
            ));
        };
        let chunks = chunks.limited_to(range.clone(), &self.chunks);
        self.range = range;
        self.decoding = Decoding::Waiting(Box::new(chunks));
        Ok(self)
    }

    /// The chunks of the file, in order.
    pub fn chunks(&self) -> &[ChunkInfo] {
        &self.chunks
    }

    /// Accesses in the file.
    pub fn accesses(&self) -> u64 {
        self.chunks.last().map_or(0, |chunk| chunk.first + u64::from(chunk.accesses))
    }

    /// The length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where the last whole chunk ends, if the file was cut behind it.
    pub fn cut_at(&self) -> Option<u64> {
        self.cut_at
    }

    /// Decodes in the caller's thread even if there is a second processor.
    pub fn in_place(mut self) -> Reader {
        self.decoding = match self.decoding {
            Decoding::Waiting(chunks) => Decoding::Here(chunks),
            begun => begun,
        };
        self
    }
}

impl Source for Reader {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        if let Decoding::Waiting(_) = self.decoding
            && let Decoding::Waiting(chunks) = std::mem::replace(&mut self.decoding, Decoding::Over)
        {
            let processors = available_parallelism().map_or(1, |processors| processors.get());
            self.decoding = match processors {
                1 => Decoding::Here(chunks),
                _ => Decoding::Ahead(Ahead::start(*chunks)?),
            };
        }
        let given = match &mut self.decoding {
            Decoding::Here(chunks) => chunks.next(batch),
            Decoding::Ahead(ahead) => ahead.next(batch),
            Decoding::Waiting(_) | Decoding::Over => {
                batch.clear();
                return Ok(false);
            }
        };
        if !matches!(given, Ok(true)) {
            self.decoding = Decoding::Over;
        }
        given
    }

    fn total(&self) -> Option<u64> {
        Some(self.range.end - self.range.start)
    }

    fn stored(&self) -> Option<Stored> {
        Some(Stored { bytes: self.bytes, chunks: self.chunks.len() as u64 })
    }

    fn digest(&self) -> Option<String> {
        Some(self.digest.clone())
    }
}
