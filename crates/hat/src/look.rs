//! What the layer has: for the memory manager, and for checks.

use core::sync::atomic::Ordering;

use addr::{PageSize, PhysAddr, VirtAddr, VirtRange};
use pagetable::{Intent, Mapping, Mounted, Space};

use crate::{
    hat::{Hat, HatSpace},
    locking::{Below, Held, Scheme, Site},
    pool::PoolCounts,
    space::MmuEntry,
};

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// The space in its page table: what a processor's base register holds.
    pub fn space(&self, space: HatSpace) -> Option<Space> {
        self.scheme.enter(Site::Look, |held| {
            held.space(space.0, |known, _| Some(known?.processor()?.inner))
        })
    }

    /// The page that holds `addr`, without touching its bits.
    pub fn query(&self, space: HatSpace, addr: VirtAddr) -> Option<Mapping> {
        self.scheme.enter(Site::Look, |held| {
            let range = VirtRange::of_page(addr.page(self.sizes[0]));
            let query = |table: &T, entry: MmuEntry| table.query(entry.inner, addr);
            self.at_processor(held, space, range, query)?
        })
    }

    /// Gives `each` every page that lies in `range`, whole or in part, by ascending address.
    pub fn visit(&self, space: HatSpace, range: VirtRange, each: &mut dyn FnMut(Mapping)) {
        self.scheme.enter(Site::Look, |held| {
            let visit = |table: &T, entry: MmuEntry| table.visit(entry.inner, range, each);
            self.at_processor(held, space, range, visit)
        });
    }

    /// Mapped pages of each size, in all spaces, by ascending size. Kept while pages are loaded and
    /// unloaded, so that it costs nothing to ask.
    pub fn mapped(&self) -> impl Iterator<Item = (PageSize, u64)> {
        let pages = self.population.iter().map(|pages| pages.load(Ordering::Relaxed) as u64);
        self.sizes.iter().copied().zip(pages)
    }

    /// Mapped pages of all sizes, in all spaces.
    pub fn mappings(&self) -> u64 {
        self.mapped().map(|(_, pages)| pages).sum()
    }

    /// What the pool of table memory has done.
    pub fn pool(&self) -> PoolCounts {
        self.scheme.enter(Site::Look, |held| held.pool(|pool| pool.counts()))
    }

    /// Gives `each` every page that maps one of these frames, in any space.
    pub fn each_mapping(
        &self,
        frame: PhysAddr,
        size: PageSize,
        each: &mut dyn FnMut(HatSpace, Mapping),
    ) {
        self.scheme.enter(Site::Look, |held| {
            for found in self.mapped_at(held, &[(frame, size)]) {
                let mapping = held.space(found.space, |known, held| {
                    let entry = known?.at(found.mmu)?;
                    held.mmu(entry.table, |mmu, _| {
                        mmu.table.as_ref()?.query(entry.inner, found.page.start())
                    })
                });
                if let Some(mapping) = mapping {
                    each(HatSpace(found.space), mapping);
                }
            }
        });
    }

    /// Compares the mapping lists with the page tables, both ways, and with what was counted, while
    /// nobody else is at work. An error says what differs.
    pub fn check(&self) -> Result<(), &'static str> {
        self.scheme.enter(Site::Look, |held| {
            let mut pages: u64 = 0;
            for space in 0..held.numbers(|numbers| numbers.spaces.end()) {
                held.space(space, |known, held| {
                    for (_, entry) in known.iter().flat_map(|known| known.all()) {
                        held.mmu(entry.table, |mmu, _| {
                            let Some(table) = &mmu.table else { return };
                            table.visit(entry.inner, VirtRange::ALL, &mut |_| pages += 1);
                        });
                    }
                });
            }
            let (mut nodes, mut unloading) = (alloc::vec::Vec::new(), false);
            held.each_frame(&mut |number, frame| {
                nodes.extend(frame.pages().map(|page| (number, page)));
                unloading |= frame.is_unloading();
            });
            if pages != nodes.len() as u64 {
                return Err("there are not as many mapping nodes as mapped pages");
            }
            if self.mapped().any(|(size, pages)| {
                pages != nodes.iter().filter(|(_, found)| found.page.size() == size).count() as u64
            }) {
                return Err("there are not as many mapping nodes of a size as were counted");
            }
            if unloading {
                return Err("a frame is still being unloaded");
            }
            let right = nodes.into_iter().all(|(number, found)| {
                let mapping = held.space(found.space, |known, held| {
                    let entry = known?.at(found.mmu)?;
                    held.mmu(entry.table, |mmu, _| {
                        mmu.table.as_ref()?.query(entry.inner, found.page.start())
                    })
                });
                mapping.is_some_and(|mapping| {
                    mapping.translation.page == found.page
                        && self.number(mapping.translation.frame) == number
                })
            });
            if right { Ok(()) } else { Err("a mapping node names a page that is not mapped so") }
        })
    }

    pub(crate) fn at_processor<R>(
        &self,
        held: &mut S::Held<'_>,
        space: HatSpace,
        range: VirtRange,
        f: impl FnOnce(&T, MmuEntry) -> R,
    ) -> Option<R> {
        held.space(space.0, |known, held| {
            let entry = known?.processor()?;
            let of = (space, entry);
            self.part(held, of, range, Intent::Change, |part, _| Some(f(part.table()?, entry)))
        })
    }
}
