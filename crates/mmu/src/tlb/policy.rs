use super::{
    Array, TlbParams,
    span::{EACH, NOTHING, TIME},
};
use crate::{AnyReplacement, Learns, Replacement};

/// The replacement policy of a TLB: one for all slots, or one per array if they differ.
#[derive(Clone, Debug)]
pub(super) enum TlbPolicy {
    Same(AnyReplacement),
    PerArray { array_of_slot: Box<[u8]>, policies: Box<[AnyReplacement]> },
}

impl TlbPolicy {
    /// The policy for `arrays` with the parameters `params`. `is_timed` is true if hits may be
    /// reported later by their times.
    pub(super) fn new(params: &TlbParams, arrays: &[Array], is_timed: bool) -> TlbPolicy {
        let ways_of_sets = arrays
            .iter()
            .flat_map(|array| core::iter::repeat_n(array.sets.ways(), array.sets.sets()));
        let mut policies = params.arrays.iter().map(|array| {
            let make = if is_timed { AnyReplacement::timed } else { AnyReplacement::new };
            make(array.replacement, ways_of_sets.clone(), array.seed)
        });
        if params.arrays.iter().all(|array| array.replacement == params.arrays[0].replacement)
            && let Some(policy) = policies.next()
        {
            return TlbPolicy::Same(policy);
        }
        TlbPolicy::PerArray {
            array_of_slot: (0u8..)
                .zip(arrays)
                .flat_map(|(number, array)| core::iter::repeat_n(number, array.sets.entries()))
                .collect(),
            policies: policies.collect(),
        }
    }

    /// The policy, if all slots share one.
    pub(super) fn only(&self) -> Option<&AnyReplacement> {
        match self {
            TlbPolicy::Same(policy) => Some(policy),
            TlbPolicy::PerArray { .. } => None,
        }
    }

    #[inline]
    fn of(&mut self, slot: usize) -> &mut AnyReplacement {
        match self {
            TlbPolicy::Same(policy) => policy,
            TlbPolicy::PerArray { array_of_slot, policies } => {
                &mut policies[array_of_slot[slot] as usize]
            }
        }
    }

    /// The information that the policy uses of hits: `NOTHING`, `TIME` or `EACH`.
    pub(super) fn learns(&self) -> u8 {
        match self {
            TlbPolicy::Same(policy) => match policy.learns() {
                Learns::Nothing => NOTHING,
                Learns::Time => TIME,
                Learns::Last | Learns::Each => EACH,
            },
            TlbPolicy::PerArray { .. } => EACH,
        }
    }

    /// The time of the last hit, if the policy learns only the times of hits.
    pub(super) fn now(&self) -> u64 {
        match self {
            TlbPolicy::Same(policy) => policy.now(),
            TlbPolicy::PerArray { .. } => 0,
        }
    }

    /// Sets the time of the last hit to `now`.
    pub(super) fn set_now(&mut self, now: u64) {
        match self {
            TlbPolicy::Same(policy) => policy.set_now(now),
            TlbPolicy::PerArray { .. } => {}
        }
    }

    /// Reports that the last hit in `slot` that a span counted was at `time`. Later hits may have
    /// been reported before. A policy that needs more than times has been notified of each hit
    /// immediately, and ignores this call.
    #[inline]
    pub(super) fn touched_at(&mut self, slot: usize, time: u64) {
        match self {
            TlbPolicy::Same(policy) => policy.touched_at(slot, time),
            TlbPolicy::PerArray { .. } => {}
        }
    }

    /// Chooses the victim. `used` returns the time of a slot's last hit that has not been
    /// reported to the policy, or 0. A policy that needs more than the times of hits has already
    /// been notified of each hit.
    pub(super) fn victim_used(
        &mut self,
        set: core::ops::Range<usize>,
        used: impl Fn(usize) -> u64,
    ) -> usize {
        match self {
            TlbPolicy::Same(policy) => policy.victim_used(set, used),
            TlbPolicy::PerArray { .. } => self.victim(set),
        }
    }

    #[inline(never)]
    fn touched_of_array(&mut self, slot: usize) {
        self.of(slot).touched(slot);
    }

    #[inline(always)]
    pub(super) fn touched(&mut self, slot: usize) {
        // The most usual policy is matched first, so that one comparison identifies it.
        match self {
            TlbPolicy::Same(AnyReplacement::Lru(policy)) => policy.touched(slot),
            TlbPolicy::Same(policy) => policy.touched(slot),
            TlbPolicy::PerArray { .. } => self.touched_of_array(slot),
        }
    }

    #[inline]
    pub(super) fn inserted(&mut self, slot: usize) {
        self.of(slot).inserted(slot);
    }

    /// Chooses the victim, whose slot immediately gets a new entry.
    #[inline(always)]
    pub(super) fn replaced(&mut self, set: core::ops::Range<usize>) -> usize {
        // The most usual policies are matched first, so that few comparisons identify them.
        match self {
            TlbPolicy::Same(AnyReplacement::Lru(policy)) => policy.replaced(set),
            TlbPolicy::Same(AnyReplacement::Random(policy)) => policy.replaced(set),
            other => other.replaced_of_array(set),
        }
    }

    #[inline(never)]
    fn replaced_of_array(&mut self, set: core::ops::Range<usize>) -> usize {
        self.of(set.start).replaced(set)
    }

    #[inline]
    pub(super) fn victim(&mut self, set: core::ops::Range<usize>) -> usize {
        self.of(set.start).victim(set)
    }
}
