//! Counting of the accesses that the engine itself makes or computes: the accesses of repeated
//! instructions and of assisted instructions.

use ring::Tag;

use super::{Access, Counter, PAGE_BYTES, is_low};
use crate::record::Recorder;
use crate::table;
use crate::translate::counted::Whole;

/// One of the accesses that a repeated instruction makes for each element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointer {
    pub(crate) address: u64,
    pub(crate) tag: Tag,
}

/// A piece of a repeated instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) pc: u64,
    pub(crate) bytes: u64,
    /// Whether the piece is the first one of its instruction.
    pub(crate) is_first: bool,
    pub(crate) is_down: bool,
    pub(crate) elements: u64,
    /// The address of a fault in the element after these elements.
    pub(crate) fault: Option<u64>,
}

impl Piece {
    /// The first piece of the instruction at `pc`, with no elements.
    pub(crate) fn first(pc: u64, bytes: u64) -> Piece {
        Piece { pc, bytes, is_first: true, is_down: false, elements: 0, fault: None }
    }
}

impl Counter {
    /// Counts as many elements of a repeated instruction as are guaranteed to hit in the same pages, at most
    /// `most`. Returns their number.
    pub(crate) fn many(
        &mut self,
        pointers: &[Option<Pointer>; 3],
        most: u64,
        is_down: bool,
    ) -> u64 {
        let mut many = most;
        for Pointer { address, tag } in pointers.iter().flatten() {
            let size = u64::from(tag.size());
            let offset = address % PAGE_BYTES;
            let is_held = is_low(*address)
                && self.table.get(*address).kinds & table::needed(tag.loads(), tag.stores()) != 0;
            let here = match is_down {
                _ if !is_held || offset + size > PAGE_BYTES => 0,
                true => offset / size + 1,
                false => (PAGE_BYTES - offset) / size,
            };
            many = many.min(here);
        }
        if many == 0 {
            return 0;
        }
        let all = pointers.iter().flatten().count() as u64;
        for (at, Pointer { address, tag }) in (0..).zip(pointers.iter().flatten()) {
            let time = self.clock() + 2 * ((many - 1) * all + at);
            let entry = self.table.get(*address);
            let of = |is_made: bool| many as u32 * u32::from(is_made);
            entry.count(of(tag.loads()), of(tag.stores()));
            entry.used = time as u32;
        }
        self.advance(many * all, 0);
        many
    }

    /// Counts or records the accesses of one element; with a fault, only those before the faulting
    /// one.
    pub(crate) fn element(
        &mut self,
        recorder: &mut Recorder,
        whole: Whole,
        pointers: &[Option<Pointer>; 3],
        fault: Option<u64>,
    ) {
        for &Pointer { address, tag } in pointers.iter().flatten() {
            let faults = |fault: u64| fault.wrapping_sub(address) < tag.size().into() || fault == 0;
            if fault.is_some_and(faults) {
                break;
            }
            let before = self.accesses_at(self.clock()) - self.string_begun;
            let access = Access { address, tag, before: before as u32 };
            self.access(recorder, whole, access, self.clock(), || true);
            self.advance(1, 0);
        }
    }
}
