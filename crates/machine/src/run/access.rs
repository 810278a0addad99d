//! The common case: accesses that hit, and what else can become of one.

use std::ops::Range;

use addr::{Kind, PhysAddr, VirtAddr, VirtRange};
use mmu::{Hit, Stride, Strides};
use trace::{Batch, Meta};

use super::Run;
use crate::{
    Error,
    count::census::{Census, SHARED},
    hardware::behind::Behind,
    hardware::tlbs::{FIRST_LEVEL_MAX, Hardware, NONE},
    os::Os,
};

/// One lookup: what is accessed, how, and by whom it is looked up first.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) addr: VirtAddr,
    pub(super) kind: Kind,
    pub(super) unit: usize,
    pub(super) access: u64,
}

impl Run {
    /// Runs accesses: hits by themselves, everything else one by one.
    pub(super) fn accesses<const CHECK: bool, const CACHES: bool>(
        &mut self,
        batch: &Batch,
        span: Range<usize>,
        back: &mut impl Behind,
    ) -> Result<(), Error> {
        let (addrs, metas) = (&batch.addr[span.clone()], &batch.meta[span.clone()]);
        let mut next = 0;
        while next < addrs.len() {
            if !CHECK {
                let (addrs, metas) = (&addrs[next..], &metas[next..]);
                let (ran, time) = if self.time_only {
                    self.hits::<CACHES, true>(addrs, metas, back)
                } else {
                    self.hits::<CACHES, false>(addrs, metas, back)
                };
                self.hardware.units.iter_mut().for_each(|unit| unit.tlb.set_now(time));
                next += ran;
            }
            if let (Some(&addr), Some(&meta)) = (addrs.get(next), metas.get(next)) {
                let access = self.position + (span.start + next) as u64;
                self.access::<CHECK, CACHES>(VirtAddr::new(addr), meta, access, back)?;
                next += 1;
            }
        }
        Ok(())
    }

    /// Runs accesses as long as each is found at once and lies in one page, and says how many
    /// were, and the time of the last. This is where a run spends its time: nothing here can
    /// fail, and what it borrows stays in registers.
    fn hits<const CACHES: bool, const TIME_ONLY: bool>(
        &mut self,
        addrs: &[u64],
        metas: &[Meta],
        back: &mut impl Behind,
    ) -> (usize, u64) {
        let Hardware { units, first, .. } = &mut self.hardware;
        let before = units.iter().map(|unit| unit.tlb.now()).max().unwrap_or(0);
        let mut strides: [Option<Stride<'_, TIME_ONLY>>; FIRST_LEVEL_MAX] = [const { None }; _];
        let first_level = units.iter_mut().take_while(|unit| unit.level == 1);
        for (stride, unit) in strides.iter_mut().zip(first_level) {
            *stride = unit.tlb.stride(self.asid, self.page_size);
        }
        let strides = Strides::new(|kind| *strides.get(*first.get(kind)?)?);
        // With room for all that two bits can say.
        let is_left_out: [bool; 4] = std::array::from_fn(|kind| first.get(kind) == Some(&NONE));
        let page_bits = self.page_bits;
        let (mut ran, mut left_out) = (0, 0);
        for (&addr, &meta) in addrs.iter().zip(metas) {
            let (addr, kind, bytes) = (VirtAddr::new(addr), meta.kind_index(), meta.size());
            if let Some(stride) = strides.of(kind) {
                let time = before + 1 + ran as u64;
                let found = stride.lookup(addr, bytes, kind, time, page_bits);
                let Some((phys, label)) = found else { break };
                if label == SHARED {
                    shared_hit(&mut self.os, &mut self.census, addr, meta.kind());
                }
                if CACHES {
                    back.data(phys, bytes, meta.kind());
                }
            } else if is_left_out[kind & 3] {
                left_out += 1;
            } else {
                break;
            }
            ran += 1;
        }
        let time = before + ran as u64;
        self.left_out += left_out;
        (ran, time)
    }

    /// One access, whatever becomes of it.
    fn access<const CHECK: bool, const CACHES: bool>(
        &mut self,
        addr: VirtAddr,
        meta: Meta,
        access: u64,
        back: &mut impl Behind,
    ) -> Result<(), Error> {
        let (kind, bytes) = (meta.kind(), meta.size());
        let unit = self.hardware.first[kind as usize];
        if unit == NONE {
            self.left_out += 1;
            return Ok(());
        }
        let place = Place { addr, kind, unit, access };
        let phys = self.translate::<CHECK>(place, back)?;
        if addr.offset_in(self.page_size) + u64::from(bytes) > self.page_size.bytes() {
            self.straddle::<CHECK, CACHES>(place, phys, bytes, back)?;
        } else if CACHES {
            back.data(phys, bytes, kind);
        }
        Ok(())
    }

    /// The physical address of one access that lies within a page.
    fn translate<const CHECK: bool>(
        &mut self,
        place: Place,
        back: &mut impl Behind,
    ) -> Result<PhysAddr, Error> {
        let found = self.hardware.units[place.unit].tlb.lookup(place.addr, self.asid, place.kind);
        match found {
            Some(hit) => {
                if hit.label == SHARED {
                    shared_hit(&mut self.os, &mut self.census, place.addr, place.kind);
                }
                if CHECK {
                    self.compare(place, &hit)?;
                }
                Ok(hit.phys)
            }
            None => self.miss(place, back),
        }
    }

    /// An access that does not end in the page where it starts: a lookup for each page.
    #[cold]
    fn straddle<const CHECK: bool, const CACHES: bool>(
        &mut self,
        place: Place,
        phys: PhysAddr,
        bytes: u32,
        back: &mut impl Behind,
    ) -> Result<(), Error> {
        self.page_crossings += 1;
        let Ok(range) = VirtRange::new(place.addr, u64::from(bytes.max(1))) else {
            let what = format!("{bytes} bytes at {} run past the end of the space", place.addr);
            return Err(Error::Access { access: place.access, what });
        };
        for page in range.pages(self.page_size) {
            // Both ranges hold the page's part of the access.
            let Some(part) = range.intersection(VirtRange::of_page(page)) else { continue };
            let phys = if part.start() == place.addr {
                phys
            } else {
                self.translate::<CHECK>(Place { addr: part.start(), ..place }, back)?
            };
            if CACHES {
                back.data(phys, part.bytes() as u32, place.kind);
            }
        }
        Ok(())
    }

    /// Stops at a translation that is not what the page table says now.
    #[cold]
    fn compare(&mut self, place: Place, hit: &Hit) -> Result<(), Error> {
        let table = self.os.query(place.addr).map(|translation| translation.apply(place.addr));
        if table == Some(hit.phys) {
            return Ok(());
        }
        let said = table.map_or_else(|| "nothing".to_owned(), |phys| phys.to_string());
        Err(Error::Check(format!(
            "access {}: tlb.{} translates {} to {}, the page table says {said}",
            place.access, self.hardware.units[place.unit].name, place.addr, hit.phys
        )))
    }
}

/// A hit on a page that several regions share is counted for its own region.
#[cold]
#[inline(never)]
fn shared_hit(os: &mut Os, census: &mut Census, addr: VirtAddr, kind: Kind) {
    let region = os.label_of(addr);
    census.region(region).hits[kind as usize] += 1;
}
