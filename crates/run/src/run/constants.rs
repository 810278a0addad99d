//! What kind of machine a run is on, as far as that never changes: worked out once.

use addr::PageSize;
use description::{Description, PageMask, WalkerKind};
use hardware::tlbs::TlbUnits;
use ram::Ram;

/// What of a machine is asked again and again.
pub struct Constants {
    /// Whether translations are compared with the page table.
    pub check: bool,
    /// Whether each page is mapped before its first walk.
    pub populated: bool,
    /// Whether clean pages come into the TLBs without the right to store.
    pub(super) tracks_dirty: bool,
    /// Whether walks set the bits of page-table entries.
    pub(super) marks: bool,
    /// Whether a handler in software refills the TLBs, and whether it sets the size of every page.
    pub(super) by_software: bool,
    pub(super) always_sized: bool,
    /// Whether the kernel's pages are global.
    pub(super) has_global_pages: bool,
    /// Whether caches hold lines by the addresses that TLBs are asked for, and whether contexts tell these
    /// apart.
    pub(super) virtual_caches: bool,
    pub(super) has_contexts: bool,
    /// What the policies of the first-level TLBs learn of hits, at most.
    pub(super) learns: u8,
    /// What the shortcuts of the TLBs are for.
    pub(super) granules: (PageSize, Option<PageSize>),
}

impl Constants {
    /// Those of the machine of `description`, with such TLBs and page table.
    pub(super) fn of(
        description: &Description,
        hardware: &TlbUnits,
        ram: &Ram,
        check: bool,
    ) -> Constants {
        let Description { core, walker, .. } = description;
        Constants {
            check,
            populated: description.os.populated,
            tracks_dirty: walker.tracks_dirty && description.page_table.is_some(),
            marks: walker.kind == WalkerKind::Hardware && !ram.is_linear(),
            by_software: walker.kind == WalkerKind::Software,
            always_sized: walker.page_mask == PageMask::Always,
            has_global_pages: core.global_pages,
            virtual_caches: core.virtual_caches,
            has_contexts: core.asid_bits > 0,
            learns: hardware.first_level_learns(),
            granules: description.granules(),
        }
    }
}
