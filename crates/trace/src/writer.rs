//! Writes a trace to a file.
//!
//! ```text
//!   Sink calls --> Encoder --full chunk--> NAME.part --finish--> NAME
//! ```
//!
//! The file gets its final name only when all of it has been written and synced to disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::format::{Closed, Compressor, Encoder, FrameKind, IndexEntry, Owner, Recorded, VERSION};
use crate::output::Output;
use crate::shape::Rows;
use crate::{Error, Event, Header, Shape, ShapeId, Sink, Taken};

/// Options for writing a trace.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether an existing file with that name may be replaced.
    pub overwrite: bool,
    /// The level of zstd, -7 to 19: higher levels give smaller files and take longer. At -7 recorded programs
    /// take 0.05 to 0.25 bytes per access. At 1 files are two fifths smaller; writing takes 0.3 ns per access
    /// more, and reading 0.1 ns. Below 0, streams that shrink little get faster settings.
    pub level: i32,
    /// The approximate number of accesses per chunk, at most 2 Mi. A recorder that is killed may
    /// lose one chunk, and reading a range begins at a chunk. 256 Ki makes files 10 to 50 % larger.
    pub chunk_accesses: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { overwrite: false, level: -7, chunk_accesses: 1 << 20 }
    }
}

/// A summary of the written file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The finished file.
    pub path: PathBuf,
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The number of accesses.
    pub accesses: u64,
    /// The number of instructions that the accesses count.
    pub instructions: u64,
    /// The number of chunks.
    pub chunks: u64,
    /// The digest of the contents, 64 hexadecimal digits.
    pub digest: String,
}

/// A [`Sink`] that encodes into a file: a trace, or a process of a [`crate::Recording`].
///
/// It writes `NAME.part`, and renames this file when it is complete. If the writer is dropped
/// before that, it removes the file. If the process is killed, the file remains, and
/// [`crate::Reader`] can read its complete chunks.
#[derive(Debug)]
pub struct Writer {
    output: Arc<Mutex<Output>>,
    encoder: Encoder,
    compressor: Zstd,
    body: Vec<u8>,
    accesses: u64,
    instructions: u64,
    refused: Option<Error>,
}

impl Writer {
    /// Starts a trace at `path`. If the file exists, this is an error, unless `options` allow
    /// replacing it.
    pub fn create(path: &Path, header: Header, options: Options) -> Result<Writer, Error> {
        let output = Output::create(path, &header, VERSION, options.overwrite, false)?;
        Writer::new(Arc::new(Mutex::new(output)), &options)
    }

    /// A writer of process `number` of a recording; the process begins at the time `ns`.
    pub(crate) fn of_process(
        output: Arc<Mutex<Output>>,
        options: &Options,
        number: u32,
        ns: u64,
    ) -> Result<Writer, Error> {
        let mut writer = Writer::new(output, options)?;
        writer.encoder.own(number, ns);
        Ok(writer)
    }

    fn new(output: Arc<Mutex<Output>>, options: &Options) -> Result<Writer, Error> {
        let compressor =
            Compressor::new(options.level).map_err(|error| lock(&output).error(error))?;
        Ok(Writer {
            output,
            encoder: Encoder::new(options.chunk_accesses),
            compressor: Zstd(compressor),
            body: Vec::new(),
            accesses: 0,
            instructions: 0,
            refused: None,
        })
    }

    /// Writes the buffered rows and the index, and renames the file to its final name.
    pub fn finish(mut self) -> Result<Summary, Error> {
        self.end()?;
        lock(&self.output).finish()
    }

    /// Writes the buffered rows of a process, after which nothing may be added.
    pub fn end(&mut self) -> Result<(), Error> {
        self.check()?;
        self.encoder.finish()?;
        self.close_chunk()
    }

    /// The number of bytes in the file so far.
    pub fn bytes(&self) -> u64 {
        lock(&self.output).bytes()
    }

    /// Defines a group of rows that is not a basic block.
    pub(crate) fn rows(&mut self, rows: Rows) -> ShapeId {
        self.encoder.shape(rows)
    }

    /// The number of defined shapes.
    pub(crate) fn shapes(&self) -> usize {
        self.encoder.shapes()
    }

    /// Removes all defined shapes, with the memory that they take.
    pub(crate) fn forget_shapes(&mut self) -> Result<(), Error> {
        self.close_chunk()?;
        self.encoder.forget_shapes();
        Ok(())
    }

    fn check(&mut self) -> Result<(), Error> {
        self.refused.take().map_or(Ok(()), Err)
    }

    #[cold]
    fn close_chunk(&mut self) -> Result<(), Error> {
        if self.encoder.is_empty() {
            return Ok(());
        }
        let mut body = std::mem::take(&mut self.body);
        let Closed { head, accesses_crc, events_crc } = self
            .encoder
            .close(self.accesses, &mut self.compressor.0, &mut body)
            .map_err(|error| lock(&self.output).error(error))?;
        let recorded = head.owner.map(|Owner { process, began_ns, .. }| Recorded {
            is_process: false,
            process,
            began_ns,
            accesses_crc,
            events_crc,
        });
        let entry = IndexEntry {
            accesses: head.accesses,
            events: head.events,
            instructions: head.instructions,
            recorded,
            ..IndexEntry::default()
        };
        lock(&self.output).add(FrameKind::Chunk, &body, entry)?;
        self.accesses += u64::from(head.accesses);
        self.instructions += head.instructions;
        self.body = body;
        Ok(())
    }
}

/// The output, locked for this thread.
pub(crate) fn lock(output: &Mutex<Output>) -> MutexGuard<'_, Output> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for Writer {
    fn shape(&mut self, shape: &Shape) -> ShapeId {
        match shape.check() {
            Ok(()) => {
                let mut rows = Rows::from(shape);
                // Only the version of recordings has links.
                if self.encoder.head().owner.is_none() {
                    rows.links = None;
                }
                self.encoder.shape(rows)
            }
            Err(error) => {
                self.refused.get_or_insert(error);
                ShapeId(u32::MAX)
            }
        }
    }

    #[inline]
    fn thread(&mut self, thread: u32) {
        self.encoder.thread(thread);
    }

    #[inline]
    fn execute(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error> {
        if let Err(error) = self.encoder.execute(shape, addrs) {
            return Err(self.refused.take().unwrap_or(error));
        }
        if self.encoder.is_full() { self.close_chunk() } else { Ok(()) }
    }

    fn usual(&mut self, number: usize, shape: ShapeId, tags: &[u16]) {
        self.encoder.usual(number, shape, tags);
    }

    fn execute_words(&mut self, words: &[u64]) -> Result<Taken, Error> {
        let before = self.accesses();
        let mut taken = 0;
        loop {
            taken += self.encoder.execute_words(&words[taken..]);
            match self.encoder.execute_first(&words[taken..])? {
                0 => break,
                more => taken += more,
            }
            if self.encoder.is_full() {
                self.close_chunk()?;
            }
        }
        Ok(Taken { words: taken, accesses: self.accesses() - before })
    }

    fn execute_physical(
        &mut self,
        shape: ShapeId,
        addrs: &[u64],
        paddrs: &[u64],
    ) -> Result<(), Error> {
        self.check()?;
        self.encoder.execute_physical(shape, addrs, paddrs)?;
        if self.encoder.is_full() { self.close_chunk() } else { Ok(()) }
    }

    fn advance(&mut self, instructions: u64) {
        self.encoder.advance(instructions);
    }

    fn begin_program(&mut self) {
        self.encoder.begin_program();
    }

    fn accesses(&self) -> u64 {
        self.accesses + u64::from(self.encoder.head().accesses)
    }

    fn instructions(&self) -> u64 {
        self.instructions + self.encoder.head().instructions
    }

    fn stamp(&mut self, ns: u64) {
        self.encoder.stamp(ns);
    }

    fn event(&mut self, thread: u32, event: Event) -> Result<(), Error> {
        self.check()?;
        self.encoder.event(thread, &event)?;
        if self.encoder.is_full() { self.close_chunk() } else { Ok(()) }
    }
}

struct Zstd(Compressor);

impl std::fmt::Debug for Zstd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Zstd")
    }
}
