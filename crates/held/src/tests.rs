extern crate std;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use std::vec;

use mmu::{Random, Replacement};

use super::*;

impl Sequence for Random {
    fn new(seed: u64) -> Random {
        Random::new(seed)
    }

    fn next(&mut self, places: Range<usize>) -> usize {
        self.victim(places)
    }
}

/// Compares sets of all shapes with lists that are ordered by last use.
#[test]
fn the_page_that_was_used_longest_ago_makes_room() {
    let mut state = 1u64;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % limit
    };
    for (pages, sets) in [(16, 1), (17, 1), (128, 1), (16, 4), (24, 3), (96, 24), (128, 16)] {
        let mut list = List::<Random>::new(pages, sets, Replaces::Lru);
        let mut model = vec![Vec::new(); sets];
        let mut used = vec![0; 3 * pages];
        let mut gone = 0;
        for time in 1..5000 {
            let number = below(used.len() as u64);
            let (page, set) = (number << 12, list.set_of(number));
            let model = &mut model[number as usize % sets];
            let is_held = model.contains(&page);
            model.retain(|&other| other != page);
            model.push(page);
            if !is_held && list.count(set) < list.ways() {
                list.add(set, page);
            } else if !is_held {
                let went = list.exchange(set, page, |page| used[page as usize >> 12]);
                assert_eq!(went, Some(model.remove(0)), "{pages} pages in {sets} sets, at {time}");
                gone += 1;
            }
            used[number as usize] = time;
        }
        assert!(gone > 1000, "{gone} pages were evicted");
        let mut held: Vec<u64> = list.pages().collect();
        let mut expected = model.concat();
        held.sort_unstable();
        expected.sort_unstable();
        assert_eq!(held, expected);
        list.clear();
        assert_eq!(list.pages().count(), 0);
    }
}

/// The contents of a TLB, with one word per place, as the host reports them.
fn contents(words: &[u64], sequence: u64) -> Contents {
    // SAFETY: zero is a valid value of each field of `Contents`.
    let contents: Contents = unsafe { core::mem::zeroed() };
    for (to, &word) in contents.places[1].iter().zip(words) {
        to.store(word, Ordering::Relaxed);
    }
    contents.sequences[1].store(sequence, Ordering::Relaxed);
    contents
}

/// What the list knows of a place: a page beyond the counted addresses is treated as an entry of
/// another process.
fn known(place: Place) -> Place {
    match place {
        Place::Page(page) if page >> 47 != 0 => Place::Other,
        place => place,
    }
}

/// Takes over sets of all shapes in random states, and compares their replacements with queues of
/// pages and with the machine's own replacement policy.
#[test]
fn the_page_makes_room_that_the_machine_has_go() {
    let mut stream = Random::new(7);
    let mut below = |limit: u64| stream.victim(0..limit as usize) as u64;
    for (pages, sets) in [(16, 1), (17, 1), (128, 1), (16, 4), (24, 3), (96, 24), (128, 16)] {
        for replaces in [Replaces::Fifo, Replaces::Random] {
            let ways = pages / sets;
            let mut list = List::<Random>::new(pages, sets, replaces);
            let mut gone = 0;
            for round in 0..20 {
                // A TLB in which some entries belong to another process and some places are empty.
                // The empty places are at random positions if the policy is random, and after all
                // other places if it is FIFO.
                let mut words: Vec<u64> = Vec::new();
                for set in 0..sets as u64 {
                    let first = words.len();
                    let used = below(ways as u64 + 1);
                    for way in 0..ways as u64 {
                        let page = ((1 + way) * sets as u64 + set) << 12;
                        words.push(match below(8) {
                            _ if way >= used => Place::Empty.bits(),
                            0 => Place::Other.bits(),
                            1 if replaces == Replaces::Random => Place::Empty.bits(),
                            2 => Place::Page(!0 << 12).bits(),
                            _ => Place::Page(page).bits(),
                        });
                    }
                    assert_eq!(words.len() - first, ways);
                }
                let seed = below(1 << 40);
                list.take_over(&contents(&words, seed), 1);
                let mut slots: Vec<VecDeque<Place>> = words
                    .chunks(ways)
                    .map(|set| set.iter().map(|&word| Place::from_bits(word)).map(known).collect())
                    .collect();
                let mut policy = Random::new(seed);
                for step in 0..300 {
                    let page = (below(4 * pages as u64) + 1) << 12;
                    let set = (page >> 12) as usize % sets;
                    let model = &mut slots[set];
                    assert_eq!(list.set_of(page >> 12), set);
                    if model.contains(&Place::Page(page)) {
                        assert!(list.pages().any(|held| held == page));
                        continue;
                    }
                    let empty = model.iter().position(|&place| place == Place::Empty);
                    assert_eq!(list.count(set) < ways, empty.is_some());
                    if let Some(way) = empty {
                        model[way] = Place::Page(page);
                        list.add(set, page);
                        continue;
                    }
                    let went = if replaces == Replaces::Fifo {
                        model.push_back(Place::Page(page));
                        model.pop_front().unwrap()
                    } else {
                        let way = policy.victim(set * ways..(set + 1) * ways) - set * ways;
                        core::mem::replace(&mut model[way], Place::Page(page))
                    };
                    let page = list.exchange(set, page, |_| unreachable!("uses change nothing"));
                    let expected = if let Place::Page(page) = went { Some(page) } else { None };
                    assert_eq!(page, expected, "{replaces:?}, {pages} in {sets}, {round}: {step}");
                    gone += 1;
                }
                let mut held: Vec<u64> = list.pages().collect();
                let all = slots.iter().flatten();
                let mut expected: Vec<u64> = all
                    .filter_map(
                        |&place| if let Place::Page(page) = place { Some(page) } else { None },
                    )
                    .collect();
                held.sort_unstable();
                expected.sort_unstable();
                assert_eq!(held, expected);
            }
            assert!(gone > 1000, "{gone} pages were evicted");
        }
    }
}
