//! The allocator of IRIX for many page sizes (G98 section 6.4.1).
//!
//! ```text
//!   lists    64K: [.]      16K: [.]-[.]      4K: [.]-[.]-[.]-[.]      one per page size
//!   bitmap   1111111111111111 0011111111001111 ...                    a bit per base frame
//!
//!   allocate: the list of that size, else split one of the next higher size that there is
//!   free:     set the bits; are all bits of the aligned 16K around it set, all of the 64K, ...?
//!             then its pieces leave their lists and it enters its own as one page
//! ```
//!
//! A *high watermark* per size limits how many free pages of that size joining makes; it can be
//! changed at any time. With watermarks of zero for all sizes above the base page, this is a plain
//! free list of base pages. Joining needs no record of how a page was split: once all pieces of a
//! split page are free, they are joined. A request of a size between two page sizes is served from
//! a page of the larger size.
//!
//! With *migratable ordering* (section 6.4.4) each chunk of the largest size has its own lists, see
//! [`crate::chunks`].

use alloc::vec::Vec;
use core::ops::Range;

use addr::PageSize;

use crate::{
    allocator::Allocator,
    bitmap::Bitmap,
    chunks::Chunks,
    frame::FrameId,
    lists::{FreeLists, part},
    request::Request,
    table::{CHUNK_SHIFT, FrameTable},
};

/// A page size that has a free list.
#[derive(Clone, Copy, Debug)]
struct Class {
    /// log2 of the number of base frames of a page.
    order: u32,
    /// Joining makes no more pages of this size while at least this number of them is free.
    high_watermark: u64,
}

/// A free list per page size, a bitmap of base frames, and watermarks.
pub struct SizeLists {
    frames: Range<u32>,
    /// The page sizes, ascending; the first is the base page.
    classes: Vec<Class>,
    bitmap: Bitmap,
    lists: Lists,
}

/// How the free pages are listed.
enum Lists {
    /// One list per page size.
    Together(FreeLists<32>),
    /// Lists for each chunk, with chunks ordered by their number of migratable pages.
    ByChunk(Chunks),
}

/// Why page sizes or watermarks are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeListError {
    /// The smallest size is not the base page, or the sizes do not ascend.
    Sizes,
    /// No free list has this page size.
    NoList(PageSize),
}

impl core::fmt::Display for SizeListError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SizeListError::Sizes => {
                f.write_str("page sizes of free lists start at the base page and ascend")
            }
            SizeListError::NoList(size) => write!(f, "there is no free list for pages of {size}"),
        }
    }
}

impl core::error::Error for SizeListError {}

impl SizeLists {
    /// Empty lists for pages of `sizes`, which ascend and begin with `base`, over the base frames
    /// `frames`. There are no watermarks: joining is not limited.
    pub fn new(
        frames: Range<u32>,
        base: PageSize,
        sizes: &[PageSize],
    ) -> Result<SizeLists, SizeListError> {
        if sizes.first() != Some(&base) || !sizes.is_sorted_by(|a, b| a < b) {
            return Err(SizeListError::Sizes);
        }
        let class = |size: &PageSize| Class {
            order: size.shift() - base.shift(),
            high_watermark: u64::MAX,
        };
        Ok(SizeLists {
            frames,
            classes: sizes.iter().map(class).collect(),
            bitmap: Bitmap::default(),
            lists: Lists::Together(FreeLists::new()),
        })
    }

    /// These lists with migratable ordering, in chunks of the largest page size.
    pub fn ordered(mut self) -> SizeLists {
        self.lists = Lists::ByChunk(Chunks::new(self.frames.clone(), self.largest()));
        self
    }

    /// Limits joining: pages of `2^order` base frames are joined only while fewer than `pages` of
    /// them are free. Pages that are free already stay joined. Returns whether there is a list for
    /// this size.
    pub fn set_high_watermark(&mut self, order: u32, pages: u64) -> bool {
        match self.classes.iter_mut().find(|class| class.order == order) {
            Some(class) => class.high_watermark = pages,
            None => return false,
        }
        true
    }

    /// Reserves all memory that the allocation of the `2^order` frames from `first`, which are part
    /// of a free block of `2^from` frames, and their later return need. Returns whether there was
    /// enough memory.
    fn reserve(
        &mut self,
        table: &mut FrameTable,
        (first, order): (FrameId, u32),
        from: u32,
    ) -> bool {
        let has_bits = self.bitmap.reserve(first, order);
        if !has_bits {
            table.set_short();
        }
        // The rest of the block is divided into smaller free blocks. These can begin in every chunk
        // of the smallest page that contains the frames and has at least one chunk, so all of these
        // descriptors are reserved.
        let mut divided = self.classes.iter().map(|class| class.order);
        let divided = divided.find(|&of| of >= order.max(CHUNK_SHIFT) && of <= from);
        let divided = divided.unwrap_or(order);
        has_bits && table.reserve(FrameId(first.0 >> divided << divided), divided)
    }

    fn largest(&self) -> u32 {
        self.classes.last().map_or(0, |class| class.order)
    }

    /// The free page that contains `first`, if it has at least `2^order` frames.
    fn holder(&self, table: &FrameTable, first: FrameId, order: u32) -> Option<(FrameId, u32)> {
        let larger = self.classes.iter().filter(|class| class.order >= order);
        larger.map(|class| (FrameId(first.0 >> class.order << class.order), class.order)).find(
            |&(block, of)| self.frames.contains(&block.0) && table.free_order(block) == Some(of),
        )
    }

    /// Inserts all frames of a free page, which has been removed from its list, except the
    /// `2^order` frames from `first`.
    fn enter_rest(
        &mut self,
        table: &mut FrameTable,
        page: (FrameId, u32),
        first: FrameId,
        order: u32,
    ) {
        let (block, from) = page;
        if from == order {
            return;
        }
        let Some(class) = self.classes.iter().rev().find(|class| class.order < from) else {
            return;
        };
        let (piece_order, end) = (class.order, first.0 + (1 << order));
        let mut within = None;
        for piece in 0..1u32 << (from - piece_order) {
            let at = block.0 + (piece << piece_order);
            if at + (1 << piece_order) <= first.0 || at >= end {
                self.lists.push(table, FrameId(at), piece_order);
            } else if piece_order > order {
                within = Some(FrameId(at));
            }
        }
        if let Some(at) = within {
            self.enter_rest(table, (at, piece_order), first, order);
        }
    }

    /// Inserts free frames as pages of the largest sizes that have lists and whose watermark allows
    /// it.
    fn enter(&mut self, table: &mut FrameTable, first: FrameId, order: u32) {
        let mut at = u64::from(first.0);
        let end = at + (1 << order);
        while at < end {
            let has_room = |class: &&Class| {
                let room = self.lists.count(class.order) < class.high_watermark;
                class.order == 0 || (class.order <= order && room)
            };
            let class = self.classes.iter().rev().find(has_room).map_or(0, |class| class.order);
            self.lists.push(table, FrameId(at as u32), class);
            at += 1 << class;
        }
    }
}

impl Allocator for SizeLists {
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId> {
        let orders = self.classes.iter().map(|class| class.order);
        let orders = orders.filter(|&order| order >= request.order);
        let find = |color| match &self.lists {
            Lists::Together(lists) => orders
                .clone()
                .find_map(|order| Some((lists.choose(table, order, color, request.order)?, order))),
            Lists::ByChunk(chunks) => {
                let is_movable = request.state.is_migratable();
                chunks.choose(table, is_movable, orders.clone(), color, request.order)
            }
        };
        let any = || if request.takes_any_color() { find(None) } else { None };
        let (block, from) = find(request.color).or_else(any)?;
        let first = part(block, from, request);
        if !self.reserve(table, (first, request.order), from) {
            return None;
        }
        self.lists.remove(table, block, from);
        self.enter_rest(table, (block, from), first, request.order);
        self.bitmap.set(first, request.order, false);
        Some(first)
    }

    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32) {
        self.bitmap.set(first, order, true);
        self.enter(table, first, order);
        for place in 0..self.classes.len() {
            let larger = self.classes[place].order;
            if larger <= order {
                continue;
            }
            let around = FrameId(first.0 >> larger << larger);
            if !self.join(table, around, larger) && !self.bitmap.is_free(around, larger) {
                break;
            }
        }
    }

    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        let end = u64::from(first.0) + (1 << order);
        if first.0 < self.frames.start
            || end > u64::from(self.frames.end)
            || !self.bitmap.is_free(first, order)
        {
            return false;
        }
        let holder = self.holder(table, first, order);
        let from = holder.map_or(order, |(_, from)| from);
        if !self.reserve(table, (first, order), from) {
            return false;
        }
        if let Some((block, from)) = holder {
            self.lists.remove(table, block, from);
            self.enter_rest(table, (block, from), first, order);
        } else {
            let mut at = first.0;
            while u64::from(at) < end {
                let piece = table.free_order(FrameId(at));
                let piece = piece.expect("free frames lie in the blocks that the lists name");
                self.lists.remove(table, FrameId(at), piece);
                at += 1 << piece;
            }
        }
        self.bitmap.set(first, order, false);
        true
    }

    fn free_blocks(&self, order: u32) -> u64 {
        self.lists.count(order)
    }

    /// The number of free pages that are missing below the high watermark.
    fn wanted(&self, order: u32) -> u64 {
        let class = self.classes.iter().find(|class| class.order == order);
        class.map_or(0, |class| class.high_watermark.saturating_sub(self.free_blocks(order)))
    }

    fn frames_in_use(&self, first: FrameId, order: u32, enough: u64) -> u64 {
        self.bitmap.clear_bits(first, order, enough)
    }

    fn join(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        let Some(class) = self.classes.iter().find(|class| class.order == order) else {
            return false;
        };
        let high = class.high_watermark;
        let last = u64::from(first.0) + (1 << order) - 1;
        if last >= u64::from(self.frames.end)
            || first.0 < self.frames.start
            || table.free_order(first).is_some_and(|free| free >= order)
            || self.free_blocks(order) >= high
            || !self.bitmap.is_free(first, order)
        {
            return false;
        }
        // If a larger free page contains all of these frames, there is nothing to join.
        if self.holder(table, first, order).is_some() {
            return false;
        }
        let mut at = first.0;
        while u64::from(at) <= last {
            let piece = table.free_order(FrameId(at));
            let piece = piece.expect("free frames lie in the blocks that the lists name");
            self.lists.remove(table, FrameId(at), piece);
            at += 1 << piece;
        }
        self.lists.push(table, first, order);
        true
    }

    fn has_block(&self, table: &FrameTable, first: FrameId, order: u32) -> bool {
        self.holder(table, first, order).is_some()
    }

    fn migratable_changed(&mut self, first: FrameId, change: i64) {
        match &mut self.lists {
            Lists::Together(_) => {}
            Lists::ByChunk(chunks) => chunks.migratable_changed(first, change),
        }
    }
}

impl Lists {
    fn count(&self, order: u32) -> u64 {
        match self {
            Lists::Together(lists) => lists.count(order).into(),
            Lists::ByChunk(chunks) => chunks.count(order),
        }
    }

    fn push(&mut self, table: &mut FrameTable, block: FrameId, order: u32) {
        match self {
            Lists::Together(lists) => lists.push(table, block, order),
            Lists::ByChunk(chunks) => chunks.push(table, block, order),
        }
    }

    fn remove(&mut self, table: &mut FrameTable, block: FrameId, order: u32) {
        match self {
            Lists::Together(lists) => lists.remove(table, block, order),
            Lists::ByChunk(chunks) => chunks.remove(table, block, order),
        }
    }
}
