//! The effects that a run did not model, as sentences for readers of its results.

use addr::PageSize;
use description::{Description, managers::keeps_tables_apart};
use hardware::walker::{Walker, Walkers};
use trace::{Filter, Header, Source};

use crate::run::Run;

/// The sentences, in the order in which they are shown.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn say(&mut self, note: impl Into<String>) {
        self.0.push(note.into());
    }
}

/// The parts of hardware and operating system that the run did not model.
pub(super) fn not_modelled(
    description: &Description,
    source: &dyn Source,
    run: &Run,
    walkers: &Walkers,
) -> Vec<String> {
    let (walker, header) = (&walkers.here, source.header());
    let mut notes = Notes::default();
    walks(&mut notes, description, walker);
    accesses(&mut notes, description, run, header);
    system(&mut notes, description, run);
    processors(&mut notes, description, run);
    small_spaces(&mut notes, description);
    trace(&mut notes, description, run, walker, header);
    notes.0.extend(header.notes.iter().cloned());
    notes.0
}

/// The simplifications of walks, and of the caches that they use, compared with
/// hardware.
fn walks(notes: &mut Notes, description: &Description, walker: &Walker) {
    if description.page_table.is_some() {
        notes.say("walks that overlap: each walk ends before the next access begins");
        if description.walker.lowest_only {
            notes.say(
                "the cost of all page-table entries of a walk except the last (walker.lowest_only)",
            );
        } else if walker.dimension.params.is_none() && walker.handler.is_none() {
            notes.say("MMU caches: every walk starts at the root of the page table");
        }
        if walker.speculates() {
            notes.say(
                "the cost of a wrong prediction, and the limit that the size of a reorder buffer \
                 sets to the gain of a correct one",
            );
        }
        notes.say("the kernel's own accesses to memory when it handles a fault");
        if let Some(host) = &walker.host {
            if host.dimension.params.is_none() {
                notes.say(
                    "MMU caches of the host: each walk of the host starts at the root of the \
                     host's page table",
                );
            }
            notes.say(
                "exits to the hypervisor: the host maps a page at no cost when it is first needed",
            );
            if host.shared.is_none() {
                notes.say("an MMU cache that guest and host share: each has its own");
            }
            if !description.nested.as_ref().is_none_or(|nested| nested.holes.is_empty()) {
                notes.say("accesses of the guest to its devices (nested.holes)");
            }
        }
        if description.range_tlb.is_some() {
            notes.say("reads of the range table, which hardware makes in parallel with the walk");
        }
        if description.restseg.is_some() {
            notes.say(
                "writes to the filters and tags of restrictive segments, and page tables without \
                 entries for the pages in segments",
            );
        }
        if !description.walker.tracks_dirty {
            notes.say(match walker.handler {
                None => "the assist of a first store to a clean page (walker.tracks_dirty)",
                Some(_) => "the trap of a first store to a clean page (walker.tracks_dirty)",
            });
        }
        if walker.handler.is_some() {
            notes
                .say("instruction-cache misses of the refill handler, and its saving of registers");
        }
    } else {
        notes.say("walks, rights, data caches and time: the machine has only TLBs");
    }
}

/// The accesses and caches that are not modelled, and the unknown properties of
/// regions.
fn accesses(notes: &mut Notes, description: &Description, run: &Run, header: &Header) {
    if !description.core.fetches {
        notes.say("fetches: the machine simulates only data accesses (core.fetches)");
    } else if !header.fetches {
        notes.say("fetches: the trace has none");
    }
    if description.cache.present().next().is_some() {
        notes.say("prefetching, and coherence with other processors' caches");
    }
    let page_size = description.os.page_size.0;
    if description.os.uniform && page_size > PageSize::SIZE_4K {
        notes.say(format!(
            "the bounds and rights of regions: every page has {page_size} (os.uniform), which no \
             operating system could do"
        ));
    } else if let Some(large) = description.os.large()
        && !run.seen.mappings
    {
        notes.say(format!(
            "where pages of {large} fit into mappings: each aligned block of 2M that is accessed \
             counts as one mapping"
        ));
    }
}

/// The work that the operating system does not do, or that has no price.
fn system(notes: &mut Notes, description: &Description, run: &Run) {
    if let Some(inject) = description.os.inject {
        notes.say(format!(
            "an operating system without errors: os.inject = {inject} makes it fail on purpose"
        ));
    }
    if description.os.populated {
        notes.say("faults at first touches: each page is mapped before its first walk");
    }
    let pages_leave = run.system.counts(&run.stack.guest).is_some();
    if pages_leave {
        if !run.seen.calls {
            notes.say(
                "files that are read and written by system calls: the trace has no such calls",
            );
        }
        if description.swap.as_ref().is_none_or(|swap| swap.io_cycles == 0) {
            notes.say("the time of waiting for disks: the machine file has no swap.io_cycles");
        }
    } else {
        notes.say(
            "sharing, copy-on-write, file caching and replacement: each page is mapped at its \
             first touch",
        );
    }
    notes.say(
        "accesses on mispredicted paths: the trace has only accesses of instructions that were \
         completed",
    );
    if !run.seen.mappings {
        notes.say(
            "mappings: the trace has no calls such as mmap, so regions are inferred from accesses \
             and nothing is unmapped",
        );
    }
    if description.swap.is_some() && !pages_leave {
        notes.say("[swap]: this manager evicts no page");
    }
    if run.seen.physical && !keeps_tables_apart(&description.os) {
        notes.say(
            "the physical addresses in the trace: the simulated operating system chooses the \
             frames",
        );
    }
}

/// Effects between processors that are not modelled.
fn processors(notes: &mut Notes, description: &Description, run: &Run) {
    let several = run.processors.count() > 1;
    if !several && run.seen.threads.iter().filter(|seen| **seen).count() > 1 {
        notes.say("several processors: all threads share one set of TLBs and caches (core.count)");
    }
    if several {
        notes.say(
            "elapsed time: processors run one at a time, in the order of the trace, and their \
             cycles are added up",
        );
    }
    if run.seen.woken && run.clock() != description.os.clock {
        notes.say(
            "cycles in the operating system's clock: the clock counts only instructions, so that \
             all designs of the sweep have the same operating-system events",
        );
    }
    if several && description.os.costs.is_none() {
        notes.say("the cost of shootdowns: the machine file has no [os.costs]");
    }
}

/// The parts of small spaces and virtual caches that are not modelled.
fn small_spaces(notes: &mut Notes, description: &Description) {
    if description.os.small.is_some() {
        notes.say(
            "the kernel's data about small spaces other than their roots, and system calls that \
             refer to memory of another space",
        );
    }
    if description.core.virtual_caches {
        notes.say(
            "synonyms in a virtual cache (two lines for the same frame, of which the kernel \
             allows only one to be dirty)",
        );
    }
}

/// The data that the trace does not contain.
fn trace(
    notes: &mut Notes,
    description: &Description,
    run: &Run,
    walker: &Walker,
    header: &Header,
) {
    // A recording of a whole machine has the accesses of its real kernel.
    if run.seen.kernel && !header.producer.starts_with("pagewalk record") {
        notes.say(
            "a real kernel: a model with fixed numbers of pages and cache lines made the accesses of \
             the kernel in this trace",
        );
    }
    if header.filter == Filter::Page16 {
        notes.say(
            "accesses that the page16 filter dropped: only the other accesses are lookups; misses \
             are exact for LRU TLBs of at least 16 sets that serve either code or data",
        );
    }
    if run.seen.gap_accesses > 0 {
        notes.say(format!("{} accesses that are not in the trace", run.seen.gap_accesses));
    }
    if !walker.port.latencies.known && description.page_table.is_some() {
        notes.say("time: the machine file does not state all latencies".to_owned());
    }
}
