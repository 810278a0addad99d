//! A run: every access of a trace through the machine, in order.
//!
//! ```text
//!   access --> first-level TLB -- hit --------------------------> data caches
//!                  | miss
//!                  v
//!              second-level TLB -- hit --> fill the first ------> data caches
//!                  | miss
//!                  v
//!              walk -> references -> MMU cache, data caches
//!                  | fault                            ^
//!                  v                                  |
//!              Os::fault -> walk again -> fill both --+--------> data caches
//! ```
//!
//! This is the only way for an access. The first line is the common case and is kept free of
//! allocation, hashing and indirect calls; the rest is in `miss`. Data caches and walker are
//! behind [`Behind`]: the run tells it what it needs.

mod access;
mod linear;
mod miss;

use std::ops::Range;

use addr::{Asid, Kind, PageSize, VirtRange};
use pagetable::Reference;
use trace::{Batch, Event, Source};

use crate::{
    Error, Machine, Results,
    count::census::Census,
    count::history::History,
    count::identities,
    count::summary,
    description::WalkerKind,
    hardware::behind::{Behind, Forget},
    hardware::contexts::{Contexts, Stale},
    hardware::tlbs::{Hardware, NONE},
    os::{Failure, Os, Shootdown},
};

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
    let mut run = Run::new(machine, options.check)?;
    let mut walker = machine.walker()?;
    let mut batch = Batch::default();
    loop {
        let more = source.next(&mut batch)?;
        if options.check {
            run.batch::<true>(&batch, &mut walker)?;
        } else {
            run.batch::<false>(&batch, &mut walker)?;
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
    let results = summary::summarize(machine, source, &mut run, &walker);
    identities::check(&results)?;
    Ok(results)
}

/// A description that cannot be built; `Machine::parse` has refused it before.
pub(crate) fn built(machine: &Machine, (key, what): (String, String)) -> Error {
    let what = format!("{key}: {what}");
    Error::Description { origin: machine.name().to_owned(), line: 1, what }
}

/// The only processor.
const PROCESSOR: usize = 0;

/// A run under way, without what lies behind the TLBs.
pub(crate) struct Run {
    pub(crate) hardware: Hardware,
    pub(crate) os: Os,
    pub(crate) census: Census,
    pub(crate) history: History,
    pub(crate) accesses: [u64; Kind::COUNT],
    pub(crate) instructions: u64,
    pub(crate) page_crossings: u64,
    pub(crate) threads: Vec<bool>,
    pub(crate) gap_accesses: u64,
    pub(crate) saw_events: bool,
    pub(crate) saw_physical: bool,
    /// Whether translations are compared with the page table.
    pub(crate) check: bool,
    /// Accesses of the trace so far, those that the machine leaves out among them.
    pub(crate) position: u64,
    /// Accesses that the machine leaves out, so far.
    pub(crate) left_out: u64,
    /// Stores to clean pages: assists of hardware, and traps to a handler.
    pub(crate) dirty_assists: u64,
    pub(crate) modify_traps: u64,
    /// Whether clean pages come into the TLBs without the right to store.
    tracks_dirty: bool,
    /// Whether walks set the bits of page-table entries.
    marks: bool,
    by_software: bool,
    /// Whether the walk under way is for a store that found a clean page.
    dirtied: bool,
    contexts: Contexts,
    /// The context of the space that runs, as a register of the processor holds it.
    asid: Asid,
    /// Whether the policies of all first-level TLBs learn no more of hits than their time.
    time_only: bool,
    /// What the shortcuts of the TLBs are for, and whether the larger of them serve more accesses.
    granules: (PageSize, Option<PageSize>),
    large_first: bool,
    references: Vec<Reference>,
}

impl Run {
    pub(crate) fn new(machine: &Machine, check: bool) -> Result<Run, Error> {
        let description = machine.description();
        let hardware = Hardware::new(description).map_err(|wrong| built(machine, wrong))?;
        let os = Os::new(description).map_err(|wrong| built(machine, wrong))?;
        Ok(Run {
            census: Census::new(hardware.units.len()),
            history: History::new(0),
            accesses: [0; Kind::COUNT],
            instructions: 0,
            page_crossings: 0,
            threads: Vec::new(),
            gap_accesses: 0,
            saw_events: false,
            saw_physical: false,
            check,
            position: 0,
            left_out: 0,
            dirty_assists: 0,
            modify_traps: 0,
            tracks_dirty: description.walker.tracks_dirty && description.page_table.is_some(),
            marks: description.walker.kind == WalkerKind::Hardware && !os.is_linear(),
            by_software: description.walker.kind == WalkerKind::Software,
            dirtied: false,
            contexts: Contexts::new(description.core.contexts, description.core.asid_bits, 1),
            asid: Asid(0),
            time_only: hardware.first_level_needs_time_only(),
            granules: (os.page_size(), None),
            large_first: false,
            references: Vec::with_capacity(64),
            hardware,
            os,
        })
    }

    /// Runs the accesses and events of one batch in their order.
    pub(crate) fn batch<const CHECK: bool>(
        &mut self,
        batch: &Batch,
        back: &mut impl Behind,
    ) -> Result<(), Error> {
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
            self.span::<CHECK>(batch, from..to, back)?;
            from = to;
            self.event(&placed.event, self.position + to as u64, back)?;
        }
        self.span::<CHECK>(batch, from..batch.len(), back)?;
        self.position += batch.len() as u64;
        Ok(())
    }

    /// Runs accesses among which there is no event.
    fn span<const CHECK: bool>(
        &mut self,
        batch: &Batch,
        span: Range<usize>,
        back: &mut impl Behind,
    ) -> Result<(), Error> {
        self.count(batch, span.clone());
        if back.has_caches() {
            self.accesses::<CHECK, true>(batch, span, back)
        } else {
            self.accesses::<CHECK, false>(batch, span, back)
        }
    }

    fn count(&mut self, batch: &Batch, span: Range<usize>) {
        let metas = &batch.meta[span];
        // One pass, with sums that fit into the lanes of a vector.
        let [mut fetches, mut loads] = [0u32; 2];
        let mut instructions = 0u64;
        for some in metas.chunks(1 << 16) {
            let mut began = 0;
            for meta in some {
                fetches += u32::from(meta.kind() == Kind::Fetch);
                loads += u32::from(meta.kind() == Kind::Load);
                began += meta.instructions();
            }
            instructions += u64::from(began);
        }
        let [fetches, loads] = [fetches, loads].map(u64::from);
        let kinds = [fetches, loads, metas.len() as u64 - fetches - loads];
        for (kind, count) in Kind::ALL.into_iter().zip(kinds) {
            if self.hardware.first[kind as usize] != NONE {
                self.accesses[kind as usize] += count;
            }
        }
        self.instructions += instructions;
    }

    #[cold]
    fn event(&mut self, event: &Event, access: u64, back: &mut impl Behind) -> Result<(), Error> {
        if let Event::Gap { accesses, instructions } = *event {
            self.gap_accesses += accesses;
            self.instructions += instructions;
            return Ok(());
        }
        if matches!(event, Event::WarmupEnd) {
            self.forget_counts(access, back);
            return Ok(());
        }
        self.saw_events |= matches!(event, Event::Mapping { .. } | Event::Mmap { .. });
        let shootdowns = self.os.event(event).map_err(|failure| self.failed(failure, access))?;
        for shootdown in shootdowns {
            self.shoot_down(shootdown, back);
        }
        if let Event::Run { space, .. } = *event {
            let (asid, stale) = self.contexts.enter(PROCESSOR, space);
            self.asid = asid;
            match stale {
                Stale::Nothing => {}
                Stale::Context(asid) => {
                    self.hardware.flush_asid(asid, &mut self.census);
                    back.forget(Forget::Space(asid));
                }
                Stale::NonGlobal | Stale::Everywhere => {
                    self.hardware.flush_non_global(&mut self.census);
                    back.forget(Forget::All);
                }
            }
        }
        Ok(())
    }

    /// The warm-up is over: counts begin anew with `access`, and all else stays as it is.
    fn forget_counts(&mut self, access: u64, back: &mut impl Behind) {
        self.hardware.drain(&mut self.census);
        self.census.forget_counts();
        self.os.forget_counts();
        self.history = History::new(access - self.left_out);
        self.accesses = [0; Kind::COUNT];
        (self.instructions, self.page_crossings) = (0, 0);
        (self.dirty_assists, self.modify_traps) = (0, 0);
        back.forget_counts();
    }

    /// Has the hardware forget what went, in the space that it went from.
    fn shoot_down(&mut self, shootdown: Shootdown, back: &mut impl Behind) {
        let flush = &shootdown.flush;
        // A space that has lost its context has nothing left in the hardware.
        let context = self.os.number_of(flush.space());
        if let Some(asid) = context.and_then(|space| self.contexts.of(PROCESSOR, space)) {
            self.hardware.flush(flush, asid, &mut self.census);
            if let Some(range) = flush.tables() {
                if self.os.is_linear() {
                    self.hardware.flush_tables(range, asid, &mut self.census);
                }
                back.forget(match range {
                    VirtRange::ALL => Forget::Space(asid),
                    part => Forget::Range(part, asid),
                });
            }
        }
        self.os.complete(shootdown);
    }

    fn failed(&self, failure: Failure, access: u64) -> Error {
        match failure {
            Failure::OutOfFrames => {
                Error::OutOfFrames { access, frames_bytes: self.os.frame_bytes().0 }
            }
            Failure::OutOfHostFrames => Error::OutOfHostFrames { access },
            Failure::Table(what) => Error::Access { access, what },
        }
    }
}

#[cfg(test)]
mod tests;
