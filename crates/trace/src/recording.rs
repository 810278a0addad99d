//! Several processes into one file.
//!
//! ```text
//!   Writer of process 0 --chunk--\
//!   Writer of process 1 --chunk---+--> PROC 0  CHNK 0  PROC 1  CHNK 0  CHNK 1  CHNK 0 ...
//!   Writer of process 2 --chunk--/
//! ```
//!
//! Each process has an encoder, so that its accesses predict each other as in a trace of its own,
//! and each chunk belongs to one process. Chunks are in the file as they were full: what one
//! process did is read without the others, and stamps say who came first ([`crate::Stamp`]).

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::format::{FrameKind, IndexEntry, Recorded, VERSIONS_RECORDING};
use crate::output::{Output, body_of};
use crate::writer::lock;
use crate::{Error, Header, Options, Process, Summary, Writer};

/// The file of a recording.
///
/// Where writing fails, what was written stays as `NAME.part`, and the error says so. Dropped
/// before it is finished, it is removed.
#[derive(Debug)]
pub struct Recording {
    output: Arc<Mutex<Output>>,
    options: Options,
}

impl Recording {
    /// Starts a recording at `path`; refuses if it exists, unless `options` allow to replace it.
    pub fn create(path: &Path, header: &Header, options: Options) -> Result<Recording, Error> {
        let version = *VERSIONS_RECORDING.end();
        let output = Output::create(path, header, version, options.overwrite, true)?;
        Ok(Recording { output: Arc::new(Mutex::new(output)), options })
    }

    /// A process begins. Numbers go from 0 on without gaps, a parent's before its child's.
    pub fn process(&self, process: &Process) -> Result<Writer, Error> {
        self.tell(process)?;
        let output = Arc::clone(&self.output);
        Writer::of_process(output, &self.options, process.number, process.began_ns)
    }

    /// Something else is known of a process: what is told last counts.
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

    /// Bytes in the file so far.
    pub fn bytes(&self) -> u64 {
        lock(&self.output).bytes()
    }

    /// Leaves what was written as `NAME.part`, whose path it gives.
    pub fn keep(&self) -> Option<PathBuf> {
        lock(&self.output).keep()
    }

    /// Writes the index and gives the file its name. All writers of processes have ended.
    pub fn finish(self) -> Result<Summary, Error> {
        lock(&self.output).finish()
    }
}
