//! Properties of the machine that never change during a run, computed once.

use addr::PageSize;
use description::{Description, PageMask, WalkerKind};
use hardware::tlbs::TlbUnits;
use ram::Ram;

/// Properties of the machine that are needed for each access or miss.
pub struct Constants {
    /// Whether translations are compared with the page table.
    pub check: bool,
    /// Whether each page is mapped before its first walk (`populated`).
    pub populated: bool,
    /// Whether the TLB entries of clean pages lack the right to store.
    pub(super) tracks_dirty: bool,
    /// Whether walks set the accessed and dirty bits of page-table entries.
    pub(super) marks: bool,
    /// Whether a software handler refills the TLBs; the next field says whether it sets the size of
    /// every page.
    pub(super) by_software: bool,
    pub(super) always_sized: bool,
    /// Whether the kernel's pages are global.
    pub(super) has_global_pages: bool,
    /// Whether caches are looked up by virtual address. The next field says whether contexts
    /// (address-space identifiers) distinguish the lines of these caches.
    pub(super) virtual_caches: bool,
    pub(super) has_contexts: bool,
    /// What the replacement policies of the first-level TLBs need to know about hits (`NOTHING`,
    /// `TIME` or `EACH`): the maximum over these TLBs.
    pub(super) learns: u8,
    /// The page sizes of the shortcuts of the TLBs.
    pub(super) granules: (PageSize, Option<PageSize>),
}

impl Constants {
    /// Computes the properties of the machine of `description`, with these TLBs and this page
    /// table.
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
