//! A run: every access of a trace through the machine, in order.
//!
//! ```text
//!   access --> first-level TLB -- hit --------------------------> data caches
//!                  | miss
//!                  v
//!              second-level TLB -- hit --> fill the first ------> data caches
//!                  | miss
//!                  v
//!              walk -> references -> data caches, from the level where the walker enters
//!                  | fault                            ^
//!                  v                                  |
//!              Os::fault -> walk again -> fill both --+--------> data caches
//! ```
//!
//! This is the only way for an access. The first line is the common case and is kept free of
//! allocation, hashing and indirect calls; the rest is in `miss`.

mod access;
mod asids;
mod miss;

use std::ops::Range;

use addr::{Asid, Kind, PageSize};
use mmu::Served;
use pagetable::Reference;
use trace::{Batch, Event, Source};

use crate::{
    Error, Machine, Results,
    census::Census,
    check,
    os::{Failure, Os, Shootdown},
    summary,
    timeline::History,
    translate::{Hardware, NONE},
};
use asids::{Asids, Taken};

/// How to run.
pub struct RunOptions<'a> {
    /// Compare each translation with the page table and stop at the first that differs.
    pub check: bool,
    /// Called a few times a second at most; `false` stops the run with [`Error::Interrupted`].
    pub progress: &'a mut dyn FnMut(Progress) -> bool,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Accesses that ran.
    pub accesses: u64,
    /// Accesses in all, where that is known.
    pub total: Option<u64>,
}

/// Runs all of `source` on `machine`.
pub(crate) fn run(
    machine: &Machine,
    source: &mut dyn Source,
    options: RunOptions<'_>,
) -> Result<Results, Error> {
    let mut run = Run::new(machine)?;
    let mut batch = Batch::default();
    loop {
        let more = source.next(&mut batch)?;
        if options.check {
            run.batch::<true>(&batch)?;
        } else {
            run.batch::<false>(&batch)?;
        }
        if !more {
            break;
        }
        let progress = Progress { accesses: run.position, total: source.total() };
        if !(options.progress)(progress) {
            return Err(Error::Interrupted);
        }
    }
    run.hardware.drain(&mut run.census);
    let results = summary::summarize(machine, source, run, options.check);
    check::identities(&results)?;
    Ok(results)
}

/// Counts of the walks of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct WalkCensus {
    pub(crate) walks: u64,
    pub(crate) cold: u64,
    pub(crate) references: u64,
    pub(crate) cold_references: u64,
    /// How many walks that were not cold took as many references as the index says.
    pub(crate) per_walk: Vec<u64>,
    /// References by level (index) and by what served them.
    pub(crate) served: Vec<[u64; Served::COUNT]>,
}

/// Cycles by what serves a reference.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    /// Whether the machine file gives all that its caches and memory need.
    pub(crate) known: bool,
    pub(crate) served_cycles: [u64; Served::COUNT],
    pub(crate) refill_cycles: u64,
}

/// A run under way.
pub(crate) struct Run {
    pub(crate) hardware: Hardware,
    pub(crate) os: Os,
    pub(crate) census: Census,
    pub(crate) walks: WalkCensus,
    pub(crate) history: History,
    pub(crate) latencies: Latencies,
    pub(crate) accesses: [u64; Kind::COUNT],
    pub(crate) instructions: u64,
    pub(crate) page_crossings: u64,
    pub(crate) threads: Vec<bool>,
    pub(crate) gap_accesses: u64,
    pub(crate) saw_events: bool,
    pub(crate) saw_physical: bool,
    /// Data accesses by what served them, for the time of the program itself.
    pub(crate) program_served: [u64; Served::COUNT],
    pub(crate) translation_cycles: u64,
    /// Accesses of the trace so far, those that the machine leaves out among them.
    pub(crate) position: u64,
    /// Accesses that the machine leaves out, so far.
    pub(crate) left_out: u64,
    asids: Asids,
    asid: Asid,
    page_size: PageSize,
    references: Vec<Reference>,
}

impl Run {
    fn new(machine: &Machine) -> Result<Run, Error> {
        let description = machine.description();
        let built = |(key, what): (String, String)| Error::Description {
            origin: machine.name().to_owned(),
            line: 1,
            what: format!("{key}: {what}"),
        };
        let hardware = Hardware::new(description).map_err(built)?;
        let os = Os::new(description).map_err(built)?;
        Ok(Run {
            census: Census::new(hardware.units.len()),
            walks: WalkCensus::default(),
            history: History::new(),
            latencies: summary::latencies(description),
            accesses: [0; Kind::COUNT],
            instructions: 0,
            page_crossings: 0,
            threads: Vec::new(),
            gap_accesses: 0,
            saw_events: false,
            saw_physical: false,
            program_served: [0; Served::COUNT],
            translation_cycles: 0,
            position: 0,
            left_out: 0,
            asids: Asids::new(description.core.asid_bits),
            asid: Asid(0),
            page_size: os.page_size(),
            references: Vec::with_capacity(64),
            hardware,
            os,
        })
    }

    /// Runs the accesses and events of one batch in their order.
    fn batch<const CHECK: bool>(&mut self, batch: &Batch) -> Result<(), Error> {
        for segment in &batch.segments {
            let index = segment.thread as usize;
            if self.threads.len() <= index {
                self.threads.resize(index + 1, false);
            }
            self.threads[index] = true;
        }
        self.saw_physical |= !batch.paddr.is_empty();
        let mut from = 0;
        for placed in &batch.events {
            let to = placed.at as usize;
            self.span::<CHECK>(batch, from..to)?;
            from = to;
            self.event(&placed.event, self.position + to as u64)?;
        }
        self.span::<CHECK>(batch, from..batch.len())?;
        self.position += batch.len() as u64;
        Ok(())
    }

    /// Runs accesses among which there is no event.
    fn span<const CHECK: bool>(&mut self, batch: &Batch, span: Range<usize>) -> Result<(), Error> {
        self.count(batch, span.clone());
        if self.hardware.caches.is_some() {
            self.accesses::<CHECK, true>(batch, span)
        } else {
            self.accesses::<CHECK, false>(batch, span)
        }
    }

    fn count(&mut self, batch: &Batch, span: Range<usize>) {
        let metas = &batch.meta[span];
        let mut kinds = [0u64; Kind::COUNT];
        for kind in Kind::ALL {
            if self.hardware.first[kind as usize] != NONE {
                let of_kind = metas.iter().map(|meta| u32::from(meta.kind() == kind));
                kinds[kind as usize] = u64::from(of_kind.sum::<u32>());
            }
        }
        for (sum, count) in self.accesses.iter_mut().zip(kinds) {
            *sum += count;
        }
        self.instructions += metas.iter().map(|meta| u64::from(meta.instructions())).sum::<u64>();
    }

    #[cold]
    fn event(&mut self, event: &Event, access: u64) -> Result<(), Error> {
        if let Event::Gap { accesses, instructions } = *event {
            self.gap_accesses += accesses;
            self.instructions += instructions;
            return Ok(());
        }
        self.saw_events |= matches!(event, Event::Mapping { .. } | Event::Mmap { .. });
        let shootdowns = self.os.event(event).map_err(|failure| self.failed(failure, access))?;
        for shootdown in shootdowns {
            self.shoot_down(shootdown);
        }
        if let Event::Switch { space } = *event {
            let (asid, taken) = self.asids.of(space);
            self.asid = asid;
            match taken {
                Taken::Own => {}
                Taken::FromOther => self.hardware.flush_asid(asid, &mut self.census),
                Taken::NoAsids => self.hardware.flush_non_global(&mut self.census),
            }
        }
        Ok(())
    }

    fn shoot_down(&mut self, shootdown: Shootdown) {
        self.hardware.flush(&shootdown.flush, self.asid, &mut self.census);
        self.os.complete(shootdown);
    }

    fn failed(&self, failure: Failure, access: u64) -> Error {
        match failure {
            Failure::OutOfFrames => {
                Error::OutOfFrames { access, frames_bytes: self.os.frame_bytes().0 }
            }
            Failure::Table(what) => Error::Access { access, what },
        }
    }
}
