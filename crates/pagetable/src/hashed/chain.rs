//! A bucket with its overflow chain, and the contents of the entries in it.

use addr::{Memory, PageSize, PhysAddr, VirtAddr, VirtRange};

use super::layout::{Form, HEADER_BYTES, Layout};
use crate::Reference;
use crate::pages::{Found, read_of};
use crate::pte::Pte;

pub(super) const NEXT: u64 = 8;
/// The value of a link that leads nowhere, and of a tag of an unused entry.
pub(super) const NONE: u64 = 0;
/// The bit that is set in every link that leads to an entry. The bit distinguishes a link to an
/// entry at address 0 from no link. It is free because entry addresses are multiples of eight.
const LINKED: u64 = 1;

/// The link to the entry at `node`.
pub(super) const fn link_to(node: PhysAddr) -> u64 {
    node.get() | LINKED
}

/// The address of the entry that a link leads to.
pub(super) fn linked(link: u64) -> Option<PhysAddr> {
    // The bit is subtracted instead of masked, so that the compiler can include it in the
    // displacement of the following load.
    (link != NONE).then(|| PhysAddr::new(link.wrapping_sub(LINKED)))
}

/// An entry that was reached in a chain; it may be unused. `before` is the entry that links to it.
/// For the first entry, which lies in the bucket, `before` is the entry itself.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub(super) node: PhysAddr,
    pub(super) before: PhysAddr,
    pub(super) tag: u64,
}

impl Link {
    pub(super) fn is_inline(&self) -> bool {
        self.node == self.before
    }
}

/// The entries of the chain that begins at `bucket`.
pub(super) fn chain<M: Memory>(bucket: PhysAddr, memory: &M) -> impl Iterator<Item = Link> + '_ {
    let first = Link { node: bucket, before: bucket, tag: memory.read_u64(bucket) };
    // The next address to read is at a constant distance from the link, so no instruction is needed
    // between two loads.
    let mut link = link_to(bucket);
    core::iter::successors(Some(first), move |last| {
        link = memory.read_u64(PhysAddr::new(link.wrapping_add(NEXT - LINKED)));
        let node = linked(link)?;
        Some(Link { node, before: last.node, tag: memory.read_u64(node) })
    })
}

/// Moves the entry at `node`, which follows `before`, to the front of the overflow chain.
pub(super) fn move_to_front(
    layout: &Layout,
    bucket: PhysAddr,
    before: PhysAddr,
    node: PhysAddr,
    memory: &mut impl Memory,
    each: &mut impl FnMut(Reference),
) {
    let next = |node: PhysAddr| node.wrapping_add(NEXT);
    let (after, first) = (memory.read_u64(next(node)), memory.read_u64(next(bucket)));
    if layout.header_read().0 <= 8 {
        each(read_of(next(node), 8));
    }
    for (at, value) in [(before, after), (node, first), (bucket, link_to(node))] {
        memory.write_u64(next(at), value);
        each(Reference { write: true, ..read_of(next(at), 8) });
    }
}

impl Layout {
    /// The page entry, for the page that holds `addr`, in the table entry of `code` at `node`. The
    /// table entry must cover `addr`; the page need not be mapped.
    #[inline]
    pub(super) fn page_in(
        &self,
        node: PhysAddr,
        code: usize,
        addr: VirtAddr,
        memory: &impl Memory,
    ) -> Found {
        let held = self.held(code);
        let page = addr.page(held.page);
        let at = self.pte_at(node, code, addr);
        if held.form == Form::Partial {
            let frame = self.block(node, memory).wrapping_add(self.index(addr) * held.page.bytes());
            let pte = self.width().pte(frame, addr::Rights::NONE, false);
            let pte = pte.with_flags(memory.read_u8(at));
            return Found { page, at, pte, flags_only: true };
        }
        Found::new(page, at, self.width().read(at, memory))
    }

    /// Writes the page entry that [`Layout::page_in`] reads, and the page's note. The frame of a partial
    /// subblock must have been written before.
    pub(super) fn set_page(
        &self,
        node: PhysAddr,
        code: usize,
        addr: VirtAddr,
        (pte, note): (Pte, u32),
        memory: &mut impl Memory,
    ) {
        let at = self.pte_at(node, code, addr);
        if let Some(at) = self.note_at(at, code) {
            memory.write_u32(at, note);
        }
        match self.held(code).form {
            Form::Partial => memory.write_u8(at, pte.flags()),
            Form::Full | Form::Single => self.width().write(at, pte, memory),
        }
    }

    /// The mapped pages of the entry at `link` that overlap `range`. A replicated page is returned
    /// once per entry, with the first of its copies there.
    pub(super) fn pages_in<'a, M: Memory>(
        &'a self,
        link: Link,
        range: VirtRange,
        memory: &'a M,
    ) -> impl Iterator<Item = Found> + 'a {
        let code = self.code(link.tag);
        let held = self.held(code);
        let covered = VirtRange::of_page(VirtAddr::new(link.tag).page(held.span));
        let pages =
            covered.intersection(range).into_iter().flat_map(move |part| part.pages(held.page));
        pages
            .map(move |page| self.page_in(link.node, code, page.start(), memory))
            .filter(|found| found.pte.is_mapped())
    }

    /// The frame of the first page of a partial-subblock entry, whether or not that page is mapped.
    #[inline]
    pub(super) fn block(&self, node: PhysAddr, memory: &impl Memory) -> PhysAddr {
        self.width().frame(self.width().read(node.wrapping_add(HEADER_BYTES), memory))
    }

    /// Sets the frame of the first page of a partial-subblock entry.
    pub(super) fn set_block(&self, node: PhysAddr, frame: PhysAddr, memory: &mut impl Memory) {
        let entry = self.width().pte(frame, addr::Rights::NONE, false);
        self.width().write(node.wrapping_add(HEADER_BYTES), entry, memory);
    }

    /// The frame of the cluster's first page, if the page at `addr` in `frame` has the same offset
    /// in an aligned block of frames as in its cluster: only such a page can be part of a partial
    /// subblock.
    pub(super) fn block_of(&self, addr: VirtAddr, frame: PhysAddr) -> Option<PhysAddr> {
        let cluster: PageSize = self.span(0);
        (frame.offset_in(cluster) == addr.align_down(PageSize::SIZE_4K).offset_in(cluster))
            .then(|| frame.align_down(cluster))
    }
}
