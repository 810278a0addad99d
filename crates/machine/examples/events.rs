//! Runs events and accesses on a machine and prints the results. It is meant for events that traces
//! of other tools cannot contain, such as forks and locks.
//!
//! ```text
//!   events MACHINE [KEY=VALUE ...] < LINES > RESULTS.json
//!
//!   {"event":"run","space":1}                      an event, as traces have it
//!   {"access":"store","addr":4096,"bytes":8}       an access of the space that runs
//! ```
//!
//! Process 0 exists from the beginning. Each `fork` event creates a process; the event's result is
//! the process identifier of the new process, 100 plus the number of the process.

#[path = "../tests/machine/support/mod.rs"]
mod support;

use std::{
    io::{self, BufRead},
    process::ExitCode,
};

use addr::Kind;
use machine::{Machine, RunOptions};
use serde_json::Value;
use support::{Row, Rows, process};
use trace::{Event, Process};

fn row(line: &str) -> Result<Row, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let Some(kind) = value.get("access") else {
        return serde_json::from_value::<Event>(value)
            .map(Row::Event)
            .map_err(|error| error.to_string());
    };
    let kind = match kind.as_str() {
        Some("fetch") => Kind::Fetch,
        Some("load") => Kind::Load,
        Some("store") => Kind::Store,
        _ => return Err("an access is `fetch`, `load` or `store`".to_owned()),
    };
    let number =
        |key: &str| value.get(key).and_then(Value::as_u64).ok_or(format!("`{key}` is no number"));
    Ok(Row::Access(kind, number("addr")?, number("bytes")? as u32))
}

/// Runs the lines of standard input. Returns the results as JSON.
fn run(name: &str, settings: &[String]) -> Result<String, String> {
    let machine = Machine::load(name, settings).map_err(|error| error.to_string())?;
    let (mut rows, mut born) = (Vec::new(), 1);
    for (number, line) in (1..).zip(io::stdin().lock().lines()) {
        let line = line.map_err(|error| error.to_string())?;
        let row = row(&line).map_err(|what| format!("line {number}: {what}"))?;
        if let Row::Event(Event::Fork { result, .. }) = row {
            born = born.max(u32::try_from(result - 99).unwrap_or(1));
        }
        rows.push(row);
    }
    let processes: Vec<Process> = (0..born).map(process).collect();
    let options = RunOptions { check: false, progress: &mut |_| true };
    let results = machine
        .run(&mut Rows::new(rows).of(processes), options)
        .map_err(|error| error.to_string())?;
    serde_json::to_string(&results).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((name, settings)) => run(name, settings),
        None => Err("events MACHINE [KEY=VALUE ...] < LINES > RESULTS.json".to_owned()),
    };
    match done {
        Ok(results) => {
            println!("{results}");
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("error: {what}");
            ExitCode::FAILURE
        }
    }
}
