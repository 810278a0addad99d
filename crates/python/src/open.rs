//! From what a user calls a trace to a source of accesses.

use std::path::Path;

use trace::Source;

/// What begins a generator's parameters.
const GENERATE: &str = "generate:";

/// A source that may go to another thread.
pub(crate) type Opened = Box<dyn Source + Send>;

/// Opens the file called `trace`, or the generator if it begins with `generate:`.
pub(crate) fn open(trace: &str) -> Result<Opened, trace::Error> {
    match trace.strip_prefix(GENERATE) {
        Some(parameters) => trace::generate::parse(parameters),
        None => Ok(Box::new(trace::Reader::open(Path::new(trace))?)),
    }
}
