//! Allocation by NUMA node and cache colour, and migration of pages to the node that refers to them
//! (G98 section 6.5).
//!
//! ```text
//!   fault by a processor of node 1          module of the region: local      --> node 1
//!                                                                 node 2     --> node 2
//!                                                                 in turn    --> block number mod nodes
//!   nothing free there?   borrow: of the nearest node     stay: a smaller page at home
//!   no frame of the page's colour there?  near: another colour     colored: another node
//!
//!   many references from node 3  --> the page migrates there, with the size that it has
//! ```
//!
//! If the requested node has no base page, one is always borrowed from another node. Colours are
//! colours of base pages; a larger page has all colours.

use alloc::vec::Vec;
use core::ops::Range;

use addr::VirtAddr;
use hat::{
    HatSpace,
    locking::{Locks, Site},
};
use physmem::{Color, FrameId, Home, Rather, Request, State};

use crate::{
    error::{Error, Stop},
    host::Host,
    kernel::Kernel,
    large::Presence,
    module::{Module, Placement},
    region::Region,
    vm::{Vm, Within},
    wanted::Wanted,
    work::{How, Why},
};

impl<L: Locks> Vm<L> {
    /// The policy module of the region that contains `addr` (page size and NUMA node); `None` if no region does.
    pub fn module(&self, space: HatSpace, addr: VirtAddr) -> Option<Module> {
        let page = self.page_of(addr);
        self.look_at(space, |known| Some(known.regions.at(page)?.module))?
    }

    /// The node from which the frames of `pages` should be allocated, for a request by a processor
    /// of `node`.
    fn home(&self, node: u8, module: &Module, pages: &Range<u64>) -> Option<Home> {
        let nodes = self.nodes;
        if nodes <= 1 {
            return None;
        }
        let node = match module.placement {
            Placement::Local => node,
            Placement::Node(node) => node % nodes,
            Placement::InTurn => {
                let block = module.page_size.map_or(1, |size| size.count_of(self.base).max(1));
                (pages.start / block % u64::from(nodes)) as u8
            }
        };
        Some(Home { node, strict: module.stays && pages.end - pages.start > 1 })
    }
}

impl<H: Host> Kernel<'_, H> {
    /// Returns this processor, assigned to the NUMA node `node`.
    pub fn on_node(mut self, node: u8) -> Self {
        self.node = node;
        if self.vm.nodes > 1 {
            self.wanted.home = Some(Home { node, strict: false });
        }
        self
    }
}

impl<H: Host> Kernel<'_, H> {
    /// Sets node and colour for the frames to be allocated next, which are for `page` of `region`.
    #[inline]
    pub(crate) fn want_for(&mut self, region: &Region, page: u64) {
        let (nodes, colors) = (self.vm.nodes, self.vm.colors);
        if nodes > 1 || colors > 1 {
            let Module { color_first, .. } = region.module;
            self.wanted = Wanted {
                home: self.vm.home(self.node, &region.module, &(page..page + 1)),
                color: (colors > 1)
                    .then(|| Color { value: (page % u64::from(colors)) as u32, of: colors }),
                rather: if color_first { Rather::Colored } else { Rather::Near },
            };
        }
    }

    /// A request for the frames of a large page of `region`.
    pub(crate) fn large_request(&self, region: &Region, pages: &Range<u64>) -> Request {
        let order = (pages.end - pages.start).ilog2() + self.memory.order(self.vm.base);
        let node = self.vm.home(self.node, &region.module, pages);
        Request { node, ..Request::new(order, State::Movable) }
    }

    /// Moves the page at `addr` to `node`, with its page size. Returns the number of base pages moved
    /// (0 if the page is there already or nothing is loaded), or the reason why the page cannot
    /// move.
    pub fn move_to_node(
        &mut self,
        space: HatSpace,
        addr: VirtAddr,
        node: u8,
    ) -> Result<Result<u64, Why>, Error> {
        self.site = Site::Page;
        self.within(space, |kernel, at| {
            kernel.pages_move(|kernel| kernel.move_page(at, addr, node))
        })
    }

    fn move_page(
        &mut self,
        at: &mut Within<'_>,
        addr: VirtAddr,
        node: u8,
    ) -> Result<Result<u64, Why>, Error> {
        let Some(held) = self.hat.query(at.space, addr).map(|held| held.translation) else {
            return Ok(Ok(0));
        };
        let (size, base) = (held.page.size(), self.vm.base);
        let first = self.memory.frame_at(held.frame);
        let start = self.vm.page_of(held.page.start());
        let pages = start..start + size.count_of(base);
        let Some(region) = at.known.regions.at(start).cloned() else { return Ok(Ok(0)) };
        if region.backing.is_given() {
            return Ok(Err(Why::Wired));
        }
        if self.pfdat(first).node() == node {
            return Ok(Ok(0));
        }
        let from: Vec<FrameId> = self.frames_of(first, &pages).collect();
        if !from.iter().all(|frame| self.may_move(*frame)) {
            return Ok(Err(Why::Wired));
        }
        let count = from.len() as u64;
        if self.free_pages() < count + self.vm.marks.min() {
            return Ok(Err(Why::NoFrame));
        }
        let home = Some(Home { node, strict: true });
        let order = self.memory.order(size);
        let request = Request { node: home, ..Request::new(order, State::Movable) };
        let Ok(to) = self.frames(|memory| memory.allocate(&request)) else {
            return Ok(Err(Why::NoFrame));
        };
        self.work.frames_taken += 1 << order;
        if size > base {
            // A large page that is still loaded would be split first, as if only a part of the page
            // moved.
            self.unload(at, &pages)?;
        }
        let moves: Vec<_> = from.into_iter().zip(self.frames_of(to, &pages)).collect();
        self.migrate(&moves);
        if size > base
            && !self.has_smaller_pair(at.space, &pages)
            && let Ok(Presence::Whole(frame, writable)) =
                self.presence(at.known, &region, &pages, false)
        {
            let mut how = How::Minor;
            match self.load_large(at, &region, &pages, frame, writable, &mut how) {
                // If a table has no room for the page, a minor fault restores it.
                Ok(_) | Err(Stop::Full) => {}
                Err(Stop::Refused(error)) => return Err(error),
            }
        }
        Ok(Ok(count))
    }
}
