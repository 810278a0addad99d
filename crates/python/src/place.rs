//! Runs programs with other page sizes, and changes the pages of running programs.

use std::ffi::OsString;

use capture::place::{self, Options, Rule, Variable, What, Wish};
use pyo3::prelude::*;
use serde_json::json;

use crate::error::{failed, refused};

/// A rule of a place file: its line, its kind, a name, the line of an allocation site, a range, the
/// page size in bytes, whether faults wait for a page of this size, and whether the rule has NUMA
/// settings.
type Written = (usize, &'static str, String, u32, (u64, u64), u64, bool, bool);

/// The rules of a place file, the most specific first.
#[pyfunction]
pub(crate) fn place_rules(text: &str) -> PyResult<Vec<Written>> {
    let rules = machine::written_rules(text).map_err(refused)?;
    let plain = rules.into_iter().map(|rule| {
        let machine::WrittenRule { line, what, name, source_line, range, size, waits, has_nodes } =
            rule;
        (line, what, name, source_line, range, size, waits, has_nodes)
    });
    Ok(plain.collect())
}

/// Whether this process may trace programs that it starts.
#[pyfunction]
pub(crate) fn may_trace() -> bool {
    place::may_trace()
}

/// Runs a program and its children with rules. Returns the outcome as JSON.
#[pyfunction]
#[pyo3(signature = (command, rules, environment, *, inherit, only, fixed, look))]
#[expect(clippy::too_many_arguments, reason = "these are the arguments of the command")]
pub(crate) fn launch(
    py: Python<'_>,
    command: Vec<OsString>,
    rules: Vec<(String, String, (u64, u64), bool)>,
    environment: Vec<(OsString, OsString, Option<OsString>)>,
    inherit: bool,
    only: bool,
    fixed: bool,
    look: Option<Py<PyAny>>,
) -> PyResult<String> {
    let rules = rules.into_iter().map(|(what, name, (start, end), is_large)| {
        let what = match what.as_str() {
            "data" => What::Data,
            "mmap" => What::Mmap,
            "heap" => What::Heap,
            "stack" => What::Stack,
            "bss" => What::Bss,
            "text" => What::Text,
            "lib" => What::Lib(name),
            "range" => What::Range(start, end),
            other => {
                return Err(refused(format!(
                    "in a running program, `{other}` cannot be used as a part of memory in rules"
                )));
            }
        };
        Ok(Rule { what, wish: if is_large { Wish::Large } else { Wish::Base } })
    });
    let environment = environment
        .into_iter()
        .map(|(name, value, before)| Variable { name, value, before })
        .collect();
    let rules = rules.collect::<PyResult<_>>()?;
    let options = Options { command, rules, environment, inherit, only, fixed };
    let mut raised = None;
    let mut call = |pid: i32| {
        let Some(look) = &look else { return };
        Python::attach(|py| {
            if let Err(error) = look.call1(py, (pid,)) {
                raised.get_or_insert(error);
            }
        });
    };
    let outcome = py.detach(|| place::place(&options, &mut call)).map_err(|error| match error {
        capture::Error::System { .. } => failed(error),
        _ => refused(error),
    })?;
    if let Some(error) = raised {
        return Err(error);
    }
    let got: Vec<_> = outcome
        .got
        .iter()
        .map(|got| {
            json!({
                "mappings": got.mappings,
                "resident_bytes": got.resident,
                "large_bytes": got.large,
                "missing_bytes": got.missing,
                "failed": got.failed,
                "error": got.error,
                "by_length": got.by_length,
            })
        })
        .collect();
    let document = json!({
        "status": outcome.status,
        "got": got,
        "notes": outcome.notes,
        "processes": outcome.processes,
        "stops": outcome.stops,
        "is_counted": outcome.is_counted,
        "usage": {
            "user_seconds": outcome.usage.user_seconds,
            "system_seconds": outcome.usage.system_seconds,
            "resident_bytes_max": outcome.usage.resident_bytes_max,
            "minor_faults": outcome.usage.minor_faults,
            "major_faults": outcome.usage.major_faults,
        },
    });
    serde_json::to_string(&document).map_err(failed)
}

/// Collapses ranges of a running process into large pages. Returns the system's error number for
/// each range, or 0.
#[pyfunction]
pub(crate) fn collapse(py: Python<'_>, pid: i32, ranges: Vec<(u64, u64)>) -> PyResult<Vec<i32>> {
    Ok(py.detach(|| place::collapse(pid, &ranges))?)
}

/// The result of `prctl(PR_GET_THP_DISABLE)` in the process `pid`.
#[pyfunction]
pub(crate) fn thp_disabled(py: Python<'_>, pid: i32) -> PyResult<u64> {
    Ok(py.detach(|| place::thp_disabled(pid))?)
}
