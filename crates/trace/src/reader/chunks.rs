use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::{BATCH_ACCESSES, ChunkInfo, OpenFile};
use crate::format::{Damage, Decoder, Decompressor, FRAME_BYTES, FrameHead, FrameKind};
use crate::{Batch, Error};

/// The chunks of a file that have not been read yet, and the one that is being decoded.
pub(super) struct Chunks {
    file: OpenFile,
    /// The chunks that have not been read yet, in reverse order, so that the next chunk is the last
    /// element.
    rest: Vec<ChunkInfo>,
    part: Option<Part>,
    frame: Vec<u8>,
    decoder: Decoder,
    decompressor: Decompressor<'static>,
    offset: u64,
    opened: bool,
}

impl Chunks {
    /// A reader of all `chunks`.
    pub(super) fn new(file: &OpenFile, chunks: &[ChunkInfo]) -> Result<Chunks, Error> {
        let decompressor =
            Decompressor::new().map_err(|error| Error::Io { path: file.path.clone(), error })?;
        let chunks = Chunks {
            file: file.clone(),
            rest: chunks.iter().rev().copied().collect(),
            part: None,
            frame: Vec::new(),
            decoder: Decoder::new(),
            decompressor,
            offset: 0,
            opened: false,
        };
        Ok(chunks)
    }

    /// Restricts reading to those of `chunks` that contain accesses in `range`, or events that
    /// belong to the range.
    pub(super) fn limited_to(mut self, range: Range<u64>, chunks: &[ChunkInfo]) -> Chunks {
        let end = |chunk: &ChunkInfo| chunk.first + u64::from(chunk.accesses);
        let to_the_end = range.end == chunks.last().map_or(0, end);
        // An event that ends one chunk may come before the first access of the next.
        let wanted = |chunk: &&ChunkInfo| {
            end(chunk) >= range.start && (chunk.first < range.end || to_the_end)
        };
        self.rest = chunks.iter().filter(wanted).rev().copied().collect();
        self.part = Some(Part { range, to_the_end });
        self
    }

    /// Replaces the contents of `batch` by the next accesses; false after the last.
    pub(super) fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let (mut events, mut stamps) = (Vec::new(), Vec::new());
        loop {
            if !self.opened && !self.open()? {
                batch.clear();
                (batch.events, batch.stamps) = (events, stamps);
                return Ok(false);
            }
            self.decoder
                .fill(batch, BATCH_ACCESSES)
                .map_err(|damage| self.damaged(self.offset, &damage.0))?;
            self.opened = self.decoder.left() > 0;
            if let Some(part) = &self.part {
                part.cut(batch);
            }
            if batch.is_empty() {
                // Events of a batch without accesses come before the next access, or at the end of
                // the trace.
                events.append(&mut batch.events);
                events.iter_mut().for_each(|event| event.at = 0);
                stamps.append(&mut batch.stamps);
                stamps.iter_mut().for_each(|stamp| stamp.at = 0);
                continue;
            }
            if !stamps.is_empty() {
                stamps.append(&mut batch.stamps);
                batch.stamps = stamps;
            }
            if !events.is_empty() {
                events.append(&mut batch.events);
                batch.events = events;
            }
            return Ok(true);
        }
    }

    /// A decoder of the next chunk; `None` after the last.
    pub(super) fn next_decoder(&mut self) -> Result<Option<&mut Decoder>, Error> {
        Ok(self.open()?.then_some(&mut self.decoder))
    }

    /// An error about the chunk that was returned last.
    pub(super) fn damage(&self, damage: &Damage) -> Error {
        self.damaged(self.offset, &damage.0)
    }

    /// Reads and checks the next chunk; false if there is none.
    fn open(&mut self) -> Result<bool, Error> {
        let Some(chunk) = self.rest.pop() else { return Ok(false) };
        self.offset = chunk.offset;
        let frame = &mut self.frame;
        frame.resize(chunk.bytes as usize, 0);
        match self.file.file.read_exact_at(frame, chunk.offset) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(self.damaged(chunk.offset, "it was truncated while it was read"));
            }
            Err(error) => return Err(Error::Io { path: self.file.path.clone(), error }),
        }
        let Some((head, body)) = frame.split_first_chunk::<FRAME_BYTES>() else {
            return Err(self.damaged(chunk.offset, "it is shorter than a frame"));
        };
        let opened = FrameHead::parse(head).and_then(|head| {
            head.verify(body)?;
            if head.kind != FrameKind::Chunk || head.crc != chunk.crc {
                return Err(crate::format::Damage::new(
                    "it is not the chunk that the index lists here",
                ));
            }
            self.decoder.open(body, &mut self.decompressor)
        });
        let head = opened.map_err(|damage| self.damaged(chunk.offset, &damage.0))?;
        let (process, began_ns) = head.owner.map_or((0, 0), |it| (it.process, it.began_ns));
        if (head.first, head.accesses) != (chunk.first, chunk.accesses) {
            return Err(self.damaged(
                chunk.offset,
                "its number of accesses differs from the one in the index",
            ));
        }
        if (process, began_ns) != (chunk.process, chunk.began_ns) {
            return Err(self.damaged(chunk.offset, "its process differs from the one in the index"));
        }
        self.opened = true;
        Ok(true)
    }

    fn damaged(&self, offset: u64, what: &str) -> Error {
        Error::Corrupt {
            path: self.file.path.clone(),
            offset,
            within: "",
            what: format!(
                "a chunk of the trace cannot be read: {what}; record or copy the file again"
            ),
        }
    }
}

/// The accesses that are requested.
#[derive(Clone, Debug)]
struct Part {
    range: Range<u64>,
    /// Whether events after the last of these accesses are requested too.
    to_the_end: bool,
}

impl Part {
    /// Removes the parts of `batch` that are not requested.
    fn cut(&self, batch: &mut Batch) {
        let Range { start, end } = self.range;
        let (first, len) = (batch.first, batch.len() as u64);
        let from = start.saturating_sub(first).min(len) as u32;
        let to = (end.saturating_sub(first).min(len) as u32).max(from);
        batch.events.retain(|event| {
            let at = first + u64::from(event.at);
            start <= at && (at < end || self.to_the_end)
        });
        batch.events.iter_mut().for_each(|event| event.at -= from);
        if to - from < batch.len() as u32 {
            batch.keep(from, to);
        }
    }
}

impl fmt::Debug for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunks")
            .field("path", &self.file.path)
            .field("rest", &self.rest.len())
            .finish()
    }
}
