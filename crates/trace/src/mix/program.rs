//! One program of a mix: its batches, copied piece by piece.

use rustc_hash::FxHashMap;

use super::{BATCH_ACCESSES, Numbers, RECORDED};
use crate::import::Opening;
use crate::{Batch, Error, Event, Placed, Process, Segment, Source};

/// Why a program stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// The program has run the instructions of its turn.
    Budget,
    /// The batch to which it writes is full, or its own batch is empty.
    Batch,
    /// The program's next event may concern other programs; [`Program::asked`] returns it.
    Asks,
    /// The program has ended.
    Ended,
}

/// A program and its progress.
pub(super) struct Program {
    name: String,
    /// The index of the trace that the program is from.
    pub(super) trace: u32,
    /// The program's data in the recording, if the program is one of several processes.
    process: Option<Process>,
    state: State,
    /// Whether the program runs in its parent's space.
    pub(super) shares_space: bool,
    /// The time in the recording, in nanoseconds, by which the program had made all accesses that
    /// were copied so far.
    pub(super) ns: u64,
    /// The number of bytes that the call in which the program waits has transferred through a pipe.
    pub(super) moved: u64,
    /// Whether the program may continue with the event before which it stopped, without another
    /// test.
    pub(super) may_pass: bool,
    own_space: u32,
    /// The program's current batch; the accesses before `at` and the events before `event` have been copied.
    batch: Batch,
    at: usize,
    event: usize,
    more: bool,
    /// The mix's numbers of the program's threads and spaces.
    threads: FxHashMap<u32, u32>,
    spaces: FxHashMap<u32, u32>,
    pub(super) space: u32,
}

/// The source of a program's accesses.
enum State {
    /// The program has not begun.
    Before(Opening),
    Running(Box<dyn Source + Send>),
    Ended,
}

impl Program {
    /// The program numbered `number`, which is also the number of its first thread and first space.
    pub(super) fn new(
        number: u32,
        trace: u32,
        name: String,
        process: Option<Process>,
        opening: Opening,
    ) -> Program {
        Program {
            name,
            trace,
            shares_space: process.as_ref().is_some_and(|process| process.shares_space),
            ns: process.as_ref().map_or(0, |process| process.began_ns),
            process,
            state: State::Before(opening),
            moved: 0,
            may_pass: false,
            own_space: number,
            batch: Batch::default(),
            at: 0,
            event: 0,
            more: true,
            threads: FxHashMap::from_iter([(0, number)]),
            spaces: FxHashMap::from_iter([(0, number)]),
            space: number,
        }
    }

    /// The number of the program among the processes of its recording.
    pub(super) fn number(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.number)
    }

    /// Whether the program is the child of another process.
    pub(super) fn is_child(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.parent.is_some())
    }

    /// Whether the program has not begun, has the process id `pid`, and is a child of `parent` (of
    /// any process, if `parent` is `None`).
    pub(super) fn is_new_child(&self, pid: i64, parent: Option<u32>) -> bool {
        let begins = matches!(self.state, State::Before(_));
        self.process.as_ref().filter(|_| begins).is_some_and(|process| {
            i64::from(process.pid) == pid && parent.is_some() && process.parent == parent
        })
    }

    /// The name of the program's trace in messages.
    pub(super) fn trace_name(&self) -> &str {
        self.name.rsplit_once(": process ").map_or(&self.name, |(trace, _)| trace)
    }

    /// Whether the program has the process id `pid`.
    pub(super) fn is_process(&self, pid: i64) -> bool {
        self.process.as_ref().is_some_and(|process| i64::from(process.pid) == pid)
    }

    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.state, State::Before(_))
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Ends the program. Returns the warnings that occurred, and the digest of its trace.
    pub(super) fn end(&mut self) -> (Vec<String>, Option<String>) {
        let State::Running(source) = std::mem::replace(&mut self.state, State::Ended) else {
            return (Vec::new(), None);
        };
        let warnings = source.warnings().iter();
        let warnings = warnings.map(|warning| format!("{}: {warning}", self.name)).collect();
        (warnings, source.digest())
    }

    /// The event before which the program stopped with [`Stop::Asks`].
    pub(super) fn asked(&self) -> Option<&Event> {
        Some(&self.batch.events.get(self.event)?.event)
    }

    /// Continues with the event before which the program stopped.
    pub(super) fn pass(&mut self, out: &mut Batch, numbers: &mut Numbers) {
        (self.moved, self.may_pass) = (0, false);
        let Some(placed) = self.batch.events.get(self.event) else { return };
        self.event += 1;
        if matches!(placed.event, Event::Execve { result: 0, .. }) && self.shares_space {
            self.shares_space = false;
            self.space = self.own_space;
        }
        let thread = number(&mut self.threads, placed.thread, &mut numbers.threads);
        numbers.run(thread, self.number(), self.space, out);
        out.push_event(thread, placed.event.clone());
    }

    /// Reads the next batch of the program's source. Returns false if there are no more accesses.
    fn read(&mut self) -> Result<bool, Error> {
        if let State::Before(_) = self.state
            && let State::Before(opening) = std::mem::replace(&mut self.state, State::Ended)
        {
            self.state = State::Running(opening()?);
        }
        match &mut self.state {
            State::Running(source) => source.next(&mut self.batch),
            State::Before(_) | State::Ended => Ok(false),
        }
    }

    /// Whether the program is at the beginning of a batch that it wants to copy completely. Such a
    /// batch can be moved to the output without copying, if the output is empty.
    pub(super) fn wants_all_of_a_batch(&self) -> bool {
        self.more && self.at == self.batch.len()
    }

    /// Appends the program's next accesses and events to `out`: about `budget` instructions, or
    /// more if the last access counts more. Returns the number of instructions.
    pub(super) fn take(
        &mut self,
        out: &mut Batch,
        budget: u64,
        numbers: &mut Numbers,
    ) -> Result<(u64, Stop), Error> {
        if self.at == self.batch.len() && self.event == self.batch.events.len() {
            if !self.more {
                return Ok((0, Stop::Ended));
            }
            self.more = self.read()?;
            (self.at, self.event) = (0, 0);
            if out.is_empty() && self.is_plain(numbers) {
                let instructions = sum(&self.batch.meta);
                if instructions < budget {
                    self.take_whole(out, numbers);
                    return Ok((instructions, Stop::Batch));
                }
            }
        }
        let mut ran = 0;
        loop {
            if self.take_events(out, numbers) {
                return Ok((ran, Stop::Asks));
            }
            if self.at == self.batch.len() {
                if !self.more {
                    return Ok((ran, Stop::Ended));
                }
                if ran < budget {
                    return Ok((ran, Stop::Batch));
                }
                // Reads ahead, so that a program without more accesses ends in this turn and does
                // not get another.
                self.more = self.read()?;
                (self.at, self.event) = (0, 0);
                continue;
            }
            if ran >= budget {
                return Ok((ran, Stop::Budget));
            }
            if out.len() >= BATCH_ACCESSES {
                return Ok((ran, Stop::Batch));
            }
            ran += self.take_piece(out, budget - ran, numbers);
        }
    }

    /// Whether all of the program's batch is in one space and on one processor, and no event in it
    /// concerns other programs.
    fn is_plain(&mut self, numbers: &mut Numbers) -> bool {
        let cpus = numbers.cpus;
        let mut segments = self.batch.segments.iter();
        let mut cpu = |segment: &Segment| {
            let next = &mut numbers.threads;
            number(&mut self.threads, segment.thread, next) % cpus
        };
        let Some(first) = segments.next().map(&mut cpu) else { return false };
        segments.all(|segment| cpu(segment) == first)
            && !self.batch.events.iter().any(|placed| {
                let event = &placed.event;
                let dropped = self.shares_space && matches!(event, Event::Mapping { .. });
                let enters = matches!(event, Event::Run { .. } | Event::Process { .. });
                dropped || enters || self.asks(event, numbers)
            })
    }

    /// Whether `event` may concern other programs.
    fn asks(&self, event: &Event, numbers: &Numbers) -> bool {
        match event {
            Event::Fork { result: 1.., .. } if self.process.is_some() => true,
            Event::Execve { result: 0, .. } if self.shares_space => true,
            Event::Call(_) if numbers.waits && self.process.is_some() => true,
            Event::Call(_) => false,
            crate::events!(memory) | crate::events!(program) => false,
            crate::events!(lives) | crate::events!(stream) => false,
            crate::events!(translation) => false,
        }
    }

    /// Moves all of the program's batch to `out`, which has no access; the buffers are exchanged.
    fn take_whole(&mut self, out: &mut Batch, numbers: &mut Numbers) {
        for index in 0..self.batch.segments.len() {
            let Segment { start, thread } = self.batch.segments[index];
            let thread = number(&mut self.threads, thread, &mut numbers.threads);
            if index == 0 {
                numbers.run(thread, self.number(), self.space, out);
            }
            out.segments.push(Segment { start, thread });
        }
        for placed in self.batch.events.drain(..) {
            let thread = number(&mut self.threads, placed.thread, &mut numbers.threads);
            out.events.push(Placed { thread, ..placed });
        }
        std::mem::swap(&mut out.addr, &mut self.batch.addr);
        std::mem::swap(&mut out.meta, &mut self.batch.meta);
        std::mem::swap(&mut out.paddr, &mut self.batch.paddr);
        self.ns = self.batch.stamps.last().map_or(self.ns, |stamp| stamp.ns);
        self.batch.clear();
    }

    /// Appends the events before the next access. Returns true if it stops before an event that may
    /// concern other programs.
    fn take_events(&mut self, out: &mut Batch, numbers: &mut Numbers) -> bool {
        while let Some(placed) = self.batch.events.get(self.event) {
            if placed.at as usize > self.at {
                break;
            }
            if self.asks(&placed.event, numbers) {
                return true;
            }
            self.event += 1;
            // The parent's mappings in the shared space exist already.
            if self.shares_space && matches!(placed.event, Event::Mapping { .. }) {
                continue;
            }
            if let Event::Run { space, .. } = placed.event {
                self.space = number(&mut self.spaces, space, &mut numbers.spaces);
                continue;
            }
            if let Event::Process { .. } = placed.event {
                // In the order `stamps`, all processes of a recording are one program.
                numbers.recorded += 1;
                out.switches.push((out.len() as u32, RECORDED));
                if numbers.process.is_none() {
                    continue;
                }
            }
            let thread = number(&mut self.threads, placed.thread, &mut numbers.threads);
            numbers.run(thread, self.number(), self.space, out);
            out.push_event(thread, placed.event.clone());
        }
        false
    }

    /// Appends accesses of one thread up to the next event, of about `budget` instructions, as far
    /// as `out` has room. Returns their number of instructions.
    fn take_piece(&mut self, out: &mut Batch, budget: u64, numbers: &mut Numbers) -> u64 {
        let segments = &self.batch.segments;
        let later = segments.partition_point(|segment| segment.start as usize <= self.at);
        let event = self.batch.events.get(self.event).map(|placed| placed.at as usize);
        let segment = segments.get(later).map(|segment| segment.start as usize);
        let room = self.at + (BATCH_ACCESSES - out.len());
        let end =
            [event, segment].into_iter().flatten().fold(self.batch.len().min(room), usize::min);
        let mut ran = sum(&self.batch.meta[self.at..end]);
        let mut to = end;
        if ran >= budget {
            (to, ran) = (self.at, 0);
            while ran < budget && to < end {
                ran += u64::from(self.batch.meta[to].instructions());
                to += 1;
            }
        }
        let thread = segments[later - 1].thread;
        let thread = number(&mut self.threads, thread, &mut numbers.threads);
        numbers.run(thread, self.number(), self.space, out);
        if out.segments.last().is_none_or(|segment| segment.thread != thread) {
            out.segments.push(Segment { start: out.len() as u32, thread });
        }
        let physical = !self.batch.paddr.is_empty();
        if physical || !out.paddr.is_empty() {
            // 0 stands for an unknown physical address.
            out.paddr.resize(out.addr.len(), 0);
            match physical {
                true => out.paddr.extend_from_slice(&self.batch.paddr[self.at..to]),
                false => out.paddr.resize(out.addr.len() + (to - self.at), 0),
            }
        }
        out.addr.extend_from_slice(&self.batch.addr[self.at..to]);
        out.meta.extend_from_slice(&self.batch.meta[self.at..to]);
        self.at = to;
        let done = self.batch.stamps.partition_point(|stamp| stamp.at as usize <= to);
        if let Some(stamp) = done.checked_sub(1).and_then(|last| self.batch.stamps.get(last)) {
            self.ns = self.ns.max(stamp.ns);
        }
        ran
    }
}

/// The number of instructions that some accesses count. The sums are small enough for vector
/// instructions.
fn sum(metas: &[crate::Meta]) -> u64 {
    let some = metas.chunks(1 << 16);
    some.map(|some| u64::from(some.iter().map(|meta| meta.instructions()).sum::<u32>())).sum()
}

/// The number in the mix for `own`, a number in the recording. A new number gets the value of
/// `next`.
fn number(numbers: &mut FxHashMap<u32, u32>, own: u32, next: &mut u32) -> u32 {
    *numbers.entry(own).or_insert_with(|| {
        *next += 1;
        *next - 1
    })
}
