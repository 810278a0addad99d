//! Clients of a server in small spaces, for experiments.

use pyo3::prelude::*;
use smp::{ClientsPlan, run_clients};

use crate::error::{failed, refused};

/// Runs clients in small spaces, with more clients than slots. Returns the outcome as JSON.
#[pyfunction]
#[pyo3(signature = (
    *, clients, ring, large, slot_bytes, entries, calls, stay, revoke, schedule, seed,
))]
#[expect(clippy::too_many_arguments, reason = "they are what an experiment says")]
pub(crate) fn small_clients(
    py: Python<'_>,
    clients: u32,
    ring: u32,
    large: u32,
    slot_bytes: u64,
    entries: u32,
    calls: u32,
    stay: u32,
    revoke: String,
    schedule: String,
    seed: u64,
) -> PyResult<String> {
    let plan = ClientsPlan {
        clients,
        ring,
        large,
        slot_bytes,
        entries,
        calls,
        stay,
        revoke,
        schedule,
        seed,
    };
    let outcome = py.detach(|| run_clients(&plan)).map_err(refused)?;
    serde_json::to_string(&outcome).map_err(failed)
}
