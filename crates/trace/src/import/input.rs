//! A file or a pipe as a window of decompressed bytes.
//!
//! ```text
//!   offset        start            end
//!     |             |               |
//!     v   [ used    | the window    |  room  ]      fill() moves the window to the front
//!                                                   and reads behind it
//! ```

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

use super::codec::{Codec, MAGIC_BYTES, Remark};
use crate::Error;

/// The name of standard input in messages.
const STDIN: &str = "<stdin>";

/// Whether `path` is `-` (standard input), or another pipe or device that can be read only once.
pub(crate) fn is_pipe(path: &Path) -> bool {
    let is_other = |about: fs::Metadata| !about.is_file() && !about.is_dir();
    path == Path::new("-") || fs::metadata(path).is_ok_and(is_other)
}

/// The decompressed bytes of a file, accessed through a window.
pub(crate) struct Input {
    path: PathBuf,
    codec: Codec,
    reader: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    ended: bool,
    failure: Option<Error>,
    digest: Arc<Mutex<Sha256>>,
    remark: Remark,
}

impl Input {
    /// The bytes of the window of a single input.
    pub(crate) const WINDOW_BYTES: usize = 1 << 18;

    /// Opens `path`, or standard input for `-`, and recognises its compression.
    pub(crate) fn open(path: &Path, window_bytes: usize) -> Result<Input, Error> {
        if path == Path::new("-") {
            return Input::from_reader(Path::new(STDIN), Box::new(io::stdin()), window_bytes);
        }
        let io = |error| Error::Io { path: path.to_owned(), error };
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.is_dir() {
            return Err(Error::Parameters(format!(
                "{}: a folder where a file is needed",
                path.display()
            )));
        }
        Input::from_reader(path, Box::new(file), window_bytes)
    }

    /// Reads from `reader`; messages call it `path`.
    pub(crate) fn from_reader(
        path: &Path,
        mut reader: Box<dyn Read + Send>,
        window_bytes: usize,
    ) -> Result<Input, Error> {
        let io = |error| Error::Io { path: path.to_owned(), error };
        let mut magic = Vec::with_capacity(MAGIC_BYTES);
        reader.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut magic).map_err(io)?;
        let codec = Codec::sniff(&magic);
        let digest = Arc::new(Mutex::new(Sha256::new()));
        let hashing =
            Hashing { inner: io::Cursor::new(magic).chain(reader), digest: Arc::clone(&digest) };
        let remark = Remark::default();
        let reader =
            codec.decode(Box::new(hashing), window_bytes / 4, remark.clone()).map_err(io)?;
        Ok(Input {
            path: path.to_owned(),
            codec,
            reader,
            buffer: vec![0; window_bytes],
            start: 0,
            end: 0,
            offset: 0,
            ended: false,
            failure: None,
            digest,
            remark,
        })
    }

    /// The file's name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes that have been read but not consumed.
    #[inline]
    pub(crate) fn window(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Consumes `bytes` bytes at the front of the window.
    #[inline]
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
    }

    /// Whether the end of the file has been read without an error.
    pub(crate) fn ended(&self) -> bool {
        self.ended && self.failure.is_none()
    }

    /// The error that occurred after the bytes of the window; it is returned only once. The data in
    /// the window should be used before this function is called.
    pub(crate) fn failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Reads until the window is full or the file ends or fails. Returns false if nothing was read.
    pub(crate) fn fill(&mut self) -> bool {
        self.offset += self.start as u64;
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let before = self.end;
        while self.end < self.buffer.len() && !self.ended {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    self.failure = Some(self.broken(error));
                }
            }
        }
        self.end > before
    }

    /// An error about byte `at` of the window.
    #[cold]
    pub(crate) fn corrupt(&self, at: usize, what: impl Into<String>) -> Error {
        let within = if self.codec == Codec::Plain { "" } else { " of the unpacked data" };
        let offset = self.offset + (self.start + at) as u64;
        Error::Corrupt { path: self.path.clone(), offset, within, what: what.into() }
    }

    /// A warning about the file's compression, as far as it has been read.
    pub(crate) fn remark(&self) -> Option<String> {
        self.remark.get().map(|what| format!("{}: {what}", self.path.display()))
    }

    /// The SHA-256 of the file's own bytes, as far as they have been read.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let digest = match self.digest.lock() {
            Ok(digest) => digest.clone(),
            Err(poisoned) => poisoned.into_inner().clone(),
        };
        digest.finalize().into()
    }

    fn broken(&self, error: io::Error) -> Error {
        // If the data is wrong, a decoder returns an error without a system error number.
        if self.codec == Codec::Plain || error.raw_os_error().is_some() {
            return Error::Io { path: self.path.clone(), error };
        }
        self.corrupt(self.end - self.start, self.codec.broken(&error))
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("path", &self.path).field("codec", &self.codec).finish()
    }
}

/// Computes the hash of the bytes that are read.
struct Hashing<R> {
    inner: R,
    digest: Arc<Mutex<Sha256>>,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(out)?;
        if let Ok(mut digest) = self.digest.lock() {
            digest.update(&out[..read]);
        }
        Ok(read)
    }
}

/// The digest of several files, computed from their names and their digests, in order.
pub(crate) fn combined<'a>(files: impl Iterator<Item = (&'a Path, [u8; 32])>) -> String {
    let mut all = Sha256::new();
    for (path, digest) in files {
        all.update(path.file_name().unwrap_or_default().as_encoded_bytes());
        all.update([0]);
        all.update(digest);
    }
    hex(&all.finalize())
}

/// `bytes` as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
