use physmem::{FrameId, FrameTable, NO_FRAME};

use super::Pages;

/// A list of frames, linked through their descriptors. A frame is in at most one list.
///
/// ```text
///   head --> [ pfdat ] <--> [ pfdat ] <--> [ pfdat ] <-- tail      links: previous, next
///            oldest                        newest
/// ```
#[derive(Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    len: u64,
}

impl Default for List {
    fn default() -> List {
        List { head: NO_FRAME, tail: NO_FRAME, len: 0 }
    }
}

impl List {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Inserts a frame as the newest.
    pub(super) fn push(&mut self, table: &mut FrameTable, frame: FrameId) {
        table.get_mut(frame).links = [self.tail, NO_FRAME];
        match self.tail {
            NO_FRAME => self.head = frame.0,
            tail => table.get_mut(FrameId(tail)).links[1] = frame.0,
        }
        self.tail = frame.0;
        self.len += 1;
    }

    /// Removes and returns the oldest frame.
    pub(super) fn pop(&mut self, table: &mut FrameTable) -> Option<FrameId> {
        let frame = FrameId(self.head);
        (self.len > 0).then(|| self.remove(table, frame)).map(|()| frame)
    }

    /// Removes and returns the oldest frame. The descriptors are accessed through `pages`, as a
    /// policy does when it chooses a victim.
    pub(super) fn pop_of(&mut self, pages: &mut dyn Pages) -> Option<FrameId> {
        let mut popped = None;
        pages.with_table(&mut |table| popped = self.pop(table));
        popped
    }

    /// Removes a frame that is in this list.
    pub(super) fn remove(&mut self, table: &mut FrameTable, frame: FrameId) {
        let [before, after] = table.get(frame).links;
        match before {
            NO_FRAME => self.head = after,
            before => table.get_mut(FrameId(before)).links[1] = after,
        }
        match after {
            NO_FRAME => self.tail = before,
            after => table.get_mut(FrameId(after)).links[0] = before,
        }
        table.get_mut(frame).links = [NO_FRAME; 2];
        self.len -= 1;
    }
}
