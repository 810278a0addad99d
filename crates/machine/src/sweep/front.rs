//! A front with the backs that it serves.

use addr::Kind;
use serde_json::Value;
use trace::{Batch, Source};

use mmu::{Design, WalkCacheFamily};

use super::{Outcome, family::Family, log::Log, repeats::Repeats, workers::Task};
use crate::{
    Description, Error, Machine,
    count::identities::{self, Witness},
    count::summary,
    description::Clock,
    hardware::{behind::Behind, walker::Walkers},
    run::Run,
};

/// What a description says of what lies behind the TLBs, by its keys. Whatever else differs
/// between two designs, known here or not, gives them fronts of their own.
const BEHIND: [&[&str]; 14] = [
    &["mmu_cache"],
    &["spec_tlb"],
    &["walker", "lowest_only"],
    &["nested", "mmu_cache"],
    &["nested", "tlb"],
    &["cache"],
    &["walker", "enters"],
    &["walker", "refill_cycles"],
    &["walker", "nested_cycles"],
    &["walker", "exception_cycles"],
    &["walker", "source"],
    &["memory", "latency_cycles"],
    &["memory", "source"],
    &["core", "cycles_per_instruction"],
];

/// TLBs, operating system and page table, and all that is the same for the designs behind them.
pub(super) struct Front {
    run: Run,
    /// Why it came to an end before the trace did; then so did its designs.
    failure: Option<String>,
    /// What it says in this round, and what it said in the round before.
    saying: Log,
    said: Log,
    backs: Vec<DesignBack>,
    families: Vec<(Family, Vec<DesignBack>)>,
}

/// What lies behind the TLBs in one design; in several, if only their SpecTLBs differ.
pub(super) struct DesignBack {
    /// Their places among all.
    indices: Vec<usize>,
    walkers: Walkers,
    failure: Option<String>,
}

impl Front {
    /// The fronts of `machines`, each with its backs. Where there are several, the operating
    /// system's clock is that of instructions.
    pub(super) fn of_all(machines: &[Machine]) -> Result<Vec<Front>, Error> {
        let keys: Vec<Value> = machines.iter().map(|machine| key(machine.description())).collect();
        let several = keys.iter().any(|key| *key != keys[0]);
        let mut fronts: Vec<(Value, Front)> = Vec::new();
        for (index, (machine, key)) in machines.iter().zip(keys).enumerate() {
            // All members are to see one history of the operating system.
            let clock = if several { Clock::Instructions } else { machine.description().os.clock };
            let walkers = machine.walkers()?;
            let place = match fronts.iter().position(|(known, _)| *known == key) {
                Some(place) => place,
                None => {
                    fronts.push((key, Front::new(machine, clock)?));
                    fronts.len() - 1
                }
            };
            fronts[place].1.add(index, walkers, machines);
        }
        let mut fronts: Vec<Front> = fronts.into_iter().map(|(_, front)| front).collect();
        for front in &mut fronts {
            let walkers = front.backs.iter().map(|back| &back.walkers);
            let caches = walkers.clone().any(|walkers| walkers.here.port.caches.is_some());
            let speculates = walkers.clone().any(|walkers| walkers.speculates());
            front.saying.repeats = Repeats::new(walkers);
            let first = front.backs.first().map_or(0, |back| back.indices[0]);
            front.make_families(machines[first].description().granules().1.is_some());
            let (whole, to_families) = (!front.backs.is_empty(), !front.families.is_empty());
            for log in [&mut front.saying, &mut front.said] {
                (log.caches, log.whole, log.to_families) = (caches, whole, to_families);
                log.speculates = speculates;
            }
        }
        Ok(fronts)
    }

    /// Adds a design: to one that is there, if only its SpecTLB is another.
    fn add(&mut self, index: usize, walkers: Walkers, machines: &[Machine]) {
        let speculates = walkers.speculates();
        let own = without_spec_tlb(machines[index].description());
        let alike = self.backs.iter_mut().find(|back| {
            speculates
                && back.walkers.speculates()
                && without_spec_tlb(machines[back.indices[0]].description()) == own
        });
        match alike {
            Some(back) => {
                back.indices.push(index);
                back.walkers.take_speculators(walkers);
            }
            None => {
                let indices = vec![index];
                self.backs.push(DesignBack { indices, walkers, failure: None });
            }
        }
    }

    /// `source` is about to run.
    pub(super) fn begin(&mut self, source: &dyn Source) {
        self.run.system.begin(source.processes());
    }

    fn new(machine: &Machine, clock: Clock) -> Result<Front, Error> {
        Ok(Front {
            run: Run::new(machine, false, clock)?,
            failure: None,
            saying: Log::default(),
            said: Log::default(),
            backs: Vec::new(),
            families: Vec::new(),
        })
    }

    /// Puts together the backs that can be taken together, where pages are of one size or of
    /// several (`mixed`).
    fn make_families(&mut self, mixed: bool) {
        for design in Design::ALL {
            let belongs = |back: &mut DesignBack| {
                Family::takes(&back.walkers, mixed).is_some_and(|params| params.design == design)
            };
            let mut alike = self.backs.extract_if(.., belongs).collect::<Vec<_>>();
            while !alike.is_empty() {
                let rest = alike.split_off(alike.len().min(WalkCacheFamily::MEMBERS_MAX));
                let params = alike.iter().filter_map(|back| Family::takes(&back.walkers, mixed));
                let params: Vec<_> = params.collect();
                match Family::new(&params, mixed, self.run.processors.count()) {
                    Some(family) => self.families.push((family, alike)),
                    None => self.backs.append(&mut alike),
                }
                alike = rest;
            }
        }
    }

    /// The end of a round: what it said is to be heard by the backs.
    pub(super) fn turn(&mut self) {
        std::mem::swap(&mut self.saying, &mut self.said);
        // They see every access and walk, whichever log takes it.
        std::mem::swap(&mut self.saying.repeats, &mut self.said.repeats);
        std::mem::swap(&mut self.saying.known, &mut self.said.known);
        self.saying.clear();
    }

    /// The outcomes of its designs, with their places.
    pub(super) fn finish(
        mut self,
        machines: &[Machine],
        source: &dyn Source,
    ) -> Vec<(usize, Outcome)> {
        self.run.drain();
        for (mut family, mut members) in self.families {
            let walkers = members.iter_mut().map(|back| &mut back.walkers);
            family.settle(&self.saying.known.misses, walkers);
            members.iter_mut().for_each(|back| back.failure.clone_from(&family.failure));
            self.backs.extend(members);
        }
        let unmet = || self.run.system.unmet().map(|wrong| Error::Place(wrong).to_string());
        let failure = self.failure.take().or_else(unmet);
        let repeats: Vec<_> = self.saying.repeats.counts().collect();
        let outcomes = |mut back: DesignBack| {
            for (processor, counts) in repeats.iter().enumerate() {
                for (kind, count) in Kind::ALL.into_iter().zip(*counts) {
                    back.walkers.of(processor).repeated(kind, count);
                }
            }
            back.walkers.settle();
            let failure = failure.clone().or(back.failure);
            let mut outcome = |(number, index): (usize, usize)| {
                if let Some(failure) = &failure {
                    return (index, Err(failure.clone()));
                }
                back.walkers.put_first(number);
                let machine = &machines[index];
                let results = summary::summarize(machine, source, &mut self.run, &back.walkers);
                let witness = Witness::of(&self.run, &back.walkers);
                let checked =
                    identities::check(&results, &witness).map_err(|error| error.to_string());
                back.walkers.put_first(number);
                (index, checked.map(|()| results))
            };
            let outcomes: Vec<_> = back.indices.into_iter().enumerate().map(&mut outcome).collect();
            outcomes
        };
        self.backs.into_iter().flat_map(outcomes).collect()
    }
}

/// A description but for its SpecTLB and what it is called.
fn without_spec_tlb(description: &Description) -> Value {
    let mut key = serde_json::to_value(description).unwrap_or_default();
    if let Value::Object(table) = &mut key {
        table.retain(|part, _| !matches!(part.as_str(), "spec_tlb" | "title" | "source"));
    }
    key
}

/// What is to be done in one round: the fronts run `batch`, the backs hear of the one before.
/// Fronts come first, for a round is not over before the longest of its tasks.
pub(super) fn tasks<'a>(
    fronts: &'a mut [Front],
    batch: &'a Batch,
) -> impl Iterator<Item = Work<'a>> + Send {
    let (mut run, mut hear) = (Vec::new(), Vec::new());
    for front in fronts {
        let Front { run: course, failure, saying, said, backs, families } = front;
        hear.extend(families.iter_mut().map(|(family, _)| Work::HearBrief { family, said }));
        hear.extend(backs.iter_mut().map(|back| Work::Hear { back, said }));
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
        back: &'a mut DesignBack,
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
            Work::Hear { back, said } => {
                if back.failure.is_none() {
                    back.failure = said.tell(&mut back.walkers).err().map(|e| e.to_string());
                }
            }
        }
    }
}

/// The description without what lies behind the TLBs.
pub(super) fn key(description: &Description) -> Value {
    let mut key = serde_json::to_value(description).unwrap_or_default();
    for path in BEHIND {
        let (Some(last), tables) = (path.last(), &path[..path.len() - 1]) else { continue };
        // What is due by the clock is in front, and so is what instructions add to it.
        if *last == "cycles_per_instruction" && !description.os.at.is_empty() {
            continue;
        }
        let table = tables.iter().try_fold(&mut key, |value, table| value.get_mut(table));
        if let Some(Value::Object(table)) = table {
            table.remove(*last);
        }
    }
    key
}
