//! Several programs in one trace: when, and on which processor, each of them runs.
//!
//! ```text
//!   a.pwt --> Program --\                        Run { cpu: 0, space: 0 }  a's accesses
//!   a.pwt --> Program ---+--> Schedule --------> Run { cpu: 1, space: 1 }  a's accesses
//!   b.pwt --> Program --/     whose turn         Run { cpu: 0, space: 2 }  b's accesses ...
//!                  \--calls--> Pipes: who waits for whom
//! ```
//!
//! A program is a trace, or one process of a recording of several. Each has its own threads and
//! address spaces, which are renumbered: the first thread and the first space of the i-th program
//! get the number i. Thread t runs on processor t mod N. The accesses and the threads of one
//! program keep their order.
//!
//! Programs whose first threads share a processor take turns on it ([`schedule`]), and wait for
//! each other at recorded calls ([`calls`]). A process begins when its parent forks it. Time is
//! counted in instructions. So the order does not depend on the machine, and the traces are decoded
//! only once for a whole sweep.

mod calls;
mod program;
mod schedule;
mod spec;

use std::collections::BTreeMap;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::import::{Opening, Options, own};
use crate::{Arch, Batch, Error, Event, Filter, Header, Process, Reader, Source, Stored};
use calls::{Pipes, Wait};
use program::{Program, Stop};
use schedule::Schedule;

pub use crate::switches::Switches;
pub use spec::{Order, Spec};

/// The approximate number of accesses per batch.
const BATCH_ACCESSES: usize = 1 << 16;

/// The prefix of a mix's description.
pub(crate) const MIX: &str = "mix:";

/// Linux's flag: the parent waits until the child executes another program or ends.
const CLONE_VFORK: u64 = 0x4000;

/// One of the traces of a mix: the whole trace, or its processes.
pub struct Part {
    name: String,
    header: Header,
    total: Option<u64>,
    digest: Option<String>,
    stored: Option<Stored>,
    processes: Vec<Process>,
    warnings: Vec<String>,
    programs: Vec<(Option<Process>, Opening)>,
}

impl Part {
    /// The whole of `source`, which messages call `name`.
    pub fn whole(name: String, source: Box<dyn Source + Send>) -> Part {
        Part {
            name,
            header: source.header().clone(),
            total: source.total(),
            digest: source.digest(),
            stored: source.stored(),
            processes: source.processes().to_vec(),
            // Warnings are added at the end of the trace.
            warnings: Vec::new(),
            programs: vec![(None, Box::new(|| Ok(source)))],
        }
    }

    /// The processes of the recording `reader`, which is called `name`.
    pub(crate) fn recording(name: &str, reader: Reader, options: &Options) -> Part {
        Part {
            name: name.to_owned(),
            header: reader.header().clone(),
            total: reader.total(),
            digest: reader.digest(),
            stored: reader.stored(),
            processes: reader.processes().to_vec(),
            warnings: own::warnings(&reader, Path::new(name)),
            programs: own::processes(reader, options.keep_going),
        }
    }
}

/// Several programs as one source.
pub struct Mix {
    spec: Spec,
    header: Header,
    programs: Vec<Program>,
    /// The processes, if the mix consists of a single recording.
    processes: Vec<Process>,
    stored: Option<Stored>,
    total: Option<u64>,
    /// The digests of the traces, as far as they are known.
    digests: Vec<Option<String>>,
    schedule: Schedule,
    pipes: Pipes,
    /// For each program: what it waits for, and when this wait ended in the recording.
    waits: Vec<Option<(Wait, u64)>>,
    unexplained: u64,
    /// For each trace: whether its processes have reported a call.
    has_calls: Vec<bool>,
    numbers: Numbers,
    /// The number of accesses given so far.
    given: u64,
    warnings: Vec<String>,
    ended: bool,
}

/// The numbers of threads and spaces in the mix, and the processor and space of the last access.
#[derive(Debug)]
pub(crate) struct Numbers {
    threads: u32,
    spaces: u32,
    cpus: u32,
    /// Whether programs wait for each other.
    waits: bool,
    /// Processor and space of the last [`Event::Run`]. The first one comes before everything else,
    /// because it shows that there is a schedule.
    place: Option<(u32, u32)>,
    /// The process that ran last, in a recording of several processes that is not mixed with
    /// others.
    process: Option<u32>,
    /// How many times recorded programs switched in the order of their recordings.
    recorded: u64,
}

impl Switches {
    /// This schedule with all counts of switches set to zero.
    pub(crate) fn none(mut self) -> Switches {
        self.by_cause.values_mut().for_each(|times| *times = 0);
        Switches { unexplained: 0, ..self }
    }

    /// Counts `times` switches with the cause `cause`, which has the name used in batches.
    pub(crate) fn count(&mut self, cause: &'static str, times: u64) {
        match cause {
            UNEXPLAINED => self.unexplained += times,
            _ => *self.by_cause.entry(cause).or_insert(0) += times,
        }
    }

    /// The counts for a recording whose processes run in the order of their time stamps, as a
    /// running program's do.
    pub fn recorded(switches: u64) -> Switches {
        Switches {
            order: Order::Stamps.name(),
            quantum_instructions: None,
            cpus: 1,
            by_cause: BTreeMap::from([(RECORDED, switches)]),
            unexplained: 0,
        }
    }
}

/// The cause, in a batch, of a switch after a wait that nothing ended.
const UNEXPLAINED: &str = "unexplained";

/// The cause, in a mix, of a switch that was made because processes switched there when they were
/// recorded.
pub(crate) const RECORDED: &str = "recorded";

impl Numbers {
    /// Adds events to `out` if `thread` of `process` continues in `space` on another processor, in
    /// another space or in another process than the last access.
    fn run(&mut self, thread: u32, process: Option<u32>, space: u32, out: &mut Batch) {
        if let (Some(last), Some(number)) = (&mut self.process, process)
            && *last != number
        {
            *last = number;
            out.push_event(thread, Event::Process { number });
        }
        let place = (thread % self.cpus, space);
        if self.place.replace(place) != Some(place) {
            out.push_event(thread, Event::Run { cpu: Some(place.0), space });
        }
    }
}

impl Mix {
    /// The recording at `path` in the default order, if it has several processes.
    pub(crate) fn of_recording(path: &Path, options: &Options) -> Result<Option<Mix>, Error> {
        let Some(name) = path.to_str() else { return Ok(None) };
        // `Part::open` is not used here, because it also opens files that are not recordings.
        let Some(reader) = own::recording(path, options)? else { return Ok(None) };
        let part = Part::recording(name, reader, options);
        Mix::new(Spec::of_recording(name), vec![part]).map(Some)
    }

    /// A mix of `parts`, with the settings in `spec`.
    pub fn new(spec: Spec, parts: Vec<Part>) -> Result<Mix, Error> {
        let header = header(&spec, &parts)?;
        let total = parts.iter().map(|part| part.total).sum();
        let digests = parts.iter().map(|part| part.digest.clone()).collect();
        let mut programs = Vec::new();
        let warnings = parts.iter().flat_map(|part| part.warnings.clone()).collect();
        let (count, stored) = (parts.len(), parts.first().and_then(|part| part.stored));
        let processes = match &parts[..] {
            [part] => part.processes.clone(),
            _ => Vec::new(),
        };
        for (trace, part) in (0..).zip(parts) {
            for (process, opening) in part.programs {
                let number = programs.len() as u32;
                let name = match &process {
                    Some(process) => format!("{}: process {}", part.name, process.pid),
                    None => part.name.clone(),
                };
                programs.push(Program::new(number, trace, name, process, opening));
            }
        }
        let mut schedule = Schedule::new(&spec);
        let children = |(_, program): &(usize, &Program)| !program.is_child();
        let first = programs.iter().enumerate().filter(children).map(|(number, _)| number);
        first.for_each(|number| schedule.wake(number));
        let numbers = Numbers {
            threads: programs.len() as u32,
            spaces: programs.len() as u32,
            cpus: spec.cpus,
            waits: spec.order == Order::Blocking,
            place: None,
            process: (count == 1).then_some(0),
            recorded: 0,
        };
        Ok(Mix {
            header,
            processes,
            stored: stored.filter(|_| count == 1),
            total,
            digests,
            schedule,
            pipes: Pipes::new(spec.pipe_bytes),
            waits: programs.iter().map(|_| None).collect(),
            unexplained: 0,
            has_calls: vec![false; count],
            numbers,
            given: 0,
            warnings,
            ended: false,
            programs,
            spec,
        })
    }

    /// Handles a stop of `program` before an event that concerns other programs.
    fn ask(&mut self, number: usize, out: &mut Batch) {
        let program = &self.programs[number];
        let (trace, own, may_pass) = (program.trace, program.number(), program.may_pass);
        let wait = match program.asked() {
            Some(Event::Fork { result, flags }) => {
                let (result, flags) = (*result, *flags);
                let child = self
                    .programs
                    .iter()
                    .position(|child| child.trace == trace && child.is_new_child(result, own));
                self.programs[number].pass(out, &mut self.numbers);
                if let Some(child) = child {
                    if self.programs[child].shares_space {
                        self.programs[child].space = self.programs[number].space;
                    }
                    self.schedule.wake(child);
                }
                let waits = child.filter(|_| flags & CLONE_VFORK != 0);
                waits.map(|child| (Wait::Leaves(child), self.programs[child].ns))
            }
            Some(Event::Call(call)) => {
                self.has_calls[trace as usize] = true;
                let mut moved = program.moved;
                let wait = self
                    .pipes
                    .ask((trace, number), call, &mut moved)
                    .map(|wait| (wait, call.ended_ns));
                self.programs[number].moved = moved;
                // The reader or writer at the other end of the pipe may now continue.
                self.look(|wait| matches!(wait, Wait::Data(_) | Wait::Room(..)));
                let wait = wait.filter(|(wait, _)| !may_pass && !self.is_over(number, wait));
                if wait.is_none() {
                    self.programs[number].pass(out, &mut self.numbers);
                }
                wait
            }
            _ => {
                self.programs[number].pass(out, &mut self.numbers);
                self.look(|wait| matches!(wait, Wait::Leaves(_)));
                None
            }
        };
        if wait.is_some() {
            self.waits[number] = wait;
            self.schedule.block(number);
        }
    }

    /// Whether the wait `wait` of the program `number` is over.
    fn is_over(&self, number: usize, wait: &Wait) -> bool {
        let trace = self.programs[number].trace;
        let own = |program: &&Program| program.trace == trace;
        match wait {
            Wait::Data(_) | Wait::Room(..) => self.pipes.allows(wait),
            Wait::Closed(pipe, ns) => {
                let mut writers = self.pipes.writers(pipe).iter().filter(|one| **one != number);
                writers.all(|one| self.programs[*one].has_ended() || self.programs[*one].ns >= *ns)
            }
            Wait::Child(pid) => {
                let mut processes = self.programs.iter().filter(own);
                processes.all(|child| !child.is_process(*pid) || child.has_ended())
            }
            Wait::Leaves(child) => {
                let child = &self.programs[*child];
                child.has_ended() || !child.shares_space
            }
            Wait::Time(ns) => {
                let others = self.schedule.ready().filter(|other| *other != number);
                let mut others = others.map(|other| &self.programs[other]).filter(own);
                let earlier = |other: &Option<(Wait, u64)>| match other {
                    Some((Wait::Time(other), _)) => other < ns,
                    _ => false,
                };
                let mut waiting = self.programs.iter().zip(&self.waits);
                others.all(|other| other.ns >= *ns)
                    && !waiting.any(|(other, wait)| own(&other) && earlier(wait))
            }
        }
    }

    /// Wakes the programs whose wait is of a kind that `ways` accepts and has ended.
    fn look(&mut self, ways: impl Fn(&Wait) -> bool) {
        for number in 0..self.waits.len() {
            if let Some((wait, _)) = self.waits[number]
                && ways(&wait)
                && self.is_over(number, &wait)
            {
                self.go_on(number, wait);
            }
        }
    }

    /// Lets the program `number` continue after its wait has ended.
    fn go_on(&mut self, number: usize, wait: Wait) {
        self.waits[number] = None;
        match wait {
            // The program tries its call again, since there may not be enough data or room.
            Wait::Data(_) | Wait::Room(..) | Wait::Leaves(_) => {}
            Wait::Closed(..) | Wait::Child(_) | Wait::Time(_) => {
                self.programs[number].may_pass = true;
            }
        }
        self.schedule.wake(number);
    }

    /// Called if no program can run. The program whose wait ended first in the recording continues.
    /// Returns false if no program waits.
    fn release(&mut self, out: &mut Batch) -> bool {
        let waiting = self.waits.iter().enumerate();
        let waiting = waiting.filter_map(|(number, wait)| Some((wait.as_ref()?.1, number)));
        if let Some((_, number)) = waiting.min() {
            self.unexplained += 1;
            out.switches.push((out.len() as u32, UNEXPLAINED));
            self.waits[number] = None;
            self.programs[number].may_pass = true;
            self.schedule.wake(number);
            return true;
        }
        // Otherwise, begins a child whose fork is not in the recording.
        let child = self.programs.iter().position(|program| !program.has_begun());
        child.inspect(|child| self.schedule.wake(*child)).is_some()
    }

    /// Handles the end of the program `number`.
    fn end(&mut self, number: usize) {
        let (warnings, digest) = self.programs[number].end();
        self.warnings.extend(warnings);
        let trace = self.programs[number].trace as usize;
        if self.digests[trace].is_none() {
            self.digests[trace] = digest;
        }
        self.look(|wait| !matches!(wait, Wait::Data(_) | Wait::Room(..)));
    }

    /// Adds the warnings at the end.
    fn close(&mut self) {
        if std::mem::replace(&mut self.ended, true) || !self.numbers.waits {
            return;
        }
        for (trace, has_calls) in (0..).zip(&self.has_calls) {
            let mut own = self.programs.iter().filter(|program| program.trace == trace);
            if own.clone().nth(1).is_some()
                && !has_calls
                && let Some(name) = own.next().map(|program| program.trace_name().to_owned())
            {
                self.warnings.push(format!(
                    "{name}: recorded without --calls: its processes take turns by time slices, \
                     and wait for each other only at a vfork"
                ));
            }
        }
    }
}

/// The header of the mix. All parts must have the same instruction set and filter, so that the
/// header is true for each.
fn header(spec: &Spec, parts: &[Part]) -> Result<Header, Error> {
    let note = format!(
        "programs run in the order `{}`, which does not depend on the time that they take on the \
         machine",
        spec.order.name()
    );
    if let [Part { header, .. }] = parts {
        let mut header = header.clone();
        header.notes.push(note);
        return Ok(header);
    }
    let refuse = |what: String| Err(Error::Parameters(format!("{MIX} {what}")));
    let mut header = Header {
        producer: concat!("pagewalk mix ", env!("CARGO_PKG_VERSION")).to_owned(),
        command: vec![format!("{MIX}{spec}")],
        arch: Arch::Unknown,
        fetches: false,
        filter: Filter::None,
        page_bytes: 0,
        notes: Vec::new(),
        kernel_from: None,
    };
    let mut of_arch = "";
    for Part { name, header: own, .. } in parts {
        if header.arch == Arch::Unknown {
            (header.arch, of_arch) = (own.arch, name);
        } else if own.arch != Arch::Unknown && own.arch != header.arch {
            return refuse(format!(
                "{of_arch} was recorded on {}, but {name} on {}; a machine runs programs of one \
                 instruction set: leave one of them out",
                header.arch.name(),
                own.arch.name()
            ));
        }
        if header.page_bytes != 0 && own.page_bytes != header.page_bytes {
            return refuse(format!(
                "{name} has base pages of {} bytes, but the traces before it have {}; leave it out",
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
    if header.fetches && parts.iter().any(|part| !part.header.fetches) {
        header.notes.push("some of the mixed traces have no fetches".to_owned());
    }
    header.notes.push(note);
    Ok(header)
}

impl Source for Mix {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        batch.first = self.given;
        while batch.len() < BATCH_ACCESSES {
            self.look(|wait| matches!(wait, Wait::Time(_) | Wait::Closed(..)));
            let Some(turn) = self.schedule.turn() else {
                if self.release(batch) {
                    continue;
                }
                self.close();
                break;
            };
            batch.switches.extend(turn.switch.map(|cause| (batch.len() as u32, cause)));
            let program = &mut self.programs[turn.program];
            if !batch.is_empty() && program.wants_all_of_a_batch() {
                break;
            }
            let (instructions, stop) = program.take(batch, turn.instructions, &mut self.numbers)?;
            self.schedule.ran(turn, instructions, stop);
            match stop {
                Stop::Asks => self.ask(turn.program, batch),
                Stop::Ended => self.end(turn.program),
                Stop::Budget | Stop::Batch => {}
            }
        }
        self.given += batch.len() as u64;
        Ok(!batch.is_empty())
    }

    fn total(&self) -> Option<u64> {
        self.total
    }

    fn stored(&self) -> Option<Stored> {
        self.stored
    }

    fn processes(&self) -> &[Process] {
        &self.processes
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn switches(&self) -> Option<Switches> {
        if self.spec.order == Order::Stamps && self.programs.len() == 1 {
            // In this order, programs do not take turns.
            let recorded = Switches::recorded(self.numbers.recorded);
            return Some(Switches { cpus: self.spec.cpus, ..recorded });
        }
        Some(self.schedule.switches(&self.spec, self.numbers.recorded, self.unexplained))
    }

    /// The digest of the description and of all traces.
    fn digest(&self) -> Option<String> {
        let mut digest = Sha256::new();
        digest.update(format!("mix 1 {}", Spec { traces: Vec::new(), ..self.spec.clone() }));
        for one in &self.digests {
            digest.update(one.as_ref()?);
        }
        Some(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
