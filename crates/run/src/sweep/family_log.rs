//! The log of a front for its families of designs. Data that makes no difference to these families
//! is left out.
//!
//! ```text
//!   messages  walk of 3 | refilled, class 5 | walk of 3 | refilled, class 2 | forget 1 | ...
//!   steps     n0 n1 n2                        n0 n1 n7
//!
//!   class 5   a miss in region 4, not cold: one walk of entries of levels 4, 3, 2, 1; a page
//! ```
//!
//! Without data caches, a walk is counted by its shape and by the entries that the MMU cache saves;
//! the addresses of the entries make no difference. Misses with equal shapes therefore form a
//! class. One miss of each class is recorded completely and represents all misses of its class when
//! they are counted ([`Miss`]).

use hardware::{
    behind::{Forget, Refill},
    walker::{Miss, WalkMade},
};
use mmu::Step;
use pagetable::{Node, Reference};
use ram::walk::Walk;
use rustc_hash::FxHashMap;

use super::{log::StaleEntry, numbers::Numbers};

/// A message of the log.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    /// A walk of this number of steps.
    Walk { steps: u8, found: bool },
    /// The end of the walks of a miss of this class.
    Refilled { class: u32 },
    /// The next messages are for this processor.
    On { processor: u32 },
    /// A processor flushes this number of nodes.
    Forget { processor: u32, nodes: u32 },
    /// A node that is no longer on the walk path to its addresses, although it was not flushed: a
    /// stale node.
    Stale { node: u32 },
    /// Resets the counts to zero.
    ForgetCounts,
}

/// The messages of a front in one round, in order.
#[derive(Debug, Default)]
pub(super) struct FamilyLog {
    pub(super) messages: Vec<Message>,
    pub(super) steps: Vec<Step>,
    pub(super) forgotten: Vec<u32>,
    /// For each stale entry: the walk that shows that it is stale.
    pub(super) stale_entries: Vec<StaleEntry>,
}

/// The numbers that the front has given to nodes and classes so far.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    on: usize,
    /// The numbers of nodes by processor, for processors seen so far.
    numbers: Vec<Numbers>,
    classes: FxHashMap<Box<[u32]>, u32>,
    /// One miss of each class, by the number of the class.
    pub(super) misses: Vec<Miss>,
    /// The walks since the last refill, which determine the class of the miss.
    under_way: Vec<WalkMade>,
    references: Vec<Reference>,
    key: Vec<u32>,
}

impl FamilyLog {
    pub(super) fn clear(&mut self) {
        self.messages.clear();
        self.steps.clear();
        self.forgotten.clear();
        self.stale_entries.clear();
    }

    #[inline]
    pub(super) fn walk(&mut self, known: &mut Numbering, walk: &Walk, references: &[Reference]) {
        let before = self.steps.len();
        for reference in references {
            known.key.push(shape(reference));
            if let Some(next) = reference.next() {
                let number = known.numbers().number(walk.va, walk.asid, next);
                if let Some(stale) = number.stale {
                    self.stale(walk, next, stale);
                }
                self.steps.push(Step { node: number.node, from: reference.level, to: next.level });
            }
        }
        let steps = (self.steps.len() - before) as u8;
        self.messages.push(Message::Walk { steps, found: walk.found });
        known.key.push(u32::from(walk.found) | 2);
        known.under_way.push(WalkMade { walk: *walk, references: references.len() });
        known.references.extend_from_slice(references);
    }

    #[inline]
    pub(super) fn refilled(&mut self, known: &mut Numbering, refill: Refill) {
        known.key.extend([refill.region, refill.bits(), known.on as u32]);
        let class = match known.classes.get(known.key.as_slice()) {
            Some(class) => *class,
            None => known.add_class(refill),
        };
        self.messages.push(Message::Refilled { class });
        known.under_way.clear();
        known.references.clear();
        known.key.clear();
    }

    pub(super) fn on(&mut self, known: &mut Numbering, processor: usize) {
        known.on = processor;
        self.messages.push(Message::On { processor: processor as u32 });
    }

    pub(super) fn forget(&mut self, known: &mut Numbering, processor: usize, forget: Forget) {
        let Some(numbers) = known.numbers.get_mut(processor) else { return };
        let gone = numbers.forget(forget);
        let (processor, nodes) = (processor as u32, gone.len() as u32);
        self.messages.push(Message::Forget { processor, nodes });
        self.forgotten.extend(gone);
    }

    pub(super) fn forget_counts(&mut self) {
        self.messages.push(Message::ForgetCounts);
    }

    #[cold]
    fn stale(&mut self, walk: &Walk, node: Node, stale: u32) {
        self.messages.push(Message::Stale { node: stale });
        self.stale_entries.push(StaleEntry { walk: *walk, node });
    }
}

impl Numbering {
    /// The numbers of nodes for the running processor.
    #[inline]
    fn numbers(&mut self) -> &mut Numbers {
        if self.numbers.len() <= self.on {
            self.numbers.resize_with(self.on + 1, Numbers::default);
        }
        &mut self.numbers[self.on]
    }

    #[cold]
    fn add_class(&mut self, refill: Refill) -> u32 {
        let class = self.misses.len() as u32;
        self.classes.insert(self.key.as_slice().into(), class);
        let (walks, references) = (self.under_way.clone(), self.references.clone());
        self.misses.push(Miss { processor: self.on, walks, references, refill });
        class
    }
}

/// The properties of a reference that determine how it is counted, as a number above those with
/// which [`FamilyLog::walk`] ends a walk.
#[inline]
fn shape(reference: &Reference) -> u32 {
    let next = reference.next().map_or(0, |node| u32::from(node.level) + 1);
    u32::from(reference.level) << 16 | next << 4 | u32::from(reference.write) << 2 | 8
}
