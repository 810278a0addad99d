//! What work takes on a processor of virtual time, in cycles.

use std::collections::BTreeMap;

use hat::{Step, locking::Class};
use serde::Serialize;

/// Prices. Those of the layer's and the memory manager's work are the instructions that this code takes, at
/// one per cycle; others are assumptions. K94 prints no times, so that only orders and ratios of what
/// follows from them can be claimed.
///
/// Counted by cachegrind on x86-64 without locks, over near pages of the format x86-64
/// (`examples/instructions.rs`): a load and an unload of 1, 16 and 64 pages take 2316, 13392 and 40765
/// instructions, a change of rights 1038, 3684 and 10068. So an operation takes some 800 at all, the entry of
/// a page 170, its node 200 more. A fault on a page of a file in memory takes 2565 with its share of an
/// unmapping, one on an anonymous page 4043: what is left after the layer's work is 360 for each search and
/// 680 for each step of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Costs {
    /// An operation of the HAT layer, whatever its pages.
    pub operation: u64,
    /// A page of a page table entered, changed or removed.
    pub table_write: u64,
    /// A page of a page table looked at.
    pub table_read: u64,
    /// A node of a mapping list entered or removed.
    pub mapping: u64,
    /// A lock taken, or given back, that nobody else wants.
    pub lock: u64,
    /// The line of a lock fetched that another processor wrote last.
    pub transfer: u64,
    /// The lines fetched with it that the lock guards.
    pub guarded: u64,
    /// The lines that the locks of one operation guard, at most: then the operation has fetched all lines
    /// that it uses.
    pub guarded_operation: u64,
    /// A lock's line fetched back by its holder, for each try of another who spins for the lock
    /// ([`LockKind::Barging`], as the next two).
    pub release: u64,
    /// A try of who spins for it, until it has the lock's line and sees that it is free.
    pub handover: u64,
    /// From one such try to the next.
    pub pause: u64,
    /// A thread put to sleep and woken.
    pub sleep: u64,
    /// The sender of a shootdown, once, and again for each receiver.
    pub shoot: u64,
    /// See `shoot`.
    pub shoot_each: u64,
    /// From a receiver's interrupt to its answer: the sender waits for it, the receiver works.
    pub answer: u64,
    /// A trap into the kernel and back.
    pub trap: u64,
    /// A page of 4 KiB cleared.
    pub zero: u64,
    /// A page of 4 KiB copied.
    pub copy: u64,
    /// A search for the region of an address, or for a page of an object.
    pub search: u64,
    /// A frame taken, given back, or given to a page.
    pub frame: u64,
    /// A page of 4 KiB flushed from a cache that is indexed by virtual addresses.
    pub cache_page: u64,
    /// A page read from a disk or written to it.
    pub disk: u64,
}

impl Costs {
    /// A SuperSPARC of 50 MHz on the XDBus of a SPARCcenter 2000 (K94 section 5.3 names the machine;
    /// the cycles are assumptions: 100 for a line from another cache, 30 us for a switch of threads, 10 ms for a disk).
    pub const SPARCCENTER_2000: Costs = Costs {
        operation: 800,
        table_write: 170,
        table_read: 100,
        mapping: 200,
        lock: 10,
        transfer: 100,
        guarded: 0,
        guarded_operation: 0,
        release: 0,
        handover: 200,
        pause: 0,
        sleep: 1500,
        shoot: 150,
        shoot_each: 50,
        answer: 400,
        trap: 150,
        zero: 1000,
        copy: 2000,
        search: 360,
        frame: 680,
        cache_page: 256,
        disk: 500_000,
    };

    /// Threads of a host of today that do no more than the layer's and the memory manager's own work: no
    /// traps, no pages cleared, nobody interrupted. Locks and lines are assumptions: predictions have those
    /// that were measured ([`crate::HostPrices`]).
    pub const HOST: Costs = Costs {
        operation: 800,
        table_write: 170,
        table_read: 100,
        mapping: 200,
        lock: 20,
        transfer: 150,
        release: 150,
        handover: 50,
        pause: 150,
        sleep: 5000,
        search: 360,
        frame: 680,
        ..Costs::FREE
    };

    /// Nothing takes any time: for schedules that are explored.
    pub const FREE: Costs = Costs {
        operation: 0,
        table_write: 0,
        table_read: 0,
        mapping: 0,
        lock: 0,
        transfer: 0,
        guarded: 0,
        guarded_operation: 0,
        release: 0,
        handover: 0,
        pause: 0,
        sleep: 0,
        shoot: 0,
        shoot_each: 0,
        answer: 0,
        trap: 0,
        zero: 0,
        copy: 0,
        search: 0,
        frame: 0,
        cache_page: 0,
        disk: 0,
    };

    /// From now until one that has spun `since` then sees that a lock is free: at its next try.
    pub(crate) fn until_seen(&self, since: u64, now: u64) -> u64 {
        let ago = now.saturating_sub(since) % self.pause.max(1);
        self.handover + self.pause.saturating_sub(ago)
    }

    /// The price of the memory manager's `step`.
    pub fn of_vm(&self, step: vm::Step) -> u64 {
        match step {
            vm::Step::Hat(step) => self.of(step),
            vm::Step::Region | vm::Step::Object => self.search,
            vm::Step::Frame => self.frame,
        }
    }

    /// The price of the HAT layer's `step`. A shootdown is priced by who is interrupted.
    pub fn of(&self, step: Step) -> u64 {
        match step {
            Step::Operation => self.operation,
            Step::TableWrite => self.table_write,
            Step::TableRead => self.table_read,
            Step::Mapping => self.mapping,
            Step::Shootdown => 0,
        }
    }
}

/// How long work takes by where it is done, as it was measured: under which lock, the last taken of those held.
#[derive(Clone, Debug, Default)]
pub struct Paces(pub BTreeMap<Option<Class>, Pace>);

/// How long work takes in one place.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// For a cycle of its price.
    pub times: f64,
    /// For each lock of the place, where the steps of work there cannot be what takes the time.
    pub more: u64,
}

impl Paces {
    /// What `cycles` of work take.
    pub fn of(&self, place: Option<Class>, cycles: u64) -> u64 {
        self.0.get(&place).map_or(0, |pace| (cycles as f64 * pace.times).round() as u64)
    }

    /// What each hold of a lock takes besides; without locks, what there is before each.
    pub fn more(&self, place: Option<Class>) -> u64 {
        self.0.get(&place).map_or(0, |pace| pace.more)
    }
}

/// What a processor does that finds a mutex held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// It spins.
    Spin,
    /// It spins while the holder runs, and sleeps otherwise: Solaris' adaptive mutex.
    Adaptive,
    /// It sleeps, and is given the lock in its turn.
    HandOver,
    /// It spins, and sees after a while that the lock is free. Meanwhile another can take it, who has given it back
    /// among them: most locks of today. Readers of a reader/writer lock note in a line of their own that they
    /// are there.
    Barging,
}

impl LockKind {
    /// Whether who takes a lock writes to its line, as a writer or a reader.
    pub(crate) fn writes_line(self, writes: bool) -> bool {
        match self {
            LockKind::Spin | LockKind::Adaptive | LockKind::HandOver => true,
            LockKind::Barging => writes,
        }
    }

    /// All, with their names.
    pub const ALL: [(&str, LockKind); 4] = [
        ("spin", LockKind::Spin),
        ("adaptive", LockKind::Adaptive),
        ("hand-over", LockKind::HandOver),
        ("barging", LockKind::Barging),
    ];
}
