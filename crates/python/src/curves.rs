//! LRU curves: misses of TLBs of every size, in one pass.

use addr::PageSize;
use machine::curve::{CurveOptions, Lookups, SampledCurve, curve};
use pyo3::{prelude::*, types::PyBytes};

use crate::{
    error::refused,
    open::{Reading, open},
    progress::Progress,
};

/// The kind of lookups, the page size in bytes, the lookups, the cold misses, and the misses of
/// TLBs of 1, 2, 3, ... entries as `u64` in native byte order.
type Curve<'py> = (&'static str, u64, u64, u64, Bound<'py, PyBytes>);

/// The curves of `trace`, and notes on the trace.
#[pyfunction]
#[pyo3(signature = (trace, reading, *, lookups, page_sizes, entries_max, progress))]
pub(crate) fn trace_curves<'py>(
    py: Python<'py>,
    trace: &str,
    reading: &Reading,
    lookups: Vec<String>,
    page_sizes: Vec<String>,
    entries_max: u32,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Vec<Curve<'py>>, Vec<String>)> {
    let lookups = lookups.iter().map(|name| named(name)).collect::<PyResult<_>>()?;
    let page_sizes = page_sizes
        .iter()
        .map(|text| text.parse::<PageSize>().map_err(refused))
        .collect::<PyResult<_>>()?;
    let options = CurveOptions { lookups, page_sizes, entries_max };
    let (curves, warnings) = py.detach(|| {
        let mut source = open(trace, reading)?;
        let mut progress = Progress::new(progress);
        let counted = curve(&mut *source, &options, &mut |at: machine::Progress| {
            progress.report(at.accesses, at.total)
        });
        match counted {
            Ok(curves) => Ok((curves, source.warnings().to_vec())),
            Err(error @ machine::Error::Curve(_)) => Err(refused(error)),
            Err(error) => Err(progress.error_or(|| source.failed(error))),
        }
    })?;
    Ok((curves.iter().map(|curve| told(py, curve)).collect(), warnings))
}

/// A curve as a Python value.
fn told<'py>(py: Python<'py>, curve: &machine::curve::Curve) -> Curve<'py> {
    let misses: Vec<u8> = curve.misses().flat_map(u64::to_ne_bytes).collect();
    let misses = PyBytes::new(py, &misses);
    (curve.lookups.name(), curve.page_size.bytes(), curve.total, curve.cold, misses)
}

/// A curve from a sample of pages, and the number of pages per sampled page. If not all accesses
/// were looked up, also two numbers: of the accesses at the beginning, all of which were looked up,
/// and of the accesses per looked-up access after them.
pub(crate) type Sample<'py> = (Curve<'py>, u64, Option<(u64, u64)>);

/// The curves of a run's sample as Python values.
pub(crate) fn sampled<'py>(py: Python<'py>, curves: &[SampledCurve]) -> Vec<Sample<'py>> {
    let gaps = |one: &SampledCurve| one.gaps.map(|gaps| (gaps.after, gaps.one_in));
    curves.iter().map(|one| (told(py, &one.curve), one.one_in, gaps(one))).collect()
}

fn named(name: &str) -> PyResult<Lookups> {
    Lookups::ALL.into_iter().find(|lookups| lookups.name() == name).ok_or_else(|| {
        let known = Lookups::ALL.map(Lookups::name).join(", ");
        refused(format!("`{name}` is not a kind of lookup: choose from {known}"))
    })
}
