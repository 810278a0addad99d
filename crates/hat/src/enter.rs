//! A processor enters a space: assignment of the space's context ([`Contexts`](crate::Contexts)).

use pagetable::{Flush, Mounted};

use crate::{
    contexts::{ContextCounts, ContextLimit, Entered, NoContext},
    hat::Hat,
    locking::{Below, Held, Scheme, Site},
    platform::Platform,
    space::{AddressSpace, HatSpace},
};

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// Limits contexts: from now on spaces get contexts, at most as many at a time as `limit` says.
    /// Call it before the first space is entered.
    pub fn limit_contexts(&self, limit: ContextLimit) {
        self.scheme.enter(Site::Create, |held| held.contexts(|contexts| contexts.limit(limit)));
        self.set_unlisted(limit.threshold);
    }

    /// Enters `space` on a processor. Returns the space's context, and the space that has lost it,
    /// if any. `runs` returns the spaces that processors run, which includes `space`: these spaces
    /// keep their contexts.
    ///
    /// `None` if contexts are not limited or the space does not exist.
    pub fn enter(
        &self,
        space: HatSpace,
        runs: &dyn Fn(HatSpace) -> bool,
        platform: &mut impl Platform,
    ) -> Result<Option<Entered>, NoContext> {
        if !self.has_contexts() {
            return Ok(None);
        }
        self.scheme.enter(Site::Enter, |held| {
            let known = held.space(space.0, AddressSpace::whole, |known, _| known);
            let Some(known) = known else { return Ok(None) };
            if let Some(context) = known.context {
                if self.is_unlisted() {
                    return Ok(Some(Entered { context, lost: None }));
                }
                let renewed = held.contexts(|contexts| {
                    let renewed = contexts.renew(space.0, context);
                    contexts.counts.listed += u64::from(renewed);
                    renewed
                });
                if renewed {
                    return Ok(Some(Entered { context, lost: None }));
                }
            }
            let taken = held.contexts(|contexts| {
                let taken = contexts.limit.map(|_| contexts.take(space.0, runs));
                (taken, contexts.used())
            });
            let (Some(taken), used) = taken else { return Ok(None) };
            let (context, lost) = taken.ok_or(NoContext)?;
            self.note_contexts(used);
            if let Some(loser) = lost {
                let inner = held.space_mut(loser, |known| {
                    let known = known.as_mut()?;
                    known.context = None;
                    known.processor().map(|entry| entry.inner)
                });
                if let Some(inner) = inner {
                    platform.shoot(&[(HatSpace(loser), Flush::whole(inner, false))]);
                }
            }
            held.space_mut(space.0, |known| {
                if let Some(known) = known {
                    known.context = Some(context);
                }
            });
            Ok(Some(Entered { context, lost: lost.map(HatSpace) }))
        })
    }

    /// Counts of how contexts were assigned.
    pub fn context_counts(&self) -> ContextCounts {
        let listed = self.scheme.enter(Site::Look, |held| held.contexts(|list| list.counts()));
        ContextCounts { unlisted: self.unlisted(), ..listed }
    }
}
