use addr::{Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{
    Error, Fault, Flush, Footprint, Frames, Mapping, Mounted, Node, Reference, Space, Translation,
    TreeShape, Unfit, Usage, resized,
};
use rustc_hash::FxHashMap;

/// The set of mapped pages, used in place of a page table by a machine that consists only of TLBs.
/// A walk has no references, and the address of a page is used as the address of its frame.
///
/// ```text
///   page number   | chunk | 12 bits |      chunks --> a bit for each of 4096 adjacent pages
///                     |                       ^
///                     +--> recent: found last-+
/// ```
///
/// Pages have no rights and no usage bits: every access is allowed.
pub(super) struct Flat {
    /// The indices in `words` of the chunks that have pages.
    chunks: FxHashMap<Chunk, usize>,
    words: Vec<[u64; WORDS]>,
    /// Unused indices in `words`.
    free: Vec<usize>,
    /// For each value of the lowest bits of a chunk's number: the last chunk with these bits that a
    /// walk searched for, and its index.
    recent: [Option<(Chunk, usize)>; RECENT],
    /// All page sizes.
    page_sizes: Vec<PageSize>,
    /// The sizes of mapped pages.
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

/// The number of recent chunks: enough for walks of pages of 4K spread over 4 GiB.
const RECENT: usize = 256;
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

/// The position of the bit of `page` in its chunk: the index of the word, and the mask of the bit.
fn bit(page: Page) -> (usize, u64) {
    let number = page.number() & ((1 << CHUNK_SHIFT) - 1);
    ((number / 64) as usize, 1 << (number % 64))
}

impl Flat {
    pub(super) fn new() -> Flat {
        let page_sizes = (0..u64::BITS as u8).filter_map(PageSize::from_shift).collect();
        Flat {
            chunks: FxHashMap::default(),
            words: Vec::new(),
            free: Vec::new(),
            recent: [None; RECENT],
            page_sizes,
            sizes: Vec::new(),
            spaces: 0,
        }
    }

    fn contains(&self, space: Space, page: Page) -> bool {
        let place = self.chunks.get(&Chunk::of(space, page));
        place.is_some_and(|&place| self.has(place, page))
    }

    /// Whether `page`, whose chunk is at the index `place`, is mapped.
    #[inline]
    fn has(&self, place: usize, page: Page) -> bool {
        let (word, bit) = bit(page);
        self.words[place][word] & bit != 0
    }

    /// The index of a chunk that a walk needs.
    #[inline]
    fn place_of(&mut self, chunk: Chunk) -> Option<usize> {
        let recent = &mut self.recent[chunk.number as usize % RECENT];
        match *recent {
            Some((known, place)) if known == chunk => Some(place),
            _ => {
                let place = *self.chunks.get(&chunk)?;
                *recent = Some((chunk, place));
                Some(place)
            }
        }
    }

    /// The index of a chunk, which is added if necessary.
    fn place_for(&mut self, chunk: Chunk) -> usize {
        *self.chunks.entry(chunk).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.words.push([0; WORDS]);
                self.words.len() - 1
            })
        })
    }

    fn find(&self, space: Space, addr: VirtAddr) -> Option<Page> {
        let mut pages = self.sizes.iter().map(|&size| addr.page(size));
        pages.find(|&page| self.contains(space, page))
    }

    /// A mapped page that overlaps `page`.
    fn within(&self, space: Space, page: Page) -> Option<Page> {
        let smaller = self.sizes.iter().filter(|&&size| size < page.size());
        let mut smaller = smaller.flat_map(|&size| VirtRange::of_page(page).pages(size));
        self.find(space, page.start())
            .or_else(|| smaller.find(|&smaller| self.contains(space, smaller)))
    }

    /// The mapped pages that are completely in `range`, ascending.
    fn covered(&self, space: Space, range: VirtRange) -> Vec<Page> {
        let (first, last) = (range.start().get(), range.last().get());
        let touches = |chunk: &Chunk| {
            let shift = CHUNK_SHIFT + chunk.size.shift();
            let chunks =
                first.checked_shr(shift).unwrap_or(0)..=last.checked_shr(shift).unwrap_or(0);
            chunk.space == space.id() && chunks.contains(&chunk.number)
        };
        let chunks = self.chunks.iter().filter(|(chunk, _)| touches(chunk));
        let pages = chunks.flat_map(|(chunk, place)| chunk.pages(&self.words[*place]));
        let mut pages: Vec<Page> =
            pages.filter(|&page| range.covers(VirtRange::of_page(page))).collect();
        pages.sort_unstable();
        pages
    }

    fn translation(page: Page) -> Translation {
        let frame = PhysAddr::new(page.start().get());
        Translation::new(page, frame, Rights::ALL)
    }

    fn mapping(page: Page) -> Mapping {
        Mapping { translation: Flat::translation(page), usage: Usage::default(), note: 0 }
    }
}

impl Mounted for Flat {
    fn page_sizes(&self) -> &[PageSize] {
        &self.page_sizes
    }

    fn granted(&self, rights: Rights) -> Rights {
        rights
    }

    fn create(&mut self, _frames: &mut dyn Frames) -> Result<Space, Error> {
        self.spaces += 1;
        Ok(Space::new(self.spaces - 1, PhysAddr::new(0)))
    }

    fn destroy(&mut self, space: Space) -> Result<Flush, Error> {
        let Flat { chunks, words, free, recent, .. } = self;
        chunks.retain(|chunk, place| {
            let stays = chunk.space != space.id();
            if !stays {
                words[*place] = [0; WORDS];
                free.push(*place);
            }
            stays
        });
        *recent = [None; RECENT];
        Ok(Flush::whole(space, false))
    }

    fn map_noted(
        &mut self,
        space: Space,
        (first, count): (Translation, u64),
        _notes: &[u32],
        _frames: &mut dyn Frames,
    ) -> Result<Flush, Error> {
        let size = first.page.size();
        let range = VirtRange::new(first.page.start(), count.saturating_mul(size.bytes()))?;
        if let Some(page) = range.pages(size).find_map(|page| self.within(space, page)) {
            return Err(Error::AlreadyMapped { page });
        }
        if !self.sizes.contains(&size) {
            self.sizes.push(size);
        }
        for page in range.pages(size) {
            let (word, bit) = bit(page);
            let place = self.place_for(Chunk::of(space, page));
            self.words[place][word] |= bit;
        }
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
            if let Some(&place) = self.chunks.get(&Chunk::of(space, page)) {
                self.words[place][word] &= !bit;
            }
            flush.add(page, false);
            each(Flat::mapping(page));
        }
        Ok(flush)
    }

    fn protect(
        &mut self,
        space: Space,
        _range: VirtRange,
        _rights: Rights,
        _each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        Ok(Flush::nothing(space))
    }

    fn protect_page(
        &mut self,
        space: Space,
        _page: Page,
        _rights: &mut dyn FnMut(&Mapping) -> Option<Rights>,
    ) -> Result<Flush, Error> {
        Ok(Flush::nothing(space))
    }

    fn clear_usage(
        &mut self,
        space: Space,
        _range: VirtRange,
        _bits: Usage,
        _each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        Ok(Flush::nothing(space))
    }

    fn set_usage(&mut self, space: Space, addr: VirtAddr, _bits: Usage) -> Result<(), Error> {
        self.find(space, addr).map(|_| ()).ok_or(Error::NotMapped { addr })
    }

    fn walk(
        &mut self,
        space: Space,
        addr: VirtAddr,
        _kind: Kind,
        _references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        for number in 0..self.sizes.len() {
            let page = addr.page(self.sizes[number]);
            let place = self.place_of(Chunk::of(space, page));
            if place.is_some_and(|place| self.has(place, page)) {
                return Ok(Flat::translation(page));
            }
        }
        Err(Fault::NotMapped { level: 1 })
    }

    fn query(&self, space: Space, addr: VirtAddr) -> Option<Mapping> {
        self.find(space, addr).map(Flat::mapping)
    }

    fn visit(&self, space: Space, range: VirtRange, each: &mut dyn FnMut(Mapping)) {
        for page in self.covered(space, range) {
            each(Flat::mapping(page));
        }
    }

    fn resize(
        &mut self,
        space: Space,
        range: VirtRange,
        to: PageSize,
        frames: &mut dyn Frames,
        forget: &mut dyn FnMut(&Flush),
    ) -> Result<Vec<Mapping>, Error> {
        if !self.page_sizes.contains(&to) {
            return Err(Unfit::PageSize(to).into());
        }
        let mut before = Vec::new();
        self.visit(space, range, &mut |mapping| before.push(mapping));
        let after = resized(&before, range, to)?;
        // Nothing below can fail, and there is no walk in between.
        let mut flush = Flush::nothing(space);
        for mapping in before.iter().filter(|mapping| mapping.translation.page.size() != to) {
            let page = VirtRange::of_page(mapping.translation.page);
            flush.merge(self.unmap(space, page, &mut |_| ())?);
        }
        for mapping in &after {
            if !self.contains(space, mapping.translation.page) {
                flush.merge(self.map(space, mapping.translation, 1, frames)?);
            }
        }
        if !flush.is_empty() {
            forget(&flush);
        }
        flush.done(frames);
        Ok(after)
    }

    fn footprint(&self) -> Footprint {
        Footprint::default()
    }

    fn footprint_of(&self, _space: Space) -> Footprint {
        Footprint::default()
    }

    fn tree_shape(&self) -> Option<TreeShape> {
        None
    }

    fn root(&self, space: Space) -> Node {
        Node { table: space.root(), level: 1, shift: 64, rights: Rights::ALL }
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
}
