//! The clock of the operating system, and the events that it times.
//!
//! ```text
//!   full           instructions x cycles + lookups of second-level TLBs + walks, at a nominal price
//!                  + the kernel's counted work + waiting for disks
//!   instructions   instructions x cycles
//! ```
//!
//! Both clocks use only counts of the front, that is, of TLBs and operating system. A walk costs
//! the same in every design, so neither MMU caches nor data caches change what the operating system
//! does. The `full` clock depends on the TLBs of the machine; the `instructions` clock is equal for
//! all TLBs.
//!
//! The clock is computed from the counts on demand, so that it costs nothing if the operating
//! system has no deadline. While the deadline is so far away that misses cannot reach it, accesses
//! run in intervals that end only after a fault. Near the deadline, an interval ends after each
//! miss, and at the access at which instructions alone would reach the deadline:
//!
//! ```text
//!   hit miss hit miss hit fault | hit hit miss | hit hit hit | tick | hit miss ...
//!   far: every access misses    ^ the clock    ^ near        ^ the deadline
//! ```
//!
//! Each processor has its own clock. A deadline is due when the clock of the running processor has
//! reached it.

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

/// Near a deadline, the largest number of accesses that run before the clock is read again.
const STRETCH_MAX: usize = 256;

/// Far from a deadline, the number of accesses whose instructions are added up together.
const SUMMED: usize = 1024;

/// The prices that turn counts into cycles.
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

    /// The costs of the kernel's work, if known.
    pub(super) fn costs(&self) -> Option<&Costs> {
        self.costs.as_ref()
    }

    /// The clock of `processor`, in cycles since its counts were last reset.
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

    /// The number of `metas` that run on `processor` until their instructions alone advance its
    /// clock from `now` to `deadline`; all of them if the clock does not reach it.
    fn until(&self, metas: &[Meta], processor: &Processor, now: u64, deadline: u64) -> usize {
        let mut instructions = processor.counts.instructions;
        let rest = now - self.of_instructions(instructions);
        let reaches = |meta: &Meta| {
            instructions += u64::from(meta.instructions());
            rest + self.of_instructions(instructions) >= deadline
        };
        metas.iter().position(reaches).map_or(metas.len(), |last| last + 1)
    }

    /// The number of `metas` that are guaranteed to run on `processor` before its clock has
    /// advanced by `cycles`, even if each access makes `lookups` lookups that miss every TLB.
    /// Assumes that no access faults.
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
            // The cycles of instructions are rounded down both in `cycles` and in the later clock:
            // hence the 2.
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

/// The operating system's clock, and the events that it times.
pub(super) struct Timing {
    pub(super) prices: Prices,
    /// Settings that are yet to change, in the order of time.
    changes: VecDeque<Change>,
    /// Whether the operating system has requested to be woken since the last fault.
    pub(super) has_new_deadline: bool,
}

impl Timing {
    pub(super) fn new(description: &Description, clock: Clock, changes: Vec<Change>) -> Timing {
        let prices = Prices::new(description, clock);
        Timing { prices, changes: changes.into(), has_new_deadline: false }
    }
}

impl Run {
    /// The clock of the running processor, in cycles since the run began.
    pub(super) fn now(&self) -> u64 {
        let processor = &self.processors.here;
        processor.cycles_before + self.timing.prices.cycles(processor)
    }

    /// The times that the operating system's clock counts.
    pub fn clock(&self) -> Clock {
        self.timing.prices.clock
    }

    /// Runs the accesses of `span`, without events among them. If the trace gives physical
    /// addresses, each row is passed to the operating system before the row runs.
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

    /// Runs the accesses of `span`, without events among them, and wakes the operating system
    /// whenever something is due.
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

    /// Whether every miss without a fault adds only a lookup and a walk at the nominal price to the
    /// clock, and the TLBs look up the addresses of the trace without relocation.
    fn misses_are_priced_alike(&self) -> bool {
        self.hooks.leave_prices() && self.processors.here.trace_cache.is_none()
    }

    /// The next time at which the operating system has something to do.
    fn deadline(&self) -> Option<u64> {
        let change = self.timing.changes.front().map(|change| change.time);
        let sweep = self.flushing.next_sweep;
        self.system.deadline().into_iter().chain(change).chain(sweep).min()
    }

    /// Applies a change of settings, or calls the operating system for the work that is due.
    fn wake(&mut self, now: u64, access: u64, behind: &mut impl Behind) -> Result<(), Error> {
        if self.flushing.next_sweep.is_some() {
            // Daemons may map any page, so all deferred flushes are done before daemons run.
            self.sweep_all(behind);
            return Ok(());
        }
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
            Error::Access { access, what } => Error::Access {
                access,
                what: format!("the change of {key} at the time {time} (os.at) failed: {what}"),
            },
            other => other,
        })
    }

    /// Runs the accesses of `span`; if `to_miss`, up to and including the first that misses.
    /// Returns the index of the next access.
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
        // Fetches that the trace cache delivered were not looked up in a TLB.
        self.processors.here.counts.accesses[Kind::Fetch as usize] -= delivered;
        Ok(end)
    }
}
