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

/// A processor at work: the memory manager with all that it works on.
///
/// Several processors have one each, of the same manager, HAT layer and memory: these take `&self`,
/// and exclude each other by locks of the host's platform of locks and of the HAT layer's scheme. What a
/// kernel counts is added to the manager's counts when the kernel is dropped.
pub struct Kernel<'a, H: Host> {
    pub(crate) vm: &'a Vm<H::Locks>,
    pub(crate) hat: &'a Hat<H::Table, H::Scheme>,
    pub(crate) memory: &'a Physical<H::Allocator, H::Locks>,
    pub(crate) platform: &'a mut H::Platform,
    /// The operation under way, for the platform of locks.
    pub(crate) site: Site,
    /// What it has done, and how it has answered faults.
    pub(crate) work: Work,
    pub(crate) faults: [u64; How::ALL.len()],
    /// What was decided about the size of the pages that were loaded last, and of how many: most
    /// are like the one before.
    pub(crate) decided: Option<(Decision, u64)>,
    /// What hardware allowed at the page of the last fault before that was answered.
    pub(crate) before: Option<Rights>,
    /// Its NUMA node, and what is wanted of frames that are taken.
    pub(crate) node: u8,
    pub(crate) wanted: Wanted,
    /// Whether the frames that are filled next hold zeros already.
    pub(crate) prezeroed: bool,
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
    /// A processor that works on these, and does by `platform` what is its own.
    pub fn new(
        vm: &'a Vm<L>,
        hat: &'a Hat<T, S>,
        memory: &'a Physical<A, L>,
        platform: &'a mut P,
    ) -> Self {
        let (work, faults) = (Work::default(), [0; How::ALL.len()]);
        let site = Site::Look;
        let (decided, before, node, wanted, prezeroed) = (None, None, 0, Wanted::ANY, false);
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
            prezeroed,
        }
    }
}

impl<H: Host> Kernel<'_, H> {
    /// The processor's own.
    pub fn platform(&mut self) -> &mut H::Platform {
        self.platform
    }

    /// Adds what it has counted to the manager's counts.
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

    /// The HAT layer, and what it works on.
    pub(crate) fn hat(&mut self) -> (&Hat<H::Table, H::Scheme>, Below<'_, H>) {
        let Kernel { hat, memory, platform, work, site, .. } = self;
        (hat, Below { memory, platform, work, site: *site })
    }

    /// Works in a space that nobody else works in meanwhile.
    #[inline]
    pub(crate) fn within<R>(
        &mut self,
        space: HatSpace,
        f: impl FnOnce(&mut Self, &mut Within<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let known = self.vm.spaces.made(space.0).ok_or(Error::NoSpace(space))?;
        known.with(self.site, |known| {
            let known = known.as_mut().ok_or(Error::NoSpace(space))?;
            f(self, &mut Within { space, known })
        })
    }

    /// Works in a space that nobody else works in meanwhile, while no page leaves memory or moves in it.
    pub(crate) fn staying_within<R>(
        &mut self,
        space: HatSpace,
        f: impl FnOnce(&mut Self, &mut Within<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.within(space, |kernel, at| kernel.pages_stay(|kernel| f(kernel, at)))
    }

    /// Works while no page leaves memory, or moves in it: one that `f` finds there is there.
    #[inline]
    pub(crate) fn pages_stay<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let vm = self.vm;
        vm.paging.read(self.site, |()| f(self))
    }

    /// Has pages leave memory, or move in it, while nobody else relies on where they are.
    pub(crate) fn pages_move<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let vm = self.vm;
        vm.paging.write(self.site, |()| f(self))
    }

    /// Does something with the frames.
    #[inline]
    pub(crate) fn frames<R>(&self, f: impl FnOnce(&mut Physmem<H::Allocator>) -> R) -> R {
        self.memory.with(self.site, f)
    }

    /// Does something with the lists that pages leave memory by, and with the frames.
    #[inline]
    pub(crate) fn lists<R>(
        &self,
        f: impl FnOnce(&mut PageLists, &mut Physmem<H::Allocator>) -> R,
    ) -> R {
        self.vm.pages.with(self.site, |lists| self.frames(|memory| f(lists, memory)))
    }

    /// An anon as it is.
    pub(crate) fn anon(&self, id: AnonId) -> Anon {
        self.vm.anons.get(self.site, id)
    }

    pub(crate) fn address(&self, frame: FrameId) -> PhysAddr {
        self.memory.address(frame)
    }
}
