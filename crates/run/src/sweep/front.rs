//! A front, and the designs that process its log.

use addr::Kind;
use serde_json::Value;
use trace::{Batch, Source};

use description::{Clock, Description, Error};
use hardware::{behind::Behind, walker::Walkers};
use mmu::{Design, WalkCacheFamily};

use super::{Outcome, family::Family, log::Log, repeats::Repeats, workers::Task};
use crate::runnable::Runnable;
use crate::{
    report::{
        identities::{self, Witness},
        summary,
    },
    run::{Run, foreseen::Foreseen},
};

/// The keys of a description for the hardware behind the TLBs. Two designs that differ in any
/// other key have separate fronts.
const BEHIND: [&[&str]; 17] = [
    &["mmu_cache"],
    &["spec_tlb"],
    &["walker", "lowest_only"],
    &["nested", "mmu_cache"],
    &["nested", "spec_tlb"],
    &["nested", "tlb"],
    &["nested", "shared"],
    &["cache"],
    &["walker", "enters"],
    &["walker", "refill_cycles"],
    &["walker", "data_refill_cycles"],
    &["walker", "nested_cycles"],
    &["walker", "exception_cycles"],
    &["walker", "source"],
    &["memory", "latency_cycles"],
    &["memory", "source"],
    &["core", "cycles_per_instruction"],
];

/// TLBs, operating system and page table, which are common to all designs behind them.
pub(super) struct Front {
    run: Run,
    /// The error that ended the front, and with it its designs, before the end of the trace.
    failure: Option<String>,
    /// The log of this round, and the log of the round before.
    saying: Log,
    said: Log,
    designs: Vec<DesignBehind>,
    families: Vec<(Family, Vec<DesignBehind>)>,
}

/// The hardware behind the TLBs in one design, or in several designs that differ only in their
/// SpecTLBs.
pub(super) struct DesignBehind {
    /// The indices of these designs among all designs.
    indices: Vec<usize>,
    walkers: Walkers,
    failure: Option<String>,
}

impl Front {
    /// The fronts of `machines`, each with its designs. If there are several fronts, the
    /// operating system's clock is `instructions`.
    pub(super) fn of_all(machines: &[&dyn Runnable]) -> Result<Vec<Front>, Error> {
        let keys: Vec<Value> = machines.iter().map(|machine| key(machine.description())).collect();
        let several = keys.iter().any(|key| *key != keys[0]);
        let mut fronts: Vec<(Value, Front)> = Vec::new();
        for (index, (machine, key)) in machines.iter().zip(keys).enumerate() {
            // With this clock, the operating system makes equal decisions in all fronts.
            let clock = if several { Clock::Instructions } else { machine.description().os.clock };
            let walkers = machine.walkers()?;
            let place = match fronts.iter().position(|(known, _)| *known == key) {
                Some(place) => place,
                None => {
                    fronts.push((key, Front::new(*machine, clock)?));
                    fronts.len() - 1
                }
            };
            fronts[place].1.add(index, walkers, machines);
        }
        let mut fronts: Vec<Front> = fronts.into_iter().map(|(_, front)| front).collect();
        for front in &mut fronts {
            let walkers = front.designs.iter().map(|behind| &behind.walkers);
            let caches = walkers.clone().any(|walkers| walkers.here.port.caches.is_some());
            let virtual_caches = walkers.clone().any(|walkers| walkers.here.port.is_virtual);
            let speculates = walkers.clone().any(|walkers| walkers.speculates());
            let wants_runs = walkers.clone().any(|walkers| walkers.wants_runs());
            front.saying.repeats = Repeats::new(walkers);
            let first = front.designs.first().map_or(0, |behind| behind.indices[0]);
            let description = machines[first].description();
            // The log of families reports only walks.
            if description.restseg.is_none() {
                front.make_families(description.granules().1.is_some());
            }
            let (whole, to_families) = (!front.designs.is_empty(), !front.families.is_empty());
            for log in [&mut front.saying, &mut front.said] {
                (log.caches, log.whole, log.to_families) = (caches, whole, to_families);
                (log.speculates, log.wants_runs) = (speculates, wants_runs);
                log.virtual_caches = virtual_caches;
            }
        }
        Ok(fronts)
    }

    /// Adds a design. A design that differs from an existing design only in the SpecTLB is added to
    /// the existing one.
    fn add(&mut self, index: usize, walkers: Walkers, machines: &[&dyn Runnable]) {
        let speculates = !walkers.here.speculators.is_empty();
        let own = without_spec_tlb(machines[index].description());
        let alike = self.designs.iter_mut().find(|behind| {
            speculates
                && !behind.walkers.here.speculators.is_empty()
                && without_spec_tlb(machines[behind.indices[0]].description()) == own
        });
        match alike {
            Some(behind) => {
                behind.indices.push(index);
                behind.walkers.take_speculators(walkers);
            }
            None => {
                let indices = vec![index];
                self.designs.push(DesignBehind { indices, walkers, failure: None });
            }
        }
    }

    /// Starts the trace of `source`.
    pub(super) fn begin(&mut self, source: &Foreseen<'_>) {
        let begun = self.run.begin(source);
        self.failure = begun.err().map(|error| error.to_string());
    }

    fn new(machine: &dyn Runnable, clock: Clock) -> Result<Front, Error> {
        Ok(Front {
            run: machine.start(false, clock)?,
            failure: None,
            saying: Log::default(),
            said: Log::default(),
            designs: Vec::new(),
            families: Vec::new(),
        })
    }

    /// Forms families of designs. `mixed` is true if pages have several sizes.
    fn make_families(&mut self, mixed: bool) {
        for design in Design::ALL {
            let belongs = |behind: &mut DesignBehind| {
                Family::takes(&behind.walkers, mixed).is_some_and(|params| params.design == design)
            };
            let mut alike = self.designs.extract_if(.., belongs).collect::<Vec<_>>();
            while !alike.is_empty() {
                let rest = alike.split_off(alike.len().min(WalkCacheFamily::MEMBERS_MAX));
                let params =
                    alike.iter().filter_map(|behind| Family::takes(&behind.walkers, mixed));
                let params: Vec<_> = params.collect();
                match Family::new(&params, mixed, self.run.processors.count()) {
                    Some(family) => self.families.push((family, alike)),
                    None => self.designs.append(&mut alike),
                }
                alike = rest;
            }
        }
    }

    /// Ends a round: the designs process its log in the next round.
    pub(super) fn turn(&mut self) {
        std::mem::swap(&mut self.saying, &mut self.said);
        // The filters of repeats and the numbering must process every access and walk of both logs.
        std::mem::swap(&mut self.saying.repeats, &mut self.said.repeats);
        std::mem::swap(&mut self.saying.known, &mut self.said.known);
        self.saying.clear();
    }

    /// The outcomes of the front's designs, with the indices of the designs.
    pub(super) fn finish(
        mut self,
        machines: &[&dyn Runnable],
        source: &dyn Source,
    ) -> Vec<(usize, Outcome)> {
        self.run.drain();
        for (mut family, mut members) in self.families {
            let walkers = members.iter_mut().map(|behind| &mut behind.walkers);
            family.settle(&self.saying.known.misses, walkers);
            members.iter_mut().for_each(|behind| behind.failure.clone_from(&family.failure));
            self.designs.extend(members);
        }
        let unmet = || self.run.unmet().err().map(|wrong| wrong.to_string());
        let failure = self.failure.take().or_else(unmet);
        let repeats: Vec<_> = self.saying.repeats.counts().collect();
        let outcomes = |mut behind: DesignBehind| {
            for (processor, counts) in repeats.iter().enumerate() {
                for (kind, count) in Kind::ALL.into_iter().zip(*counts) {
                    behind.walkers.of(processor).repeated(kind, count);
                }
            }
            behind.walkers.settle();
            let failure = failure.clone().or(behind.failure);
            let mut outcome = |(number, index): (usize, usize)| {
                if let Some(failure) = &failure {
                    return (index, Err(failure.clone()));
                }
                behind.walkers.put_first(number);
                let machine = &machines[index];
                let results = summary::summarize(
                    machine.description(),
                    machine.summary(),
                    source,
                    &mut self.run,
                    &behind.walkers,
                );
                let witness = Witness::of(&self.run, &behind.walkers);
                let checked =
                    identities::check(&results, &witness).map_err(|error| error.to_string());
                behind.walkers.put_first(number);
                (index, checked.map(|()| results))
            };
            let outcomes: Vec<_> =
                behind.indices.into_iter().enumerate().map(&mut outcome).collect();
            outcomes
        };
        self.designs.into_iter().flat_map(outcomes).collect()
    }
}

/// A description without its SpecTLB and its name.
fn without_spec_tlb(description: &Description) -> Value {
    let mut key = serde_json::to_value(description).unwrap_or_default();
    if let Value::Object(table) = &mut key {
        table.retain(|part, _| !matches!(part.as_str(), "spec_tlb" | "title" | "source"));
    }
    key
}

/// The tasks of one round: the fronts run `batch`, and the designs process the log of the previous
/// round. The tasks of fronts are started first, because they are the longest, and a round ends
/// with the last of its tasks.
pub(super) fn tasks<'a>(
    fronts: &'a mut [Front],
    batch: &'a Batch,
) -> impl Iterator<Item = Work<'a>> + Send {
    let (mut run, mut hear) = (Vec::new(), Vec::new());
    for front in fronts {
        let Front { run: course, failure, saying, said, designs, families } = front;
        hear.extend(families.iter_mut().map(|(family, _)| Work::HearBrief { family, said }));
        hear.extend(designs.iter_mut().map(|behind| Work::Hear { behind, said }));
        run.push(Work::Run { course, failure, saying, batch });
    }
    run.into_iter().chain(hear)
}

/// One task of a round.
pub(super) enum Work<'a> {
    Run {
        course: &'a mut Run,
        failure: &'a mut Option<String>,
        saying: &'a mut Log,
        batch: &'a Batch,
    },
    Hear {
        behind: &'a mut DesignBehind,
        said: &'a Log,
    },
    HearBrief {
        family: &'a mut Family,
        said: &'a Log,
    },
}

impl Task for Work<'_> {
    fn work(self) {
        match self {
            Work::Run { course, failure, saying, batch } => {
                if failure.is_none() {
                    *failure = course.batch::<false>(batch, saying).err().map(|e| e.to_string());
                }
            }
            Work::HearBrief { family, said } => {
                if family.failure.is_none() {
                    family.hear(&said.for_families);
                }
            }
            Work::Hear { behind, said } => {
                if behind.failure.is_none() {
                    behind.failure = said.tell(&mut behind.walkers).err().map(|e| e.to_string());
                }
            }
        }
    }
}

/// The description without the hardware behind the TLBs.
pub(super) fn key(description: &Description) -> Value {
    let mut key = serde_json::to_value(description).unwrap_or_default();
    for path in BEHIND {
        let (Some(last), tables) = (path.last(), &path[..path.len() - 1]) else { continue };
        // Events at times of the clock are part of the front. So the time that instructions add to
        // the clock is part of the front too.
        if *last == "cycles_per_instruction" && description.os.has_clock() {
            continue;
        }
        let table = tables.iter().try_fold(&mut key, |value, table| value.get_mut(table));
        if let Some(Value::Object(table)) = table {
            table.remove(*last);
        }
    }
    key
}
