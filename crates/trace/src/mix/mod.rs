//! Several programs in one trace: which of them runs when, and on which processor.
//!
//! ```text
//!   a.pwt --> Program --\                        Run { cpu: 0, space: 0 }  a's accesses
//!   a.pwt --> Program ---+--> Schedule --------> Run { cpu: 1, space: 1 }  a's accesses
//!   b.pwt --> Program --/     whose turn         Run { cpu: 0, space: 2 }  b's accesses ...
//! ```
//!
//! Each program has threads and address spaces of its own, which get new numbers: the first thread
//! and the first space of the i-th program have the number i. Thread t runs on processor t mod N.
//! The accesses of one program stay in its own order, and so do its threads.
//!
//! Programs whose first threads share a processor take turns on it ([`Schedule`]). Time is counted
//! in instructions. What the machine costs them does not change the order, so that one decoding
//! feeds a whole sweep.

mod program;
mod schedule;
mod spec;

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::import::{Options, whole};
use crate::{Arch, Batch, Error, Event, Filter, Header, Source};
use program::{Program, Stop};
use schedule::Schedule;

pub use spec::{Order, Spec};

/// Accesses of a batch, about.
const BATCH_ACCESSES: usize = 1 << 16;

/// What starts the description of a mix.
pub(crate) const MIX: &str = "mix:";

/// What a mix did, for its results.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Switches {
    /// What ordered the programs.
    pub order: &'static str,
    /// Instructions after which another program has its turn.
    pub quantum_instructions: u64,
    /// Processors.
    pub cpus: u32,
    /// Switches of a processor from one program to another, by their cause.
    pub by_cause: BTreeMap<&'static str, u64>,
}

/// Several programs as one source.
pub struct Mix {
    header: Header,
    programs: Vec<Program>,
    schedule: Schedule,
    numbers: Numbers,
    /// Accesses given so far.
    given: u64,
    warnings: Vec<String>,
}

/// The numbers that a mix gives to threads and spaces, and where the last access was made.
#[derive(Debug)]
pub(crate) struct Numbers {
    threads: u32,
    spaces: u32,
    cpus: u32,
    /// Processor and space of the last [`Event::Run`].
    place: (u32, u32),
}

impl Numbers {
    /// Says to `out` where `thread` goes on, in `space`, if that is another place than before.
    fn run(&mut self, thread: u32, space: u32, out: &mut Batch) {
        let place = (thread % self.cpus, space);
        if place != self.place {
            self.place = place;
            out.push_event(thread, Event::Run { cpu: place.0, space });
        }
    }
}

impl Mix {
    /// Opens all that `spec` names, without the part before the first `:`. `options` are for each
    /// of its traces.
    pub fn open(spec: &str, options: &Options) -> Result<Mix, Error> {
        let spec: Spec = spec.parse()?;
        let mut sources = Vec::new();
        for (name, times) in &spec.traces {
            for _ in 0..*times {
                sources.push((name.clone(), whole(name, options)?));
            }
        }
        Mix::new(spec, sources)
    }

    /// A mix of `sources` with their names, as `spec` says.
    pub fn new(spec: Spec, sources: Vec<(String, Box<dyn Source + Send>)>) -> Result<Mix, Error> {
        let header = header(&spec, &sources)?;
        let programs: Vec<Program> = (0..)
            .zip(sources)
            .map(|(number, (name, source))| Program::new(number, name, source))
            .collect();
        let count = programs.len() as u32;
        let schedule = Schedule::new(&spec, count);
        let numbers = Numbers { threads: count, spaces: count, cpus: spec.cpus, place: (0, 0) };
        Ok(Mix { header, programs, schedule, numbers, given: 0, warnings: Vec::new() })
    }
}

/// What can be said of all: the processor must be one, and so must what is left out.
fn header(spec: &Spec, sources: &[(String, Box<dyn Source + Send>)]) -> Result<Header, Error> {
    let refuse = |what: String| Err(Error::Parameters(format!("{MIX} {what}")));
    let mut header = Header {
        producer: concat!("pagewalk mix ", env!("CARGO_PKG_VERSION")).to_owned(),
        command: vec![format!("{MIX}{spec}")],
        arch: Arch::Unknown,
        fetches: false,
        filter: Filter::None,
        page_bytes: 0,
        notes: Vec::new(),
    };
    let mut of_arch = "";
    for (name, source) in sources {
        let own = source.header();
        if header.arch == Arch::Unknown {
            (header.arch, of_arch) = (own.arch, name);
        } else if own.arch != Arch::Unknown && own.arch != header.arch {
            return refuse(format!(
                "{of_arch} is of a {:?} program and {name} of a {:?} one; one machine runs \
                 programs of one instruction set: leave one of them out",
                header.arch, own.arch
            ));
        }
        if header.page_bytes != 0 && own.page_bytes != header.page_bytes {
            return refuse(format!(
                "{name} has base pages of {} bytes, the traces before it of {}; leave it out",
                own.page_bytes, header.page_bytes
            ));
        }
        header.page_bytes = own.page_bytes;
        header.fetches |= own.fetches;
        if own.filter != Filter::None {
            header.filter = own.filter;
        }
        for note in &own.notes {
            let note = format!("{name}: {note}");
            if !header.notes.contains(&note) {
                header.notes.push(note);
            }
        }
    }
    if header.fetches && sources.iter().any(|(_, source)| !source.header().fetches) {
        header.notes.push("some of the mixed traces have no fetches".to_owned());
    }
    header.notes.push(format!(
        "mixed: in order `{}`, which the machine's time does not change",
        spec.order.name()
    ));
    Ok(header)
}

impl Source for Mix {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        batch.first = self.given;
        while let Some(turn) = self.schedule.turn() {
            let program = &mut self.programs[turn.program];
            if !batch.is_empty() && program.wants_all_of_a_batch() {
                break;
            }
            let (instructions, stop) = program.take(batch, turn.instructions, &mut self.numbers)?;
            if stop == Stop::Ended {
                self.warnings.extend(program.warnings());
            }
            self.schedule.ran(turn, instructions, stop);
            if batch.len() >= BATCH_ACCESSES {
                break;
            }
        }
        self.given += batch.len() as u64;
        Ok(!batch.is_empty())
    }

    fn total(&self) -> Option<u64> {
        self.programs.iter().map(Program::total).sum()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn switches(&self) -> Option<Switches> {
        Some(self.schedule.switches())
    }

    /// That of the description and of all traces.
    fn digest(&self) -> Option<String> {
        let mut digest = Sha256::new();
        digest.update(self.schedule.described().as_bytes());
        for program in &self.programs {
            digest.update(program.digest()?.as_bytes());
        }
        Some(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
