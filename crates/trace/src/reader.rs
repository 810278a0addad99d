//! Reading a trace from a file.
//!
//! ```text
//!   FILE.pwt --chunk--> Decoder --batches--> next()            one processor
//!
//!   FILE.pwt --chunk--> Decoder --queue of batches--> next()   two: decoding runs ahead
//!                          \<------used batches------/
//! ```
//!
//! A recording of several processes is read as all processes in the order of their stamps
//! ([`merge`]), or as one of them.

mod ahead;
mod chunks;
mod merge;
mod open;
mod replay;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;

use crate::format::{FRAME_BYTES, Head};
use crate::process::named;
use crate::{Batch, Error, Header, Process, Source, Stored};
use ahead::Ahead;
use chunks::Chunks;
use merge::Merge;

pub use replay::Replay;

/// The approximate number of accesses per batch.
const BATCH_ACCESSES: usize = 1 << 16;

/// Data about a chunk that the index has, so that the chunk need not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkInfo {
    /// The offset of the chunk in the file, in bytes.
    pub offset: u64,
    /// The length of the chunk in bytes.
    pub bytes: u32,
    /// The index of the chunk's first access, in the trace or, in a recording of processes, among
    /// the accesses of its process.
    pub first: u64,
    /// The number of the chunk's accesses.
    pub accesses: u32,
    /// The number of instructions that the chunk's rows count.
    pub instructions: u64,
    /// The number of the chunk's events.
    pub events: u32,
    /// The CRC-32 of the chunk's frame.
    pub crc: u32,
    /// The number of the process to which the chunk belongs; 0 in a trace that is not a recording
    /// of processes.
    pub process: u32,
    /// The time of the last stamp before the chunk; 0 in a trace that is not a recording of
    /// processes.
    pub began_ns: u64,
}

/// A stored trace.
///
/// The file has a valid header, and an index, which may have been rebuilt. A damaged chunk is
/// detected when it is read.
#[derive(Debug)]
pub struct Reader {
    header: Header,
    file: OpenFile,
    chunks: Vec<ChunkInfo>,
    processes: Vec<Process>,
    bytes: u64,
    cut_at: Option<u64>,
    digest: String,
    range: Range<u64>,
    decoding: Decoding,
}

#[derive(Debug)]
enum Decoding {
    /// No batch has been requested yet.
    Waiting(Box<Feed>),
    /// Decoded in the caller's thread, because there is no second processor.
    Here(Box<Feed>),
    /// Decoded in a thread of its own.
    Ahead(Ahead),
    /// All batches have been returned, or there was an error.
    Over,
}

/// The file of a trace.
#[derive(Clone, Debug)]
struct OpenFile {
    path: PathBuf,
    file: Arc<File>,
}

/// The source of batches.
#[derive(Debug)]
enum Feed {
    /// Chunks one after the other.
    Chunks(Box<Chunks>),
    /// The merged chunks of several processes.
    Merge(Merge),
}

impl Feed {
    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        match self {
            Feed::Chunks(chunks) => chunks.next(batch),
            Feed::Merge(merge) => merge.next(batch),
        }
    }
}

impl Reader {
    /// Opens `path`, and reads its header and its index. If the index is missing, it is rebuilt,
    /// and a note in the header says so.
    pub fn open(path: &Path) -> Result<Reader, Error> {
        open::open(path)
    }

    /// Restricts reading to the accesses in `range`, and the events before each of them. Events
    /// after the trace's last access belong to a range that ends with this access.
    pub fn range(mut self, range: Range<u64>) -> Result<Reader, Error> {
        let accesses = self.accesses();
        if range.start > range.end || range.end > accesses {
            return Err(Error::Parameters(format!(
                "accesses {} to {} were requested, but the trace has {accesses}",
                range.start, range.end
            )));
        }
        let Decoding::Waiting(feed) = self.decoding else {
            return Err(Error::Parameters(
                "a range can only be chosen before the first batch is read".to_owned(),
            ));
        };
        let Feed::Chunks(chunks) = *feed else {
            return Err(Error::Parameters(
                "a range is of one process: choose the process first".to_owned(),
            ));
        };
        let chunks = chunks.limited_to(range.clone(), &self.chunks);
        self.range = range;
        self.decoding = Decoding::Waiting(Box::new(Feed::Chunks(Box::new(chunks))));
        Ok(self)
    }

    /// A reader of only the process `number`. Its batches have the stamps of the process.
    pub fn process(&self, number: u32) -> Result<Reader, Error> {
        let Some(process) = self.processes.iter().find(|process| process.number == number) else {
            let path = self.file.path.display();
            return Err(Error::Parameters(format!(
                "{path}: the trace has no process with the number {number}"
            )));
        };
        let mine = |chunk: &&ChunkInfo| chunk.process == number;
        let chunks: Vec<ChunkInfo> = self.chunks.iter().filter(mine).copied().collect();
        let mut header = self.header.clone();
        if let Some(program) = process.programs.last() {
            (header.command, header.arch) = (program.command.clone(), program.arch);
        }
        let feed = Feed::Chunks(Box::new(Chunks::new(&self.file, &chunks)?));
        let accesses = chunks.iter().map(|chunk| u64::from(chunk.accesses)).sum();
        Ok(Reader {
            header,
            file: self.file.clone(),
            chunks,
            processes: vec![process.clone()],
            range: 0..accesses,
            decoding: Decoding::Waiting(Box::new(feed)),
            digest: self.digest.clone(),
            ..*self
        })
    }

    /// The number of the process whose process id is `wanted`, or which ran a program with the name
    /// or path `wanted`. Returns an error if there is no such process or more than one.
    pub fn called(&self, wanted: &str) -> Result<u32, Error> {
        named(&self.file.path, &self.processes, wanted)
    }

    /// The chunks of the file, in order.
    pub fn chunks(&self) -> &[ChunkInfo] {
        &self.chunks
    }

    /// Whether a chunk has something, as its head says. A chunk that cannot be read counts as having nothing.
    fn has(&self, it: impl Fn(&Head) -> bool) -> bool {
        let mut beginning = [0; Head::BYTES_MAX];
        self.chunks.iter().any(|chunk| {
            let bytes = Head::BYTES_MAX.min((chunk.bytes as usize).saturating_sub(FRAME_BYTES));
            let beginning = &mut beginning[..bytes];
            let read = self.file.file.read_exact_at(beginning, chunk.offset + FRAME_BYTES as u64);
            read.is_ok() && Head::parse(beginning).is_ok_and(|head| it(&head))
        })
    }

    /// The number of accesses in the file or, for a reader of one process, of the process.
    pub fn accesses(&self) -> u64 {
        self.chunks.iter().map(|chunk| u64::from(chunk.accesses)).sum()
    }

    /// The length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The end of the last complete chunk, if the file is truncated after it.
    pub fn cut_at(&self) -> Option<u64> {
        self.cut_at
    }

    /// Decodes in the caller's thread even if there is a second processor.
    pub fn in_place(mut self) -> Reader {
        self.decoding = match self.decoding {
            Decoding::Waiting(feed) => Decoding::Here(feed),
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
            && let Decoding::Waiting(feed) = std::mem::replace(&mut self.decoding, Decoding::Over)
        {
            let processors = available_parallelism().map_or(1, |processors| processors.get());
            self.decoding = match processors {
                1 => Decoding::Here(feed),
                _ => Decoding::Ahead(Ahead::start(*feed, &self.file.path)?),
            };
        }
        let given = match &mut self.decoding {
            Decoding::Here(feed) => feed.next(batch),
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
        let is_located = self.has(|head| head.physical || head.translations != 0);
        Some(Stored { bytes: self.bytes, chunks: self.chunks.len() as u64, is_located })
    }

    fn processes(&self) -> &[Process] {
        &self.processes
    }

    fn digest(&self) -> Option<String> {
        Some(self.digest.clone())
    }

    fn foretold(&self) -> Option<Box<dyn Source + Send>> {
        if !self.has(|head| head.translations != 0) {
            return None;
        }
        let feed = match self.processes.len() {
            2.. => Feed::Merge(Merge::new(&self.file, &self.processes, &self.chunks).ok()?),
            _ => {
                let chunks = Chunks::new(&self.file, &self.chunks).ok()?;
                let is_whole = self.range == (0..self.accesses());
                let range = self.range.clone();
                let chunks = if is_whole { chunks } else { chunks.limited_to(range, &self.chunks) };
                Feed::Chunks(Box::new(chunks))
            }
        };
        Some(Box::new(Reader {
            header: self.header.clone(),
            file: self.file.clone(),
            chunks: self.chunks.clone(),
            processes: self.processes.clone(),
            range: self.range.clone(),
            digest: self.digest.clone(),
            decoding: Decoding::Here(Box::new(feed)),
            ..*self
        }))
    }
}
