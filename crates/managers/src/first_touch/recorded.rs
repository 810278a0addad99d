//! `recorded`: pages have the physical addresses that the trace gives.
//!
//! ```text
//!   rows     va, pa    va, pa    va, pa'     a row says where its page is when it is accessed
//!               |                   |
//!               v                   v
//!   known    page -> frame       another frame: the page is unmapped before that access, and
//!               |                the fault that follows maps it to the new frame
//!   fault --> the known frame, taken from memory by its number
//! ```
//!
//! A trace can also contain events that describe translations ([`trace::Event::Translation`]). Then
//! pages have the sizes and the frames that these events give, unless rows give other frames
//! (module `translated`). If an event gives no frame, any free frame is used.
//!
//! Everything else is as in [`FirstTouch`]: a page is unmapped with its region. If `os.page_size`
//! is larger than the base page, a page gets this size if its region allows it and if its virtual
//! and physical address agree in all bits below this size. A row that contradicts a large page
//! splits it.
//!
//! A frame may be mapped by several pages, of spaces that share the frame. Traces do not contain
//! page tables. Page tables are therefore in the last sixteenth of memory, which is reserved for
//! them ([`physmem::Apart`]). The second page of an access that crosses a page boundary also gets a
//! frame in this last sixteenth, until a row of its own gives its physical address. These second
//! pages take at most half of the last sixteenth. If there are more of them, they share the frames
//! in turn, so that no run ends only because an access crosses into a page without a row.

use std::{collections::BTreeSet, ops::Range};

use addr::{Page, PageSize, PhysAddr, VirtAddr, VirtRange};
use description::{Description, Refusal};
use os::{self, Platform, Read, System, Who};
use ram::{Failure, Ram};
use rustc_hash::{FxHashMap, FxHashSet};
use trace::{Batch, Event};

use super::FirstTouch;
use super::translated::Translated;

/// The number of pages whose frames are looked up without hashing.
const KNOWN: usize = 1024;

/// The placement of pages by the trace.
#[derive(Debug)]
pub(crate) struct Recorded {
    base: PageSize,
    /// Whether a page may already be mapped as a part of a larger page when the trace has its first
    /// row.
    has_large: bool,
    /// The frame of each page, by space and page number.
    told: FxHashMap<(u32, u64), u64>,
    /// A direct-mapped cache of the frames by page: space, page number, frame.
    known: Box<[(u32, u64, u64); KNOWN]>,
    /// The number of pages in each mapped frame.
    users: FxHashMap<u64, u32>,
    /// The frames given to pages without a row. The next fields have the frame used last, and the
    /// largest number of such frames.
    untold: BTreeSet<u64>,
    last_untold: u64,
    untold_max: usize,
    /// The pages that events of the trace describe; the next field has the page sizes that the page
    /// table supports.
    pub(super) translated: Translated,
    pub(super) sizes: Vec<PageSize>,
    /// The large pages, by space, for which there was no frame.
    refused: FxHashSet<(u32, Page)>,
    /// The number of base frames.
    frames: u64,
}

impl Recorded {
    /// The manager `recorded`, as a machine file describes it. The error has the key that is wrong.
    pub(crate) fn build(description: &Description, ram: &Ram) -> Result<Box<dyn System>, Refusal> {
        if description.page_table.is_none() {
            let what = "a machine without a page table has no frames that could be those of a \
                        trace: choose \"first-touch\", or give it a page_table";
            return Err(Refusal::new("os.manager", what.to_owned()));
        }
        if description.memory.aged.is_some() {
            let what = "the manager `recorded` uses the frames of the trace, all of which must be \
                        free at the start: leave memory.aged out";
            return Err(Refusal::new("memory.aged", what.to_owned()));
        }
        let mut system = FirstTouch::new(&description.os, ram.page_sizes())
            .map_err(|what| Refusal::new("os.page_size", what))?;
        system.recorded = Some(Recorded {
            base: system.base,
            has_large: system.large.is_some(),
            told: FxHashMap::default(),
            known: Box::new([(u32::MAX, 0, 0); KNOWN]),
            users: FxHashMap::default(),
            untold: BTreeSet::new(),
            last_untold: 0,
            untold_max: (ram.frame_bytes().0 / 32 / system.base.bytes()).max(1) as usize,
            translated: Translated::default(),
            refused: FxHashSet::default(),
            sizes: ram.page_sizes().iter().copied().filter(|&size| size >= system.base).collect(),
            frames: ram.frame_bytes().0 / system.base.bytes(),
        });
        Ok(Box::new(system))
    }

    /// Records that the page of `addr` is in the frame of `paddr` from now on.
    fn tell(&mut self, number: u32, addr: VirtAddr, paddr: PhysAddr) {
        let page = addr.page(self.base).number();
        self.told.insert((number, page), paddr.get() >> self.base.shift());
    }

    /// The frame of `page` in the space `number`, if the trace has given a frame for it, and if the
    /// frame is aligned for a page of this size.
    pub(super) fn frame_of(
        &mut self,
        number: u32,
        page: Page,
        touched: VirtAddr,
    ) -> Option<PhysAddr> {
        let Some(told) = self.told.get(&(number, touched.page(self.base).number())) else {
            let (_, frame) = self.translated.at(number, page.start(), &self.sizes)?;
            return frame.filter(|frame| frame.get() & page.size().mask() == 0);
        };
        let touched = touched.page(self.base).start().get();
        let frame = (told << self.base.shift()).checked_sub(touched - page.start().get())?;
        (frame & page.size().mask() == 0).then(|| PhysAddr::new(frame))
    }

    /// The page at `addr`, if an event of the trace gives its size.
    pub(super) fn page_at(&mut self, number: u32, addr: VirtAddr) -> Option<Page> {
        let (size, _) = self.translated.at(number, addr, &self.sizes)?;
        let page = addr.page(size);
        let is_refused = self.refused.contains(&(number, page));
        Some(if is_refused { addr.page(self.base) } else { page })
    }

    /// Records that there is no frame for a page whose size the trace gives. Base pages are mapped
    /// in its place.
    pub(super) fn refuse(&mut self, number: u32, page: Page) {
        self.refused.insert((number, page));
    }

    /// Allocates any free frame for a page if the trace gives the size of the page but not its
    /// frame.
    pub(super) fn take_any(&mut self, size: PageSize, ram: &mut Ram) -> Result<PhysAddr, Failure> {
        let count = self.frames >> (size.shift() - self.base.shift());
        for _ in 0..count {
            let frame = PhysAddr::new(self.translated.candidate(size, count) << size.shift());
            if ram.take(frame, size) {
                self.parts(frame, size).for_each(|part| *self.users.entry(part).or_insert(0) += 1);
                return Ok(frame);
            }
        }
        Err(Failure::OutOfFrames)
    }

    /// Adds a user of the frame of a page. The first user allocates the frame.
    pub(super) fn take(
        &mut self,
        frame: PhysAddr,
        size: PageSize,
        ram: &mut Ram,
    ) -> Result<(), Failure> {
        let parts = self.parts(frame, size);
        let is_used = |part: u64| self.users.contains_key(&part) && !self.untold.contains(&part);
        // A large page cannot share frames; if its frames are in use, it is mapped as base pages.
        let shared = size == self.base && is_used(parts.start);
        if !shared && !ram.take(frame, size) {
            if size > self.base {
                return Err(Failure::OutOfFrames);
            }
            return Err(Failure::Table(self.missing(frame, ram)));
        }
        parts.for_each(|part| *self.users.entry(part).or_insert(0) += 1);
        Ok(())
    }

    /// Allocates a frame for `page`, for which there was no row yet.
    pub(super) fn take_untold(&mut self, page: Page, ram: &mut Ram) -> Result<PhysAddr, Failure> {
        let shift = self.base.shift();
        let is_full = self.untold.len() >= self.untold_max;
        let frame = match is_full.then(|| self.next_untold()).flatten() {
            Some(frame) => frame,
            // Page tables may have taken the rest of this memory.
            None => match (ram.allocate(page), self.next_untold()) {
                (Ok(frame), _) => frame.get() >> shift,
                (Err(_), Some(frame)) => frame,
                (Err(failure), None) => return Err(failure),
            },
        };
        self.untold.insert(frame);
        self.last_untold = frame;
        *self.users.entry(frame).or_insert(0) += 1;
        Ok(PhysAddr::new(frame << shift))
    }

    /// The frame after the one that was last used for a page without a row.
    fn next_untold(&self) -> Option<u64> {
        let after = self.untold.range(self.last_untold + 1..).next();
        after.or_else(|| self.untold.first()).copied()
    }

    /// Removes a user of a frame. The last user frees the frame.
    pub(super) fn release(&mut self, frame: PhysAddr, size: PageSize, ram: &mut Ram) {
        for part in self.parts(frame, size) {
            let users = self.users.get_mut(&part);
            match users {
                Some(users) if *users > 1 => *users -= 1,
                Some(_) | None => {
                    self.users.remove(&part);
                    self.untold.remove(&part);
                    ram.free(PhysAddr::new(part << self.base.shift()), self.base);
                }
            }
        }
    }

    fn parts(&self, frame: PhysAddr, size: PageSize) -> Range<u64> {
        let first = frame.get() >> self.base.shift();
        first..first + (size.bytes() >> self.base.shift())
    }

    fn missing(&self, frame: PhysAddr, ram: &Ram) -> String {
        let (all, _) = ram.frame_bytes();
        // The last sixteenth of memory is reserved for page tables.
        let least = (frame.get() + self.base.bytes()).div_ceil(15) * 16;
        let gib = least.div_ceil(1 << 30);
        format!(
            "the trace has a page in the frame at {frame}, which is beyond the frames for pages \
             in a memory of {} MiB (the last sixteenth is for page tables): set \
             memory.size={gib}G",
            all >> 20
        )
    }
}

impl os::Recorded for Recorded {
    fn foresee(&mut self, source: Box<dyn trace::Source + Send>) {
        self.translated.foresee(source);
    }

    fn read(
        &mut self,
        number: u32,
        batch: &Batch,
        rows: Range<usize>,
    ) -> Result<Read, (usize, String)> {
        let (shift, mask) = (self.base.shift(), self.base.mask());
        for row in rows.clone() {
            let (addr, paddr) = (batch.addr[row], batch.paddr.get(row).copied().unwrap_or(0));
            if paddr == 0 && self.translated.is_told {
                continue;
            }
            if paddr == 0 {
                let what = "the manager `recorded` needs the physical address of each access, but \
                            this access has none, and no event before it gives translations: \
                            choose another os.manager, or a trace with physical addresses or with \
                            \
                            the pages of its program (record --pages)";
                return Err((row, what.to_owned()));
            }
            let (page, frame) = (addr >> shift, paddr >> shift);
            let known = &mut self.known[(page ^ u64::from(number)) as usize % KNOWN];
            if *known == (number, page, frame) {
                continue;
            }
            if (addr ^ paddr) & mask != 0 {
                let what = format!(
                    "the access's address {addr:#x} and its physical address {paddr:#x} must have \
                     equal offsets in a page of {}: correct the trace",
                    self.base
                );
                return Err((row, what));
            }
            // The rows before this one have not run yet. They must run with the frames that are
            // known up to this row.
            let before = self.told.get(&(number, page));
            // A page without an earlier row may already be mapped as a part of a larger page, or
            // because an access crossed into it.
            let may_be_mapped = self.has_large || !self.untold.is_empty();
            if before.map_or(may_be_mapped, |before| *before != frame) {
                return Ok(Read { until: row, moves: true });
            }
            *known = (number, page, frame);
            self.told.insert((number, page), frame);
        }
        Ok(Read { until: rows.end, moves: false })
    }
}

impl FirstTouch {
    /// Records that the page at `addr` is in the frame of `paddr` from now on, and unmaps it if it
    /// is mapped to another frame.
    pub(super) fn moved(
        &mut self,
        who: Who,
        (addr, paddr): (VirtAddr, PhysAddr),
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let Some(recorded) = &mut self.recorded else { return Ok(()) };
        recorded.tell(who.number, addr, paddr);
        let Some(known) = platform.ram().mapping(who.space, addr) else { return Ok(()) };
        let page = known.translation.page;
        let told = self.recorded.as_mut().and_then(|told| told.frame_of(who.number, page, addr));
        if told == Some(known.translation.frame) {
            return Ok(());
        }
        let page = VirtRange::of_page(addr.page(self.base));
        self.unmap(who.space, (page.start().get(), page.bytes()), platform)
    }
}

/// Translations that events of the trace give.
impl FirstTouch {
    /// Handles an event that describes translations: mapped pages that contradict the event are
    /// replaced.
    pub(super) fn translated(
        &mut self,
        who: Who,
        event: &Event,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let Some(recorded) = &mut self.recorded else { return Ok(()) };
        if let Event::Snapshot { .. } = event {
            recorded.translated.passes_snapshot(who.number);
        }
        let Event::Translation(found) = event else { return Ok(()) };
        recorded.translated.tell(who.number, found);
        let Some(last) = found.bytes().and_then(|bytes| found.addr.checked_add(bytes - 1)) else {
            return Ok(());
        };
        let mut now: Option<VirtRange> = None;
        for page in recorded.translated.mapped(who.space, found.addr, last) {
            // A page that replaced an earlier page may already cover this one.
            if now.is_none_or(|now| now.last() < page.start()) {
                now = self.retranslate(who, page, platform)?.map(VirtRange::of_page);
            }
        }
        Ok(())
    }

    /// Replaces the mapped `page` if the last event gives another size or frame. Returns the page
    /// that is mapped there afterwards.
    fn retranslate(
        &mut self,
        who: Who,
        page: Page,
        platform: &mut dyn Platform,
    ) -> Result<Option<Page>, Failure> {
        let Some(recorded) = &mut self.recorded else { return Ok(None) };
        let told = recorded.translated.told(who.number, page.start(), &recorded.sizes);
        let Some((size, frame)) = told else { return Ok(None) };
        let Some(known) = platform.ram().mapping(who.space, page.start()) else { return Ok(None) };
        let known = known.translation;
        let is_at = frame.is_none_or(|frame| frame == known.frame);
        if size == known.page.size() && is_at {
            return Ok(Some(known.page));
        }
        let wanted = page.start().page(size);
        let range = if wanted.size() > page.size() { wanted } else { page };
        let range = VirtRange::of_page(range);
        self.unmap(who.space, (range.start().get(), range.bytes()), platform)?;
        if wanted.size() < page.size() {
            // It is not known which parts of the page are mapped in the recorded system. They are
            // mapped when they are touched.
            return Ok(None);
        }
        match self.map(who, (wanted, wanted.start()), known.rights, platform) {
            Ok(()) => Ok(Some(wanted)),
            Err(Failure::OutOfFrames) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}
