//! Designs that differ only in the size of their MMU cache, simulated together.
//!
//! ```text
//!   walk       steps n0 n1 n2    members  1111   a miss is counted by class and by the steps
//!   held by          11 10 00    n0 n1:   1000   that it was spared: one count each, of words
//!                                n0:      0100   of members
//!                                none:    0011
//! ```
//!
//! At the end, the walker of each member processes one miss of each class with each set of saved
//! steps. It multiplies the counts by the number of such misses
//! ([`Walker::replay`](hardware::walker::Walker::replay)).

use hardware::walker::{Miss, Steps, Walkers};
use mmu::{Step, WalkCacheFamily, WalkCacheParams};

use super::{
    family_log::{FamilyLog, Message},
    member_counts::MemberCounts,
};

/// The members of a family. All members have the same misses.
pub(super) struct Family {
    /// The MMU caches of all members, by processor.
    caches: Vec<WalkCacheFamily>,
    on: usize,
    members: u64,
    /// The number of steps of the walks since the last refill; the next field has, for each member,
    /// a bit mask of the steps that its MMU cache saved.
    steps: usize,
    spared: Vec<(Steps, u64)>,
    held: Vec<u64>,
    /// By class of misses: each set of saved steps, and for each member how often it saved this
    /// set.
    counted: Vec<Vec<(Steps, MemberCounts)>>,
    pub(super) failure: Option<String>,
}

impl Family {
    /// The parameters of the MMU cache if there is no other hardware behind the TLBs and the cache
    /// can be a member of a family. `mixed` is true if pages have several sizes.
    pub(super) fn takes(walkers: &Walkers, mixed: bool) -> Option<&WalkCacheParams> {
        let walker = &walkers.here;
        let alone =
            walker.port.caches.is_none() && walker.host.is_none() && walker.handler.is_none();
        let alone = alone && walker.speculators.is_empty();
        let params = walker.dimension.params.as_ref();
        params.filter(|params| alone && WalkCacheFamily::takes(params, mixed))
    }

    /// A family of caches with these parameters on this number of processors; `None` if they cannot
    /// form a family.
    pub(super) fn new(
        members: &[&WalkCacheParams],
        mixed: bool,
        processors: usize,
    ) -> Option<Family> {
        let caches = (0..processors).map(|_| WalkCacheFamily::new(members, mixed));
        let caches = caches.collect::<Option<_>>()?;
        let members = u64::MAX >> (WalkCacheFamily::MEMBERS_MAX - members.len());
        Some(Family {
            caches,
            on: 0,
            members,
            steps: 0,
            spared: vec![(0, members)],
            held: Vec::new(),
            counted: Vec::new(),
            failure: None,
        })
    }

    /// Processes the log that the front recorded in one round.
    pub(super) fn hear(&mut self, log: &FamilyLog) {
        let (mut steps, mut forgotten) = (log.steps.as_slice(), log.forgotten.as_slice());
        let mut stale_entries = log.stale_entries.iter();
        for message in &log.messages {
            match *message {
                Message::Walk { steps: own, found } => {
                    let way;
                    (way, steps) = steps.split_at(usize::from(own));
                    self.walk(way, found);
                }
                Message::Refilled { class } => self.refilled(class as usize),
                Message::On { processor } => self.on = processor as usize,
                Message::Forget { processor, nodes } => {
                    let gone;
                    (gone, forgotten) = forgotten.split_at(nodes as usize);
                    self.caches[processor as usize].forget(gone);
                }
                Message::ForgetCounts => self.counted.clear(),
                Message::Stale { node } => {
                    let stale = stale_entries.next().filter(|_| self.caches[self.on].holds(node));
                    self.failure = self.failure.take().or(stale.map(|stale| stale.to_string()));
                }
            }
        }
    }

    #[inline]
    fn walk(&mut self, way: &[Step], found: bool) {
        self.held.clear();
        self.held.resize(way.len(), 0);
        self.caches[self.on].walk(way, found, &mut self.held);
        if self.steps + way.len() > Steps::BITS as usize {
            self.failure.get_or_insert_with(|| {
                format!(
                    "the walks of one miss read {} entries, but a sweep records at most {}: run \
                     this design alone",
                    self.steps + way.len(),
                    Steps::BITS
                )
            });
            return;
        }
        for (step, &held) in (self.steps..).zip(&self.held) {
            for group in 0..self.spared.len() {
                let (steps, members) = self.spared[group];
                let both = members & held;
                if both == members {
                    self.spared[group].0 |= 1 << step;
                } else if both != 0 {
                    self.spared[group].1 &= !held;
                    self.spared.push((steps | 1 << step, both));
                }
            }
        }
        self.steps += way.len();
    }

    #[inline]
    fn refilled(&mut self, class: usize) {
        if self.counted.len() <= class {
            self.counted.resize(class + 1, Vec::new());
        }
        let counted = &mut self.counted[class];
        for &(steps, members) in &self.spared {
            let of_members = match counted.iter().position(|(known, _)| *known == steps) {
                Some(place) => &mut counted[place].1,
                None => {
                    counted.push((steps, MemberCounts::new()));
                    &mut counted.last_mut().expect("it was pushed").1
                }
            };
            of_members.add(members);
        }
        self.steps = 0;
        self.spared.clear();
        self.spared.push((0, self.members));
    }

    /// Sets the counts of the members' walkers to those of separate runs. `walkers` are in the
    /// order of the members. `misses` has one miss of each class.
    pub(super) fn settle<'a>(
        &mut self,
        misses: &[Miss],
        walkers: impl Iterator<Item = &'a mut Walkers>,
    ) {
        let mut walkers: Vec<&mut Walkers> = walkers.collect();
        for (counted, miss) in std::mem::take(&mut self.counted).into_iter().zip(misses) {
            for (steps, of_members) in counted {
                let counts = of_members.counts();
                let counted = walkers.iter_mut().zip(counts).filter(|(_, count)| *count > 0);
                counted.for_each(|(walkers, count)| {
                    walkers.of(miss.processor).replay(miss, steps, count);
                });
            }
        }
    }
}
