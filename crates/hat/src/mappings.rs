//! All mappings of each frame: K94's page-frame descriptor's list, G98's reverse map.
//!
//! ```text
//!   heads, by base frame              slab of nodes
//!   frame 16: --> [ space 1, 0x7000, 4K ] --> [ space 2, 0x9000, 4K ] --> end
//!   frame 32: --> [ space 1, 0x20000, 64K ] --> [ space 3, 0x5000, 4K ] --> end
//!   frame 33: --> [ space 3, 0x6000, 4K ] --> end
//! ```
//!
//! A node hangs at the first base frame of *its own* page size, so that two spaces map the same
//! frames at two sizes (G98 section 6.2) without a node per base page. Whoever asks for the
//! mappings of a base frame therefore looks at one head per page size: at the frame itself, and
//! at the first frame of each larger page that could cover it.

use alloc::{boxed::Box, vec::Vec};

use addr::{Page, PageSize, PhysAddr, VirtAddr};

const CHUNK_FRAMES: usize = 1024;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// A page that maps a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mapped {
    /// The number of its space.
    pub space: u32,
    /// The page.
    pub page: Page,
}

/// 24 bytes.
#[derive(Clone, Copy)]
struct Node {
    start: VirtAddr,
    space: u32,
    next: u32,
    shift: u8,
}

/// The lists of all frames.
pub(crate) struct Mappings {
    base: PageSize,
    /// First node of each base frame, in chunks that exist where a frame was ever mapped.
    heads: Vec<Option<Box<[u32; CHUNK_FRAMES]>>>,
    nodes: Vec<Node>,
    /// First node that is in no list.
    unused: u32,
    count: u64,
}

impl Mappings {
    pub(crate) const fn new(base: PageSize) -> Mappings {
        Mappings { base, heads: Vec::new(), nodes: Vec::new(), unused: NONE, count: 0 }
    }

    /// Nodes in all lists.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Enters a page that maps the frame at `frame`.
    pub(crate) fn insert(&mut self, frame: PhysAddr, mapped: Mapped) {
        let head = *self.head_mut(frame);
        let node = Node {
            start: mapped.page.start(),
            space: mapped.space,
            next: head,
            shift: mapped.page.size().shift() as u8,
        };
        let number = match self.unused {
            NONE => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
            number => {
                self.unused = self.nodes[number as usize].next;
                self.nodes[number as usize] = node;
                number
            }
        };
        *self.head_mut(frame) = number;
        self.count += 1;
    }

    /// Strikes a page out that maps the frame at `frame`. Says whether it was there.
    pub(crate) fn remove(&mut self, frame: PhysAddr, mapped: Mapped) -> bool {
        let mut before = NONE;
        let mut number = *self.head_mut(frame);
        while number != NONE {
            let node = self.nodes[number as usize];
            if node.mapped() == Some(mapped) {
                match before {
                    NONE => *self.head_mut(frame) = node.next,
                    before => self.nodes[before as usize].next = node.next,
                }
                self.nodes[number as usize].next = self.unused;
                self.unused = number;
                self.count -= 1;
                return true;
            }
            (before, number) = (number, node.next);
        }
        false
    }

    /// Gives `each` every page that maps a part of the frames of `size` at `frame`, or more than
    /// them.
    pub(crate) fn of(
        &self,
        frame: PhysAddr,
        size: PageSize,
        sizes: &[PageSize],
        each: &mut dyn FnMut(Mapped),
    ) {
        let larger = sizes.iter().filter(|&&of| of > size);
        for &of in larger {
            let first = PhysAddr::new(frame.get() & !of.mask());
            self.at(first, &mut |mapped| {
                if mapped.page.size() == of {
                    each(mapped);
                }
            });
        }
        for number in 0..size.count_of(self.base).max(1) {
            let at = PhysAddr::new(frame.get() + number * self.base.bytes());
            // A page that is larger than the frames asked for has been given above.
            self.at(at, &mut |mapped| {
                if mapped.page.size() <= size {
                    each(mapped);
                }
            });
        }
    }

    /// Gives `each` every node's frame and page.
    pub(crate) fn all(&self, each: &mut dyn FnMut(PhysAddr, Mapped)) {
        for (number, chunk) in self.heads.iter().enumerate() {
            let Some(chunk) = chunk else { continue };
            for place in (0..CHUNK_FRAMES).filter(|&place| chunk[place] != NONE) {
                let frame = ((number * CHUNK_FRAMES + place) as u64) << self.base.shift();
                let frame = PhysAddr::new(frame);
                self.at(frame, &mut |mapped| each(frame, mapped));
            }
        }
    }

    /// Gives `each` the pages in the list of one base frame.
    fn at(&self, frame: PhysAddr, each: &mut dyn FnMut(Mapped)) {
        let index = (frame.get() >> self.base.shift()) as usize;
        let Some(Some(chunk)) = self.heads.get(index / CHUNK_FRAMES) else { return };
        let mut number = chunk[index % CHUNK_FRAMES];
        while number != NONE {
            let node = self.nodes[number as usize];
            if let Some(mapped) = node.mapped() {
                each(mapped);
            }
            number = node.next;
        }
    }

    fn head_mut(&mut self, frame: PhysAddr) -> &mut u32 {
        let index = (frame.get() >> self.base.shift()) as usize;
        let number = index / CHUNK_FRAMES;
        if number >= self.heads.len() {
            self.heads.resize_with(number + 1, || None);
        }
        let chunk = self.heads[number].get_or_insert_with(|| Box::new([NONE; CHUNK_FRAMES]));
        &mut chunk[index % CHUNK_FRAMES]
    }
}

impl Node {
    fn mapped(self) -> Option<Mapped> {
        let size = PageSize::from_shift(self.shift)?;
        Some(Mapped { space: self.space, page: self.start.page(size) })
    }
}
