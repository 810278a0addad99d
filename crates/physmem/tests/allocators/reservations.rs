//! Compares reservations with a model: a list of reservations and a set of frames.

use std::collections::{BTreeMap, BTreeSet};

use physmem::{
    Allocator, Buddy, FrameId, Neighbor, ObjectPage, Physmem, Request, Reservations, Reserver,
    State, Unplaced,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::memory;

type Reserving = Physmem<Reservations<Buddy>>;

/// A reservation of the model.
#[derive(Clone, Debug)]
struct Held {
    order: u32,
    first: u32,
    object: u32,
    index: u64,
    /// The time when its number of taken frames last changed.
    changed: u64,
    taken: BTreeSet<u32>,
}

/// The frames of pages, and the reservations.
#[derive(Default)]
struct Model {
    frames: u32,
    now: u64,
    orders: Vec<u32>,
    /// Frames in use, each with the page of the object that it holds, if the request named one.
    used: BTreeMap<u32, Option<(u32, u64)>>,
    pages: BTreeMap<(u32, u64), u32>,
    held: Vec<Held>,
    broken: u64,
}

/// The result that the model expects of an allocation for a page of an object.
#[derive(PartialEq, Debug)]
enum Expected {
    /// Exactly this frame.
    Frame(u32),
    /// A frame in a new reservation. The model does not predict the first frame of the reservation,
    /// but it predicts the position in it.
    New { order: u32, inside: u32, index: u64 },
    /// Any frame that is in no reservation.
    Any,
}

impl Model {
    fn held_at(&self, frame: u32) -> Option<usize> {
        self.held
            .iter()
            .position(|held| (held.first..held.first + (1 << held.order)).contains(&frame))
    }

    fn is_free(&self, first: u32, order: u32) -> bool {
        let all = first..first + (1 << order);
        all.end <= self.frames
            && self.used.range(all.clone()).next().is_none()
            && all.into_iter().all(|frame| self.held_at(frame).is_none())
    }

    fn has_block(&self, order: u32) -> bool {
        (0..self.frames >> order).any(|block| self.is_free(block << order, order))
    }

    fn neighbors(&self, object: u32, index: u64) -> [Option<Neighbor>; 2] {
        let near =
            |entry: (&(u32, u64), &u32)| Neighbor { index: entry.0.1, frame: FrameId(*entry.1) };
        let before = self.pages.range((object, 0)..(object, index)).next_back().map(near);
        [before, self.pages.range((object, index + 1)..=(object, u64::MAX)).next().map(near)]
    }

    /// FreeBSD's rules, implemented independently from their description.
    fn expect(&self, place: &ObjectPage) -> Expected {
        let neighbors = [place.before, place.after].map(|near| {
            let near = near?;
            let held = self.held_at(near.frame.0).map(|at| &self.held[at]);
            Some((near.index, held.filter(|held| held.object == place.object)))
        });
        for (_, held) in neighbors.iter().flatten() {
            let Some(held) = held else { continue };
            if (held.index..held.index + (1 << held.order)).contains(&place.index) {
                let frame = held.first + (place.index - held.index) as u32;
                return if held.taken.contains(&frame) {
                    Expected::Any
                } else {
                    Expected::Frame(frame)
                };
            }
        }
        for &order in &self.orders {
            let size = 1 << order;
            let inside = place.index % size;
            let index = place.index - inside;
            if index < place.first {
                continue;
            }
            let overlaps = neighbors.iter().flatten().any(|&(near, held)| match held {
                Some(held) => held.index < index + size && index < held.index + (1 << held.order),
                None => (index..index + size).contains(&near),
            });
            if overlaps || (!place.grows && index + size > place.end) || !self.has_block(order) {
                continue;
            }
            return Expected::New { order, inside: inside as u32, index };
        }
        Expected::Any
    }

    fn take(&mut self, frame: u32, page: Option<(u32, u64)>) {
        assert!(self.used.insert(frame, page).is_none(), "frame {frame} has two owners");
        if let Some(page) = page {
            assert_eq!(self.pages.insert(page, frame), None);
        }
        if let Some(at) = self.held_at(frame) {
            self.held[at].taken.insert(frame);
            self.held[at].changed = self.now;
        }
    }

    fn give(&mut self, frame: u32) {
        if let Some(page) = self.used.remove(&frame).unwrap() {
            self.pages.remove(&page);
        }
        if let Some(at) = self.held_at(frame) {
            self.held[at].taken.remove(&frame);
            self.held[at].changed = self.now;
            if self.held[at].taken.is_empty() {
                self.held.swap_remove(at);
            }
        }
    }

    /// Breaks the reservation that has not changed for the longest time, of the largest size that
    /// has any.
    fn relieve(&mut self) -> bool {
        let partly = |held: &&Held| held.taken.len() < 1 << held.order;
        let order = self.held.iter().filter(partly).map(|held| held.order).max();
        let oldest = self.held.iter().filter(partly).filter(|held| Some(held.order) == order);
        let Some(first) = oldest.min_by_key(|held| held.changed).map(|held| held.first) else {
            return false;
        };
        self.held.retain(|held| held.first != first);
        self.broken += 1;
        true
    }

    fn compare(&self, memory: &Reserving) {
        let reserved: u64 =
            self.held.iter().map(|held| (1 << held.order) - held.taken.len() as u64).sum();
        let table = memory.table();
        assert_eq!(table.count(State::Reserved), reserved);
        assert_eq!(table.count(State::Movable), self.used.len() as u64);
        let free = u64::from(self.frames) - reserved - self.used.len() as u64;
        assert_eq!(table.count(State::Free), free);
        let listed: u64 = (0..32).map(|order| memory.allocator().free_blocks(order) << order).sum();
        assert_eq!(listed, free);
        let broken: u64 = {
            let counts = memory.allocator().counts();
            counts.iter().map(|(_, counts)| counts.broken.iter().sum::<u64>()).sum()
        };
        assert_eq!(broken, self.broken);
        for held in &self.held {
            let found = memory.allocator().reservation(FrameId(held.first));
            assert_eq!(found, Some((FrameId(held.first), held.order, held.object, held.index)));
            for &frame in &held.taken {
                let full = (1..=held.order).rev().filter(|order| self.orders.contains(order)).find(
                    |&order| {
                        let first = frame >> order << order;
                        (first..first + (1 << order)).all(|frame| held.taken.contains(&frame))
                    },
                );
                assert_eq!(memory.allocator().full_order(FrameId(frame)), full, "frame {frame}");
            }
        }
        for &frame in self.used.keys().filter(|frame| self.held_at(**frame).is_none()) {
            assert_eq!(memory.allocator().full_order(FrameId(frame)), None);
        }
    }
}

fn check(seed: u64, frames: u32, orders: &[u32], steps: u32) {
    println!("seed {seed}, {frames} frames, sizes {orders:?}");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut memory: Reserving =
        memory(0, frames.into(), |all| Reservations::new(Buddy::new(all.clone()), all, orders));
    let mut sorted = orders.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let mut model = Model { frames, orders: sorted, ..Model::default() };
    for step in 0..steps {
        model.now += 1;
        // Phases alternate: requests fill memory until none is left, and then it is emptied.
        let fills = step % 4000 < 2600;
        if rng.random_bool(if fills { 0.8 } else { 0.3 }) {
            let object = rng.random_range(1..6);
            let first = u64::from(object) * 3 % 16;
            let index = first + rng.random_range(0..u64::from(frames) / 3);
            let placed = rng.random_bool(0.9) && !model.pages.contains_key(&(object, index));
            let place = placed.then(|| {
                let [before, after] = model.neighbors(object, index);
                let (end, grows) = (first + u64::from(frames) / 3, object % 2 == 0);
                // For object 3, reservations may begin before the object does.
                let first = if object == 3 { 0 } else { first };
                ObjectPage { object, index, first, end, grows, before, after }
            });
            let expected = place.as_ref().map_or(Expected::Any, |place| model.expect(place));
            let request = Request { place, ..Request::new(0, State::Movable) };
            let Ok(frame) = memory.allocate(&request) else {
                assert!(!model.has_block(0) && !model.relieve(), "step {step}: there is a frame");
                continue;
            };
            match expected {
                Expected::Frame(wanted) => assert_eq!(frame.0, wanted, "step {step}"),
                Expected::New { order, inside, index } => {
                    let first = frame.0 - inside;
                    assert!(first.is_multiple_of(1 << order) && model.is_free(first, order));
                    let (taken, changed) = (BTreeSet::new(), model.now);
                    model.held.push(Held { order, first, object, index, changed, taken });
                }
                Expected::Any => {
                    if !model.has_block(0) {
                        assert!(model.relieve(), "step {step}: there was no frame");
                    }
                    assert!(model.is_free(frame.0, 0), "step {step}: frame {} is held", frame.0);
                }
            }
            model.take(frame.0, place.map(|place| (place.object, place.index)));
        } else if !model.used.is_empty() {
            let from = rng.random_range(0..frames);
            let next = model.used.range(from..).chain(&model.used).next();
            let frame = *next.unwrap().0;
            memory.try_free(FrameId(frame), 0).unwrap();
            model.give(frame);
            assert!(memory.try_free(FrameId(frame), 0).is_err(), "step {step}: freed twice");
        }
        if step % 128 == 0 {
            model.compare(&memory);
        }
    }
    for frame in model.used.keys().copied().collect::<Vec<_>>() {
        memory.try_free(FrameId(frame), 0).unwrap();
        model.give(frame);
    }
    model.compare(&memory);
    assert_eq!(memory.used_bytes(), 0);
}

/// Runs a part of a million requests, or all of them if `PAGEWALK_TORTURE` is set.
#[test]
fn reservations_under_streams_of_requests() {
    let each = if std::env::var_os("PAGEWALK_TORTURE").is_some() { 250_000 } else { 12_000 };
    check(1, 1024, &[4], each);
    check(2, 700, &[5, 3], each);
    check(3, 4096, &[9], each);
    check(4, 2048, &[9, 4], each);
}

fn place(object: u32, index: u64, end: u64) -> ObjectPage {
    ObjectPage { object, index, first: 0, end, grows: false, before: None, after: None }
}

fn at(memory: &mut Reserving, place: ObjectPage) -> u32 {
    let request = Request { place: Some(place), ..Request::new(0, State::Movable) };
    memory.allocate(&request).unwrap().0
}

fn reserving(frames: u64, orders: &[u32]) -> Reserving {
    memory(0, frames, |all| Reservations::new(Buddy::new(all.clone()), all, orders))
}

#[test]
fn a_small_file_gets_no_reservation_unless_it_may_grow() {
    let mut memory = reserving(2048, &[9]);
    let alone = at(&mut memory, place(1, 0, 511));
    assert_eq!(memory.allocator().reservation(FrameId(alone)), None);
    let (_, counts) = memory.allocator().counts()[0];
    assert_eq!(counts.unplaced[Unplaced::End as usize], 1);
    let eager = at(&mut memory, ObjectPage { grows: true, ..place(2, 7, 511) });
    assert_eq!(eager % 512, 7);
    assert_eq!(memory.reserved_bytes(), 511 * 4096);
}

#[test]
fn the_last_page_that_an_object_can_have_needs_no_page_after_it() {
    let mut memory = reserving(1 << 12, &[9]);
    let last = ObjectPage { grows: true, ..place(1, u64::MAX, u64::MAX) };
    let frame = at(&mut memory, last);
    let before = Some(Neighbor { index: u64::MAX, frame: FrameId(frame) });
    at(&mut memory, ObjectPage { grows: true, before, ..place(1, u64::MAX, u64::MAX) });
    let after = Some(Neighbor { index: u64::MAX, frame: FrameId(frame) });
    at(&mut memory, ObjectPage { grows: true, after, ..place(1, u64::MAX - 1, u64::MAX) });
    let counts = memory.allocator().reserver().unwrap().counts();
    assert_eq!(counts[0].1.made, 0, "a reservation would end beyond the last number");
}

#[test]
fn a_block_that_a_wider_request_needs_is_found_where_nothing_is_taken() {
    let mut memory = reserving(1024, &[9]);
    let first = at(&mut memory, place(1, 3, 512));
    at(&mut memory, place(2, 300, 512));
    assert_eq!(memory.free_bytes(), 0);
    // The older reservation has enough adjacent free frames, so it is broken.
    let wide = memory.allocate(&Request::new(8, State::Movable)).unwrap();
    assert_eq!(wide.0 >> 9, first >> 9);
    assert_eq!(memory.allocator_mut().0.next_broken(), Some((FrameId(first & !511), 9)));
    assert_eq!(memory.allocator_mut().0.next_broken(), None);
    assert!(memory.allocate(&Request::new(9, State::Movable)).is_err());
}

#[test]
fn a_frame_that_is_wanted_breaks_its_reservation() {
    let mut memory = reserving(512, &[9]);
    let first = at(&mut memory, place(1, 3, 512));
    assert!(!memory.take(FrameId(first), 0, State::Kernel));
    assert!(memory.take(FrameId(16), 4, State::Kernel));
    assert_eq!(memory.reserved_bytes(), 0);
    assert_eq!(memory.free_bytes(), (512 - 17) * 4096);
}
