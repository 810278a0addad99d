//! The log of a front: all its reports to the hardware behind the TLBs, recorded for many
//! designs.
//!
//! ```text
//!   messages    data | data | walk 4 | refilled | data | forget | ...
//!   walks                     w0                                      whose it is
//!   references                r0 r1 r2 r3                             of all walks, in order
//! ```

use addr::{Kind, PhysAddr};
use hardware::behind::{Behind, Forget, Refill};
use mmu::Spot;
use pagetable::{Node, Reference};
use ram::walk::{HostWalk, Walk, Way};

use super::{
    family_log::{FamilyLog, Numbering},
    repeats::Repeats,
};

/// A message of the log. Long or rare data is in separate lists.
#[derive(Clone, Copy, Debug)]
enum Message {
    Data { phys: PhysAddr, bytes: u16, kind: Kind },
    FirstData { phys: PhysAddr, bytes: u16, kind: Kind },
    Walk { references: u16, host: u16, host_references: u16 },
    Beside { references: u16 },
    Found,
    Faulted,
    Switched,
    Device { frame: PhysAddr, lent: bool },
    Refilled(Refill),
    On(u8),
    Forget,
    ForgetCounts,
}

/// The messages of a front in one round, in order.
#[derive(Default)]
pub(super) struct Log {
    /// Whether any design has data caches, which need the program's own accesses.
    pub(super) caches: bool,
    /// Whether these caches are looked up by virtual address.
    pub(super) virtual_caches: bool,
    /// Whether any design predicts the results of walks.
    pub(super) speculates: bool,
    /// Whether any of these predictors uses contiguous runs and instruction addresses.
    pub(super) wants_runs: bool,
    pub(super) repeats: Repeats,
    /// Whether any design needs the whole log, and whether any family needs its own log.
    pub(super) whole: bool,
    pub(super) to_families: bool,
    pub(super) for_families: FamilyLog,
    pub(super) known: Numbering,
    messages: Vec<Message>,
    walks: Vec<Walk>,
    references: Vec<Reference>,
    host: Vec<HostWalk>,
    host_references: Vec<Reference>,
    forgets: Vec<(usize, Forget)>,
    spots: Vec<(Option<u64>, Spot)>,
    faults: Vec<(Option<u64>, Option<Spot>)>,
}

impl Log {
    /// Empties the log and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.for_families.clear();
        self.messages.clear();
        self.walks.clear();
        self.references.clear();
        self.host.clear();
        self.host_references.clear();
        self.forgets.clear();
        self.spots.clear();
        self.faults.clear();
    }

    /// Replays the log to `behind`. The error is a stale entry from which `behind` starts a walk.
    pub(super) fn tell(&self, behind: &mut impl Behind) -> Result<(), StaleEntry> {
        let mut walks = self.walks.iter();
        let mut forgets = self.forgets.iter();
        let mut spots = self.spots.iter();
        let mut faults = self.faults.iter();
        let mut references = self.references.as_slice();
        let mut host = self.host.as_slice();
        let mut host_references = self.host_references.as_slice();
        for message in &self.messages {
            match *message {
                Message::Data { phys, bytes, kind } => behind.data(phys, u32::from(bytes), kind),
                Message::FirstData { phys, bytes, kind } => {
                    behind.first_data(phys, u32::from(bytes), kind);
                }
                Message::Found => {
                    spots.next().into_iter().for_each(|(by, spot)| behind.found(*by, *spot));
                }
                Message::Faulted => {
                    faults.next().into_iter().for_each(|(by, there)| behind.faulted(*by, *there));
                }
                Message::Switched => behind.switched(),
                Message::Device { frame, lent } => behind.device(frame, lent),
                Message::Walk { references: own, host: walked, host_references: below } => {
                    let Some(walk) = walks.next() else { continue };
                    let way = Way {
                        references: take(&mut references, own),
                        host: take(&mut host, walked),
                        host_references: take(&mut host_references, below),
                    };
                    behind.walk(walk, way).map_err(|node| StaleEntry { walk: *walk, node })?;
                }
                Message::Beside { references: own } => behind.beside(take(&mut references, own)),
                Message::Refilled(refill) => behind.refilled(refill),
                Message::On(processor) => behind.on(processor.into()),
                Message::Forget => {
                    if let Some((processor, forget)) = forgets.next() {
                        behind.forget(*processor, *forget);
                    }
                }
                Message::ForgetCounts => behind.forget_counts(),
            }
        }
        Ok(())
    }
}

/// Splits off the first `count` elements of `rest`.
fn take<'a, T>(rest: &mut &'a [T], count: u16) -> &'a [T] {
    let (taken, left) = rest.split_at(usize::from(count));
    *rest = left;
    taken
}

/// An MMU-cache entry that starts a walk at a table that is no longer in the page table.
#[derive(Clone, Copy, Debug)]
pub(super) struct StaleEntry {
    pub(super) walk: Walk,
    pub(super) node: Node,
}

impl std::fmt::Display for StaleEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let StaleEntry { walk, node } = self;
        write!(
            f,
            "the MMU cache starts the walk of {} at a table of level {} at {}, but the page table \
             has no table there: a flush is missing. A sweep cannot simulate such a walk: run \
             this design alone",
            walk.va, node.level, node.table
        )
    }
}

impl Behind for Log {
    fn has_caches(&self) -> bool {
        self.caches
    }

    fn speculates(&self) -> bool {
        self.speculates
    }

    fn wants_runs(&self) -> bool {
        self.wants_runs
    }

    fn on(&mut self, processor: usize) {
        self.repeats.on(processor);
        if self.to_families {
            self.for_families.on(&mut self.known, processor);
        }
        if self.whole {
            // A machine has at most 64 processors.
            self.messages.push(Message::On(processor as u8));
        }
    }

    fn is_far(&self) -> bool {
        // The log has no caches; the designs that read it have caches.
        false
    }

    fn soon(&self, _phys: PhysAddr) {}

    #[inline]
    fn data(&mut self, phys: PhysAddr, bytes: u32, kind: Kind) {
        // The size of an access always fits into 16 bits, since `trace::Meta` stores it in 14 bits.
        if self.repeats.is_one(phys, bytes, kind) {
            return;
        }
        let bytes = bytes.min(u32::from(u16::MAX)) as u16;
        self.messages.push(Message::Data { phys, bytes, kind });
    }

    fn first_data(&mut self, phys: PhysAddr, bytes: u32, kind: Kind) {
        self.repeats.told(phys, bytes, kind);
        let bytes = bytes.min(u32::from(u16::MAX)) as u16;
        self.messages.push(Message::FirstData { phys, bytes, kind });
    }

    fn found(&mut self, by: Option<u64>, spot: Spot) {
        self.messages.push(Message::Found);
        self.spots.push((by, spot));
    }

    fn faulted(&mut self, by: Option<u64>, there: Option<Spot>) {
        self.messages.push(Message::Faulted);
        self.faults.push((by, there));
    }

    fn device(&mut self, frame: PhysAddr, lent: bool) {
        self.messages.push(Message::Device { frame, lent });
    }

    fn switched(&mut self) {
        if self.speculates {
            self.messages.push(Message::Switched);
        }
    }

    fn walk(&mut self, walk: &Walk, way: Way<'_>) -> Result<(), Node> {
        if self.to_families {
            self.for_families.walk(&mut self.known, walk, way.references);
        }
        if !self.whole {
            return Ok(());
        }
        self.repeats.walk(way);
        self.messages.push(Message::Walk {
            references: way.references.len() as u16,
            host: way.host.len() as u16,
            host_references: way.host_references.len() as u16,
        });
        self.walks.push(*walk);
        self.references.extend_from_slice(way.references);
        self.host.extend_from_slice(way.host);
        self.host_references.extend_from_slice(way.host_references);
        Ok(())
    }

    fn beside(&mut self, references: &[Reference]) {
        if self.whole {
            self.repeats.walk(Way { references, host: &[], host_references: &[] });
            self.messages.push(Message::Beside { references: references.len() as u16 });
            self.references.extend_from_slice(references);
        }
    }

    /// Never called, since [`Log::walk`] accepts every walk.
    fn walk_from_stale(&mut self, _walk: &Walk, _way: Way<'_>) {}

    fn refilled(&mut self, refill: Refill) {
        if self.to_families {
            self.for_families.refilled(&mut self.known, refill);
        }
        if self.whole {
            self.messages.push(Message::Refilled(refill));
        }
    }

    fn forget(&mut self, processor: usize, forget: Forget) {
        if self.to_families && !matches!(forget, Forget::Pages(..)) {
            self.for_families.forget(&mut self.known, processor, forget);
        }
        if self.virtual_caches && matches!(forget, Forget::All | Forget::Pages(..)) {
            self.repeats.flushed(processor);
        }
        if self.whole {
            self.messages.push(Message::Forget);
            self.forgets.push((processor, forget));
        }
    }

    fn forget_counts(&mut self) {
        self.repeats.forget_counts();
        if self.to_families {
            self.for_families.forget_counts();
        }
        if self.whole {
            self.messages.push(Message::ForgetCounts);
        }
    }
}
