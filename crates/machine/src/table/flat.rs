use crate::os::Ram;
use addr::{Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{
    Error, Fault, Flush, Footprint, Mapping, Node, Reference, Space, Translation, TreeShape, Usage,
};
use rustc_hash::FxHashMap;

use super::{Table, only_root};

/// What a machine of TLBs alone has in place of a page table: the set of its mapped pages. A
/// walk of it has no references, and the frame of a page is the page itself.
///
/// ```text
///   page number   | chunk | 12 bits |      chunks --> a bit for each of 4096 adjacent pages
/// ```
#[derive(Default)]
pub(super) struct Flat {
    chunks: FxHashMap<Chunk, Box<[u64; WORDS]>>,
    sizes: Vec<PageSize>,
    spaces: u32,
}

/// Adjacent pages of one size in one space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Chunk {
    number: u64,
    size: PageSize,
    space: u32,
}

const CHUNK_SHIFT: u32 = 12;
const WORDS: usize = (1 << CHUNK_SHIFT) / u64::BITS as usize;

impl Chunk {
    fn of(space: Space, page: Page) -> Chunk {
        Chunk { number: page.number() >> CHUNK_SHIFT, size: page.size(), space: space.id() }
    }

    /// The pages whose bits are set in `words`.
    fn pages(self, words: &[u64; WORDS]) -> impl Iterator<Item = Page> {
        let is_set = |bit: &u64| words[(bit / 64) as usize] >> (bit % 64) & 1 == 1;
        let start = move |bit| (self.number << CHUNK_SHIFT | bit) << self.size.shift();
        let bits = (0..1 << CHUNK_SHIFT).filter(is_set);
        bits.map(move |bit| VirtAddr::new(start(bit)).page(self.size))
    }
}

/// Where the bit of `page` is in its chunk: the word, and the bit alone.
fn bit(page: Page) -> (usize, u64) {
    let number = page.number() & ((1 << CHUNK_SHIFT) - 1);
    ((number / 64) as usize, 1 << (number % 64))
}

impl Flat {
    fn contains(&self, space: Space, page: Page) -> bool {
        let (word, bit) = bit(page);
        self.chunks.get(&Chunk::of(space, page)).is_some_and(|words| words[word] & bit != 0)
    }

    fn find(&self, space: Space, addr: VirtAddr) -> Option<Page> {
        let mut pages = self.sizes.iter().map(|&size| addr.page(size));
        pages.find(|&page| self.contains(space, page))
    }

    /// The mapped pages that `range` covers whole, in ascending order.
    fn covered(&self, space: Space, range: VirtRange) -> Vec<Page> {
        let (first, last) = (range.start().get(), range.last().get());
        let touches = |chunk: &Chunk| {
            let shift = CHUNK_SHIFT + chunk.size.shift();
            let chunks =
                first.checked_shr(shift).unwrap_or(0)..=last.checked_shr(shift).unwrap_or(0);
            chunk.space == space.id() && chunks.contains(&chunk.number)
        };
        let chunks = self.chunks.iter().filter(|(chunk, _)| touches(chunk));
        let pages = chunks.flat_map(|(chunk, words)| chunk.pages(words));
        let mut pages: Vec<Page> =
            pages.filter(|&page| range.covers(VirtRange::of_page(page))).collect();
        pages.sort_unstable();
        pages
    }

    fn translation(page: Page) -> Translation {
        let frame = PhysAddr::new(page.start().get());
        Translation { page, frame, rights: Rights::ALL, global: false }
    }
}

impl Table for Flat {
    fn page_sizes(&self) -> Option<&[PageSize]> {
        None
    }

    fn create(&mut self, _frames: &mut Ram) -> Result<Space, Error> {
        self.spaces += 1;
        Ok(Space::new(self.spaces - 1, PhysAddr::new(0)))
    }

    fn destroy(&mut self, space: Space) -> Result<Flush, Error> {
        self.chunks.retain(|chunk, _| chunk.space != space.id());
        Ok(Flush::nothing(space))
    }

    fn map(&mut self, space: Space, page: Translation, _frames: &mut Ram) -> Result<Flush, Error> {
        if !self.sizes.contains(&page.page.size()) {
            self.sizes.push(page.page.size());
        }
        let (word, bit) = bit(page.page);
        let chunk = self.chunks.entry(Chunk::of(space, page.page));
        chunk.or_insert_with(|| Box::new([0; WORDS]))[word] |= bit;
        Ok(Flush::nothing(space))
    }

    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        let mut flush = Flush::nothing(space);
        for page in self.covered(space, range) {
            let (word, bit) = bit(page);
            if let Some(words) = self.chunks.get_mut(&Chunk::of(space, page)) {
                words[word] &= !bit;
            }
            flush.add(page, false);
            each(Mapping { translation: Flat::translation(page), usage: Usage::default() });
        }
        Ok(flush)
    }

    fn protect(
        &mut self,
        space: Space,
        _range: VirtRange,
        _rights: Rights,
    ) -> Result<Flush, Error> {
        Ok(Flush::nothing(space))
    }

    fn walk(
        &mut self,
        space: Space,
        addr: VirtAddr,
        _kind: Kind,
        _references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        let page = self.find(space, addr).ok_or(Fault::NotMapped { level: 1 })?;
        Ok(Flat::translation(page))
    }

    fn tree_shape(&self) -> Option<TreeShape> {
        None
    }

    fn root(&self, space: Space) -> Node {
        only_root(space)
    }

    fn walk_from(
        &mut self,
        start: Node,
        _addr: VirtAddr,
        _kind: Kind,
        _references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        Err(Fault::NotMapped { level: start.level })
    }

    fn query(&self, space: Space, addr: VirtAddr) -> Option<Translation> {
        self.find(space, addr).map(Flat::translation)
    }

    fn footprint(&self) -> Footprint {
        Footprint::default()
    }
}
