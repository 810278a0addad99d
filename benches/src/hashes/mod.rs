//! Hashes of counts over machines, memory managers and layers. Two builds with the same counts have the
//! same hashes.
//!
//! ```text
//!   hardware   every machine, format, MMU cache and policy over generated accesses --+
//!   managers   every memory manager over programs that map, fork, run out of memory --+--> counts --> a hash a line
//!   layers     every load under every scheme of locks, in virtual time --------------+
//!   small      clients and a server in small spaces ---------------------------------+
//!   calls      calls of processes that no machine makes -----------------------------+
//! ```
//!
//! A hash is of counts only: names, versions, descriptions and zeros are left out. So renaming, or a new
//! count that is zero for a machine, changes no line.

mod calls;
mod hardware;
mod layers;
mod managers;
mod programs;
mod small;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use machine::{
    Machine, Names, Results, RunOptions,
    results::{CodePlace, FrameName},
};
use programs::{Programs, Shape};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use smp::{ClientsPlan, Plan};
use trace::generate;

use crate::Failure;

/// The beginning of the file with the hashes.
const HEAD: &str = "\
# Hashes of counts. `make hashes` compares them, as `make test` does; this file was made by
#
#     make hashes WRITE=1
#
# Where a change is meant to change a count, its commit has the new file, and its message says why.
";

/// In place of a hash: the machine is refused, as its parts do not fit together. Such machines have no
/// line.
const REFUSED: &str = "refused";

/// The fields of results that are not counts.
const NO_COUNTS: [&str; 6] = ["schema", "pagewalk", "trace", "machine", "not_modelled", "checked"];

/// A line: its name, and what runs.
struct Line {
    name: String,
    what: What,
}

enum What {
    /// A machine, over the accesses of a generator.
    Generated(&'static str, Vec<String>, &'static str),
    /// A machine with a memory manager, over programs.
    Life(&'static str, Vec<String>, &'static Shape),
    /// A load on several processors, in virtual time.
    Layers(Box<Plan>),
    /// Clients of a server in small spaces.
    Clients(Box<ClientsPlan>),
    /// Calls of processes, with pages that leave memory by this policy.
    Calls(&'static str),
}

impl Line {
    fn generated(machine: &'static str, settings: Vec<String>, spec: &'static str) -> Line {
        let name = format!("{machine} {} {spec}", settings.join(" "));
        Line { name, what: What::Generated(machine, settings, spec) }
    }

    fn life(machine: &'static str, settings: Vec<String>, shape: &'static Shape) -> Line {
        let name = format!("{machine} {} {}", settings.join(" "), shape.name);
        Line { name, what: What::Life(machine, settings, shape) }
    }

    fn layers(plan: Plan) -> Line {
        let mut name = format!("layers {} {} {}", plan.load, plan.scheme, plan.table);
        let more = [
            (plan.hat_only, " hat-only"),
            (plan.contexts.is_some(), " contexts"),
            (plan.virtual_caches, " virtual-caches"),
            (plan.pool_bytes.is_some(), " pool"),
            (plan.lock_per_list, " lock-per-list"),
        ];
        more.iter().filter(|(is_so, _)| *is_so).for_each(|(_, word)| name.push_str(word));
        Line { name, what: What::Layers(Box::new(plan)) }
    }

    fn clients(plan: ClientsPlan) -> Line {
        let name = format!("clients {} {}", plan.revoke, plan.schedule);
        Line { name, what: What::Clients(Box::new(plan)) }
    }

    fn calls(replacement: &'static str) -> Line {
        Line { name: format!("calls {replacement}"), what: What::Calls(replacement) }
    }

    /// The hash of its counts, or that the machine is refused. A run that ends early is an error, as its hash
    /// would cover little.
    fn hash(&self, lives: &BTreeMap<&str, Programs>) -> Result<String, Failure> {
        let options = RunOptions { check: false, progress: &mut |_| true };
        let counts = match &self.what {
            What::Layers(plan) => match smp::run(plan) {
                Ok(outcome) => counts_of(&outcome)?,
                Err(error) => return Err(format!("{error:?}").into()),
            },
            What::Clients(plan) => counts_of(&smp::run_clients(plan)?)?,
            What::Calls(replacement) => counts_of(&calls::run(replacement)?)?,
            What::Generated(machine, settings, spec) => {
                let Ok(machine) = Machine::load(machine, settings) else {
                    return Ok(REFUSED.to_owned());
                };
                counts_of(&machine.run(generate::parse(spec)?.as_mut(), options)?)?
            }
            What::Life(machine, settings, shape) => {
                let Ok(machine) = Machine::load(machine, settings) else {
                    return Ok(REFUSED.to_owned());
                };
                let is_recorded = machine.description().os.manager == "recorded";
                let machine = machine.with_names(Names::new(|place, _| line_of(place)));
                let results = machine.run(&mut lives[shape.name].source(is_recorded), options)?;
                counts_of(&named(results))?
            }
        };
        let hash = Sha256::digest(serde_json::to_vec(&counts)?);
        Ok(hash[..8].iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")))
    }
}

/// A made-up line of the program for a place: its number is the offset of the place.
fn line_of(place: &CodePlace) -> Vec<FrameName> {
    let (file, line) = (Some("own.c".to_owned()), Some(place.offset as u32));
    vec![FrameName { function: None, file, line }]
}

fn named(mut results: Results) -> Results {
    results.name_origins(&mut |place, _| line_of(place));
    results
}

fn counts_of(counted: &impl Serialize) -> Result<Value, Failure> {
    let mut value = serde_json::to_value(counted)?;
    if let Value::Object(fields) = &mut value {
        NO_COUNTS.iter().for_each(|name| drop(fields.remove(*name)));
    }
    shorten(&mut value);
    Ok(value)
}

/// Removes fields that are zero or empty.
fn shorten(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(shorten);
            fields.retain(|_, field| match field {
                Value::Null | Value::Bool(false) => false,
                Value::Bool(true) => true,
                Value::Number(number) => number.as_f64() != Some(0.0),
                Value::String(text) => !text.is_empty(),
                Value::Array(all) => !all.is_empty(),
                Value::Object(fields) => !fields.is_empty(),
            });
        }
        Value::Array(all) => all.iter_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The options of `--hashes FILE`.
pub(crate) struct Asked<'a> {
    /// The file with the hashes.
    pub(crate) file: &'a Path,
    /// Whether the file is written.
    pub(crate) write: bool,
    /// Whether to stop at the first line that differs.
    pub(crate) first: bool,
    /// Which lines to compare: those that contain one of these texts, separated by `|`; `None`:
    /// all.
    pub(crate) only: Option<&'a str>,
}

/// Compares all lines with those of the file, or writes the file.
pub(crate) fn run(asked: &Asked<'_>) -> Result<(), Failure> {
    let takes =
        |name: &str| asked.only.is_none_or(|only| only.split('|').any(|one| name.contains(one)));
    let mut lines = managers::lines();
    lines.extend(layers::lines());
    lines.extend(small::lines());
    lines.extend(calls::lines());
    lines.extend(hardware::lines());
    lines.retain(|line| takes(&line.name));
    if asked.write {
        if asked.only.is_some() {
            return Err("--write takes no --only: the file has all lines".into());
        }
        return write(asked.file, &lines);
    }
    let text = fs::read_to_string(asked.file).map_err(|error| {
        format!("{}: {error}: `make hashes WRITE=1` writes it", asked.file.display())
    })?;
    let kept = text.lines().filter(|line| !line.starts_with('#'));
    let kept = kept.filter_map(|line| line.split_once(' '));
    let kept: BTreeMap<&str, &str> = kept
        .map(|(hash, name)| (name.trim_start(), hash))
        .filter(|(name, _)| takes(name))
        .collect();
    compare(asked, &lines, kept)
}

fn write(file: &Path, lines: &[Line]) -> Result<(), Failure> {
    let mut text = HEAD.to_owned();
    let found = hashes(lines, &|_, _| true)?;
    let mut count = 0;
    for (line, hash) in lines.iter().zip(found) {
        let hash = hash.unwrap_or_default();
        if hash != REFUSED {
            writeln!(text, "{hash:<16} {}", line.name)?;
            count += 1;
        }
    }
    let beside = file.with_extension("part");
    fs::write(&beside, text)
        .and_then(|()| fs::rename(&beside, file))
        .map_err(|error| format!("{}: cannot be written: {error}", file.display()))?;
    writeln!(io::stdout(), "{count} lines are written to {}", file.display())?;
    Ok(())
}

/// Prints the differences from the hashes that were `kept`, by names of lines. Fails if there are
/// any.
fn compare(
    asked: &Asked<'_>,
    lines: &[Line],
    mut kept: BTreeMap<&str, &str>,
) -> Result<(), Failure> {
    let goes_on = |name: &str, hash: &str| {
        let is_refused = hash == REFUSED && !kept.contains_key(name);
        !asked.first || is_refused || kept.get(name) == Some(&hash)
    };
    let count = kept.len();
    let found = hashes(lines, &goes_on)?;
    let (mut out, mut differ) = (io::stdout().lock(), 0);
    for (line, hash) in lines.iter().zip(found) {
        let before = kept.remove(line.name.as_str());
        match (before, hash) {
            // It stopped before.
            (_, None) => {}
            (None, Some(hash)) if hash == REFUSED => {}
            (Some(before), Some(hash)) if before == hash => {}
            (before, Some(hash)) => {
                differ += 1;
                writeln!(out, "{:<16} -> {hash:<16} {}", before.unwrap_or("new"), line.name)?;
            }
        }
    }
    for (name, hash) in kept {
        differ += 1;
        writeln!(out, "{hash:<16} -> {:<16} {name}", "gone")?;
    }
    let file = asked.file.display();
    if differ == 0 {
        writeln!(out, "{count} lines count as {file} says")?;
        return Ok(());
    }
    Err(format!(
        "{differ} of {count} lines differ from {file}. If the change is meant to change these counts, run `make hashes \
         WRITE=1`, commit the file with the change, and say why in its message"
    )
    .into())
}

/// The hashes of `lines` in their order, computed on all processors of the host. Stops when `goes_on`
/// returns false for a line.
fn hashes(
    lines: &[Line],
    goes_on: &(dyn Fn(&str, &str) -> bool + Sync),
) -> Result<Vec<Option<String>>, Failure> {
    let shapes = managers::SHAPES.iter();
    let lives: BTreeMap<&str, Programs> =
        shapes.map(|shape| (shape.name, Programs::new(shape))).collect();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(vec![None; lines.len()]);
    let wrong = Mutex::new(Vec::new());
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(line) = lines.get(number) else { return };
            let hash = match line.hash(&lives) {
                Ok(hash) => hash,
                Err(error) => {
                    let error = format!("{}: {error}", line.name);
                    wrong.lock().unwrap_or_else(PoisonError::into_inner).push(error);
                    continue;
                }
            };
            if !goes_on(&line.name, &hash) {
                next.fetch_add(lines.len(), Ordering::Relaxed);
            }
            found.lock().unwrap_or_else(PoisonError::into_inner)[number] = Some(hash);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let panicked = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(thread::ScopedJoinHandle::join).filter(Result::is_err).count()
    });
    let mut wrong = wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
    wrong.extend((panicked > 0).then(|| "a run panicked".to_owned()));
    if !wrong.is_empty() {
        return Err(wrong.join("\n").into());
    }
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}
