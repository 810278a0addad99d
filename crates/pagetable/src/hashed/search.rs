//! Lookup of pages and entries in the table.

use addr::{Memory, PageSize, PhysAddr, VirtAddr, VirtRange};

use super::Hashed;
use super::chain::{Link, NEXT, NONE, chain};
use super::layout::FULL;
use crate::pages::Found;
use crate::{Flush, Space};

impl Hashed {
    /// The page that contains `addr`, and the table entry that holds it. If the page is replicated,
    /// this is the entry of its copy for `addr`.
    pub(super) fn locate(
        &self,
        space: Space,
        addr: VirtAddr,
        memory: &impl Memory,
    ) -> Option<(Link, Found)> {
        self.locate_if(space, addr, memory, |_| true)
    }

    /// Like [`Hashed::locate`], but only finds a page of `size`: while a page is being replaced, a
    /// page of another size has the same address.
    pub(super) fn locate_sized(
        &self,
        space: Space,
        addr: VirtAddr,
        size: PageSize,
        memory: &impl Memory,
    ) -> Option<(Link, Found)> {
        self.locate_if(space, addr, memory, |found| found.page.size() == size)
    }

    #[inline]
    fn locate_if(
        &self,
        space: Space,
        addr: VirtAddr,
        memory: &impl Memory,
        is: impl Fn(&Found) -> bool,
    ) -> Option<(Link, Found)> {
        let id = self.id(space);
        self.probes(space).find_map(|probe| {
            let links = chain(self.bucket(space, addr, probe), memory);
            links.filter(|link| self.layout.covers(link.tag, addr, id)).find_map(|link| {
                let code = self.layout.code(link.tag);
                let found = self.layout.page_in(link.node, code, addr, memory);
                (found.pte.is_mapped() && is(&found)).then_some((link, found))
            })
        })
    }

    /// The address of the entry of `code` that covers `addr`, if there is one; the page at `addr`
    /// need not be mapped.
    pub(super) fn entry(
        &self,
        space: Space,
        addr: VirtAddr,
        code: usize,
        memory: &impl Memory,
    ) -> Option<PhysAddr> {
        let tag = self.layout.tag(addr, code, self.id(space));
        let bucket = self.bucket(space, addr, self.layout.held(code).probe);
        chain(bucket, memory).find(|link| link.tag == tag).map(|link| link.node)
    }

    /// Finds the table entry into which a page has to be inserted that is not mapped yet; for a
    /// replicated page, the entry for its copy at `addr`. Returns the code of the entry, and its
    /// address if the entry already exists.
    pub(super) fn room(
        &self,
        space: Space,
        size: PageSize,
        addr: VirtAddr,
        frame: PhysAddr,
        memory: &impl Memory,
    ) -> (usize, Option<PhysAddr>) {
        let code = self.layout.code_of(size);
        let node = self.entry(space, addr, code, memory);
        let block = self.layout.block_of(addr, frame);
        if node.is_none()
            && code == FULL
            && let (Some(partial), Some(block)) = (self.layout.partial(), block)
        {
            let node = self.entry(space, addr, partial, memory);
            if node.is_none_or(|node| self.layout.block(node, memory) == block) {
                return (partial, node);
            }
        }
        (code, node)
    }

    /// Removes the entry at `link` from its chain.
    pub(super) fn release(
        &mut self,
        space: Space,
        link: Link,
        memory: &mut impl Memory,
        flush: &mut Flush,
    ) {
        let held = self.layout.held(self.layout.code(link.tag));
        if link.is_inline() {
            memory.write_u64(link.node, NONE);
        } else {
            let next = memory.read_u64(link.node.wrapping_add(NEXT));
            memory.write_u64(link.before.wrapping_add(NEXT), next);
            self.store(space).pool(held.form).put(link.node, flush);
        }
        self.store(space).count_out(held.probe);
    }

    /// Calls `each` for the entries of `space` that may cover a byte of `range`.
    pub(super) fn links(
        &self,
        space: Space,
        range: VirtRange,
        memory: &impl Memory,
        each: &mut impl FnMut(Link),
    ) {
        let id = self.id(space);
        let chains = self.probes(space).map(|probe| {
            let shift = self.layout.span(probe).shift();
            (range.last().get() >> shift) - (range.start().get() >> shift)
        });
        if chains.fold(0, u64::saturating_add) < self.layout.buckets {
            for probe in self.probes(space) {
                let span = self.layout.span(probe);
                for page in range.pages(span) {
                    let links = chain(self.bucket(space, page.start(), probe), memory);
                    let of_chain = |link: &Link| {
                        self.layout.is_of(link.tag, id)
                            && self.layout.held(self.layout.code(link.tag)).probe == probe
                            && VirtAddr::new(link.tag).page(span) == page
                    };
                    links.filter(of_chain).for_each(&mut *each);
                }
            }
            return;
        }
        for n in 0..self.layout.buckets {
            let links = chain(self.layout.nth_bucket(space.root(), n), memory);
            links.filter(|link| self.layout.is_of(link.tag, id)).for_each(&mut *each);
        }
    }
}
