//! Groups of spaces that communicate with each other, determined from the sequence of switches (U02
//! section 5.2, figures 9 to 11).
//!
//! ```text
//!   a -- server -- b -- server -- a ... c -- server -- d       all talk to the server alone:
//!   {a, b}   {c, d}   and the server in both                   it is in all groups, and who
//!                                                              follows whom through it is left
//! ```

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use crate::HatSpace;

/// Counts of switches between spaces on one processor.
#[derive(Clone, Debug, Default)]
pub struct Switches {
    last: Option<HatSpace>,
    before: Option<HatSpace>,
    counts: BTreeMap<(HatSpace, HatSpace), u64>,
    /// Counts of pairs of consecutive switches: from one space to a second and then to a third. The
    /// key is (first, second, third).
    over: BTreeMap<(HatSpace, HatSpace, HatSpace), u64>,
}

impl Switches {
    /// Records a switch to `space`, which runs from now on.
    pub fn to(&mut self, space: HatSpace) {
        if self.last == Some(space) {
            return;
        }
        if let Some(last) = self.last {
            *self.counts.entry((last, space)).or_insert(0) += 1;
            if let Some(before) = self.before.filter(|before| *before != space) {
                *self.over.entry((before, last, space)).or_insert(0) += 1;
            }
        }
        (self.before, self.last) = (self.last, Some(space));
    }

    /// All pairs of spaces with the number of switches between them.
    pub fn pairs(&self) -> impl Iterator<Item = ((HatSpace, HatSpace), u64)> + '_ {
        self.counts.iter().map(|(pair, count)| (*pair, *count))
    }
}

/// An assignment of spaces to groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Grouping {
    /// The spaces that are members of all groups.
    pub global: Vec<HatSpace>,
    /// The members of each group; the group with the largest share of switches comes first.
    pub groups: Vec<Vec<HatSpace>>,
}

impl Grouping {
    /// Computes groups of at most `slots` spaces each. Spaces that are members of all groups count
    /// towards the size of each group. A space becomes a member of all groups if it has switches
    /// with at least `everyone` thousandths of the other spaces, and with at least three.
    pub fn of(switches: &Switches, slots: u16, everyone: u16) -> Grouping {
        let mut partners: BTreeMap<HatSpace, BTreeSet<HatSpace>> = BTreeMap::new();
        for &(from, to) in switches.counts.keys() {
            partners.entry(from).or_default().insert(to);
            partners.entry(to).or_default().insert(from);
        }
        let others = partners.len().saturating_sub(1) as u64;
        let is_global = |partners: &BTreeSet<HatSpace>| {
            let known = partners.len() as u64;
            known >= 3 && known * 1000 >= u64::from(everyone) * others
        };
        let global: Vec<HatSpace> =
            partners.iter().filter(|(_, all)| is_global(all)).map(|(space, _)| *space).collect();
        let global: Vec<HatSpace> = global.into_iter().take(usize::from(slots) / 2).collect();
        let room = usize::from(slots) - global.len();

        let direct = switches.pairs();
        let over = switches.over.iter().filter(|((_, over, _), _)| global.contains(over));
        let over = over.map(|(&(from, _, to), count)| ((from, to), *count));
        let mut pairs: BTreeMap<(HatSpace, HatSpace), u64> = BTreeMap::new();
        for ((from, to), count) in direct.chain(over) {
            *pairs.entry((from.min(to), from.max(to))).or_insert(0) += count;
        }

        let mut groups: Vec<Vec<HatSpace>> = partners
            .keys()
            .filter(|space| !global.contains(space))
            .map(|space| Vec::from([*space]))
            .collect();
        let mut heaviest: Vec<_> = pairs.into_iter().collect();
        heaviest.sort_by_key(|(pair, count)| (core::cmp::Reverse(*count), *pair));
        for ((one, other), _) in heaviest {
            let at = |space| groups.iter().position(|group| group.contains(&space));
            let (Some(one), Some(other)) = (at(one), at(other)) else { continue };
            if one != other && groups[one].len() + groups[other].len() <= room {
                let (keeps, goes) = (one.min(other), one.max(other));
                let moved = groups.remove(goes);
                groups[keeps].extend(moved);
            }
        }
        groups.iter_mut().for_each(|group| group.sort_unstable());
        Grouping { global, groups }
    }
}
