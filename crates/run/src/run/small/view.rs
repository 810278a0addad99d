//! How addresses of the running space are relocated to the addresses that TLBs use.

use addr::{VirtAddr, VirtRange};
use pagetable::{Flush, Scope, Space};

/// How addresses of the running space are relocated to the addresses that TLBs use.
#[derive(Clone, Copy, Debug)]
pub(in crate::run) struct View {
    /// The number that is added to addresses.
    pub(in crate::run) base: u64,
    /// The size of the space's address range in bytes. For a space that is not small, no address is
    /// beyond this limit.
    pub(in crate::run) limit: u64,
    /// The space at whose root walks start.
    pub(in crate::run) root: Space,
    /// Whether pages of the space are entered as global.
    pub(in crate::run) is_global: bool,
    /// Upper bits that identify the context in virtual caches, which are combined with the
    /// addresses.
    pub(in crate::run) tag: u64,
}

impl View {
    pub(in crate::run) const fn flat(root: Space) -> View {
        View { base: 0, limit: u64::MAX, root, is_global: false, tag: 0 }
    }
}

/// Writes the relocated addresses to `linear`, up to the first address that is beyond the limit.
pub(in crate::run) fn relocate(addrs: &[u64], view: View, linear: &mut Vec<u64>) {
    linear.clear();
    let View { base, limit, .. } = view;
    // A limit is a power of two, so the bitwise OR of all addresses shows whether any address is
    // beyond the limit.
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

/// The range of `flush`, moved up by `base`; for a small space, only the part in its slot of
/// `slot_bytes`.
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
