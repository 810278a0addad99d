//! The mappings that exist when a program begins, at the addresses that Linux gives them.
//!
//! ```text
//!   recorded    | program | its data | heap ...   | ld.so | vdso | ...            | stack |
//!   given       0x555555554000        after it      below the mmap base, in turn    up to the stack's end
//! ```
//!
//! Adjacent mappings, and the parts of one file, keep their distances. A program at a low address was linked
//! for that address and stays there.

use std::collections::BTreeMap;

use super::{
    layout::{Full, Layout, pages},
    room::{Kind, Room, Span},
    top_down::STACK_BYTES,
};
use crate::{Event, Origin};

/// Programs below this address were linked for their address.
const LINKED_BELOW: u64 = 1 << 32;
/// Mappings at or above this address were placed by a system that places them downwards.
const DOWNWARDS_FROM: u64 = 1 << 46;
/// Two mappings of a program or of a file belong together if the second begins at most this number
/// of bytes after the end of the first.
const APART_MAX: u64 = 16 << 20;

/// Mappings that keep their distances.
struct Group {
    spans: Vec<Span>,
    path: Option<String>,
}

impl Group {
    fn all(&self) -> Span {
        let last = self.spans.iter().map(|span| span.1).max().unwrap_or(0);
        (self.spans[0].0, last)
    }
}

impl Layout {
    /// Places the mappings of `events`, except those that a parent process already had.
    pub(super) fn begin(&mut self, events: &[Event]) -> Result<(), Full> {
        let Some(Room::Kernel(room)) = &self.room else { return Ok(()) };
        let (stack_end, program, heap_gap) = (room.stack_end, room.program, room.heap_gap);
        let base = room.base;
        let mut known: BTreeMap<u64, (u64, &Origin)> = BTreeMap::new();
        for event in events {
            let Event::Mapping { start, bytes, origin, .. } = event else { continue };
            let Some((first, last)) = pages(*start, *bytes) else { continue };
            let is_new = self.piece_at(first).is_none()
                && known.range(..=last).next_back().is_none_or(|(_, (end, _))| *end < first);
            if is_new {
                known.insert(first, (last, origin));
            }
        }
        let groups = groups(&known);
        let own = groups.iter().position(|group| group.path.is_some());
        let mut after_program = None;
        if let Some(group) = own.map(|own| &groups[own]) {
            let (first, last) = group.all();
            let to = if first < LINKED_BELOW { first } else { program };
            self.place(group, to.wrapping_sub(first));
            after_program = Some(to + (last - first) + 1);
            self.heap_from = after_program.map(|end| end + heap_gap);
        }
        for (&first, &(last, origin)) in &known {
            match origin {
                Origin::Heap => {
                    let to = after_program.map_or(first, |end| end + heap_gap);
                    if self.is_free((to, to + (last - first))) {
                        self.heap_by = to.wrapping_sub(first);
                        self.insert(first, last, to);
                    }
                }
                Origin::Stack => {
                    // The room into which the stack can grow belongs to the stack.
                    let before =
                        known.range(..first).next_back().map_or(0, |(_, (end, _))| end + 1);
                    let first = before.max((last + 1).saturating_sub(STACK_BYTES)).min(first);
                    let to = stack_end - 1 - (last - first);
                    if self.is_free((to, stack_end - 1)) {
                        self.insert(first, last, to);
                    }
                }
                Origin::File(_) | Origin::Bss | Origin::Other(_) => {}
            }
        }
        let others = groups.iter().enumerate().filter(|(at, _)| Some(*at) != own);
        let (above, below): (Vec<&Group>, Vec<&Group>) =
            others.map(|(_, of)| of).partition(|group| group.all().0 >= DOWNWARDS_FROM);
        // These mappings were placed downwards in this order, as by Linux. Holes between them were
        // mappings that have been removed, so the distances are kept.
        let end = above.iter().map(|group| group.all().1 + 1).max().unwrap_or(base);
        for group in above {
            self.place(group, base.wrapping_sub(end));
        }
        // Mappings below were placed upwards, so the lowest is placed first.
        for group in below {
            let span = group.all();
            let to = self.find(span, 0, Kind::Other)?;
            self.place(group, to.wrapping_sub(span.0));
        }
        Ok(())
    }

    fn place(&mut self, group: &Group, by: u64) {
        for &(first, last) in &group.spans {
            let to = first.wrapping_add(by);
            if self.is_free((to, to.wrapping_add(last - first))) {
                self.insert(first, last, to);
            }
        }
    }
}

/// The mappings that keep their distances, by address; without stack and heap.
fn groups(known: &BTreeMap<u64, (u64, &Origin)>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (&first, &(last, origin)) in known {
        let path = match origin {
            Origin::File(path) => Some(path),
            Origin::Bss | Origin::Other(_) => None,
            Origin::Stack | Origin::Heap => continue,
        };
        let joins = groups.last().is_some_and(|group| {
            let end = group.all().1 + 1;
            match (path, &group.path) {
                (Some(path), Some(known)) => path == known && first - end <= APART_MAX,
                (Some(_), None) => false,
                (None, _) => first == end,
            }
        });
        match groups.last_mut().filter(|_| joins) {
            Some(group) => group.spans.push((first, last)),
            None => groups.push(Group { spans: vec![(first, last)], path: path.cloned() }),
        }
    }
    groups
}
