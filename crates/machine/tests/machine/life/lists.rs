//! The order in which pages are evicted, by the three policies of docs/machines/memory.md, as
//! queues of page names.

use std::collections::VecDeque;

use super::model::Key;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Policy {
    Clock,
    Lru,
    TwoQueues,
}

/// All pages in memory that are not locked. The oldest page of a queue is in front.
pub(crate) struct Lists {
    policy: Policy,
    /// All pages (`clock`), the inactive pages (`lru`), or the pages that were used once (`2q`).
    first: VecDeque<Key>,
    /// Empty (`clock`), the active pages (`lru`), or the pages that came back soon after they were
    /// evicted (`2q`).
    second: VecDeque<Key>,
    /// The pages that were evicted last from `first` (`2q`). An element is `None` if its page is
    /// back in memory or has been freed.
    left: VecDeque<Option<Key>>,
    /// The number of frames of memory.
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

    /// Adds a page that was loaded into memory or has been unlocked.
    pub(crate) fn enter(&mut self, key: Key) {
        let is_back = self.left.contains(&Some(key));
        self.forget(|left| left == key);
        if is_back { self.second.push_back(key) } else { self.first.push_back(key) }
    }

    /// Removes a page that was locked or freed.
    pub(crate) fn remove(&mut self, key: Key) {
        self.first.retain(|other| *other != key);
        self.second.retain(|other| *other != key);
    }

    /// Removes freed pages from `left`: a later page under the same name is another page.
    pub(crate) fn forget(&mut self, gone: impl Fn(Key) -> bool) {
        self.left.iter_mut().for_each(|left| *left = left.filter(|key| !gone(*key)));
    }

    /// The next page to evict. `used` returns whether a page was used since the last call for this
    /// page.
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

/// Takes the oldest page that was not used. Older pages that were used are moved to the end of the
/// queue.
fn second_chance(queue: &mut VecDeque<Key>, mut used: impl FnMut(Key) -> bool) -> Option<Key> {
    loop {
        let oldest = queue.pop_front()?;
        if !used(oldest) {
            return Some(oldest);
        }
        queue.push_back(oldest);
    }
}
