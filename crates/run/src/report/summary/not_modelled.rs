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
        notes.say("several walks under way at once: each walk ends before the next access begins");
        if description.walker.lowest_only {
            notes.say(
                "the cost of page-table entries above the last one that a walk reads \
                 (walker.lowest_only)",
            );
        } else if walker.dimension.params.is_none() && walker.handler.is_none() {
            notes.say("MMU caches: every walk starts at the root of the page table");
        }
        if walker.speculates() {
            notes.say(
                "the cost of a wrong prediction, and the limit that a reorder buffer sets to the \
                 gain of a right one",
            );
        }
        notes.say("the kernel's own accesses: what it reads and writes to answer a fault");
        if let Some(host) = &walker.host {
            if host.dimension.params.is_none() {
                notes.say("MMU caches of the host: its walks start at the root of its page table");
            }
            notes.say(
                "exits to the hypervisor: a page of the host is there when it is first needed",
            );
            if host.shared.is_none() {
                notes.say("one MMU cache for both dimensions: guest and host have their own");
            }
            if !description.nested.as_ref().is_none_or(|nested| nested.holes.is_empty()) {
                notes.say("accesses of the guest to its devices (nested.holes)");
            }
        }
        if description.range_tlb.is_some() {
            notes.say("reads of the range table, which run in parallel with the walk");
        }
        if description.restseg.is_some() {
            notes.say(
                "writes to the arrays of restrictive segments, and page tables that leave out the \
                 pages in segments",
            );
        }
        if !description.walker.tracks_dirty {
            notes.say(match walker.handler {
                None => "the assist of a first store to a clean page (walker.tracks_dirty)",
                Some(_) => "the trap of a first store to a clean page (walker.tracks_dirty)",
            });
        }
        if walker.handler.is_some() {
            notes.say(
                "the refill handler's instructions in the instruction cache, and the registers that \
                 it saves",
            );
        }
    } else {
        notes.say("walks, rights, data caches and time: the machine consists of TLBs alone");
    }
}

/// The accesses and caches that are not modelled, and the unknown properties of
/// regions.
fn accesses(notes: &mut Notes, description: &Description, run: &Run, header: &Header) {
    if !description.core.fetches {
        notes.say("fetches: the machine looks at data accesses only");
    } else if !header.fetches {
        notes.say("fetches: the trace has none");
    }
    if description.cache.present().next().is_some() {
        notes.say("prefetching, and coherence with other processors' caches");
    }
    let page_size = description.os.page_size.0;
    if description.os.uniform && page_size > PageSize::SIZE_4K {
        notes.say(format!(
            "where regions begin and end and what they allow: every page has {page_size} \
             (os.uniform), which no operating system can map"
        ));
    } else if let Some(large) = description.os.large()
        && !run.seen.mappings
    {
        notes.say(format!(
            "where pages of {large} fit: each aligned block of 2M in which something is \
             touched counts as one mapping"
        ));
    }
}

/// The work that the operating system does not do, or that has no price.
fn system(notes: &mut Notes, description: &Description, run: &Run) {
    if let Some(inject) = description.os.inject {
        notes.say(format!("the system as it is without errors: os.inject = {inject} makes it leave out work on purpose"));
    }
    if description.os.populated {
        notes.say("faults of first touches: each page is mapped before its first walk");
    }
    let pages_leave = run.system.counts(&run.stack.guest).is_some();
    if pages_leave {
        if !run.seen.calls {
            notes.say("files that are read and written by calls: the trace has no such calls");
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
    notes.say("wrong-path accesses: the trace holds what the program really did");
    if !run.seen.mappings {
        notes.say(
            "mappings: the trace has no VM calls, so regions are inferred and nothing is unmapped",
        );
    }
    if description.swap.is_some() && !pages_leave {
        notes.say("[swap]: this manager evicts no page");
    }
    if run.seen.physical && !keeps_tables_apart(&description.os) {
        notes.say("the physical addresses of the trace: frames are the machine's own");
    }
}

/// Effects between processors that are not modelled.
fn processors(notes: &mut Notes, description: &Description, run: &Run) {
    let several = run.processors.count() > 1;
    if !several && run.seen.threads.iter().filter(|seen| **seen).count() > 1 {
        notes.say("processors apart: all threads share one set of TLBs and caches (core.count)");
    }
    if several {
        notes.say(
            "time that passes: processors run in the trace's order, and their cycles are added up",
        );
    }
    if run.seen.woken && run.clock() != description.os.clock {
        notes.say(
            "cycles in the operating system's clock: it counts instructions, so that all designs \
             of the sweep have the same history",
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
            "the kernel's data about small spaces other than their roots, and calls that name \
             memory of another space",
        );
    }
    if description.core.virtual_caches {
        notes.say(
            "two lines of a virtual cache for the same frame, of which the kernel allows only one \
             to be dirty",
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
    if run.seen.kernel {
        notes.say("a kernel that was recorded: its path is a model with stated pages and lines");
    }
    if header.filter == Filter::Page16 {
        notes.say(
            "accesses that the page16 filter dropped: lookups are those that it kept, and misses are \
             exact for LRU TLBs of 16 sets and more that serve code or data alone",
        );
    }
    if run.seen.gap_accesses > 0 {
        notes.say(format!("{} accesses that are not in the trace", run.seen.gap_accesses));
    }
    if !walker.port.latencies.known && description.page_table.is_some() {
        notes.say("time: the machine file leaves a latency out".to_owned());
    }
}
