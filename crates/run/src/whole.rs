//! A run from the first access of a trace to its results.

use description::Error;
use results::{Results, count::origins::Origins};
use trace::{Batch, Source};

use crate::{
    placed::placed,
    report::{
        identities::{self, Witness},
        summary,
    },
    run::{Progress, foreseen::Foreseen},
    runnable::Runnable,
};

/// The options of a run.
pub struct RunOptions<'a> {
    /// Whether each translation is compared with the page table; the run stops at the first that
    /// differs.
    pub check: bool,
    /// Called a few times per second at most; `false` stops the run with [`Error::Interrupted`].
    pub progress: &'a mut dyn FnMut(Progress) -> bool,
}

/// Runs the whole trace `source` on `machine`.
pub fn run(
    machine: &dyn Runnable,
    source: &mut dyn Source,
    options: RunOptions<'_>,
) -> Result<Results, Error> {
    if let Some(cpus) = source.switches().map(|switches| switches.cpus)
        && cpus > machine.description().core.count
    {
        return Err(Error::Processors { cpus, count: machine.description().core.count });
    }
    let mut run = machine.start(options.check, machine.description().os.clock)?;
    let mut placed = placed([machine.description()], source)?;
    let source = placed.as_mut();
    run.hooks.origins = Some(Origins::new(source.header()));
    let source = &mut Foreseen::new(source);
    run.begin(source)?;
    let mut walkers = machine.walkers()?;
    let mut batch = Batch::default();
    loop {
        let more = source.next(&mut batch)?;
        if options.check && !run.defers() {
            run.batch::<true>(&batch, &mut walkers)?;
        } else {
            run.batch::<false>(&batch, &mut walkers)?;
        }
        if batch.asks {
            source.answer(run.contents());
        }
        if !more {
            break;
        }
        let progress = Progress { accesses: run.seen.position, total: source.total() };
        if !(options.progress)(progress) {
            return Err(Error::Interrupted);
        }
    }
    run.unmet()?;
    run.drain();
    walkers.settle();
    let results =
        summary::summarize(machine.description(), machine.summary(), source, &mut run, &walkers);
    identities::check(&results, &Witness::of(&run, &walkers))?;
    Ok(results)
}
