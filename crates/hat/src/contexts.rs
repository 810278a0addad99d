//! Contexts: the few numbers by which hardware tells the TLB entries of different spaces apart (K94
//! sections 3.2 and 6.2: 65,536 on a SuperSPARC, 4096 on other SPARC processors).
//!
//! ```text
//!   enter(space) -- has one? --> goes on with it, and is the last that would lose it
//!        | no
//!        +-- a free one? ------> takes it
//!        | no
//!        +-- the space that was entered least recently loses its own, and all
//!            processors forget its entries
//! ```
//!
//! The order in which contexts were used determines which space loses its context. Updating this
//! order takes a lock at each entry into a space. While few contexts are in use, no space has to
//! lose its context. Up to a threshold, the order is therefore not kept, and a space that has a
//! context is entered without the lock (K94 section 6.2).

use alloc::{collections::BTreeMap, vec::Vec};

use crate::space::HatSpace;

/// The number of contexts, and the threshold from which the order of their use is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextLimit {
    /// The number of contexts that the hardware has.
    pub contexts: u32,
    /// The order of use is not kept while at most this many contexts are in use.
    pub threshold: u32,
}

/// Counts of how contexts were assigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContextCounts {
    /// The number of times that a processor entered a space that had a context, without acquiring
    /// the lock of the contexts.
    pub unlisted: u64,
    /// The number of times that a processor entered a space that had a context and acquired the
    /// lock of the contexts, which records the order of use.
    pub listed: u64,
    /// Contexts assigned to a space that had none.
    pub taken: u64,
    /// Contexts assigned that had to be taken from another space; such contexts are counted in
    /// `taken` as well.
    pub stolen: u64,
}

/// The result of entering a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entered {
    /// The number by which hardware knows the space.
    pub context: u32,
    /// The space that had this context until now, and has lost it.
    pub lost: Option<HatSpace>,
}

/// No context is available: processors run all the spaces that have one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoContext;

impl core::fmt::Display for NoContext {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("no context is free, and all are of spaces that processors run: there must be more contexts than processors")
    }
}

impl core::error::Error for NoContext {}

/// All contexts and the spaces that have them.
#[derive(Debug, Default)]
pub struct Contexts {
    pub(crate) limit: Option<ContextLimit>,
    /// For each context that was ever used: the space to which it belongs, and the time when that
    /// space was last entered.
    owners: Vec<Option<(u32, u64)>>,
    /// The context of each space. Two processors that enter a space at the same time get the same
    /// context.
    of: BTreeMap<u32, u32>,
    free: Vec<u32>,
    /// The contexts in use, by when their space was last entered.
    order: BTreeMap<u64, u32>,
    now: u64,
    pub(crate) counts: ContextCounts,
}

impl Contexts {
    pub(crate) fn limit(&mut self, limit: ContextLimit) {
        self.limit = Some(limit);
    }

    /// The number of contexts in use.
    pub(crate) fn used(&self) -> u32 {
        self.order.len() as u32
    }

    /// Marks `context` as the most recently used context. Returns whether `space` still has this
    /// context.
    pub(crate) fn renew(&mut self, space: u32, context: u32) -> bool {
        self.now += 1;
        let now = self.now;
        let Some(Some((owner, since))) = self.owners.get_mut(context as usize) else {
            return false;
        };
        if *owner != space {
            return false;
        }
        self.order.remove(since);
        *since = now;
        self.order.insert(now, context);
        true
    }

    /// Assigns a context to `space`. Returns the context, and the space that has lost it.
    pub(crate) fn take(
        &mut self,
        space: u32,
        runs: &dyn Fn(HatSpace) -> bool,
    ) -> Option<(u32, Option<u32>)> {
        let limit = self.limit?;
        if let Some(&context) = self.of.get(&space) {
            self.renew(space, context);
            return Some((context, None));
        }
        let next = self.owners.len() as u32;
        let (context, lost) = if let Some(context) = self.free.pop() {
            (context, None)
        } else if next < limit.contexts {
            self.owners.push(None);
            (next, None)
        } else {
            let can = |context: &u32| {
                let owner = self.owners[*context as usize];
                owner.is_some_and(|(owner, _)| !runs(HatSpace(owner)))
            };
            let context = self.order.values().copied().find(can)?;
            let (owner, since) = self.owners[context as usize].take()?;
            self.order.remove(&since);
            self.of.remove(&owner);
            self.counts.stolen += 1;
            (context, Some(owner))
        };
        self.counts.taken += 1;
        self.now += 1;
        self.owners[context as usize] = Some((space, self.now));
        self.of.insert(space, context);
        self.order.insert(self.now, context);
        Some((context, lost))
    }

    /// Frees the context of a space that has ended.
    pub(crate) fn put(&mut self, space: u32) {
        let Some(context) = self.of.remove(&space) else { return };
        if let Some((_, since)) = self.owners[context as usize].take() {
            self.order.remove(&since);
        }
        self.free.push(context);
    }

    pub(crate) const fn counts(&self) -> ContextCounts {
        self.counts
    }
}
