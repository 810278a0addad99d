//! Starts a program under QEMU and turns what the recorder plugin sends into a trace.

mod error;
mod live;
mod options;

use std::path::Path;

pub use error::Error;
pub use live::Live;
pub use options::{Options, Outcome, Progress, Recorded};

/// Records `options.command` into `output`, and its children beside it.
///
/// A child's trace is named after its process and program: `out.pwt`, `out.1234-ls.pwt`.
/// `progress` is called some times a second.
pub fn record(
    _options: &Options,
    _output: &Path,
    _writer: &trace::Options,
    _progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Error> {
    unimplemented!()
}
