//! Access to the memory of another space by the kernel, for debuggers and for calls that copy between
//! processes (`ptrace`, `process_vm_readv`).
//!
//! ```text
//!   access(space, range) --> for each page: in memory? --no--> brought in, as at a fault
//!                                 |
//!                                 v
//!                            each(frame, the bytes in it)     the page stays while this runs
//! ```
//!
//! The space need not run on this processor, and no translation of its pages is loaded. A translation is
//! only replaced if the access gives the space a page of its own.

use addr::{Kind, PhysAddr, Rights, VirtRange};
use hat::{HatSpace, locking::Site};
use physmem::FrameId;

use crate::{
    error::{Error, Stop},
    fault::{Needed, RegionPage},
    host::Host,
    kernel::Kernel,
    region::{Backing, Region},
    vm::Within,
    work::How,
};

/// Which rights an access by the kernel needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The access must be allowed to the space itself, as in `process_vm_readv`.
    Allowed,
    /// A debugger's access: loads are allowed everywhere, and stores everywhere except in shared
    /// memory that the space may not store to. A store to private memory gives the space its own copy.
    Forced,
}

/// The purpose for which the kernel reaches a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Access(Access),
    /// To pin the page. A page of private memory must become the space's own page, whatever the
    /// kind of access.
    Pin,
}

impl Reach {
    /// Whether the page may be reached.
    fn allows(self, region: &Region, kind: Kind) -> bool {
        let is_shared = matches!(region.backing, Backing::Shared { .. });
        let is_forced = self == Reach::Access(Access::Forced);
        region.rights.allows(kind) || is_forced && (kind != Kind::Store || !is_shared)
    }

    /// The kind of access that brings the page into memory.
    fn kind(self, region: &Region, kind: Kind) -> Kind {
        match (self, region.backing) {
            (Reach::Pin, Backing::Anonymous | Backing::Private { .. }) => Kind::Store,
            (Reach::Pin, Backing::Shared { .. } | Backing::Frames { .. }) => kind,
            (Reach::Access(_), _) => kind,
        }
    }
}

impl<H: Host> Kernel<'_, H> {
    /// Reads from the memory of a space, or stores to it. `each` is called for each page that
    /// overlaps `range`, in order, with the bytes of the range that are in this page: their
    /// physical address and their virtual addresses. The page stays in memory during the call, so
    /// that `each` can copy the bytes. `each` must not call the manager.
    ///
    /// # Errors
    ///
    /// Fails at an address without a region, at a region that does not allow the access, and at a
    /// page that cannot be brought in. Also fails at frames that were given to a region
    /// ([`Error::Given`]), since an access to a device may have side effects. By then, `each` has
    /// been called for the earlier pages.
    pub fn access(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        kind: Kind,
        access: Access,
        each: &mut dyn FnMut(&mut H::Platform, PhysAddr, VirtRange),
    ) -> Result<(), Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        let pages = self.vm.pages_of(range);
        self.within(space, |kernel, at| {
            for page in pages {
                let whole = kernel.vm.range_of(&(page..page + 1));
                let Some(part) = range.intersection(whole) else { continue };
                kernel.access_page(at, page, kind, access, &mut |platform, frame| {
                    let offset = part.start().get() - whole.start().get();
                    each(platform, frame.wrapping_add(offset), part);
                })?;
            }
            Ok(())
        })
    }

    fn access_page(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        kind: Kind,
        access: Access,
        each: &mut dyn FnMut(&mut H::Platform, PhysAddr),
    ) -> Result<(), Error> {
        self.with_room(|kernel| {
            let frame = kernel.reach(at, page, kind, Reach::Access(access))?;
            let frame = kernel.address(frame);
            each(kernel.platform, frame);
            Ok(())
        })
    }

    /// Brings a page into memory for an access that no processor makes through the page table, and
    /// returns its frame.
    pub(crate) fn reach(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        kind: Kind,
        reach: Reach,
    ) -> Result<FrameId, Stop> {
        let addr = self.vm.addr_of(page);
        if at.known.regions.at(page).is_none() {
            self.grow_stack(at, page)?;
        }
        let region = at.known.regions.at(page).ok_or(Error::NoRegion(addr))?;
        let rights = region.rights;
        if region.backing.is_given() {
            return Err(Error::Given(addr).into());
        }
        if !reach.allows(region, kind) {
            return Err(Error::Denied { addr, rights }.into());
        }
        self.want_for(region, page);
        let (said, kind) = (RegionPage::of_kernel(region, page), reach.kind(region, kind));
        let is_wired = region.wired.stays();
        let mut how = How::Minor;
        let Needed { frame, rights: allowed, left, .. } =
            self.page_for(at, (page, &said), kind, &mut None, &mut how)?;
        let rights = Rights::from_bits(rights.bits() & allowed.bits());
        let replaced = self.replace(at, page, (frame, rights));
        if let Some(anon) = left {
            self.leave(anon, replaced.is_ok());
        }
        replaced?;
        if is_wired && !(self.vm.thp.is_some() && self.holds_zeros(self.address(frame))) {
            self.wire_at(at, page, frame);
        }
        Ok(frame)
    }

    /// Replaces the translation of a page, if there is one and it leads to another frame.
    fn replace(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        (frame, rights): (FrameId, Rights),
    ) -> Result<(), Stop> {
        let addr = self.vm.addr_of(page);
        let Some(held) = self.hat.query(at.space, addr).map(|held| held.translation) else {
            return Ok(());
        };
        if held.apply(addr) == self.address(frame) {
            return Ok(());
        }
        let needed = Needed { frame, rights, is_new: false, left: None };
        self.enter(at, page, &needed, &mut How::Minor).map(drop)
    }
}
