use addr::{Memory, PhysAddr, Rights};

use crate::{Format, Usage};

/// What an operation does to the entries of pages.
pub(super) trait Change<F>: Copy {
    /// Whether pages go.
    const REMOVES: bool;

    /// Changes the entry of a page at `at`, just read as `entry`, where walkers may set bits of it
    /// at any time; if it changed, what it was then, with the bits of walkers.
    fn apply(
        self,
        format: &F,
        level: u8,
        at: PhysAddr,
        entry: u64,
        memory: &mut impl Memory,
    ) -> Option<u64>;

    /// Whether what hardware remembers of a page whose entry at `level` was `entry` is more than
    /// is now allowed.
    fn must_flush(self, format: &F, level: u8, entry: u64) -> bool;
}

/// Unmapping.
#[derive(Clone, Copy)]
pub(super) struct Remove;

/// Other rights.
#[derive(Clone, Copy)]
pub(super) struct Protect(pub(super) Rights);

/// These usage bits no longer.
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
