//! The operating system of a machine: it decides which page is mapped, to which frame, and how
//! large it is.
//!
//! ```text
//!   fault, event, tick        System        first-touch, ...: decides
//!                               |
//!                               v
//!                            Platform       ram: frames, page table       shoot: what hardware
//!                               |           layout: the trace's regions          must flush
//!                               v
//!   walks, places --> Ram <-----+-----> TLBs and MMU caches of all processors
//! ```
//!
//! A [`System`] is called only if hardware cannot continue (a fault), if the trace has an event, or
//! if a deadline of the system has passed. It is never called for a TLB hit. A system does not know
//! TLBs or walkers. [`Ram`](ram::Ram) has the memory, its walks and the walks of a host. [`Layout`]
//! has the region under which an address is reported.
//!
//! This crate is the interface between managers and their callers; the managers are in the crate
//! `managers` above.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "parts of one program: a field whose name says all has no comment")]

pub mod at;
pub mod events;
pub mod host;
pub mod names;
pub mod ranges;

use std::ops::Range;

use addr::{Kind, PageSize, PhysAddr, VirtAddr, VirtRange};
use description::Description;
use pagetable::{Fault, Flush, Space};
use ram::{Failure, Ram};
use results::{ManagerCounts, count::labels::Layout};
use trace::{Batch, Event, Process, Source};

use self::{at::Setting, names::Names};

/// A memory manager of a simulated operating system.
///
/// The trait is object-safe; there is one indirect call per fault, event or tick.
pub trait System: Send {
    /// Called before a trace with these processes runs.
    fn begin(&mut self, _processes: &[Process]) {}

    /// Called when the space that the trace calls `number` is about to run; returns the value for
    /// the root register.
    fn enter(&mut self, number: u32, platform: &mut dyn Platform) -> Result<Space, Failure>;

    /// Handles a fault, so that a second walk for the access succeeds. If the page is mapped
    /// already and allows the access, this is an error: the fault would be repeated forever.
    fn fault(&mut self, ask: &Ask, platform: &mut dyn Platform) -> Result<Answer, Failure>;

    /// Carries out the request of the trace's `event` in the space that `who` runs. The layout is
    /// updated afterwards.
    fn event(
        &mut self,
        who: Who,
        event: &Event,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure>;

    /// The time at which the system needs to be called next, if any.
    fn deadline(&self) -> Option<u64> {
        None
    }

    /// Called when the clock has reached the deadline; `now` is the time. The work of daemons is
    /// done here.
    fn tick(&mut self, _now: u64, _platform: &mut dyn Platform) -> Result<(), Failure> {
        Ok(())
    }

    /// Called after a [`System::tick`] with its duration, `cycles` of the clock. The sleep of the
    /// daemons that ran begins now. If the sleep began at the start of a pass instead, a daemon
    /// whose passes take longer than its sleep would run all the time, and programs would never
    /// run.
    fn ticked(&mut self, _cycles: u64) {}

    /// Whether [`System::spent`] returns the cost of the system's work; otherwise each fault has
    /// the same cost.
    fn prices_its_work(&self) -> bool {
        false
    }

    /// The cost of the system's work since the last call.
    fn spent(&mut self) -> Spent {
        Spent::default()
    }

    /// For managers that place pages as recorded in the trace: the state of this placement. Each
    /// row must be passed to it before the row runs.
    fn recorded(&mut self) -> Option<&mut dyn Recorded> {
        None
    }

    /// Reports that a page was moved from the first address to the second.
    fn moved(
        &mut self,
        _who: Who,
        _at: (VirtAddr, PhysAddr),
        _platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        Ok(())
    }

    /// The settings that can change while the system runs.
    fn changeable(&self) -> &'static [Setting] {
        &[]
    }

    /// Changes the setting `what`, which is one of [`System::changeable`], to its value in
    /// `description`.
    fn change(
        &mut self,
        what: Setting,
        _description: &Description,
        _platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        unreachable!("{} is not a setting that can change", what.key())
    }

    /// The page sizes, larger than the base page, to which the system can promote pages, ascending.
    fn promotes_to(&self) -> Vec<PageSize> {
        Vec::new()
    }

    /// Whether the two pages of a TLB pair are promoted together.
    fn promotes_pairs(&self) -> bool {
        false
    }

    /// Promotes the pages of `range` to the size `to`, as far as possible. Returns the number of
    /// large pages made.
    fn promote(
        &mut self,
        _who: Who,
        _range: VirtRange,
        _to: PageSize,
        _platform: &mut dyn Platform,
    ) -> Result<u64, Failure> {
        Ok(0)
    }

    /// Whether the system migrates pages between nodes of memory.
    fn moves_to_nodes(&self) -> bool {
        false
    }

    /// The page at `addr` migrates to another node when the references of that node to the page
    /// exceed those of the page's own node by this number. `None` if the page does not migrate.
    fn migrates_after(&self, _who: Who, _addr: VirtAddr, _ram: &Ram) -> Option<u32> {
        None
    }

    /// Migrates the page at `addr` to `node`. Returns the number of base pages moved, or the reason
    /// why no page was moved.
    fn move_to_node(
        &mut self,
        _who: Who,
        _addr: VirtAddr,
        _node: u8,
        _platform: &mut dyn Platform,
    ) -> Result<Result<u64, &'static str>, Failure> {
        Ok(Ok(0))
    }

    /// Whether the space that the trace calls `number` uses pages of several sizes.
    fn has_many_sizes(&self, _number: u32) -> bool {
        false
    }

    /// Sets the function that finds the names of places in programs.
    fn find_by(&mut self, _names: Names) {}

    /// At the end of a trace, a place rule that has matched no mapping, with its line and text.
    fn unmet(&self) -> Option<String> {
        None
    }

    /// Adds the system's decisions about page sizes to `counts`, which are the counts of this
    /// system. `places` has, for each label of the layout, the index of its region in the results;
    /// the names of regions are added later.
    fn enter_sizes(&self, _places: &[u32], _counts: &mut ManagerCounts) {}

    /// Called when the layout has been updated for the last event. Decisions that the system made
    /// about addresses before can now be counted under the labels of their regions.
    fn settle(&mut self, _ram: &Ram, _layout: &mut Layout) {}

    /// Resets the counts to zero; mappings stay.
    fn forget_counts(&mut self, _ram: &mut Ram) {}

    /// The counts that only this system has, without those of [`System::enter_sizes`].
    fn counts(&self, _ram: &Ram) -> Option<ManagerCounts> {
        None
    }
}

/// The parts of a machine that a system may access.
pub trait Platform {
    /// Frames, and the page table with all spaces.
    fn ram(&mut self) -> &mut Ram;

    /// The layout of each space, as the trace has reported it before the current event.
    fn layout(&self) -> &Layout;

    /// Makes every processor flush the entries that `flush` names, and then frees the frames of
    /// tables in `flush`. The system frees the frames of unmapped pages afterwards.
    fn shoot(&mut self, flush: Flush);

    /// Reports that a device owns the frame from now on or, if `lent` is false, no longer owns it.
    fn device(&mut self, _frame: PhysAddr, _lent: bool) {}

    /// The index of the current access of the trace, from 0.
    fn access(&self) -> u64;

    /// The number of the running processor.
    fn processor(&self) -> usize;

    /// For each space that has run since the last call, the percentage of its time that it spent in
    /// walks. Empty if this time is not measured.
    fn overheads(&mut self) -> Vec<(u32, u64)> {
        Vec::new()
    }
}

/// Page placement as given by the rows of a trace.
pub trait Recorded {
    /// Sets a second source of the same trace, from which the placement of later pages may be read
    /// ahead.
    fn foresee(&mut self, source: Box<dyn Source + Send>);

    /// Reads the placement of the pages that `rows` access in the space `number`, up to the first
    /// row whose page has moved. The error has the number of the row that is wrong.
    fn read(
        &mut self,
        number: u32,
        batch: &Batch,
        rows: Range<usize>,
    ) -> Result<Read, (usize, String)>;
}

/// The result of reading the placement of an interval of rows.
pub struct Read {
    /// The row up to which no page moves.
    pub until: usize,
    /// Whether the page of the row `until` has another frame from this row on.
    pub moves: bool,
}

/// The cost of a system's work, in cycles of the running processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// The kernel's own work, if it has prices.
    pub work_cycles: u64,
    /// Cycles of waiting for disks.
    pub io_cycles: u64,
}

/// The running space.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// The number of the space in the trace.
    pub number: u32,
    /// The space in the page table.
    pub space: Space,
}

/// An access that hardware could not translate.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub who: Who,
    pub addr: VirtAddr,
    pub kind: Kind,
    /// The fault.
    pub fault: Fault,
}

/// How a system handled a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The page was touched for the first time and is now mapped.
    FirstTouch,
    /// The page had been touched before and is now mapped again, because the page or only its
    /// translation had been removed.
    Returned,
    /// The page was mapped and now allows the access.
    Granted,
}

/// The failure for an address that the page table in `ram` does not support.
pub fn unfit(addr: VirtAddr, ram: &Ram) -> Failure {
    let is_signed = |bits: u32| {
        let beyond = 64 - bits;
        (addr.get() << beyond) as i64 >> beyond == addr.get() as i64
    };
    let wider = ram.wider().iter().find(|(bits, _)| is_signed(*bits));
    let hint = if let Some((_, setting)) = wider {
        format!(": add --set {setting}")
    } else if (1 << 32..1 << 47).contains(&addr.get()) {
        // Page tables that have no variant for longer addresses refuse an address in this range
        // only if they are page tables of 32 bits.
        "; it needs a program of 32 bits: record one, or use generate:PATTERN,bits=32".to_owned()
    } else if !is_signed(57) {
        "; if its upper byte is a tag, as programs for AArch64 have them, read the trace with \
         --arch aarch64, which leaves tags out"
            .to_owned()
    } else {
        String::new()
    };
    Failure::Table(format!("this machine's page table cannot map the address {addr}{hint}"))
}

/// The failure for a fault that would be repeated forever.
pub fn stale(addr: VirtAddr, fault: Fault) -> Failure {
    Failure::Table(format!(
        "the walk of {addr} faults ({fault}), but the page table has the page and allows the \
         access: the hardware still has an entry that a shootdown should have flushed"
    ))
}
