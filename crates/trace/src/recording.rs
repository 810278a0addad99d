//! Writes several processes to one file.
//!
//! ```text
//!   Writer of process 0 --chunk--\
//!   Writer of process 1 --chunk---+--> PROC 0  CHNK 0  PROC 1  CHNK 0  CHNK 1  CHNK 0 ...
//!   Writer of process 2 --chunk--/
//! ```
//!
//! Each process has its own encoder, so that its addresses are predicted as well as in a trace of
//! one process. Each chunk belongs to one process. Chunks are in the file in the order in which
//! they became full. The accesses and events of one process can be read without the others. Stamps
//! give the order between processes ([`crate::Stamp`]).

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::format::{FrameKind, IndexEntry, Recorded, VERSIONS_RECORDING};
use crate::output::{Output, body_of};
use crate::writer::lock;
use crate::{Error, Header, Options, Process, Summary, Writer};

/// The file of a recording.
///
/// If writing fails, the part that was written is kept as `NAME.part`, and the error says so. If a
/// `Recording` is dropped before it is finished, the file is removed.
#[derive(Debug)]
pub struct Recording {
    output: Arc<Mutex<Output>>,
    options: Options,
}

impl Recording {
    /// Starts a recording at `path`. If the file exists, this is an error, unless `options` allow
    /// replacing it.
    pub fn create(path: &Path, header: &Header, options: Options) -> Result<Recording, Error> {
        let version = *VERSIONS_RECORDING.end();
        let output = Output::create(path, header, version, options.overwrite, true)?;
        Ok(Recording { output: Arc::new(Mutex::new(output)), options })
    }

    /// Begins a process. The numbers of processes must be consecutive from 0, and the number of a
    /// parent must be smaller than those of its children.
    pub fn process(&self, process: &Process) -> Result<Writer, Error> {
        self.tell(process)?;
        let output = Arc::clone(&self.output);
        Writer::of_process(output, &self.options, process.number, process.began_ns)
    }

    /// Updates the data of a process; only the last update is valid.
    pub fn tell(&self, process: &Process) -> Result<(), Error> {
        let body = body_of(process, "a process with its arguments")?;
        let recorded = Recorded {
            is_process: true,
            process: process.number,
            began_ns: process.began_ns,
            ..Recorded::default()
        };
        let entry = IndexEntry { recorded: Some(recorded), ..IndexEntry::default() };
        lock(&self.output).add(FrameKind::Process, &body, entry)
    }

    /// The number of bytes in the file so far.
    pub fn bytes(&self) -> u64 {
        lock(&self.output).bytes()
    }

    /// Keeps the written part as `NAME.part` and returns its path.
    pub fn keep(&self) -> Option<PathBuf> {
        lock(&self.output).keep()
    }

    /// Writes the index and renames the file to its name. All writers of processes must have ended.
    pub fn finish(self) -> Result<Summary, Error> {
        lock(&self.output).finish()
    }
}
