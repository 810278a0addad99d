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
//! A list owns its nodes. Free ones are in a list of their own, [`Nodes`].

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

/// 24 bytes, as the shift lies in the bits of the address that a page has zero.
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
    first: Option<Box<Node>>,
    /// Operations that unload it. While there is one, loads wait.
    unloading: u32,
}

/// Nodes that are in no frame's list.
#[derive(Default)]
pub struct Nodes {
    free: Option<Box<Node>>,
    out: u64,
}

/// Some nodes on their way between two lists.
#[derive(Default)]
pub(crate) struct Chain(Option<Box<Node>>);

impl Nodes {
    /// How many are in lists of frames.
    pub(crate) const fn out(&self) -> u64 {
        self.out
    }

    pub(crate) fn take(&mut self, count: u64) -> Chain {
        self.out += count;
        let mut chain = Chain::default();
        for _ in 0..count {
            let node = match self.free.take() {
                Some(mut node) => {
                    self.free = node.next.take();
                    node
                }
                None => {
                    Box::new(Node { start_and_shift: 0, space: 0, mmu: 0, depth: 0, next: None })
                }
            };
            chain.push(node);
        }
        chain
    }

    pub(crate) fn put(&mut self, mut chain: Chain) {
        while let Some(mut node) = chain.pop() {
            node.next = self.free.take();
            self.free = Some(node);
            self.out -= 1;
        }
    }
}

impl Chain {
    fn push(&mut self, mut node: Box<Node>) {
        node.next = self.0.take();
        self.0 = Some(node);
    }

    fn pop(&mut self) -> Option<Box<Node>> {
        let mut node = self.0.take()?;
        self.0 = node.next.take();
        Some(node)
    }
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

    /// Enters a page in a node of `chain`, which has one.
    pub(crate) fn insert(&mut self, mapped: Mapped, chain: &mut Chain) {
        insert_at(&mut self.first, mapped, 0, chain);
    }

    /// Enters a page that was mapped from `parent`, if that is in the list. With `adopts`, all that
    /// was mapped from `parent` counts as mapped from the new page. Says whether the parent is there;
    /// one below which a tree would be deeper than 255 counts as gone.
    pub(crate) fn insert_below(
        &mut self,
        parent: Mapped,
        mapped: Mapped,
        adopts: bool,
        chain: &mut Chain,
    ) -> bool {
        let mut at = &mut self.first;
        while at.as_ref().is_some_and(|node| node.mapped() != Some(parent)) {
            at = match at {
                Some(node) => &mut node.next,
                None => return false,
            };
        }
        let Some(node) = at else { return false };
        let Some(depth) = node.depth.checked_add(1) else { return false };
        if adopts {
            let mut deepest = depth;
            let mut next = node.next.as_ref();
            while let Some(below) = next.filter(|below| below.depth >= depth) {
                deepest = deepest.max(below.depth);
                next = below.next.as_ref();
            }
            if deepest == u8::MAX {
                return false;
            }
            let mut next = node.next.as_mut();
            while let Some(below) = next.filter(|below| below.depth >= depth) {
                below.depth += 1;
                next = below.next.as_mut();
            }
        }
        insert_at(&mut node.next, mapped, depth, chain);
        true
    }

    /// The pages that were mapped from `parent`, by it or by those that it was mapped to.
    pub(crate) fn below(&self, parent: Mapped) -> impl Iterator<Item = Mapped> {
        let mut next = self.first.as_deref();
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

    /// Strikes a page out; its node is in `chain` then. Pages that were mapped from it count as mapped
    /// from what it was mapped from.
    pub(crate) fn remove(&mut self, mapped: Mapped, chain: &mut Chain) {
        let mut at = &mut self.first;
        while at.as_ref().is_some_and(|node| node.mapped() != Some(mapped)) {
            at = match at {
                Some(node) => &mut node.next,
                None => return,
            };
        }
        let Some(mut node) = at.take() else { return };
        *at = node.next.take();
        let mut below = at.as_mut().filter(|next| next.depth > node.depth);
        while let Some(next) = below {
            next.depth -= 1;
            // What is as deep as the node was is no child of it any more.
            below = next.next.as_mut().filter(|next| next.depth > node.depth);
        }
        chain.push(node);
    }

    /// The pages in the list.
    pub(crate) fn pages(&self) -> impl Iterator<Item = Mapped> {
        let mut next = self.first.as_deref();
        core::iter::from_fn(move || {
            let node = next?;
            next = node.next.as_deref();
            node.mapped()
        })
    }
}

fn insert_at(at: &mut Option<Box<Node>>, mapped: Mapped, depth: u8, chain: &mut Chain) {
    let mut node = chain.pop().expect("a node was taken for each page");
    node.start_and_shift = mapped.page.start().get() | u64::from(mapped.page.size().shift());
    (node.space, node.mmu, node.depth) = (mapped.space, mapped.mmu, depth);
    node.next = at.take();
    *at = Some(node);
}

/// A long list must not be dropped node by node through the stack.
impl Drop for Chain {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        drop(Chain(self.first.take()));
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        drop(Chain(self.free.take()));
    }
}

impl Node {
    /// Page sizes begin at 4 bytes and end at 2^62, so that a shift fits in 6 bits; the bits that
    /// the page has zero are at least its shift, and shifts of pages of 64 bytes and more fit.
    fn mapped(&self) -> Option<Mapped> {
        let size = PageSize::from_shift((self.start_and_shift & 63) as u8)?;
        let page = VirtAddr::new(self.start_and_shift).page(size);
        Some(Mapped { space: self.space, mmu: self.mmu, page })
    }
}
