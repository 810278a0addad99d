use addr::Rights;

use crate::{Format, Translation, Usage};

/// What an operation does to the entries of pages.
pub(super) trait Change<F>: Copy {
    /// Whether pages go.
    const REMOVES: bool;

    /// The entry that takes the place of `entry`; `None` lets it be.
    fn apply(self, format: &F, entry: u64) -> Option<u64>;

    /// Whether what hardware remembers of `before` is more than is now allowed.
    fn must_flush(self, before: &Translation) -> bool;
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

impl<F> Change<F> for Remove {
    const REMOVES: bool = true;

    #[inline]
    fn apply(self, _format: &F, _entry: u64) -> Option<u64> {
        Some(0)
    }

    #[inline]
    fn must_flush(self, _before: &Translation) -> bool {
        true
    }
}

impl<F: Format> Change<F> for Protect {
    const REMOVES: bool = false;

    #[inline]
    fn apply(self, format: &F, entry: u64) -> Option<u64> {
        let (mask, bits) = format.rights_bits(self.0);
        Some(entry & !mask | bits).filter(|&new| new != entry)
    }

    #[inline]
    fn must_flush(self, before: &Translation) -> bool {
        !self.0.contains(before.rights)
    }
}

impl<F: Format> Change<F> for Clear {
    const REMOVES: bool = false;

    #[inline]
    fn apply(self, format: &F, entry: u64) -> Option<u64> {
        let bits = format.usage_bits(self.0);
        (entry & bits != 0).then_some(entry & !bits)
    }

    #[inline]
    fn must_flush(self, _before: &Translation) -> bool {
        true
    }
}
