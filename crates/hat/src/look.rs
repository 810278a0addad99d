//! Read access to the layer's state, for the memory manager and for checks.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use addr::{PageSize, PhysAddr, VirtAddr, VirtRange};
use pagetable::{Intent, Mapping, Mounted, Space};

use crate::{
    frame::{Mapped, Noted},
    hat::{Hat, noted},
    locking::{Below, Held, Scheme, Site},
    pool::PoolCounts,
    space::{AddressSpace, HatSpace, MmuEntry, in_place},
};

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// The space in the form in which its page table identifies it: the value for a processor's
    /// root register.
    pub fn space(&self, space: HatSpace) -> Option<Space> {
        self.scheme.enter(Site::Look, |held| {
            held.space(space.0, AddressSpace::processor, |entry, _| Some(entry?.inner))
        })
    }

    /// The page that holds `addr`. Its usage bits are not changed.
    pub fn query(&self, space: HatSpace, addr: VirtAddr) -> Option<Mapping> {
        self.scheme.enter(Site::Look, |held| {
            let range = VirtRange::of_page(addr.page(self.sizes[0]));
            let query = |table: &T, entry: MmuEntry| table.query(entry.inner, addr);
            self.at_processor(held, space, range, query)?
        })
    }

    /// Calls `each` for every page that overlaps `range`, by ascending address.
    pub fn visit(&self, space: HatSpace, range: VirtRange, each: &mut dyn FnMut(Mapping)) {
        self.scheme.enter(Site::Look, |held| {
            let visit = |table: &T, entry: MmuEntry| table.visit(entry.inner, range, each);
            self.at_processor(held, space, range, visit)
        });
    }

    /// The number of mapped pages of each size, in all spaces, by ascending size. Each MMU descriptor counts
    /// its pages when they are loaded and unloaded, so that no page table is searched. Counting is
    /// an operation of its own, which waits for other operations.
    pub fn mapped(&self) -> impl Iterator<Item = (PageSize, u64)> {
        let pages = self.scheme.enter(Site::Look, |held| self.population(held));
        self.sizes.iter().copied().zip(pages)
    }

    fn population(&self, held: &mut S::Held<'_>) -> Vec<u64> {
        let mut all = vec![0; self.sizes.len()];
        for mmu in 0..held.numbers(|numbers| numbers.mmus.end()) {
            held.mmu(mmu, |mmu, _| {
                all.iter_mut().zip(mmu.population()).for_each(|(all, pages)| *all += pages as u64);
            });
        }
        all
    }

    /// The number of mapped pages of all sizes, in all spaces.
    pub fn mappings(&self) -> u64 {
        self.mapped().map(|(_, pages)| pages).sum()
    }

    /// Counts of the pool of memory for tables.
    pub fn pool(&self) -> PoolCounts {
        self.scheme.enter(Site::Look, |held| held.pool(|pool| pool.counts()))
    }

    /// Calls `each` for every page that maps one of these frames, in any space.
    pub fn each_mapping(
        &self,
        frame: PhysAddr,
        size: PageSize,
        each: &mut dyn FnMut(HatSpace, Mapping),
    ) {
        self.scheme.enter(Site::Look, |held| {
            self.each_at(held, (frame, size), |held, found| {
                let mapping = held.space(found.space, in_place(found.mmu), |entry, held| {
                    let entry = entry?;
                    held.mmu(entry.table, |mmu, _| {
                        mmu.table.as_ref()?.query(entry.inner, found.page.start())
                    })
                });
                if let Some(mapping) = mapping {
                    each(HatSpace(found.space), mapping);
                }
            });
        });
    }

    /// Compares the mapping lists with the page tables, in both directions, and with the counts. No
    /// other thread may use the layer during the call. The error describes the difference.
    pub fn check(&self) -> Result<(), &'static str> {
        self.scheme.enter(Site::Look, |held| {
            let (mut pages, mut notes): (u64, Vec<(u64, Noted)>) = (0, Vec::new());
            for space in 0..held.numbers(|numbers| numbers.spaces.end()) {
                held.space(space, AddressSpace::whole, |known, held| {
                    for (place, entry) in known.iter().flat_map(|known| known.all()) {
                        held.mmu(entry.table, |mmu, _| {
                            let Some(table) = &mmu.table else { return };
                            table.visit(entry.inner, VirtRange::ALL, &mut |mapping| {
                                pages += 1;
                                let number = self.number(mapping.translation.frame);
                                notes.push((number, noted(HatSpace(space), place, &mapping)));
                            });
                        });
                    }
                });
            }
            let (mut nodes, mut unloading) = (Vec::new(), false);
            held.each_frame(&mut |number, frame| {
                nodes.extend(frame.noted().map(|node| (number, node)));
                unloading |= frame.is_unloading();
            });
            if pages != nodes.len() as u64 {
                return Err("there are not as many mapping nodes as mapped pages");
            }
            let counted = self.population(held);
            if self.sizes.iter().zip(counted).any(|(&size, pages)| {
                let is_of = |(_, found): &&(u64, Noted)| found.page.page.size() == size;
                pages != nodes.iter().filter(is_of).count() as u64
            }) {
                return Err(
                    "the page tables count another number of pages of one size than there are mapping \
                     nodes of this size",
                );
            }
            if unloading {
                return Err("a frame is still being unloaded");
            }
            // A page has no note if its entry has no room for the note, or if its table does not
            // support notes.
            let names: BTreeMap<(u64, u32), Mapped> =
                nodes.iter().map(|&(number, node)| ((number, node.note), node.page)).collect();
            let mut noted = notes.iter().filter(|(_, noted)| noted.note != 0);
            if noted.any(|&(number, noted)| names.get(&(number, noted.note)) != Some(&noted.page)) {
                return Err("a page's note is not the name of its node");
            }
            let right = nodes.into_iter().all(|(number, Noted { page: found, .. })| {
                let mapping = held.space(found.space, in_place(found.mmu), |entry, held| {
                    let entry = entry?;
                    held.mmu(entry.table, |mmu, _| {
                        mmu.table.as_ref()?.query(entry.inner, found.page.start())
                    })
                });
                mapping.is_some_and(|mapping| {
                    mapping.translation.page == found.page
                        && self.number(mapping.translation.frame) == number
                })
            });
            if right {
                Ok(())
            } else {
                Err("a mapping node names a page that is mapped in another way, or not at all")
            }
        })
    }

    pub(crate) fn at_processor<R>(
        &self,
        held: &mut S::Held<'_>,
        space: HatSpace,
        range: VirtRange,
        f: impl FnOnce(&T, MmuEntry) -> R,
    ) -> Option<R> {
        held.space(space.0, AddressSpace::processor, |entry, held| {
            let entry = entry?;
            let of = (space, entry);
            self.part(held, of, range, Intent::Change, |part, _| Some(f(part.table()?, entry)))
        })
    }
}
