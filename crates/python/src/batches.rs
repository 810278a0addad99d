//! Accesses as columns.

use std::sync::Mutex;

use pyo3::{prelude::*, types::PyBytes};
use trace::{Batch, Event};

use crate::open::{Opened, Reading, open};

/// The number of rows, and the columns addr, size, kind, thread, instructions, paddr and process,
/// each in native byte order.
type Columns<'py> = (
    usize,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Option<Bound<'py, PyBytes>>,
    Option<Bound<'py, PyBytes>>,
);

/// The accesses of a trace in order, as columns.
#[pyclass(frozen, module = "pagewalk._native")]
pub(crate) struct Batches {
    state: Mutex<State>,
    /// Whether the first batch has physical addresses.
    #[pyo3(get)]
    has_paddr: bool,
    /// Whether the trace has several processes.
    #[pyo3(get)]
    has_process: bool,
}

struct State {
    source: Opened,
    batch: Batch,
    /// The process at the beginning of the batch.
    process: u32,
    /// Whether `batch` holds rows that were not returned yet.
    waiting: bool,
}

impl State {
    /// Reads batches until `batch` has rows; `false` at the end.
    fn advance(&mut self) -> Result<bool, trace::Error> {
        if std::mem::take(&mut self.waiting) {
            return Ok(true);
        }
        while self.source.next(&mut self.batch)? {
            if !self.batch.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Opens a trace for reading as columns.
#[pyfunction]
pub(crate) fn trace_batches(py: Python<'_>, trace: &str, reading: &Reading) -> PyResult<Batches> {
    let source = open(trace, reading)?;
    let mut state = State { source, batch: Batch::default(), process: 0, waiting: false };
    let more = py.detach(|| state.advance()).map_err(|error| state.source.failed(error))?;
    state.waiting = more;
    let has_paddr = !state.batch.paddr.is_empty();
    let has_process = state.source.processes().len() > 1;
    Ok(Batches { state: Mutex::new(state), has_paddr, has_process })
}

#[pymethods]
impl Batches {
    /// The warnings of the trace; they are complete after the last accesses.
    fn warnings(&self) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(|poison| poison.into_inner());
        state.source.warnings().to_vec()
    }

    /// The next accesses, or `None` at the end.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Columns<'py>>> {
        let lock = || self.state.lock().unwrap_or_else(|poison| poison.into_inner());
        // The batch is moved out of the struct, because its lock must not be held while this thread
        // waits for the interpreter's lock.
        let batch: Result<_, trace::Error> = py.detach(|| {
            let mut state = lock();
            let more = state.advance()?;
            Ok(more.then(|| (std::mem::take(&mut state.batch), state.process)))
        });
        let Some((batch, mut number)) = batch.map_err(|error| lock().source.failed(error))? else {
            return Ok(None);
        };
        let columns = columns(py, &batch, self.has_process, &mut number)?;
        py.detach(|| {
            let mut state = lock();
            (state.batch, state.process) = (batch, number);
        });
        Ok(Some(columns))
    }
}

/// The columns of `batch`. `number` is the process at the beginning of the batch, and is set to the
/// process at its end.
fn columns<'py>(
    py: Python<'py>,
    batch: &Batch,
    has_process: bool,
    number: &mut u32,
) -> PyResult<Columns<'py>> {
    let rows = batch.len();
    let metas = &batch.meta;
    let size = fill(py, rows, |row| (metas[row].size() as u16).to_ne_bytes())?;
    let kind = fill(py, rows, |row| [metas[row].kind() as u8])?;
    let instructions = fill(py, rows, |row| (metas[row].instructions() as u16).to_ne_bytes())?;
    let addr = fill(py, rows, |row| batch.addr[row].to_ne_bytes())?;
    let mut segments = batch.segments.iter().peekable();
    let mut current = 0;
    let thread = fill(py, rows, |row| {
        while let Some(segment) = segments.next_if(|segment| segment.start as usize <= row) {
            current = segment.thread;
        }
        current.to_ne_bytes()
    })?;
    let paddr = match batch.paddr.len() {
        0 => None,
        _ => Some(fill(py, rows, |row| batch.paddr[row].to_ne_bytes())?),
    };
    let mut turns = batch.events.iter().filter_map(|placed| match placed.event {
        Event::Process { number } => Some((placed.at as usize, number)),
        _ => None,
    });
    let mut next = turns.next();
    let mut at = |row: usize| {
        while let Some((_, to)) = next.filter(|&(at, _)| at <= row) {
            *number = to;
            next = turns.next();
        }
        *number
    };
    let process = match has_process {
        true => Some(fill(py, rows, |row| at(row).to_ne_bytes())?),
        false => None,
    };
    at(rows);
    Ok((rows, addr, size, kind, thread, instructions, paddr, process))
}

/// A column of `rows` values of `N` bytes, written directly into memory of Python.
fn fill<'py, const N: usize>(
    py: Python<'py>,
    rows: usize,
    mut value: impl FnMut(usize) -> [u8; N],
) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, rows * N, |bytes| {
        for (row, slot) in bytes.chunks_exact_mut(N).enumerate() {
            slot.copy_from_slice(&value(row));
        }
        Ok(())
    })
}
