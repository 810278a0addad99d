//! Machines and their runs.

use addr::PageSize;
use machine::{
    Names, RunOptions,
    curve::{Sampled, SampledCurve},
    results::{CodePlace, FrameName, LiveSummary},
};
use pyo3::prelude::*;
use symbols::{Spot, Symbols};
use trace::{Arch, Bounds, Source, SurePages, Window};

use crate::{
    curves::{Sample, sampled},
    error::{failed, refused},
    live::{Recording, sorted},
    open::{Reading, open},
    progress::Progress,
};

/// The largest number of TLB entries in curves from a sample.
const ENTRIES_MAX: u32 = 1 << 16;

/// A machine that has been read and checked.
#[pyclass(frozen, module = "pagewalk._native")]
pub(crate) struct Machine {
    pub(crate) machine: machine::Machine,
}

/// Name and text of every built-in machine.
#[pyfunction]
pub(crate) fn builtin_machines() -> Vec<(&'static str, &'static str)> {
    machine::BUILTIN.iter().map(|builtin| (builtin.name, builtin.text)).collect()
}

#[pymethods]
impl Machine {
    #[new]
    fn new(name_or_path: &str, settings: Vec<String>) -> PyResult<Machine> {
        let machine = machine::Machine::load(name_or_path, &settings).map_err(refused)?;
        let mut symbols = Symbols::new();
        let find = move |place: &CodePlace, is_return| names(&mut symbols, place, is_return);
        let machine = machine.with_names(Names::new(find));
        Ok(Machine { machine })
    }

    #[getter]
    fn name(&self) -> &str {
        self.machine.name()
    }

    #[getter]
    fn added(&self) -> Vec<String> {
        self.machine.added().to_vec()
    }

    #[getter]
    fn digest(&self) -> &str {
        self.machine.digest()
    }

    #[getter]
    fn front(&self) -> String {
        machine::sweep::front_digest(&self.machine)
    }

    /// The description with the settings applied, as JSON.
    fn description(&self) -> PyResult<String> {
        serde_json::to_string(self.machine.description()).map_err(failed)
    }

    /// The arrays of the machine's MMU cache with their sizes in bits, as JSON.
    fn mmu_cache_arrays(&self) -> PyResult<String> {
        serde_json::to_string(&self.machine.mmu_cache_arrays()).map_err(failed)
    }

    /// Runs a trace. Returns the results as JSON, notes on the trace, and a curve from a sample for each
    /// of `page_sizes`.
    #[pyo3(signature = (trace, reading, check, progress, names, page_sizes))]
    #[expect(clippy::too_many_arguments, reason = "these are the arguments of the method")]
    fn run<'py>(
        &self,
        py: Python<'py>,
        trace: &str,
        reading: &Reading,
        check: bool,
        progress: Option<Py<PyAny>>,
        names: bool,
        page_sizes: Vec<String>,
    ) -> PyResult<(String, Vec<String>, Vec<Sample<'py>>)> {
        let page_sizes = sizes(&page_sizes)?;
        let (results, warnings, curves) = py.detach(|| {
            let mut source = open(trace, reading)?;
            let raised = source.raised();
            let ran = self.run_sampled(&mut *source, check, progress, &page_sizes);
            let (mut results, curves) = ran.map_err(|error| raised.or(error))?;
            name(&mut results, names);
            let results = serde_json::to_string(&results).map_err(failed)?;
            PyResult::Ok((results, source.warnings().to_vec(), curves))
        })?;
        Ok((results, warnings, sampled(py, &curves)))
    }

    /// Runs a program while it is recorded. Returns the results as JSON, the exit status, notes, and a curve
    /// from a sample for each of `page_sizes`.
    #[pyo3(signature = (recording, warmup, check, progress, names, page_sizes))]
    #[expect(clippy::too_many_arguments, reason = "these are the arguments of the method")]
    fn run_live<'py>(
        &self,
        py: Python<'py>,
        recording: &Recording,
        warmup: u64,
        check: bool,
        progress: Option<Py<PyAny>>,
        names: bool,
        page_sizes: Vec<String>,
    ) -> PyResult<(String, i32, Vec<String>, Vec<Sample<'py>>)> {
        let page_sizes = sizes(&page_sizes)?;
        let (results, status, notes, curves) = py.detach(|| {
            let (sure, because) = match self.sure(recording, warmup, check) {
                Ok(sure) => (Some(sure), None),
                Err(because) => (None, Some(because)),
            };
            let options = capture::Options { sure, ..recording.options.clone() };
            let mut live = capture::Live::start(&options).map_err(sorted)?;
            let (mut results, curves) = if warmup == 0 {
                self.run_sampled(&mut live, check, progress, &page_sizes)?
            } else {
                let bounds = Bounds { warmup, ..Bounds::default() };
                let mut window = Window::new(&mut live, bounds);
                self.run_sampled(&mut window, check, progress, &page_sizes)?
            };
            name(&mut results, names);
            let counted_accesses = live.counted();
            let is_native = live.engine() == capture::Engine::Native;
            let not_here = || match live.arch() {
                Arch::X86_64 if is_native && !live.can_count() => {
                    "the engine counts only if the first TLBs replace by LRU, and if the system gives it \
                     2 TiB of addresses"
                        .to_owned()
                }
                _ if live.can_count() => {
                    "no process ran alone for long enough".to_owned()
                }
                Arch::X86_64 | Arch::I386 => {
                    "this QEMU or this system does not support counting".to_owned()
                }
                Arch::Arm | Arch::Aarch64 | Arch::Riscv64 | Arch::Unknown => {
                    "accesses are counted only in programs for x86".to_owned()
                }
            };
            let because = (counted_accesses == 0).then(|| because.unwrap_or_else(not_here));
            let lost = live.take_lost();
            results.trace.live = Some(LiveSummary { counted_accesses, because, lost });
            let notes = live.notes().to_vec();
            results.trace.header.notes.extend_from_slice(&notes);
            let results = serde_json::to_string(&results).map_err(failed)?;
            PyResult::Ok((results, live.finish(), notes, curves))
        })?;
        Ok((results, status, notes, sampled(py, &curves)))
    }
}

/// The page sizes with the names `names`.
fn sizes(names: &[String]) -> PyResult<Vec<PageSize>> {
    names.iter().map(|name| name.parse().map_err(refused)).collect()
}

/// Adds names to allocation sites and, if `code`, to the code that missed. Files that were rebuilt
/// since the recording are not used.
fn name(results: &mut machine::Results, code: bool) {
    let mut symbols = Symbols::new();
    results.name_origins(&mut |place, is_return| match is_return || code {
        true => names(&mut symbols, place, is_return),
        false => Vec::new(),
    });
    if let Some(origins) = &mut results.origins {
        origins.notes.extend_from_slice(symbols.troubles());
    }
}

/// The functions and lines at a place in code, as [`machine::Results::name_origins`] needs them.
pub(crate) fn names(symbols: &mut Symbols, place: &CodePlace, is_return: bool) -> Vec<FrameName> {
    let Some(path) = &place.object else { return Vec::new() };
    let identity = place.identity.as_deref();
    let (offset, instruction) = (place.offset, place.instruction);
    let found = symbols.frames(Spot { path, identity, offset, instruction, is_return });
    let name = |frame: symbols::Frame| FrameName {
        function: frame.function,
        file: frame.file,
        line: frame.line,
    };
    found.into_iter().map(name).collect()
}

impl Machine {
    /// The machine itself.
    pub(crate) fn machine(&self) -> &machine::Machine {
        &self.machine
    }

    /// The pages whose accesses need only be counted. The error is the reason why all accesses must
    /// be recorded.
    fn sure(&self, recording: &Recording, warmup: u64, check: bool) -> Result<SurePages, String> {
        let told = if recording.options.tells_all {
            Some("the recording of all accesses was requested")
        } else if check {
            Some("each translation is checked")
        } else if warmup > 0 {
            Some("the accesses of a warm-up must be recorded")
        } else {
            recording.options.must_tell()
        };
        match told {
            Some(why) => Err(why.to_owned()),
            None => self.machine.sure_pages(),
        }
    }

    /// Runs `source`, and estimates a curve from a sample for each of `page_sizes`.
    fn run_sampled(
        &self,
        source: &mut dyn Source,
        check: bool,
        progress: Option<Py<PyAny>>,
        page_sizes: &[PageSize],
    ) -> PyResult<(machine::Results, Vec<SampledCurve>)> {
        if page_sizes.is_empty() {
            return Ok((self.run_source(source, check, progress)?, Vec::new()));
        }
        let mut source = Sampled::new(source, page_sizes, ENTRIES_MAX);
        let results = self.run_source(&mut source, check, progress)?;
        Ok((results, source.curves(page_sizes)))
    }

    fn run_source(
        &self,
        source: &mut dyn Source,
        check: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<machine::Results> {
        let mut progress = Progress::new(progress);
        let mut report = |at: machine::Progress| progress.report(at.accesses, at.total);
        let options = RunOptions { check, progress: &mut report };
        let run = self.machine.run(source, options);
        run.map_err(|error| progress.error_or(|| failed(error)))
    }
}
