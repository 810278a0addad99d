//! Clients of a server in small spaces, for experiments.

use pyo3::prelude::*;
use smp::{ClientsPlan, ClientsPrices, run_clients};

use crate::{
    error::{failed, refused},
    machines::Machine,
};

/// Runs clients of a server in small spaces, with more clients than slots. `machine` gives the
/// costs of the kernel's work. Returns the outcome as JSON.
#[pyfunction]
#[pyo3(signature = (
    *, machine, clients, ring, large, slot_bytes, entries, calls, stay, revoke, schedule, seed,
))]
#[expect(clippy::too_many_arguments, reason = "these are the parameters of an experiment")]
pub(crate) fn small_clients(
    py: Python<'_>,
    machine: &Machine,
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
    let Some(costs) = &machine.machine.description().os.costs else {
        return Err(refused(
            "the machine has no os.costs, so the cost of a switch is unknown: choose a machine \
             with [os.costs]",
        ));
    };
    let [root, segments, line, entry] = costs.of_switch();
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
        prices: ClientsPrices { root, segments, line, entry },
    };
    let outcome = py.detach(|| run_clients(&plan)).map_err(refused)?;
    serde_json::to_string(&outcome).map_err(failed)
}
