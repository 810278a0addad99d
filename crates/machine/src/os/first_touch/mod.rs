//! First touch: every page has one size, is mapped when it is first touched with the rights of its
//! region, and goes when its region goes.
//!
//! ```text
//!   fault(addr) ----> a frame from memory, a page in the table
//!   event(munmap) --> pages out of the table --> shoot --> their frames are free again
//! ```
//!
//! It is the smallest system that is right. Reservations, policies, replacement and sharing are
//! not here.

use addr::{Kind, PageSize, Rights, VirtAddr, VirtRange};
use pagetable::{Fault, Mapping, Space, Translation, Usage};
use trace::Event;

use super::{
    Answer, Ask, Failure, Platform, System, Who,
    events::{Request, request},
};

/// The system.
#[derive(Debug)]
pub(super) struct FirstTouch {
    page_size: PageSize,
}

impl FirstTouch {
    /// One that maps pages of `page_size`, which is to be one of `sizes`.
    pub(super) fn new(page_size: PageSize, sizes: &[PageSize]) -> Result<FirstTouch, String> {
        if !sizes.contains(&page_size) {
            let names: Vec<String> = sizes.iter().map(PageSize::to_string).collect();
            return Err(format!(
                "the page table holds pages of {}, not {page_size}",
                names.join(", ")
            ));
        }
        Ok(FirstTouch { page_size })
    }

    /// The whole pages within `bytes` from `start`: a page that a range covers in part stays.
    fn whole_pages(&self, start: u64, bytes: u64) -> Option<VirtRange> {
        let first = start.checked_add(self.page_size.mask())? & !self.page_size.mask();
        let end = start.checked_add(bytes)?;
        // The system rounds a length up to its own base page, which is at most our page size.
        let end = end.checked_add(PageSize::SIZE_4K.mask())? & !PageSize::SIZE_4K.mask();
        let end = end & !self.page_size.mask();
        VirtRange::new(VirtAddr::new(first), end.checked_sub(first)?).ok()
    }

    fn unmap(
        &self,
        space: Space,
        (start, bytes): (u64, u64),
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let Some(range) = self.whole_pages(start, bytes) else { return Ok(()) };
        let mut gone = Vec::new();
        let flush = platform.ram().unmap(space, range, &mut |mapping| gone.push(mapping))?;
        platform.shoot(flush);
        for Mapping { translation, .. } in gone {
            platform.ram().free(translation.frame, translation.page.size());
        }
        Ok(())
    }

    fn protect(
        &self,
        space: Space,
        (start, bytes): (u64, u64),
        rights: Rights,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let Some(range) = self.whole_pages(start, bytes) else { return Ok(()) };
        let flush = platform.ram().protect(space, range, expressible(rights))?;
        platform.shoot(flush);
        Ok(())
    }

    /// Pages that move keep their frames and their usage bits; what the new length leaves out goes.
    fn remap(
        &self,
        space: Space,
        (from, from_bytes): (u64, u64),
        (to, to_bytes): (u64, u64),
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let kept_bytes = from_bytes.min(to_bytes);
        if to_bytes < from_bytes {
            let tail = from.saturating_add(to_bytes);
            self.unmap(space, (tail, from_bytes - to_bytes), platform)?;
        }
        if from == to {
            return Ok(());
        }
        self.unmap(space, (to, to_bytes), platform)?;
        let distance = to.wrapping_sub(from);
        let Some(range) = self.whole_pages(from, kept_bytes) else { return Ok(()) };
        if distance & self.page_size.mask() != 0 {
            // Not by whole pages of this machine: they are touched anew where they went.
            return self.unmap(space, (from, kept_bytes), platform);
        }
        let mut moved = Vec::new();
        let gone = platform.ram().unmap(space, range, &mut |mapping| moved.push(mapping))?;
        let mut flushes = vec![gone];
        for Mapping { translation, usage } in moved {
            let addr = translation.page.start().wrapping_add(distance);
            let page = addr.page(translation.page.size());
            flushes.push(platform.ram().map(space, Translation { page, ..translation })?);
            if usage != Usage::default() {
                platform.ram().set_usage(space, addr, usage)?;
            }
        }
        flushes.into_iter().for_each(|flush| platform.shoot(flush));
        Ok(())
    }
}

impl System for FirstTouch {
    fn enter(&mut self, number: u32, platform: &mut dyn Platform) -> Result<Space, Failure> {
        platform.ram().space(number)
    }

    /// An access in a trace has happened, so one that the rights forbid is granted: the event
    /// that allowed it is not in the trace.
    fn fault(&mut self, ask: &Ask, platform: &mut dyn Platform) -> Result<Answer, Failure> {
        let Ask { who: Who { number, space }, addr, kind, fault } = *ask;
        let needed = match kind {
            Kind::Fetch => Rights::EXECUTE,
            Kind::Load => Rights::READ,
            Kind::Store => Rights::WRITE,
        };
        if fault == Fault::Unfit {
            return Err(Failure::Table(format!(
                "the address {addr} is none that this machine's page table can hold"
            )));
        }
        // A page without any rights is absent to hardware and known to the table.
        if let Some(Mapping { translation: known, .. }) = platform.ram().mapping(space, addr) {
            if known.rights.allows(kind) {
                return Err(Failure::Table(format!(
                    "the walk of {addr} faults ({fault}), but the page table has the page and \
                     allows the access: hardware remembers what a shootdown should have flushed"
                )));
            }
            let (range, rights) = (VirtRange::of_page(known.page), known.rights | needed);
            let flush = platform.ram().protect(space, range, expressible(rights))?;
            platform.shoot(flush);
            return Ok(Answer::Granted);
        }
        let regions = platform.layout().regions(number);
        let rights = regions.and_then(|regions| regions.rights_at(addr.get()));
        let rights = expressible(rights.unwrap_or(Rights::ALL) | needed);
        let page = addr.page(self.page_size);
        let frame = platform.ram().allocate(page)?;
        let translation = Translation { page, frame, rights, global: false };
        let mapped = platform.ram().map(space, translation);
        let flush = mapped.inspect_err(|_| platform.ram().free(frame, self.page_size))?;
        platform.shoot(flush);
        Ok(Answer::FirstTouch)
    }

    fn event(
        &mut self,
        who: Who,
        event: &Event,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let Who { number, space } = who;
        match request(event) {
            None => Ok(()),
            Some(Request::Unmap { start, bytes } | Request::Discard { start, bytes }) => {
                self.unmap(space, (start, bytes), platform)
            }
            Some(Request::Protect { start, bytes, rights }) => {
                self.protect(space, (start, bytes), rights, platform)
            }
            Some(Request::Move { from, from_bytes, to, to_bytes }) => {
                self.remap(space, (from, from_bytes), (to, to_bytes), platform)
            }
            Some(Request::Break { now }) => {
                let regions = platform.layout().regions(number);
                let before = regions.and_then(|regions| regions.program_break()).unwrap_or(now);
                match before.checked_sub(now) {
                    Some(gone) => self.unmap(space, (now, gone), platform),
                    None => Ok(()),
                }
            }
            Some(Request::Replace) => {
                let regions = platform.layout().regions(number);
                let mapped: Vec<(u64, u64)> =
                    regions.into_iter().flat_map(|regions| regions.mapped()).collect();
                mapped.into_iter().try_for_each(|range| self.unmap(space, range, platform))
            }
        }
    }
}

/// The least that hardware can express and that allows `rights`: whoever may write or execute a
/// page may read it.
fn expressible(rights: Rights) -> Rights {
    if Kind::ALL.into_iter().any(|kind| rights.allows(kind)) {
        rights | Rights::READ | Rights::USER
    } else {
        Rights::NONE
    }
}
