use crate::{
    capabilities::{Blocks, Places, Reserver},
    frame::FrameId,
    request::Request,
    table::FrameTable,
};

/// Who chooses which free frames are given out: one strategy over a range of memory.
///
/// An allocator sees descriptors and frame numbers only. It keeps the *free* blocks: a frame
/// leaves them by [`Allocator::allocate`] or [`Allocator::take`] and returns by
/// [`Allocator::free`]. What a frame is used for in between is entered by [`crate::Physmem`],
/// through which every request goes.
///
/// The first four methods are what every allocator has. The others are for what some have: watermarks, NUMA
/// nodes, page blocks, reservations, places for regions. An allocator that passes requests on to another one says
/// so by [`Allocator::inner`], and has what that one has.
///
/// # Memory that is allocated
///
/// A kernel whose heap takes its pages from a [`crate::Physmem`] must not take them while it holds that
/// memory's lock: it sets memory aside for the following, which is all that is allocated on the way of a
/// request.
///
/// * [`crate::FrameTable`], below every allocator: the descriptors of 512 frames when one of them is first
///   changed by itself (16 KiB), and a list of chunks that grows with the highest frame in use.
/// * [`crate::SizeLists`]: a part of its bitmap, for 32768 frames, when one of these is first taken (4 KiB).
/// * [`crate::Reservations`]: a reservation with its bitmap when it is made, the list of reservations of its
///   size, which grows with the highest block, and an entry in the list of broken ones.
/// * [`crate::Contiguous::place`](crate::Places::place): a list of the free runs, while it searches.
/// * [`crate::Physmem::set_zeroed`] enters a block in an ordered set, and a request that takes a part of such
///   a block collects their numbers.
///
/// [`crate::Buddy`], [`crate::PageBlocks`], [`crate::Magazine`], [`crate::Apart`], [`crate::Restrictive`],
/// [`crate::Scattered`] and [`crate::Nodes`] allocate when they are made and not afterwards. Nothing is
/// allocated by [`Allocator::free`] but descriptors and a part of a bitmap, as above.
pub trait Allocator {
    /// Takes a block of `2^request.order` free frames.
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId>;

    /// Enters `2^order` frames from `first`, aligned to their number, whose descriptors say
    /// already that they are free.
    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32);

    /// Takes exactly these `2^order` frames if all are free: for targets of migrations, frames
    /// at a wished place, and frames that are to be offline.
    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool;

    /// How many free blocks there are of exactly `2^order` frames.
    fn free_blocks(&self, order: u32) -> u64;

    /// The order of the largest free block.
    fn largest_free(&self) -> Option<u32> {
        (0..u32::BITS).rev().find(|&order| self.free_blocks(order) > 0)
    }

    /// The allocator that this one passes requests on to, if it has one. It answers what is not answered here.
    fn inner(&self) -> Option<&dyn Allocator> {
        None
    }

    /// Mutable access to the allocator that this one passes requests on to, if it has one.
    fn inner_mut(&mut self) -> Option<&mut dyn Allocator> {
        None
    }

    /// How many free blocks of `2^order` frames more it should have: none, unless it has watermarks.
    fn wanted(&self, order: u32) -> u64 {
        self.inner().map_or(0, |inner| inner.wanted(order))
    }

    /// How many of the aligned `2^order` frames from `first` are in use, counted no further than
    /// `enough`; `enough` where it keeps no bitmap.
    fn frames_in_use(&self, first: FrameId, order: u32, enough: u64) -> u64 {
        self.inner().map_or(enough, |inner| inner.frames_in_use(first, order, enough))
    }

    /// Joins the aligned `2^order` frames from `first` into one free block, if all are free and in
    /// smaller ones, and if it wants one.
    fn join(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        self.inner_mut().is_some_and(|inner| inner.join(table, first, order))
    }

    /// Whether the `2^order` frames from `first` are one free block, or part of one.
    fn has_block(&self, table: &FrameTable, first: FrameId, order: u32) -> bool {
        self.inner().is_some_and(|inner| inner.has_block(table, first, order))
    }

    /// Requests without a node are of a processor of `node` from here on.
    fn on_node(&mut self, node: u8) {
        if let Some(inner) = self.inner_mut() {
            inner.on_node(node);
        }
    }

    /// How many frames of a node are free, if it keeps nodes apart.
    fn free_on(&self, node: u8) -> Option<u64> {
        self.inner()?.free_on(node)
    }

    /// Of the frames in use at `frame`, `change` more can be moved than before.
    fn migratable_changed(&mut self, frame: FrameId, change: i64) {
        if let Some(inner) = self.inner_mut() {
            inner.migratable_changed(frame, change);
        }
    }

    /// Its reservations, if it has some.
    fn reserver(&self) -> Option<&dyn Reserver> {
        self.inner()?.reserver()
    }

    /// Mutable access to its reservations, if it has some.
    fn reserver_mut(&mut self) -> Option<&mut dyn Reserver> {
        self.inner_mut()?.reserver_mut()
    }

    /// Its page blocks, if it has some.
    fn blocks(&self) -> Option<&dyn Blocks> {
        self.inner()?.blocks()
    }

    /// Mutable access to its page blocks, if it has some.
    fn blocks_mut(&mut self) -> Option<&mut dyn Blocks> {
        self.inner_mut()?.blocks_mut()
    }

    /// Where it places regions, if it does that.
    fn places(&mut self) -> Option<&mut dyn Places> {
        self.inner_mut()?.places()
    }
}

// `A` may be a trait object already, which no reference to `dyn Allocator` can be made of: every method is passed on.
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
