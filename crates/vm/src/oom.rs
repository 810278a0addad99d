//! Which space should end when memory is used up.
//!
//! ```text
//!   fault --> reclaim finds nothing --> Err(OutOfMemory)
//!                                            |
//!                     the kernel:  oom_victim(policy) --> a space --> its process ends --> the fault again
//! ```
//!
//! The manager ends no space itself. An operation fails with
//! [`Error::OutOfMemory`](crate::Error::OutOfMemory) when no page can be evicted any more. The
//! kernel then requests the space whose end helps most, by a policy of its own or by [`Largest`].
//! It ends the process of that space and repeats the fault.

use hat::{
    HatSpace,
    locking::{Mutex, Site},
};

use crate::{host::Host, kernel::Kernel, object::PageLocation, vm::AddressSpace};

/// The memory of a space, in base pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceUsage {
    /// The space.
    pub space: HatSpace,
    /// The space's own pages in memory that no other space uses.
    pub private: u64,
    /// The space's own pages in memory that other spaces use too, after a fork.
    pub shared: u64,
    /// The space's own pages in swap.
    pub swapped: u64,
    /// The pages that the space has locked in memory.
    pub wired: u64,
}

/// A policy that chooses which space should end.
pub trait OomPolicy {
    /// How much the end of a space would help, in any unit. `None` means that the space must not
    /// end. The space with the largest value is chosen; of spaces with equal values, the one with
    /// the lowest number.
    fn badness(&self, usage: &SpaceUsage) -> Option<u64>;
}

/// The space that has the most pages of its own, in memory or in swap (Linux: `oom_badness`). Spaces
/// without own pages are not chosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Largest;

impl OomPolicy for Largest {
    fn badness(&self, usage: &SpaceUsage) -> Option<u64> {
        let SpaceUsage { private, shared, swapped, .. } = *usage;
        Some(private + shared + swapped).filter(|pages| *pages > 0)
    }
}

impl<H: Host> Kernel<'_, H> {
    /// The memory of a space; `None` if there is no such space.
    pub fn usage_of(&mut self, space: HatSpace) -> Option<SpaceUsage> {
        self.site = Site::Look;
        let slot = self.vm.spaces.made(space.0)?;
        slot.with(self.site, |known| Some(self.counted(space, known.as_ref()?)))
    }

    /// The space that `policy` chooses to end: for a kernel in which an operation has failed with
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory). `None` if the policy chooses none. Allocates no
    /// memory.
    ///
    /// ```
    /// # use vm::{Error, Host, How, Kernel, Largest};
    /// # use addr::{Kind, VirtAddr};
    /// # use hat::HatSpace;
    /// # fn end_process<H: Host>(kernel: &mut Kernel<'_, H>, space: HatSpace) {
    /// #     kernel.exit(space).expect("it exists");
    /// # }
    /// /// The page-fault handler of a kernel. `None`: the process itself has ended.
    /// fn page_fault<H: Host>(
    ///     kernel: &mut Kernel<'_, H>,
    ///     space: HatSpace,
    ///     addr: VirtAddr,
    ///     kind: Kind,
    /// ) -> Option<Result<How, Error>> {
    ///     loop {
    ///         match kernel.fault(space, addr, kind) {
    ///             Err(Error::OutOfMemory { .. }) => {}
    ///             done => return Some(done),
    ///         }
    ///         let victim = kernel.oom_victim(&Largest)?;
    ///         end_process(kernel, victim);
    ///         if victim == space {
    ///             return None;
    ///         }
    ///     }
    /// }
    /// ```
    pub fn oom_victim(&mut self, policy: &dyn OomPolicy) -> Option<HatSpace> {
        self.site = Site::Look;
        let mut worst: Option<(u64, HatSpace)> = None;
        for (number, slot) in self.vm.spaces.all() {
            let space = HatSpace(number);
            let usage = slot.with(self.site, |known| Some(self.counted(space, known.as_ref()?)));
            let badness = usage.and_then(|usage| policy.badness(&usage));
            if let Some(badness) = badness
                && worst.is_none_or(|(known, _)| known < badness)
            {
                worst = Some((badness, space));
            }
        }
        worst.map(|(_, space)| space)
    }

    fn counted(&self, space: HatSpace, known: &AddressSpace) -> SpaceUsage {
        let wired = known.wired.len() as u64;
        let mut usage = SpaceUsage { space, private: 0, shared: 0, swapped: 0, wired };
        for (_, anon) in known.anons.each() {
            let anon = self.anon(anon);
            match anon.place {
                PageLocation::Swapped(_) => usage.swapped += 1,
                PageLocation::Resident(_) if anon.refs == 1 => usage.private += 1,
                PageLocation::Resident(_) => usage.shared += 1,
            }
        }
        usage
    }
}
