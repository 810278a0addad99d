//! Contexts: the numbers by which hardware tells the TLB entries of different spaces apart, of which
//! there are few (K94 sections 3.2 and 6.2: 65,536 on a SuperSPARC, 4096 on others).
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
//! To keep that order each entry into a space takes a lock. As long as few contexts are in use nobody
//! will lose one: below a threshold the order is not kept, and whoever has a context goes on without the
//! lock (K94 section 6.2).

use alloc::{collections::BTreeMap, vec::Vec};

use crate::space::HatSpace;

/// How many contexts there are, and from when on the order of their use is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextLimit {
    /// Contexts of the hardware.
    pub contexts: u32,
    /// While at most so many are in use, the order is not kept.
    pub threshold: u32,
}

/// What contexts have cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContextCounts {
    /// Entries into a space that has a context, without the lock.
    pub unlisted: u64,
    /// Entries into a space that has a context, with the lock, because the order of use is kept.
    pub listed: u64,
    /// Contexts given to a space that had none.
    pub taken: u64,
    /// Of these, those that another space has lost for it.
    pub stolen: u64,
}

/// What a space was entered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entered {
    /// The number that hardware knows the space by.
    pub context: u32,
    /// The space that had it before, and has lost it.
    pub lost: Option<HatSpace>,
}

/// No context can be had: all are of spaces that processors run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoContext;

impl core::fmt::Display for NoContext {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("no context is free, and all are of spaces that processors run: there must be more contexts than processors")
    }
}

impl core::error::Error for NoContext {}

/// The list of contexts.
#[derive(Debug, Default)]
pub struct Contexts {
    pub(crate) limit: Option<ContextLimit>,
    /// By context, the space that has it and when it was entered; those that were never used are not
    /// here.
    owners: Vec<Option<(u32, u64)>>,
    /// By space: two processors that enter one at once get one context.
    of: BTreeMap<u32, u32>,
    free: Vec<u32>,
    /// Contexts in use, by when their space was entered.
    order: BTreeMap<u64, u32>,
    now: u64,
    pub(crate) counts: ContextCounts,
}

impl Contexts {
    pub(crate) fn limit(&mut self, limit: ContextLimit) {
        self.limit = Some(limit);
    }

    /// Contexts in use.
    pub(crate) fn used(&self) -> u32 {
        self.order.len() as u32
    }

    /// The context of `space` is the last to be lost, if it still has it.
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

    /// A context for `space`, and who has lost it.
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

    /// The space is gone.
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
