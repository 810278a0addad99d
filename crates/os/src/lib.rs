//! The operating system of a machine: what decides which page is mapped, where, and how large.
//!
//! ```text
//!   fault, event, tick        System        first-touch, ...: decides
//!                               |
//!                               v
//!                            Platform       ram: frames, page table       shoot: what hardware
//!                               |           layout: what the trace said          must forget
//!                               v
//!   walks, places --> Ram <-----+-----> TLBs and MMU caches of all processors
//! ```
//!
//! A [`System`] is asked only where hardware cannot go on (a fault), where the trace has an event,
//! and when a deadline of its own has come: never on the way of a hit. It knows no TLB and no
//! walker. Walks, the placing of their references, memory itself and the walks of a host are
//! [`Ram`](ram::Ram)'s; which region an address is reported under is [`Layout`]'s.
//!
//! This is what a manager and those who call it agree on; the managers are above, in `managers`.
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
use trace::{Batch, Event, Process};

use self::{at::Setting, names::Names};

/// What a system decides on, and through what.
///
/// Object-safe and cold: an indirect call per fault, event or tick.
pub trait System: Send {
    /// A trace with these processes is about to run.
    fn begin(&mut self, _processes: &[Process]) {}

    /// The space that the trace calls `number` is about to run: what goes into the base register.
    fn enter(&mut self, number: u32, platform: &mut dyn Platform) -> Result<Space, Failure>;

    /// Answers a fault: after it, a walk for the same access succeeds. Where there is nothing to
    /// answer, since the page is there and allows the access, the fault would only come again:
    /// that is a failure.
    fn fault(&mut self, ask: &Ask, platform: &mut dyn Platform) -> Result<Answer, Failure>;

    /// Does what the trace's `event` asks for, in the space that `who` runs. What it changes in
    /// the layout comes after.
    fn event(
        &mut self,
        who: Who,
        event: &Event,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure>;

    /// When it wants to be woken next, if at all.
    fn deadline(&self) -> Option<u64> {
        None
    }

    /// A deadline has come: `now` is not before it. What daemons do is done here.
    fn tick(&mut self, _now: u64, _platform: &mut dyn Platform) -> Result<(), Failure> {
        Ok(())
    }

    /// The last [`System::tick`] took `cycles` of the clock. The daemons that it ran begin to sleep now: a daemon
    /// that slept from the start of its pass, and took longer than it sleeps, would never let a program run.
    fn ticked(&mut self, _cycles: u64) {}

    /// Whether [`System::spent`] tells what its work takes; otherwise each fault has one price.
    fn prices_its_work(&self) -> bool {
        false
    }

    /// What it has done since it was asked last took so long.
    fn spent(&mut self) -> Spent {
        Spent::default()
    }

    /// Where pages lie as the trace says: what it knows of that, and is to be told of each row
    /// before that runs.
    fn recorded(&mut self) -> Option<&mut dyn Recorded> {
        None
    }

    /// The page at the first address lies at the second from here on.
    fn moved(
        &mut self,
        _who: Who,
        _at: (VirtAddr, PhysAddr),
        _platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        Ok(())
    }

    /// The settings that can change while it runs.
    fn changeable(&self) -> &'static [Setting] {
        &[]
    }

    /// `what`, one of those, is as `description` says from here on.
    fn change(
        &mut self,
        what: Setting,
        _description: &Description,
        _platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        unreachable!("{} is not among what can change", what.key())
    }

    /// The sizes larger than the base page that it can make pages of, ascending.
    fn promotes_to(&self) -> Vec<PageSize> {
        Vec::new()
    }

    /// Whether the two pages of a pair are promoted together.
    fn promotes_pairs(&self) -> bool {
        false
    }

    /// Has the pages of `range` be of the size `to`, as far as that can be; gives how many became so.
    fn promote(
        &mut self,
        _who: Who,
        _range: VirtRange,
        _to: PageSize,
        _platform: &mut dyn Platform,
    ) -> Result<u64, Failure> {
        Ok(0)
    }

    /// Whether it has pages move between nodes of memory.
    fn moves_to_nodes(&self) -> bool {
        false
    }

    /// After how many references more than its own node's the page at `addr` moves to another node, if
    /// it does.
    fn migrates_after(&self, _who: Who, _addr: VirtAddr, _ram: &Ram) -> Option<u32> {
        None
    }

    /// Has the page at `addr` move to `node`; gives how many base pages have moved, or why none.
    fn move_to_node(
        &mut self,
        _who: Who,
        _addr: VirtAddr,
        _node: u8,
        _platform: &mut dyn Platform,
    ) -> Result<Result<u64, &'static str>, Failure> {
        Ok(Ok(0))
    }

    /// Whether the space that the trace calls `number` asks for pages of several sizes.
    fn has_many_sizes(&self, _number: u32) -> bool {
        false
    }

    /// Names of places in programs are found by `names` from here on.
    fn find_by(&mut self, _names: Names) {}

    /// At the end of a trace: a wish that nothing was ever mapped for, as its line and what it says.
    fn unmet(&self) -> Option<String> {
        None
    }

    /// Enters into `counts`, which are its own, what it has decided about sizes of pages. `places` are those
    /// of the layout's labels among the results' regions; the regions get their names later.
    fn enter_sizes(&self, _places: &[u32], _counts: &mut ManagerCounts) {}

    /// The layout has what the last event changed: what was decided about addresses is counted under
    /// their labels.
    fn settle(&mut self, _ram: &Ram, _layout: &mut Layout) {}

    /// Begins to count anew; what is mapped stays.
    fn forget_counts(&mut self, _ram: &mut Ram) {}

    /// What it has counted that no other system counts, without [`System::enter_sizes`].
    fn counts(&self, _ram: &Ram) -> Option<ManagerCounts> {
        None
    }
}

/// What a system may see and change.
pub trait Platform {
    /// Frames, and the page table with all spaces.
    fn ram(&mut self) -> &mut Ram;

    /// What the trace has said of each space before the event under way.
    fn layout(&self) -> &Layout;

    /// Has every processor forget what `flush` names in its space; its tables' frames are free
    /// then. Frames of pages that went are the system's to free, after this.
    fn shoot(&mut self, flush: Flush);

    /// A device has the frame from here on, or `lent` is false, has it no more.
    fn device(&mut self, _frame: PhysAddr, _lent: bool) {}

    /// The access of the trace at which this is, from 0.
    fn access(&self) -> u64;

    /// The processor that runs.
    fn processor(&self) -> usize;

    /// Of each space that ran since this was asked last the share of its time that went into walks, in per
    /// cent; nothing where that is not measured.
    fn overheads(&mut self) -> Vec<(u32, u64)> {
        Vec::new()
    }
}

/// Where pages lie as the rows of a trace say.
pub trait Recorded {
    /// Takes in where the rows `rows`, run by the space `number`, have their pages, up to the first
    /// that has its page elsewhere than before. An error comes with the number of the row that is wrong.
    fn read(
        &mut self,
        number: u32,
        batch: &Batch,
        rows: Range<usize>,
    ) -> Result<Read, (usize, String)>;
}

/// What a stretch of rows says of where pages lie.
pub struct Read {
    /// The row up to which nothing changes.
    pub until: usize,
    /// Whether the page of that row is somewhere else from there on.
    pub moves: bool,
}

/// What a system's work takes, in cycles of the processor that runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Of the kernel's own work, if that has prices.
    pub work_cycles: u64,
    /// Of waiting for disks.
    pub io_cycles: u64,
}

/// Who runs.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// The space, as the trace numbers it.
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
    /// Why.
    pub fault: Fault,
}

/// What a system did about a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The page was not there and is now.
    FirstTouch,
    /// The page had been touched before and is there again: it, or only its translation, had been removed.
    Returned,
    /// The page was there and allows the access now.
    Granted,
}

/// Why nothing can be done about an address that the page table in `ram` cannot hold.
pub fn unfit(addr: VirtAddr, ram: &Ram) -> Failure {
    let is_signed = |bits: u32| {
        let beyond = 64 - bits;
        (addr.get() << beyond) as i64 >> beyond == addr.get() as i64
    };
    let wider = ram.wider().iter().find(|(bits, _)| is_signed(*bits));
    let hint = if let Some((_, setting)) = wider {
        format!(", but with --set {setting} it can")
    } else if (1 << 32..1 << 47).contains(&addr.get()) {
        // Of the tables that none is wider than, all hold what lies between but those of 32 bits.
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

/// Why a fault would only come again.
pub fn stale(addr: VirtAddr, fault: Fault) -> Failure {
    Failure::Table(format!(
        "the walk of {addr} faults ({fault}), but the page table has the page and allows the \
         access: the hardware still has an entry that a shootdown should have flushed"
    ))
}
