//! The schedule: which program runs next.
//!
//! ```text
//!   cpu 0   queue  a c       clock 31M     the processor whose clock shows least runs next,
//!   cpu 1   queue  b         clock 30M  <- for a slice, or until the turn of its first program ends
//!   waiting d                              not in a queue until what it waits for has happened
//! ```
//!
//! A program's processor is that of its first thread. The clock of a processor counts the
//! instructions that ran on it, so that processors with work advance together. A program that is
//! woken goes to the end of its queue: it does not preempt the running program [assumption; Linux
//! may preempt it].

use std::collections::{BTreeMap, VecDeque};

use super::program::Stop;
use super::{Order, RECORDED, Spec, Switches};

/// A turn: a time in which the first program in a processor's queue runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) program: usize,
    /// The number of instructions that the program may run now.
    pub(super) instructions: u64,
    /// Why the processor switched to the program, if another program ran before.
    pub(super) switch: Option<&'static str>,
    cpu: usize,
}

/// Why a processor switches to another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    Quantum,
    Blocked,
    Ended,
}

impl Cause {
    const ALL: [Cause; 3] = [Cause::Quantum, Cause::Blocked, Cause::Ended];

    const fn name(self) -> &'static str {
        match self {
            Cause::Quantum => "quantum",
            Cause::Blocked => "blocked",
            Cause::Ended => "ended",
        }
    }
}

/// A processor.
#[derive(Debug)]
struct Cpu {
    /// The programs that can run on this processor; the first one runs.
    queue: VecDeque<usize>,
    /// The number of instructions run so far.
    clock: u64,
    /// The number of instructions left in the turn of the first program.
    left: u64,
    /// The program that ran last. The next field has the cause of the switch if another program
    /// runs next.
    last: Option<usize>,
    cause: Cause,
}

/// All processors.
#[derive(Debug)]
pub(super) struct Schedule {
    cpus: Vec<Cpu>,
    /// The running processor, and the number of instructions left in its slice.
    slice: (usize, u64),
    quantum: u64,
    slice_instructions: u64,
    switches: [u64; Cause::ALL.len()],
}

impl Schedule {
    /// Processors without programs.
    pub(super) fn new(spec: &Spec) -> Schedule {
        let cpu = |_| Cpu {
            queue: VecDeque::new(),
            clock: 0,
            left: spec.quantum,
            last: None,
            cause: Cause::Ended,
        };
        Schedule {
            cpus: (0..spec.cpus).map(cpu).collect(),
            slice: (0, 0),
            quantum: spec.quantum,
            slice_instructions: spec.slice,
            switches: [0; Cause::ALL.len()],
        }
    }

    /// Makes `program` runnable, because it begins or its wait has ended.
    pub(super) fn wake(&mut self, program: usize) {
        let now = self.cpus[self.slice.0].clock;
        let home = program % self.cpus.len();
        let cpu = &mut self.cpus[home];
        if cpu.queue.is_empty() {
            // The processor has been idle until now, so its clock is set to the current time.
            cpu.clock = cpu.clock.max(now);
            cpu.left = self.quantum;
            self.slice.1 = self.slice.1.min(self.slice_instructions);
        }
        cpu.queue.push_back(program);
    }

    /// The next turn; `None` if no program can run.
    pub(super) fn turn(&mut self) -> Option<Turn> {
        let (running, left) = self.slice;
        if left == 0 || self.cpus[running].queue.is_empty() {
            let cpus = self.cpus.iter().enumerate();
            let busy = cpus.filter(|(_, cpu)| !cpu.queue.is_empty());
            let alone = busy.clone().nth(1).is_none();
            let (next, _) = busy.min_by_key(|(_, cpu)| cpu.clock)?;
            self.slice = (next, if alone { u64::MAX } else { self.slice_instructions });
        }
        let (running, left) = self.slice;
        let cpu = &mut self.cpus[running];
        let program = *cpu.queue.front()?;
        let mut switch = None;
        if cpu.last.replace(program).is_some_and(|last| last != program) {
            self.switches[cpu.cause as usize] += 1;
            switch = Some(cpu.cause.name());
        }
        let instructions = if cpu.queue.len() > 1 { cpu.left.min(left) } else { left };
        Some(Turn { program, instructions, switch, cpu: running })
    }

    /// Records that the program of `turn` has run `instructions`.
    pub(super) fn ran(&mut self, turn: Turn, instructions: u64, stop: Stop) {
        let cpu = &mut self.cpus[turn.cpu];
        cpu.clock += instructions;
        cpu.left = cpu.left.saturating_sub(instructions);
        self.slice.1 = self.slice.1.saturating_sub(instructions);
        cpu.cause = match stop {
            Stop::Ended => {
                cpu.queue.pop_front();
                Cause::Ended
            }
            Stop::Budget | Stop::Batch | Stop::Asks if cpu.left > 0 => return,
            Stop::Budget | Stop::Batch | Stop::Asks => {
                cpu.queue.rotate_left(1);
                Cause::Quantum
            }
        };
        cpu.left = self.quantum;
    }

    /// Makes `program` wait; it must be runnable.
    pub(super) fn block(&mut self, program: usize) {
        let home = program % self.cpus.len();
        let cpu = &mut self.cpus[home];
        let ran = cpu.queue.front() == Some(&program);
        cpu.queue.retain(|other| *other != program);
        if ran {
            cpu.left = self.quantum;
            cpu.cause = Cause::Blocked;
        }
    }

    /// All runnable programs.
    pub(super) fn ready(&self) -> impl Iterator<Item = usize> {
        self.cpus.iter().flat_map(|cpu| cpu.queue.iter().copied())
    }

    /// The counts of switches so far, in a mix with the settings of `spec`.
    pub(super) fn switches(&self, spec: &Spec, recorded: u64, unexplained: u64) -> Switches {
        let causes = Cause::ALL.map(|cause| (cause.name(), self.switches[cause as usize]));
        let mut by_cause = BTreeMap::from(causes);
        if spec.order == Order::Stamps {
            by_cause.insert(RECORDED, recorded);
        }
        Switches {
            order: spec.order.name(),
            quantum_instructions: Some(spec.quantum),
            cpus: spec.cpus,
            by_cause,
            unexplained,
        }
    }
}
