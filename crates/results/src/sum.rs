//! Sums of counts over several processors.
//!
//! All processors have the same structures: fields that describe a structure (its name, its size)
//! are taken from the first processor, and fields that count are added up. [`sums!`], below a
//! structure, lists every field of the structure in one of the two groups, so that a new field does
//! not compile until it has been put into a group.

use std::collections::BTreeMap;

/// Counts that can be added up.
pub trait Sum: Sized {
    /// Adds the counts of `other`.
    fn add(&mut self, other: &Self);

    /// The sum of `all`; `None` if there are none.
    fn of(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().reduce(|mut sum, other| {
            sum.add(&other);
            sum
        })
    }
}

impl Sum for u64 {
    fn add(&mut self, other: &u64) {
        *self += other;
    }
}

impl<T: Sum + Clone> Sum for Option<T> {
    /// `None` if either count is unknown.
    fn add(&mut self, other: &Option<T>) {
        *self = self.take().zip(other.as_ref()).map(|(mut sum, other)| {
            sum.add(other);
            sum
        });
    }
}

impl<K: Ord + Clone, T: Sum + Clone> Sum for BTreeMap<K, T> {
    fn add(&mut self, other: &BTreeMap<K, T>) {
        for (key, count) in other {
            match self.get_mut(key) {
                Some(sum) => sum.add(count),
                None => drop(self.insert(key.clone(), count.clone())),
            }
        }
    }
}

/// Adds two lists of counts with keys. Both lists, and their sum, are in the order of the keys.
pub(crate) fn add_by<T: Sum + Clone, K: Ord>(
    sums: &mut Vec<T>,
    others: &[T],
    key: impl Fn(&T) -> K,
) {
    for other in others {
        match sums.binary_search_by_key(&key(other), &key) {
            Ok(known) => sums[known].add(other),
            Err(place) => sums.insert(place, other.clone()),
        }
    }
}

/// A pair of a key and a count.
impl<K: Copy> Sum for (K, u64) {
    fn add(&mut self, other: &(K, u64)) {
        self.1 += other.1;
    }
}

impl<K: Ord + Copy> Sum for Vec<(K, u64)> {
    fn add(&mut self, others: &Vec<(K, u64)>) {
        add_by(self, others, |pair| pair.0);
    }
}

/// `Type { fields that are added; fields that are taken from the first }`: every field of the type is in one of the two lists.
macro_rules! sums {
    ($($type:ident $(<$of:ident>)? { $($count:ident),*; $($first:ident),* })*) => {
        $(impl $(<$of: $crate::sum::Sum>)? $crate::sum::Sum for $type $(<$of>)? {
            fn add(&mut self, other: &$type $(<$of>)?) {
                let $type { $($count,)* $($first: _,)* } = other;
                $($crate::sum::Sum::add(&mut self.$count, $count);)*
            }
        })*
    };
}

pub(crate) use sums;
