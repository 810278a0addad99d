use addr::{Memory, PhysAddr, Rights};

use crate::{Format, Usage};

/// The change that an operation makes to the entry of each page.
pub(super) trait Change<F>: Copy {
    /// Whether the operation unmaps pages.
    const REMOVES: bool;

    /// Changes the page entry at `at`, which was just read as `entry`, while walkers may set bits
    /// in it. Returns the entry as it was immediately before the change, or `None` if nothing
    /// changed.
    fn apply(
        self,
        format: &F,
        level: u8,
        at: PhysAddr,
        entry: u64,
        memory: &mut impl Memory,
    ) -> Option<u64>;

    /// Whether hardware must flush a page whose entry at `level` was `entry`, since hardware may
    /// hold more rights or usage bits of the page than it has after the change.
    fn must_flush(self, format: &F, level: u8, entry: u64) -> bool;
}

/// Unmaps pages.
#[derive(Clone, Copy)]
pub(super) struct Remove;

/// Changes the rights of pages.
#[derive(Clone, Copy)]
pub(super) struct Protect(pub(super) Rights);

/// Clears these usage bits of pages.
#[derive(Clone, Copy)]
pub(super) struct Clear(pub(super) Usage);

impl<F: Format> Change<F> for Remove {
    const REMOVES: bool = true;

    #[inline(always)]
    fn apply(
        self,
        format: &F,
        level: u8,
        at: PhysAddr,
        _entry: u64,
        memory: &mut impl Memory,
    ) -> Option<u64> {
        Some(format.swap(level, at, 0, memory))
    }

    #[inline]
    fn must_flush(self, _format: &F, _level: u8, _entry: u64) -> bool {
        true
    }
}

impl<F: Format> Change<F> for Protect {
    const REMOVES: bool = false;

    #[inline(always)]
    fn apply(
        self,
        format: &F,
        level: u8,
        at: PhysAddr,
        entry: u64,
        memory: &mut impl Memory,
    ) -> Option<u64> {
        format.change_rights(level, at, entry, self.0, memory)
    }

    #[inline]
    fn must_flush(self, format: &F, level: u8, entry: u64) -> bool {
        format.exceeds(entry, level, self.0)
    }
}

impl<F: Format> Change<F> for Clear {
    const REMOVES: bool = false;

    #[inline(always)]
    fn apply(
        self,
        format: &F,
        level: u8,
        at: PhysAddr,
        entry: u64,
        memory: &mut impl Memory,
    ) -> Option<u64> {
        format.clear_usage(level, at, entry, self.0, memory)
    }

    #[inline]
    fn must_flush(self, _format: &F, _level: u8, _entry: u64) -> bool {
        self.0.referenced || self.0.dirty
    }
}
