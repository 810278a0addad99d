//! The file of a trace while it is written: frames in order, and the index of the frames.

use std::io;
use std::path::{Path, PathBuf};

use crate::format::{
    FRAME_BYTES, FrameKind, HEAD_BYTES_MAX, IndexEntry, MAGIC, PREAMBLE_BYTES, digest, frame,
    index_body,
};
use crate::part::PartFile;
use crate::{Error, Header, Summary};

/// The file, and the state of writing so far.
#[derive(Debug)]
pub(crate) struct Output {
    file: PartFile,
    /// Magic, version and HEAD frame.
    before: Vec<u8>,
    entries: Vec<IndexEntry>,
    bytes: u64,
    accesses: u64,
    instructions: u64,
    chunks: u64,
    /// Whether the file is kept if writing fails.
    stays: bool,
}

impl Output {
    /// Begins a file of `version`. If `stays`, the file is kept if writing fails.
    pub(crate) fn create(
        path: &Path,
        header: &Header,
        version: u32,
        overwrite: bool,
        stays: bool,
    ) -> Result<Output, Error> {
        let json = body_of(header, "the header")?;
        let mut before = Vec::with_capacity(PREAMBLE_BYTES + FRAME_BYTES + json.len());
        before.extend_from_slice(&MAGIC);
        before.extend_from_slice(&version.to_le_bytes());
        before.extend_from_slice(&frame(FrameKind::Head, &json));
        before.extend_from_slice(&json);
        let mut file = PartFile::create(path, overwrite)?;
        file.write(&before)?;
        Ok(Output {
            bytes: before.len() as u64,
            file,
            before,
            entries: Vec::new(),
            accesses: 0,
            instructions: 0,
            chunks: 0,
            stays,
        })
    }

    /// Adds a frame with the index entry `entry`, whose length and CRC are filled in here.
    pub(crate) fn add(
        &mut self,
        kind: FrameKind,
        body: &[u8],
        entry: IndexEntry,
    ) -> Result<(), Error> {
        let crc = self.write(kind, body)?;
        let bytes = (FRAME_BYTES + body.len()) as u32;
        self.entries.push(IndexEntry { bytes, crc, ..entry });
        self.accesses += u64::from(entry.accesses);
        self.instructions += entry.instructions;
        self.chunks += u64::from(kind == FrameKind::Chunk);
        Ok(())
    }

    /// Keeps the unfinished file under its temporary name, which is returned.
    pub(crate) fn keep(&mut self) -> Option<PathBuf> {
        self.file.keep()
    }

    /// The number of bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// `error` as an error about this file.
    pub(crate) fn error(&self, error: io::Error) -> Error {
        self.file.error(error)
    }

    /// Writes the index and renames the file to its name.
    pub(crate) fn finish(&mut self) -> Result<Summary, Error> {
        let Some(index) = index_body(&self.entries) else {
            return Err(self.error(io::Error::other("it has more chunks than an index holds")));
        };
        let offset = self.bytes;
        self.write(FrameKind::Index, &index)?;
        self.write(FrameKind::Tail, &offset.to_le_bytes())?;
        self.file.finish().map_err(|error| self.left(error))?;
        Ok(Summary {
            path: self.file.path().to_owned(),
            bytes: self.bytes,
            accesses: self.accesses,
            instructions: self.instructions,
            chunks: self.chunks,
            digest: digest(&self.before, &self.entries),
        })
    }

    /// Writes a frame; returns its CRC.
    fn write(&mut self, kind: FrameKind, body: &[u8]) -> Result<u32, Error> {
        let head = frame(kind, body);
        let written = self.file.write(&head).and_then(|()| self.file.write(body));
        written.map_err(|error| self.left(error))?;
        self.bytes += (head.len() + body.len()) as u64;
        Ok(u32::from_le_bytes([head[8], head[9], head[10], head[11]]))
    }

    /// Adds the name of the file that is kept, if there is one, to `error`.
    fn left(&mut self, error: Error) -> Error {
        match (error, self.stays.then(|| self.file.keep()).flatten()) {
            (Error::Io { path, error }, Some(part)) => {
                let what = format!(
                    "{error}; the trace up to there is in {}, which can be read with --keep-going",
                    part.display()
                );
                Error::Io { path, error: io::Error::new(error.kind(), what) }
            }
            (error, _) => error,
        }
    }
}

/// `what` as JSON, if it fits into a HEAD or PROC frame.
pub(crate) fn body_of(what: &impl serde::Serialize, name: &str) -> Result<Vec<u8>, Error> {
    let json = serde_json::to_vec(what)
        .map_err(|error| Error::Parameters(format!("{name} cannot be stored: {error}")))?;
    if json.len() > HEAD_BYTES_MAX {
        let bytes = json.len();
        let text = format!("{name} has {bytes} bytes, but at most {HEAD_BYTES_MAX} can be stored");
        return Err(Error::Parameters(text));
    }
    Ok(json)
}
