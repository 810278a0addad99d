//! The settings `shmem_enabled`: they determine for which shared memory faults use large blocks.

/// The setting for all sizes (`shmem_enabled`), which sizes set to `inherit` follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ShmemHuge {
    /// Sizes set to `inherit` are never used.
    #[default]
    Never,
    /// Sizes set to `inherit` are always used.
    Always,
    /// Sizes set to `inherit` are used if the memory does not end before the block does, or if
    /// advice requests them.
    WithinSize,
    /// Sizes set to `inherit` are used if advice requests them.
    Advise,
    /// No size is used, whatever its own setting.
    Deny,
    /// Only sizes set to `inherit` are used, and always.
    Force,
}

/// The orders of blocks for shared memory, as masks: bit n stands for blocks of 2^n base pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shmem {
    /// The setting that the orders in the mask `inherit` follow.
    pub all: ShmemHuge,
    /// Orders that follow `all`.
    pub inherit: u32,
    /// Orders that are used everywhere.
    pub always: u32,
    /// Orders that are used where the memory does not end before the block does.
    pub within_size: u32,
    /// Orders that are used where advice requests large pages.
    pub madvise: u32,
}

impl Shmem {
    /// Whether any order can be used.
    #[inline]
    pub(crate) const fn is_any(&self) -> bool {
        self.may_use(!0)
    }

    /// Whether any of these orders can be used.
    pub const fn may_use(&self, orders: u32) -> bool {
        let of_all = self.inherit & orders != 0 && !matches!(self.all, ShmemHuge::Never);
        of_all || (self.always | self.within_size | self.madvise) & orders != 0
    }

    /// The orders for the page `index` of a memory of `pages` pages (`shmem_allowable_huge_orders`).
    pub(crate) fn orders(&self, index: u64, pages: u64, is_advised: bool) -> u32 {
        // The highest order that fits and all lower orders are allowed
        // (`shmem_get_orders_within_size`).
        let fit = |orders: u32| {
            let fits = |order: &u32| (index + 1).next_multiple_of(1 << order) <= pages;
            let highest = (1..u32::BITS).rev().filter(|order| orders & 1 << order != 0).find(fits);
            highest.map_or(0, |highest| orders & (u32::MAX >> (u32::BITS - 1 - highest)))
        };
        let inherits = match self.all {
            ShmemHuge::Deny => return 0,
            ShmemHuge::Force => return self.inherit,
            ShmemHuge::Never => false,
            ShmemHuge::Always => true,
            ShmemHuge::WithinSize => fit(!1) != 0 || is_advised,
            ShmemHuge::Advise => is_advised,
        };
        let mut orders = self.always | fit(self.within_size);
        if is_advised {
            orders |= self.madvise;
        }
        if inherits {
            orders |= self.inherit;
        }
        orders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares each order separately with the rule.
    #[test]
    fn orders_follow_the_settings() {
        let alls = [
            ShmemHuge::Never,
            ShmemHuge::Always,
            ShmemHuge::WithinSize,
            ShmemHuge::Advise,
            ShmemHuge::Deny,
            ShmemHuge::Force,
        ];
        for (place, all) in alls.into_iter().enumerate() {
            for set in 0..4 {
                let mut shmem = Shmem { all, inherit: 1 << 9, ..Shmem::default() };
                *[
                    &mut shmem.inherit,
                    &mut shmem.always,
                    &mut shmem.within_size,
                    &mut shmem.madvise,
                ][set] |= 1 << 4;
                for (index, pages, advised) in [
                    (0, 512, false),
                    (0, 512, true),
                    (600, 700, false),
                    (699, 700, true),
                    (3, 15, false),
                ] {
                    let has = |order: u32| shmem.orders(index, pages, advised) & 1 << order != 0;
                    let small_fits = (index / 16 + 1) * 16 <= pages;
                    let any_fits = (index / 2 + 1) * 2 <= pages;
                    let inherits = match place {
                        1 | 5 => true,
                        2 => any_fits || advised,
                        3 => advised,
                        _ => false,
                    };
                    assert_eq!(has(9), inherits, "{all:?}, {set}, page {index} of {pages}");
                    let own = [inherits, true, small_fits, advised][set];
                    let own = own && (set == 0 || !matches!(place, 4 | 5));
                    assert_eq!(has(4), own, "{all:?}, {set}, page {index} of {pages}");
                }
            }
        }
    }
}
