use std::path::{Path, PathBuf};

use crate::{Error, Event, Header, Shape, ShapeId, Sink};

/// How a trace is written.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether an existing file of that name may be replaced.
    pub overwrite: bool,
    /// The level of zstd: 1 to 19, or negative for faster and larger.
    pub level: i32,
    /// Accesses of a chunk, about.
    pub chunk_accesses: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { overwrite: false, level: 1, chunk_accesses: 1 << 20 }
    }
}

/// What has been written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The finished file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// Accesses in it.
    pub accesses: u64,
    /// Instructions in it.
    pub instructions: u64,
    /// Chunks in it.
    pub chunks: u64,
    /// The digest of the contents, 64 hexadecimal digits.
    pub digest: String,
}

/// A [`Sink`] that encodes into a file.
///
/// It writes `NAME.part` beside the file and renames it when all is there. Dropped before, it
/// removes the part; killed before, it leaves it, and [`crate::Reader`] opens what is whole.
#[derive(Debug)]
pub struct Writer {}

impl Writer {
    /// Starts a trace at `path`; refuses if it exists, unless `options` allow to replace it.
    pub fn create(_path: &Path, _header: Header, _options: Options) -> Result<Writer, Error> {
        unimplemented!()
    }

    /// Writes what is left and the index, and gives the file its name.
    pub fn finish(self) -> Result<Summary, Error> {
        unimplemented!()
    }

    /// Accesses so far.
    pub fn accesses(&self) -> u64 {
        unimplemented!()
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        unimplemented!()
    }
}

impl Sink for Writer {
    fn shape(&mut self, _shape: &Shape) -> ShapeId {
        unimplemented!()
    }

    fn thread(&mut self, _thread: u32) {
        unimplemented!()
    }

    fn execute(&mut self, _shape: ShapeId, _addrs: &[u64]) -> Result<(), Error> {
        unimplemented!()
    }

    fn execute_physical(
        &mut self,
        _shape: ShapeId,
        _addrs: &[u64],
        _paddrs: &[u64],
    ) -> Result<(), Error> {
        unimplemented!()
    }

    fn advance(&mut self, _instructions: u64) {
        unimplemented!()
    }

    fn event(&mut self, _thread: u32, _event: Event) -> Result<(), Error> {
        unimplemented!()
    }
}
