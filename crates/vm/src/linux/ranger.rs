//! A daemon that moves the pages of a region to adjacent frames (Yan and others 2019, "Translation
//! Ranger").
//!
//! ```text
//!   region   | 0 | 1 | 2 | 3 | 4 |          anchor: page 0 belongs in frame 8
//!   frames   ... 8   9   10  11  12 ...
//!   page 1 in 9                              is where it belongs
//!   page 2 in 40, 10 is free                 moves there
//!   page 3 in 41, 11 is another's            both change places
//!   page 4 in 42, 12 cannot be moved         a new anchor from here on
//! ```
//!
//! An *anchor* is a page with the frame that was chosen for it; it determines the frames of the
//! following pages. The page of an anchor and its frame have the same offset from a multiple of 2M,
//! so that a complete block of 2M can become one large page without being moved again. A large page
//! is moved as a whole if its target frames are free, and is never exchanged. A page that spaces
//! share after a fork is moved only for the first of these spaces. The spaces have different
//! anchors, so otherwise every pass would move the page once per space.

use alloc::vec::Vec;
use core::ops::Range;

use addr::PhysAddr;
use hat::{
    HatSpace,
    locking::{Locks, Mutex, Site},
};
use physmem::{FrameId, Request, State};

use crate::{
    host::Host,
    kernel::Kernel,
    large::Presence,
    object::PageLocation,
    region::{Backing, Region},
    thp::{Ranged, Ranger},
    vm::{Vm, Within},
    work::How,
};

impl<L: Locks> Vm<L> {
    /// Counts of what this daemon has done.
    pub fn ranged(&self) -> Ranged {
        self.pages.with(Site::Look, |lists| lists.ranged)
    }
}

/// The result of moving a page to its frame in the region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moved {
    /// The page is in its target frame now.
    Yes,
    /// The target frame cannot be emptied.
    Never,
    /// No frame is free to make the move.
    NoFrame,
}

impl<H: Host> Kernel<'_, H> {
    /// One pass over all regions.
    pub fn range_over(&mut self) {
        self.site = Site::Page;
        let Some(ranger) = self.vm.thp.and_then(|thp| thp.ranger) else { return };
        self.lists(|lists, _| lists.ranged.passes += 1);
        let mut next = self.frames(|memory| memory.table().frames().start);
        let mut left = ranger.moves;
        let spaces: Vec<u32> = self.vm.spaces.all().map(|(number, _)| number).collect();
        for number in spaces {
            // A space that has ended is skipped.
            let _ = self.within(HatSpace(number), |kernel, at| {
                kernel.pages_move(|kernel| kernel.range_space(at, &ranger, &mut next, &mut left));
                Ok(())
            });
        }
    }

    fn range_space(
        &mut self,
        at: &mut Within<'_>,
        ranger: &Ranger,
        next: &mut u32,
        left: &mut u64,
    ) {
        let fits = |region: &&Region| {
            region.backing == Backing::Anonymous
                && region.pages.end - region.pages.start >= ranger.pages_min
        };
        let regions: Vec<Region> = at.known.regions.all().filter(fits).cloned().collect();
        let begin = *next;
        for region in regions {
            if *left == 0 {
                return;
            }
            self.range_region(at, &region, (begin, next), left);
        }
    }

    /// Moves the pages of a region to adjacent frames from `next` on. Frames before `begin` hold
    /// the pages of the spaces processed earlier.
    fn range_region(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        (begin, next): (u32, &mut u32),
        left: &mut u64,
    ) {
        let (block, order) = (1u64 << self.vm.pmd_order(), self.vm.pmd_order());
        let end = self.frames(|memory| memory.table().frames().end);
        let mut anchor: Option<(u64, u32)> = None;
        let mut page = region.pages.start;
        let mut place = *next;
        while page < region.pages.end && *left > 0 {
            let Some((anon_page, _)) = at.known.anons.within(page..region.pages.end).next() else {
                break;
            };
            page = anon_page;
            // A block that is already one large page is moved as a whole.
            let large = self.large_at(at, page, order);
            let (first, count) =
                large.as_ref().map_or((page, 1), |(pages, _)| (pages.start, block));
            if self.is_placed(at, page, begin) {
                page = first + count;
                continue;
            }
            let frame = match anchor {
                Some((from, frame)) => u64::from(frame) + (first - from),
                None => {
                    self.lists(|lists, _| lists.ranged.anchors += 1);
                    let mut frame = place;
                    while u64::from(frame) % block != first % block {
                        frame += 1;
                    }
                    anchor = Some((first, frame));
                    frame.into()
                }
            };
            if frame + count > end.into() {
                break;
            }
            let wanted = FrameId(frame as u32);
            place = wanted.0 + count as u32;
            let is_large = large.is_some();
            let moved = match large {
                Some((pages, from)) => self.move_large(at, region, &pages, (from, wanted), left),
                None => self.move_base(at, page, wanted, left),
            };
            match moved {
                Moved::Yes => {}
                Moved::Never => anchor = None,
                Moved::NoFrame => break,
            }
            page = first + count;
            if page.is_multiple_of(block) && moved == Moved::Yes {
                match is_large {
                    // The entry of the large page is read once.
                    true => self.work.table_reads += 1,
                    false => self.promote_in_place(at, region, page - block),
                }
            }
        }
        *next = place;
    }

    /// Whether a space processed earlier shares `page` and has moved it already, to a frame before `begin`.
    fn is_placed(&self, at: &Within<'_>, page: u64, begin: u32) -> bool {
        let anon = at.known.anons.get(page).map(|anon| self.anon(anon));
        let shared = anon.filter(|anon| anon.refs > 1).map(|anon| anon.place);
        matches!(shared, Some(PageLocation::Resident(frame)) if frame.0 < begin)
    }

    /// The base pages of the large page that hardware has at `page`, if there is one, and the large
    /// page's first frame.
    fn large_at(
        &mut self,
        at: &Within<'_>,
        page: u64,
        order: u32,
    ) -> Option<(Range<u64>, FrameId)> {
        if !at.known.has_large {
            return None;
        }
        self.work.table_reads += 1;
        let held = self.hat.query(at.space, self.vm.addr_of(page))?.translation;
        if held.page.size() == self.vm.base {
            return None;
        }
        let pages = Vm::<H::Locks>::aligned(page, order);
        // A page of 1G is moved in parts of 2M.
        let into = self.vm.addr_of(pages.start).get() - held.page.start().get();
        Some((pages, self.memory.frame_at(PhysAddr::new(held.frame.get() + into))))
    }

    fn move_base(&mut self, at: &Within<'_>, page: u64, to: FrameId, left: &mut u64) -> Moved {
        let place = at.known.anons.get(page).map(|anon| self.anon(anon).place);
        let Some(PageLocation::Resident(from)) = place else { return Moved::Yes };
        if from == to || !self.may_move(from) {
            return Moved::Yes;
        }
        let pfdat = self.pfdat(to);
        if pfdat.state() == State::Free {
            if !self.frames(|memory| memory.take(to, 0, State::Movable)) {
                return Moved::Never;
            }
            self.work.frames_taken += 1;
            self.split_folio(from);
            self.migrate(&[(from, to)]);
            self.lists(|lists, _| lists.ranged.moved += 1);
            *left -= 1;
            return Moved::Yes;
        }
        let is_large = self.lists(|lists, _| lists.folios.frames_around(to).is_some());
        if !self.may_move(to) || is_large {
            return Moved::Never;
        }
        let request = Request::new(0, State::Movable);
        let Ok(spare) = self.frames(|memory| memory.allocate(&request)) else {
            return Moved::NoFrame;
        };
        self.split_folio(from);
        for (from, to) in [(to, spare), (from, to), (spare, from)] {
            if to != spare && !self.frames(|memory| memory.take(to, 0, State::Movable)) {
                return Moved::Never;
            }
            self.work.frames_taken += 1;
            self.migrate(&[(from, to)]);
        }
        // Two pages that are exchanged are copied through a processor's registers, so each is
        // copied only once.
        self.work.copied -= 1;
        self.lists(|lists, _| lists.ranged.exchanged += 1);
        *left = left.saturating_sub(2);
        Moved::Yes
    }

    fn move_large(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
        (from, to): (FrameId, FrameId),
        left: &mut u64,
    ) -> Moved {
        let order = (pages.end - pages.start).ilog2();
        if from == to {
            return Moved::Yes;
        }
        if pages.end - pages.start > *left
            || !self.frames_of(from, pages).all(|frame| self.may_move(frame))
        {
            return Moved::Never;
        }
        if !self.frames(|memory| memory.take(to, order, State::Movable)) {
            return Moved::Never;
        }
        self.work.frames_taken += 1 << order;
        self.split_folio(from);
        let moves: Vec<(FrameId, FrameId)> =
            self.frames_of(from, pages).zip(self.frames_of(to, pages)).collect();
        self.migrate(&moves);
        *left -= moves.len() as u64;
        self.lists(|lists, _| lists.ranged.moved += moves.len() as u64);
        self.promote_in_place(at, region, pages.start);
        Moved::Yes
    }

    /// Makes a large page of the block that begins with page `first`, if its pages are in the right
    /// frames.
    fn promote_in_place(&mut self, at: &mut Within<'_>, region: &Region, first: u64) {
        let order = self.vm.pmd_order();
        let pages = first..first + (1 << order);
        let is_inside = region.pages.start <= pages.start && pages.end <= region.pages.end;
        let allowed = self.vm.thp.map_or(0, |thp| thp.orders(region, self.vm.base));
        if !is_inside
            || allowed & 1 << order == 0
            || at.known.anons.count(pages.clone()) < 1 << order
        {
            return;
        }
        let Ok(Presence::Whole(frame, writable)) = self.presence(at.known, region, &pages, false)
        else {
            return;
        };
        let is_wired = self.frames_of(frame, &pages).any(|frame| self.pfdat(frame).wired > 0);
        let held = self.mappings_in(at.space, &pages);
        if is_wired || held.first().is_some_and(|held| held.translation.page.size() > self.vm.base)
        {
            return;
        }
        if self.unload(at, &pages).is_ok()
            && self.load_large(at, region, &pages, frame, writable, &mut How::Minor).is_ok()
        {
            self.enter_folio(at, &pages);
            self.lists(|lists, _| lists.ranged.promoted += 1);
            self.work.upgrades += 1;
        }
    }
}
