use super::{Class, Locks, Once, Site};
use crate::sparse::{CHUNK, PART, PARTS, places};
use alloc::{boxed::Box, vec::Vec};

/// Descriptors of one kind, each of which one thread has at a time.
pub trait Array<D> {
    /// Runs `f` on descriptor `number`, until it gives something. In between nobody has it, and the
    /// caller sleeps until it has changed.
    fn until<R>(&self, site: Site, number: u64, f: impl FnMut(&mut D) -> Option<R>) -> R;

    /// Gives `f` each descriptor that was ever asked for. Nobody else is at work.
    fn each(&self, f: &mut dyn FnMut(u64, &D));
}

/// How descriptors are locked: what [`Fine`](super::Fine) schemes differ in.
pub trait Arrays<L: Locks> {
    /// Descriptors `D`.
    type Of<D: Default + Send>: Array<D>;

    /// None so far. Their locks are of the class `of`, and flags that guard them of `flags`.
    fn array<D: Default + Send>(&self, of: Class, flags: Class) -> Self::Of<D>;
}

/// A descriptor, and whether somebody sleeps until it changes.
#[derive(Default)]
pub(super) struct Slot<D> {
    pub(super) descriptor: D,
    pub(super) is_wanted: bool,
}

impl<D> Slot<D> {
    /// Runs `f`; with its result comes whether sleepers must be woken.
    pub(super) fn run<R>(&mut self, f: &mut impl FnMut(&mut D) -> Option<R>) -> Option<(R, bool)> {
        match f(&mut self.descriptor) {
            Some(result) => Some((result, core::mem::take(&mut self.is_wanted))),
            None => {
                self.is_wanted = true;
                None
            }
        }
    }
}

/// Elements by number that several threads look up at once: parts are made when an element is first
/// asked for, and stay.
pub(super) struct Shared<X, L: Locks> {
    parts: Box<[L::Once<Part<X, L>>]>,
}

type Part<X, L> = Box<[<L as Locks>::Once<Box<[X]>>]>;

impl<X, L: Locks> Shared<X, L> {
    pub(super) fn new() -> Shared<X, L> {
        Shared { parts: many(PARTS, L::Once::new) }
    }

    pub(super) fn get(&self, number: u64, make: impl Fn() -> X) -> &X {
        let [part, chunk, place] = places(number);
        let chunks = self.parts[part].get(|| many(PART, L::Once::new));
        &chunks[chunk].get(|| many(CHUNK, make))[place]
    }

    pub(super) fn each(&self, f: &mut dyn FnMut(u64, &X)) {
        for (part, chunks) in self.parts.iter().enumerate() {
            for (chunk, elements) in chunks.made().into_iter().flatten().enumerate() {
                for (place, element) in elements.made().into_iter().flatten().enumerate() {
                    f(((part * PART + chunk) * CHUNK + place) as u64, element);
                }
            }
        }
    }
}

pub(super) fn many<X>(count: usize, make: impl Fn() -> X) -> Box<[X]> {
    let mut made = Vec::with_capacity(count);
    made.resize_with(count, make);
    made.into_boxed_slice()
}
