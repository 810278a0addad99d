use alloc::boxed::Box;
use core::{
    array,
    cell::Ref,
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
};

use addr::{Page, PageSize, PhysAddr, Rights, VirtRange};
use pagetable::{Error, Flush, Mapping, Mounted};
use smallvec::SmallVec;

use crate::{
    frame::{Mapped, Noted},
    locking::{Below, Global, Held, Locks, Mutex, Part, Scheme, Single, Site},
    platform::{Platform, Step},
    pool::Pool,
    room::{self, NoMemory},
    space::{AddressSpace, HatSpace, Mmu, MmuEntry},
    table_frames::PoolFrames,
};

/// The HAT layer over page tables `T`, with the locking scheme `S`.
///
/// `T` is a type that implements [`Mounted`], or `dyn Mounted` if the table is chosen at run time.
/// Without `S`, the layer is for one thread: see [`Global`].
pub struct Hat<T: Mounted + ?Sized = dyn Mounted, S = Global<T, Single>> {
    pub(crate) scheme: S,
    pub(crate) sizes: Box<[PageSize]>,
    /// The rights that the page tables actually grant, for each set of requested rights as a
    /// number.
    granted: [Rights; 16],
    /// Creates a page table for each space, if spaces do not share one.
    make: Option<MakeTable<T>>,
    /// Counts loads, if tables may be stolen, to determine which space was loaded least recently.
    clock: AtomicUsize,
    is_limited: bool,
    /// Element 0 is 0 if contexts are not limited; otherwise it is one more than the threshold up
    /// to which the order of their use is not kept. Element 1 is the number of contexts in use.
    contexts: [AtomicUsize; 2],
    /// The number of times that a space was entered without taking the lock of the list of contexts,
    /// because the order of their use was not kept.
    unlisted: AtomicUsize,
    /// One bit per page size, by its index among the sizes, set once a page of that size has been
    /// loaded.
    loaded_sizes: AtomicUsize,
}

/// A function that creates an empty page table.
pub type MakeTable<T> = Box<dyn Fn() -> Box<T> + Send + Sync>;

/// How spaces get their page tables.
pub enum Tables<T: Mounted + ?Sized> {
    /// All spaces are in one table.
    One(Box<T>),
    /// Each space has its own table, created by this function.
    Each(MakeTable<T>),
}

/// Why translations were not loaded. Existing translations are unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// No memory is left for a page table. No data is lost: the pages can be loaded later.
    NoTableMemory,
    /// The page table has no entries for these pages, or other pages are already mapped at these
    /// addresses.
    Table(Error),
    /// The space does not exist.
    NoSpace(HatSpace),
    /// The heap has no memory left for the layer's own data.
    NoMemory,
}

impl From<Error> for LoadError {
    fn from(error: Error) -> LoadError {
        match error {
            Error::OutOfFrames(_) => LoadError::NoTableMemory,
            Error::NoMemory => LoadError::NoMemory,
            other => LoadError::Table(other),
        }
    }
}

impl From<NoMemory> for LoadError {
    fn from(_: NoMemory) -> LoadError {
        LoadError::NoMemory
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::NoTableMemory => f.write_str("no memory is left for a page table"),
            LoadError::NoMemory => {
                f.write_str("the heap has no memory left for the list of translations of a frame")
            }
            LoadError::Table(error) => error.fmt(f),
            LoadError::NoSpace(space) => write!(f, "there is no space {}", space.0),
        }
    }
}

impl core::error::Error for LoadError {}

/// Operations of a layer for one thread.
impl<T: Mounted + ?Sized> Hat<T> {
    /// The layer over a table that has no spaces yet.
    pub fn new(table: Box<T>) -> Hat<T> {
        Hat::with(Global::new(Pool::unlimited()), Tables::One(table))
    }

    /// The page table, for inspection.
    pub fn table(&self) -> Ref<'_, T> {
        Ref::map(self.scheme.state.look(), |state| state.table(0).expect(ONE))
    }
}

/// Operations of a layer under one lock, with the locks of any platform.
impl<T: Mounted + ?Sized, L: Locks> Hat<T, Global<T, L>> {
    /// The page table, for walks, which may set bits in entries. Mapping or unmapping pages here
    /// would make the mapping lists wrong.
    #[inline]
    pub fn table_mut(&mut self) -> &mut T {
        self.scheme.state.get_mut().table_mut(0).expect(ONE)
    }
}

const BEGINS: &str = "there is memory for a layer that begins";
const ONE: &str = "the one table is there as long as the layer";

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// A layer without spaces, with the locks of `scheme`.
    pub fn with(scheme: S, tables: Tables<T>) -> Hat<T, S> {
        let (sizes, granted, make, is_limited) = scheme.enter(Site::Create, |held| {
            let is_limited = held.pool(|pool| pool.is_limited());
            let known = |table: &T| -> (Box<[PageSize]>, _) {
                let granted = array::from_fn(|bits| table.granted(Rights::from_bits(bits as u8)));
                (table.page_sizes().into(), granted)
            };
            let ((sizes, granted), make) = match tables {
                Tables::One(table) => {
                    let known = known(&table);
                    let number = held.numbers(|numbers| numbers.mmus.take()).expect(BEGINS);
                    let began =
                        held.try_mmu(number, |mmu, _| mmu.begin(table, known.0.len()).is_ok());
                    assert_eq!(began, Some(true), "{BEGINS}");
                    (known, None)
                }
                Tables::Each(make) => (known(&make()), Some(make)),
            };
            (sizes, granted, make, is_limited)
        });
        Hat {
            scheme,
            sizes,
            granted,
            make,
            clock: AtomicUsize::new(0),
            is_limited,
            contexts: Default::default(),
            unlisted: AtomicUsize::new(0),
            loaded_sizes: AtomicUsize::new(0),
        }
    }

    /// The page sizes that the page tables support, ascending; the first is the base page.
    pub fn page_sizes(&self) -> &[PageSize] {
        &self.sizes
    }

    /// The smallest set of rights that contains `rights` and that the page tables can express: a
    /// page that is loaded with `rights` gets this set.
    pub fn granted(&self, rights: Rights) -> Rights {
        self.granted[usize::from(rights.bits())]
    }

    /// Creates an empty space.
    pub fn create(&self, platform: &mut impl Platform) -> Result<HatSpace, LoadError> {
        self.scheme.enter(Site::Create, |held| {
            platform.work(Step::Operation, 1);
            let space = held.numbers(|numbers| numbers.spaces.take())?;
            let made = loop {
                match self.processor_mmu(held, platform) {
                    Err(LoadError::NoTableMemory) if self.steal(held, space, platform) => {}
                    made => break made,
                }
            };
            match made {
                Ok(mmu) => {
                    let place = |known: Option<&mut Option<AddressSpace>>| {
                        known.map(|known| *known = Some(AddressSpace::of(mmu)))
                    };
                    if held.place_of_space(space, place).is_none() {
                        self.end_mmu_of(held, HatSpace(space), mmu, platform);
                        held.numbers(|numbers| numbers.spaces.put(space));
                        return Err(LoadError::NoMemory);
                    }
                    Ok(HatSpace(space))
                }
                Err(error) => {
                    held.numbers(|numbers| numbers.spaces.put(space));
                    Err(error)
                }
            }
        })
    }

    /// Creates a space in the shared table, or a table with one space.
    fn processor_mmu(
        &self,
        held: &mut S::Held<'_>,
        platform: &mut impl Platform,
    ) -> Result<MmuEntry, LoadError> {
        let number = match self.make {
            Some(_) => held.numbers(|numbers| numbers.mmus.take())?,
            None => 0,
        };
        let inner = held.try_mmu(number, |mmu, below| {
            let table = match &self.make {
                Some(make) => mmu.begin(make(), self.sizes.len()).map_err(|_| Error::NoMemory)?,
                None => mmu.table.as_mut().expect(ONE),
            };
            let created = table.create(&mut PoolFrames { below, platform: platform.frames() });
            if self.make.is_some() && created.is_err() {
                mmu.table = None;
            }
            created
        });
        let inner = inner.unwrap_or(Err(Error::NoMemory));
        if self.make.is_some() && inner.is_err() {
            held.numbers(|numbers| numbers.mmus.put(number));
        }
        Ok(MmuEntry { table: number, inner: inner?, limit: None })
    }

    /// Destroys the page table of a space in which no page has been loaded yet.
    #[cold]
    fn end_mmu_of(
        &self,
        held: &mut S::Held<'_>,
        space: HatSpace,
        entry: MmuEntry,
        platform: &mut impl Platform,
    ) {
        let mut change = Change::default();
        held.mmu(entry.table, |mmu, _| {
            let Some(table) = &mut mmu.table else { return };
            // This cannot fail: the tables of a space without pages fit into the token without heap
            // memory.
            if let Ok(flush) = table.destroy(entry.inner) {
                change.flush(space, flush);
            }
            if self.is_own(entry) {
                mmu.table = None;
            }
        });
        self.finish(held, &mut change, platform);
        if self.is_own(entry) {
            held.numbers(|numbers| numbers.mmus.put(entry.table));
        }
    }

    /// Whether each space has its own page table.
    pub(crate) fn is_each(&self) -> bool {
        self.make.is_some()
    }

    /// Whether the table belongs to one space and ends with it.
    pub(crate) fn is_own(&self, entry: MmuEntry) -> bool {
        self.make.is_some() || entry.table != 0
    }

    /// Ends a space and all its mappings; the mapped frames remain with their owner.
    pub fn destroy(&self, space: HatSpace, platform: &mut impl Platform) {
        self.scheme.enter(Site::Destroy, |held| {
            platform.work(Step::Operation, 1);
            // From here on no operation finds the space, and no operation is working in it.
            let Some(known) = held.space_mut(space.0, Option::take) else { return };
            let mut change = Change::default();
            for (place, entry) in known.all() {
                while !self.end_space(held, (space, place, entry), &mut change) {
                    // No memory is left for a list of all pages, so the pages are unmapped one by
                    // one.
                    self.finish(held, &mut change, platform);
                }
            }
            self.finish(held, &mut change, platform);
            if self.has_contexts() {
                held.contexts(|contexts| contexts.put(space.0));
            }
            held.numbers(|numbers| {
                let own = known.all().filter(|(_, entry)| self.is_own(*entry));
                own.for_each(|(_, entry)| numbers.mmus.put(entry.table));
                numbers.spaces.put(space.0);
            });
        });
    }

    /// Destroys one page table of a space. If no memory is left for a list of its pages and tables,
    /// unmaps one of its pages instead. Returns whether the table was destroyed.
    pub(crate) fn end_space(
        &self,
        held: &mut S::Held<'_>,
        (space, place, entry): (HatSpace, u8, MmuEntry),
        change: &mut Change,
    ) -> bool {
        held.mmu(entry.table, |mmu, _| {
            mmu.settle(space);
            mmu.end_borrower(entry.inner);
            let before = change.removed.len();
            let Some(table) = &mut mmu.table else { return true };
            let (mut first, mut is_short) = (None, false);
            table.visit(entry.inner, VirtRange::ALL, &mut |mapping| {
                first = first.or(Some(mapping.translation.page));
                is_short = is_short || !change.try_removed(space, place, &mapping);
            });
            // The page table exists, so destroying it fails only if no memory is left for a list of
            // its tables.
            let ended = if is_short { Err(Error::NoMemory) } else { table.destroy(entry.inner) };
            match (ended, first) {
                (Ok(flush), _) => _ = change.flush(space, flush),
                (Err(Error::NoMemory), Some(page)) => {
                    change.removed.truncate(before);
                    if !change.has_room() {
                        return false;
                    }
                    let range = VirtRange::of_page(page);
                    let gone =
                        &mut |mapping: Mapping| _ = change.try_removed(space, place, &mapping);
                    if let Ok(flush) = table.unmap(entry.inner, range, gone) {
                        change.flush(space, flush);
                    }
                    self.count_out(&mut Part::Whole(mmu), &change.removed[before..]);
                    return false;
                }
                (Err(_), _) => {}
            }
            self.count_out(&mut Part::Whole(mmu), &change.removed[before..]);
            mmu.loaded.remove(space.0);
            if self.is_own(entry) {
                mmu.table = None;
            }
            true
        })
    }
}

/// The changes of an operation for which the processors have not been flushed yet.
#[derive(Default)]
pub(crate) struct Change {
    /// The flush tokens of each space; most operations change one space.
    flushes: SmallVec<[(HatSpace, Flush); 1]>,
    /// A token for which the list of tokens had no room. The token is carried out after those in
    /// the list.
    late: Option<(HatSpace, Flush)>,
    /// The pages that have been removed from page tables but not yet from the list of their frame;
    /// usually one.
    pub(crate) removed: SmallVec<[(PhysAddr, Noted); 1]>,
}

impl Change {
    /// Adds a token, merged with the token of the same space if there is one. Returns whether
    /// another token can be added; if not, [`Hat::finish`] must be called first.
    pub(crate) fn flush(&mut self, space: HatSpace, flush: Flush) -> bool {
        // Nearly every load takes this path: there is nothing to flush and no frame to free.
        if flush.is_empty() {
            return true;
        }
        let is_same =
            |(of, gathered): &(HatSpace, Flush)| *of == space && gathered.space() == flush.space();
        let same = self.flushes.iter().position(is_same);
        let left = match (same, &mut self.late) {
            (Some(place), _) => self.flushes[place].1.try_merge(flush).err(),
            (None, Some(late)) if is_same(late) => late.1.try_merge(flush).err(),
            (None, _) if self.flushes.try_reserve(1).is_ok() => {
                self.flushes.push((space, flush));
                None
            }
            (None, _) => Some(flush),
        };
        if let Some(flush) = left {
            debug_assert!(self.late.is_none(), "who finds no room finishes the change first");
            self.late = Some((space, flush));
        }
        self.late.is_none()
    }

    /// Adds a removed page. Returns false, without adding it, if no memory is left for the list.
    pub(crate) fn try_removed(&mut self, space: HatSpace, mmu: u8, mapping: &Mapping) -> bool {
        room::push(&mut self.removed, (mapping.translation.frame, noted(space, mmu, mapping)))
            .is_ok()
    }

    /// Whether one more page and its token can be added. Reserves the memory for the page.
    pub(crate) fn has_room(&mut self) -> bool {
        self.late.is_none() && self.removed.try_reserve(1).is_ok()
    }

    /// Whether `pages` more pages and a token can be added. Reserves the memory for the pages.
    pub(crate) fn has_room_for(&mut self, pages: usize) -> bool {
        self.late.is_none() && self.removed.try_reserve(pages).is_ok()
    }

    pub(crate) fn has_removed(&self) -> bool {
        !self.removed.is_empty()
    }

    /// Adds a removed page. The memory has been reserved by [`Change::has_room`] or
    /// [`Change::has_room_for`].
    pub(crate) fn removed(&mut self, space: HatSpace, mmu: u8, mapping: &Mapping) {
        self.removed.push((mapping.translation.frame, noted(space, mmu, mapping)));
    }
}

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// Flushes the processors, removes the flushed pages from the lists of their frames, and frees
    /// the tables that hardware could still have used. `change` is then empty.
    pub(crate) fn finish(
        &self,
        held: &mut S::Held<'_>,
        change: &mut Change,
        platform: &mut impl Platform,
    ) {
        let Change { flushes, removed, late } = change;
        if flushes.iter().any(|(_, flush)| !flush.is_empty()) {
            self.take_back_stale(held, flushes);
            platform.work(Step::Shootdown, 1);
            platform.shoot(flushes);
        }
        if let Some(late) = late {
            let late = core::slice::from_ref(late);
            self.take_back_stale(held, late);
            platform.work(Step::Shootdown, 1);
            platform.shoot(late);
        }
        let number = |place: usize| self.number(removed[place].0);
        held.frames(removed.len(), number, |place, frame| {
            platform.work(Step::Mapping, 1);
            platform.touch(number(place), true);
            // This is always `Some`: a frame that is mapped has a descriptor.
            if let Some(frame) = frame {
                frame.remove(removed[place].1);
            }
            true
        });
        removed.clear();
        for (_, flush) in flushes.drain(..).chain(late.take()) {
            flush.done(&mut PoolFrames { below: held, platform: platform.frames() });
        }
    }

    /// The number of the base frame at the address `frame`.
    #[inline]
    pub(crate) fn number(&self, frame: PhysAddr) -> u64 {
        frame.get() >> self.sizes[0].shift()
    }

    /// Records that pages of `size` are about to be loaded.
    pub(crate) fn note_size(&self, size: PageSize) {
        let place = self.place_of(size);
        if self.loaded_sizes.load(Ordering::Relaxed) >> place & 1 == 0 {
            self.loaded_sizes.fetch_or(1 << place, Ordering::Relaxed);
        }
    }

    /// Adds `pages` to the count of pages of `size` in this part.
    #[inline]
    pub(crate) fn count_in(&self, part: &mut Part<'_, Mmu<T>>, size: PageSize, pages: usize) {
        part.count(self.place_of(size), pages as isize);
    }

    /// Subtracts the removed pages from the counts of this part.
    pub(crate) fn count_out(&self, part: &mut Part<'_, Mmu<T>>, removed: &[(PhysAddr, Noted)]) {
        let size = |(_, noted): &(PhysAddr, Noted)| noted.page.page.size();
        for pages in removed.chunk_by(|one, next| size(one) == size(next)) {
            part.count(self.place_of(size(&pages[0])), -(pages.len() as isize));
        }
    }

    /// The index of a page size that the tables support.
    #[inline]
    fn place_of(&self, size: PageSize) -> usize {
        self.sizes.iter().position(|&of| of == size).unwrap_or(0)
    }

    /// The numbers of the base frames whose lists may have pages that map a part of the `size`
    /// bytes of frames at `frame`. The number of a list for larger pages comes with their size:
    /// only pages of that size in the list are relevant. Sizes that were never loaded are skipped.
    pub(crate) fn lists_of(
        &self,
        frame: PhysAddr,
        size: PageSize,
    ) -> impl Iterator<Item = (u64, Option<PageSize>)> + Clone {
        let loaded = self.loaded_sizes.load(Ordering::Relaxed);
        let larger = self.sizes.iter().enumerate();
        let larger = larger.filter(move |&(place, &of)| of > size && loaded >> place & 1 != 0);
        let above = larger
            .map(move |(_, &of)| (self.number(PhysAddr::new(frame.get() & !of.mask())), Some(of)));
        let first = self.number(frame);
        let below = first..first + size.count_of(self.sizes[0]).max(1);
        above.chain(below.map(|number| (number, None)))
    }

    /// Sets the threshold for the number of contexts in use, up to which the order of their use is
    /// not kept.
    pub(crate) fn set_unlisted(&self, threshold: u32) {
        self.contexts[0].store(threshold as usize + 1, Ordering::Relaxed);
    }

    pub(crate) fn has_contexts(&self) -> bool {
        self.contexts[0].load(Ordering::Relaxed) > 0
    }

    /// Records that `used` contexts are in use.
    pub(crate) fn note_contexts(&self, used: u32) {
        self.contexts[1].store(used as usize, Ordering::Relaxed);
    }

    /// Whether the order of use is not kept now; if so, counts an entry without the lock.
    pub(crate) fn is_unlisted(&self) -> bool {
        let [threshold, used] = &self.contexts;
        let unlisted = used.load(Ordering::Relaxed) < threshold.load(Ordering::Relaxed);
        if unlisted {
            self.unlisted.fetch_add(1, Ordering::Relaxed);
        }
        unlisted
    }

    pub(crate) fn unlisted(&self) -> u64 {
        self.unlisted.load(Ordering::Relaxed) as u64
    }

    /// Whether the memory for tables is limited, so that tables may have to be stolen.
    pub const fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// The next time on the clock of loads, if tables may have to be stolen.
    pub(crate) fn tick(&self) -> Option<usize> {
        self.is_limited.then(|| self.clock.fetch_add(1, Ordering::Relaxed))
    }
}

pub(crate) fn mapped(space: HatSpace, mmu: u8, page: Page) -> Mapped {
    Mapped { space: space.0, mmu, page }
}

pub(crate) fn noted(space: HatSpace, mmu: u8, mapping: &Mapping) -> Noted {
    Noted { page: mapped(space, mmu, mapping.translation.page), note: mapping.note }
}
