use crate::{
    capabilities::{Blocks, Places, Reserver},
    frame::FrameId,
    request::Request,
    table::FrameTable,
};

/// A strategy that chooses which free frames of a range of memory are allocated.
///
/// An allocator sees descriptors and frame numbers only. It keeps the *free* blocks:
/// [`Allocator::allocate`] and [`Allocator::take`] remove frames from them, and [`Allocator::free`]
/// adds frames. Every request goes through [`crate::Physmem`], which records the use of each frame
/// while it is allocated.
///
/// Every allocator implements the first four methods. The other methods are for features of some
/// allocators: watermarks, NUMA nodes, page blocks, reservations, places for regions. An allocator
/// that passes requests on to another allocator returns that one by [`Allocator::inner`], and so
/// has its features.
///
/// # Memory that the allocator itself needs
///
/// No method panics if the heap has no memory left. The request then fails and changes nothing, and
/// [`crate::Physmem::is_short_of_memory`] returns true. Freeing frames needs no memory. A request
/// can cause the following allocations:
///
/// * [`crate::FrameTable`], below every allocator: the descriptors of 512 frames when one of these
///   frames is first allocated (16 KiB).
/// * [`crate::SizeLists`]: a part of its bitmap, for 32768 frames, when one of these frames is
///   first allocated (4 KiB).
/// * [`crate::Reservations`]: a reservation with its bitmap when it is made, and an entry in the
///   list of reservations of its size and in the list of broken reservations. If no memory is left
///   for them, the page gets a frame without a reservation.
/// * [`crate::Physmem::set_zeroed`]: an entry for the block in a list.
///
/// A kernel whose heap gets its pages from a [`crate::Physmem`] must not allocate from the heap
/// while it holds that memory's lock. It therefore calls [`crate::Physmem::reserve_descriptors`]
/// when it starts. Requests to [`crate::Buddy`], [`crate::PageBlocks`], [`crate::Magazine`],
/// [`crate::Apart`], [`crate::Restrictive`], [`crate::Contiguous`], [`crate::Scattered`] and
/// [`crate::Nodes`] then cause no allocation.
///
/// The following still panics if no memory is left: the constructors of allocators,
/// [`crate::Aging`], [`crate::Coalesced::new`], [`crate::Reserver::orders`] and
/// [`crate::Reserver::counts`].
pub trait Allocator {
    /// Allocates a block of `2^request.order` free frames.
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId>;

    /// Frees the `2^order` frames from `first`, which is aligned to their number. Their descriptors
    /// must be marked as free already.
    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32);

    /// Allocates exactly the `2^order` frames from `first`, if all are free. Returns whether they
    /// were allocated. It is used for targets of migrations, for frames at a requested place, and
    /// for frames that are taken offline.
    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool;

    /// The number of free blocks of exactly `2^order` frames.
    fn free_blocks(&self, order: u32) -> u64;

    /// The order of the largest free block.
    fn largest_free(&self) -> Option<u32> {
        (0..u32::BITS).rev().find(|&order| self.free_blocks(order) > 0)
    }

    /// The allocator that this one passes requests on to, if it has one. The inner allocator
    /// handles all calls that this one does not implement.
    fn inner(&self) -> Option<&dyn Allocator> {
        None
    }

    /// Mutable access to the allocator that this one passes requests on to, if it has one.
    fn inner_mut(&mut self) -> Option<&mut dyn Allocator> {
        None
    }

    /// The number of free blocks of `2^order` frames that the allocator requests in addition: 0,
    /// unless it has watermarks.
    fn wanted(&self, order: u32) -> u64 {
        self.inner().map_or(0, |inner| inner.wanted(order))
    }

    /// The number of frames in use among the `2^order` frames from `first`, which is aligned.
    /// Counting stops at `enough`; an allocator without a bitmap always returns `enough`.
    fn frames_in_use(&self, first: FrameId, order: u32, enough: u64) -> u64 {
        self.inner().map_or(enough, |inner| inner.frames_in_use(first, order, enough))
    }

    /// Joins the `2^order` frames from `first`, which is aligned, into one free block, if all of
    /// them are free in smaller blocks and the allocator wants such a block. Returns whether they
    /// were joined.
    fn join(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        self.inner_mut().is_some_and(|inner| inner.join(table, first, order))
    }

    /// Whether the `2^order` frames from `first` are a free block or part of one.
    fn has_block(&self, table: &FrameTable, first: FrameId, order: u32) -> bool {
        self.inner().is_some_and(|inner| inner.has_block(table, first, order))
    }

    /// Announces that from now on, requests that name no node come from a processor of `node`.
    fn on_node(&mut self, node: u8) {
        if let Some(inner) = self.inner_mut() {
            inner.on_node(node);
        }
    }

    /// The number of free frames of `node`, if the allocator keeps nodes apart.
    fn free_on(&self, node: u8) -> Option<u64> {
        self.inner()?.free_on(node)
    }

    /// Announces that the number of frames in use around `frame` that can be migrated has changed
    /// by `change`.
    fn migratable_changed(&mut self, frame: FrameId, change: i64) {
        if let Some(inner) = self.inner_mut() {
            inner.migratable_changed(frame, change);
        }
    }

    /// The allocator's reservations, if it has them.
    fn reserver(&self) -> Option<&dyn Reserver> {
        self.inner()?.reserver()
    }

    /// Mutable access to the allocator's reservations, if it has them.
    fn reserver_mut(&mut self) -> Option<&mut dyn Reserver> {
        self.inner_mut()?.reserver_mut()
    }

    /// The allocator's page blocks, if it has them.
    fn blocks(&self) -> Option<&dyn Blocks> {
        self.inner()?.blocks()
    }

    /// Mutable access to the allocator's page blocks, if it has them.
    fn blocks_mut(&mut self) -> Option<&mut dyn Blocks> {
        self.inner_mut()?.blocks_mut()
    }

    /// The allocator's placement of regions, if it supports placement.
    fn places(&mut self) -> Option<&mut dyn Places> {
        self.inner_mut()?.places()
    }
}

// Every method is forwarded explicitly. `A` may be a trait object, and a reference to it cannot be
// converted to a reference to `dyn Allocator`.
impl<A: Allocator + ?Sized> Allocator for alloc::boxed::Box<A> {
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId> {
        (**self).allocate(table, request)
    }

    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32) {
        (**self).free(table, first, order);
    }

    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        (**self).take(table, first, order)
    }

    fn free_blocks(&self, order: u32) -> u64 {
        (**self).free_blocks(order)
    }

    fn largest_free(&self) -> Option<u32> {
        (**self).largest_free()
    }

    fn inner(&self) -> Option<&dyn Allocator> {
        (**self).inner()
    }

    fn inner_mut(&mut self) -> Option<&mut dyn Allocator> {
        (**self).inner_mut()
    }

    fn wanted(&self, order: u32) -> u64 {
        (**self).wanted(order)
    }

    fn frames_in_use(&self, first: FrameId, order: u32, enough: u64) -> u64 {
        (**self).frames_in_use(first, order, enough)
    }

    fn join(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        (**self).join(table, first, order)
    }

    fn has_block(&self, table: &FrameTable, first: FrameId, order: u32) -> bool {
        (**self).has_block(table, first, order)
    }

    fn on_node(&mut self, node: u8) {
        (**self).on_node(node);
    }

    fn free_on(&self, node: u8) -> Option<u64> {
        (**self).free_on(node)
    }

    fn migratable_changed(&mut self, frame: FrameId, change: i64) {
        (**self).migratable_changed(frame, change);
    }

    fn reserver(&self) -> Option<&dyn Reserver> {
        (**self).reserver()
    }

    fn reserver_mut(&mut self) -> Option<&mut dyn Reserver> {
        (**self).reserver_mut()
    }

    fn blocks(&self) -> Option<&dyn Blocks> {
        (**self).blocks()
    }

    fn blocks_mut(&mut self) -> Option<&mut dyn Blocks> {
        (**self).blocks_mut()
    }

    fn places(&mut self) -> Option<&mut dyn Places> {
        (**self).places()
    }
}
