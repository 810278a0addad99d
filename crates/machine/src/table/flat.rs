use addr::{Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{
    Error, Fault, Flush, Footprint, Mapping, Node, Reference, Space, Translation, TreeShape, Usage,
};
use physmem::Buddy;
use rustc_hash::FxHashSet;

use super::{Table, only_root};

/// What a machine of TLBs alone has in place of a page table: the set of its mapped pages. A
/// walk of it has no references, and the frame of a page is the page itself.
#[derive(Default)]
pub(super) struct Flat {
    pages: FxHashSet<(u32, Page)>,
    sizes: Vec<PageSize>,
    spaces: u32,
}

impl Flat {
    fn find(&self, space: Space, addr: VirtAddr) -> Option<Page> {
        let pages = self.sizes.iter().map(|&size| addr.page(size));
        pages.into_iter().find(|&page| self.pages.contains(&(space.id(), page)))
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

    fn create(&mut self, _frames: &mut Buddy) -> Result<Space, Error> {
        self.spaces += 1;
        Ok(Space::new(self.spaces - 1, PhysAddr::new(0)))
    }

    fn destroy(&mut self, space: Space) -> Result<Flush, Error> {
        self.pages.retain(|(id, _)| *id != space.id());
        Ok(Flush::nothing(space))
    }

    fn map(&mut self, space: Space, page: Translation, _frames: &mut Buddy) -> Result<(), Error> {
        if !self.sizes.contains(&page.page.size()) {
            self.sizes.push(page.page.size());
        }
        self.pages.insert((space.id(), page.page));
        Ok(())
    }

    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        let mut flush = Flush::nothing(space);
        let covered = |page: &Page| range.covers(VirtRange::of_page(*page));
        // Whatever is less: the pages that the range could hold, or those that there are.
        let possible: u64 = self.sizes.iter().map(|size| range.bytes() / size.bytes() + 2).sum();
        let gone: Vec<Page> = if possible <= self.pages.len() as u64 {
            let pages = self.sizes.iter().flat_map(|&size| range.pages(size));
            pages
                .filter(|page| covered(page) && self.pages.contains(&(space.id(), *page)))
                .collect()
        } else {
            let pages = self.pages.iter().filter(|(id, _)| *id == space.id());
            let mut pages: Vec<Page> = pages.map(|(_, page)| *page).filter(covered).collect();
            pages.sort_unstable();
            pages
        };
        for page in gone {
            self.pages.remove(&(space.id(), page));
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
