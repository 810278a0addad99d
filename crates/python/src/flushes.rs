//! The check of a recorded system for flushes that its kernel has left out.

use flushes::{Code, Failure, Seed};
use machine::results::CodePlace;
use pyo3::prelude::*;
use symbols::Symbols;

use crate::{
    error::{failed, refused},
    machines::names,
    open::{Reading, open},
    progress::Progress,
};

/// Whether a trace is the complete recording of a whole system.
#[pyfunction]
pub(crate) fn trace_is_system(trace: &str, reading: &Reading) -> PyResult<bool> {
    Ok(open(trace, reading)?.is_system())
}

/// All uses of translations whose flush is overdue, and what was counted, as JSON. `leave_out` names flushes that are
/// left out on purpose.
#[pyfunction]
#[pyo3(signature = (trace, reading, leave_out, progress))]
pub(crate) fn check_flushes(
    py: Python<'_>,
    trace: &str,
    reading: &Reading,
    leave_out: Option<&str>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let seed = leave_out.map(Seed::parse).transpose().map_err(refused)?;
    py.detach(|| {
        let mut source = open(trace, reading)?;
        let total = source.total();
        let mut progress = Progress::new(progress);
        let found = flushes::check(&mut *source, seed, &mut |done| progress.report(done, total));
        let found = match found {
            Ok(found) => found,
            Err(Failure::Unfit(why)) => {
                return Err(refused(format!("{trace} cannot be checked for flushes: {why}")));
            }
            Err(Failure::Trace(error)) => return Err(progress.error_or(|| source.failed(error))),
            Err(Failure::Stopped) => {
                return Err(progress.error_or(|| failed(trace::Error::Interrupted)));
            }
        };
        let mut symbols = Symbols::new();
        let document = found.document(&mut |Code { block, instruction }, _| {
            let (image, offset) = found.place(block)?;
            let (object, identity) = (Some(image.path.clone()), image.identity.clone());
            let place = CodePlace { object, identity, offset, instruction, ..CodePlace::default() };
            names(&mut symbols, &place, false).pop()?.function
        });
        serde_json::to_string(&document).map_err(failed)
    })
}
