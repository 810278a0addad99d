//! Which page leaves next, by the three policies of docs/machines/memory.md, as queues of names.

use std::collections::VecDeque;

use super::model::Key;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    Clock,
    Lru,
    TwoQueues,
}

/// All pages in memory that are not locked; the oldest of a queue is in front.
pub(crate) struct Lists {
    policy: Policy,
    /// All (`clock`), the inactive ones (`lru`), those that were used once (`2q`).
    first: VecDeque<Key>,
    /// None (`clock`), the active ones (`lru`), those that came back soon (`2q`).
    second: VecDeque<Key>,
    /// The last that left `first` (`2q`): nothing where that page is back, or is no more.
    left: VecDeque<Option<Key>>,
    /// So many pages memory has.
    frames: usize,
}

impl Lists {
    pub(crate) fn new(policy: Policy, frames: u64) -> Lists {
        let (first, second, left) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Lists { policy, first, second, left, frames: frames as usize }
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    /// A page came into memory, or is locked no more.
    pub(crate) fn enter(&mut self, key: Key) {
        let is_back = self.left.contains(&Some(key));
        self.forget(|left| left == key);
        if is_back { self.second.push_back(key) } else { self.first.push_back(key) }
    }

    /// A page is locked, or is no more.
    pub(crate) fn remove(&mut self, key: Key) {
        self.first.retain(|other| *other != key);
        self.second.retain(|other| *other != key);
    }

    /// Pages that left are no more: what has their place later is another page.
    pub(crate) fn forget(&mut self, gone: impl Fn(Key) -> bool) {
        self.left.iter_mut().for_each(|left| *left = left.filter(|key| !gone(*key)));
    }

    /// The page that goes next. `used` says of one whether it was used since it was last asked of.
    pub(crate) fn victim(&mut self, mut used: impl FnMut(Key) -> bool) -> Option<Key> {
        match self.policy {
            Policy::Clock => second_chance(&mut self.first, used),
            Policy::Lru => loop {
                while self.second.len() > self.first.len() {
                    let oldest = self.second.pop_front().unwrap();
                    used(oldest);
                    self.first.push_back(oldest);
                }
                let oldest = self.first.pop_front()?;
                if !used(oldest) {
                    return Some(oldest);
                }
                self.second.push_back(oldest);
            },
            Policy::TwoQueues if self.first.len() > self.frames / 4 || self.second.is_empty() => {
                let oldest = self.first.pop_front()?;
                self.left.push_back(Some(oldest));
                if self.left.len() > self.frames / 2 {
                    self.left.pop_front();
                }
                Some(oldest)
            }
            Policy::TwoQueues => second_chance(&mut self.second, used),
        }
    }
}

/// The oldest that was not used; those that were become the newest.
fn second_chance(queue: &mut VecDeque<Key>, mut used: impl FnMut(Key) -> bool) -> Option<Key> {
    loop {
        let oldest = queue.pop_front()?;
        if !used(oldest) {
            return Some(oldest);
        }
        queue.push_back(oldest);
    }
}
