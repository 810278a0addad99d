//! Settings of glibc's allocator that replace the settings in the recording (`malloc/malloc.c` of
//! glibc 2.41: `sysmalloc`, `sysmalloc_mmap`, `madvise_thp`).
//!
//! ```text
//!   recorded   brk |-->|-->|-->|          steps of 132K and more
//!   top_pad    brk |--------------->|     one step is enough for several of those
//!   hugetlb=1      each step ends at a multiple of 2M, and steps of 2M and more are advised
//! ```
//!
//! A trace has the calls that the allocator made with the settings of the recording. With the
//! settings of the machine file, the heap reaches at least as far at any time. The kernel does not
//! know the allocator, so the model only changes the requests that the kernel receives. A call of
//! `mmap` does not show whether private memory of 2M and more is for the allocator, so all such
//! memory is treated as the allocator's.

use std::collections::BTreeMap;

use addr::{PageSize, VirtAddr, VirtRange};
use description::{Os, Refusal, managers::linux};
use hat::HatSpace;
use os::Platform;
use ram::Failure;
use trace::Event;
use vm::Module;

use super::Base;

const LARGE: u64 = 2 << 20;
/// Flags of `mmap` that identify private memory without a file, at an address that the system
/// chooses.
const MAP_PRIVATE: u32 = 2;
const MAP_FIXED: u32 = 0x10;
const MAP_ANONYMOUS: u32 = 0x20;
const MAP_HUGETLB: u32 = 0x40000;
/// The rights to read and to store, as `mmap` encodes them.
const PROT_BOTH: u32 = 3;

/// The large pages that the allocator requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asks {
    Nothing,
    Advice,
    Pool,
}

/// The heaps of all spaces.
pub(super) struct Heaps {
    asks: Asks,
    top_pad: u64,
    /// The end of each space's heap.
    ends: BTreeMap<u32, u64>,
}

impl Heaps {
    pub(super) fn of(os: &Os) -> Result<Option<Box<Heaps>>, Refusal> {
        let Some(knobs) = linux(os) else { return Ok(None) };
        let Some(asked) = knobs.malloc else { return Ok(None) };
        let asks = match asked.hugetlb {
            0 => Asks::Nothing,
            1 => Asks::Advice,
            2 if knobs.hugetlb.is_some() => Asks::Pool,
            2 => {
                let what = "2 takes memory from a pool of large pages, but the machine has no \
                            pool: set \
                            os.linux.hugetlb.hugepages-2048kB.nr_hugepages";
                return Err(Refusal::new("os.linux.malloc.hugetlb", what.to_owned()));
            }
            other => {
                let what = format!("glibc has no setting {other}: write 0, 1 or 2");
                return Err(Refusal::new("os.linux.malloc.hugetlb", what));
            }
        };
        Ok(Some(Box::new(Heaps { asks, top_pad: asked.top_pad.0, ends: BTreeMap::new() })))
    }

    /// The recording moved the end of the heap from `before` to `now`. Returns the old and the new
    /// end of the heap with the settings of the machine file.
    pub(super) fn ends(&mut self, number: u32, before: u64, now: u64) -> (u64, u64) {
        let end = self.ends.entry(number).or_insert(before);
        let from = (*end).max(before);
        let to = if now > from {
            let padded = now.saturating_add(self.top_pad);
            match self.asks {
                Asks::Nothing => padded,
                // With a pool, the heap is a mapping of the pool's pages, but it grows in the same
                // steps.
                Asks::Advice | Asks::Pool => padded.next_multiple_of(LARGE),
            }
        } else if now < before {
            // The heap is trimmed, except for `top_pad` bytes at its top.
            now.saturating_add(self.top_pad).min(from)
        } else {
            from
        };
        *end = to;
        (from, to)
    }

    /// Corrects the end of the heap to `end`, because it cannot grow as far as requested. Returns
    /// `end`.
    pub(super) fn ends_at(&mut self, number: u32, end: u64) -> u64 {
        self.ends.insert(number, end);
        end
    }

    pub(super) fn forget(&mut self, number: u32) {
        self.ends.remove(&number);
    }
}

impl Base {
    /// Makes the allocator's requests for large pages when the heap has grown by `range`.
    pub(super) fn heap_grown(
        &mut self,
        number: u32,
        space: HatSpace,
        range: VirtRange,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let Some(asks) = self.heaps.as_ref().map(|heaps| heaps.asks) else { return Ok(()) };
        self.ask_for(number, space, range, asks, platform)
    }

    /// Makes the allocator's requests for large pages when it maps memory.
    pub(super) fn advised_memory(
        &mut self,
        number: u32,
        event: &Event,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let Some(asks) = self.heaps.as_ref().map(|heaps| heaps.asks) else { return Ok(()) };
        let Event::Mmap { bytes, prot, flags, result, .. } = *event else { return Ok(()) };
        let kind = MAP_PRIVATE | MAP_ANONYMOUS;
        let is_memory = flags & (kind | MAP_FIXED | MAP_HUGETLB) == kind && prot == PROT_BOTH;
        let (true, Ok(start)) = (is_memory, u64::try_from(result)) else { return Ok(()) };
        let Ok(range) = VirtRange::new(VirtAddr::new(start), bytes) else { return Ok(()) };
        let space = self.space(number, platform)?;
        self.ask_for(number, space, range, asks, platform)
    }

    fn ask_for(
        &mut self,
        number: u32,
        space: HatSpace,
        range: VirtRange,
        asks: Asks,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        if range.bytes() < LARGE {
            return Ok(());
        }
        match asks {
            Asks::Nothing => Ok(()),
            Asks::Advice => {
                let module = Module { page_size: Some(self.advised()), ..Module::default() };
                self.attach(number, space, range, module, platform)
            }
            Asks::Pool => {
                let size = PageSize::SIZE_2M;
                self.sizes.asked.insert(number);
                self.with(platform, |kernel| kernel.reserve(space, range, size, true).map(drop))
            }
        }
    }
}
