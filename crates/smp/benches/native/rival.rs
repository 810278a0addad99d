//! One mutex around the page tables of all spaces, which are tables of the crate
//! `page_table_multiarch`, and around a hash map from each frame to the pages that map it. The
//! crate's flags lack the accessed and dirty bits, so a request for usage only reads the entry.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use addr::{Frames, PageSize, PhysAddr};
use memory_addr::{MemoryAddr, PhysAddr as RivalPhys, VirtAddr as RivalVirt};
use page_table_entry::x86_64::X64PTE;
use page_table_multiarch::{
    MappingFlags, PageSize as RivalSize, PageTable64, PagingHandler, x86_64::X64PagingMetaData,
};

use crate::{Contender, PAGE_BYTES, THREADS_MAX, arena::Arena};

const ARENA_BYTES: u64 = 16 << 20;

/// The memory of the page tables.
static ARENA: Mutex<Option<Owned>> = Mutex::new(None);
static START: AtomicUsize = AtomicUsize::new(0);

/// An arena that threads pass to each other.
struct Owned(Arena);

// SAFETY: an arena owns its memory, and the thread that holds the lock has exclusive access to it.
unsafe impl Send for Owned {}

struct Handler;

impl PagingHandler for Handler {
    fn alloc_frames(num: usize, _align: usize) -> Option<RivalPhys> {
        assert_eq!(num, 1, "tables take one frame each");
        let mut arena = ARENA.lock().expect("no thread failed");
        let frame = arena.as_mut()?.0.allocate(PageSize::SIZE_4K).ok()?;
        Some(RivalPhys::from(frame.get() as usize))
    }

    fn dealloc_frames(paddr: RivalPhys, _num: usize) {
        if let Some(Owned(arena)) = ARENA.lock().expect("no thread failed").as_mut() {
            arena.free(PhysAddr::new(paddr.as_usize() as u64), PageSize::SIZE_4K);
        }
    }

    #[inline]
    fn phys_to_virt(paddr: RivalPhys) -> RivalVirt {
        RivalVirt::from(START.load(Relaxed) + paddr.as_usize())
    }
}

type Table = PageTable64<X64PagingMetaData, X64PTE, Handler>;

pub(crate) struct Rival {
    all: Mutex<Guarded>,
}

struct Guarded {
    tables: Vec<Table>,
    /// By frame: the spaces and pages that map it.
    mapped: HashMap<u64, Vec<(usize, u64)>>,
}

impl Rival {
    pub(crate) fn new() -> Rival {
        let arena = Arena::new(ARENA_BYTES);
        START.store(arena.start() as usize, Relaxed);
        *ARENA.lock().expect("no thread failed") = Some(Owned(arena));
        let table = |_| Table::try_new().expect("the arena has room");
        let tables = (0..THREADS_MAX).map(table).collect();
        Rival { all: Mutex::new(Guarded { tables, mapped: HashMap::new() }) }
    }
}

fn virt(addr: u64) -> RivalVirt {
    RivalVirt::from(addr as usize)
}

impl Contender for Rival {
    type Thread = usize;

    fn thread(&self, number: usize) -> usize {
        number
    }

    fn load(&self, space: &mut usize, start: u64, frame: u64, pages: u64) {
        let mut all = self.all.lock().expect("no thread failed");
        let flags = MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER;
        let first = RivalPhys::from(frame as usize);
        let mut cursor = all.tables[*space].cursor();
        let mapped = if pages == 1 {
            cursor.map(virt(start), first, RivalSize::Size4K, flags)
        } else {
            let place = |addr: RivalVirt| first.add(addr.as_usize() - start as usize);
            cursor.map_region(virt(start), place, (pages * PAGE_BYTES) as usize, flags, false)
        };
        mapped.expect("nothing is there yet");
        black_box(&mut cursor);
        drop(cursor);
        for at in (0..pages).map(|page| page * PAGE_BYTES) {
            all.mapped.entry(frame + at).or_default().push((*space, start + at));
        }
    }

    fn protect(&self, space: &mut usize, start: u64, pages: u64) {
        let mut all = self.all.lock().expect("no thread failed");
        let flags = MappingFlags::READ | MappingFlags::USER;
        let mut cursor = all.tables[*space].cursor();
        let done = if pages == 1 {
            cursor.protect(virt(start), flags).map(|_| ())
        } else {
            cursor.protect_region(virt(start), (pages * PAGE_BYTES) as usize, flags)
        };
        done.expect("it is mapped");
        black_box(&mut cursor);
    }

    fn usage(&self, _: &mut usize, frame: u64) -> bool {
        let all = self.all.lock().expect("no thread failed");
        let mut is_unmapped = false;
        for &(space, page) in all.mapped.get(&frame).into_iter().flatten() {
            is_unmapped |= black_box(all.tables[space].query(virt(page))).is_err();
        }
        is_unmapped
    }

    fn unload(&self, space: &mut usize, start: u64, pages: u64) {
        let mut all = self.all.lock().expect("no thread failed");
        let Guarded { tables, mapped } = &mut *all;
        let mut cursor = tables[*space].cursor();
        for page in (0..pages).map(|page| start + page * PAGE_BYTES) {
            // Pages are unmapped one by one, because the list of mappings needs the frame of each
            // page.
            let (frame, ..) = cursor.unmap(virt(page)).expect("it is mapped");
            let list = mapped.entry(frame.as_usize() as u64).or_default();
            list.retain(|&known| known != (*space, page));
            if list.is_empty() {
                mapped.remove(&(frame.as_usize() as u64));
            }
        }
        black_box(&mut cursor);
    }
}
