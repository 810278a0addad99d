use addr::{PhysAddr, Rights};
use hat::{
    Hat, HatSpace,
    locking::{Locks, Mutex, Rw, Scheme, Site},
};
use pagetable::Mounted;
use physmem::{Allocator, FrameId, Physmem};

use crate::{
    anon::{Anon, AnonId},
    below::Below,
    error::Error,
    host::{Host, Parts},
    pages::PageLists,
    physical::Physical,
    platform::Platform,
    vm::{Vm, Within},
    wanted::Wanted,
    work::{Decision, How, Work},
};

/// The memory manager for one processor, with all the data on which it works.
///
/// Each processor has a `Kernel` for the same manager, HAT layer and memory. Operations of manager,
/// HAT layer and memory take `&self` and exclude one another by the host's locks and by the HAT
/// layer's scheme. The counts of a `Kernel` are added to the manager's when it is dropped.
pub struct Kernel<'a, H: Host> {
    pub(crate) vm: &'a Vm<H::Locks>,
    pub(crate) hat: &'a Hat<H::Table, H::Scheme>,
    pub(crate) memory: &'a Physical<H::Allocator, H::Locks>,
    pub(crate) platform: &'a mut H::Platform,
    /// The operation in progress, for the platform of locks.
    pub(crate) site: Site,
    /// Counts of the work done; the next field counts faults by the way in which they were handled.
    pub(crate) work: Work,
    pub(crate) faults: [u64; How::ALL.len()],
    /// The decision about the size of the pages loaded last, and the number of pages loaded under
    /// it: consecutive decisions are mostly equal.
    pub(crate) decided: Option<(Decision, u64)>,
    /// The rights that hardware allowed at the page of the last fault before it was handled.
    pub(crate) before: Option<Rights>,
    /// The processor's NUMA node; the next field has the requirements for frames to be allocated.
    pub(crate) node: u8,
    pub(crate) wanted: Wanted,
    /// Whether the frames that will be filled next already contain zeros.
    pub(crate) prezeroed: bool,
    /// Whether the frames to be filled next belong to a pool of reserved pages.
    pub(crate) pooled: bool,
    /// The group that is charged for pages. The next field is true if the group has just reached
    /// its limit. The field after it is true if the group may exceed the limit until the fault
    /// ends.
    pub(crate) group: u8,
    pub(crate) over_limit: bool,
    pub(crate) exempt: bool,
}

impl<H: Host> Drop for Kernel<'_, H> {
    fn drop(&mut self) {
        self.hand_in();
    }
}

impl<'a, T, A, P, L, S> Kernel<'a, Parts<T, A, P, L, S>>
where
    T: Mounted + ?Sized,
    A: Allocator + Send,
    P: Platform,
    L: Locks,
    S: Scheme<Table = T>,
{
    /// A processor that works on `vm`, `hat` and `memory`, with `platform` for its own operations.
    pub fn new(
        vm: &'a Vm<L>,
        hat: &'a Hat<T, S>,
        memory: &'a Physical<A, L>,
        platform: &'a mut P,
    ) -> Self {
        let (work, faults) = (Work::default(), [0; How::ALL.len()]);
        let site = Site::Look;
        let (decided, before, node, wanted) = (None, None, 0, Wanted::ANY);
        Kernel {
            vm,
            hat,
            memory,
            platform,
            site,
            work,
            faults,
            decided,
            before,
            node,
            wanted,
            prezeroed: false,
            pooled: false,
            group: 0,
            over_limit: false,
            exempt: false,
        }
    }
}

impl<H: Host> Kernel<'_, H> {
    /// The platform of this processor.
    pub fn platform(&mut self) -> &mut H::Platform {
        self.platform
    }

    /// Adds the counts of this `Kernel` to those of the manager.
    pub(crate) fn hand_in(&mut self) {
        let Kernel { vm, work, faults, decided, .. } = self;
        vm.add_counts(|counts| {
            counts.work.add(work);
            for (all, more) in counts.faults.iter_mut().zip(*faults) {
                *all += more;
            }
            counts.decided(decided.take());
        });
        (*work, *faults) = (Work::default(), [0; How::ALL.len()]);
    }

    /// The HAT layer, and the platform and memory that it uses.
    pub(crate) fn hat(&mut self) -> (&Hat<H::Table, H::Scheme>, Below<'_, H>) {
        let Kernel { hat, memory, platform, work, site, .. } = self;
        (hat, Below { memory, platform, work, site: *site })
    }

    /// Runs `f` with the space locked.
    #[inline]
    pub(crate) fn within<R>(
        &mut self,
        space: HatSpace,
        f: impl FnOnce(&mut Self, &mut Within<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let known = self.vm.spaces.made(space.0).ok_or(Error::NoSpace(space))?;
        known.with(self.site, |known| {
            let known = known.as_mut().ok_or(Error::NoSpace(space))?;
            self.group = known.group;
            f(self, &mut Within { space, known })
        })
    }

    /// Runs `f` with the space locked, while no page is evicted or moved.
    pub(crate) fn staying_within<R>(
        &mut self,
        space: HatSpace,
        f: impl FnOnce(&mut Self, &mut Within<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.within(space, |kernel, at| kernel.pages_stay(|kernel| f(kernel, at)))
    }

    /// Runs `f` while no page is evicted or moved: a page that `f` finds in memory stays there.
    #[inline]
    pub(crate) fn pages_stay<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let vm = self.vm;
        vm.paging.read(self.site, |()| f(self))
    }

    /// Runs `f`, which may evict or move pages, while no other operation relies on where pages are.
    pub(crate) fn pages_move<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let vm = self.vm;
        vm.paging.write(self.site, |()| f(self))
    }

    /// Runs `f` with physical memory locked.
    #[inline]
    pub(crate) fn frames<R>(&self, f: impl FnOnce(&mut Physmem<H::Allocator>) -> R) -> R {
        self.memory.with(self.site, f)
    }

    /// Runs `f` with the lists for eviction and physical memory locked.
    #[inline]
    pub(crate) fn lists<R>(
        &self,
        f: impl FnOnce(&mut PageLists, &mut Physmem<H::Allocator>) -> R,
    ) -> R {
        self.vm.pages.with(self.site, |lists| self.frames(|memory| f(lists, memory)))
    }

    /// A copy of an anon.
    pub(crate) fn anon(&self, id: AnonId) -> Anon {
        self.vm.anons.get(self.site, id)
    }

    pub(crate) fn address(&self, frame: FrameId) -> PhysAddr {
        self.memory.address(frame)
    }
}
