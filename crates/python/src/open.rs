//! From what a user calls a trace to a source of accesses.

use trace::{
    Source,
    import::{Format, Options},
};

/// A source that may go to another thread.
pub(crate) type Opened = Box<dyn Source + Send>;

/// Opens the file called `trace`, or the generator if it begins with `generate:`.
///
/// A file called `.pwt` is held to be one, so that a damaged one is told from other formats.
pub(crate) fn open(trace: &str) -> Result<Opened, trace::Error> {
    if trace == "-" {
        let what = "a trace is read more than once, so it cannot be standard input: name a file";
        return Err(trace::Error::Parameters(what.to_owned()));
    }
    let format = trace.ends_with(".pwt").then_some(Format::Pagewalk);
    trace::open(trace, &Options { format, ..Options::default() })
}
