//! The occupied addresses of a space, and the address for a new mapping.

use super::{apart::Apart, top_down::TopDown};

/// The first and last address of a range.
pub(super) type Span = (u64, u64);

/// The lowest address for a mapping: Linux keeps programs from lower ones (`mmap_min_addr`).
pub(super) const LOWEST: u64 = 1 << 16;

/// A mapping for which an address is searched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) bytes: u64,
    /// The offset in the file at which the mapping begins.
    pub(super) offset: u64,
    pub(super) kind: Kind,
}

/// The kind of object that a new mapping maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Private memory without a file, for which the program requests no address.
    Memory,
    /// A file, for which the program requests no address.
    File,
    /// Anything else.
    Other,
}

/// Where new mappings are placed.
#[derive(Clone, Debug)]
pub(super) enum Room {
    /// Each mapping has blocks for itself.
    Apart(Apart),
    /// Mappings are placed as Linux places them.
    Kernel(TopDown),
}

impl Room {
    /// Marks `span` as occupied; no part of it may be occupied already.
    pub(super) fn take(&mut self, span: Span) {
        match self {
            Room::Apart(room) => room.take(span),
            Room::Kernel(room) => room.take(span),
        }
    }

    /// Frees the addresses that were occupied as `span`, except the parts `left`.
    pub(super) fn release(&mut self, span: Span, left: &[Span]) {
        match self {
            Room::Apart(room) => room.release(span, left),
            Room::Kernel(room) => room.release(span, left),
        }
    }

    /// Whether all of `span` is free.
    pub(super) fn is_free(&self, span: Span) -> bool {
        match self {
            Room::Apart(room) => room.is_free(span),
            Room::Kernel(room) => room.is_free(span),
        }
    }

    /// The free parts of `span`.
    pub(super) fn free_in(&self, span: Span) -> Vec<Span> {
        match self {
            Room::Apart(room) => room.free_in(span),
            Room::Kernel(room) => room.free_in(span),
        }
    }

    /// The address for a new mapping; `None` if there is no room. `block` is the size of the blocks
    /// that the mapping has for itself.
    pub(super) fn find(&mut self, want: Want, block: u64) -> Option<u64> {
        match self {
            Room::Apart(room) => room.find(want.bytes, want.offset & !0xfff & (block - 1)),
            Room::Kernel(room) => room.find(want),
        }
    }
}
