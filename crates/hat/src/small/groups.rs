//! Groups of spaces that talk to each other, found from who was switched to after whom (U02 section 5.2,
//! figures 9 to 11).
//!
//! ```text
//!   make -- sh -- cc1 -- as          a space that many talk to is in all groups
//!     \             \  /             what is left falls apart: the heaviest pairs first,
//!      +--- server --+               while a group has slots
//! ```

use alloc::{collections::BTreeMap, vec::Vec};

use crate::HatSpace;

/// How often a switch went from one space to another.
#[derive(Clone, Debug, Default)]
pub struct Switches {
    counts: BTreeMap<(HatSpace, HatSpace), u64>,
}

impl Switches {
    /// Counts one.
    pub fn count(&mut self, from: HatSpace, to: HatSpace) {
        if from != to {
            *self.counts.entry((from, to)).or_insert(0) += 1;
        }
    }

    /// All pairs with their counts.
    pub fn iter(&self) -> impl Iterator<Item = ((HatSpace, HatSpace), u64)> + '_ {
        self.counts.iter().map(|(pair, count)| (*pair, *count))
    }
}

/// Who is in which group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Grouping {
    /// Members of all groups.
    pub global: Vec<HatSpace>,
    /// The members of each, the largest share of switches first.
    pub groups: Vec<Vec<HatSpace>>,
}

impl Grouping {
    /// Groups of at most `slots` spaces, those of all groups counted in each. In all are the spaces
    /// that have switches with at least `everyone` of the others (a share, in thousandths), and with three
    /// at least.
    pub fn of(switches: &Switches, slots: u16, everyone: u16) -> Grouping {
        let mut pairs: BTreeMap<(HatSpace, HatSpace), u64> = BTreeMap::new();
        let mut partners: BTreeMap<HatSpace, Vec<HatSpace>> = BTreeMap::new();
        for ((from, to), count) in switches.iter() {
            *pairs.entry((from.min(to), from.max(to))).or_insert(0) += count;
        }
        for &(one, other) in pairs.keys() {
            partners.entry(one).or_default().push(other);
            partners.entry(other).or_default().push(one);
        }
        let others = partners.len().saturating_sub(1) as u64;
        let is_global = |partners: &Vec<HatSpace>| {
            let known = partners.len() as u64;
            known >= 3 && known * 1000 >= u64::from(everyone) * others
        };
        let global: Vec<HatSpace> =
            partners.iter().filter(|(_, all)| is_global(all)).map(|(space, _)| *space).collect();
        let global: Vec<HatSpace> = global.into_iter().take(usize::from(slots) / 2).collect();
        let room = usize::from(slots) - global.len();

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
