use trace::{Batch, Error as TraceError, Header, Source};

use crate::{Error, Options};

/// A program that runs and is recorded, as a source of its accesses. Nothing is stored.
///
/// Only the first process is seen, until it ends or executes another program; what it starts
/// runs unrecorded.
#[derive(Debug)]
pub struct Live {
    header: Header,
}

impl Live {
    /// Starts the program.
    pub fn start(_options: &Options) -> Result<Live, Error> {
        unimplemented!()
    }

    /// Waits for the program's end and gives its exit status: 128 and the signal's number if
    /// one has ended it. Accesses that nobody took are dropped.
    pub fn finish(self) -> Result<i32, Error> {
        unimplemented!()
    }
}

impl Source for Live {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, _batch: &mut Batch) -> Result<bool, TraceError> {
        unimplemented!()
    }
}
