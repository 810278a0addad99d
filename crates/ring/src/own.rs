use core::sync::atomic::{AtomicU64, Ordering};

/// The most address ranges of the engine's memory in one process.
pub const OWN_RANGES_MAX: usize = 32;

/// The address ranges of the engine's memory in a program, each with its start and end; both are 0 where there is none.
/// Memory that the program has between them is the program's. One thread at a time may add a range.
#[repr(C)]
#[derive(Debug)]
pub struct Own([[AtomicU64; 2]; OWN_RANGES_MAX]);

impl Default for Own {
    fn default() -> Own {
        Own::new()
    }
}

impl Own {
    /// No range.
    pub const fn new() -> Own {
        Own([const { [const { AtomicU64::new(0) }; 2] }; OWN_RANGES_MAX])
    }

    /// The ranges as they are now.
    pub fn ranges(&self) -> [[u64; 2]; OWN_RANGES_MAX] {
        core::array::from_fn(|at| self.0[at].each_ref().map(|word| word.load(Ordering::Acquire)))
    }

    /// Sets all ranges.
    pub fn set(&self, ranges: &[[u64; 2]; OWN_RANGES_MAX]) {
        for (to, range) in self.0.iter().zip(ranges) {
            to.iter().zip(range).for_each(|(to, &word)| to.store(word, Ordering::Release));
        }
    }

    /// Whether the address is in one of the ranges.
    pub fn holds(&self, address: u64) -> bool {
        own_holds(&self.ranges(), address)
    }
}

/// Whether the address is in one of the `ranges`.
pub fn own_holds(ranges: &[[u64; 2]; OWN_RANGES_MAX], address: u64) -> bool {
    ranges.iter().any(|&[start, end]| (start..end).contains(&address))
}

/// Adds a range, joined with those that it touches. Returns whether there was room for it.
pub fn own_add(ranges: &mut [[u64; 2]; OWN_RANGES_MAX], [mut start, mut end]: [u64; 2]) -> bool {
    for range in ranges.iter_mut().filter(|range| range[1] != 0) {
        if range[0] <= end && start <= range[1] {
            (start, end) = (start.min(range[0]), end.max(range[1]));
            *range = [0; 2];
        }
    }
    match ranges.iter_mut().find(|range| range[1] == 0) {
        Some(range) => *range = [start, end],
        None => return false,
    }
    true
}
