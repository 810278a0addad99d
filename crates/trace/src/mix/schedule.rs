//! Whose turn it is.
//!
//! ```text
//!   cpu 0   queue  a c       clock 31M     the processor whose clock shows least runs next,
//!   cpu 1   queue  b         clock 30M  <- for a slice, or until the turn of its first program ends
//! ```
//!
//! A program waits at the processor of its first thread. The clock of a processor counts the
//! instructions that it ran, so that processors which have work run side by side.

use std::collections::{BTreeMap, VecDeque};

use super::program::Stop;
use super::{Spec, Switches};

/// What a processor gives its first program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) program: usize,
    /// Instructions that it may run now.
    pub(super) instructions: u64,
    cpu: usize,
}

/// Why a processor goes on with another program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cause {
    Quantum,
    Ended,
}

impl Cause {
    const ALL: [Cause; 2] = [Cause::Quantum, Cause::Ended];

    const fn name(self) -> &'static str {
        match self {
            Cause::Quantum => "quantum",
            Cause::Ended => "ended",
        }
    }
}

/// A processor.
#[derive(Debug)]
struct Cpu {
    /// Who wants to run here; the first one does.
    queue: VecDeque<usize>,
    /// Instructions run so far.
    clock: u64,
    /// Instructions that are left of the first one's turn.
    left: u64,
}

/// All processors.
#[derive(Debug)]
pub(super) struct Schedule {
    cpus: Vec<Cpu>,
    /// The processor that runs, and what is left of its slice.
    slice: (usize, u64),
    quantum: u64,
    slice_instructions: u64,
    described: String,
    order: &'static str,
    switches: [u64; Cause::ALL.len()],
}

impl Schedule {
    /// Programs with the numbers below `count`, none of which has run.
    pub(super) fn new(spec: &Spec, count: u32) -> Schedule {
        let cpu = |number| Cpu {
            queue: (number..count as usize).step_by(spec.cpus as usize).collect(),
            clock: 0,
            left: spec.quantum,
        };
        Schedule {
            cpus: (0..spec.cpus as usize).map(cpu).collect(),
            slice: (0, 0),
            quantum: spec.quantum,
            slice_instructions: spec.slice,
            described: spec.to_string(),
            order: spec.order.name(),
            switches: [0; Cause::ALL.len()],
        }
    }

    /// The next turn; `None` when all have ended.
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
        let cpu = &self.cpus[running];
        let instructions = if cpu.queue.len() > 1 { cpu.left.min(left) } else { left };
        Some(Turn { program: *cpu.queue.front()?, instructions, cpu: running })
    }

    /// The program of `turn` has run so many instructions.
    pub(super) fn ran(&mut self, turn: Turn, instructions: u64, stop: Stop) {
        let cpu = &mut self.cpus[turn.cpu];
        cpu.clock += instructions;
        cpu.left = cpu.left.saturating_sub(instructions);
        self.slice.1 = self.slice.1.saturating_sub(instructions);
        let cause = match stop {
            Stop::Ended => {
                cpu.queue.pop_front();
                Cause::Ended
            }
            Stop::Budget | Stop::Batch if cpu.left > 0 => return,
            Stop::Budget | Stop::Batch => {
                cpu.queue.rotate_left(1);
                Cause::Quantum
            }
        };
        cpu.left = self.quantum;
        if cpu.queue.front().is_some_and(|next| *next != turn.program) {
            self.switches[cause as usize] += 1;
        }
    }

    /// The description of the mix.
    pub(super) fn described(&self) -> &str {
        &self.described
    }

    /// What has been done so far.
    pub(super) fn switches(&self) -> Switches {
        let causes = Cause::ALL.map(|cause| (cause.name(), self.switches[cause as usize]));
        Switches {
            order: self.order,
            quantum_instructions: self.quantum,
            cpus: self.cpus.len() as u32,
            by_cause: BTreeMap::from(causes),
        }
    }
}
