//! The size of the area that `xsave` and similar instructions access. The size depends on the
//! registers that the instruction saves, and on whether the area is compact.

use core::arch::asm;
use core::arch::x86_64::__cpuid_count;
use core::sync::atomic::{AtomicU64, Ordering};

/// The bytes of the area before the first extended component: legacy registers and header.
const HEAD_BYTES: u64 = 576;
/// The offset of the header's word that says which components a compact area has, and that it is compact.
pub(crate) const FORM: u64 = 520;
const IS_COMPACT: u64 = 1 << 63;
const COMPONENTS: usize = 63;

/// For each extended component: its size, 1 if it is aligned in the compact form (bit 31), and its
/// offset in the standard form (from bit 32 on). They are kept because the instruction that returns
/// them is slow in a virtual machine.
static KNOWN: [AtomicU64; COMPONENTS] = [const { AtomicU64::new(0) }; COMPONENTS];
/// The components that the system has enabled. 0 until they are known.
static ENABLED: AtomicU64 = AtomicU64::new(0);

const IS_ALIGNED: u64 = 1 << 31;

fn enabled() -> u64 {
    let known = ENABLED.load(Ordering::Acquire);
    if known != 0 {
        return known;
    }
    let (low, high): (u32, u32);
    // SAFETY: reads a register that each program may read where `xsave` is enabled.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack))
    };
    let enabled = u64::from(high) << 32 | u64::from(low);
    for (at, word) in KNOWN.iter().enumerate().filter(|(at, _)| *at >= 2 && enabled >> at & 1 != 0)
    {
        let leaf = __cpuid_count(0xd, at as u32);
        let aligned = if leaf.ecx & 2 != 0 { IS_ALIGNED } else { 0 };
        let told = u64::from(leaf.ebx) << 32 | aligned | u64::from(leaf.eax);
        word.store(told, Ordering::Relaxed);
    }
    ENABLED.store(enabled, Ordering::Release);
    enabled
}

/// The bytes that are accessed if the components `wanted` are saved, or restored from an area of the form `form`, which is 0
/// for the standard form, or has a bit for each component of a compact area.
pub(crate) fn bytes(wanted: u64, form: u64) -> u64 {
    let is_compact = form & IS_COMPACT != 0;
    let enabled = enabled();
    let (mut at, mut end) = (HEAD_BYTES, HEAD_BYTES);
    for (bit, word) in KNOWN.iter().enumerate().skip(2) {
        let known = word.load(Ordering::Relaxed);
        let size = known & (IS_ALIGNED - 1);
        let has = |mask: u64| mask >> bit & 1 != 0;
        if is_compact && has(form) {
            if known & IS_ALIGNED != 0 {
                at = at.next_multiple_of(64);
            }
            at += size;
        }
        if has(wanted & enabled) {
            end = end.max(if is_compact { at } else { (known >> 32) + size });
        }
    }
    end
}

/// The form of a compact area with these components.
pub(crate) fn compact(components: u64) -> u64 {
    components & enabled() | IS_COMPACT
}
