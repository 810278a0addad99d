use crate::{
    allocator::Allocator,
    capabilities::{Blocks, Places, Reserver},
    frame::FrameId,
    request::Request,
    table::FrameTable,
};

/// An allocator that forwards to another one and makes a chosen allocation fail, to test a rare
/// path.
pub struct Refusing<A> {
    inner: A,
    /// The number of allocations until the one that fails, which is counted.
    until_refusal: Option<u64>,
    has_refused: bool,
}

impl<A> Refusing<A> {
    /// `inner`, with no failure requested yet.
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

    fn wanted(&self, order: u32) -> u64 {
        self.inner.wanted(order)
    }

    fn frames_in_use(&self, first: FrameId, order: u32, enough: u64) -> u64 {
        self.inner.frames_in_use(first, order, enough)
    }

    fn join(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        self.inner.join(table, first, order)
    }

    fn has_block(&self, table: &FrameTable, first: FrameId, order: u32) -> bool {
        self.inner.has_block(table, first, order)
    }

    fn on_node(&mut self, node: u8) {
        self.inner.on_node(node);
    }

    fn free_on(&self, node: u8) -> Option<u64> {
        self.inner.free_on(node)
    }

    fn migratable_changed(&mut self, frame: FrameId, change: i64) {
        self.inner.migratable_changed(frame, change);
    }

    fn reserver(&self) -> Option<&dyn Reserver> {
        self.inner.reserver()
    }

    fn reserver_mut(&mut self) -> Option<&mut dyn Reserver> {
        self.inner.reserver_mut()
    }

    fn blocks(&self) -> Option<&dyn Blocks> {
        self.inner.blocks()
    }

    fn blocks_mut(&mut self) -> Option<&mut dyn Blocks> {
        self.inner.blocks_mut()
    }

    fn places(&mut self) -> Option<&mut dyn Places> {
        self.inner.places()
    }
}
