//! Machines that track dirty pages: how the dirty bit of a page-table entry is set at the first store to a
//! page.
//!
//! ```text
//!   clean page, not stored to yet      its TLB entry has no right to store
//!   first store                        the entry denies it --> walk
//!                                         hardware sets bits: an assist writes the entry
//!                                         it does not: a handler is trapped to, and writes it
//! ```

use addr::{Kind, Rights, VirtAddr};
use description::Error;
use mmu::Miss;
use os::Who;
use pagetable::{Leads, Reference, Usage};
use ram::Ram;

use super::{Run, access::Lookup, constants::Constants, hooks::Hook};

/// The software handlers that set dirty bits if hardware does not.
pub(super) struct Traps;

impl Traps {
    /// `Some` if the machine tracks dirty pages by traps.
    pub(super) fn of(constants: &Constants) -> Option<Traps> {
        (constants.tracks_dirty && !constants.marks).then_some(Traps)
    }
}

impl Hook for Traps {
    fn leaves_prices(&self) -> bool {
        true
    }

    fn forget_counts(&mut self) {}
}

impl Run {
    /// The rights that a TLB entry gets after an access of this kind to a page with `rights`.
    #[inline]
    pub(super) fn rights_to_hold(&self, addr: VirtAddr, kind: Kind, rights: Rights) -> Rights {
        if self.constants.tracks_dirty && kind != Kind::Store {
            without_dirt(&self.stack.guest, self.who, addr, rights)
        } else {
            rights
        }
    }

    /// Whether the walk for an access that a TLB entry denied is a hardware assist: it sets the
    /// dirty bit of a clean page.
    pub(super) fn takes_assist(&mut self, place: Lookup<'_>, why: Miss) -> bool {
        let takes = self.constants.marks
            && self.constants.tracks_dirty
            && (place.kind, why) == (Kind::Store, Miss::Denied)
            && self.stack.guest.is_clean(self.who.space, place.addr);
        self.processors.here.counts.dirty_assists += u64::from(takes);
        takes
    }

    /// If a store finds a clean page and hardware does not set the dirty bit, traps to the handler,
    /// which writes the entry that the last of the `references` read.
    pub(super) fn trap_if_clean(
        &mut self,
        place: Lookup<'_>,
        found: bool,
        references: &mut Vec<Reference>,
    ) -> Result<(), Error> {
        let Lookup { addr, kind, access, .. } = place;
        let may_trap = self.hooks.traps.is_some() && found && kind == Kind::Store;
        if !may_trap || !self.stack.guest.is_clean(self.who.space, addr) {
            return Ok(());
        }
        self.processors.here.counts.modify_traps += 1;
        self.walking.dirtied = true;
        let read = references.last().copied();
        references.extend(read.map(|read| Reference {
            write: true,
            leads: Leads::Nowhere,
            ..read
        }));
        let dirty = Usage { dirty: true, ..Usage::default() };
        let set = self.stack.guest.set_usage(self.who.space, addr, dirty);
        set.map_err(|failure| self.failed(failure, access))
    }
}

/// The `rights` that a TLB entry gets on a machine that tracks dirty pages, for the page of `addr`:
/// all rights if the page is dirty, otherwise without the right to store.
#[inline]
pub(super) fn without_dirt(ram: &Ram, who: Who, addr: VirtAddr, rights: Rights) -> Rights {
    let is_clean = rights.allows(Kind::Store) && ram.is_clean(who.space, addr);
    if is_clean { rights.without_write() } else { rights }
}
