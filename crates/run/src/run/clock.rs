//! The clock of the operating system, and what is due by it.
//!
//! ```text
//!   full           instructions x cycles + lookups of second-level TLBs + walks, at a nominal price
//!                  + the kernel's counted work + waiting for disks
//!   instructions   instructions x cycles
//! ```
//!
//! Both consist of what the front knows. What lies behind the TLBs costs a walk the same in every
//! design, so that no MMU cache and no data cache changes what the operating system does. The
//! `full` clock differs between TLBs; that of instructions is the same for all of them.
//!
//! The clock is worked out of the counts when somebody asks, so that nobody pays for it where the
//! operating system has no deadline. With one, a stretch of accesses ends after each fault while the deadline
//! is so far that no number of misses brings it near. Then it ends where instructions alone reach the
//! deadline, and after each miss:
//!
//! ```text
//!   hit miss hit miss hit fault | hit hit miss | hit hit hit | tick | hit miss ...
//!   far: every access misses    ^ the clock    ^ near        ^ the deadline
//! ```
//!
//! Each processor has a clock of its own; a deadline is due when the one that runs has reached it.

use std::{collections::VecDeque, ops::Range};

use addr::{Kind, PhysAddr, VirtAddr};
use description::{Clock, Costs, Description, Error};
use hardware::{behind::Behind, processor::Processor, tlbs::NONE};
use os::at::Change;
use results::ChangedSetting;
use trace::{Batch, Meta};

use super::{
    Run,
    access::{PHYSICAL, UNCACHED, VIRTUAL},
};

/// Accesses that run near a deadline before the clock is read again, at most.
const STRETCH_MAX: usize = 256;

/// Accesses whose instructions are added up at once, far from a deadline.
const SUMMED: usize = 1024;

/// From counts to cycles.
pub(super) struct Prices {
    clock: Clock,
    cycles_per_instruction: f64,
    costs: Option<Costs>,
}

impl Prices {
    pub(super) fn new(description: &Description, clock: Clock) -> Prices {
        Prices {
            clock,
            cycles_per_instruction: description.core.cycles_per_instruction.unwrap_or(1.0),
            costs: description.os.costs.clone(),
        }
    }

    /// What the kernel's work costs, if that is known.
    pub(super) fn costs(&self) -> Option<&Costs> {
        self.costs.as_ref()
    }

    /// The clock of `processor`, in cycles since its counts began.
    pub(super) fn cycles(&self, processor: &Processor) -> u64 {
        let Processor { hardware, counts, .. } = processor;
        let cycles = self.of_instructions(counts.instructions);
        if self.clock == Clock::Instructions {
            return cycles;
        }
        let (mut lookups, mut walks) = (0, 0);
        for kind in Kind::ALL.map(|kind| kind as usize) {
            let misses = |unit: usize| hardware.units[unit].counts.misses[kind];
            let (first, second) = (hardware.first[kind], hardware.second[kind]);
            if second != NONE {
                lookups += misses(first) * hardware.units[second].latency_cycles;
                walks += misses(second);
            } else if first != NONE {
                walks += misses(first);
            }
        }
        let kernel = self.costs.as_ref().map_or(0, |costs| {
            walks * u64::from(costs.walk_cycles)
                + counts.work_cycles
                + counts.switch_cycles
                + counts.shootdowns.sender_cycles
                + counts.shootdowns.receiver_cycles
        });
        cycles + lookups + kernel + counts.io_cycles
    }

    /// How many of `metas` run on `processor` until instructions alone bring its clock from `now`
    /// to `deadline`: all, if they do not.
    fn until(&self, metas: &[Meta], processor: &Processor, now: u64, deadline: u64) -> usize {
        let mut instructions = processor.counts.instructions;
        let rest = now - self.of_instructions(instructions);
        let reaches = |meta: &Meta| {
            instructions += u64::from(meta.instructions());
            rest + self.of_instructions(instructions) >= deadline
        };
        metas.iter().position(reaches).map_or(metas.len(), |last| last + 1)
    }

    /// How many of `metas` run on `processor` without bringing its clock `cycles` further, even if each
    /// looks up `lookups` pages that no TLB holds; as long as there is no fault.
    fn surely_before(
        &self,
        metas: &[Meta],
        processor: &Processor,
        cycles: u64,
        lookups: u64,
    ) -> usize {
        let hardware = &processor.hardware;
        let slowest = hardware.units.iter().map(|unit| unit.latency_cycles).max().unwrap_or(0);
        let walk_cycles = self.costs.as_ref().map_or(0, |costs| u64::from(costs.walk_cycles));
        let each = if self.clock == Clock::Full { lookups * (slowest + walk_cycles) } else { 0 };
        let (mut surely, mut instructions) = (0, 0);
        for some in metas.chunks(SUMMED) {
            instructions += u64::from(some.iter().map(|meta| meta.instructions()).sum::<u32>());
            // Cycles of instructions are rounded down before and after.
            let most = self.of_instructions(instructions) + 2 + (surely + some.len()) as u64 * each;
            if most >= cycles {
                break;
            }
            surely += some.len();
        }
        surely
    }

    fn of_instructions(&self, instructions: u64) -> u64 {
        (instructions as f64 * self.cycles_per_instruction) as u64
    }
}

/// The operating system's clock, and what is due by it.
pub(super) struct Timing {
    pub(super) prices: Prices,
    /// Settings that will change, in the order of time.
    changes: VecDeque<Change>,
    /// Whether the system wants to be woken since the last fault.
    pub(super) has_new_deadline: bool,
}

impl Timing {
    pub(super) fn new(description: &Description, clock: Clock, changes: Vec<Change>) -> Timing {
        let prices = Prices::new(description, clock);
        Timing { prices, changes: changes.into(), has_new_deadline: false }
    }
}

impl Run {
    /// The clock of the processor that runs, in cycles since the run began.
    pub(super) fn now(&self) -> u64 {
        let processor = &self.processors.here;
        processor.cycles_before + self.timing.prices.cycles(processor)
    }

    /// What the operating system's time is made of.
    pub fn clock(&self) -> Clock {
        self.timing.prices.clock
    }

    /// Runs accesses among which there is no event. Where pages lie as the trace says, each row is
    /// told of before it runs.
    pub(super) fn span<const CHECK: bool>(
        &mut self,
        batch: &Batch,
        span: Range<usize>,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        let mut from = span.start;
        while let Some(recorded) = self.system.recorded().filter(|_| from < span.end) {
            let position = self.seen.position;
            let read = recorded.read(self.who.number, batch, from..span.end);
            let read =
                read.map_err(|(row, what)| Error::Access { access: position + row as u64, what })?;
            self.woken_span::<CHECK>(batch, from..read.until, behind)?;
            if read.moves {
                let row = read.until;
                let at = (VirtAddr::new(batch.addr[row]), PhysAddr::new(batch.paddr[row]));
                let who = self.who;
                let access = position + read.until as u64;
                self.ask(access, behind, |system, platform| system.moved(who, at, platform))?;
            }
            from = read.until;
        }
        self.woken_span::<CHECK>(batch, from..span.end, behind)
    }

    /// Runs accesses among which there is no event, and wakes the operating system among them
    /// when something is due.
    fn woken_span<const CHECK: bool>(
        &mut self,
        batch: &Batch,
        span: Range<usize>,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        let mut from = span.start;
        loop {
            self.timing.has_new_deadline = false;
            let Some(deadline) = self.deadline() else {
                if from == span.end {
                    return Ok(());
                }
                from = self.stretch::<CHECK>(batch, from..span.end, false, behind)?;
                continue;
            };
            let (now, access) = (self.now(), self.seen.position + from as u64);
            if now >= deadline {
                self.seen.woken = true;
                self.wake(now, access, behind)?;
                continue;
            }
            if from == span.end {
                return Ok(());
            }
            if self.misses_are_priced_alike() {
                let (metas, processor) = (&batch.meta[from..span.end], &self.processors.here);
                let lookups = 2 + u64::from(Meta::SIZE_MAX >> self.constants.granules.0.shift());
                let surely =
                    self.timing.prices.surely_before(metas, processor, deadline - now, lookups);
                if surely > 0 {
                    from = self.stretch::<CHECK>(batch, from..from + surely, false, behind)?;
                    continue;
                }
            }
            let metas = &batch.meta[from..span.end.min(from + STRETCH_MAX)];
            let processor = &self.processors.here;
            let end = from + self.timing.prices.until(metas, processor, now, deadline);
            from = self.stretch::<CHECK>(batch, from..end, true, behind)?;
        }
    }

    /// Whether all that a miss adds to the clock, but for faults, is a lookup and a walk at the nominal
    /// price; and whether rows go to the TLBs as the trace has them.
    fn misses_are_priced_alike(&self) -> bool {
        self.hooks.leave_prices() && self.processors.here.trace_cache.is_none()
    }

    /// When the operating system has something to do next.
    fn deadline(&self) -> Option<u64> {
        let change = self.timing.changes.front().map(|change| change.time);
        self.system.deadline().into_iter().chain(change).min()
    }

    /// Has a setting change, or else the system do what it wanted to.
    fn wake(&mut self, now: u64, access: u64, behind: &mut impl Behind) -> Result<(), Error> {
        let due = self.timing.changes.front().is_some_and(|change| change.time <= now);
        let Some(change) = due.then(|| self.timing.changes.pop_front()).flatten() else {
            self.ask(access, behind, |system, platform| system.tick(now, platform))?;
            self.system.ticked(self.now() - now);
            return Ok(());
        };
        let Change { time, what, value, description } = change;
        let key = what.key();
        let done = self
            .ask(access, behind, |system, platform| system.change(what, &description, platform));
        self.seen.changed.push(ChangedSetting { access, time, key: key.to_owned(), value });
        done.map_err(|error| match error {
            Error::Access { access, what } => {
                Error::Access { access, what: format!("os.at, {key} at {time}: {what}") }
            }
            other => other,
        })
    }

    /// Runs accesses, if `to_miss` up to the first that misses. Gives the one that follows.
    fn stretch<const CHECK: bool>(
        &mut self,
        batch: &Batch,
        span: Range<usize>,
        to_miss: bool,
        behind: &mut impl Behind,
    ) -> Result<usize, Error> {
        let from = span.start;
        let (end, delivered) = match (behind.has_caches(), self.constants.virtual_caches) {
            (false, _) => self.accesses::<CHECK, UNCACHED>(batch, span, to_miss, behind)?,
            (true, false) => self.accesses::<CHECK, PHYSICAL>(batch, span, to_miss, behind)?,
            (true, true) => self.accesses::<CHECK, VIRTUAL>(batch, span, to_miss, behind)?,
        };
        self.count(batch, from..end);
        // What the trace cache has delivered went to no TLB.
        self.processors.here.counts.accesses[Kind::Fetch as usize] -= delivered;
        Ok(end)
    }
}
