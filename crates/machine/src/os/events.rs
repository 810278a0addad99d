//! What the trace's system calls do to the pages: those that go, move, or change their rights.
//!
//! ```text
//!   munmap --> pages out of the table --> Shootdown { flush, frames }
//!                                            |  the TLBs forget what it names
//!                                            v
//!                                         complete: the frames are free again
//! ```

use addr::{Frames, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Flush, Mapping, Translation, Usage};
use trace::Event;

use super::{Failure, Os, expressible};

/// `MADV_DONTNEED`: the pages go, their next touch finds zeros.
const MADV_DONTNEED: u32 = 4;

/// Pages that went, or tables that moved: flush what is named, then hand it back with
/// [`Os::complete`].
#[must_use = "hardware still holds what is named, and its frames are not free"]
pub(crate) struct Shootdown {
    /// What to flush.
    pub(crate) flush: Flush,
    pub(super) frames: Vec<(PhysAddr, PageSize)>,
}

impl Os {
    /// Does what `event` asks; gives the shootdowns that follow from it.
    pub(crate) fn event(&mut self, event: &Event) -> Result<Vec<Shootdown>, Failure> {
        let mut shootdowns = Vec::new();
        match *event {
            Event::Run { space, .. } => self.switch(space)?,
            Event::Mmap { bytes, result, .. } if result >= 0 => {
                shootdowns.extend(self.unmap(result as u64, bytes)?);
            }
            Event::Munmap { addr, bytes, result: 0 }
            | Event::Madvise { addr, bytes, advice: MADV_DONTNEED, result: 0 } => {
                shootdowns.extend(self.unmap(addr, bytes)?);
            }
            Event::Mprotect { addr, bytes, prot, result: 0 } => {
                shootdowns.extend(self.protect(addr, bytes, prot)?);
            }
            Event::Mremap { addr, old_bytes, new_bytes, result, .. } if result >= 0 => {
                shootdowns.extend(self.remap(addr, old_bytes, result as u64, new_bytes)?);
            }
            Event::Brk { result, .. } if result >= 0 => {
                let now = result as u64;
                let before = std::mem::replace(&mut self.address_space_mut().program_break, now);
                if now < before {
                    shootdowns.extend(self.unmap(now, before - now)?);
                }
            }
            // The process goes on in an empty space.
            Event::Execve { result: 0, .. } => {
                let mapped: Vec<(u64, u64)> = self.address_space_mut().regions.mapped().collect();
                for (start, bytes) in mapped {
                    shootdowns.extend(self.unmap(start, bytes)?);
                }
                self.address_space_mut().program_break = 0;
            }
            _ => {}
        }
        self.address_space_mut().regions.apply(event);
        Ok(shootdowns)
    }

    /// Frees what a shootdown named, once the TLBs have forgotten it.
    pub(crate) fn complete(&mut self, shootdown: Shootdown) {
        shootdown.flush.done(&mut self.frames);
        if self.uses_frames {
            for (frame, size) in shootdown.frames {
                self.frames.free(frame, size);
            }
        }
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

    fn unmap(&mut self, start: u64, bytes: u64) -> Result<Option<Shootdown>, Failure> {
        let Some(range) = self.whole_pages(start, bytes) else { return Ok(None) };
        let space = self.here;
        let mut frames = Vec::new();
        let flush = self.table.unmap(space, range, &mut |mapping| {
            frames.push((mapping.translation.frame, mapping.translation.page.size()));
        })?;
        for (_, size) in &frames {
            *self.mapped.entry(*size).or_insert(0) -= 1;
        }
        Ok(Some(Shootdown { flush, frames }))
    }

    fn protect(&mut self, start: u64, bytes: u64, prot: u32) -> Result<Option<Shootdown>, Failure> {
        let Some(range) = self.whole_pages(start, bytes) else { return Ok(None) };
        let rights = expressible(Rights::from_bits((prot & 7) as u8));
        let flush = self.table.protect(self.here, range, rights, &mut |_| {})?;
        Ok(Some(Shootdown { flush, frames: Vec::new() }))
    }

    /// Pages that move keep their frames and their usage bits; what the new length leaves out goes.
    fn remap(
        &mut self,
        old: u64,
        old_bytes: u64,
        new: u64,
        new_bytes: u64,
    ) -> Result<Vec<Shootdown>, Failure> {
        let kept_bytes = old_bytes.min(new_bytes);
        let mut shootdowns = Vec::new();
        if new_bytes < old_bytes {
            let tail = old.saturating_add(new_bytes);
            shootdowns.extend(self.unmap(tail, old_bytes - new_bytes)?);
        }
        if old == new {
            return Ok(shootdowns);
        }
        shootdowns.extend(self.unmap(new, new_bytes)?);
        let distance = new.wrapping_sub(old);
        let Some(range) = self.whole_pages(old, kept_bytes) else { return Ok(shootdowns) };
        if distance & self.page_size.mask() != 0 {
            // Not by whole pages of this machine: they are touched anew where they went.
            shootdowns.extend(self.unmap(old, kept_bytes)?);
            return Ok(shootdowns);
        }
        let space = self.here;
        let mut moved = Vec::new();
        let flush = self.table.unmap(space, range, &mut |mapping| moved.push(mapping))?;
        shootdowns.push(Shootdown { flush, frames: Vec::new() });
        for Mapping { translation, usage } in moved {
            let addr = translation.page.start().wrapping_add(distance);
            let page = addr.page(translation.page.size());
            let there = Translation { page, ..translation };
            let flush = self.table.map(space, there, 1, &mut self.frames)?;
            shootdowns.push(Shootdown { flush, frames: Vec::new() });
            if usage != Usage::default() {
                self.table.set_usage(space, addr, usage)?;
            }
        }
        Ok(shootdowns)
    }
}
