use crate::{allocator::Allocator, frame::FrameId, request::Request, table::FrameTable};

/// An allocator that forwards requests to another allocator and makes a chosen allocation fail, to
/// test a rare path.
pub struct Refusing<A> {
    inner: A,
    /// The number of allocations up to and including the one that fails.
    until_refusal: Option<u64>,
    has_refused: bool,
}

impl<A> Refusing<A> {
    /// Wraps `inner`, with no failure requested yet.
    pub const fn new(inner: A) -> Refusing<A> {
        Refusing { inner, until_refusal: None, has_refused: false }
    }

    /// Makes the `number`th allocation from now on fail, counted from 1.
    pub const fn refuse(&mut self, number: u64) {
        self.until_refusal = Some(number);
    }

    /// Whether the requested failure has happened.
    pub const fn has_refused(&self) -> bool {
        self.has_refused
    }
}

impl<A: Allocator> Allocator for Refusing<A> {
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId> {
        if let Some(left) = &mut self.until_refusal {
            *left = left.saturating_sub(1);
            if *left == 0 {
                (self.until_refusal, self.has_refused) = (None, true);
                return None;
            }
        }
        self.inner.allocate(table, request)
    }

    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32) {
        self.inner.free(table, first, order);
    }

    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        self.inner.take(table, first, order)
    }

    fn free_blocks(&self, order: u32) -> u64 {
        self.inner.free_blocks(order)
    }

    fn largest_free(&self) -> Option<u32> {
        self.inner.largest_free()
    }

    fn inner(&self) -> Option<&dyn Allocator> {
        Some(&self.inner)
    }

    fn inner_mut(&mut self) -> Option<&mut dyn Allocator> {
        Some(&mut self.inner)
    }
}
