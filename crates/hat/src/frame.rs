//! Page-frame descriptors: all mappings of a frame (K94 section 4.2), G98's reverse map.
//!
//! ```text
//!   frame 16: --> [ space 1, 0x7000, 4K ] --> [ space 2, 0x9000, 4K ] --> end
//!   frame 32: --> [ space 1, 0x20000, 64K ] --> [ space 3, 0x5000, 4K ] --> end
//!   frame 33: --> [ space 3, 0x6000, 4K ] --> end
//! ```
//!
//! A node hangs at the first base frame of *its own* page size, so that two spaces map the same
//! frames at two sizes (G98 section 6.2) without a node per base page. Whoever asks for the
//! mappings of a base frame therefore looks at one list per page size: at that of the frame itself,
//! and at that of the first frame of each larger page that could cover it (`Hat::lists_of`).
//!
//! The list is a tree written in preorder: a node's *depth* says how many nodes above it the page was
//! mapped from, one space giving it to the next (E99 section 3.2, L4's mapping tree). What the memory
//! manager loads has depth 0, so that without such mappings the tree is K94's flat list.
//!
//! ```text
//!   space 1, depth 0          the pager has the page
//!     space 2, depth 1        and mapped it to space 2,
//!       space 5, depth 2      which mapped it on
//!     space 3, depth 1
//! ```
//!
//! The first node lies in the descriptor itself: most frames are mapped once, and then a fault makes
//! no node and looks at one line of the processor's cache. Further nodes are made one by one, of the
//! kernel's heap: no list of free nodes has a lock of its own here.

use alloc::boxed::Box;

use addr::{Page, PageSize, VirtAddr};

/// A page that maps a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mapped {
    /// The number of its space.
    pub space: u32,
    /// The place of its MMU in the space's list.
    pub mmu: u8,
    /// The page.
    pub page: Page,
}

/// 24 bytes, as the shift lies in the bits of the address that a page has zero. All zero, it is no page.
#[derive(Default)]
struct Node {
    start_and_shift: u64,
    space: u32,
    mmu: u8,
    depth: u8,
    next: Option<Box<Node>>,
}

/// A page-frame descriptor.
#[derive(Default)]
pub struct Frame {
    first: Node,
    /// Operations that unload it. While there is one, loads wait.
    unloading: u32,
}

impl Frame {
    /// Whether loads have to wait.
    pub(crate) const fn is_unloading(&self) -> bool {
        self.unloading > 0
    }

    pub(crate) fn begin_unloading(&mut self) {
        self.unloading += 1;
    }

    pub(crate) fn end_unloading(&mut self) {
        self.unloading -= 1;
    }

    /// Enters a page.
    pub(crate) fn insert(&mut self, mapped: Mapped) {
        let others = core::mem::replace(&mut self.first, Node::of(mapped, 0));
        if others.is_page() {
            self.first.next = Some(Box::new(others));
        }
    }

    /// Enters a page that is a copy of `other`, if that is in the list; says whether it is.
    pub(crate) fn insert_beside(&mut self, other: Mapped, mapped: Mapped) -> bool {
        let is_there = self.pages().any(|of| of == other);
        if is_there {
            self.insert(mapped);
        }
        is_there
    }

    /// Enters a page that was mapped from `parent`, if that is in the list. Says whether the parent is there;
    /// one below which a tree would be deeper than 255 counts as gone.
    pub(crate) fn insert_below(&mut self, parent: Mapped, mapped: Mapped) -> bool {
        let Some(node) = self.node_mut(parent) else { return false };
        let Some(depth) = node.depth.checked_add(1) else { return false };
        let behind = node.next.take();
        node.next = Some(Box::new(Node { next: behind, ..Node::of(mapped, depth) }));
        true
    }

    /// Enters a page in the place of `giver`, which is below it from here on, alone: what was mapped from
    /// `giver` counts as mapped from the new page. Says as [`Frame::insert_below`] whether the giver is there.
    pub(crate) fn insert_above(&mut self, giver: Mapped, mapped: Mapped) -> bool {
        let Some(node) = self.node_mut(giver) else { return false };
        let Some(below) = node.depth.checked_add(1) else { return false };
        let new = Node::of(mapped, node.depth);
        // Its children are as deep as it now is itself, behind it.
        let given = Node { depth: below, ..core::mem::replace(node, new) };
        node.next = Some(Box::new(given));
        true
    }

    /// Undoes [`Frame::insert_above`]: `giver` is in its place again, if it is still in the list.
    pub(crate) fn remove_above(&mut self, giver: Mapped, mapped: Mapped) {
        let Some(node) = self.node_mut(mapped) else { return };
        let next = node.next.take_if(|next| next.mapped() == Some(giver));
        let Some(given) = next else { return self.remove(mapped) };
        *node = *given;
        let depth = node.depth;
        node.depth -= 1;
        rise(node.next.as_deref_mut(), depth);
    }

    fn node_mut(&mut self, of: Mapped) -> Option<&mut Node> {
        let mut node = &mut self.first;
        while node.mapped() != Some(of) {
            node = node.next.as_mut()?;
        }
        Some(node)
    }

    /// Whether `child` was mapped from `parent`, and not from one in between.
    pub(crate) fn is_child(&self, parent: Mapped, child: Mapped) -> bool {
        let mut depth = None;
        let mut next = self.head();
        while let Some(node) = next {
            match depth {
                None if node.mapped() == Some(parent) => depth = Some(node.depth),
                Some(depth) if node.depth <= depth => return false,
                Some(depth) if node.depth == depth + 1 && node.mapped() == Some(child) => {
                    return true;
                }
                _ => {}
            }
            next = node.next.as_deref();
        }
        false
    }

    /// The pages that were mapped from `parent`, by it or by those that it was mapped to.
    pub(crate) fn below(&self, parent: Mapped) -> impl Iterator<Item = Mapped> {
        let mut next = self.head();
        while next.is_some_and(|node| node.mapped() != Some(parent)) {
            next = next.and_then(|node| node.next.as_deref());
        }
        let depth = next.map_or(0, |node| node.depth);
        next = next.and_then(|node| node.next.as_deref());
        core::iter::from_fn(move || {
            let node = next.filter(|node| node.depth > depth)?;
            next = node.next.as_deref();
            node.mapped()
        })
    }

    /// Strikes a page out. Pages that were mapped from it count as mapped from what it was mapped from.
    pub(crate) fn remove(&mut self, mapped: Mapped) {
        if self.first.mapped() == Some(mapped) {
            let Node { depth, next, .. } = core::mem::take(&mut self.first);
            self.first = next.map_or_else(Node::default, |next| *next);
            rise(Some(&mut self.first), depth);
            return;
        }
        let mut before = &mut self.first;
        while before.next.as_ref().is_some_and(|node| node.mapped() != Some(mapped)) {
            before = match &mut before.next {
                Some(next) => next,
                None => return,
            };
        }
        let Some(node) = before.next.take() else { return };
        let Node { depth, next, .. } = *node;
        before.next = next;
        rise(before.next.as_deref_mut(), depth);
    }

    fn head(&self) -> Option<&Node> {
        self.first.is_page().then_some(&self.first)
    }

    /// The pages in the list.
    pub(crate) fn pages(&self) -> impl Iterator<Item = Mapped> {
        let mut next = self.head();
        core::iter::from_fn(move || {
            let node = next?;
            next = node.next.as_deref();
            node.mapped()
        })
    }
}

/// The nodes that follow one of `depth`, which is gone, and were below it: each is one less deep.
fn rise(mut next: Option<&mut Node>, depth: u8) {
    // What is as deep as that node was is no child of it.
    while let Some(below) = next.filter(|below| below.depth > depth) {
        below.depth -= 1;
        next = below.next.as_deref_mut();
    }
}

/// A long list must not be dropped node by node through the stack.
impl Drop for Frame {
    fn drop(&mut self) {
        let mut next = self.first.next.take();
        while let Some(mut node) = next {
            next = node.next.take();
        }
    }
}

impl Node {
    fn of(Mapped { space, mmu, page }: Mapped, depth: u8) -> Node {
        let start_and_shift = page.start().get() | u64::from(page.size().shift());
        Node { start_and_shift, space, mmu, depth, next: None }
    }

    const fn is_page(&self) -> bool {
        self.start_and_shift != 0
    }

    /// Page sizes begin at 4 bytes and end at 2^62, so that a shift fits in 6 bits; the bits that
    /// the page has zero are at least its shift, and shifts of pages of 64 bytes and more fit.
    fn mapped(&self) -> Option<Mapped> {
        let size = PageSize::from_shift((self.start_and_shift & 63) as u8)?;
        let page = VirtAddr::new(self.start_and_shift).page(size);
        Some(Mapped { space: self.space, mmu: self.mmu, page })
    }
}
