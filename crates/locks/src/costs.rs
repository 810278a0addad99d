//! The duration of work on a virtual processor, in cycles.

use std::collections::BTreeMap;

use hat::{Step, locking::Class};
use serde::Serialize;

/// Prices in cycles. The prices of the HAT layer's and the memory manager's work are the numbers of
/// instructions of this code, at one per cycle; the other prices are assumptions. K94 prints no
/// times, so only orders and ratios that follow from these prices can be claimed.
///
/// The instructions were counted by cachegrind on x86-64 without locks, over adjacent pages of the
/// format x86-64 (`examples/instructions.rs`). A load and an unload of 1, 16 and 64 pages take
/// 2316, 13392 and 40765 instructions; a change of rights takes 1038, 3684 and 10068. An operation
/// therefore takes about 800 instructions; each page adds 170 instructions for its entry and 200
/// for its node. A fault on a page of a file that is in memory takes 2565 instructions, including
/// its share of the unmapping; a fault on an anonymous page takes 4043. After subtracting the
/// layer's work, 360 instructions remain for each search and 680 for each step with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Costs {
    /// An operation of the HAT layer, independent of the number of its pages.
    pub operation: u64,
    /// A page-table entry inserted, changed or removed.
    pub table_write: u64,
    /// A page-table entry read.
    pub table_read: u64,
    /// A node of a mapping list inserted or removed.
    pub mapping: u64,
    /// Taking an uncontended lock, or releasing it.
    pub lock: u64,
    /// Fetching the cache line of a lock that another processor wrote last.
    pub transfer: u64,
    /// Fetching the cache lines that the lock guards, in addition to `transfer`.
    pub guarded: u64,
    /// The limit of `guarded` for all locks of one operation: at this limit the operation has
    /// fetched all lines that it uses.
    pub guarded_operation: u64,
    /// Fetching a lock's line back to the processor of its holder, once for each attempt of a
    /// spinning processor. This price and the next two are for [`LockKind::Barging`].
    pub release: u64,
    /// An attempt of a spinning processor, until it has the lock's line and sees that the lock is
    /// free.
    pub handover: u64,
    /// The time from one attempt of a spinning processor to take the lock to its next attempt.
    pub pause: u64,
    /// Putting a thread to sleep and waking it.
    pub sleep: u64,
    /// The sender's fixed cost of a shootdown; `shoot_each` is added for each receiver.
    pub shoot: u64,
    /// The sender's cost of a shootdown for each receiver.
    pub shoot_each: u64,
    /// The time from a receiver's interrupt to its answer: the sender waits during this time, and
    /// the receiver works.
    pub answer: u64,
    /// Entering the kernel by a trap, and returning.
    pub trap: u64,
    /// Clearing a page of 4 KiB.
    pub zero: u64,
    /// Copying a page of 4 KiB.
    pub copy: u64,
    /// A search for the region of an address, or for a page of an object.
    pub search: u64,
    /// A frame allocated, freed, or assigned to a page.
    pub frame: u64,
    /// Flushing a page of 4 KiB from a virtually indexed cache.
    pub cache_page: u64,
    /// Reading a page from disk or writing it.
    pub disk: u64,
}

impl Costs {
    /// A SuperSPARC of 50 MHz on the XDBus of a SPARCcenter 2000 (K94 section 5.3 names the machine). The
    /// cycles are assumptions: 100 for a line from another cache, 30 us for a switch of threads, 10 ms for a
    /// disk.
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

    /// Prices for threads of a present-day host. The threads do only the work of the layer and of
    /// the memory manager: they take no traps, clear no pages and interrupt no processors. The
    /// prices of locks and lines are assumptions; predictions use measured ones
    /// ([`crate::HostPrices`]).
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

    /// All work is free: for exploring schedules.
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

    /// The time from now until a processor that has been spinning since `since` sees, at its next
    /// attempt, that a lock is free.
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

    /// The price of the HAT layer's `step`. A shootdown is not included, because its price depends
    /// on the processors that are interrupted.
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

/// The measured duration of work, by the class of the lock under which it is done. Work under
/// several locks is counted for the lock that was taken last.
#[derive(Clone, Debug, Default)]
pub struct Paces(pub BTreeMap<Option<Class>, Pace>);

/// The duration of work in one place.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The factor by which each cycle of the price is multiplied.
    pub times: f64,
    /// Additional cycles for each hold of the lock, which the steps of work cannot account for.
    pub more: u64,
}

impl Paces {
    /// The duration of `cycles` of work.
    pub fn of(&self, place: Option<Class>, cycles: u64) -> u64 {
        self.0.get(&place).map_or(0, |pace| (cycles as f64 * pace.times).round() as u64)
    }

    /// The additional duration of each hold of a lock; without a lock, of the time before one.
    pub fn more(&self, place: Option<Class>) -> u64 {
        self.0.get(&place).map_or(0, |pace| pace.more)
    }
}

/// What a processor does when a mutex is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// The processor spins.
    Spin,
    /// The processor spins while the holder runs, and otherwise sleeps: Solaris' adaptive mutex.
    Adaptive,
    /// The processor sleeps until the lock is handed to it in its turn.
    HandOver,
    /// The processor spins, and sees with a delay that the lock is free. Until then, another
    /// processor can take the lock, including the processor that released it. Most present-day
    /// locks work in this way. Readers of a reader/writer lock note their presence in a cache line
    /// of their own.
    Barging,
}

impl LockKind {
    /// Whether taking a lock as a writer, or as a reader, writes to its cache line.
    pub(crate) fn writes_line(self, writes: bool) -> bool {
        match self {
            LockKind::Spin | LockKind::Adaptive | LockKind::HandOver => true,
            LockKind::Barging => writes,
        }
    }

    /// All kinds with their names.
    pub const ALL: [(&str, LockKind); 4] = [
        ("spin", LockKind::Spin),
        ("adaptive", LockKind::Adaptive),
        ("hand-over", LockKind::HandOver),
        ("barging", LockKind::Barging),
    ];
}
