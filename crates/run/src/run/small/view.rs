//! Where the addresses of the space that runs are for the TLBs.

use addr::{VirtAddr, VirtRange};
use pagetable::{Flush, Scope, Space};

/// How addresses of the space that runs become those that the TLBs hold.
#[derive(Clone, Copy, Debug)]
pub(in crate::run) struct View {
    /// What is added to them.
    pub(in crate::run) base: u64,
    /// Bytes of addresses that there are; of a flat space none is beyond.
    pub(in crate::run) limit: u64,
    /// Whose root walks start at.
    pub(in crate::run) root: Space,
    /// Whether its pages are entered as global ones.
    pub(in crate::run) is_global: bool,
    /// What is put before them where virtual caches hold lines by them: which context they are of.
    pub(in crate::run) tag: u64,
}

impl View {
    pub(in crate::run) const fn flat(root: Space) -> View {
        View { base: 0, limit: u64::MAX, root, is_global: false, tag: 0 }
    }
}

/// The addresses as TLBs see them, in `linear`, up to the first that is beyond the limit.
pub(in crate::run) fn relocate(addrs: &[u64], view: View, linear: &mut Vec<u64>) {
    linear.clear();
    let View { base, limit, .. } = view;
    // A limit is a power of two: one bit of all addresses together tells whether any is beyond.
    let mut all = 0;
    linear.extend(addrs.iter().map(|addr| {
        all |= addr;
        addr.wrapping_add(base)
    }));
    if all >= limit {
        let within = addrs.iter().position(|addr| *addr >= limit);
        linear.truncate(within.unwrap_or(addrs.len()));
    }
}

/// What of `flush` is to be forgotten at addresses `base` further up: in a slot of so many bytes, if it
/// is of a small space.
pub(in crate::run) fn moved(flush: &Flush, base: u64, slot_bytes: u64) -> Option<VirtRange> {
    match flush.scope() {
        Scope::Nothing => None,
        Scope::Pages { range, .. } => {
            let start = range.start().wrapping_add(base);
            let room = if base == 0 { range.bytes() } else { slot_bytes.min(range.bytes()) };
            VirtRange::new(start, room).ok()
        }
        Scope::Space if base == 0 => Some(VirtRange::ALL),
        Scope::Space => VirtRange::new(VirtAddr::new(base), slot_bytes).ok(),
    }
}
