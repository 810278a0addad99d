//! Python bindings: the module `pagewalk._native`.
//!
//! ```text
//!   python/pagewalk/*.py --> _native --> trace, machine, capture
//!        JSON text, columns as bytes  <--
//! ```
//!
//! This layer is thin on purpose. Documents are passed as JSON, columns of accesses as bytes that
//! pyarrow uses in place, errors as one exception type. Long work runs without the interpreter's
//! lock and checks for signals now and then.

mod batches;
mod clients;
mod columns;
mod curves;
mod error;
mod flushes;
mod hat;
mod live;
mod machines;
mod open;
mod page_table;
mod place;
mod progress;
mod raised;
mod stored;
mod sweeps;
mod switches;
mod told;
mod worlds;

use pyo3::prelude::*;

/// The native module of `pagewalk`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::batches::{Batches, trace_batches};
    #[pymodule_export]
    use crate::clients::small_clients;
    #[pymodule_export]
    use crate::curves::trace_curves;
    #[pymodule_export]
    use crate::error::{Error, WorkError};
    #[pymodule_export]
    use crate::flushes::{check_flushes, trace_is_system};
    #[pymodule_export]
    use crate::hat::{hat_names, hat_run, hat_run_on_host, skeleton};
    #[pymodule_export]
    use crate::live::{Recording, attach, operate, record, record_system};
    #[pymodule_export]
    use crate::machines::{Machine, builtin_machines};
    #[pymodule_export]
    use crate::open::Reading;
    #[pymodule_export]
    use crate::page_table::PageTable;
    #[pymodule_export]
    use crate::place::{collapse, launch, may_trace, place_rules, thp_disabled};
    #[pymodule_export]
    use crate::stored::{export_trace, store, trace_header, trace_info};
    #[pymodule_export]
    use crate::sweeps::sweep_trace;
    #[pymodule_export]
    use crate::switches::trace_switches;
    #[pymodule_export]
    use crate::worlds::world;

    use pyo3::prelude::*;

    /// The version of Pagewalk.
    #[pyfunction]
    fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        // A panic becomes Python's PanicException, which the command reports in one line;
        // its own text would only come before that.
        if std::env::var_os("PAGEWALK_TRACEBACK").is_none() {
            std::panic::set_hook(Box::new(|_| {}));
        }
        Ok(())
    }
}
