//! Switches between spaces in a trace, and the groups that frequent switches suggest.

use std::collections::BTreeMap;

use hat::{
    HatSpace,
    small::{Grouping, Switches},
};
use pyo3::prelude::*;
use serde_json::json;
use trace::{Batch, Event, KERNEL, kernel::SERVER};

use crate::{
    error::failed,
    open::{Reading, open},
    progress::Progress,
};

/// Returns, as JSON, pairs of spaces with the number of switches between them, and the groups of
/// spaces that are suggested for `slots` slots.
#[pyfunction]
#[pyo3(signature = (trace, reading, slots, everyone, progress))]
pub(crate) fn trace_switches(
    py: Python<'_>,
    trace: &str,
    reading: &Reading,
    slots: u16,
    everyone: u16,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    py.detach(|| {
        let mut source = open(trace, reading)?;
        let total = source.total();
        let mut progress = Progress::new(progress);
        let mut batch = Batch::default();
        // A trace begins in space 0. A space counts from its first access on.
        let (mut switches, mut space, mut done) = (Switches::default(), 0, 0);
        let mut accesses: BTreeMap<u32, u64> = BTreeMap::new();
        loop {
            let more = match source.next(&mut batch) {
                Ok(more) => more,
                Err(error) => return Err(source.failed(error)),
            };
            let mut from = 0;
            let runs = batch.events.iter().filter_map(|placed| match placed.event {
                Event::Run { space, .. } => Some((placed.at, Some(space))),
                _ => None,
            });
            for (at, next) in runs.chain([(batch.len() as u32, None)]) {
                if at > from && space != KERNEL {
                    switches.to(HatSpace(space));
                    *accesses.entry(space).or_insert(0) += u64::from(at - from);
                }
                from = at;
                space = next.unwrap_or(space);
            }
            done += batch.len() as u64;
            if !progress.report(done, total) {
                return Err(progress.error_or(|| failed("interrupted")));
            }
            if !more {
                break;
            }
        }
        let found = Grouping::of(&switches, slots, everyone);
        let numbers = |spaces: &[HatSpace]| spaces.iter().map(|space| space.0).collect::<Vec<_>>();
        let pairs: Vec<_> = switches.pairs().map(|((a, b), count)| (a.0, b.0, count)).collect();
        let groups: Vec<_> = found.groups.iter().map(|group| numbers(group)).collect();
        let called = |number: u32| {
            let process = source.processes().iter().find(|process| process.number == number);
            match process {
                Some(server) if number == SERVER => server.name().to_owned(),
                Some(process) => format!("{} ({number})", process.name()),
                None => format!("space {number}"),
            }
        };
        let names: BTreeMap<String, String> =
            accesses.keys().map(|space| (space.to_string(), called(*space))).collect();
        let document = json!({
            "names": names,
            "switches": pairs.iter().map(|pair| pair.2).sum::<u64>(),
            "pairs": pairs,
            "accesses": accesses.into_iter().collect::<Vec<_>>(),
            "everywhere": numbers(&found.global),
            "groups": groups,
        });
        serde_json::to_string(&document).map_err(failed)
    })
}
