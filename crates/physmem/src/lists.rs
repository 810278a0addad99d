use crate::{
    frame::{FrameId, NO_FRAME},
    request::{Color, Request},
    table::FrameTable,
};

/// Free lists, one per order. The links are in the descriptors of the blocks' first frames.
///
/// ```text
///   heads[2] --> pfdat of frame 8 <--> pfdat of frame 64        blocks of four base frames
///   heads[0] --> pfdat of frame 3                               blocks of one
/// ```
///
/// Inserting a block, removing a block and finding the first block take constant time and no
/// memory.
#[derive(Clone)]
pub(crate) struct FreeLists<const ORDERS: usize> {
    heads: [u32; ORDERS],
    counts: [u32; ORDERS],
    /// One bit per order, set if the list of that order has a block.
    present: u32,
}

impl<const ORDERS: usize> FreeLists<ORDERS> {
    pub(crate) const fn new() -> FreeLists<ORDERS> {
        const { assert!(ORDERS <= u32::BITS as usize, "an order has a bit") };
        FreeLists { heads: [NO_FRAME; ORDERS], counts: [0; ORDERS], present: 0 }
    }

    /// The number of blocks of `order`.
    pub(crate) fn count(&self, order: u32) -> u32 {
        self.counts.get(order as usize).copied().unwrap_or(0)
    }

    /// The block of `order` that was inserted last.
    #[inline]
    pub(crate) fn first(&self, order: u32) -> Option<FrameId> {
        let head = self.heads[order as usize];
        (head != NO_FRAME).then_some(FrameId(head))
    }

    /// The smallest order, from `order` up, whose list has a block.
    #[inline]
    pub(crate) fn at_least(&self, order: u32) -> Option<u32> {
        let larger = self.present.checked_shr(order).filter(|&larger| larger != 0)?;
        Some(order + larger.trailing_zeros())
    }

    /// Inserts a block.
    #[inline]
    pub(crate) fn push(&mut self, table: &mut FrameTable, block: FrameId, order: u32) {
        let next = self.heads[order as usize];
        let pfdat = table.get_mut(block);
        pfdat.links = [NO_FRAME, next];
        pfdat.set_free_order(Some(order));
        if next != NO_FRAME {
            table.get_mut(FrameId(next)).links[0] = block.0;
        }
        self.heads[order as usize] = block.0;
        self.counts[order as usize] += 1;
        self.present |= 1 << order;
    }

    /// Removes a block from the list of `order`.
    #[inline]
    pub(crate) fn remove(&mut self, table: &mut FrameTable, block: FrameId, order: u32) {
        let pfdat = table.get_mut(block);
        debug_assert_eq!(pfdat.free_order(), Some(order), "frame {} heads no such block", block.0);
        let [previous, next] = pfdat.links;
        pfdat.links = [NO_FRAME; 2];
        pfdat.set_free_order(None);
        match previous {
            NO_FRAME => {
                self.heads[order as usize] = next;
                self.present &= !(u32::from(next == NO_FRAME) << order);
            }
            _ => table.get_mut(FrameId(previous)).links[1] = next,
        }
        if next != NO_FRAME {
            table.get_mut(FrameId(next)).links[0] = previous;
        }
        self.counts[order as usize] -= 1;
    }

    /// The block of `order` that was inserted last. If `color` is given, only blocks in which
    /// `2^wanted` frames of that colour begin are considered; only the first [`COLOR_LOOKS`] blocks
    /// of the list are examined.
    pub(crate) fn choose(
        &self,
        table: &FrameTable,
        order: u32,
        color: Option<Color>,
        wanted: u32,
    ) -> Option<FrameId> {
        let mut block = self.first(order)?;
        let Some(color) = color else { return Some(block) };
        for _ in 0..COLOR_LOOKS {
            if color.within(block, order, wanted).is_some() {
                return Some(block);
            }
            match table.get(block).links[1] {
                NO_FRAME => break,
                next => block = FrameId(next),
            }
        }
        None
    }
}

/// The number of blocks of a list that are examined for a colour.
const COLOR_LOOKS: usize = 64;

/// The first frame of the part that `request` gets from a block of order `from`, which has been
/// removed from its list: a part with the requested colour if there is one.
pub(crate) fn part(block: FrameId, from: u32, request: &Request) -> FrameId {
    let colored = request.color.and_then(|color| color.within(block, from, request.order));
    colored.unwrap_or(block)
}
